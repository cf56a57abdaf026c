"""Fitting a proxy: the choice of its tasks, a ridge regression, the error on held-out families, the cost.

Tasks are chosen greedily, then by drops and exchanges, within a budget of minutes. Many small sets of tasks
are fitted at once: the products of all columns, summed within each fold, hold all that any set of columns and
any fold needs. The cost of a task comes from times that were taken on many machines. The error is that on
models of families that the proxy has never seen.
"""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import UsageError, unknown
from harness.core.types import Suite
from harness.proxy.document import (
    Proxy,
    ProxyCost,
    ProxyErrors,
    ProxyFit,
    ProxyImport,
    ProxyTarget,
    ProxyTask,
)
from harness.proxy.table import Floats, Ints, ScoreTable
from harness.storage.imported import Imported


@dataclass(frozen=True, kw_only=True)
class ProxyRequest:
    """The settings of a requested proxy.

    Attributes:
        suite: The target, as --suite takes it.
        minutes: The time that its tasks may take together; passed over where `tasks` are given.
        tasks: Tasks to take as they are; empty to choose them.
        reference: The imported model whose minutes are meant; empty for the median of the fitted models.
        name: The proxy's name; empty for a name made of the target.
    """

    suite: str
    minutes: float = 5.0
    tasks: Sequence[str] = ()
    reference: str = ""
    name: str = ""


def fit_proxy(source: Imported, suite: Suite, wish: ProxyRequest, progress: Progress | None = None) -> Proxy:
    """Fit a proxy of a suite's mean on the complete models of an import.

    Raises:
        UsageError: The import, a name or the budget does not allow it.
    """
    table = ScoreTable.read(source, suite)
    times = _fit_times(table.seconds)
    meant = _reference_rows(source, table, times, wish.reference)
    minutes = times.minutes(meant)
    choose = _chooser(table, wish, minutes)
    chosen = choose(table.scores, table.target, table.groups)
    predicted = _held_out(table.scores, table.target, table.groups, choose, progress)
    line = _fit_ridge(table.scores[:, list(chosen.tasks)], table.target, chosen.penalty)
    return Proxy(
        name=wish.name or _default_name(suite.title, wish),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        target=ProxyTarget(suite=wish.suite, title=suite.title, columns=len(suite.columns)),
        chosen="given" if wish.tasks else "greedy",
        penalty=chosen.penalty,
        intercept=line.intercept,
        tasks=tuple(
            _task(table, at, float(weight), minutes)
            for at, weight in zip(chosen.tasks, line.coefficients, strict=True)
        ),
        error=_error(table, chosen, predicted),
        cost=_cost(table, times, chosen, meant, wish, minutes),
        fitted=ProxyFit(
            models=len(table.models),
            families=len(set(table.families)),
            other_data=table.other_data,
            low=float(table.target.min()),
            high=float(table.target.max()),
        ),
        imported=ProxyImport(
            source=source.source,
            id=source.id,
            when=str(source.stamp.get("when", "")),
            commit=source.stamp.get("commit"),
        ),
    )


def _default_name(title: str, wish: ProxyRequest) -> str:
    """A name made of the target and the minutes.

    >>> _default_name("MTEB(eng, v2)", ProxyRequest(suite="mteb", minutes=5))
    'mteb-eng-v2-5min'
    """
    plain = "-".join(re.findall(r"[a-z0-9.]+", title.lower())).strip(".") or "proxy"
    return f"{plain}-{len(wish.tasks)}tasks" if wish.tasks else f"{plain}-{wish.minutes:g}min"


def _chooser(table: ScoreTable, wish: ProxyRequest, minutes: Floats) -> Choose:
    """The function that chooses tasks on a training set, the same in the cross-validation and at the end."""
    names = [task.name for task in table.tasks]
    if wish.tasks:
        for name in wish.tasks:
            if name not in names:
                raise unknown("task of the target", name, names, then="--tasks takes the target's tasks.")
        places = sorted({names.index(name) for name in wish.tasks})
        return lambda scores, target, families: _given(scores, target, families, places)
    if not np.isfinite(minutes).any():
        raise UsageError(
            "The import tells the time of none of the target's tasks.", hint="Name the tasks with --tasks."
        )
    cheapest = int(minutes.argmin())
    if not minutes[cheapest] <= wish.minutes:
        raise UsageError(
            f"No task fits into {wish.minutes:g} minutes: the cheapest, {names[cheapest]}, "
            f"takes {minutes[cheapest]:.2g}.",
            hint="Type more --minutes.",
        )
    return lambda scores, target, families: _choose(scores, target, families, minutes, wish.minutes)


