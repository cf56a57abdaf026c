"""How verdicts look: colours, signs, and a row of small marks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from harness.checks.outcome import VERDICTS, Check, MeanOutcome, Party, TaskOutcome
from harness.scores import delta_text, score_text
from leaderboard.data.checks import OVERALL, CheckSummary
from leaderboard.data.queries import Entry, Queries
from leaderboard.data.suites import slug
from leaderboard.pages._task_scores import known_tasks, task_path
from leaderboard.pages._training import words
from leaderboard.web.page import missing
from leaderboard.web.parameters import address
from leaderboard.web.tables import Cell, Column, Row, Table

if TYPE_CHECKING:
    from leaderboard.pages.check import CheckState


KINDS = {
    "regressed": "regressed", "improved": "improved", "inconclusive": "unsure", "missing": "unsure",
    "not testable": "away",
}  # fmt: skip
"""The kind of a verdict's cell; `equivalent` is as any other."""

SIGNS = {"regressed": "▼", "inconclusive": "?", "improved": "▲", "equivalent": "="}
TAGS = {"regressed": "bad", "inconclusive": "warn", "improved": "good", "equivalent": "good"}
"""Of a whole check: the sign of its mark, and the tone of its tag."""

TONES = {"regressed": "bad", "inconclusive": "warn", "improved": "good", "equivalent": "series-1"}
assert tuple(TONES) == OVERALL


def verdict_cell(verdict: str, *, note: str = "") -> Cell:
    """The cell of a verdict."""
    return Cell(text=verdict, value=verdict, kind=KINDS.get(verdict, ""), note=note)


def moment_cell(when: str, *, href: str = "") -> Cell:
    """The cell of a time, to the minute."""
    return Cell(text=when_text(when), value=when or None, href=href, note=when)


def when_text(when: str) -> str:
    """An ISO time as pages print it.

    >>> when_text("2026-01-02T03:04:05+00:00"), when_text("")
    ('2026-01-02 03:04', '–')
    """
    return when[:16].replace("T", " ") or "–"


def marks_cell(checks: Sequence[CheckSummary]) -> Cell:
    """The results of some checks as small marks, the oldest first."""
    parts = [
        Cell(
            text=SIGNS[one.overall],
            kind=KINDS.get(one.overall, ""),
            note=f"{when_text(one.when)} {one.candidate}: {one.overall}",
        )
        for one in checks
    ]
    return Cell(
        text=" ".join(SIGNS[one.overall] for one in checks),
        value=", ".join(one.overall for one in checks),
        note=said(checks),
        parts=parts,
    )


def said(checks: Sequence[CheckSummary]) -> str:
    """Verdicts in words, the oldest first: `equivalent 3 times, then regressed`."""
    runs = [(verdict, len(list(some))) for verdict, some in groupby(checks, key=lambda one: one.overall)]
    return ", then ".join(verdict if n == 1 else f"{verdict} {n} times" for verdict, n in runs)


@dataclass(frozen=True, kw_only=True)
class Links:
    """Where the parts of a check lead; a name that is missing leads nowhere.

    Attributes:
        compare: The page that puts both models side by side; empty where there is none.
        why: Why there is none, in a sentence.
        models: The pages of the candidate and of the baseline, empty where there is none.
        suites: By a suite's name.
        tasks: By a task's name.
        results: By an EvaluationKey.
    """

    compare: str
    why: str
    models: tuple[str, str]
    suites: Mapping[str, str]
    tasks: Mapping[str, str]
    results: Mapping[str, str]


def links_of(queries: Queries, check: Check) -> Links:
    """Where the parts of a check lead."""
    candidates, baselines = (_entries(queries, party) for party in (check.candidate, check.baseline))
    pair = _pair(candidates, baselines, check.recipe)
    suites = {name: found for name in check.suites if (found := suite_slug(queries, name))}
    known = known_tasks(queries)
    keys = [key for task in check.tasks for key in (*task.candidate_keys, *task.baseline_keys)]
    return Links(
        compare=_compare(pair, list(suites.values())),
        why=_why(candidates, baselines, pair),
        models=(_model(candidates, pair, 0), _model(baselines, pair, 1)),
        suites={name: address(f"/suites/{found}") for name, found in suites.items()},
        tasks={task.task: task_path(task.task) for task in check.tasks if task.task in known},
        results=_results(queries, keys),
    )


