"""The page of a suite: its ranking, a chart of score against size, and what the suite is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from leaderboard.data.descriptions import Description, describe_suite, describe_task
from leaderboard.data.suites import REASONS, SiteSuite, views
from leaderboard.pages._suite_table import SuiteState, SuiteTable, size_chart, tasks_text, untouched_note
from leaderboard.pages._task_scores import column_path
from leaderboard.web.filters import Control, Form, chips, controls, form
from leaderboard.web.page import Crumb, Page, PageRoute, missing
from leaderboard.web.parameters import Paging, paging
from leaderboard.web.tables import Cell, Column, Row, Table

if TYPE_CHECKING:
    from leaderboard.web.site import Site

ZERO = (("", "any share"), ("most", "over 50 %"), ("all", "100 %"))

GROUPS = (("", "nothing"), ("backbone", "backbone"), ("recipe", "recipe"), ("organisation", "organisation"))

EACH = (("model", "each model"), ("revision", "each revision and treatment"))

FILTERS = (
    "q", "size", "view", "origin", "zero", "licence", "language", "tokens", "recipe", "backbone", "group",
    "each", "open", "instructions",
)  # fmt: skip
"""The filters above the table, in order; the others are parameters alone."""

CHIPS = {
    "zero": "zero-shot on {}", "type": "only {}", "revisions": "pinned data only", "licence": "licence {}",
    "instructions": "instruction-tuned", "language": "for {}",
}  # fmt: skip
"""The filters of a suite's page that are in force, as texts."""


@dataclass(frozen=True, kw_only=True)
class SuitePage:
    """The parts of a suite's page beside its tables and its chart.

    Attributes:
        data: The switch between all scores and those on pinned data: label, URL, current.
        ranking: The switch between ways to rank, likewise.
        unfold: The URL that shows every task, or folds all; empty where nothing folds.
        unfolded: Whether every task is shown.
        form: The filters.
        paging: The rows that are shown.
        path: The page's own path.
        about: The description of the suite.
        typed: Its name on the command line.
        tasks: Its tasks.
    """

    data: Sequence[tuple[str, str, bool]]
    ranking: Sequence[tuple[str, str, bool]]
    unfold: str
    unfolded: bool
    form: Form
    paging: Paging
    path: str
    about: Description
    typed: str
    tasks: Table


def view(site: Site, state: SuiteState, suite: str) -> Page:
    """The page of a suite."""
    queries = site.queries
    if suite not in queries.suites:
        raise missing("suite", suite, queries.suites, then="The page /suites lists all.")
    listed, path = queries.suites[suite], f"/suites/{suite}"
    known = views(listed.suite)
    if state.view and state.view not in known:
        raise missing("view", state.view, known, then="The suite's page offers those there are.")
    scores = queries.suite_scores(
        listed, state.view or known[0], pinned=state.revisions == "pinned", revisions=state.each == "revision"
    )
    table = SuiteTable(scores=scores, state=state, path=path, cards=queries.cards, entries=queries.entries)
    where = paging(len(table.ordered), state, path)
    rows = table.ordered[where.first - 1 : where.last] if table.ordered else []
    title = listed.suite.title
    every = "all" in state.tasks
    return Page(
        title=title,
        template="suite.html",
        lead=_lead(table),
        crumbs=[Crumb(label="Boards", href="/suites")],
        tables=[
            Table(
                name="suite", caption=f"{title}: scores × 100", columns=table.heads(),
                rows=list(table.body(rows)), notes=_notes(table), cards=True,
            )
        ],
        charts=[size_chart(table)],
        data=_data(table),
        notes=listed.suite.notes,
        context=SuitePage(
            data=_data_switch(table),
            ranking=_rankings(table),
            unfold=f"{path}?{state.query(tasks=[] if every else ['all'])}" if table.folds else "",
            unfolded=every,
            form=_form(table),
            paging=where,
            path=path,
            about=describe_suite(listed.typed, listed.suite.title),
            typed=listed.typed,
            tasks=_tasks(listed),
        ),
    )  # fmt: skip


