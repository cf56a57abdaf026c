"""The report of a run: tables for people, JSON for machines."""
