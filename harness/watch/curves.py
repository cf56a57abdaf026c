"""Curves of several runs: scores at budgets, budgets to a score, and which run is better.

A run has a curve for each of its seeds, and every interval is over seeds, by Student's t or Welch's. Budgets
are compared by the logarithm of their ratio, so that points before any training (at step 0) are left out. Of
one seed nothing is said, and a seed that diverged before its second score reaches no score. A point of a
curve has a budget (a step, or an amount of tokens, hours, operations or dollars) and a score; arrays are
(points,). A row is a model with the run, the seed and the step that it is of, its facts, and its scores.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, reduce
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from harness.core.documents import DocumentFolder, DocumentKind, DocumentPart
from harness.core.errors import UsageError, explain_unknown
from harness.core.groups import group_by
from harness.core.terminal import shorten_names
from harness.results.notes import parse_amount
from harness.results.score_differences import Part

Floats: TypeAlias = NDArray[np.float64]
Row: TypeAlias = dict[str, Any]

AXES = ("step", "tokens", "hours", "operations", "cost")
"""What a score can be drawn against."""

FACTS = ("model", "run", "seed", *AXES, "masking", "size", "method", "loss", "diverged")
"""The columns that are no scores. Cost is in dollars, and size are parameters without embeddings."""

TEXTS = ("model", "run", "seed", "method", "diverged")
"""Those that are no numbers; a seed may be the name of a watch."""

MEAN = "mean of "
"""What the column of a suite's mean begins with."""

LEVEL = 0.05
"""The chance that an interval lies beside the truth, and that any of all compared runs that are equal is
called better."""

BUDGETS = 8
"""The most budgets at which runs are compared: each takes its share of the level."""

NEAR_END = 0.9
"""Where the usual score to reach lies, between the highest first and the lowest last score of all curves,
each made monotone."""


@dataclass(frozen=True, kw_only=True)
class SeedCurve:
    """The curve of one seed of a run: `budgets` ascend, and `scores` are those there.

    `diverged` says why the run counts as diverged, and is empty for a sound one.
    """

    run: str
    seed: str
    budgets: Floats
    scores: Floats
    diverged: str = ""

    @property
    def name(self) -> str:
        """The run with its seed."""
        return f"{self.run}/{self.seed}"

    @cached_property
    def monotone(self) -> Floats:
        """The scores, made monotone (isotonic regression): a lucky checkpoint does not reach a score."""
        from scipy.optimize import isotonic_regression

        scores: Floats = isotonic_regression(self.scores).x
        return scores


@dataclass(frozen=True, kw_only=True)
class SeedInterval:
    """An estimate over seeds; without bounds where there are too few seeds."""

    value: float
    low: float | None = None
    high: float | None = None

    def format_ends(self, write: Callable[[float], str]) -> str:
        """The estimate with its bounds, where it has them."""
        if self.low is None or self.high is None:
            return write(self.value)
        return f"{write(self.value)} [{write(self.low)}, {write(self.high)}]"

    def describe_sign(self) -> str:
        """What a difference says of the first run."""
        if self.low is None or self.high is None:
            return "nothing"
        if self.low > 0:
            return "better"
        return "lower" if self.high < 0 else "not told apart"


@dataclass(frozen=True, kw_only=True)
class _RunReach:
    """The budget that a run takes to a score, if all seeds get there: `reached` of `seeds` do.

    `early` seeds have it at their first point, so that their budget is not known.
    """

    run: str
    reached: int
    early: int
    seeds: int
    budget: SeedInterval | None


@dataclass(frozen=True, kw_only=True)
class _RunComparison:
    """A run beside another: the speed-up at equal score, and the differences of the score at each budget.

    `better` and `lower` are the budgets at which the difference is sure, all of them together; `verdict` is
    `better` or `lower` if it is sure at every budget, `not told apart` or, of a single seed, `nothing`.
    """

    run: str
    other: str
    speedup: SeedInterval | None
    differences: tuple[SeedInterval, ...]
    better: tuple[float, ...]
    lower: tuple[float, ...]
    verdict: str

    def describe_verdict(self) -> str:
        """What is known of the two, in words."""
        if self.verdict == "nothing":
            return "nothing can be said of a single seed"
        if self.verdict != "not told apart":
            return f"{self.verdict} at every budget"
        calls = {"better": len(self.better), "lower": len(self.lower)}
        count = len(self.differences)
        parts = [f"{call} at {number} of {count} budgets" for call, number in calls.items() if number]
        return ", ".join(parts) or "not told apart"


