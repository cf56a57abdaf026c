"""Checks of a candidate against a baseline: whether it is as good, task by task and as a whole."""
