"""The commands of the site: serve, export, import and papers."""
