"""Multi-vector (ColBERT) models."""
