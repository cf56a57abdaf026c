"""The ways to measure speed: ours, by attention backend too, and those of two papers; no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

METRIC = "tokens_per_second"

PRECISION = 0.03
"""How much larger a batch may fit than the one that is found."""

LARGEST_DOUBLING = 512


def find_largest_batch(fits: Callable[[int], bool], most: int) -> int:
    """The largest batch that fits, by doubling and bisection to 3 %; 0 if none does.

    >>> find_largest_batch(lambda size: size <= 700, 4096)
    688
    """
    size = _find_doubled_batch(fits, most)
    if 0 < size < most < 2 * size and fits(most):
        return most
    above = min(2 * size, most + 1)
    while size and above - size > max(1, PRECISION * size):
        middle = (size + above) // 2
        size, above = (middle, above) if fits(middle) else (size, middle)
    return size


def _find_doubled_batch(fits: Callable[[int], bool], most: int) -> int:
    """The largest of 1, 2, 4 ... that fits; 0 if none does."""
    size = 1
    while size <= most and fits(size):
        size *= 2
    return size // 2


def find_released_batch(fits: Callable[[int], bool], most: int) -> int:
    """The batch of ModernBERT's released script; 0 if none fits.

    >>> find_released_batch(lambda size: size <= 700, 4096), find_released_batch(lambda size: True, 4096)
    (696, 4092)
    """
    size = min(1024, most)
    if fits(size):
        while size < most and fits(size + 16):
            size += 16
    else:
        for step, bound in ((64, 64), (4, 4), (1, 0)):
            while size > bound and not fits(size):
                size -= step
        for step in (32, 16, 8, 4, 2) if size else ():
            while size + step <= most and fits(size + step):
                size += step
    size = min(size, most)
    return size - 4 if size > 8 else size


@dataclass(frozen=True, kw_only=True)
class SpeedProtocol:
    """A way to measure speed.

    Each of `lengths`, the tokens of the longest sequences, is a task with `sets` of `sequences`, None for as
    many as a batch has; drawn lengths are `least` or more. `find_batch` finds the largest batch. Each set is
    run in `rounds`, behind `warmup` passes; `waits` is whether the clock is read when the device is done,
    without transfers. `attention` is the backend of both engines in transformers' words, empty for each
    one's own.
    """

    name: str
    title: str
    lengths: tuple[int, ...] = (512, 8192)
    sequences: int | None = 8192
    least: int = 32
    rounds: int = 10
    warmup: int = 10
    waits: bool = True
    find_batch: Callable[[Callable[[int], bool], int], int] = find_largest_batch
    sets: tuple[str, ...] = ("fixed", "variable")
    attention: str = ""


HARNESS = SpeedProtocol(name="efficiency", title="Speed on synthetic sets")
# "100 steps", each of one batch; the batch doubles to 512.
NEOBERT = SpeedProtocol(
    name="efficiency-neobert", title="Speed by length, the best of growing batches", sequences=None,
    lengths=(512, 1024, 2048, 4096, 8192), rounds=100, find_batch=_find_doubled_batch, sets=("fixed",),
)  # fmt: skip

WAYS = {
    "": HARNESS,
    # The released script: its one call has 4,096 sequences, its clamp is 16, and the printed sets have 32.
    "modernbert": SpeedProtocol(
        name="efficiency:modernbert", title="Speed as the released script of ModernBERT times it",
        sequences=4096, least=16, warmup=0, waits=False, find_batch=find_released_batch,
    ),
    **{
        name: replace(
            HARNESS, name=f"efficiency:{name}", title=f"{HARNESS.title}, attention by {name}",
            attention=backend,
        )
        for name, backend in {"sdpa": "sdpa", "eager": "eager", "flash": "flash_attention_2"}.items()
    },
}  # fmt: skip
"""The ways of the suite `efficiency` by what a user types behind its name."""
