"""Fitting a proxy from an import: its tasks, its errors, its cost.

Tasks are chosen greedily within a budget of minutes, then by drops and exchanges. Many small sets of tasks
are fitted at once by ridge regression: the products of all columns, summed within each fold, hold all that
any set of columns and any fold needs. The error is that on models of families that the proxy has never seen.
The cost of a task comes from times that were taken on many machines.
"""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import UsageError, explain_unknown
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

Progress = Callable[[int, int], None]
"""A callback with the number of families held out so far, and of all families."""


@dataclass(frozen=True, kw_only=True)
class ProxyRequest:
    """The settings of a requested proxy.

    Attributes:
        suite: The target, as --suite takes it.
        minutes: The time that its tasks may take together; skipped where `tasks` are given.
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

    Args:
        source: The import, with scores and times.
        suite: The target, a whole benchmark.
        wish: The budget in minutes, or the tasks to take.
        progress: Called with the number of families that were held out, and of all.

    Raises:
        UsageError: The import, a name or the budget does not allow it.
    """
    table = ScoreTable.read_score_table(source, suite)
    times = fit_times(table.seconds)
    meant = _select_reference_rows(source, table, times, wish.reference)
    minutes = times.estimate_minutes(meant)
    choose = _build_chooser(table, wish, minutes)
    chosen = choose(table.scores, table.target, table.groups)
    predicted = predict_families(table.scores, table.target, table.groups, choose, progress)
    line = fit_ridge(table.scores[:, list(chosen.tasks)], table.target, chosen.penalty)
    return Proxy(
        name=wish.name or _default_name(suite.title, wish),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        target=ProxyTarget(suite=wish.suite, title=suite.title, columns=len(suite.columns)),
        chosen="given" if wish.tasks else "greedy",
        penalty=chosen.penalty,
        intercept=line.intercept,
        tasks=tuple(
            _build_proxy_task(table, at, float(weight), minutes)
            for at, weight in zip(chosen.tasks, line.coefficients, strict=True)
        ),
        error=ProxyErrors(
            **asdict(measure_errors(table.target, predicted)),
            level=LEVEL,
            plain_rmse=float(np.sqrt(chosen.error)),
            deviation=float(table.target.std()),
        ),
        cost=_estimate_proxy_cost(table, times, chosen, meant, wish, minutes),
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


def _build_chooser(table: ScoreTable, wish: ProxyRequest, minutes: Floats) -> Choose:
    """The function that chooses tasks on a training set, the same in the cross-validation and at the end."""
    names = [task.name for task in table.tasks]
    if wish.tasks:
        for name in wish.tasks:
            if name not in names:
                raise explain_unknown(
                    "task of the target", name, names, then="--tasks takes the target's tasks."
                )
        places = sorted({names.index(name) for name in wish.tasks})
        return lambda scores, target, families: fit_penalty(scores, target, families, places)
    if not np.isfinite(minutes).any():
        raise UsageError(
            "The import has no times for the target's tasks.", hint="Name the tasks with --tasks."
        )
    cheapest = int(minutes.argmin())
    if not minutes[cheapest] <= wish.minutes:
        raise UsageError(
            f"No task fits into {wish.minutes:g} minutes: the cheapest, {names[cheapest]}, "
            f"takes {minutes[cheapest]:.2g}.",
            hint="Use a larger --minutes.",
        )
    return lambda scores, target, families: choose_tasks(scores, target, families, minutes, wish.minutes)


def _select_reference_rows(source: Imported, table: ScoreTable, times: _Times, reference: str) -> Ints:
    """The entries whose median speed the minutes are for."""
    if not reference:
        return table.rows
    models = source.load_table("entries", ["model"])["model"].to_pylist()
    timed = {name for name, has_time in zip(models, ~np.isnan(times.models), strict=True) if has_time}
    if reference not in timed:
        raise explain_unknown(
            "imported model with recorded times", reference, timed, then="Or leave out --reference."
        )
    return np.array([row for row, name in enumerate(models) if name == reference], np.int64)


def _build_proxy_task(table: ScoreTable, column: int, weight: float, minutes: Floats) -> ProxyTask:
    task, scores = table.tasks[column], table.scores[:, column]
    return ProxyTask(
        task=task.name,
        splits=task.splits,
        subsets=task.subsets,
        coefficient=weight,
        low=float(scores.min()),
        high=float(scores.max()),
        minutes=_keep_finite(minutes[column]),
    )


def _estimate_proxy_cost(
    table: ScoreTable, times: _Times, chosen: _Choice, meant: Ints, wish: ProxyRequest, minutes: Floats
) -> ProxyCost:
    nearest = times.find_nearest(table.rows) if not wish.reference else -1
    positions = np.flatnonzero(table.rows == nearest)
    return ProxyCost(
        minutes=_keep_finite(minutes[list(chosen.tasks)].sum()),
        budget=None if wish.tasks else wish.minutes,
        whole=_keep_finite(minutes.sum()),
        reference=wish.reference or None,
        nearest=table.models[int(positions[0])] if len(positions) else None,
        spread=_keep_finite(times.spread),
    )


def _keep_finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


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

    def estimate_minutes(self, rows: NDArray[np.int64]) -> Floats:
        """The minutes of each task at the median speed of some rows, (tasks,); infinite without times."""
        row_speeds = self.models[rows]
        # Where these rows have too few times, the median speed of all models stands in.
        speeds = row_speeds if np.isfinite(row_speeds).any() else self.models
        speed = np.median(speeds[np.isfinite(speeds)]) if np.isfinite(speeds).any() else np.nan
        return np.nan_to_num(np.exp(self.tasks + speed) / 60, nan=np.inf)

    def find_nearest(self, rows: NDArray[np.int64]) -> int:
        """The row that is the closest to the median speed of some rows; -1 where none has times."""
        speeds = self.models[rows]
        if np.isnan(speeds).all():
            return -1
        return int(rows[np.nanargmin(np.abs(speeds - np.nanmedian(speeds)))])


def fit_times(seconds: Floats) -> _Times:
    """Fit log time = model + task by alternating medians, which single wild times do not move.

    >>> times = fit_times(np.outer([1.0, 60.0], [1.0, 2.0, 4.0, 8.0, 16.0]))
    >>> times.estimate_minutes(np.array([1])).round(6).tolist(), times.spread
    ([1.0, 2.0, 4.0, 8.0, 16.0], 0.0)
    """
    logs = np.log(seconds)
    # A benchmark may have fewer tasks than FEW.
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


# The choice of tasks

PENALTIES = (1.0, 3.0, 10.0, 30.0)
"""Ridge penalties to try, for scores scaled to a standard deviation of 1."""

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


def choose_tasks(scores: Floats, target: Floats, families: Ints, minutes: Floats, budget: float) -> _Choice:
    """The tasks within a budget that predict the target best on held-out families.

    For every penalty and both paces tasks are added one at a time; after each, the best drop and the best
    exchange are made if they help. The best of all ends is taken.
    """
    of = Products.compute_products(scores, target, split_families(families))
    paces: tuple[Pace, ...] = ("gain", "rate")
    ends = [_search_tasks(of, minutes, budget, penalty, pace) for penalty in PENALTIES for pace in paces]
    return min(ends, key=lambda end: end.error)


def fit_penalty(scores: Floats, target: Floats, families: Ints, tasks: Sequence[int]) -> _Choice:
    """The given tasks, with the best penalty for them."""
    of = Products.compute_products(scores, target, split_families(families))
    tried = {penalty: float(of.compute_errors([tasks], penalty)[0]) for penalty in PENALTIES}
    penalty = min(tried, key=lambda one: tried[one])
    return _Choice(tasks=tuple(tasks), penalty=penalty, error=tried[penalty])


def _search_tasks(of: Products, minutes: Floats, budget: float, penalty: float, pace: Pace) -> _Choice:
    """The tasks that a greedy search ends with, from none, for one penalty and one pace."""
    # Without tasks the prediction is the mean: the last product is the sum of squares of the centred target.
    now = _Choice(tasks=(), penalty=penalty, error=float(of.whole[-1, -1] / of.rows))
    while True:
        before = now
        now = _add_task(of, now, minutes, budget, pace)
        now = _select_best_set(of, now, _list_drops(now.tasks))
        now = _select_best_set(of, now, _list_exchanges(now.tasks, minutes, budget))
        # Every step takes off at least BETTER of the error, so that the search ends.
        if now.error >= before.error and now.tasks:
            return now


def _add_task(of: Products, now: _Choice, minutes: Floats, budget: float, pace: Pace) -> _Choice:
    """The choice with one task more; the first task is taken even if it helps nothing."""
    places = _list_affordable_tasks(now.tasks, minutes, budget) if len(now.tasks) < MOST else []
    if not places:
        return now
    errors = of.compute_errors([(*now.tasks, place) for place in places], now.penalty)
    gains = (now.error - errors) / (minutes[places] if pace == "rate" else 1.0)
    best = int(gains.argmax())
    if now.tasks and errors[best] >= now.error * (1 - BETTER):
        return now
    return _Choice(tasks=(*now.tasks, places[best]), penalty=now.penalty, error=float(errors[best]))


def _select_best_set(of: Products, now: _Choice, sets: Sequence[tuple[int, ...]]) -> _Choice:
    """The best of some sets of tasks, or the present choice where none is better."""
    if not sets:
        return now
    errors = of.compute_errors(sets, now.penalty)
    best = int(errors.argmin())
    if errors[best] >= now.error * (1 - BETTER):
        return now
    return _Choice(tasks=sets[best], penalty=now.penalty, error=float(errors[best]))


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


Choose = Callable[[Floats, Floats, Ints], _Choice]
"""A function that chooses tasks on a training set: (scores, target, families)."""


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


# The regression

FOLDS, PARTITIONS = 5, 4
"""The folds of families within which sets of tasks are compared, and the number of such partitions."""


LEVEL = 0.95
"""The share of held-out models whose mean lies in the interval."""


@dataclass(frozen=True, kw_only=True)
class _Linear:
    """A linear predictor: intercept + scores · coefficients, (tasks,)."""

    coefficients: Floats
    intercept: float

    def predict(self, scores: Floats) -> Floats:
        """The predictions for rows of scores, (models, tasks)."""
        return np.asarray(scores @ self.coefficients + self.intercept)


@dataclass(frozen=True, kw_only=True)
class Products:
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

    @staticmethod
    def compute_products(scores: Floats, target: Floats, groups: Ints) -> Products:
        """The products of a training set.

        Args:
            scores: (models, tasks).
            target: (models,).
            groups: The fold of each model in each partition, (partitions, models), from `split_families`.
        """
        scaled = (scores - scores.mean(axis=0)) / _scale(scores)
        # Centred, as sums of raw squares lose digits.
        columns = np.column_stack([scaled, np.ones(len(target)), target - target.mean()])
        parts = [columns[one == fold] for one in groups for fold in range(int(one.max()) + 1)]
        return Products(
            folds=np.stack([part.T @ part for part in parts]),
            whole=columns.T @ columns,
            rows=len(target),
            partitions=len(groups),
        )

    def compute_errors(self, sets: Sequence[Sequence[int]], penalty: float) -> Floats:
        """The mean squared error of ridge regressions, every fold predicted without itself.

        Args:
            sets: Sets of tasks by their columns, all of one size.
            penalty: The ridge penalty, for scores scaled to a standard deviation of 1.

        Returns:
            The error of each set, (sets,).
        """
        chosen = np.asarray(sets, dtype=np.int64)
        chosen = np.column_stack([chosen, np.full(len(chosen), self.tasks)])
        rows, columns, last = chosen[:, :, None], chosen[:, None, :], self.tasks + 1
        # Products are sums over models, so those without a fold are a difference; nothing is summed again.
        others = self.whole - self.folds
        # The intercept, in the last place, is not penalized; 1e-9 keeps the system solvable.
        ridge = np.diag([penalty] * (chosen.shape[1] - 1) + [1e-9])
        weights = np.linalg.solve(others[:, rows, columns] + ridge, others[:, chosen, last][..., None])[
            ..., 0
        ]
        crossed = (weights * self.folds[:, chosen, last]).sum(axis=2)
        squared = np.einsum("fsi,fsij,fsj->fs", weights, self.folds[:, rows, columns], weights)
        total = self.folds[:, None, last, last] - 2 * crossed + squared
        return np.asarray(total.sum(axis=0) / (self.rows * self.partitions))


def fit_ridge(scores: Floats, target: Floats, penalty: float) -> _Linear:
    """The ridge regression of a target on scores, in the scores' own unit.

    Args:
        scores: (models, tasks).
        target: (models,).
        penalty: The ridge penalty, for scores scaled to a standard deviation of 1.
    """
    scale, middle = _scale(scores), scores.mean(axis=0)
    scaled = (scores - middle) / scale
    inner = scaled.T @ scaled + penalty * np.eye(scores.shape[1])
    coefficients = np.linalg.solve(inner, scaled.T @ (target - target.mean())) / scale
    return _Linear(coefficients=coefficients, intercept=float(target.mean() - middle @ coefficients))


def split_families(families: Ints, count: int = FOLDS, partitions: int = PARTITIONS) -> Ints:
    """Fixed folds of about equal size: families stay whole, the largest lie apart.

    Args:
        families: The family of each model, (models,).
        count: The folds of a partition, fewer where there are fewer families.
        partitions: The number of partitions.

    Returns:
        The fold of each model in each partition, (partitions, models).
    """
    # A fixed seed: the same import gives the same proxy.
    draw = np.random.default_rng(0)
    return np.stack([_draw_partition(families, count, draw) for _ in range(partitions)])


def _draw_partition(families: Ints, count: int, draw: np.random.Generator) -> Ints:
    names, places, sizes = np.unique(families, return_inverse=True, return_counts=True)
    load = np.zeros(min(count, len(names)), np.int64)
    fold = np.zeros(len(names), np.int64)
    # lexsort sorts by its last key first: the largest families, and among equals by chance. Each goes to the
    # lightest fold so far.
    for family in np.lexsort((draw.random(len(names)), -sizes)):
        fold[family] = lightest = int(load.argmin())
        load[lightest] += sizes[family]
    return fold[places]


def _scale(scores: Floats) -> Floats:
    """The standard deviation of each column; 1 for a constant column."""
    scale = scores.std(axis=0)
    return np.where(scale > 0, scale, 1.0)


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


def measure_errors(target: Floats, predicted: Floats) -> _Errors:
    """The errors of predictions, both (models,).

    >>> off = measure_errors(np.array([0.1, 0.2, 0.3]), np.array([0.2, 0.2, 0.4]))
    >>> round(off.half_width, 3), round(off.mae, 3)
    (0.1, 0.067)
    """
    residuals = np.abs(predicted - target)
    return _Errors(
        rmse=float(np.sqrt(np.mean(residuals**2))),
        mae=float(residuals.mean()),
        half_width=_compute_half_width(residuals),
        kendall=_compute_rank_correlation("kendalltau", target, predicted),
        spearman=_compute_rank_correlation("spearmanr", target, predicted),
    )


def _compute_half_width(residuals: Floats) -> float:
    """The split-conformal bound: the ⌈(n + 1) · LEVEL⌉-th smallest of n, the largest where n is too small.

    >>> _compute_half_width(np.arange(1.0, 101.0))
    96.0
    """
    # Lei et al. (2018, Distribution-Free Predictive Inference for Regression): the n + 1 counts the new
    # model.
    place = min(math.ceil((len(residuals) + 1) * LEVEL), len(residuals))
    return float(np.sort(residuals)[place - 1])


def _compute_rank_correlation(name: str, target: Floats, predicted: Floats) -> float | None:
    from scipy import stats

    if not np.ptp(target) or not np.ptp(predicted):
        return None
    return float(getattr(stats, name)(target, predicted)[0])
