"""Entries side by side: like for like, ties, intervals, and why they differ."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from pydantic import Field

from harness.core.errors import find_similar_names
from leaderboard.data.entries import TRUST, Entry, format_seeds
from leaderboard.data.queries import Queries
from leaderboard.data.ranking import Floats, select_mean_columns
from leaderboard.data.scores import OTHER, SuiteScores
from leaderboard.data.suites import REASONS, list_conventions
from leaderboard.views import sorting
from leaderboard.views.cells import build_delta_cell, build_score_cell
from leaderboard.views.comparison import (
    Common,
    PairedDifference,
    iter_field_differences,
    load_common,
    load_record_fields,
)
from leaderboard.views.suite_table import build_mean_cell, build_task_cell, mean_of, name_entry_model
from leaderboard.views.task_scores import TRUST_TEXTS, format_column_path
from leaderboard.web.charts import Axis, Bars, BarSeries, Chart, build_chart
from leaderboard.web.filters import REVISIONS
from leaderboard.web.page import Page, build_missing_error, check_name
from leaderboard.web.page_state import Control, Options, State, Text, Texts, build_address
from leaderboard.web.routes import PRINTED, serve_page
from leaderboard.web.site import Site
from leaderboard.web.table_formats import format_parameters
from leaderboard.web.tables import Cell, Table, link, values_table

PATH = "/compare"
LEAST, MOST = 2, 6
LETTERS = "ABCDEF"
MATCHES, BARS, LONG = 24, 20, 160
"""Entries that a search lists, tasks that are drawn one by one, and characters of a value, at most."""

ALIKE = "cannot be told apart"
INTERVAL = (
    "± is half of the 95 % interval of the mean difference, and two are level where 0 lies in it. It is {}."
)
BY = {
    "examples": "made of the scores of the examples that both were scored on",
    "intervals": "made of the intervals of both means, over seeds and examples",
    "tasks": "Student’s over the tasks, from six tasks on",
}
GAP = {"_verdict": "Verdict", "": "Difference", "_half": "±"}
"""The columns of a difference of means, by the end of their keys."""
LIKE_FOR_LIKE = (
    "Over tasks that all of them have. Rows that begin with “Own” are over whatever each has: do not compare "
    "them."
)


class _CompareState(State):
    """The parameters of a comparison."""

    m: Texts = Field([], description="The models, or their entries, 2 to 6; differences are to the first.")
    q: Text = Field("", description="Part of the name of a model that is to be added.")
    suite: Text = Field("", description="The suite; without one, that where all have most in common.")
    view: Text = Field("", description="The paper's convention that makes a task's number.")
    revisions: Literal["any", "pinned"] = Field(
        "any", description="Count all scores, or only those on the pinned revisions of the data."
    )
    type: Text = Field("", description="Only tasks of this type in the table of tasks.")
    sort: Text = Field("", description="A column's key of the table of tasks; with - in front downwards.")


@serve_page(
    PATH,
    "2 to 6 entries: differences task by task, wins and losses, and why they may differ.",
    formats=PRINTED,
)
def _show_comparison(site: Site, state: _CompareState) -> Page:
    queries = site.queries
    entries = [*{entry.id: entry for entry in (_resolve_entry(queries, name) for name in state.m)}.values()]
    check_name("suite", state.suite, queries.suites, then="The page /suites lists all.")
    parts, controls = _build_chooser(queries, entries, state), [state.ask_name("Add a model")]
    if not LEAST <= len(entries) <= MOST:
        return Page(
            title="Compare",
            lead=f"{LEAST} to {MOST} entries side by side, on what all of them have.",
            tables=[_build_facts_table(queries, entries, None, state)] if len(entries) == 1 else [],
            context={"form": state.build_form(PATH, controls), "compared": False, "same": 0, **parts},
        )
    names = {name for one in queries.suites.values() for name in list_conventions(one.suite)}
    check_name("view", state.view, names, then="The page of a suite offers its conventions.")
    common = load_common(
        queries, entries, suite=state.suite, view=state.view, pinned=state.revisions == "pinned",
        folders=[*site.settings.results, *filter(None, [site.settings.reference])],
    )  # fmt: skip
    labels = _list_entry_labels(entries)
    measured = [row for row, entry in enumerate(entries) if entry.origin == "measured"]
    fields = load_record_fields(queries, common, measured)
    differences = _build_differences_table(fields, [labels[row] for row in measured])
    means = [_build_means_table(common, labels)] if common.types else []
    tables = [
        _build_facts_table(queries, entries, common, state), *means, _build_pairs_table(common, labels),
        *([_build_chain_table(common, labels)] if len(labels) > 2 else []),
        *_build_tasks_tables(queries, common, labels, state), differences,
    ]  # fmt: skip
    *first, last = [label[2:] for label in labels]
    suite, count = common.scores.site_suite.suite, len(common.averaged)
    total = len(select_mean_columns(suite))
    lead = f"{suite.title}: all of them have {count} of the {total} tasks of its mean."
    if common.types and not count:
        lead = f"{suite.title}: all of them have means within {len(common.types)} of its types."
    return Page(
        title=f"{', '.join(first)} and {last}", lead=lead,
        tables=[table for table in tables if table.rows],
        charts=[_plot_common_means(common, labels)] if common.types else [],
        notes=_list_compare_notes(common),
        data={"suite": common.scores.site_suite.slug, "view": common.scores.convention or None,
              "overlaps": dict(common.overlaps)},
        context={
            "form": state.build_form(PATH, [*controls, *_build_compare_controls(queries, common, state)]),
            "compared": True, "same": 0 if differences.rows else len(fields), **parts,
        },
    )  # fmt: skip


def _resolve_entry(queries: Queries, name: str) -> Entry:
    """The entry of a name in an address; a model's name stands for its best known entry."""
    if name in queries.by_slug:
        return queries.by_slug[name]
    if entries := queries.models.get(name) or queries.find_named_entries(name):
        return min(entries, key=lambda one: (one.member, TRUST.index(one.trust), -one.tasks))
    raise build_missing_error("entry", name, queries.by_slug, then="The page /compare finds entries by name.")


