"""A SentenceTransformer that keeps the dtypes its modules were loaded in."""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers import SentenceTransformer as _SentenceTransformer


class SentenceTransformer(_SentenceTransformer):
    """Leaves every tensor in the dtype loading gave it.

    The library converts all tensors to the dtype of the first one, so in half precision it also
    rounds what transformers keeps in float32: the frequencies of rotary positions, and the
    modules behind the backbone. The class has the library's name because a model folder is
    recognised by it.
    """

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Move to a device; a bare dtype is ignored."""
        if len(args) == 1 and isinstance(args[0], torch.dtype) and not kwargs:
            return self
        return super().to(*args, **kwargs)
