"""Records read again: conditions, means, intervals and differences."""