def _list_entry_labels(entries: Sequence[Entry]) -> list[str]:
    """A short name for each, with its letter: `A tiny-base`."""
    names = [name_entry_model(entry, short=True) for entry in entries]
    return [f"{letter} {name}" for letter, name in zip(LETTERS, names, strict=False)]


def _build_chooser(queries: Queries, entries: Sequence[Entry], state: _CompareState) -> dict[str, Any]:
    """Which entries are compared, each with the URL without it, and what a search adds, with its URL."""
    slugs, text = [entry.slug for entry in entries], state.q.casefold().strip()

    def link(names: Sequence[str]) -> str:
        return f"{PATH}?{state.build_query(m=list(names), q='', sort='')}"

    def rank_match(entry: Entry) -> tuple[bool, int]:
        name = entry.model.casefold()
        return not (name.startswith(text) or name.rpartition("/")[2].startswith(text)), -entry.tasks

    every = [entry for entry in queries.entries.values() if not entry.member]
    matches = [entry for entry in every if text in entry.model.casefold() and entry.slug not in slugs]
    offered = (text or len(slugs) < LEAST) and len(slugs) < MOST
    shown = sorted(matches, key=rank_match)[:MATCHES] if offered else []
    labels = [f"{LETTERS[at : at + 1]} {entry.model}".lstrip() for at, entry in enumerate(entries)]
    others = [link([s for s in slugs if s != slug]) for slug in slugs]
    names = sorted({entry.model for entry in every}) if text and not matches else []
    return {
        "chosen": [*zip(labels, others, strict=True)],
        "matches": [(e.model, _describe_entry(e), link([*slugs, e.slug])) for e in shown],
        "total": len(matches), "near": find_similar_names(state.q, names), "q": state.q, "most": MOST,
    }  # fmt: skip


def _describe_entry(entry: Entry) -> str:
    """What tells an entry from others of its model, in a line."""
    single = entry.origin == "imported" and not entry.revisions
    revision = f"revision {(entry.revision or 'not stated')[:10]}" if single else ""
    plural = "" if entry.tasks == 1 else "s"
    tasks = f"{entry.tasks} task{plural}" if entry.tasks else ""
    parts = (entry.origin, revision, entry.lineage_text or entry.treatment, tasks)
    return " · ".join(part for part in parts if part)


