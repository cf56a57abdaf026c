"""Exports and side jobs: TREC runs, the matches behind a score, a teacher's scores."""