def suite_slug(queries: Queries, name: str) -> str:
    """The name in URLs of a suite as it calls itself, or as it was typed; empty where it has no page."""
    if slug(name) in queries.suites:
        return slug(name)
    return next((one.slug for one in queries.suites.values() if name in (one.suite.name, one.typed)), "")


def _entries(queries: Queries, party: Party) -> list[Entry]:
    """The entries of one side, by its ArtifactKeys."""
    return [entry for entry in queries.entries.values() if entry.artifact in party.artifacts]


def _pair(candidates: Sequence[Entry], baselines: Sequence[Entry], recipe: str) -> tuple[Entry, Entry] | None:
    """An entry of each side: treated alike if there are such, as the check has it, with the most tasks."""

    def order(pair: tuple[Entry, Entry]) -> tuple[bool, bool, int]:
        one, other = pair
        return one.treatment == other.treatment, (one.recipe or "") == recipe, one.tasks + other.tasks

    return max(((one, other) for one in candidates for other in baselines), key=order, default=None)


def _compare(pair: tuple[Entry, Entry] | None, suites: Sequence[str]) -> str:
    if pair is None or pair[0] is pair[1]:
        return ""
    names = [pair[1].slug, pair[0].slug]
    return address("/compare", {"m": names, **({"suite": suites[0]} if suites else {})})


def _why(candidates: Sequence[Entry], baselines: Sequence[Entry], pair: tuple[Entry, Entry] | None) -> str:
    if pair is not None:
        return "Both are one model here: the files are the same." if pair[0] is pair[1] else ""
    lacking = [name for name, some in (("candidate", candidates), ("baseline", baselines)) if not some]
    return (
        f"The records of the {' and the '.join(lacking)} are not on this site, so they cannot be put side by "
        "side here. `harness push` sends them."
    )


def _model(entries: Sequence[Entry], pair: tuple[Entry, Entry] | None, side: int) -> str:
    entry = pair[side] if pair is not None else next(iter(entries), None)
    return "" if entry is None else address(f"/models/{entry.model_slug}", {"entry": entry.slug})


def _results(queries: Queries, keys: Iterable[str]) -> dict[str, str]:
    wanted = list(dict.fromkeys(keys))
    found = [row for at in range(0, len(wanted), 500) for row in queries.results(key=wanted[at : at + 500])]
    return {row.key: f"/results/{row.id}" for row in found if row.key}


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


SHOWN = 10


def judged_table(queries: Queries, entries: Sequence[Entry]) -> Table | None:
    """The newest checks of a model's entries as candidates; None where there are none."""
    artifacts = dict.fromkeys(entry.artifact for entry in entries if entry.artifact)
    found = {check.name: check for key in artifacts for check in queries.checks_of.get(key, ())}
    newest = sorted(found.values(), key=lambda check: check.when, reverse=True)[:SHOWN]
    if not newest:
        return None
    return Table(
        name="checks",
        caption=f"It was checked {_times(len(found))}" + (f"; the newest {SHOWN}" * (len(found) > SHOWN)),
        columns=[
            Column(key="name", label="Against", sticky=True),
            Column(key="suites", label="Suites"),
            Column(key="when", label="When"),
            Column(key="verdict", label="Verdict"),
            Column(key="delta", label="Difference of the mean", numeric=True),
        ],
        rows=[
            Row(
                key=check.name,
                cells=[
                    Cell(text=check.baseline, value=check.baseline, href=address(f"/check/{check.name}")),
                    Cell(text=", ".join(check.suites), value=", ".join(check.suites)),
                    moment_cell(check.when),
                    verdict_cell(check.overall),
                    _of_model_delta(check.means[0].delta if check.means else None),
                ],
            )
            for check in newest
        ],
    )


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"


def _of_model_delta(value: float | None) -> Cell:
    return Cell(text=delta_text(value), value=value)