def _reference_rows(source: Imported, table: ScoreTable, times: _Times, reference: str) -> Ints:
    """The entries whose median speed the minutes are for."""
    if not reference:
        return table.rows
    models = source.entries(["model"])["model"].to_pylist()
    timed = {name for name, known in zip(models, ~np.isnan(times.models), strict=True) if known}
    if reference not in timed:
        raise unknown(
            "imported model with recorded times", reference, timed, then="Or leave out --reference."
        )
    return np.array([row for row, name in enumerate(models) if name == reference], np.int64)


def _task(table: ScoreTable, at: int, weight: float, minutes: Floats) -> ProxyTask:
    task, scores = table.tasks[at], table.scores[:, at]
    return ProxyTask(
        task=task.name,
        splits=task.splits,
        subsets=task.subsets,
        coefficient=weight,
        low=float(scores.min()),
        high=float(scores.max()),
        minutes=_finite(minutes[at]),
    )


def _error(table: ScoreTable, chosen: _Choice, predicted: Floats) -> ProxyErrors:
    found = _errors_of(table.target, predicted)
    return ProxyErrors(
        rmse=found.rmse,
        mae=found.mae,
        half_width=found.half_width,
        level=LEVEL,
        kendall=found.kendall,
        spearman=found.spearman,
        plain_rmse=float(np.sqrt(chosen.error)),
        deviation=float(table.target.std()),
    )


def _cost(
    table: ScoreTable, times: _Times, chosen: _Choice, meant: Ints, wish: ProxyRequest, minutes: Floats
) -> ProxyCost:
    nearest = times.nearest(table.rows) if not wish.reference else -1
    at = np.flatnonzero(table.rows == nearest)
    return ProxyCost(
        minutes=_finite(minutes[list(chosen.tasks)].sum()),
        budget=None if wish.tasks else wish.minutes,
        whole=_finite(minutes.sum()),
        reference=wish.reference or None,
        nearest=table.models[int(at[0])] if len(at) else None,
        spread=_finite(times.spread),
    )


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


PENALTIES = (1.0, 3.0, 10.0, 30.0)
"""Ridge penalties to try, for scores scaled to a standard deviation of 1."""

FOLDS, PARTITIONS = 5, 4
"""The folds of families within which sets of tasks are compared, and the number of such partitions."""


@dataclass(frozen=True, kw_only=True)
class _Linear:
    """A linear predictor: intercept + scores · coefficients, (tasks,)."""

    coefficients: Floats
    intercept: float

    def predict(self, scores: Floats) -> Floats:
        """The predictions for rows of scores, (models, tasks)."""
        return np.asarray(scores @ self.coefficients + self.intercept)


@dataclass(frozen=True, kw_only=True)
class _Products:
    """The products of the columns [scaled scores, 1, target]: (tasks + 2, tasks + 2) over all `rows`.

    `folds` holds those of each fold of every partition, (partitions * folds, tasks + 2, tasks + 2).
    """

    folds: Floats
    whole: Floats
    rows: int
    partitions: int

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        return int(self.folds.shape[1]) - 2


def _products(scores: Floats, target: Floats, groups: Ints) -> _Products:
    """The products of a training set."""
    scaled = (scores - scores.mean(axis=0)) / _scale(scores)
    columns = np.column_stack([scaled, np.ones(len(target)), target - target.mean()])
    parts = [columns[one == fold] for one in groups for fold in range(int(one.max()) + 1)]
    return _Products(
        folds=np.stack([part.T @ part for part in parts]),
        whole=columns.T @ columns,
        rows=len(target),
        partitions=len(groups),
    )


def _errors(of: _Products, sets: Sequence[Sequence[int]], penalty: float) -> Floats:
    """The mean squared error of each set of tasks, every fold predicted without itself, (sets,)."""
    chosen = np.asarray(sets, dtype=np.int64)
    chosen = np.column_stack([chosen, np.full(len(chosen), of.tasks)])
    rows, columns, last = chosen[:, :, None], chosen[:, None, :], of.tasks + 1
    others = of.whole - of.folds
    ridge = np.diag([penalty] * (chosen.shape[1] - 1) + [1e-9])
    weights = np.linalg.solve(others[:, rows, columns] + ridge, others[:, chosen, last][..., None])[..., 0]
    crossed = (weights * of.folds[:, chosen, last]).sum(axis=2)
    squared = np.einsum("fsi,fsij,fsj->fs", weights, of.folds[:, rows, columns], weights)
    total = of.folds[:, None, last, last] - 2 * crossed + squared
    return np.asarray(total.sum(axis=0) / (of.rows * of.partitions))


def _fit_ridge(scores: Floats, target: Floats, penalty: float) -> _Linear:
    """The ridge regression of `target` (models,) on `scores` (models, tasks), in the scores' own unit."""
    scale, middle = _scale(scores), scores.mean(axis=0)
    scaled = (scores - middle) / scale
    inner = scaled.T @ scaled + penalty * np.eye(scores.shape[1])
    coefficients = np.linalg.solve(inner, scaled.T @ (target - target.mean())) / scale
    return _Linear(coefficients=coefficients, intercept=float(target.mean() - middle @ coefficients))


