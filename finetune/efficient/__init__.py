"""Compute-optimal contrastive trainings: full, of the last blocks, by adapters of low rank, or of biases."""
