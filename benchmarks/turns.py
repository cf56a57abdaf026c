"""Times of several contestants taken in turns, so that a slow minute hits all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

T = TypeVar("T")


def in_turns(runs: Mapping[str, Callable[[], T]], repeats: int) -> tuple[dict[str, float], dict[str, T]]:
    """Run each `repeats` times, one after the other in every round, and the other way round in the next.

    Returns:
        The median seconds of each, and what each gave last.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    given: dict[str, T] = {}
    names = list(runs)
    for _ in range(repeats):
        for name in names:
            began = time.perf_counter()
            given[name] = runs[name]()
            seconds[name].append(time.perf_counter() - began)
        names.reverse()
    return {name: statistics.median(taken) for name, taken in seconds.items()}, given
