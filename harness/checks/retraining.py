"""Is this recipe worse? A check of one training a side cannot tell seeds from recipes, and says so."""

from __future__ import annotations

import functools
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.checks.decide import POINT, Outcome
from harness.checks.outcome import MeanOutcome, TaskOutcome
from harness.checks.sides import Comparison
from harness.results.units import TRAINED

TABLE = Path(__file__).with_name("seed_deviations.toml")
"""What other seeds change by printed tables; its comments say how the figures were read."""

SINGLE = (
    "One training of each side: another seed may move these scores, by how much is {known}. Train both "
    "several times (--seeds 3 with a recipe, or repeat --model at `harness baseline set`)."
)


def judge_retraining(
    tasks: Sequence[TaskOutcome], means: Sequence[MeanOutcome], sides: Comparison, backbones: Sequence[str]
) -> _Judged:
    """The outcomes of a retraining: of a single training a side, at most inconclusive.

    A loss stays red only if it is sure beside twice the variance that seeds are known to have.

    Args:
        tasks: The outcomes by the intervals of examples and seeds.
        means: Likewise, of each suite.
        sides: The records of both sides.
        backbones: The names by which the table may know the backbone.
    """
    if any(len(side.artifacts) > 1 for side in (sides.candidate, sides.baseline)):
        return _Judged(tasks=tuple(tasks), means=tuple(means))
    deviations = {mean.suite: _find_deviations(backbones, mean.suite) for mean in means}
    repeated = {one.task for one in tasks if one.unit == TRAINED and max(one.runs) > 1}
    judged = []
    for task in tasks:
        spreads = [deviations[suite][task.task] for suite in task.suites if task.task in deviations[suite]]
        limit = max(spreads, default=None)
        judged.append(task if task.task in repeated else _limit_verdict(task, limit))
    # A mean has the seeds of its tasks: one task without repeats leaves the mean without them.
    limited = {suite for task in tasks if task.task not in repeated for suite in task.suites}
    limited_means = tuple(
        _limit_verdict(mean, deviations[mean.suite].get("mean")) if mean.suite in limited else mean
        for mean in means
    )
    sources = "known from printed tables" if all(deviations.values()) else "unknown"
    note = SINGLE.format(known=sources) if limited else ""
    return _Judged(tasks=tuple(judged), means=limited_means, note=note)


@dataclass(frozen=True, kw_only=True)
class _Judged:
    """The outcomes of a retraining, and the sentence that says what single trainings leave open."""

    tasks: tuple[TaskOutcome, ...]
    means: tuple[MeanOutcome, ...]
    note: str = ""


def _limit_verdict(line: Outcome, deviation: float | None) -> Outcome:
    """The line, inconclusive unless it is the same or a loss beyond what seeds do."""
    if line.verdict not in ("regressed", "passed", "improved"):
        return line
    if line.verdict == "regressed" and deviation is not None and line.error and line.high is not None:
        delta = line.delta or 0.0
        # The bound at the line's own level, its standard error widened by the seeds of both sides.
        wider = math.sqrt(1 + 2 * (deviation * POINT / line.error) ** 2)
        if delta + wider * (line.high - delta) < 0:
            return line
    return replace(line, verdict="inconclusive", to_settle="3 or more trainings of each side")


def _find_deviations(backbones: Sequence[str], suite: str) -> dict[str, float]:
    """The deviations in points by task, and of the mean, where the table has this backbone on this suite."""
    rows = [row for row in _read_rows() if row["suite"] == suite]
    names = [backbone.casefold() for backbone in backbones]
    return next(
        (row["deviations"] for row in rows if any(row["backbone"].casefold() in name for name in names)), {}
    )


@functools.cache
def _read_rows() -> tuple[Mapping[str, Any], ...]:
    return tuple(tomllib.loads(TABLE.read_text(encoding="utf-8"))["row"])
