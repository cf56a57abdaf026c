"""Fitting a proxy from an import: its tasks, its errors, its cost.

The cost of a task comes from times that were taken on many machines. The error is that on models of families
that the proxy has never seen.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

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
from harness.proxy.regression import LEVEL, fit_ridge, measure_errors
from harness.proxy.selection import Choice, Choose, Progress, choose_tasks, fit_penalty, predict_families
from harness.proxy.table import Floats, Ints, ScoreTable
from harness.storage.imported import Imported


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
    times = _fit_times(table.seconds)
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
    table: ScoreTable, times: _Times, chosen: Choice, meant: Ints, wish: ProxyRequest, minutes: Floats
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


def _fit_times(seconds: Floats) -> _Times:
    """Fit log time = model + task by alternating medians, which single wild times do not move.

    >>> times = _fit_times(np.outer([1.0, 60.0], [1.0, 2.0, 4.0, 8.0, 16.0]))
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
