"""The tables of a check: means, tasks, policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.checks.outcome import VERDICTS, Check, MeanOutcome, TaskOutcome
from harness.scores import delta_text, score_text
from leaderboard.page import missing
from leaderboard.pages.checks.links import Links
from leaderboard.pages.checks.verdicts import verdict_cell
from leaderboard.pages.recipe.facts import words
from leaderboard.tables import Cell, Column, Row, Table

if TYPE_CHECKING:
    from leaderboard.views.check import CheckState

POINTS = "Scores and differences are times 100; the interval is that at the level 1 − 2·alpha of the policy."

OF_MEANS = (
    "Scores and differences are times 100; the means have half of the policy's alpha, so that the interval "
    "of one suite is that at the level 1 − alpha; the mean of a single task has that task's interval."
)

CORRECTED = (
    "p is corrected for the number of tasks and for the means' part of alpha: of a drop beyond the one that "
    "is allowed, and of a rise."
)


def means_table(check: Check, links: Links) -> Table:
    """The means: one row for each suite."""
    predicted = any(mean.predicted for mean in check.means)
    heads = (
        ("delta", "Difference"), ("low", "from"), ("high", "to"), ("margin", "Margin"),
        ("candidate", "Candidate"), ("baseline", "Baseline"),
    )  # fmt: skip
    return Table(
        name="means",
        caption="Means over the columns that were tested",
        columns=[
            Column(key="name", label="Suite", sticky=True),
            Column(key="verdict", label="Verdict"),
            *(Column(key=key, label=label, numeric=True) for key, label in heads),
            Column(key="there", label="Columns tested", numeric=True),
            Column(key="wanted", label="of", numeric=True),
            *([Column(key="predicted", label="It stands for")] if predicted else []),
        ],
        rows=[_mean_row(mean, links, predicted=predicted) for mean in check.means],
        notes=[OF_MEANS],
    )


def _mean_row(mean: MeanOutcome, links: Links, *, predicted: bool) -> Row:
    part = mean.there < mean.wanted
    note = f"{mean.wanted - mean.there} of its columns were not tested" if part else ""
    return Row(
        key=mean.suite,
        cells=[
            Cell(text=mean.suite, value=mean.suite, href=links.suites.get(mean.suite, "")),
            verdict_cell(mean.verdict),
            *(_delta(value) for value in (mean.delta, mean.low, mean.high)),
            *(_score(value) for value in (mean.margin, mean.candidate, mean.baseline)),
            Cell(text=str(mean.there), value=mean.there, kind="part" if part else "", note=note),
            Cell(text=str(mean.wanted), value=mean.wanted),
            *([_predicted(mean.predicted)] if predicted else []),
        ],
    )


def _predicted(found: Mapping[str, Any]) -> Cell:
    """The mean that the suite predicts, in words."""
    if not found:
        return Cell(text="–")
    value, low, high, baseline = (
        _number(found.get(name)) for name in ("candidate", "candidate_low", "candidate_high", "baseline")
    )
    text = (
        f"{found.get('target', '')}, predicted: {score_text(value)} ({score_text(low)} to "
        f"{score_text(high)}), the baseline {score_text(baseline)}"
    )
    return Cell(text=text, value=text)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def tasks_table(check: Check, links: Links, state: CheckState, path: str) -> Table:
    """The tasks that a state asks for."""
    tasks = [t for t in check.tasks if state.verdict in ("", t.verdict) and state.type in ("", t.type)]
    return Table(
        name="tasks",
        caption=f"{len(tasks)} of {len(check.tasks)} tasks" if len(tasks) < len(check.tasks) else
        f"{len(tasks)} task{'s' if len(tasks) != 1 else ''}",
        columns=[_column(*head, state, path) for head in HEADS],
        rows=[_task_row(task, links) for task in _ordered(tasks, state.sort)],
        notes=[POINTS, CORRECTED],
    )  # fmt: skip


HEADS = (
    ("name", "Task"), ("verdict", "Verdict"), ("delta", "Difference"), ("low", "from"), ("high", "to"),
    ("p_regressed", "p of a drop"), ("p_improved", "p of a rise"), ("margin", "Margin"),
    ("candidate", "Candidate"), ("baseline", "Baseline"), ("units", "Resampled"),
    ("said", "Why, what would settle it"),
)  # fmt: skip
TEXTS = ("name", "verdict", "said", "units")


def _column(key: str, label: str, state: CheckState, path: str) -> Column:
    sort = "" if key in ("said", "units") else f"{path}?{state.query(sort=_next(key, state.sort))}"
    way = {key: "ascending", f"-{key}": "descending"}.get(state.sort, "")
    return Column(key=key, label=label, numeric=key not in TEXTS, sticky=key == "name", sort=sort, sorted=way)  # type: ignore[arg-type]


def _next(key: str, sort: str) -> str:
    return f"-{key}" if sort == key else key


ORDERS: Mapping[str, Callable[[TaskOutcome], Any]] = {
    "name": lambda task: task.task.casefold(),
    "verdict": lambda task: VERDICTS.index(task.verdict),
    **{
        name: lambda task, name=name: getattr(task, name)  # type: ignore[misc]
        for name in ("delta", "low", "high", "p_regressed", "p_improved", "margin", "candidate", "baseline")
    },
}


def _ordered(tasks: Sequence[TaskOutcome], sort: str) -> list[TaskOutcome]:
    """Tasks in an order; those without a value last.

    Raises:
        NotFound: The state sorts by a column that is none.
    """
    key, down = sort.removeprefix("-"), sort.startswith("-")
    if key not in ORDERS:
        raise missing("column", key, ORDERS, then="Click a column's heading to sort by it.")
    order = ORDERS[key]
    known = [task for task in tasks if order(task) is not None]
    rest = [task for task in tasks if order(task) is None]
    return [*sorted(known, key=order, reverse=down), *rest]


def _task_row(task: TaskOutcome, links: Links) -> Row:
    may = "" if task.must_not_regress else " · may regress"
    units = f"{task.units:,} {task.unit}".strip() if task.units else "–"
    runs = "" if task.runs in ((0, 0), (1, 1)) else f", {task.runs[0]} against {task.runs[1]} runs"
    said = " · ".join(filter(None, (task.reason, task.to_settle)))
    return Row(
        key=task.task,
        cells=[
            Cell(text=task.task, value=task.task, href=links.tasks.get(task.task, ""),
                 note=f"{task.type}, {task.metric}"),
            verdict_cell(f"{task.verdict}", note=f"{task.type}, {task.metric}{may}"),
            *(_delta(value) for value in (task.delta, task.low, task.high)),
            *(_p(value) for value in (task.p_regressed, task.p_improved)),
            Cell(text=score_text(task.margin), value=task.margin,
                 note=f"a drop of {score_text(task.max_drop)} is allowed"),
            _score(task.candidate, _first(links.results, task.candidate_keys)),
            _score(task.baseline, _first(links.results, task.baseline_keys)),
            Cell(text=units + runs, value=units + runs if task.units else None),
            Cell(text=said or "–", value=said or None),
        ],
    )  # fmt: skip


def _first(results: Mapping[str, str], keys: Sequence[str]) -> str:
    return next((results[key] for key in keys if key in results), "")


def _delta(value: float | None) -> Cell:
    return Cell(text=delta_text(value), value=value)


def _score(value: float | None, href: str = "") -> Cell:
    return Cell(text=score_text(value), value=value, href=href)


def _p(value: float | None) -> Cell:
    """A p-value with what decides of it.

    >>> _p(0.00004).text, _p(0.0312).text
    ('< 0.001', '0.031')
    """
    if value is None:
        return Cell(text="–")
    return Cell(text="< 0.001" if value < 0.001 else f"{value:.3f}", value=value)


def policy_table(check: Check) -> Table:
    """The policy: every setting."""
    return Table(
        name="policy",
        caption="The policy that decided",
        columns=[Column(key="setting", label="Setting", sticky=True), Column(key="value", label="Value")],
        rows=[
            Row(cells=[Cell(text=name, value=name), Cell(text=words(value), value=words(value))])
            for name, value in check.policy.items()
        ],
    )
