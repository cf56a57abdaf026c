"""The web site: pages of records, imports and papers; it only reads."""