@dataclass(frozen=True, kw_only=True)
class CurveComparison:
    """Several runs beside one another: `scores` are, for each run, those at each of the budgets."""

    budgets: tuple[float, ...]
    scores: Mapping[str, tuple[SeedInterval, ...]]
    score: float
    reaches: tuple[_RunReach, ...]
    pairs: tuple[_RunComparison, ...]


# From rows


def build_curves(rows: Sequence[Row], axis: str, column: str = "") -> tuple[str, list[SeedCurve]]:
    """The column of the scores, and the curve of each seed of each run, with scores × 100.

    Args:
        rows: The rows, those of a seed in the order of its training.
        axis: One of AXES.
        column: The column of scores, or the task; by default the only mean, or the only column.

    Raises:
        UsageError: Something in the rows does not fit together; the message says what.
    """
    column = choose_column(rows, column)
    if any(row.get("run") in (None, "") for row in rows):
        columns = f"There is: {shorten_names([*rows[0]])}."
        raise UsageError(
            "A row has no run.", hint=f"State in the column run which run each row is of. {columns}"
        )
    for run, lines in group_by(rows, lambda row: str(row["run"])).items():
        if len(names := sorted({str(row["method"]) for row in lines if row.get("method")})) > 1:
            raise UsageError(
                f"The rows of the run {run} have several methods: {shorten_names(names)}.",
                hint="Seeds of a run share its recipe; give each method a run of its own.",
            )
    groups = group_by(rows, lambda row: (str(row["run"]), _name_seed(row)))
    curves = [_build_curve(run, seed, lines, axis, column) for (run, seed), lines in groups.items()]
    shares = {bool(np.abs(curve.scores).max() <= 1): curve.name for curve in curves if len(curve.scores)}
    if len(shares) > 1:
        raise UsageError(
            f"{column} of {shares[True]} lies between 0 and 1, and that of {shares[False]} does not.",
            hint="Give all scores as fractions, or all × 100.",
        )
    scale = 100 if True in shares else 1
    return column, [replace(curve, scores=scale * curve.scores) for curve in curves]


def _name_seed(row: Row) -> str:
    return "1" if row.get("seed") in (None, "") else str(row["seed"])


def choose_column(rows: Sequence[Row], wanted: str) -> str:
    """The column of scores that is meant: the wanted one or its task's, else the only mean or column.

    Raises:
        UsageError: There is none, or there are several.
    """
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name not in FACTS]
    means = [name for name in names if name.startswith(MEAN)] or names
    if wanted:
        means = [name for name in names if wanted == name or name.startswith(f"{wanted} of ")]
        if not means:
            raise explain_unknown("column of scores", wanted, names, then="Give one of them with --task.")
    if len(means) != 1:
        raise UsageError(
            f"There are {len(means)} columns of scores: {shorten_names(means) if means else 'none'}.",
            hint="Runs of other suites or conditions are on no common curve: name one column with --task."
            if means
            else f"The columns {', '.join(FACTS)} are no scores; add one.",
        )
    return means[0]


def read_number(value: Any, where: str) -> float | None:
    """A number of a row, which may be typed as people do.

    Raises:
        UsageError: It is no number.
    """
    if value is None or isinstance(value, int | float):
        return value
    if (amount := parse_amount(str(value))) is None:
        raise UsageError(f"{value!r} is no number: {where}.", hint="Type one such as 2.9e21 or 2.1T.")
    return amount


def read_column(rows: Sequence[Row], column: str, name: Callable[[Row], str]) -> Floats:
    """The numbers of a column, NaN where there is none, (rows,); `name` is what an error calls a row.

    Raises:
        UsageError: One is no number.
    """
    numbers = [read_number(row.get(column), f"{column} of {name(row)}") for row in rows]
    return np.array([math.nan if number is None else number for number in numbers], float)


