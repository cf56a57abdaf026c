"""Both sides of a check, and how much they differ on each task."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.regress.collect import Side
from harness.regress.difference import Difference, Part, difference
from harness.regress.policy import Policy
from harness.regress.scored import Scored
from harness.regress.units import Units, alike, as_probes, joined
from harness.types import Task


@dataclass(frozen=True, kw_only=True)
class Sides:
    """Both sides, and why records are not there.

    Attributes:
        candidate: The candidate's records.
        baseline: The baseline's.
        failures: By artifact and task: why a record is missing.
    """

    candidate: Side
    baseline: Side
    failures: Mapping[tuple[str, str], str]

    @property
    def repeated(self) -> bool:
        """Whether the baseline is several models of one training."""
        return len({run.artifact for run in self.baseline.runs}) > 1


def differences(sides: Sides, tasks: Sequence[Task], policy: Policy) -> dict[str, Difference | str]:
    """By task how much the sides differ; in its place why that cannot be told."""
    return {
        task.name: _difference(sides, task.name, policy) for task in tasks if not missing(sides, task.name)
    }


def missing(sides: Sides, task: str) -> str:
    """Why a task has no score on one of the sides; empty if it has on both."""
    for name, one in (("candidate", sides.candidate), ("baseline", sides.baseline)):
        if one.missing[task] or any(scored.score is None for scored in one.scored[task]):
            return f"the {name} has no score: {_why(sides, one, task)}"
    return ""


def _why(sides: Sides, one: Side, task: str) -> str:
    """Why a side lacks a record, and what helps."""
    reasons = [
        sides.failures[run.artifact, task] for run in one.runs if (run.artifact, task) in sides.failures
    ]
    if reasons:
        return reasons[0].rstrip(".")
    gone = [key[:12] for run in one.runs for key in run.keys.get(task, ())]
    known = {scored.key[:12] for scored in one.scored[task]}
    keys = ", ".join(key for key in gone if key not in known)
    if not gone:
        return "it was set without this task (harness baseline set NAME --replace measures it)"
    return f"its record {keys} is not in {one.home / 'records'}" if keys else "a part of it is missing"


def _difference(sides: Sides, task: str, policy: Policy) -> Difference | str:
    mine, theirs = sides.candidate.scored[task], sides.baseline.scored[task]
    if {one.key: one.score for one in mine} == {one.key: one.score for one in theirs}:
        scores = tuple(_own_score(one) for one in mine)
        units = mine[0].units
        return Difference(
            mine=scores,
            theirs=scores,
            units=units.count if units else 0,
            examples=Part(variance=0.0, freedom=1),
            same=True,
        )
    for name, ones in (("candidate", mine), ("baseline", theirs)):
        problem = next((one.problem for one in ones if one.units is None), "")
        if problem:
            return f"the {name}: {problem}"
    return _tested(sides, task, policy)


def _own_score(one: Scored) -> float:
    """By its units, which have the recipe's own number where a record has another view's."""
    return float(one.score or 0) if one.units is None else float(one.units.scores().mean())


def _tested(sides: Sides, task: str, policy: Policy) -> Difference | str:
    try:
        one, other = (_runs(side, task, sides.repeated) for side in (sides.candidate, sides.baseline))
    except ValueError as error:
        return str(error)
    if not alike(one, other):
        return "the two sides were measured on different examples"
    if min(stratum.count for stratum in one.strata) < 2:
        return f"there is a single one of its {one.unit}"
    rng = np.random.default_rng([policy.seed, zlib.crc32(task.encode())])
    seeds = [len(side.scored[task]) for side in (sides.candidate, sides.baseline)]
    paired = not sides.repeated and seeds[0] == seeds[1] > 1
    return difference(one, other, paired=paired, rng=rng, draws=policy.draws)


def _runs(side: Side, task: str, repeated: bool) -> Units:
    """The units of one side with its runs: seeds, or models where a baseline repeats its training.

    The seeds of one of several models are no trainings of their own: they count as probes of it.
    """
    models = [joined([one.units for one in ones if one.units is not None]) for ones in side.by_model(task)]
    return joined([as_probes(units) for units in models]) if repeated else models[0]


def score_of(ones: Sequence[Scored]) -> float | None:
    """The mean of main scores; None unless all are there."""
    known = [one.score for one in ones if one.score is not None]
    return sum(known) / len(known) if known and len(known) == len(ones) else None