def _build_compare_controls(queries: Queries, common: Common, state: _CompareState) -> list[Control]:
    suites, site_suite = queries.suites, common.scores.site_suite
    counts = {**common.overlaps, site_suite.slug: common.overlaps.get(site_suite.slug, 0)}
    types = [(kind, kind) for kind in common.by_type]
    named = [(slug, count, suites[slug].suite) for slug, count in counts.items()]
    suites_of = [(slug, f"{count}/{len(select_mean_columns(one))} {one.title}") for slug, count, one in named]
    offered: Options = {
        "suite": ("Suite, with the tasks that all have", suites_of),
        "view": ("Numbers", [(name, f"as {name} prints") for name in list_conventions(site_suite.suite)]),
        "type": ("Tasks of type", [("", "all"), *types] if len(types) > 1 else ()),
        "revisions": ("Scores", REVISIONS),
    }
    values = {"suite": site_suite.slug, "view": common.scores.convention}
    return state.offer(offered, values=values, always=("suite",))


def _list_compare_notes(common: Common) -> list[str]:
    notes = []
    if not common.columns and common.types:
        notes.append("Papers print only means within types of some of them: they have no task to compare on.")
    elif not common.columns:
        notes.append("No task of this suite has a score of all of them: no mean can be compared.")
    # Whatever the revision of the data.
    fits = np.isin(common.scores.reasons, (0, OTHER)) & np.isfinite(common.scores.values)
    if more := int(fits.all(axis=0).sum()) - len(common.columns):
        notes.append(f"All of them have {more} more of its tasks, but not all on the pinned data.")
    elif other := int((common.scores.reasons[:, common.columns] == OTHER).any(axis=0).sum()):
        notes.append(f"On {other} of the tasks some were scored on another revision of the data (marked).")
    origins = sorted({entry.origin for entry in common.entries})
    if len(origins) > 1:
        notes.append(f"Numbers of different origin stand side by side: {', '.join(origins)}.")
    return notes


def _build_entry_heads(labels: Sequence[str], key: str = "s") -> dict[str, str]:
    """The columns of the entries: key and heading."""
    return {f"{key}{at}": label for at, label in enumerate(labels)}


def _build_fact_cell(value: str | int | None, text: str = "", **more: Any) -> Cell:
    shown = text or (f"{value:,}" if isinstance(value, int) else value)
    return Cell(text=shown if value is not None and shown else "not stated", value=value, **more)


def _build_revision_cell(entry: Entry) -> Cell:
    if entry.revisions:
        return _build_fact_cell(", ".join(entry.revisions), ", ".join(one[:10] for one in entry.revisions))
    if entry.revision is None:
        return _build_fact_cell(entry.artifact, f"weights {(entry.artifact or '')[:10]}")
    return _build_fact_cell(entry.revision, entry.revision[:10], note=entry.revision)


FACTS: Mapping[str, Callable[[Entry], Cell]] = {
    "Model": lambda entry: _build_fact_cell(entry.model, href=build_address(f"/models/{entry.model_slug}")),
    "Origin": lambda entry: _build_fact_cell(entry.origin, kind=entry.origin),
    "Source": lambda entry: _build_fact_cell(entry.source),
    "Revision": _build_revision_cell,
    "Revision is known by": lambda entry: _build_fact_cell(entry.trust, TRUST_TEXTS[entry.trust]),
    "Treatment": lambda entry: _build_fact_cell(entry.treatment or None),
    "Output": lambda entry: _build_fact_cell(entry.output or None),
    "Recipe": lambda entry: _build_fact_cell(entry.lineage.text if entry.lineage else entry.recipe),
    "Seeds": lambda entry: _build_fact_cell(format_seeds(entry.seeds) if entry.seeds else None),
    "Parameters": lambda entry: _build_fact_cell(entry.parameters, format_parameters(entry.parameters)),
    "Dimension": lambda entry: _build_fact_cell(entry.dimension),
    "Tokens, at most": lambda e: _build_fact_cell("no limit" if e.tokens_unlimited else e.max_tokens),
    "Released": lambda entry: _build_fact_cell(entry.released),
    "Open weights": lambda e: _build_fact_cell({True: "yes", False: "no", None: None}[e.open_weights]),
    "Made of": lambda entry: _build_fact_cell(entry.adapted_from),
    "Tasks with a result": lambda entry: _build_fact_cell(entry.tasks or None),
}


