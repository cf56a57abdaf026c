"""The ranking on a task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
from pydantic import Field

from harness.scores import score_text
from leaderboard.data.queries import Entry, Queries
from leaderboard.data.suites import WHY, Scope
from leaderboard.pages._suite_table import choices_made, kinds_of, leaks, made_of, texts_text
from leaderboard.pages._task_scores import (
    Chosen,
    Fact,
    Found,
    Scored,
    answered,
    asked,
    choose,
    counts,
    facts,
    find_task,
    first_of_models,
    known_tasks,
    most_have,
    places,
    read,
    task_key,
    task_path,
)
from leaderboard.web.charts import Axis, Chart, Distribution, chart
from leaderboard.web.filters import Control, EntryState, Form, chips, controls, form
from leaderboard.web.formats import over_seeds, parameters_text, some_seeds
from leaderboard.web.page import Crumb, Page, PageRoute, missing
from leaderboard.web.parameters import Paging, Text, address, paging
from leaderboard.web.tables import EMPTY, Cell, Column, Row, Table

if TYPE_CHECKING:
    from leaderboard.web.site import Site


GONE = {"failed": "×", "bad": "!", "part": "–", "none": "–"}
"""What a cell without a number prints."""

TRUST_NOTES = {
    "measured": "The weights have a hash: they were measured here.",
    "commit": "The weights are those of one commit.",
    "external": "The number was told by the model's makers; the weights are not pinned.",
    "none": "The source does not say which weights were measured.",
    "other": "The revision is a name, not a commit: the weights behind it may change.",
    "reported": "A paper prints the number.",
}


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Rows of the ranking, of which `first` to `last` are on the page."""

    rest: Sequence[Scored]
    first: int
    last: int
    ranks: Mapping[int, int]


def ranking(shown: Shown, state: TaskState, scope: Scope, path: str) -> Table:
    """The ranking as a table.

    Raises:
        NotFound: The state sorts by a column that is none.
    """
    intervals = any(one.half is not None for one in shown.rest)
    columns = _columns(state, path, intervals=intervals)
    on_page = _ordered(shown, state)[max(shown.first - 1, 0) : shown.last]
    best = sorted({one.value for one in shown.rest if one.entry.id in shown.ranks and one.value is not None})[
        -2:
    ]
    marks = (best[-1], best[0]) if len(best) > 1 else (best[-1] if best else None, None)
    rows = [_row(one, shown, scope, marks) for one in on_page]
    keys = {column.key for column in columns}
    return Table(
        name="ranking",
        caption=f"{scope.task}: scores × 100",
        columns=columns,
        rows=[
            Row(key=row.key, kind=row.kind, cells=[c for k, c in cells.items() if k in keys])
            for row, cells in rows
        ],
        notes=_notes(shown.rest, shown.ranks, scope, intervals=intervals),
    )


HEADS = (
    ("rank", "Rank", True, "Entries that cannot be told apart share a rank."),
    ("model", "Model", False, ""),
    ("score", "Score", True, "The bar behind it begins at 0 and ends at 100."),
    ("interval", "95 %", True, "The interval over seeds and examples, where it is known."),
    ("parameters", "Size", True, "Parameters."),
    ("origin", "Origin", False, "Where the number comes from."),
    ("trust", "Revision", False, "How far it is known which weights were scored."),
    ("data", "Data", False, "Whether the score is on the data that is asked for."),
    ("released", "Released", False, ""),
)
UNSORTED = ("interval", "data", "trust")


def _columns(state: TaskState, path: str, *, intervals: bool) -> list[Column]:
    key, down = state.sort.removeprefix("-"), state.sort.startswith("-")
    return [
        Column(
            key=name, label=label, numeric=numeric, note=note, sticky=name in ("rank", "model"),
            sort="" if name in UNSORTED else f"{path}?{state.query(sort=_wanted(name, state), page=1)}",
            sorted=("descending" if down else "ascending") if name == key else "",
        )
        for name, label, numeric, note in HEADS
        if name != "interval" or intervals
    ]  # fmt: skip


def _wanted(name: str, state: TaskState) -> str:
    """How a click on a heading sorts: names and ranks upwards first, numbers downwards."""
    first = name if name in ("rank", "model", "origin") else f"-{name}"
    turned = first.removeprefix("-") if first.startswith("-") else f"-{first}"
    return turned if state.sort == first else first


