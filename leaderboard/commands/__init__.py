"""The commands of the site: serve, export, import, papers, push and token."""