def explain_divergence(rows: Sequence[Row], column: str, scores: Floats) -> str:
    """Why a seed counts as diverged: it is stated, or a score or loss is no number, or its loss has risen."""
    reasons = [str(row["diverged"]) for row in rows if row.get("diverged")]
    losses = [row["loss"] for row in rows if isinstance(row.get("loss"), int | float)]
    if reason := next((text for text in reasons if text.lower() not in ("false", "no", "0")), ""):
        return "as stated" if reason.lower() in ("true", "yes", "1", "1.0") else reason
    lost = [row for row, score in zip(rows, scores, strict=True) if not math.isfinite(score)]
    if any(row.get(column) is not None for row in lost) or not all(map(math.isfinite, losses)):
        return "a score or loss is no number"
    return "its last loss is above its first" if losses and losses[-1] > losses[0] else ""


def _build_curve(run: str, seed: str, rows: Sequence[Row], axis: str, column: str) -> SeedCurve:
    def name_curve(_row: Row) -> str:
        return f"{run}/{seed}"

    scores = read_column(rows, column, name_curve)
    diverged = explain_divergence(rows, column, scores)
    scored = [row for row, score in zip(rows, scores, strict=True) if math.isfinite(score)]
    if len(scored) < 2 and not diverged:
        others = sorted({n for row in rows for n, v in row.items() if n not in FACTS and v is not None})
        raise UsageError(
            f"{run}/{seed} has {'1 score' if scored else 'no score'} in {column}; a curve has two or more.",
            hint=f"It has {shorten_names(others)}: another suite or condition is on no common curve."
            if others
            else "Leave it out.",
        )
    budgets = read_column(scored, axis, name_curve)
    where, missing = f"{axis} of {run}/{seed}", sum(row.get(axis) is None for row in scored)
    if len(budgets) - np.isfinite(budgets).sum() > missing:
        raise UsageError(f"The {where} is not finite.", hint="Correct it, or leave the row out.")
    if missing or (len({*budgets}) == 1 and not diverged):
        how = f"missing at {missing} of {len(scored)} points" if missing else f"{budgets[0]:g} everywhere"
        flags = {"tokens": "--pretraining-tokens", "operations": "--flops", "cost": "--hours with --device"}
        axes = [n for n in AXES if n != axis and all(row.get(n) not in (None, "") for row in scored)]
        instead = f" Or type --against {' or '.join(axes)}." if axes else ""
        stated = f"harness models note CHECKPOINT {flags.get(axis, f'--{axis}')}"
        raise UsageError(
            f"The {where} is {how}, so that no score can be drawn against it.",
            hint=f"State it: {stated}, or the column {axis} of a file for --runs.{instead}",
        )
    return SeedCurve(
        run=run, seed=seed, budgets=budgets, scores=scores[np.isfinite(scores)], diverged=diverged
    )


# Comparisons