def _data_switch(table: SuiteTable) -> list[tuple[str, str, bool]]:
    """The switch between all scores and those on pinned data; none where all are."""
    state, other = table.state, (table.scores.reasons == REASONS.index("other")).any()
    labels = {"any": "All scores", "pinned": "Pinned data only"} if other else {}
    return [
        (label, f"{table.path}?{state.query(revisions=value, page=1)}", state.revisions == value)
        for value, label in labels.items()
    ]


def _rankings(table: SuiteTable) -> list[tuple[str, str, bool]]:
    """The ways to rank: label, URL, current."""
    labels = {"tasks": "Mean over tasks"}
    if len(table.scores.by_type) > 1:
        labels["types"] = "Mean over types"
    if table.untouched is not None:
        labels["untouched"] = f"Mean over the {table.untouched.part.count} untouched"
    state, borda = table.state, table.ranking == "borda"
    means = [
        (label, state.query(mean=mean, rank="mean", sort="-mean", page=1), not borda and table.mean == mean)
        for mean, label in labels.items()
    ]
    queries = [*means, ("Borda points", state.query(rank="borda", sort="-mean", page=1), borda)]
    return [(label, f"{table.path}?{query}", current) for label, query, current in queries]


def _form(table: SuiteTable) -> Form:
    """The filters; choices that no model has are not offered."""
    state, scores, path = table.state, table.scores, table.path
    cards = [table.card(row) for row in range(len(scores.entries))]
    licences = Counter(card.licence for card in cards if card.licence)
    languages = Counter(code for card in cards for code in card.languages)
    conventions = [(name, f"as in {name}") for name in views(scores.site_suite.suite)]
    selects: dict[str, tuple[str, Sequence[tuple[str, str]]]] = {
        "zero": ("Zero-shot", ZERO if np.isfinite(scores.zero_shot).any() else ()),
        "licence": ("Licence", _choices(licences, state.licence)),
        "language": ("Language", _choices(languages, state.language)),
        "view": ("Convention", conventions),
        "group": ("Group by", GROUPS),
        "each": ("A row for", EACH),
    }
    own = [
        Control(kind="select", name=name, label=label, options=options,
                value=scores.convention if name == "view" else getattr(state, name))
        for name, (label, options) in selects.items() if len(options) > 1
    ]  # fmt: skip
    if any(card.instructions for card in cards):
        own.append(
            Control(kind="check", name="instructions", label="Instruction-tuned", checked=state.instructions)
        )
    known = {control.name: control for control in [*controls(state, scores.entries), *own]}
    return form(
        state,
        path,
        [replace(known[name], more=False) for name in FILTERS if name in known],
        chips=_chips(state, path),
        reset=path if state.pairs() else "",
    )


def _choices(counts: Counter[str], current: str) -> list[tuple[str, str]]:
    """The 40 most frequent values as options; none where there is no value."""
    names = sorted({name for name, _ in counts.most_common(40)} | {current} - {""})
    return [("", "any"), *((name, name) for name in names)] if names else []


def _chips(state: SuiteState, path: str) -> list[tuple[str, str]]:
    """The filters in force, each with the URL without it."""
    texts = {"all": "every task", "most": "over half of the tasks"}
    found = chips(state, path)
    for name, label in CHIPS.items():
        default, value = type(state).model_fields[name].get_default(), getattr(state, name)
        if value != default:
            url = f"{path}?{state.query(**{name: default, 'page': 1})}"
            found.append((label.format(texts.get(value, value)), url))
    return found


def _lead(table: SuiteTable) -> str:
    """How many entries there are, and how many are ranked."""
    ranked, count = _counts(table)
    what = "model" if table.state.each == "model" else "revision"
    printed = sum(entry.origin == "reported" for entry in table.scores.entries)
    tasks = tasks_text(len(table.scores.site_suite.suite.columns))
    more = f" {printed} rows are printed in papers." if printed else ""
    if not count:
        return f"No {what} has a score yet.{more}"
    tasks = f"all {tasks}" if tasks[0].isdigit() else tasks
    return f"{ranked} of {count} {what}s have scores on {tasks} and are ranked.{more}"


