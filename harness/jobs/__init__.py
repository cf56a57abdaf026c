"""Units of work: training, verifying, encoding, ranking and scoring, and the context they run in."""
