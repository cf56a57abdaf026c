"""Contextual document embeddings: batches of pairs that are alike, and what belongs to them."""
