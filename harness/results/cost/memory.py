"""The disk that vectors and indexes take, and the main memory and GPU memory of workers."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.encoding import AnyEncoding, Encoding
from harness.core.errors import shorten_names
from harness.core.types import Purpose, Size
from harness.data.locate import format_size
from harness.search.plaid import estimate_index_bytes, sample_size

KEY_BYTES, OFFSET_BYTES = 16, 8
"""Bytes of a text's hash beside its vector, and of its place in its shard where each token has a vector."""

PER_WEIGHT, PER_LOADED = 6, 2
"""The memory of a CPU run (weights, gradients, two moments, temporary values), and of a worker that encodes,
in units of its model's weights."""

PROCESS = 2_500_000_000
"""Further bytes of a process: its libraries and activations."""

PER_TEXT = 8_192
"""The bytes of a text that is scored: its vector of up to 1,024 values, and that in the task's own form."""

PER_CHARACTER = 2
"""The bytes of its characters: those of the data, and of the texts that the model is given."""

SHARE = 0.9
"""The share of a device's memory that training runs of tasks may take."""


def estimate_job_memory(weights: int, *, trains: bool) -> int:
    """The bytes of main memory of a job, by those of its model's weights."""
    return PROCESS + weights * (PER_WEIGHT if trains else PER_LOADED)


def estimate_scoring_memory(size: Size) -> int:
    """The bytes of main memory of a process that scores a task, of known texts only."""
    return PROCESS + (size.texts or 0) * PER_TEXT + (size.characters or 0) * PER_CHARACTER


