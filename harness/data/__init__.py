"""Data sets: their places and identities.

Nothing here imports torch, mteb or datasets; huggingface_hub is imported when the hub is asked.
"""