def _ordered(shown: Shown, state: TaskState) -> list[Scored]:
    """The rows in order; those without a rank, then those without a value, stand last."""
    key, down = state.sort.removeprefix("-"), state.sort.startswith("-")
    known = [name for name, *_ in HEADS if name not in UNSORTED]
    if key not in known:
        raise missing("column", key, known, then="Click a column's heading to sort by it.")
    rows = sorted(shown.rest, key=lambda one: (-(one.value or 0.0), one.entry.model.casefold()))
    if key in ("score", "rank"):
        there = [one for one in rows if one.entry.id in shown.ranks]
        if down != (key == "score"):
            there.reverse()
        others = [one for one in rows if one.entry.id not in shown.ranks]
        return [*there, *sorted(others, key=lambda one: one.value is None)]
    there = [one for one in rows if getattr(one.entry, key) is not None]
    there.sort(key=lambda one: _sortable(getattr(one.entry, key)), reverse=down)
    return [*there, *(one for one in rows if getattr(one.entry, key) is None)]


def _sortable(value: str | int) -> str | int:
    return value.casefold() if isinstance(value, str) else value


Marks = tuple["float | None", "float | None"]


def _row(one: Scored, shown: Shown, scope: Scope, marks: Marks) -> tuple[Row, dict[str, Cell]]:
    entry, place = one.entry, shown.ranks.get(one.entry.id)
    cells = {
        "rank": Cell(text=str(place), value=place) if place else EMPTY,
        "model": Cell(
            text=entry.model, value=entry.model, href=address(f"/models/{entry.model_slug}"),
            kind=kinds_of(entry), note=made_of(entry) or entry.treatment,
        ),
        "score": _score(one, scope, marks, ranked=place is not None),
        "interval": _interval(one),
        "parameters": Cell(text=parameters_text(entry.parameters), value=entry.parameters),
        "origin": Cell(text=entry.origin, value=entry.origin, kind=entry.origin),
        "trust": _trust(one),
        "data": _data(one, scope),
        "released": Cell(text=entry.released or "", value=entry.released),
    }  # fmt: skip
    return Row(cells=(), key=entry.slug, kind="" if place else "part"), cells


def _score(one: Scored, scope: Scope, marks: Marks, *, ranked: bool) -> Cell:
    href = address(f"/results/{one.result}")
    if one.reason == "seeds":
        return replace(some_seeds(one.seeds or 0, len(one.entry.seeds)), href=href)
    if one.value is None:
        kind = "" if one.reason == "part" else one.reason
        return Cell(text=GONE.get(one.reason, "–"), kind=kind, note=WHY[one.reason], href=href)
    kinds = leaks(one.entry, [scope], one.trained_on)
    kinds += ["other"] if one.reason == "other" else []
    if ranked and one.value in marks:
        kinds.append("best" if one.value == marks[0] else "second")
    notes = [
        *([WHY[one.reason]] if one.reason else []),
        *choices_made(one.entry, [scope]),
        *([texts_text(one.trained_on)] if one.trained_on else []),
    ]
    cell = Cell(
        text=score_text(one.value),
        value=one.value,
        href=href,
        kind=" ".join(kinds),
        note="; ".join(notes),
        width=min(max(one.value, 0.0), 1.0),
    )
    return over_seeds(cell, one.deviation, one.entry.seeds)


def _interval(one: Scored) -> Cell:
    if one.low is None or one.high is None:
        return EMPTY
    text = f"{score_text(one.low)}–{score_text(one.high)}"
    return Cell(text=text, value=f"{one.low} to {one.high}")


def _trust(one: Scored) -> Cell:
    trust = one.entry.trust
    text = trust if trust != "commit" else (one.entry.revision or "")[:10]
    return Cell(text=text, value=trust, note=TRUST_NOTES[trust])


def _data(one: Scored, scope: Scope) -> Cell:
    if one.reason == "other":
        return Cell(text=one.data[:14] or "not proven", value=one.data or "not proven", note=WHY["other"])
    if one.reason in ("failed", "none"):
        return EMPTY
    same = not scope.data or one.data == scope.data
    text = "as asked" if same and scope.data else one.data[:14]
    return Cell(text=text, value=one.data or None, note=one.data)


def _notes(rows: Sequence[Scored], ranks: Mapping[int, int], scope: Scope, *, intervals: bool) -> list[str]:
    """What must be read with the ranks."""
    ranked = [one for one in rows if one.entry.id in ranks]
    unknown = sum(one.half is None for one in ranked)
    found = []
    if ranked and not intervals:
        found.append(
            "No interval is known for these scores: only equal ones share a rank, and a small difference "
            "may be chance."
        )
    elif unknown:
        found.append(
            f"No interval is known for {unknown} of {len(ranked)} scores: those share a rank only where "
            "they are equal. Two with intervals share one where these, put together, cover the difference."
        )
    printed = sum(one.entry.origin == "reported" for one in rows)
    if printed:
        found.append(f"{printed} not ranked: printed in a paper.")
    for reason in ("other", "part", "bad", "failed", "seeds"):
        count = sum(one.reason == reason and one.entry.id not in ranks for one in rows)
        if count:
            found.append(f"{count} not ranked: {WHY[reason]}.")
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Best:
    """The best ranked score of a task."""

    entry: Entry
    value: float


