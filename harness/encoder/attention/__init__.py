"""Attention over packed sequences: one interface, several backends."""
