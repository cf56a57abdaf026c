"""Where a task's data set lies and what it is: a data root, the hub's cache, the hub.

Nothing here imports torch, mteb or datasets; huggingface_hub is imported when the hub is asked.
"""
