"""What work costs: time, tokens, disk and memory, expected from records, measurements and what has ended."""
