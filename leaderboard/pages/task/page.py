"""The page of a task: what is asked, who answers how well, and how scores are spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from leaderboard.filters import Control, Form, chips, controls, form
from leaderboard.pages.task.chosen import Chosen, Fact, choose, facts
from leaderboard.pages.task.names import task_path
from leaderboard.pages.task.ranks import first_of_models, places
from leaderboard.pages.task.scores import Scored, counts
from leaderboard.pages.task.table import Shown, ranking
from leaderboard.paging import Paging, paging
from leaderboard.plots.distribution_plot import distribution
from leaderboard.plots.shapes import Axis, Distribution, Mark
from leaderboard.queries import Queries
from leaderboard.state import address
from leaderboard.tables import Table

if TYPE_CHECKING:
    from leaderboard.views.task import TaskState

MARKS = 6
"""Entries that are marked in the plot, at most."""

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
        plot: The distribution.
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
    plot: Markup
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
    pinned = [one for one in rows if one.entry.slug in state.pin]
    rest = [one for one in kept if one.entry.slug not in state.pin]
    where = paging(len(rest), state, path)
    shown = Shown(pinned=pinned, rest=rest, first=where.first, last=where.last, ranks=ranks)
    marked = [one for one in pinned if one.value is not None][:MARKS]
    drawn = {one.entry.id: one for one in [*kept, *marked] if one.entry.id in ranks or one in marked}
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
        plot=_plot(task, list(drawn.values()), marked),
        path=path,
        warnings=_warnings(chosen, state),
        data=_data(chosen, state, list(drawn.values())),
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


def _plot(task: str, drawn: Sequence[Scored], marked: Sequence[Scored]) -> Markup:
    return distribution(
        Distribution(
            title=f"Scores on {task}",
            axis=Axis(label="score × 100"),
            values=[100 * one.value for one in drawn if one.value is not None],
            marks=[_mark(one) for one in marked],
        )
    )


def _mark(one: Scored) -> Mark:
    href = address(f"/models/{one.entry.model_slug}")
    return Mark(label=one.entry.model, value=100 * (one.value or 0.0), href=href)


def _data(chosen: Chosen, state: TaskState, drawn: Sequence[Scored]) -> dict[str, Any]:
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
