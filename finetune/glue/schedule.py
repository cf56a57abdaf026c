"""The schedules of the learning rate, each as in the code of its paper."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from harness.core.keys import AlwaysHashed

FIRST, LAST, SLOPE, PLATEAU = 1e-4, 0.1, 0.9, 0.9
"""NeoBERT's factors at step 0 and at the end, the decay between them, and the share of steps at its end."""


def _compute_linear_factor(step: int, *, steps: int, warmup: float) -> float:
    """The factor that rises from 0 at step 0 to 1 behind the warmup, then falls to 0 at `steps`.

    >>> [_compute_linear_factor(s, steps=100, warmup=0.1) for s in (0, 5, 10, 55, 100)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    until = math.ceil(warmup * steps)
    if step < until:
        return step / until
    return max(0.0, (steps - step) / max(1, steps - until))


def _compute_composer_factor(step: int, *, steps: int, warmup: float) -> float:
    """The same factor in Composer: the warmup is rounded down, and a step has the factor of the one before.

    >>> [_compute_composer_factor(s, steps=100, warmup=0.1) for s in (0, 1, 2, 11, 56, 99)]
    [0.0, 0.0, 0.1, 1.0, 0.5, 0.022222222222222223]
    """
    until, previous_step = int(warmup * steps), max(0, step - 1)
    return previous_step / until if previous_step < until else (steps - previous_step) / (steps - until)


def _compute_neobert_factor(step: int, *, steps: int, warmup: float) -> float:
    """The factor of NeoBERT's code for GLUE: linear from 1e-4 to 1, linear down to nearly 0.16, then 0.1.

    With w the end of the warmup and m nine tenths of the steps, the factor between them is 1 - 0.9 * (t - w)
    / m.

    >>> [round(_compute_neobert_factor(s, steps=1000, warmup=0.06), 4) for s in (0, 30, 60, 899, 900, 999)]
    [0.0001, 0.5, 1.0, 0.161, 0.1, 0.1]
    """
    until, plateau = math.ceil(warmup * steps), math.ceil(PLATEAU * steps)
    if step < until:
        return FIRST + (1 - FIRST) * step / until
    return 1 - SLOPE * (step - until) / plateau if step < plateau else LAST


@dataclass(frozen=True, kw_only=True)
class Schedule(AlwaysHashed):
    """The schedule of the learning rate; `compute_factor` gives its value at a step.

    Attributes:
        name: The share of the peak at step t of T, counted from 0, with w = ceil(warmup T). "linear": t / w,
            from step w on (T - t) / (T - w). "composer": that of step max(0, t - 1), with w rounded down.
            "neobert": 1e-4 + (1 - 1e-4) t / w, then 1 - 0.9 (t - w) / m; from step m = ceil(0.9 T) on 0.1, a
            jump from near 0.16, as in its code.
        warmup: Share of all steps until the peak.
    """

    name: Literal["linear", "composer", "neobert"]
    warmup: float = 0.06

    def compute_factor(self, step: int, *, steps: int) -> float:
        """The share of the peak learning rate at a step.

        Args:
            step: The number of steps before it.
            steps: All steps of the run.

        Returns:
            "linear": as transformers' get_linear_schedule_with_warmup. "composer": as Composer's
            LinearWithWarmupScheduler. "neobert": as NeoBERT's code for GLUE.

        >>> Schedule(name="linear", warmup=0.1).compute_factor(5, steps=100)
        0.5
        """
        kind = {
            "linear": _compute_linear_factor,
            "composer": _compute_composer_factor,
            "neobert": _compute_neobert_factor,
        }[self.name]
        return kind(step, steps=steps, warmup=self.warmup)
