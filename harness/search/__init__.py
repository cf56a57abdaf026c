"""Search: exact, by BM25, and approximate by PLAID."""
