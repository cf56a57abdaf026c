"""Training data: where its sets are, a user's own files, and its rows as memory-mapped tables."""
