"""Recipes of the catalog, one file each."""
