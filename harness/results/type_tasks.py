"""The task of each type whose scores over models follow the type's mean best (Efficient-Embeddings, B)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.core.errors import UsageError
from harness.core.types import Suite
from harness.results.scores import list_exclusions
from harness.results.weighted_metrics import Floats

FEWEST = 10
"""Fewest models by which tasks are told apart."""


@dataclass(frozen=True, kw_only=True)
class RankCorrelation:
    """Spearman's correlation over models, with its 95 % interval."""

    value: float
    low: float
    high: float

    @staticmethod
    def estimate(first: Floats, second: Floats) -> RankCorrelation | None:
        """The correlation of two scores, (models,); None where one of them is constant.

        The interval is that of Bonett and Wright (2000, Psychometrika 65), for models that are independent.

        >>> RankCorrelation.estimate(np.arange(20.0), np.ones(20)) is None
        True
        """
        from scipy.stats import rankdata

        ranks = np.array([rankdata(first), rankdata(second)])
        if (np.ptp(ranks, axis=1) == 0).any():
            return None
        value = float(np.corrcoef(ranks)[0, 1].clip(-1, 1))
        half = 1.959964 * math.sqrt((1 + value**2 / 2) / (len(first) - 3))
        middle = math.atanh(value) if abs(value) < 1 else math.copysign(math.inf, value)
        return RankCorrelation(value=value, low=math.tanh(middle - half), high=math.tanh(middle + half))


@dataclass(frozen=True, kw_only=True)
class _TypeTask:
    """A task of a type: `mean` is with the mean of all its tasks, `others` with that of the other tasks.

    The paper's average has the task itself in it, so that of few tasks each follows it; `others` does not.
    """

    task: str
    mean: RankCorrelation | None
    others: RankCorrelation | None


@dataclass(frozen=True, kw_only=True)
class TypeRanking:
    """The tasks of a type, that which follows its mean best first, or the reason why they have no order.

    `models` are those with every task of the type, those with the same scores counted once.
    """

    type: str
    models: int = 0
    tasks: tuple[_TypeTask, ...] = ()
    reason: str = ""

    @property
    def best_by_others(self) -> _TypeTask | None:
        """The task that follows the mean of the others best; it need not be the first."""
        correlated = [task for task in self.tasks if task.others]
        return max(correlated, key=lambda task: task.others.value if task.others else 0, default=None)

    @property
    def level(self) -> list[str]:
        """The other tasks in whose intervals the correlation of the first lies."""
        first, *others = self.tasks or (_TypeTask(task="", mean=None, others=None),)
        return [o.task for o in others if first.mean and o.mean and o.mean.high >= first.mean.value]


def is_baseline(model: str) -> bool:
    """Whether a published model's name is that of a baseline: `baseline/…`, `mteb/baseline-…`."""
    return any(part == "baseline" or part.startswith("baseline-") for part in model.lower().split("/"))


def rank_type_tasks(suite: Suite, read: Callable[[Suite], Floats]) -> list[TypeRanking]:
    """The tasks of each type of a suite, by how well they follow the type's mean.

    Args:
        suite: The suite; columns that it shows and does not average are left out.
        read: Gives the scores of a suite of one type, (models, columns); NaN where a model has none.
    """
    apart = list_exclusions(suite)
    columns = [column for column in suite.columns if column.tasks and column.name not in apart]
    rankings = []
    for kind in dict.fromkeys(column.type for column in columns):
        part = replace(suite, columns=tuple(column for column in columns if column.type == kind))
        try:
            rankings.append(_rank_tasks(kind, [column.name for column in part.columns], read(part)))
        except UsageError as error:
            rankings.append(TypeRanking(type=kind, reason=error.message))
    return rankings


def _rank_tasks(kind: str, names: Sequence[str], scores: Floats) -> TypeRanking:
    scores = np.unique(scores[np.isfinite(scores).all(axis=1)], axis=0)
    if len(names) < 2:
        return TypeRanking(type=kind, models=len(scores), reason=f"{names[0]} is its only task")
    if len(scores) < FEWEST:
        reason = f"{len(scores)} different models have all its tasks, and {FEWEST} are needed"
        return TypeRanking(type=kind, models=len(scores), reason=reason)
    means = scores.mean(axis=1)
    tasks = [
        _TypeTask(
            task=name,
            mean=RankCorrelation.estimate(scores[:, n], means),
            others=RankCorrelation.estimate(scores[:, n], np.delete(scores, n, axis=1).mean(axis=1)),
        )
        for n, name in enumerate(names)
    ]
    tasks.sort(key=lambda task: -2.0 if task.mean is None else task.mean.value, reverse=True)
    return TypeRanking(type=kind, models=len(scores), tasks=tuple(tasks))