def compare_runs(curves: Sequence[SeedCurve], score: float | None = None) -> CurveComparison:
    """Compare runs at common budgets and at one score.

    Args:
        curves: A curve for each seed of each run.
        score: The score to reach; by default one near the lowest last score.

    Raises:
        UsageError: A curve goes back or stands twice, or no budget is common to all.

    Example:
        >>> x, y = np.array([1.0, 2.0, 4.0, 8.0]), np.array([0.1, 0.2, 0.3, 0.4])
        >>> fast = [SeedCurve(run="a", seed=str(n), budgets=x / 2, scores=y + n / 100) for n in range(2)]
        >>> slow = [SeedCurve(run="b", seed=str(n), budgets=x, scores=y + n / 99) for n in range(2)]
        >>> round(compare_runs([*fast, *slow], 0.25).pairs[0].speedup.value, 2)
        2.0
    """
    trained = [(curve, curve.budgets > 0) for curve in curves]
    curves = [replace(one, budgets=one.budgets[at], scores=one.scores[at]) for one, at in trained]
    _require_curves(curves)
    drawn = [curve for curve in curves if len(curve.budgets) > 1 or not curve.diverged]
    if not drawn:
        raise UsageError("Every seed has diverged at once.", hint="There is no curve to compare.")
    budgets = _choose_budgets(drawn)
    # Of the curves that reach it, so that it is not above what a lucky checkpoint alone had.
    first, last = max(one.monotone[0] for one in drawn), min(one.monotone[-1] for one in drawn)
    score = float(first + NEAR_END * (last - first)) if score is None else score
    x = np.log(budgets)
    tables = {
        run: np.array([np.interp(x, np.log(one.budgets), one.scores) for one in seeds])
        for run, seeds in group_by(drawn, lambda one: one.run).items()
    }
    logs = {
        run: np.array([compute_log_budget(one, score) for one in seeds])
        for run, seeds in group_by(curves, lambda one: one.run).items()
    }
    pairs = [*itertools.combinations(tables, 2)]
    return CurveComparison(
        budgets=tuple(budgets.tolist()),
        scores={run: tuple(map(estimate_difference, table.T)) for run, table in tables.items()},
        score=score,
        reaches=tuple(
            _RunReach(
                run=run,
                reached=int((each < np.inf).sum()),
                early=int((each == -np.inf).sum()),
                seeds=len(each),
                budget=_estimate_ratio(each),
            )
            for run, each in logs.items()
        ),
        pairs=tuple(_compare_pair(pair, tables, logs, budgets, LEVEL / len(pairs)) for pair in pairs),
    )


def _require_curves(curves: Sequence[SeedCurve]) -> None:
    """Refuse a budget that does not grow, and two seeds with the same scores: their interval is of one."""
    for curve in curves:
        for before, after in itertools.pairwise(curve.budgets):
            if after <= before:
                how = "stands twice" if after == before else f"is followed by {after:,g}"
                raise UsageError(
                    f"In {curve.name} {before:,g} {how}: the budget of a run only grows.",
                    hint="Keep one row for each point, or name what comes after a restart another seed.",
                )
    for first, other in itertools.combinations(curves, 2):
        if first.run == other.run and np.array_equal(first.scores, other.scores) and len(first.scores) > 1:
            raise UsageError(
                f"{first.name} and {other.name} have the same scores: one seed is counted twice.",
                hint="Leave one of them out.",
            )


def estimate_difference(values: Floats, others: Floats | None = None, level: float = LEVEL) -> SeedInterval:
    """The difference of two means of seeds, with the interval of a check (`Part.estimate_run_part`).

    Args:
        values: Of one run, (seeds,).
        others: Of the other, (seeds,); None for the mean of the first alone.
        level: The chance that the interval lies beside the truth.
    """
    sides = [values] if others is None else [values, others]
    mean = float(values.mean() - (0 if others is None else others.mean()))
    if min(map(len, sides)) < 2:
        return SeedInterval(value=mean)
    spread = Part.estimate_run_part(values.tolist(), [] if others is None else others.tolist(), paired=False)
    assert spread is not None
    half = spread.compute_bound_offset(1 - level / 2)
    return SeedInterval(value=mean, low=mean - half, high=mean + half)


def _estimate_ratio(logs: Floats, others: Floats | None = None) -> SeedInterval | None:
    """The ratio of two geometric means of seeds, or one such mean; None unless all logarithms are finite."""
    if not np.isfinite([*logs, *([] if others is None else others)]).all():
        return None
    interval = estimate_difference(logs, others)
    low, high = (None if end is None else float(np.exp(end)) for end in (interval.low, interval.high))
    return SeedInterval(value=float(np.exp(interval.value)), low=low, high=high)


def compute_log_budget(curve: SeedCurve, score: float) -> float:
    """The logarithm of the budget at which a curve, made monotone, reaches a score.

    The curve is straight in the logarithm of the budget between two points.

    Returns:
        Infinity if it never gets there, minus infinity if it is there at its first point.
    """
    x, y = np.log(curve.budgets), curve.monotone if len(curve.scores) else curve.scores
    place = int(np.searchsorted(y, score))
    if place == len(y):
        return np.inf
    if place == 0:
        return -np.inf
    share = (score - y[place - 1]) / (y[place] - y[place - 1])
    return float(x[place - 1] + share * (x[place] - x[place - 1]))


