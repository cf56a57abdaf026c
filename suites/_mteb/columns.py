"""Columns of a data set as lists, read once.

Task code asks for a label row by row, and a data set on disk decodes a whole table for each row.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datasets import Dataset


def with_lists(value: Any) -> Any:
    """The same data sets, in the same containers, whose columns come as lists."""
    from datasets import Dataset

    return in_new_containers(value, lambda inner: _listed(inner) if isinstance(inner, Dataset) else inner)


def in_new_containers(value: Any, change: Callable[[Any], Any], *, depth: int = 3) -> Any:
    """What `change` makes of a task's data, in copies of the subsets, splits and parts that hold it."""
    if not depth or not isinstance(value, dict):
        return change(value)
    twin = copy.copy(value)
    twin.update({name: in_new_containers(inner, change, depth=depth - 1) for name, inner in value.items()})
    return twin


def _listed(data: Dataset) -> Dataset:
    twin = copy.copy(data)
    twin.__class__ = _class()
    return twin


@functools.cache
def _class() -> type[Dataset]:
    from datasets import Dataset

    class Listed(Dataset):  # type: ignore[misc]
        """A data set that keeps each column it was asked for; who asks gets a list of his own."""

        def __getitem__(self, key: Any) -> Any:
            """A column by name, or rows, as any data set has them."""
            if not isinstance(key, str):
                return super().__getitem__(key)
            known = self.__dict__.setdefault("_lists", {})
            if key not in known:
                known[key] = super().__getitem__(key)[:]
            return list(known[key])

    return Listed
