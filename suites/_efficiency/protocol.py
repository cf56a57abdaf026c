"""The ways to measure speed: ours, by attention backend too, and those of two papers; no torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

METRIC = "tokens_per_second"


@dataclass(frozen=True, kw_only=True)
class SpeedProtocol:
    """A way to measure speed.

    Attributes:
        name: The name in records.
        title: The heading of its table.
        lengths: The tokens of the longest sequences, one task each.
        sequences: Those of a set; None for as many as a batch has.
        least: The shortest drawn length.
        rounds: The runs over each set.
        warmup: The passes before the first run.
        waits: Whether the clock is read when the device is done, without transfers.
        search: How the largest batch is found.
        sets: The sets of a length.
        attention: The attention backend of both engines in transformers' words; empty for each one's own.
    """

    name: str
    title: str
    lengths: tuple[int, ...] = (512, 8192)
    sequences: int | None = 8192
    least: int = 32
    rounds: int = 10
    warmup: int = 10
    waits: bool = True
    search: Literal["bisection", "released", "doubling"] = "bisection"
    sets: tuple[str, ...] = ("fixed", "variable")
    attention: str = ""


HARNESS = SpeedProtocol(name="efficiency", title="Speed on synthetic sets")
# The released script: its one call has 4,096 sequences, and its clamp is 16, while the printed sets have 32.
MODERNBERT = SpeedProtocol(
    name="efficiency:modernbert", title="Speed as the released script of ModernBERT times it", sequences=4096,
    least=16, warmup=0, waits=False, search="released",
)  # fmt: skip
# "100 steps", each of one batch; the batch doubles to 512.
NEOBERT = SpeedProtocol(
    name="efficiency-neobert", title="Speed by length, the best of growing batches",
    lengths=(512, 1024, 2048, 4096, 8192), sequences=None, rounds=100, search="doubling", sets=("fixed",),
)  # fmt: skip
LARGEST_DOUBLING = 512

BACKENDS = {"sdpa": "sdpa", "eager": "eager", "flash": "flash_attention_2"}
"""Attention backends with transformers' names of them."""

WAYS = {"": HARNESS, "modernbert": MODERNBERT} | {
    name: replace(
        HARNESS,
        name=f"{HARNESS.name}:{name}",
        title=f"{HARNESS.title}, attention by {name}",
        attention=backend,
    )
    for name, backend in BACKENDS.items()
}
"""The ways of the suite `efficiency` by what a user types behind its name."""
