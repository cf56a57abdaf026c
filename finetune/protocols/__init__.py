"""Protocols: all that a paper's tables ask of one backbone, one file each."""
