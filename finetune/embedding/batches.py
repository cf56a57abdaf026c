"""The order of the training rows: a pure function of seed, epoch and step."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


class BatchOrder:
    """The batches of a training, epoch after epoch; an incomplete last batch of an epoch is left out.

    Args:
        rows: The number of rows.
        size: Rows of a batch.
        epochs: Passes over the rows.
        seed: The seed of the training.
        texts: Numbers of the rows' texts, (rows, columns); rows that share one are not put into one batch.
            None for plain shuffling.
    """

    def __init__(
        self, rows: int, size: int, *, epochs: int, seed: int, texts: NDArray[np.uint64] | None = None
    ) -> None:
        self._rows, self._size, self._seed, self._texts = rows, size, seed, texts
        counts = [self._count(epoch) for epoch in range(epochs)]
        self._ends = list(accumulate(counts))

    @property
    def steps(self) -> int:
        """The number of batches of all epochs."""
        return self._ends[-1]

    def after(self, done: int) -> Iterator[Rows]:
        """The row numbers of each batch after the first `done`, each (size,)."""
        begin = 0
        for epoch, end in enumerate(self._ends):
            if done < end:
                yield from self._epoch(epoch)[max(0, done - begin) :]
            begin = end

    def epochs(self, step: int) -> float:
        """The epochs that have passed after a number of steps."""
        begin = 0
        for epoch, end in enumerate(self._ends):
            if step < end:
                return epoch + (step - begin) / (end - begin)
            begin = end
        return float(len(self._ends))

    def _count(self, epoch: int) -> int:
        return self._rows // self._size if self._texts is None else len(self._epoch(epoch))

    def _epoch(self, epoch: int) -> Rows:
        """The batches of an epoch, (batches, size)."""
        order = np.random.default_rng([self._seed, epoch]).permutation(self._rows)
        if self._texts is None:
            whole = self._rows // self._size * self._size
            return order[:whole].reshape(-1, self._size)
        return _without_duplicates(order, self._texts, self._size)


def _without_duplicates(order: Rows, texts: NDArray[np.uint64], size: int) -> Rows:
    """Batches in the given order; a row that shares a text with its batch waits for a later one."""
    own = {row: frozenset(numbers) for row, numbers in enumerate(texts.tolist())}
    fresh, waiting, batches = iter(order.tolist()), list[int](), list[list[int]]()
    while True:
        old = iter(waiting)
        batch, passed = _batch(chain(old, fresh), own, size)
        if len(batch) < size:
            return np.array(batches, dtype=np.int64).reshape(-1, size)
        batches.append(batch)
        waiting = [*passed, *old]


def _batch(rows: Iterable[int], own: Mapping[int, frozenset[int]], size: int) -> tuple[list[int], list[int]]:
    """The first rows that fit together, and those that were passed over on the way."""
    batch: list[int] = []
    passed: list[int] = []
    seen: set[int] = set()
    for row in rows:
        if seen.isdisjoint(own[row]):
            batch.append(row)
            seen |= own[row]
        else:
            passed.append(row)
        if len(batch) == size:
            break
    return batch, passed


def text_numbers(parts: Iterable[Mapping[str, Sequence[str]]], columns: Sequence[str]) -> NDArray[np.uint64]:
    """A 64-bit hash of each text of a table that is read part by part, (rows, columns)."""
    found = [
        np.array([[_number(text) for text in part[name]] for name in columns], dtype=np.uint64).T
        for part in parts
    ]
    return np.concatenate(found)


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