def _choose_budgets(curves: Sequence[SeedCurve]) -> Floats:
    """The budgets at which all curves are compared: points of all of them, else some between."""
    late = max(curves, key=lambda one: one.budgets[0])
    early = min(curves, key=lambda one: one.budgets[-1])
    if (low := late.budgets[0]) > (high := early.budgets[-1]):
        apart = f"{late.name} begins at {low:,g}, and {early.name} ends at {high:,g}"
        raise UsageError(
            f"{apart}: no budget is common to all.",
            hint="Give both the same unit, or leave one out.",
        )
    points = reduce(np.intersect1d, (one.budgets for one in curves))
    if len(points) >= min(3, *(len(one.budgets) for one in curves)):
        shown: Floats = points[np.unique(np.linspace(0, len(points) - 1, BUDGETS).round().astype(int))]
        return shown
    return np.unique(np.geomspace(low, high, BUDGETS))


def _compare_pair(
    names: tuple[str, str],
    tables: Mapping[str, Floats],
    logs: Mapping[str, Floats],
    budgets: Floats,
    level: float,
) -> _RunComparison:
    """Compare two runs by their scores at the budgets, (seeds, budgets), and their log budgets, (seeds,)."""
    run, other = names
    columns = [*zip(tables[run].T, tables[other].T, strict=True)]
    # Better at every budget: each alone at the full level (an intersection-union test, Berger, 1982).
    # Better at some: all together at the level (Bonferroni).
    every = {estimate_difference(*column, level).describe_sign() for column in columns}
    sure = [estimate_difference(*column, level / len(budgets)).describe_sign() for column in columns]
    calls = {
        call: tuple(x for x, name in zip(budgets.tolist(), sure, strict=True) if name == call)
        for call in ("better", "lower")
    }
    return _RunComparison(
        run=run,
        other=other,
        speedup=_estimate_ratio(logs[other], logs[run]),
        differences=tuple(estimate_difference(*column) for column in columns),
        verdict=every.pop() if len(every) == 1 else "not told apart",
        **calls,
    )


# Documents


class _RunPoint(DocumentPart):
    """A row of a stored comparison; what is not known is None. `score` is as it was measured."""

    model: str = ""
    run: str
    seed: str
    step: float | None = None
    tokens: float | None = None
    hours: float | None = None
    operations: float | None = None
    cost: float | None = None
    masking: float | None = None
    size: float | None = None
    method: str = ""
    loss: float | None = None
    diverged: str = ""
    """Why its seed counts as diverged."""
    score: float | None = None


class RunTable(DocumentPart):
    """Several runs that were compared, as the site shows them."""

    name: str
    when: str
    column: str
    """What the scores are of."""
    axis: str
    reach: float | None = None
    """The score × 100 to reach, if one was given."""
    points: tuple[_RunPoint, ...]

    @classmethod
    def from_rows(
        cls, rows: Sequence[Row], column: str, curves: Sequence[SeedCurve], **fields: Any
    ) -> RunTable:
        """The document of rows whose curves are built; numbers that are none are left out."""
        reasons = {(curve.run, curve.seed): curve.diverged for curve in curves}
        points = []
        for row in rows:
            names = {"run": str(row["run"]), "seed": _name_seed(row)}
            texts = {name: str(row.get(name) or "") for name in ("model", "method")}
            values = {name: row.get(name) for name in FACTS if name not in TEXTS} | {"score": row.get(column)}
            numbers = {n: read_number(x, column if n == "score" else n) for n, x in values.items()}
            finite = {name: n for name, n in numbers.items() if n is not None and math.isfinite(n)}
            diverged = reasons[names["run"], names["seed"]]
            points.append(_RunPoint.model_validate({**names, **texts, **finite, "diverged": diverged}))
        when = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(column=column, when=when, points=tuple(points), **fields)

    def build_curves(self, axis: str) -> list[SeedCurve]:
        """The curve of each seed of each run against an axis, with scores × 100."""
        return build_curves([point.model_dump() for point in self.points], axis, "score")[1]


CURVES = DocumentFolder(
    kind=DocumentKind(name="comparison of runs", type=RunTable), folder="curves", then="Give another --out."
)
