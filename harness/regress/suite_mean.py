"""The difference of the means over a suite's columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from harness.regress.difference import Compared, Difference, Part, of_runs, together
from harness.types import Suite


@dataclass(frozen=True, kw_only=True)
class MeanDifference(Compared):
    """Candidate minus baseline, of the mean over those columns of which every task was tested.

    `mine` and `theirs` are the means of the runs: a single one where tasks have other numbers of runs.

    Attributes:
        spread: What the runs add to the variance; None where it cannot be told.
        columns: The columns it is over.
        wanted: How many columns the suite has.
    """

    spread: Part | None
    columns: tuple[str, ...]
    wanted: int

    @property
    def seeds(self) -> Part | None:
        """What the runs add to the variance; None where it cannot be told."""
        return self.spread


def mean_difference(suite: Suite, found: Mapping[str, Difference]) -> MeanDifference | None:
    """The mean over columns, each of which counts once; None if no column was tested.

    The units of different tasks are independent of one another. Their runs are not where one
    training gave a model for all tasks, so the spread of runs is taken from the means of the runs.
    """
    columns = {c.name: [t.name for t in c.tasks] for c in suite.columns}
    tested = {name: tasks for name, tasks in columns.items() if tasks and all(t in found for t in tasks)}
    if not tested:
        return None
    shares: dict[str, float] = {}
    for tasks in tested.values():
        for task in tasks:
            shares[task] = shares.get(task, 0.0) + 1 / len(tested) / len(tasks)
    ones = {task: found[task] for task in shares}
    mine, theirs, spread = _runs(shares, ones)
    return MeanDifference(
        mine=mine,
        theirs=theirs,
        examples=together([_scaled(ones[task].examples, share) for task, share in shares.items()]),
        spread=spread,
        columns=tuple(tested),
        wanted=len(columns),
        same=all(one.same for one in ones.values()),
    )


def _runs(
    shares: Mapping[str, float], ones: Mapping[str, Difference]
) -> tuple[tuple[float, ...], tuple[float, ...], Part | None]:
    """The means of the runs of both sides, and what their spread adds to the variance."""
    counts = {(len(o.mine), len(o.theirs), o.paired) for o in ones.values() if o.seeds is not None}
    if len(counts) > 1:
        parts = [(one.seeds, shares[task]) for task, one in ones.items()]
        seeds = together([_scaled(part, share) for part, share in parts if part is not None])
        return (_run(shares, ones, "mine"),), (_run(shares, ones, "theirs"),), seeds
    if not counts:
        return (_run(shares, ones, "mine"),), (_run(shares, ones, "theirs"),), None
    many, others, paired = next(iter(counts))
    mine = tuple(_run(shares, ones, "mine", run) for run in range(many))
    theirs = tuple(_run(shares, ones, "theirs", run) for run in range(others))
    return mine, theirs, of_runs(mine, theirs, paired=paired)


def _run(
    shares: Mapping[str, float],
    ones: Mapping[str, Difference],
    side: Literal["mine", "theirs"],
    run: int | None = None,
) -> float:
    """The mean of one run, or of all; a task with a single run has the same score in each."""
    total = 0.0
    for task, share in shares.items():
        scores: tuple[float, ...] = getattr(ones[task], side)
        total += share * (fmean(scores) if run is None or len(scores) == 1 else scores[run])
    return total


def _scaled(part: Part, share: float) -> Part:
    return Part(variance=share**2 * part.variance, freedom=part.freedom)