def _build_facts_table(
    queries: Queries, entries: Sequence[Entry], common: Common | None, state: _CompareState
) -> Table:
    """Facts as rows, entries as columns, and whether they differ."""
    rows = {name: [make(entry) for entry in entries] for name, make in FACTS.items()}
    stated = queries.load_facts(id=[entry.id for entry in entries])
    # The version of mteb that scored.
    versions = [
        one.get("mteb_versions") or one.get("treatment", {}).get("scoring")
        for one in (stated[entry.id] for entry in entries)
    ]
    rows["mteb"] = [
        _build_fact_cell(v if isinstance(v, str | None) else ", ".join(map(str, v))) for v in versions
    ]
    if common is not None:
        scores, count = common.scores, len(common.columns)
        others = (scores.reasons[:, common.columns] == OTHER).sum(axis=1).tolist()
        texts = [f"pinned on {count - other} of {count} tasks" if count else None for other in others]
        rows["Data"] = [_build_fact_cell(text) for text in texts]
        rows["Trained on this suite"] = [_build_training_cell(scores, entry) for entry in entries]
    facts = {name: cells for name, cells in rows.items() if any(cell.text != "not stated" for cell in cells)}
    differs = {True: "yes", False: ""}
    body = [[name, *some, differs[len({cell.value for cell in some}) > 1]] for name, some in facts.items()]
    slugs = [entry.slug for entry in entries]
    # Differences are to the first, so a link that reorders the entries chooses another base.
    orders = [sorted(slugs, key=lambda other: other != slug) for slug in slugs[1:]]
    turn = [
        Cell(text="are to this one"),
        *(Cell(text="make it the first", href=f"{PATH}?{state.build_query(m=order)}") for order in orders),
    ]
    heads = {"fact": "Fact", **_build_entry_heads(_list_entry_labels(entries)), "differs": "Differs"}
    return values_table("facts", "What is known of them", heads, [*body, ["Differences", *turn, ""]])


def _build_training_cell(scores: SuiteScores, entry: Entry) -> Cell:
    """On how many of the suite's tasks the model was trained, as its makers state."""
    if entry.trained_on is None:
        return _build_fact_cell(None)
    seen = scores.list_seen_columns(scores.row_of[entry.id])
    text = f"{len(seen)} of {len(scores.site_suite.suite.columns)} tasks" if seen else "no"
    return Cell(text=text, value=len(seen), note=", ".join(seen))


def _build_means_table(common: Common, labels: Sequence[str]) -> Table:
    """Means over the tasks that all have, and below them each entry's own."""
    scores, title = common.scores, common.scores.site_suite.suite.title
    part, typed = not scores.over_tasks.complete.all(), len(scores.by_type) > 1
    over, untouched = common.find_mean("tasks"), common.untouched
    tasks = f"of the suite’s {scores.over_tasks.expected} tasks"
    lines: list[tuple[str, str, Floats, str | None]] = [
        ("Over tasks", f"{over.expected} {tasks}", over.values, "")
    ]
    if untouched:
        means = untouched.over_tasks
        lines.append(("Over untouched tasks", f"{means.expected} {tasks}", means.values, None))
    if typed:
        count = f"{len(common.types)} of {len(scores.by_type)} types, as below"
        lines.append(("Over types", count, common.over_types, ""))
        lines += [(kind, f"{means.expected} of {scores.by_type[kind].expected} tasks", means.values, kind)
                  for kind, means in common.types.items()]  # fmt: skip
    rows = [_build_mean_row(scores, *line) for line in lines if np.isfinite(line[2]).any()]
    for means in [scores.over_tasks, *([scores.over_types] if typed else [])] if part else ():
        cells = [build_mean_cell(scores, row, means.over, detailed=False) for row in range(len(labels))]
        share = f"those that each has, of {means.expected} {means.over}"
        rows.append([f"Own, over {means.over}", *cells, share])
    notes = [LIKE_FOR_LIKE] if part else []
    if selected := [
        c.name
        for c, some in zip(scores.site_suite.suite.columns, scores.selected.T, strict=True)
        if some.any()
    ]:
        rest = "nothing that all of them have is untouched"
        rest = "the mean over untouched tasks leaves them out, for all alike" if untouched else rest
        what = f"Scores on {', '.join(selected)} selected some of these models or their settings"
        notes.append(f"{what}, and err upward there: {rest}.")
    entries, caption = _build_entry_heads(labels), f"{title}: means × 100 over what all have"
    heads = {"mean": "Mean", **entries, "of": "Over"}
    return values_table("means", caption, heads, rows, " ".join(entries), notes=notes)


def _build_mean_row(
    scores: SuiteScores, name: str, count: str, values: Floats, kind: str | None
) -> list[Any]:
    """A row of means, marked of entries that tasks of this kind selected (None for no marks)."""
    cells = [build_score_cell(v, kind="best" if v == np.nanmax(values) else "") for v in values.tolist()]
    if kind is not None:
        cells = [mean_of(cell, scores, row, kind) for row, cell in enumerate(cells)]
    return [name, *cells, count]


