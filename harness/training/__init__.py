"""A trained model on disk, and the process that makes it."""
