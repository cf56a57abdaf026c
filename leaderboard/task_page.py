"""The page of a task: what is asked, who answers how well, and how scores are spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from leaderboard.filters import Control, chips, controls
from leaderboard.page import missing
from leaderboard.paging import Paging, paging
from leaderboard.plots import Axis, Distribution, Mark, distribution
from leaderboard.queries import Queries
from leaderboard.scopes import Scope
from leaderboard.state import address
from leaderboard.tables import Table
from leaderboard.task_names import task_path
from leaderboard.task_questions import Question, asked, listing
from leaderboard.task_ranks import first_of_models, places
from leaderboard.task_scores import Scored, answered, counts, most_have, read, stored
from leaderboard.task_table import Shown, ranking

if TYPE_CHECKING:
    from leaderboard.views.task import TaskState

MARKS = 6
"""Entries that are marked in the plot, at most."""


@dataclass(frozen=True, kw_only=True)
class TaskPage:
    """What the template of a task takes.

    Attributes:
        facts: Name and value, with a URL or a note.
        holders: Suites that hold the task: title, URL, what they ask.
        table: The ranking.
        lead: What is there, in a sentence.
        controls: The form.
        hidden: State that the form keeps.
        chips: Filters in force.
        paging: Where in the rows this page is.
        plot: The distribution.
        path: The page's own path.
        warnings: What must be read with it.
        data: For the JSON twin.
    """

    facts: Sequence[tuple[str, ...]]
    holders: Sequence[tuple[str, str, str]]
    table: Table
    lead: str
    controls: Sequence[Control]
    hidden: Sequence[tuple[str, str]]
    chips: Sequence[tuple[str, str]]
    paging: Paging
    plot: Markup
    path: str
    warnings: Sequence[str]
    data: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Asked:
    """A task with the question that was chosen, and everybody's answer."""

    task: str
    questions: Sequence[Question]
    question: Question
    scope: Scope
    subsets: Sequence[str]
    rows: Sequence[Scored]


def task_page(queries: Queries, state: TaskState, task: str) -> TaskPage:
    """The page of a task in a state.

    Raises:
        NotFound: The state names a question, a subset or a column that is none.
    """
    chosen = _asked(queries, state, task)
    path = task_path(task)
    loose = state.revisions == "any"
    rows = chosen.rows
    population = first_of_models(rows, any_revision=loose) if state.each == "model" else list(rows)
    ranks = places([one for one in population if counts(one, any_revision=loose)])
    kept = [one for one in population if state.keeps(one.entry)]
    pinned = [one for one in rows if one.entry.slug in state.pin]
    rest = [one for one in kept if one.entry.slug not in state.pin]
    where = paging(len(rest), state, path)
    shown = Shown(pinned=pinned, rest=rest, first=where.first, last=where.last, ranks=ranks)
    ranked = [one for one in kept if one.entry.id in ranks]
    return TaskPage(
        facts=_facts(queries, chosen),
        holders=_holders(chosen),
        table=ranking(shown, state, chosen.scope, task, path),
        lead=_lead(chosen, population, len(ranks), state),
        controls=[*_more(chosen, state), *controls(state, [one.entry for one in rows]), *_choices(state)],
        hidden=[(n, v) for n, v in state.pairs(page=1) if n in ("sort", "pin", "theme", "density", "rows")],
        chips=_chips(state, path),
        paging=where,
        plot=_plot(task, ranked, pinned),
        path=path,
        warnings=_warnings(chosen, state),
        data=_data(chosen, state, population, ranks),
    )


def _asked(queries: Queries, state: TaskState, task: str) -> _Asked:
    questions = asked(queries).get(task, [])
    results = read(queries, [task]) if state.subset or not questions else []
    questions = questions or [most_have(task, results)]
    question = _question(questions, state.scope)
    subsets = sorted({subset for one in questions for subset in one.scope.subsets})
    if state.subset and state.subset not in subsets:
        raise missing("subset", state.subset, subsets, then="The task's page offers those there are.")
    scope = question.scope
    if state.subset:
        splits, data = scope.splits, scope.data
        scope = Scope(task=task, splits=splits, subsets=(state.subset,), data=data)
    plain = not state.subset or scope == question.scope
    rows = stored(queries, question) if plain and question.holders else answered(queries, scope, results)
    return _Asked(task=task, questions=questions, question=question, scope=scope, subsets=subsets, rows=rows)


def _question(questions: Sequence[Question], name: str) -> Question:
    """The question of this name; any suite that asks it names it as well."""
    if not name:
        return questions[0]
    slug, _, view = name.partition(":")
    for one in questions:
        named = one.name == name or (slug in [s.slug for s in one.holders] and view in ("", one.scope.view))
        if named:
            return one
    raise missing(
        "scope", name, [one.name for one in questions], then="The task's page offers those there are."
    )


