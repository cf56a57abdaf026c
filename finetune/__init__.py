"""How a backbone becomes a model: recipes, and what they share."""
