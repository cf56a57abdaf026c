"""Drives a plan, shows its progress and status, and reports its results."""