def _build_pairs_table(common: Common, labels: Sequence[str]) -> Table:
    """Every two entries: counts, and the differences of the means with their intervals."""
    means = {"tasks": "Over tasks"}
    means |= {"untouched": "Over untouched tasks"} if common.untouched else {}
    means |= {"types": "Over types"} if len(common.types) > 1 else {}
    counts, pairs = {"wins": "Higher", "losses": "Lower", "ties": "Ties"}, common.list_pairs()
    rows = []
    for pair in pairs:
        names = labels[pair.first], labels[pair.second]
        gaps = [cell for key in means for cell in _build_gap_cells(getattr(pair, key), *names)]
        rows.append([*names, *gaps, *(getattr(pair, key) for key in counts)])
    by = {getattr(pair, key).by for pair in pairs for key in means}
    ways = "; else ".join(text for key, text in BY.items() if key in by)
    caption = "Two at a time: the one against the other"
    notes = [INTERVAL.format(ways)] if ways else []
    return _build_gaps_table("pairs", caption, {"one": "One", "other": "Other"}, means, rows, counts, notes)


def _build_chain_table(common: Common, labels: Sequence[str]) -> Table:
    """Each entry against the one before it and against the first, over tasks, as in a table of ablations."""
    gaps, rows = {(pair.second, pair.first): pair.tasks for pair in common.list_pairs()}, list[list[Any]]()
    for row in range(1, len(labels)) if gaps else ():
        pairs = [(start, gaps[row, start]) for start in (row - 1, 0)]
        cells = [
            _build_gap_cells(gap._replace(value=-gap.value), labels[row], labels[start])
            for start, gap in pairs
        ]
        rows.append([labels[row], *cells[0], *cells[1]])
    means = {"before": "Against the one before it", "first": f"Against {labels[0]}"}
    return _build_gaps_table("chain", "One after the other, over tasks", {"entry": "Entry"}, means, rows)


def _build_gaps_table(
    name: str, caption: str, heads: Mapping[str, str], means: Mapping[str, str], rows: Sequence[list[Any]],
    counts: Mapping[str, str] = {}, notes: Sequence[str] = (),
) -> Table:  # fmt: skip
    """A table of differences, those of one mean under its heading."""
    groups = {key + end: label for key, label in means.items() for end in GAP}
    labels = {key + end: label for key in means for end, label in GAP.items()}
    numbers = " ".join(key for key in (*labels, *counts) if not key.endswith("_verdict"))
    heads = {**heads, **labels, **counts}
    return values_table(name, caption, heads, rows, numbers, notes=notes, groups=groups)


def _build_gap_cells(gap: PairedDifference, first: str, second: str) -> list[Any]:
    value = build_delta_cell(gap.value)
    if gap.half is None:
        return ["too few tasks to say", value, ""]
    half = Cell(text=f"{100 * gap.half:.2f}", value=gap.half, note=f"It is {BY[gap.by]}.")
    higher = first if gap.value > 0 else second
    return [f"{higher} is higher" if abs(gap.value) > gap.half else ALIKE, value, half]


def _build_tasks_tables(
    queries: Queries, common: Common, labels: Sequence[str], state: _CompareState
) -> list[Table]:
    """The tasks that all have: scores, differences to the first, and which is best; then those of some."""
    columns, scores = common.scores.site_suite.suite.columns, common.scores
    fields = _build_task_fields(queries, common, labels)
    kinds = [state.type] if state.type in common.by_type else common.by_type
    rows = [at for kind in kinds for at in common.by_type[kind]]
    rows = sorting.sort_rows(rows, fields, state.sort) if state.sort else rows
    has_intervals = common.tests or np.isfinite(scores.low[:, common.columns]).any()
    rule = "level by a test over the same examples, or by known intervals" if has_intervals else "equal"
    coverage = (scores.reasons != REASONS.index("none")).any(axis=0)
    missing = [at for at in np.flatnonzero(coverage).tolist() if at not in common.columns]
    plain = [field for field in fields if field.key not in ("spread", "best") and field.key[0] != "d"]
    nobody, names = int((~coverage).sum()), [column.name for column in columns]
    return [
        sorting.fill_table(
            "tasks", "Scores × 100 on what all have, and differences to the first", fields, rows,
            state=state, key=names.__getitem__, notes=[f"“tie”: the best scores are {rule}."],
        ),
        sorting.fill_table(
            "missing", "Not compared, as not all have it", plain, missing, key=names.__getitem__,
            notes=[f"{nobody} tasks of the suite that none of them has are left out."] if nobody else [],
        ),
    ]  # fmt: skip


