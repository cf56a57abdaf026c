"""Speed and memory of a model on synthetic sets: engines, the largest batch, rounds of timed runs."""
