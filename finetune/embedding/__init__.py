"""Contrastive training of embedding models: settings, losses, batches, checkpoints and the trainer."""
