"""Telling that memory ran out from any other error."""

from __future__ import annotations

SAID = ("out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")
"""What torch says on a GPU, on a CPU, and in a library on a GPU."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of a forward pass means that the batch was too large.

    >>> is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    True
    """
    return isinstance(error, MemoryError) or any(s in str(error) for s in SAID)
