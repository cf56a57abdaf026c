"""The web server: routes, formats, tables, charts, caching, limits of requests."""