_kept: WeakKeyDictionary[Queries, dict[str, Best | None]] = WeakKeyDictionary()


def best_of(queries: Queries, tasks: Sequence[str]) -> Mapping[str, Best | None]:
    """The best of each of `tasks`; None where nobody is ranked. What was asked once is kept."""
    known = _kept.setdefault(queries, {})
    wanted = [name for name in tasks if name not in known]
    held = [name for name in wanted if name in asked(queries)]
    free = [name for name in wanted if name not in asked(queries)]
    found = {**(_of_suites(queries, held) if held else {}), **(_of_none(queries, free) if free else {})}
    known.update({name: found.get(name) for name in wanted})
    return {name: known[name] for name in tasks}


def _of_suites(queries: Queries, tasks: Iterable[str]) -> dict[str, Best]:
    """Of tasks that a suite asks: the highest number in the index."""
    names = {queries.scope_ids.get(asked(queries)[name][0].scope.form, 0): name for name in tasks}
    best = queries.best_scores(list(names))
    return {
        names[scope]: Best(entry=queries.entries[entry], value=value)
        for scope, (entry, value) in best.items()
    }


def _of_none(queries: Queries, tasks: Sequence[str]) -> dict[str, Best]:
    """Of tasks that no suite asks: the highest number of those that answer what most entries have."""
    results = sorted(read(queries, tasks), key=lambda one: (one.task, one.result))
    found = {}
    for name, some in groupby(results, key=lambda one: one.task):
        best = _best(queries, name, list(some))
        if best:
            found[name] = best
    return found


def _best(queries: Queries, task: str, results: Sequence[Found]) -> Best | None:
    rows = answered(queries, most_have(task, results).scope, results)
    ranked = [(one.value, one.entry) for one in rows if one.value is not None and counts(one)]
    value, entry = max(ranked, key=lambda pair: pair[0], default=(None, None))
    return None if value is None or entry is None else Best(entry=entry, value=value)


"""State that the form keeps."""


@dataclass(frozen=True, kw_only=True)
class TaskPage:
    """What the template of a task takes.

    Attributes:
        facts: Name and value, with a URL or a note.
        holders: Suites that hold the task: title, URL, what they ask.
        table: The ranking.
        lead: What is there, in a sentence.
        form: The form above it, with the filters in force.
        paging: Where in the rows this page is.
        chart: The distribution.
        path: The page's own path.
        warnings: What must be read with it.
        data: For the JSON twin.
    """

    facts: Sequence[Fact]
    holders: Sequence[tuple[str, str, str]]
    table: Table
    lead: str
    form: Form
    paging: Paging
    chart: Chart
    path: str
    warnings: Sequence[str]
    data: Mapping[str, Any]


def task_page(queries: Queries, state: TaskState, task: str) -> TaskPage:
    """The page of a task in a state.

    Raises:
        NotFound: The state names a question, a subset or a column that is none.
    """
    chosen, path = choose(queries, state, task), task_path(task)
    loose = state.revisions == "any"
    rows = chosen.rows
    population = first_of_models(rows, any_revision=loose) if state.each == "model" else list(rows)
    ranks = places([one for one in population if counts(one, any_revision=loose)])
    kept = [one for one in population if state.keeps(one.entry)]
    where = paging(len(kept), state, path)
    shown = Shown(rest=kept, first=where.first, last=where.last, ranks=ranks)
    drawn = {one.entry.id: one for one in kept if one.entry.id in ranks}
    return TaskPage(
        facts=facts(queries, chosen),
        holders=chosen.holders,
        table=ranking(shown, state, chosen.scope, path),
        lead=_lead(population, len(ranks), state),
        form=form(
            state,
            path,
            [*_first(chosen, state), *controls(state, [one.entry for one in rows]), *_more(state)],
            chips=_chips(state, path),
        ),
        paging=where,
        chart=_chart(list(drawn.values())),
        path=path,
        warnings=_warnings(chosen, state),
        data=_page_data(chosen, state, list(drawn.values())),
    )


def _lead(population: Sequence[Scored], ranked: int, state: TaskState) -> str:
    what = "models" if state.each == "model" else "entries"
    if not population:
        return "No entry has a result on this task yet."
    subset = f", on its subset {state.subset}" if state.subset else ""
    return f"{ranked} of {len(population)} {what} with a result on it are ranked{subset}."


