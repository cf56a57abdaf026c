"""Steps on a GPU, which works behind this process: values are read late, and batches are made ahead."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader

from harness.encoder.batches import iterate_ahead, move_features, takes_packing

READ_STEPS, READ_SECONDS = 10, 2.0
"""After so many steps, or so much time, the losses of a GPU's steps are read, which waits for the GPU."""

AHEAD = 2
"""Batches that are tokenized before their step."""

MEMORY_SHARE = 0.7
"""The share of a GPU's free memory that a pass may take; the rest is for passes of other lengths."""

Lengths = Sequence[NDArray[np.int64]]
"""The tokens of each text, column by column."""


def choose_sum_dtype(device: torch.device) -> torch.dtype:
    """The dtype of sums of losses: as exact as numbers of Python where a device has that."""
    return torch.float32 if device.type == "mps" else torch.float64


def works_behind(device: str) -> bool:
    """Whether a device works while this process goes on, so that each value that is read costs time."""
    return device.startswith("cuda")


class AheadLoader(DataLoader[Any]):
    """Batches that a thread makes ahead of their steps.

    Args:
        lock: Held while a batch is made.
    """

    def __init__(self, *args: Any, lock: Lock, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lock = lock

    def __iter__(self) -> Any:
        return iterate_ahead(super().__iter__(), AHEAD, self._lock)


MASKS = ("input_ids", "attention_mask", "compute_mask")
"""The features from which a batch is packed."""


def keep_on_host(inputs: dict[str, Any]) -> dict[str, Any]:
    """The ids and masks of each column once more, under names with `host_`, which stay on the CPU."""
    # A loss cuts them like all others of a column; the ids on the GPU tell it whose random state to keep.
    return {
        f"{name.removesuffix(feature)}host_{feature.partition('_')[0]}": value
        for name, value in inputs.items()
        for feature in MASKS
        if name.endswith(f"_{feature}")
    }


def pack_on_host(module: Any) -> None:
    """Have a Transformer module with our network pack its batches on the CPU, so that no pass waits."""

    def pack(_module: Any, args: tuple[dict[str, Any], ...]) -> None:
        features = args[0]
        if "host_input" not in features:
            return
        ids, *masks = (features.pop(f"host_{name.partition('_')[0]}", None) for name in MASKS)
        packing = module.auto_model.build_packing(ids, *masks)
        features |= move_features({"packing": packing}, features["input_ids"].device)

    if takes_packing(module):
        module.register_forward_pre_hook(pack)


def pack_rows(model: Any, tokens: Tensor | None, device: torch.device) -> dict[str, Any]:
    """The packing of a batch for the encoder of a classifier on a GPU; nothing where it takes none.

    Args:
        model: The classifier.
        tokens: (rows, columns), the places that are no padding, on the CPU; None if not known.
        device: That of the classifier.
    """
    build = getattr(getattr(model, "encoder", None), "build_packing", None)
    if build is None or tokens is None or not works_behind(device.type):
        return {}
    return move_features({"packing": build(tokens, tokens, tokens)}, device)


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step whose measurements may still be on the device.

    Attributes:
        number: Its number.
        line: What is known of it already, in the words of the log.
        tokens: Its tokens in this process.
        measures: The names of the loss's measures.
        values: (2 + measures,), the mean loss of all processes, the norm of the gradient, and the measures.
    """

    number: int
    line: dict[str, Any]
    tokens: int
    measures: tuple[str, ...]
    values: Tensor


class GPUMemory(NamedTuple):
    """Bytes of a GPU: those of tensors now, their highest number so far, and those that are free for more."""

    allocated: int
    peak: int
    free: int


def read_gpu_memory() -> GPUMemory:
    """The memory of the only GPU that this process sees."""
    allocated = torch.cuda.memory_allocated()
    # torch keeps what was freed, for itself.
    free = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - allocated
    return GPUMemory(allocated, torch.cuda.max_memory_allocated(), free)


class PassSize:
    """The size of the passes of cached gradients on a GPU, by the memory that the first step has taken.

    Args:
        least: The rows of a pass of the recipe, which the first step has.
        most: The most rows, where more did not fit; None for no limit.

    Attributes:
        tokens: The most tokens of a pass; None before the first step.
        rows: The rows of a pass in the last step; None for the whole batch in one.
    """

    def __init__(self, least: int, most: int | None) -> None:
        self._least, self._most = min(least, most or least), most
        self.tokens: int | None = None
        self.rows: int | None = self._least

    def choose_rows(self, lengths: Lengths) -> int | None:
        """The rows of each pass of a batch, a power of two or those of the recipe; None for a single pass."""
        if self.tokens is None:
            self.rows = self._least
        elif self._most is None and sum(int(column.sum()) for column in lengths) <= self.tokens:
            self.rows = None
        else:
            rows = 2 ** math.ceil(math.log2(max(map(len, lengths))))
            while rows > self._least and _count_pass_tokens(lengths, rows) > self.tokens:
                rows //= 2
            self.rows = max(self._least, min(rows, self._most or rows))
        return self.rows

    @contextmanager
    def measure_first_step(self, lengths: Lengths) -> Iterator[None]:
        """Set the tokens of a pass by the memory of the forward and backward passes inside."""
        torch.cuda.reset_peak_memory_stats()
        before = read_gpu_memory()
        yield
        after = read_gpu_memory()
        each = (after.peak - after.allocated) / _count_pass_tokens(lengths, self._least)
        # AdamW's two moments, each as large as the gradients, come with the first update.
        free = after.free - 2 * (after.allocated - before.allocated)
        self.tokens = 2 ** math.floor(math.log2(max(1.0, MEMORY_SHARE * free / max(1.0, each))))


def _count_pass_tokens(lengths: Lengths, rows: int) -> int:
    """The tokens of the largest pass over `rows` texts of a column."""
    return max(int(np.add.reduceat(one, range(0, len(one), rows)).max()) for one in lengths)