def _facts(queries: Queries, chosen: _Asked) -> list[tuple[str, ...]]:
    kind, metric, results = queries.tasks.get(chosen.task, ("", "", 0))
    task = chosen.question.task
    facts: list[tuple[str, ...]] = [
        ("Type", (task.type if task else kind) or "not known"),
        ("Metric", _metric(chosen, metric)),
        ("Data set", (task.data.path if task else "") or ("local or built" if task else "not known")),
        ("Data revision", *_revision(chosen)),
        ("Splits", ", ".join(chosen.scope.splits) or "none"),
        ("Subsets", *_subsets(chosen)),
        ("Results", str(results), "", "of all entries, whatever they were asked"),
    ]
    return facts


def _metric(chosen: _Asked, metric: str) -> str:
    task, view = chosen.question.task, chosen.scope.view
    name = (task.metric if task else metric) or "not known"
    return f"what {view} prints of it" if view else name


def _revision(chosen: _Asked) -> tuple[str, str, str]:
    if not chosen.scope.data:
        return "none", "", "nothing pins the data"
    why = (
        "pinned by the suite" if chosen.question.holders else "no suite pins it: that which most entries have"
    )
    return chosen.scope.data, "", why


def _subsets(chosen: _Asked) -> tuple[str, str, str]:
    names = chosen.scope.subsets
    return listing(names, "subset").removeprefix("subset ").removeprefix("subsets "), "", (
        "the score is the mean over all" if len(names) > 1 else ""
    )  # fmt: skip


def _holders(chosen: _Asked) -> list[tuple[str, str, str]]:
    found = {}
    for question in chosen.questions:
        for one in question.holders:
            found.setdefault(one.slug, (one.suite.title, address(f"/suites/{one.slug}"), question.scope_text))
    return list(found.values())


def _lead(chosen: _Asked, population: Sequence[Scored], ranked: int, state: TaskState) -> str:
    what = "models" if state.each == "model" else "entries"
    if not population:
        return "No entry has a result on this task yet."
    subset = f" on subset {state.subset}" if state.subset else ""
    return f"{ranked} of {len(population)} {what} with a result on it are ranked{subset}."


def _more(chosen: _Asked, state: TaskState) -> list[Control]:
    """The choice of the question and of the subset, which stand first."""
    found = []
    if len(chosen.questions) > 1:
        options = [(one.name, one.label) for one in chosen.questions]
        found.append(
            Control(
                kind="select", name="scope", label="As asked by", value=chosen.question.name, options=options
            )
        )
    if len(chosen.subsets) > 1:
        names = chosen.question.scope.subsets
        whole = f"all {len(names)} that are asked for" if len(names) > 1 else f"as asked: {names[0]}"
        options = [("", whole), *((name, name) for name in chosen.subsets)]
        found.append(
            Control(kind="select", name="subset", label="Subset", value=state.subset, options=options)
        )
    return found


REVISIONS = (("pinned", "the pinned one"), ("any", "any (not comparable)"))
EACH = (("model", "each model"), ("entry", "each revision and treatment"))


def _choices(state: TaskState) -> list[Control]:
    return [
        Control(kind="select", name="revisions", label="Data revisions", value=state.revisions,
                options=REVISIONS, more=True),
        Control(kind="select", name="each", label="A row for", value=state.each, options=EACH, more=True),
    ]  # fmt: skip


def _chips(state: TaskState, path: str) -> list[tuple[str, str]]:
    found = chips(state, path)
    if state.subset:
        found.append((f"subset {state.subset}", f"{path}?{state.query(subset='', page=1)}"))
    if state.revisions == "any":
        found.append(("any data revision", f"{path}?{state.query(revisions='pinned', page=1)}"))
    return found


def _warnings(chosen: _Asked, state: TaskState) -> list[str]:
    found = []
    if state.revisions == "any":
        found.append(
            "Scores on other revisions of the data count here: models may have been scored on other texts."
        )
    if not chosen.question.holders and chosen.rows:
        found.append(
            "No suite of this site asks for this task: ranked are entries with the splits, subsets and data "
            "revision that most have."
        )
    return found


def _plot(task: str, ranked: Sequence[Scored], pinned: Sequence[Scored]) -> Markup:
    marked = [one for one in pinned if one.value is not None][:MARKS]
    known = {one.entry.id: one for one in [*ranked, *marked]}
    return distribution(
        Distribution(
            title=f"Scores on {task}",
            axis=Axis(label="Score × 100"),
            values=[100 * one.value for one in known.values() if one.value is not None],
            marks=[
                Mark(
                    label=one.entry.model,
                    value=100 * one.value,
                    href=address(f"/models/{one.entry.model_slug}"),
                )
                for one in marked
                if one.value is not None
            ],
        )
    )


def _data(
    chosen: _Asked, state: TaskState, population: Sequence[Scored], ranks: Mapping[int, int]
) -> dict[str, Any]:
    values = sorted(one.value for one in population if one.entry.id in ranks and one.value is not None)
    return {
        "task": chosen.task,
        "scope": chosen.question.name,
        "subset": state.subset or None,
        "splits": list(chosen.scope.splits),
        "subsets": list(chosen.scope.subsets),
        "data": chosen.scope.data or None,
        "view": chosen.scope.view or None,
        "revisions": state.revisions,
        "suites": [
            {"suite": url.rpartition("/")[2], "title": t, "asks": a} for t, url, a in _holders(chosen)
        ],
        "facts": {fact[0]: fact[1] for fact in []},
        "scores": values,
    }
