"""From a request to jobs: the catalog, the models, the recipes, and the scores with their keys."""
