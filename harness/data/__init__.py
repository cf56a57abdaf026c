"""Data sets: their places and identities.

Imports no torch, mteb or datasets, and huggingface_hub only for requests to the hub.
"""