def _build_task_fields(queries: Queries, common: Common, labels: Sequence[str]) -> list[sorting.Field[int]]:
    site_suite, values = common.scores.site_suite, common.scores.values
    columns, column = site_suite.suite.columns, sorting.Field[int]

    def find_winner(at: int) -> str:
        winners = common.find_winners(at)
        return labels[winners[0]] if len(winners) == 1 else "tie"

    spreads = np.ptp(values, axis=0).tolist()
    spread = column(
        "spread", "Spread", lambda at: build_score_cell(spreads[at]), spreads.__getitem__, numeric=True,
        note="The best score less the worst.",
    )  # fmt: skip
    return [
        column("name", "Task", lambda at: link(columns[at].name, format_column_path(site_suite, columns[at])),
               lambda at: columns[at].name.casefold(), sticky=True),
        *(f for row, label in enumerate(labels) for f in _iter_entry_fields(queries, common, row, label)),
        *([spread] if len(labels) > 2 else []),
        column("best", "Best", find_winner),
        column("type", "Type", sort=lambda at: columns[at].type),
    ]  # fmt: skip


def _iter_entry_fields(
    queries: Queries, common: Common, row: int, label: str
) -> Iterator[sorting.Field[int]]:
    """The columns of one entry: its scores, and how they differ from those of the first."""
    values, column = common.scores.values, sorting.Field[int]
    scores, deltas = values[row].tolist(), (values[row] - values[0]).tolist()

    def build_entry_score(at: int) -> Cell:
        cell = build_task_cell(common.scores, row, at, queries.entries)
        is_best = at in common.columns and common.find_winners(at) == [row]
        return replace(cell, kind=f"best {cell.kind}".strip()) if is_best else cell

    def build_entry_delta(at: int) -> Cell:
        note = f"{ALIKE} on this task" if common.is_tied(row, 0, at) else ""
        return replace(build_delta_cell(deltas[at]), note=note)

    yield column(f"s{row}", label, build_entry_score, scores.__getitem__, numeric=True)
    if row:
        yield column(f"d{row}", f"{LETTERS[row]} − A", build_entry_delta, deltas.__getitem__, numeric=True,
                     note="The difference to the first.")  # fmt: skip


def _build_differences_table(tasks: Sequence[Sequence[Mapping[str, Any]]], labels: Sequence[str]) -> Table:
    """The fields of measured entries that differ."""
    rows = [
        [name, *map(_build_values_cell, values), Cell(text=f"{count} of {len(tasks)}", value=count)]
        for name, values, count in iter_field_differences(tasks)
    ]
    return values_table(
        "differences", "Measured entries: fields that differ on tasks that all have",
        {"field": "Field", **_build_entry_heads(labels, "e"), "tasks": "Tasks"}, rows, "tasks",
        notes=["Times, rates and memory are left out: they are measurements, not conditions."],
        says={"tasks": "On how many of the tasks it differs."},
    )  # fmt: skip


def _build_values_cell(values: Sequence[Any]) -> Cell:
    named = ("absent" if value is None else value for value in values[:20])
    texts = [one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in named]
    more = f"; and {len(values) - 3} more" if len(values) > 3 else ""
    # Hashes are cut for the eye; `value` holds them whole.
    short = re.sub(r"\b[0-9a-f]{16,}\b", lambda hash_: hash_[0][:12], "; ".join(texts[:3]) + more)
    return Cell(text=short if len(short) <= LONG else f"{short[:LONG]} …", value="; ".join(texts))


def _plot_common_means(common: Common, labels: Sequence[str]) -> Chart:
    """The means by type, or the scores by task where there is one type."""
    columns, values = common.scores.site_suite.suite.columns, common.scores.values
    parts = {kind: means.values for kind, means in common.types.items()}
    if len(common.scores.by_type) == 1 and 0 < len(common.columns) <= BARS:
        parts = {columns[at].name: values[:, at] for at in common.columns}
    series = [
        BarSeries(
            label=label, values=[100 * float(one[row]) for one in parts.values()],
            href=build_address(f"/models/{entry.model_slug}"),
        )
        for row, (label, entry) in enumerate(zip(labels, common.entries, strict=True))
    ]  # fmt: skip
    plot = Bars(axis=Axis(label="mean score × 100"), categories=list(parts), series=series)
    return build_chart("types", "Means over what all have", plot)
