"""The task that follows its type's mean best: against scipy, and what has no order."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from harness.core.errors import UsageError
from harness.core.types import Column, Data, Suite, Task
from harness.results.type_tasks import RankCorrelation, rank_type_tasks
from harness.results.weighted_metrics import Floats


def build_suite(**types: str) -> Suite:
    """A suite of one column a task: by type the letters of its tasks."""
    tasks = [
        Task(name=name, type=kind, metric="m", splits=(), data=Data(), source=None)
        for kind, names in types.items()
        for name in names
    ]
    return Suite(
        name="s", title="S", columns=tuple(Column(name=t.name, type=t.type, tasks=(t,)) for t in tasks)
    )


def draw_scores(names: str, models: int = 60) -> dict[str, Floats]:
    """Scores of tasks over models, the first with the least noise around what all share."""
    rng = np.random.default_rng(1)
    shared = rng.normal(size=models)
    return {name: shared + (0.1 + 0.3 * n) * rng.normal(size=models) for n, name in enumerate(names)}


def test_tasks_are_ordered_by_scipys_correlation() -> None:
    scores = draw_scores("ABCD")
    (ranking,) = rank_type_tasks(
        build_suite(STS="DCBA"), lambda part: np.stack([scores[c.name] for c in part.columns], axis=1)
    )
    assert (ranking.models, [one.task for one in ranking.tasks]) == (60, [*"ABCD"])
    for one in ranking.tasks:
        others = [values for name, values in scores.items() if name != one.task]
        for found, mean in (
            (one.mean, np.mean([*scores.values()], axis=0)),
            (one.others, np.mean(others, axis=0)),
        ):
            assert found is not None
            assert found.value == pytest.approx(spearmanr(scores[one.task], mean).statistic)
            assert found.low < found.value < found.high
    assert ranking.best_by_others == ranking.tasks[0]


def test_intervals_hold_the_truth() -> None:
    """Of 60 pairs from a normal distribution whose rank correlation is known (6 / π · asin(ρ / 2))."""
    rng, correlation = np.random.default_rng(2), 0.8
    truth = 6 / np.pi * np.arcsin(correlation / 2)
    held = 0
    for _ in range(1000):
        x, noise = rng.normal(size=(2, 60))
        found = RankCorrelation.estimate(x, correlation * x + np.sqrt(1 - correlation**2) * noise)
        held += found is not None and found.low <= truth <= found.high
    # Within three standard errors of 95 %.
    assert held / 1000 == pytest.approx(0.95, abs=3 * np.sqrt(0.95 * 0.05 / 1000))


def test_what_has_no_order_says_why() -> None:
    scores = draw_scores("ABCDEF") | {"X": np.full(60, 0.5)}

    def read(part: Suite) -> Floats:
        values = np.stack([scores[column.name] for column in part.columns], axis=1)
        if part.columns[0].name == "C":
            # A model twice under two names, and most models without a task.
            values[1], values[9:, 0] = values[0], np.nan
        if part.columns[0].name == "F":
            raise UsageError("There are too few.")
        return values

    rankings = rank_type_tasks(build_suite(STS="AX", One="B", Few="CD", None_="F"), read)
    constant, single, few, refused = rankings
    assert [(one.task, one.mean is None) for one in constant.tasks] == [("A", False), ("X", True)]
    assert constant.best_by_others is None
    assert single.reason == "B is its only task"
    assert few.reason == "8 different models have all its tasks, and 10 are needed"
    assert refused.reason == "There are too few."
    assert [one.level for one in rankings] == [[]] * 4
