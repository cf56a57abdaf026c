"""The ways to measure speed: ours, and those of two papers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

METRIC = "tokens_per_second"


@dataclass(frozen=True, kw_only=True)
class SpeedProtocol:
    """A way to measure speed.

    Attributes:
        name: The name in records.
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
    sequences: int | None = 8192
    least: int = 32
    rounds: int = 10
    warmup: int = 10
    waits: bool = True
    search: Literal["bisection", "released", "doubling"] = "bisection"
    sets: tuple[str, ...] = ("fixed", "variable")
    attention: str = ""


HARNESS = SpeedProtocol(name="efficiency")
# The released script: its one call has 4,096 sequences, and its clamp is 16, while the printed sets have 32.
MODERNBERT = SpeedProtocol(
    name="efficiency:modernbert", sequences=4096, least=16, warmup=0, waits=False, search="released"
)
# "100 steps", each of one batch; the batch doubles to 512.
NEOBERT = SpeedProtocol(
    name="efficiency-neobert", sequences=None, rounds=100, search="doubling", sets=("fixed",)
)
LARGEST_DOUBLING = 512
