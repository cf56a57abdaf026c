"""Recipes that train a model from a backbone, and the parts that they share."""
