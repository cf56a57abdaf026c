"""The pages, one file each with its routes."""
