"""The web server: routes, formats, tables, charts, caching and access."""
