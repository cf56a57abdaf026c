"""The order of the training rows: a pure function of seed, epoch and step."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


class BatchOrder:
    """The batches of a training, epoch after epoch, each of one or more groups of rows.

    Args:
        rows: The number of rows.
        size: Rows of a batch.
        epochs: Passes over the rows.
        seed: The seed of the training.
        texts: Numbers of the rows' texts, (rows, columns); rows that share one are not put into one group.
            None for plain shuffling.
        group: Rows of a group, which divides `size`; None for batches of one group.
        keeps_last: Whether the incomplete last batch of an epoch is kept.
    """

    def __init__(
        self,
        rows: int,
        size: int,
        *,
        epochs: int,
        seed: int,
        texts: NDArray[np.uint64] | None = None,
        group: int | None = None,
        keeps_last: bool = False,
    ) -> None:
        self._rows, self._size, self._seed, self._texts = rows, size, seed, texts
        self._group, self._keeps_last = group or size, keeps_last
        self._built: tuple[int, list[Rows]] = (-1, [])
        last = [self._last(epoch) for epoch in range(epochs)]
        self._ends = list(accumulate(count for count, _ in last))
        self._sizes = [size for _, size in last]

    @property
    def steps(self) -> int:
        """The number of batches of all epochs."""
        return self._ends[-1]

    def after(self, done: int) -> Iterator[Rows]:
        """The row numbers of each batch after the first `done`, group after group."""
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

    def size(self, step: int) -> int:
        """The number of rows of a batch, the first of which is that of step 1."""
        epoch = bisect_left(self._ends, step)
        return self._sizes[epoch] if step == self._ends[epoch] else self._size

    def _last(self, epoch: int) -> tuple[int, int]:
        """The number of batches of an epoch, and the rows of its last one."""
        if self._texts is None:
            whole, rest = divmod(self._rows, self._size)
            return (whole + 1, rest) if rest and self._keeps_last else (whole, self._size)
        batches = self._epoch(epoch)
        return len(batches), len(batches[-1]) if batches else 0

    def _epoch(self, epoch: int) -> list[Rows]:
        """The batches of an epoch; the last ones that were built are kept."""
        if self._built[0] != epoch:
            self._built = (epoch, self._batches(epoch))
        return self._built[1]

    def _batches(self, epoch: int) -> list[Rows]:
        order = np.random.default_rng([self._seed, epoch]).permutation(self._rows)
        if self._texts is not None:
            order = _without_duplicates(order, self._texts, self._group)
        whole = len(order) // self._size * self._size
        batches = [*order[:whole].reshape(-1, self._size)]
        return [*batches, order[whole:]] if self._keeps_last and whole < len(order) else batches


class PackedOrder(BatchOrder):
    """Batches of groups that were packed in advance, in an order of its own in each epoch, shuffled inside.

    Groups that are left at the end of an epoch are left out of it.

    Args:
        groups: (groups, size), the rows of each; see `packed`.
        epochs: Passes over the groups.
        seed: The seed of the training.
        each: Groups of a batch.
    """

    def __init__(self, groups: Rows, *, epochs: int, seed: int, each: int = 1) -> None:
        self._packed, size = groups, groups.shape[1]
        super().__init__(groups.size, each * size, epochs=epochs, seed=seed, group=size)

    def _batches(self, epoch: int) -> list[Rows]:
        draw = np.random.default_rng([self._seed, epoch])
        order = draw.permutation(len(self._packed))
        rows = draw.permuted(self._packed[order], axis=1).ravel()
        return [*rows[: len(rows) // self._size * self._size].reshape(-1, self._size)]


def packed(clusters: NDArray[np.int32], size: int, *, seed: int, tour: Sequence[int] = ()) -> Rows:
    """The rows of a set in batches: its clusters one after the other, cut at every `size` rows.

    So a batch has rows of one cluster, or of a few that follow each other. The rows that are left at the end
    are left out; those of each cluster come in a drawn order.

    Args:
        clusters: The cluster of each row, (rows,); -1 for a row that is left out.
        size: Rows of a batch.
        seed: The seed of the training.
        tour: The order of the clusters, which begins at a drawn one of them; empty for a drawn order.

    Returns:
        The rows of each batch, (batches, size).
    """
    draw = np.random.default_rng([seed, 2**32])
    known = np.unique(clusters[clusters >= 0])
    order = np.roll(tour, -int(draw.integers(len(tour)))) if len(tour) else draw.permutation(known)
    places = np.full(int(known.max(initial=0)) + 1, -1, np.int64)
    places[order] = np.arange(len(order))
    rows = draw.permutation(np.flatnonzero(clusters >= 0))
    rows = rows[np.argsort(places[clusters[rows]], kind="stable")]
    return rows[: len(rows) // size * size].reshape(-1, size)


def _without_duplicates(order: Rows, texts: NDArray[np.uint64], size: int) -> Rows:
    """Groups in the given order; a row that shares a text with its group waits for a later one.

    The last group may be incomplete; the rows that wait for one more are left out.
    """
    begin, waiting, groups = 0, order[:0], list[Rows]()
    while True:
        rows = np.concatenate([waiting, order[begin : begin + size]])
        group, passed = rows[:size], order[:0]
        if len(group) < size or len(np.unique(texts[group])) < texts[group].size:
            group, passed = _group(chain(waiting, order[begin:]), texts, size)
        groups.append(group)
        if len(group) < size:
            return np.concatenate(groups)
        read = len(group) + len(passed)
        begin += max(0, read - len(waiting))
        waiting = np.concatenate([passed, waiting[read:]])


def _group(rows: Iterable[np.int64], texts: NDArray[np.uint64], size: int) -> tuple[Rows, Rows]:
    """The first rows that fit together, and those that were passed over on the way."""
    group: list[np.int64] = []
    passed: list[np.int64] = []
    seen: set[int] = set()
    for row in rows:
        own = texts[row].tolist()
        if seen.isdisjoint(own):
            group.append(row)
            seen.update(own)
        else:
            passed.append(row)
        if len(group) == size:
            break
    return np.array(group, dtype=np.int64), np.array(passed, dtype=np.int64)


def text_numbers(parts: Iterable[Mapping[str, Sequence[str]]], columns: Sequence[str]) -> NDArray[np.uint64]:
    """A 64-bit hash of each text of a table that is read part by part, (rows, columns)."""
    found = [
        np.array([[_number(text) for text in part[name]] for name in columns], dtype=np.uint64).T
        for part in parts
    ]
    return np.concatenate(found)


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