def compute_run_capacity(room: float, need: float) -> int:
    """The number of runs that fit into some memory, at least one.

    >>> compute_run_capacity(80e9, 12e9), compute_run_capacity(8e9, 12e9)
    (6, 1)
    """
    return max(1, int(room // need))


@dataclass(frozen=True, kw_only=True)
class PlannedWork:
    """A planned score from vectors or from a ranking, in the words of a plan.

    Attributes:
        name, task, key, state, purpose, error: As a table shows them.
        model: The ArtifactKey.
        type: The type of the task.
        identity: What the score depends on.
        encoding: The settings on this task.
        size: The size of the task.
        parameters: All that the weights hold, in float32.
        width: The length of a vector; None where configs do not say.
    """

    name: str
    task: str
    key: str
    state: str
    purpose: Purpose = "final"
    error: str | None = None
    model: str
    type: str = ""
    identity: Mapping[str, Any]
    encoding: AnyEncoding
    size: Size
    parameters: int = 0
    width: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether it is still to be made."""
        return self.state == "to do"


def _estimate_vector_bytes(work: PlannedWork) -> int | None:
    """The bytes of a score's vectors, None where they are not known."""
    encoding, size = work.encoding, work.size
    if not isinstance(encoding, Encoding):
        return 0
    if not work.width or size.texts is None:
        return None
    each = work.width * (2 if encoding.vectors == "float16" else 4)
    if encoding.late_interaction is None:
        return size.texts * (each + KEY_BYTES)
    return size.most_tokens(encoding.max_length) * each + size.texts * (KEY_BYTES + OFFSET_BYTES)


def is_streamed(work: PlannedWork, keep: float) -> bool:
    """Whether the vectors of a score's documents are not kept, by the gigabytes that are, and by its size."""
    indexed = isinstance(work.encoding, Encoding) and work.encoding.index is not None
    return indexed and (_estimate_vector_bytes(work) or 0) > keep * 1e9


def estimate_index_size(work: PlannedWork, keep: float) -> int:
    """The bytes of a score's index, about; 0 without one, or where the task's size is not known.

    While one is made whose vectors are not kept, those of a sample are beside its first half.
    """
    encoding, size = work.encoding, work.size
    if not isinstance(encoding, Encoding) or encoding.index is None or encoding.late_interaction is None:
        return 0
    tokens = size.most_tokens(encoding.max_length)
    full_size = estimate_index_bytes(tokens, encoding.late_interaction.dimension, encoding.index)
    if not is_streamed(work, keep) or not size.texts:
        return full_size
    # The sample's vectors are as large a part of all as its texts.
    sample = (_estimate_vector_bytes(work) or 0) * sample_size(size.texts) // size.texts
    return max(full_size, full_size // 2 + sample)


@dataclass(frozen=True, kw_only=True)
class DiskNeed:
    """The disk that a run's vectors and indexes take at most, in bytes, and what is free in the cache.

    `texts` are those whose vectors count, and `bytes` with `indexes` all that is taken. `unknown` are the
    tasks of unknown size, and `passing` those whose vectors are not kept; only their indexes count.
    `is_float32` is whether vectors of any model are kept in float32.
    """

    texts: int
    bytes: int
    free: int
    indexes: int = 0
    unknown: tuple[str, ...] = ()
    passing: tuple[str, ...] = ()
    is_float32: bool = True

    @property
    def is_large(self) -> bool:
        """Whether the need is worth a line: a gigabyte or more, more than is free, or indexes."""
        return self.bytes >= min(10**9, self.free) or self.indexes > 0

    @property
    def text(self) -> str:
        """A sentence on the need, with a warning where it does not fit."""
        what = f"vectors of up to {self.texts:,} texts" if self.texts else "indexes"
        sentence = f"{what} take about {format_size(self.bytes)} of disk"
        sentence += f", {format_size(self.indexes)} of it in indexes" if self.indexes and self.texts else ""
        more = f", without {shorten_names(self.unknown)}, whose size is not known" if self.unknown else ""
        more += f", the vectors of {shorten_names(self.passing)} are not kept" if self.passing else ""
        if self.bytes <= self.free:
            return f"{sentence}{more}; {format_size(self.free)} are free"
        half = "--vectors float16 takes half of it, " if self.is_float32 else ""
        return (
            f"WARNING: {sentence}{more}, and only {format_size(self.free)} are free in the cache. "
            f"{half}--drop-vectors that of one model at a time, --cache DIR another disk"
        )

    @staticmethod
    def estimate_disk_need(
        works: Sequence[PlannedWork], cache: Path, *, keep: float, drop: bool
    ) -> DiskNeed | None:
        """The need of open scores; None where no vectors are made, or nothing is known.

        Args:
            works: The scores.
            cache: The cache folder, whose free disk counts.
            keep: The gigabytes of token vectors that are kept of a corpus with an index.
            drop: Whether the vectors of each model are removed before those of the next are made.
        """
        streamed = {work.key: work.task for work in works if is_streamed(work, keep)}
        sizes = {work.key: 0 if work.key in streamed else _estimate_vector_bytes(work) for work in works}
        models: dict[str, int] = {}
        for work in works:
            models[work.model] = models.get(work.model, 0) + (sizes[work.key] or 0)
        indexes = sum(estimate_index_size(work, keep) for work in works)
        if not any(models.values()) and not streamed:
            return None
        kept = [work for work in works if sizes[work.key]]
        encodings = [work.encoding for work in kept if isinstance(work.encoding, Encoding)]
        return DiskNeed(
            texts=sum(work.size.texts or 0 for work in kept),
            bytes=indexes + (max(models.values()) if drop else sum(models.values())),
            indexes=indexes,
            free=_measure_free_disk(cache),
            unknown=tuple(dict.fromkeys(work.task for work in works if sizes[work.key] is None)),
            passing=tuple(dict.fromkeys(streamed.values())),
            is_float32=any(encoding.vectors == "float32" for encoding in encodings),
        )


def _measure_free_disk(folder: Path) -> int:
    """The free bytes of the disk on which a folder lies or will lie."""
    # The cache folder may not be made yet, and disk_usage wants a path that exists.
    ancestor = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    return shutil.disk_usage(ancestor).free