def _folds(families: Ints, count: int = FOLDS, partitions: int = PARTITIONS) -> Ints:
    """Fixed folds of about equal size, (partitions, models): families stay whole, the largest lie apart."""
    draw = np.random.default_rng(0)
    return np.stack([_partition(families, count, draw) for _ in range(partitions)])


def _partition(families: Ints, count: int, draw: np.random.Generator) -> Ints:
    names, places, sizes = np.unique(families, return_inverse=True, return_counts=True)
    load = np.zeros(min(count, len(names)), np.int64)
    fold = np.zeros(len(names), np.int64)
    for family in np.lexsort((draw.random(len(names)), -sizes)):
        fold[family] = lightest = int(load.argmin())
        load[lightest] += sizes[family]
    return fold[places]


def _scale(scores: Floats) -> Floats:
    """The standard deviation of each column; 1 for a constant column."""
    scale = scores.std(axis=0)
    return np.where(scale > 0, scale, 1.0)


FEW = 5
"""Fewest times of a model from which the relative cost of tasks is learnt."""

ROUNDS, CLOSE = 500, 1e-9


@dataclass(frozen=True, kw_only=True)
class _Times:
    """The fit log seconds = `models` + `tasks`, (models,) and (tasks,), NaN where there are too few times.

    `spread` is the median of the absolute residuals: 0.7 is a factor of two.
    """

    models: Floats
    tasks: Floats
    spread: float

    def minutes(self, rows: NDArray[np.int64]) -> Floats:
        """The minutes of each task at the median speed of some rows, (tasks,); infinite without times."""
        found = self.models[rows]
        known = found if np.isfinite(found).any() else self.models
        speed = np.median(known[np.isfinite(known)]) if np.isfinite(known).any() else np.nan
        return np.nan_to_num(np.exp(self.tasks + speed) / 60, nan=np.inf)

    def nearest(self, rows: NDArray[np.int64]) -> int:
        """The row that is the closest to the median speed of some rows; -1 where none has times."""
        found = self.models[rows]
        if np.isnan(found).all():
            return -1
        return int(rows[np.nanargmin(np.abs(found - np.nanmedian(found)))])


