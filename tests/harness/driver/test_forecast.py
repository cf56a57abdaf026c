"""The time left, held against simulated runs: jobs of random durations on a number of workers."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable
from statistics import median

import pytest
from harness.driver.forecast import Work, time_left

DURATIONS: dict[str, Callable[[random.Random], float]] = {
    "uniform": lambda rng: rng.uniform(0.5, 1.5),
    "lognormal": lambda rng: math.exp(rng.gauss(0, 0.3)),
    "exponential": lambda rng: rng.expovariate(1),
}


def simulated(durations: list[float], workers: int) -> list[tuple[float, float]]:
    """When each job begins and ends, in order, on the worker that is free first."""
    free = [0.0] * workers
    times = []
    for seconds in durations:
        begun = heapq.heappop(free)
        heapq.heappush(free, begun + seconds)
        times.append((begun, begun + seconds))
    return times


@pytest.mark.parametrize("law", DURATIONS)
@pytest.mark.parametrize(("jobs", "workers"), [(40, 4), (200, 12), (400, 2)])
def test_the_interval_covers_about_four_of_five_ends(law: str, jobs: int, workers: int) -> None:
    """Three groups whose means differ, seen at 30, 50 and 80 % of the time."""
    rng, covered, ratios = random.Random(7), [], []
    for _ in range(60):
        scales = [60 * math.exp(rng.gauss(0, 1)) for _ in range(3)]
        groups = [rng.randrange(3) for _ in range(jobs)]
        times = simulated([scales[group] * DURATIONS[law](rng) for group in groups], workers)
        whole = max(end for _, end in times)
        for share in (0.3, 0.5, 0.8):
            now = share * whole
            work = [
                Work(
                    key=str(number),
                    groups=(group, None),
                    begun=begun if begun < now else None,
                    ended=end if end <= now else None,
                )
                for number, (group, (begun, end)) in enumerate(zip(groups, times, strict=True))
            ]
            left = time_left(work, now)
            assert left is not None
            covered.append(left.low <= whole - now <= left.high)
            ratios.append(left.seconds / (whole - now))
    assert 0.65 <= sum(covered) / len(covered) <= 0.95
    assert 0.9 <= median(ratios) <= 1.1


def test_a_chain_lasts_as_long_as_its_parts_however_many_workers_there_are() -> None:
    ended = [Work(key=f"e{n}", groups=(None,), begun=0.0, ended=100.0) for n in range(8)]
    chain = [Work(key=str(n), groups=(None,), inputs=(str(n - 1),)) for n in range(5)]
    left = time_left([*ended, *chain], 100.0)
    assert left is not None
    assert left.seconds == pytest.approx(500)
    assert left.low < 500 < left.high


def test_a_wide_job_takes_several_workers_and_steps_say_what_is_left() -> None:
    ended = [Work(key=f"e{n}", groups=("run", None), begun=0.0, ended=100.0) for n in range(4)]
    training = Work(key="t", groups=("train", None), width=4, begun=100.0, whole=300.0)
    left = time_left([*ended, training], 200.0)
    assert left is not None
    assert left.seconds == pytest.approx(200)


def test_nothing_is_expected_before_anything_has_ended() -> None:
    assert time_left([Work(key="a", groups=(None,), begun=0.0), Work(key="b", groups=(None,))], 9.0) is None
