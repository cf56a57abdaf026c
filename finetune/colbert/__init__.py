"""Models with a vector for each token."""
