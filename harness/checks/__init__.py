"""The gate: whether a candidate is as good as a baseline, task by task and as a whole."""
