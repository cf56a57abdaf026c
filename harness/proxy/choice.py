"""Choosing the tasks: greedily, then by drops and exchanges, within what they may cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from harness.proxy import ridge
from harness.proxy.ridge import Floats, Ints, Products

MOST = 15
"""No proxy has more tasks."""

BETTER = 1e-6
"""What a step must take off the error, as a share of it."""

Pace = Literal["gain", "rate"]
"""What the next task is picked by: what it takes off the error, or that for each minute."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Some tasks by their columns, the penalty, and the mean squared error by which they were chosen."""

    tasks: tuple[int, ...]
    penalty: float
    error: float


def choose(scores: Floats, target: Floats, families: Ints, minutes: Floats, budget: float) -> Choice:
    """The tasks within a budget that predict the target best on families that were held out.

    For every penalty and both paces one task is added after the other; after each the best drop and the
    best exchange are made if they help. The best end of all is taken.

    Args:
        scores: (models, tasks).
        target: (models,).
        families: (models,), numbers.
        minutes: (tasks,), what each costs.
        budget: What all may cost together; at least one task must fit in.
    """
    of = ridge.products(scores, target, ridge.folds(families))
    paces: tuple[Pace, ...] = ("gain", "rate")
    ends = [_descend(of, minutes, budget, penalty, pace) for penalty in ridge.PENALTIES for pace in paces]
    return min(ends, key=lambda end: end.error)


def given(scores: Floats, target: Floats, families: Ints, tasks: Sequence[int]) -> Choice:
    """Tasks that are given, with the best penalty for them."""
    of = ridge.products(scores, target, ridge.folds(families))
    tried = {penalty: float(ridge.errors(of, [tasks], penalty)[0]) for penalty in ridge.PENALTIES}
    penalty = min(tried, key=lambda one: tried[one])
    return Choice(tasks=tuple(tasks), penalty=penalty, error=tried[penalty])


def _descend(of: Products, minutes: Floats, budget: float, penalty: float, pace: Pace) -> Choice:
    now = Choice(tasks=(), penalty=penalty, error=float(of.whole[-1, -1] / of.rows))
    while True:
        before = now
        now = _added(of, now, minutes, budget, pace)
        now = _better(of, now, _drops(now.tasks))
        now = _better(of, now, _exchanges(now.tasks, minutes, budget))
        if now.error >= before.error and now.tasks:
            return now


def _added(of: Products, now: Choice, minutes: Floats, budget: float, pace: Pace) -> Choice:
    """With one task more; the first task is taken even if it helps nothing."""
    places = _affordable(now.tasks, minutes, budget) if len(now.tasks) < MOST else []
    if not places:
        return now
    found = ridge.errors(of, [(*now.tasks, place) for place in places], now.penalty)
    gains = (now.error - found) / (minutes[places] if pace == "rate" else 1.0)
    best = int(gains.argmax())
    if now.tasks and found[best] >= now.error * (1 - BETTER):
        return now
    return Choice(tasks=(*now.tasks, places[best]), penalty=now.penalty, error=float(found[best]))


def _better(of: Products, now: Choice, sets: Sequence[tuple[int, ...]]) -> Choice:
    """The best of some sets if it is better than what there is."""
    if not sets:
        return now
    found = ridge.errors(of, sets, now.penalty)
    best = int(found.argmin())
    if found[best] >= now.error * (1 - BETTER):
        return now
    return Choice(tasks=sets[best], penalty=now.penalty, error=float(found[best]))


def _affordable(tasks: Sequence[int], minutes: Floats, budget: float) -> list[int]:
    left = budget - minutes[list(tasks)].sum()
    return [place for place in np.flatnonzero(minutes <= left).tolist() if place not in tasks]


def _drops(tasks: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [tasks[:at] + tasks[at + 1 :] for at in range(len(tasks))] if len(tasks) > 1 else []


def _exchanges(tasks: tuple[int, ...], minutes: Floats, budget: float) -> list[tuple[int, ...]]:
    rests = [tasks[:at] + tasks[at + 1 :] for at in range(len(tasks))]
    out = set(tasks)
    return [
        (*rest, place) for rest in rests for place in _affordable(rest, minutes, budget) if place not in out
    ]
