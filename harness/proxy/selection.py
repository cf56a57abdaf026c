"""The choice of a proxy's tasks within a budget of minutes, and the prediction of held-out families.

Tasks are chosen greedily, then by drops and exchanges.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from harness.proxy.regression import Products, fit_ridge, split_families
from harness.proxy.table import Floats, Ints

PENALTIES = (1.0, 3.0, 10.0, 30.0)
"""Ridge penalties to try, for scores scaled to a standard deviation of 1."""

MOST = 15
"""Most tasks of a proxy."""

BETTER = 1e-6
"""The least share of the error that a step must take off."""

Pace = Literal["gain", "rate"]
"""The criterion for the next task: the error that it takes off, or that error for each minute."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Tasks by their columns, the penalty, and the mean squared error by which they were chosen."""

    tasks: tuple[int, ...]
    penalty: float
    error: float


def choose_tasks(scores: Floats, target: Floats, families: Ints, minutes: Floats, budget: float) -> Choice:
    """The tasks within a budget that predict the target best on held-out families.

    For every penalty and both paces tasks are added one at a time; after each, the best drop and the best
    exchange are made if they help. The best of all ends is taken.
    """
    of = Products.compute_products(scores, target, split_families(families))
    paces: tuple[Pace, ...] = ("gain", "rate")
    ends = [_search_tasks(of, minutes, budget, penalty, pace) for penalty in PENALTIES for pace in paces]
    return min(ends, key=lambda end: end.error)


def fit_penalty(scores: Floats, target: Floats, families: Ints, tasks: Sequence[int]) -> Choice:
    """The given tasks, with the best penalty for them."""
    of = Products.compute_products(scores, target, split_families(families))
    tried = {penalty: float(of.compute_errors([tasks], penalty)[0]) for penalty in PENALTIES}
    penalty = min(tried, key=lambda one: tried[one])
    return Choice(tasks=tuple(tasks), penalty=penalty, error=tried[penalty])


def _search_tasks(of: Products, minutes: Floats, budget: float, penalty: float, pace: Pace) -> Choice:
    """The tasks that a greedy search ends with, from none, for one penalty and one pace."""
    # Without tasks the prediction is the mean: the last product is the sum of squares of the centred target.
    now = Choice(tasks=(), penalty=penalty, error=float(of.whole[-1, -1] / of.rows))
    while True:
        before = now
        now = _add_task(of, now, minutes, budget, pace)
        now = _select_best_set(of, now, _list_drops(now.tasks))
        now = _select_best_set(of, now, _list_exchanges(now.tasks, minutes, budget))
        # Every step takes off at least BETTER of the error, so that the search ends.
        if now.error >= before.error and now.tasks:
            return now


def _add_task(of: Products, now: Choice, minutes: Floats, budget: float, pace: Pace) -> Choice:
    """The choice with one task more; the first task is taken even if it helps nothing."""
    places = _list_affordable_tasks(now.tasks, minutes, budget) if len(now.tasks) < MOST else []
    if not places:
        return now
    errors = of.compute_errors([(*now.tasks, place) for place in places], now.penalty)
    gains = (now.error - errors) / (minutes[places] if pace == "rate" else 1.0)
    best = int(gains.argmax())
    if now.tasks and errors[best] >= now.error * (1 - BETTER):
        return now
    return Choice(tasks=(*now.tasks, places[best]), penalty=now.penalty, error=float(errors[best]))


def _select_best_set(of: Products, now: Choice, sets: Sequence[tuple[int, ...]]) -> Choice:
    """The best of some sets of tasks, or the present choice where none is better."""
    if not sets:
        return now
    errors = of.compute_errors(sets, now.penalty)
    best = int(errors.argmin())
    if errors[best] >= now.error * (1 - BETTER):
        return now
    return Choice(tasks=sets[best], penalty=now.penalty, error=float(errors[best]))


def _list_affordable_tasks(tasks: Sequence[int], minutes: Floats, budget: float) -> list[int]:
    left = budget - minutes[list(tasks)].sum()
    return [place for place in np.flatnonzero(minutes <= left).tolist() if place not in tasks]


def _list_drops(tasks: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [tasks[:at] + tasks[at + 1 :] for at in range(len(tasks))] if len(tasks) > 1 else []


def _list_exchanges(tasks: tuple[int, ...], minutes: Floats, budget: float) -> list[tuple[int, ...]]:
    rests = [tasks[:at] + tasks[at + 1 :] for at in range(len(tasks))]
    out = set(tasks)
    return [
        (*rest, place)
        for rest in rests
        for place in _list_affordable_tasks(rest, minutes, budget)
        if place not in out
    ]


Choose = Callable[[Floats, Floats, Ints], Choice]
"""A function that chooses tasks on a training set: (scores, target, families)."""

Progress = Callable[[int, int], None]
"""A callback with the number of families held out so far, and of all families."""


def predict_families(
    scores: Floats, target: Floats, families: Ints, choose: Choose, progress: Progress | None = None
) -> Floats:
    """Each model's prediction by a proxy chosen and fitted without the model's family, (models,)."""
    tell = progress or (lambda done, total: None)
    predicted, names = np.empty(len(target)), np.unique(families)

    def predict_family(family: int) -> tuple[NDArray[np.bool_], Floats]:
        out = families == family
        choice = choose(scores[~out], target[~out], families[~out])
        columns = list(choice.tasks)
        line = fit_ridge(scores[~out][:, columns], target[~out], choice.penalty)
        return out, line.predict(scores[out][:, columns])

    tell(0, len(names))
    # Threads are enough, as numpy works without the interpreter's lock. The cores are those that this process
    # may use, which a container or a scheduler limits.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for done, (out, predictions) in enumerate(pool.map(predict_family, names.tolist()), 1):
            predicted[out] = predictions
            tell(done, len(names))
    return predicted