def _first(chosen: Chosen, state: TaskState) -> list[Control]:
    """The choice of the question and of the subset, which stand first."""
    found = []
    if len(chosen.questions) > 1:
        options = [(one.name, one.label) for one in chosen.questions]
        found.append(_select("scope", "As asked by", chosen.question.name, options))
    if len(chosen.subsets) > 1:
        names = chosen.question.scope.subsets
        whole = f"all {len(names)} that are asked for" if len(names) > 1 else f"as asked: {names[0]}"
        found.append(
            _select("subset", "Subset", state.subset, [("", whole), *((n, n) for n in chosen.subsets)])
        )
    return found


REVISIONS = (("pinned", "the pinned one"), ("any", "any (not comparable)"))
EACH = (("model", "each model"), ("entry", "each revision and treatment"))


def _more(state: TaskState) -> list[Control]:
    return [
        _select("revisions", "Data revisions", state.revisions, REVISIONS, more=True),
        _select("each", "A row for", state.each, EACH, more=True),
    ]


def _select(
    name: str, label: str, value: str, options: Sequence[tuple[str, str]], *, more: bool = False
) -> Control:
    return Control(kind="select", name=name, label=label, value=value, options=options, more=more)


def _chips(state: TaskState, path: str) -> list[tuple[str, str]]:
    found = chips(state, path)
    if state.subset:
        found.append((f"subset {state.subset}", f"{path}?{state.query(subset='', page=1)}"))
    if state.revisions == "any":
        found.append(("any data revision", f"{path}?{state.query(revisions='pinned', page=1)}"))
    return found


def _warnings(chosen: Chosen, state: TaskState) -> list[str]:
    found = []
    if state.revisions == "any":
        found.append(
            "Scores on other revisions of the data count here: models may have been scored on other texts."
        )
    if not chosen.question.holders and chosen.rows:
        found.append(
            "No suite of this site asks for this task. Ranked are the entries that have the splits, the "
            "subsets and the data revision that most have."
        )
    return found


def _chart(drawn: Sequence[Scored]) -> Chart:
    return chart(
        "spread",
        "Models by their score",
        Distribution(
            axis=Axis(label="score × 100"),
            values=[100 * one.value for one in drawn if one.value is not None],
        ),
    )


def _page_data(chosen: Chosen, state: TaskState, drawn: Sequence[Scored]) -> dict[str, Any]:
    scope = chosen.scope
    values = sorted(one.value for one in drawn if one.value is not None)
    return {
        "task": chosen.task,
        "scope": chosen.question.name,
        "subset": state.subset or None,
        "splits": list(scope.splits),
        "subsets": list(scope.subsets),
        "data": scope.data or None,
        "view": scope.view or None,
        "revisions": state.revisions,
        "scopes": [{"name": one.name, "says": one.label} for one in chosen.questions],
        "suites": [{"path": path, "title": title, "asks": asks} for title, path, asks in chosen.holders],
        "scores": values,
        "quartiles": [float(q) for q in np.quantile(values, (0.25, 0.5, 0.75))] if values else None,
    }


class TaskState(EntryState):
    """What the page of a task can be asked."""

    scope: Text = Field(
        "",
        description="Whose question: a suite's name in URLs, with `:` and a convention where it has some. "
        "Suites may ask a task for other splits or subsets.",
    )
    subset: Text = Field("", description="Only this subset.")
    revisions: Literal["pinned", "any"] = Field(
        "pinned", description="Whether scores on other revisions of the data are ranked (any)."
    )
    each: Literal["model", "entry"] = Field(
        "model", description="One row for each model, or for each revision and treatment."
    )
    sort: Text = Field("-score", description="A column's key; with - in front the highest first.")
    rows: Literal["25", "50", "100", "250", "all"] = Field("100", description="Rows on a page.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of rows.")


def view(site: Site, state: TaskState, task: str) -> Page:
    """The page of a task."""
    name = find_task(task, known_tasks(site.queries))
    found: TaskPage = task_page(site.queries, state, name)
    return Page(
        title=name,
        template="task.html",
        lead=found.lead,
        charts=[found.chart],
        crumbs=[Crumb(label="Tasks", href="/tasks")],
        tables=[found.table],
        data=found.data,
        context=found,
        notes=found.warnings,
    )


def all_paths(site: Site) -> Iterable[str]:
    """The page of every task that has a result or is held by a suite."""
    return [f"/tasks/{task_key(name)}" for name in known_tasks(site.queries)]


PAGE = PageRoute(
    path="/tasks/{task}",
    state=TaskState,
    view=view,
    summary="A task: ranking of all entries, and the distribution of their scores.",
    all_paths=all_paths,
)

PAGES = (PAGE,)
