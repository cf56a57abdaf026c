"""The site's data: snapshots of records, imports and papers, asked through DuckDB."""
