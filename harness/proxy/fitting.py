"""Fitting a proxy: which tasks, their line, its honest error, and what they cost."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from harness.errors import UsageError, unknown
from harness.imported import Imported
from harness.proxy import choice, ridge, validation
from harness.proxy.choice import Choice
from harness.proxy.document import (
    CostPart,
    ErrorPart,
    FittedPart,
    ImportPart,
    Proxy,
    TargetPart,
    TaskPart,
)
from harness.proxy.ridge import Floats, Ints
from harness.proxy.table import Table, read
from harness.proxy.timing import Times, fit_times
from harness.proxy.validation import Progress
from harness.types import Suite


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What is asked of a proxy.

    Attributes:
        suite: What --suite takes for the target.
        minutes: What its tasks may take together; passed over where `tasks` are given.
        tasks: Tasks to take as they are; empty to choose them.
        reference: The imported model whose minutes are meant; empty for the median of the fitted ones.
        name: The proxy's; empty for one made of the target.
    """

    suite: str
    minutes: float = 5.0
    tasks: Sequence[str] = ()
    reference: str = ""
    name: str = ""


def fit(source: Imported, suite: Suite, wish: Wish, progress: Progress | None = None) -> Proxy:
    """Fit a proxy of a suite's mean on the complete models of an import.

    Raises:
        UsageError: The import, a name or the budget does not allow it.
    """
    table = read(source, suite)
    times = fit_times(table.seconds)
    meant = _meant(source, table, times, wish.reference)
    minutes = times.minutes(meant)
    choose = _chooser(table, wish, minutes)
    chosen = choose(table.scores, table.target, table.groups)
    predicted = validation.held_out(table.scores, table.target, table.groups, choose, progress)
    line = ridge.fit(table.scores[:, list(chosen.tasks)], table.target, chosen.penalty)
    return Proxy(
        name=wish.name or default_name(suite.title, wish),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        target=TargetPart(suite=wish.suite, title=suite.title, columns=len(suite.columns)),
        chosen="given" if wish.tasks else "greedy",
        penalty=chosen.penalty,
        intercept=line.intercept,
        tasks=tuple(
            _task(table, at, float(weight), minutes)
            for at, weight in zip(chosen.tasks, line.coefficients, strict=True)
        ),
        error=_error(table, chosen, predicted),
        cost=_cost(table, times, chosen, meant, wish, minutes),
        fitted=FittedPart(
            models=len(table.models),
            families=len(set(table.families)),
            other_data=table.other_data,
            low=float(table.target.min()),
            high=float(table.target.max()),
        ),
        imported=ImportPart(
            source=source.source,
            id=source.id,
            when=str(source.stamp.get("when", "")),
            commit=source.stamp.get("commit"),
        ),
    )


def default_name(title: str, wish: Wish) -> str:
    """A name made of the target and the minutes.

    >>> default_name("MTEB(eng, v2)", Wish(suite="mteb", minutes=5))
    'mteb-eng-v2-5min'
    """
    plain = "-".join(re.findall(r"[a-z0-9.]+", title.lower())).strip(".") or "proxy"
    return f"{plain}-{len(wish.tasks)}tasks" if wish.tasks else f"{plain}-{wish.minutes:g}min"


def _chooser(table: Table, wish: Wish, minutes: Floats) -> validation.Choose:
    """What chooses on a training set, the same inside of the cross-validation and in the end."""
    names = [task.name for task in table.tasks]
    if wish.tasks:
        for name in wish.tasks:
            if name not in names:
                raise unknown("task of the target", name, names, then="--tasks takes the target's tasks.")
        places = sorted({names.index(name) for name in wish.tasks})
        return lambda scores, target, families: choice.given(scores, target, families, places)
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
    return lambda scores, target, families: choice.choose(scores, target, families, minutes, wish.minutes)


def _meant(source: Imported, table: Table, times: Times, reference: str) -> Ints:
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


def _task(table: Table, at: int, weight: float, minutes: Floats) -> TaskPart:
    task, scores = table.tasks[at], table.scores[:, at]
    return TaskPart(
        task=task.name,
        splits=task.splits,
        subsets=task.subsets,
        coefficient=weight,
        low=float(scores.min()),
        high=float(scores.max()),
        minutes=_finite(minutes[at]),
    )


def _error(table: Table, chosen: Choice, predicted: Floats) -> ErrorPart:
    found = validation.judged(table.target, predicted)
    return ErrorPart(
        rmse=found.rmse,
        mae=found.mae,
        half_width=found.half_width,
        level=validation.LEVEL,
        kendall=found.kendall,
        spearman=found.spearman,
        plain_rmse=float(np.sqrt(chosen.error)),
        deviation=float(table.target.std()),
    )


def _cost(table: Table, times: Times, chosen: Choice, meant: Ints, wish: Wish, minutes: Floats) -> CostPart:
    nearest = times.nearest(table.rows) if not wish.reference else -1
    at = np.flatnonzero(table.rows == nearest)
    return CostPart(
        minutes=_finite(minutes[list(chosen.tasks)].sum()),
        budget=None if wish.tasks else wish.minutes,
        whole=_finite(minutes.sum()),
        reference=wish.reference or None,
        nearest=table.models[int(at[0])] if len(at) else None,
        spread=_finite(times.spread),
    )


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