def _counts(table: SuiteTable) -> tuple[int, int]:
    """How many entries are ranked, and how many have any score, whatever the filters."""
    scores = table.scores
    rows = np.array([entry.origin != "reported" for entry in scores.entries], bool)
    rows &= scores.first if table.state.each == "model" else True
    return int((scores.over_tasks.complete & rows).sum()), int(rows.sum())


def _notes(table: SuiteTable) -> list[str]:
    scores, notes = table.scores, []
    places = table.ranks.place[table.ranks.place > 0]
    if len(set(places.tolist())) < len(places):
        notes.append("Models that cannot be told apart from the first of their group share its rank.")
    if other := int((scores.reasons == REASONS.index("other")).sum()):
        count = "in no mean" if scores.pinned else "counted; a cell's note names both revisions"
        notes.append(f"{other:,} scores are not on the pinned revision of their data (‡): {count}.")
    if bad := int((scores.reasons == REASONS.index("bad")).sum()):
        notes.append(f"{bad} impossible values (above 1, below −1, or no number) are in no mean.")
    if any(entry.origin == "reported" for entry in scores.entries):
        notes.append(
            "Rows of papers have no rank: each paper has a treatment of its own. Their means are made of the "
            "printed numbers."
        )
    if table.untouched is not None:
        what = "the untouched" if table.mean == "untouched" else table.mean
        notes.append(f"{untouched_note(table.untouched)} Ranks are by the mean over {what}.")
    elif scores.selected[table.rows].any():
        notes.append("Models of this table were selected by scores on every task: none is untouched.")
    return notes


def _tasks(listed: SiteSuite) -> Table:
    """The tasks of a suite, each with its metric, languages, data and description."""
    labels = ("Task", "Type", "Metric", "Languages", "Data", "Description")
    rows = []
    for column in listed.suite.columns:
        about = describe_task(column.tasks[0].name)
        texts = [
            column.type,
            ", ".join(dict.fromkeys(task.metric for task in column.tasks)),
            _languages(about.languages),
            ", ".join(dict.fromkeys((t.data.revision or t.data.content)[:7] for t in column.tasks)),
            about.text,
        ]
        head = Cell(text=column.name, value=column.name, href=column_path(listed, column))
        rows.append(Row(cells=[head, *(Cell(text=text, value=text) for text in texts)]))
    columns = [Column(key=label.lower(), label=label) for label in labels]
    return Table(name="tasks", caption="Tasks of this suite", columns=columns, rows=rows)


def _languages(codes: Sequence[str], most: int = 6) -> str:
    """Codes of languages, or how many there are.

    >>> _languages(["deu", "eng"]), _languages(["x"] * 9)
    ('deu, eng', '9 languages')
    """
    return f"{len(codes)} languages" if len(codes) > most else ", ".join(codes)


def _data(table: SuiteTable) -> dict[str, Any]:
    scores, suite = table.scores, table.scores.site_suite.suite
    ranked, count = _counts(table)
    part = table.untouched.part if table.untouched else None
    return {
        "suite": suite.name,
        "typed": scores.site_suite.typed,
        "view": scores.convention or None,
        "revisions": table.state.revisions,
        "rows_seen": count,
        "rows_complete": ranked,
        "untouched": {"columns": part.count, "left_out": list(part.selected)} if part else None,
        "columns": [
            {
                "name": column.name,
                "type": column.type,
                "tasks": [
                    {
                        "name": task.name, "metric": task.metric, "splits": list(task.splits),
                        "data": task.data.revision or task.data.content,
                    }
                    for task in column.tasks
                ],
            }
            for column in suite.columns
        ],
    }  # fmt: skip


def _paths(site: Site) -> Iterable[str]:
    return [f"/suites/{slug}" for slug in site.queries.suites]


PAGES = (
    PageRoute(
        path="/suites/{suite}",
        state=SuiteState,
        view=view,
        summary="A suite: models x tasks, both means, Borda points, completeness, and ranks with ties.",
        all_paths=_paths,
        formats=("json", "csv", "md", "tex"),
    ),
)
