"""Questions to rank models by, drawn at random, and their answers computed apart from the site's code."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]
Scores = Mapping[str, Mapping[str, float]]
"""model → task → score."""


@dataclass(frozen=True)
class Expected:
    """An answer: its tasks, and by ranked model its mean, rank, half interval, best and worst rank."""

    tasks: set[str]
    means: dict[str, float]
    ranks: dict[str, int]
    halves: dict[str, float]
    bounds: dict[str, tuple[int, int]]


def draw_question(rng: np.random.Generator, suites: Sequence[str], types: Sequence[str],
                  tasks: Sequence[str]) -> dict[str, Any]:  # fmt: skip
    """The parameters of a question: a set of tasks, bounds, weights, and how many models to rank."""
    question: dict[str, Any] = {"mean": str(rng.choice(["tasks", "types"]))}
    kind = rng.integers(4)
    if kind == 0:
        question["suite"] = [str(rng.choice(suites))]
    elif kind == 1:
        question["type"] = rng.choice(types, size=min(2, len(types)), replace=False).tolist()
    elif kind == 2:
        count = int(rng.integers(2, min(24, len(tasks))))
        question["task"] = rng.choice(tasks, size=count, replace=False).tolist()
    else:
        question |= {"suite": [str(one) for one in suites[:2]], "type": [str(rng.choice(types))]}
    if rng.random() < 0.5:
        question["most"] = float(rng.choice([100, 200, 600, 2000]))
    if rng.random() < 0.3:
        question["tokens"] = int(rng.choice([256, 512, 2048]))
    if rng.random() < 0.3:
        question["dimensions"] = int(rng.choice([384, 768, 1024]))
    if rng.random() < 0.3:
        question["licence"] = str(rng.choice(["permissive", "non-commercial", "unknown"]))
    if rng.random() < 0.5:
        question["models"] = int(rng.integers(1, 12))
    return question


def answer_apart(
    scores: Scores, tasks: Sequence[str], types: Mapping[str, str], weights: Mapping[str, float],
    least: int | None, over: str,
) -> Expected:  # fmt: skip
    """Rank models that pass over the tasks that they share, by plain loops and scipy's tests.

    Args:
        scores: Those of the models that pass.
        tasks: The tasks that were asked for, in order.
        types: The type of each task.
        weights: What a type or a task weighs.
        least: How many models are ranked at least; None for the most scores.
        over: "tasks" or "types".
    """
    has = {task: {model for model, of in scores.items() if task in of} for task in tasks}
    order = sorted(tasks, key=lambda task: -len(has[task]))
    tables = []
    for count in range(1, len(order) + 1):
        models = set.intersection(*(has[task] for task in order[:count]))
        if models:
            tables.append(([task for task in tasks if models <= has[task]], models))
    if not tables:
        return Expected(set(), {}, {}, {}, {})
    if least is None:
        most = max(len(shared) * len(models) for shared, models in tables)
        best = [one for one in tables if len(one[0]) * len(one[1]) == most]
    else:
        wanted = min(least, max(len(models) for _, models in tables))
        best = [one for one in tables if len(one[1]) >= wanted]
    # The widest of them: it has the most tasks.
    shared, models = max(best, key=lambda one: len(one[0]))
    own = {t: weights.get(t, 1) * weights.get(types[t], 1) for t in shared}
    if over == "types":
        kinds = [types[task] for task in shared]
        own = {task: weight / kinds.count(types[task]) for task, weight in own.items()}
    total = math.fsum(own.values())
    means = {m: math.fsum(own[t] * scores[m][t] for t in shared) / total for m in models}
    factors = np.array([own[task] * len(shared) / total for task in shared])
    values = {m: np.array([scores[m][t] for t in shared]) for m in models}

    def compare(first: str, second: str) -> int:
        """1 where the first is better, -1 where it is worse, 0 where both are level."""
        gaps = values[first] - values[second]
        mean = float(np.average(gaps, weights=factors))
        half = measure_half(gaps, factors) if len(shared) >= 6 else 0
        return 0 if abs(mean) <= half + 1e-12 else int(np.sign(mean))

    ranks: dict[str, int] = {}
    first, place = "", 0
    for at, model in enumerate(sorted(models, key=lambda one: -means[one]), 1):
        if not first or compare(first, model):
            first, place = model, at
        ranks[model] = place
    bounds, halves = {}, {}
    for model in models:
        signs = [compare(other, model) for other in models if other != model]
        bounds[model] = (1 + signs.count(1), len(models) - signs.count(-1))
        if len(shared) >= 6:
            halves[model] = measure_half(values[model], factors)
    return Expected({*shared}, means, ranks, halves, bounds)


@cache
def derive_factors(weights: tuple[float, ...]) -> Floats:
    """What squared residuals about a weighted mean are times, to sum to the square of half its interval."""
    shares = [weight / math.fsum(weights) for weight in weights]
    # What each residual has of every score: its variance, where all scores vary alike.
    rows = [[(at == other) - share for other, share in enumerate(shares)] for at in range(len(shares))]
    variances = [math.fsum(one**2 for one in row) for row in rows]
    student = stats.t.ppf(0.975, max(1, 1 / math.fsum(share**2 for share in shares) - 1))
    return np.array([(student * s) ** 2 / v for s, v in zip(shares, variances, strict=True)])


def measure_half(values: Floats, weights: Floats) -> float:
    """Half of the 95 % interval of a weighted mean."""
    residuals = values - np.average(values, weights=weights)
    return math.sqrt(math.fsum(residuals**2 * derive_factors(tuple(weights.tolist()))))