def _fit_times(seconds: Floats) -> _Times:
    """Fit log time = model + task by alternating medians, which single wild times do not move.

    >>> times = _fit_times(np.outer([1.0, 60.0], [1.0, 2.0, 4.0, 8.0, 16.0]))
    >>> times.minutes(np.array([1])).round(6).tolist(), times.spread
    ([1.0, 2.0, 4.0, 8.0, 16.0], 0.0)
    """
    logs = np.log(seconds)
    enough = np.isfinite(logs).sum(axis=1) >= min(FEW, logs.shape[1])
    logs = np.where(enough[:, None], logs, np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # rows and columns without any time
        tasks = np.nanmedian(logs - np.nanmedian(logs, axis=1, keepdims=True), axis=0)
        for _ in range(ROUNDS):
            models, before = np.nanmedian(logs - tasks, axis=1), tasks
            tasks = np.nanmedian(logs - models[:, None], axis=0)
            if np.nanmax(np.abs(tasks - before), initial=0) < CLOSE:
                break
        residuals = np.abs(logs - tasks - models[:, None])
        return _Times(models=models, tasks=tasks, spread=float(np.round(np.nanmedian(residuals), 12)))


MOST = 15
"""Most tasks of a proxy."""

BETTER = 1e-6
"""The least share of the error that a step must take off."""

Pace = Literal["gain", "rate"]
"""The criterion for the next task: the error that it takes off, or that error for each minute."""


@dataclass(frozen=True, kw_only=True)
class _Choice:
    """Tasks by their columns, the penalty, and the mean squared error by which they were chosen."""

    tasks: tuple[int, ...]
    penalty: float
    error: float


def _choose(scores: Floats, target: Floats, families: Ints, minutes: Floats, budget: float) -> _Choice:
    """The tasks within a budget that predict the target best on held-out families.

    For every penalty and both paces tasks are added one at a time; after each, the best drop and the best
    exchange are made if they help. The best of all ends is taken.
    """
    of = _products(scores, target, _folds(families))
    paces: tuple[Pace, ...] = ("gain", "rate")
    ends = [_descend(of, minutes, budget, penalty, pace) for penalty in PENALTIES for pace in paces]
    return min(ends, key=lambda end: end.error)


def _given(scores: Floats, target: Floats, families: Ints, tasks: Sequence[int]) -> _Choice:
    """The given tasks, with the best penalty for them."""
    of = _products(scores, target, _folds(families))
    tried = {penalty: float(_errors(of, [tasks], penalty)[0]) for penalty in PENALTIES}
    penalty = min(tried, key=lambda one: tried[one])
    return _Choice(tasks=tuple(tasks), penalty=penalty, error=tried[penalty])


def _descend(of: _Products, minutes: Floats, budget: float, penalty: float, pace: Pace) -> _Choice:
    now = _Choice(tasks=(), penalty=penalty, error=float(of.whole[-1, -1] / of.rows))
    while True:
        before = now
        now = _added(of, now, minutes, budget, pace)
        now = _better(of, now, _drops(now.tasks))
        now = _better(of, now, _exchanges(now.tasks, minutes, budget))
        if now.error >= before.error and now.tasks:
            return now


def _added(of: _Products, now: _Choice, minutes: Floats, budget: float, pace: Pace) -> _Choice:
    """The choice with one task more; the first task is taken even if it helps nothing."""
    places = _affordable(now.tasks, minutes, budget) if len(now.tasks) < MOST else []
    if not places:
        return now
    found = _errors(of, [(*now.tasks, place) for place in places], now.penalty)
    gains = (now.error - found) / (minutes[places] if pace == "rate" else 1.0)
    best = int(gains.argmax())
    if now.tasks and found[best] >= now.error * (1 - BETTER):
        return now
    return _Choice(tasks=(*now.tasks, places[best]), penalty=now.penalty, error=float(found[best]))


def _better(of: _Products, now: _Choice, sets: Sequence[tuple[int, ...]]) -> _Choice:
    """The best of some sets of tasks if it is better than the present choice, else that choice."""
    if not sets:
        return now
    found = _errors(of, sets, now.penalty)
    best = int(found.argmin())
    if found[best] >= now.error * (1 - BETTER):
        return now
    return _Choice(tasks=sets[best], penalty=now.penalty, error=float(found[best]))


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


LEVEL = 0.95
"""The share of held-out models whose mean lies in the interval."""

Choose = Callable[[Floats, Floats, Ints], _Choice]
"""A function that chooses tasks on a training set: (scores, target, families)."""

Progress = Callable[[int, int], None]
"""A callback with the number of families held out so far, and of all families."""


@dataclass(frozen=True, kw_only=True)
class _Errors:
    """Held-out errors, shares of 1.

    No more than 1 - LEVEL of held-out models are further off than `half_width`. `kendall` (tau-b) and
    `spearman` are rank correlations of predictions and means; None where either is constant.
    """

    rmse: float
    mae: float
    half_width: float
    kendall: float | None
    spearman: float | None


def _held_out(
    scores: Floats, target: Floats, families: Ints, choose: Choose, progress: Progress | None = None
) -> Floats:
    """Each model's prediction by a proxy chosen and fitted without the model's family, (models,)."""
    tell = progress or (lambda done, total: None)
    predicted, names = np.empty(len(target)), np.unique(families)

    def without(family: int) -> tuple[NDArray[np.bool_], Floats]:
        out = families == family
        choice = choose(scores[~out], target[~out], families[~out])
        columns = list(choice.tasks)
        line = _fit_ridge(scores[~out][:, columns], target[~out], choice.penalty)
        return out, line.predict(scores[out][:, columns])

    tell(0, len(names))
    with ThreadPoolExecutor(
        len(os.sched_getaffinity(0))
    ) as pool:  # numpy works without the interpreter's lock
        for done, (out, found) in enumerate(pool.map(without, names.tolist()), 1):
            predicted[out] = found
            tell(done, len(names))
    return predicted


def _errors_of(target: Floats, predicted: Floats) -> _Errors:
    """The errors of predictions, both (models,).

    >>> off = _errors_of(np.array([0.1, 0.2, 0.3]), np.array([0.2, 0.2, 0.4]))
    >>> round(off.half_width, 3), round(off.mae, 3)
    (0.1, 0.067)
    """
    residuals = np.abs(predicted - target)
    return _Errors(
        rmse=float(np.sqrt(np.mean(residuals**2))),
        mae=float(residuals.mean()),
        half_width=_half_width(residuals),
        kendall=_correlation("kendalltau", target, predicted),
        spearman=_correlation("spearmanr", target, predicted),
    )


def _half_width(residuals: Floats) -> float:
    """The split-conformal bound: the ⌈(n + 1) · LEVEL⌉-th smallest of n, the largest where n is too small.

    >>> _half_width(np.arange(1.0, 101.0))
    96.0
    """
    place = min(math.ceil((len(residuals) + 1) * LEVEL), len(residuals))
    return float(np.sort(residuals)[place - 1])


def _correlation(name: str, target: Floats, predicted: Floats) -> float | None:
    from scipy import stats

    if not np.ptp(target) or not np.ptp(predicted):
        return None
    return float(getattr(stats, name)(target, predicted)[0])
