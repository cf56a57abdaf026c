"""Two entries against each other: who is higher on how many tasks, and what the mean difference says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import hypot, isfinite
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from harness.scores import delta_text, score_text
from leaderboard.data.queries import Entry, Queries
from leaderboard.data.scores import Floats, half_width
from leaderboard.data.suites import REASONS, scopes_of, views
from leaderboard.pages._comparison import (
    LEAST,
    LETTERS,
    MOST,
    PATH,
    Chooser,
    Common,
    chooser,
    chosen,
    common,
    differences_table,
    entry_columns,
    facts_table,
    labels,
    means_table,
    measured_differences,
    missing_table,
    origins_table,
)
from leaderboard.pages._suite_table import choices_made, leaks, texts_text
from leaderboard.pages._task_scores import column_path, tie
from leaderboard.web.charts import Axis, Bars, BarSeries, Chart, chart
from leaderboard.web.filters import Control, Form, form
from leaderboard.web.formats import over_seeds
from leaderboard.web.page import Page, PageRoute, missing
from leaderboard.web.parameters import State, Text, Texts, address
from leaderboard.web.tables import Cell, Column, Row, Table

if TYPE_CHECKING:
    from leaderboard.web.site import Site


APART = "cannot be told apart"


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """A difference of two means and half of its 95 % interval; None where a single task gives none."""

    value: float
    half: float | None

    @property
    def told_apart(self) -> bool:
        """Whether 0 lies outside the interval."""
        return self.half is not None and abs(self.value) > self.half


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """Two entries, by their places; differences are the first's minus the second's.

    Attributes:
        first: The place of the one.
        second: The place of the other.
        wins: On how many of the tasks that all have the first is higher.
        losses: On how many the second is.
        ties: On how many neither is.
        tasks: The difference of the means over tasks.
        types: The difference of the means over types.
        untouched: That of the means over the tasks that chose neither; None where no task chose, or all did.
    """

    first: int
    second: int
    wins: int
    losses: int
    ties: int
    tasks: Difference
    types: Difference
    untouched: Difference | None = None


def pairs(common: Common) -> list[Pair]:
    """Every two of the entries; none where they have no column in common."""
    rows = range(len(common.entries)) if common.columns else range(0)
    return [_pair(common, one, other) for one, other in combinations(rows, 2)]


def _pair(common: Common, one: int, other: int) -> Pair:
    found = list(outcomes(common, one, other))
    values = common.grid.values[:, common.columns]
    differences = values[one] - values[other]
    known = _known_half(common, one, other)
    untouched = common.grid.values[:, common.untouched or []]
    return Pair(
        first=one,
        second=other,
        wins=found.count(1),
        losses=found.count(-1),
        ties=found.count(0),
        tasks=_difference(differences)
        if known is None
        else Difference(value=float(differences.mean()), half=known),
        types=_difference(differences * common.type_weights),
        untouched=_difference(untouched[one] - untouched[other]) if common.untouched else None,
    )


def _difference(differences: Floats) -> Difference:
    half = half_width(differences)
    return Difference(value=float(differences.mean()), half=half if isfinite(half) else None)


def _known_half(common: Common, one: int, other: int) -> float | None:
    """Half of the interval of the difference of means that have intervals of their own.

    Those are of the whole suite, so they serve only where all have all of it.
    """
    grid = common.grid
    bounds = [found for row in (one, other) if (found := grid.averages.get(row, {}).get("interval"))]
    if len(common.columns) < len(grid.site_suite.suite.columns) or len(bounds) < 2:
        return None
    return hypot(*[(high - low) / 2 for low, high in bounds])


def outcomes(common: Common, one: int, other: int) -> Iterator[int]:
    """For each common column: 1 where the one is higher, -1 where the other is, 0 where neither."""
    for at in common.columns:
        first, second = float(common.grid.values[one, at]), float(common.grid.values[other, at])
        yield 0 if tied_at(common, one, other, at) else 1 if first > second else -1


def tied_at(common: Common, one: int, other: int, at: int) -> bool:
    """Whether two entries cannot be told apart on a column: equal, or within their known intervals."""
    values = common.grid.values
    return tie(
        float(values[one, at]), float(values[other, at]), _half(common, one, at), _half(common, other, at)
    )


def _half(common: Common, row: int, at: int) -> float | None:
    half = float(common.grid.high[row, at] - common.grid.low[row, at]) / 2
    return half if isfinite(half) else None


def winners(common: Common, at: int) -> list[int]:
    """The entries that the best of a column cannot be told apart from, the best one among them."""
    rows = range(len(common.entries))
    best = max(rows, key=lambda row: float(common.grid.values[row, at]))
    return [row for row in rows if row == best or tied_at(common, best, row, at)]


def pairs_table(common: Common, found: Sequence[Pair]) -> Table:
    """Every two entries: counts, and the difference of the means with its interval."""
    typed = len(common.by_type) > 1
    heads = [
        ("one", "One", False), ("other", "Other", False), ("wins", "Higher", True), ("losses", "Lower", True),
        ("ties", "Ties", True), ("tasks", "Over tasks", True), ("verdict", "So, over tasks", False),
    ]  # fmt: skip
    if common.untouched:
        heads += [("untouched", "Over untouched tasks", True), ("verdict_untouched", "So, over these", False)]
    heads += [("types", "Over types", True), ("verdict_types", "So, over types", False)] if typed else []
    return Table(
        name="pairs",
        caption="Two at a time: the one against the other",
        columns=[Column(key=key, label=label, numeric=numeric) for key, label, numeric in heads],
        rows=[_pair_row(common, pair, typed=typed) for pair in found],
        notes=[
            "± is half of the 95 % interval of the mean difference: of seeds and examples where both means "
            "have one for the whole suite, else Student’s over the paired differences, the tasks taken as a "
            f"sample of such tasks. Two {APART} where 0 lies in it."
        ],
    )


def _pair_row(common: Common, pair: Pair, *, typed: bool) -> Row:
    one, other = common.labels[pair.first], common.labels[pair.second]
    cells = [
        Cell(text=one, value=one),
        Cell(text=other, value=other),
        *(Cell(text=str(n), value=n) for n in (pair.wins, pair.losses, pair.ties)),
        *_difference_cells(pair.tasks, one, other),
        *(_difference_cells(pair.untouched, one, other) if pair.untouched else ()),
        *(_difference_cells(pair.types, one, other) if typed else ()),
    ]
    return Row(cells=cells)


def _difference_cells(found: Difference, one: str, other: str) -> tuple[Cell, Cell]:
    half = "?" if found.half is None else f"{100 * found.half:.2f}"
    verdict = f"{one if found.value > 0 else other} is higher" if found.told_apart else APART
    if found.half is None:
        verdict = "a single task gives no interval"
    return (
        Cell(text=f"{delta_text(found.value)} ± {half}", value=found.value),
        Cell(text=verdict, value=verdict),
    )


def matrix_table(common: Common, found: Sequence[Pair]) -> Table:
    """Wins, losses and ties of each entry against each other."""
    counts = {(p.first, p.second): (p.wins, p.losses, p.ties) for p in found}
    counts |= {(p.second, p.first): (p.losses, p.wins, p.ties) for p in found}
    size = range(len(common.entries))
    return Table(
        name="matrix",
        caption="Tasks on which the row is higher – lower – tied with the column",
        columns=[Column(key="name", label="", sticky=True), *entry_columns(common)],
        rows=[
            Row(cells=[Cell(text=label, value=label), *(_count_cell(counts.get((row, at))) for at in size)])
            for row, label in enumerate(common.labels)
        ],
    )


def _count_cell(counts: tuple[int, int, int] | None) -> Cell:
    text = "" if counts is None else "–".join(map(str, counts))
    return Cell(text=text, value=text or None)


def tasks_table(common: Common, state: CompareState, path: str) -> Table:
    """Each column that all have: scores, differences to the first entry, and who is best.

    A type that the suite lacks is passed over.

    Raises:
        NotFound: The state sorts by a column that is none.
    """
    columns = _task_columns(common, state, path)
    return Table(
        name="tasks",
        caption="Scores × 100 on what all have, and differences to the first",
        columns=columns,
        rows=[_task_row(common, at) for at in _ordered(common, state)],
        notes=[_tie_note(common)],
    )


def _tie_note(common: Common) -> str:
    known = bool(np.isfinite(common.grid.low[:, common.columns]).any())
    rule = "equal, or within their known intervals put together" if known else "equal"
    more = "" if known else " No interval is known for these scores."
    return f"“tie”: the best scores are {rule}.{more}"


def _task_columns(common: Common, state: CompareState, path: str) -> list[Column]:
    key, down = state.sort.removeprefix("-"), state.sort.startswith("-")

    def column(name: str, label: str, note: str = "", *, numeric: bool = True) -> Column:
        first, other = (f"-{name}", name) if numeric else (name, f"-{name}")
        wanted = other if state.sort == first else first
        return Column(
            key=name, label=label, numeric=numeric, note=note, sticky=name == "name",
            sort=f"{path}?{state.query(sort=wanted)}#t-tasks",
            sorted=("descending" if down else "ascending") if name == key else "",
        )  # fmt: skip

    found = [column("name", "Task", numeric=False), column("type", "Type", numeric=False)]
    for at, label in enumerate(common.labels):
        found.append(column(f"s{at}", label))
        if at:
            found.append(column(f"d{at}", f"{LETTERS[at]} − A", "The difference to the first."))
    if len(common.entries) > 2:
        found.append(column("spread", "Spread", "The best score less the worst."))
    return [*found, Column(key="best", label="Best")]


def _task_row(common: Common, at: int) -> Row:
    column, values = common.grid.site_suite.suite.columns[at], common.grid.values[:, at]
    best = winners(common, at)
    alone = best[0] if len(best) == 1 else None
    href = column_path(common.grid.site_suite, column)
    cells = [Cell(text=column.name, value=column.name, href=href), Cell(text=column.type, value=column.type)]
    for row, value in enumerate(map(float, values)):
        cells.append(_score_cell(common, row, at, best=row == alone))
        if row:
            delta = value - float(values[0])
            note = f"{APART}, by their intervals or as they are equal" if tied_at(common, row, 0, at) else ""
            cells.append(Cell(text=delta_text(delta), value=delta, note=note))
    if len(values) > 2:
        spread = float(values.max() - values.min())
        cells.append(Cell(text=f"{100 * spread:.2f}", value=spread))
    told = common.labels[alone] if alone is not None else "tie"
    return Row(cells=[*cells, Cell(text=told, value=told)], key=column.name)


def _score_cell(common: Common, row: int, at: int, *, best: bool) -> Cell:
    grid, entry = common.grid, common.entries[row]
    value, low, high = (float(a[row, at]) for a in (grid.values, grid.low, grid.high))
    column, texts = grid.site_suite.suite.columns[at], int(grid.trained_on[row, at])
    asked = scopes_of(column)
    kinds = [*(["best"] if best else []), *leaks(entry, asked, texts, column.name)]
    kinds += ["other"] if REASONS[grid.reasons[row, at]] == "other" else []
    result = int(grid.results[row, at])
    href = f"/results/{result}" if result else ""
    notes = [f"95 %: {score_text(low)} to {score_text(high)}"] if low == low else []
    notes += [*choices_made(entry, asked), *([texts_text(texts)] if texts else [])]
    cell = Cell(text=score_text(value), value=value, kind=" ".join(kinds), href=href, note="; ".join(notes))
    return over_seeds(cell, float(grid.deviations[row, at]), entry.seeds)


def _ordered(common: Common, state: CompareState) -> list[int]:
    """The common columns of a type in order: as the suite has them unless the state sorts."""
    suite, values = common.grid.site_suite.suite, common.grid.values
    wanted = state.type if state.type in common.grid.by_type else ""
    rows = [at for kind, some in common.by_type.items() if wanted in ("", kind) for at in some]
    key, down = state.sort.removeprefix("-"), state.sort.startswith("-")
    by: dict[str, Callable[[int], float | str]] = {
        "name": lambda at: suite.columns[at].name.casefold(),
        "type": lambda at: suite.columns[at].type,
        "spread": lambda at: float(np.ptp(values[:, at])),
    }
    for row in range(len(common.entries)):
        by[f"s{row}"] = lambda at, row=row: float(values[row, at])  # type: ignore[misc]
        by[f"d{row}"] = lambda at, row=row: float(values[row, at] - values[0, at])  # type: ignore[misc]
    if key and key not in by:
        raise missing("column", key, by, then="Click a column's heading to sort by it.")
    return sorted(rows, key=by[key], reverse=down) if key else rows


FEW = 20
"""Columns of a suite of one type that are drawn one by one, at most."""


def parts(common: Common) -> list[tuple[str, Floats]]:
    """What is drawn: the types' means, or single columns where there is one type."""
    if len(common.grid.by_type) > 1 or not 0 < len(common.columns) <= FEW:
        return [(kind, one.values) for kind, one in common.types.items()]
    names = [column.name for column in common.grid.site_suite.suite.columns]
    return [(names[at], common.mean([at])) for at in common.columns]


def means_chart(common: Common) -> Chart:
    """The means by type, or by task where there is one type."""
    shown = parts(common)
    values = [100 * some for _, some in shown]
    series = [
        BarSeries(
            label=label,
            values=[float(some[row]) for some in values],
            href=address(f"/models/{entry.model_slug}"),
        )
        for row, (label, entry) in enumerate(zip(common.labels, common.entries, strict=True))
    ]
    axis = Axis(label="mean score × 100")
    plot = Bars(axis=axis, categories=[name for name, _ in shown], series=series)
    return chart("types", "Means over what all have", plot)


"""State that the form keeps."""


@dataclass(frozen=True, kw_only=True)
class ComparePage:
    """What the template of a comparison takes.

    Attributes:
        title: The heading.
        lead: What is there, in a sentence.
        chooser: How entries are added and removed.
        form: The form above it, with the filters in force.
        tables: Those that are shown, by their names.
        chart: The means by type; None where nothing is in common.
        notes: What must be read with it.
        same: Where measured entries were compared and no field differs: over how many tasks.
        data: For the JSON twin.
    """

    title: str
    lead: str
    chooser: Chooser
    form: Form
    tables: Sequence[Table] = ()
    chart: Chart | None = None
    notes: Sequence[str] = ()
    same: int = 0
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The names of the tables."""
        return [table.name for table in self.tables]


def compare_page(queries: Queries, state: CompareState) -> ComparePage:
    """The page in a state.

    Raises:
        NotFound: The state names an entry, a suite, a convention, a type or a column that is none.
    """
    entries = chosen(queries, state.m)
    if state.suite and state.suite not in queries.suites:
        raise missing("suite", state.suite, queries.suites, then="The page /suites lists all.")
    if not LEAST <= len(entries) <= MOST:
        return _choosing(queries, entries, state)
    return _compared(queries, entries, state)


def _choosing(queries: Queries, entries: Sequence[Entry], state: CompareState) -> ComparePage:
    return ComparePage(
        title="Compare",
        lead=f"{LEAST} to {MOST} entries side by side, on what all of them have.",
        chooser=chooser(queries, entries, state),
        form=form(state, PATH, [_search(state)]),
        tables=[facts_table(entries, None, state)] if entries and len(entries) < LEAST else [],
        data={"entries": [_entry_json(entry) for entry in entries]},
    )


def _compared(queries: Queries, entries: Sequence[Entry], state: CompareState) -> ComparePage:
    made = _common(queries, entries, state)
    count = len(made.columns)
    found = pairs(made)
    differences = measured_differences(queries, made)
    letters = dict(zip((entry.id for entry in entries), labels(entries), strict=True))
    tables = [facts_table(entries, made, state)]
    if made.types:
        tables.append(means_table(made))
    if count:
        tables.append(pairs_table(made, found))
        tables += [matrix_table(made, found)] if len(entries) > LEAST else []
        tables.append(tasks_table(made, state, PATH))
    tables += [missing_table(made), origins_table(queries, made), differences_table(differences, letters)]
    return ComparePage(
        title=_title(entries),
        lead=_lead(made),
        chooser=chooser(queries, entries, state),
        form=form(state, PATH, [_search(state), *_choices(queries, made, state)]),
        tables=[table for table in tables if table.rows],
        chart=means_chart(made) if made.types else None,
        notes=_notes(made, state),
        same=differences.tasks if not differences.fields else 0,
        data=_data(made, found, state),
    )


def _lead(made: Common) -> str:
    suite, count = made.grid.site_suite.suite, len(made.columns)
    if made.types and not count:
        return f"{suite.title}: all of them have means within {len(made.types)} of its types."
    return f"{suite.title}: all of them have {count} of its {len(suite.columns)} columns."


def _common(queries: Queries, entries: Sequence[Entry], state: CompareState) -> Common:
    loose = state.revisions == "any"
    made = common(queries, entries, suite=state.suite, pinned=not loose)
    known = views(made.grid.site_suite.suite)
    if state.view in known[1:]:
        return common(queries, entries, suite=made.grid.site_suite.slug, view=state.view, pinned=not loose)
    all_paths = {name for one in queries.suites.values() for name in views(one.suite)}
    if state.view and state.view not in all_paths:
        raise missing("view", state.view, all_paths, then="A suite's page offers those there are.")
    return made


def _title(entries: Sequence[Entry]) -> str:
    names = [label[2:] for label in labels(entries)]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _search(state: CompareState) -> Control:
    return Control(
        kind="search", name="q", label="Add a model", value=state.q, placeholder="part of a name"
    )  # fmt: skip


REVISIONS = (("pinned", "the suite's own"), ("any", "any (not comparable)"))


def _choices(queries: Queries, made: Common, state: CompareState) -> list[Control]:
    suites = queries.suites
    names = [
        *made.overlaps,
        *([] if made.grid.site_suite.slug in made.overlaps else [made.grid.site_suite.slug]),
    ]
    options = [
        (slug, f"{made.overlaps.get(slug, 0)}/{len(suites[slug].suite.columns)} {suites[slug].suite.title}")
        for slug in names
    ]
    found = [_select("suite", "Suite, with what all have", made.grid.site_suite.slug, options)]
    known = views(made.grid.site_suite.suite)
    if len(known) > 1:
        found.append(_select("view", "Numbers", made.grid.convention, [(n, f"as {n} prints") for n in known]))
    if len(made.by_type) > 1:
        kinds = [("", "all"), *((kind, kind) for kind in made.by_type)]
        found.append(_select("type", "Tasks of type", state.type, kinds))
    return [*found, _select("revisions", "Data revisions", state.revisions, REVISIONS)]


def _select(name: str, label: str, value: str, options: Sequence[tuple[str, str]]) -> Control:
    return Control(kind="select", name=name, label=label, value=value, options=options)


def _notes(made: Common, state: CompareState) -> list[str]:
    found = []
    more = made.on_other_data - len(made.columns)
    if not made.columns and made.types:
        found.append("Papers print only means within types of some of them: there is no task to compare on.")
    elif not made.columns:
        found.append("There is no column that all of them have on this suite: no mean can be compared.")
    if more:
        found.append(
            f"All of them have {more} more of its columns, but not all on the pinned data, or "
            "on data that does not prove it. “Data revisions: any” takes these in."
        )
    if state.revisions == "any":
        found.append(
            "Scores on other revisions of the data count here: models may have been scored on other texts."
        )
    origins = {entry.origin for entry in made.entries}
    if len(origins) > 1:
        found.append(f"Numbers of different origin stand side by side: {', '.join(sorted(origins))}.")
    return found


def _data(made: Common, found: Sequence[Pair], state: CompareState) -> dict[str, Any]:
    suite = made.grid.site_suite.suite
    return {
        "entries": [_entry_json(entry) for entry in made.entries],
        "suite": made.grid.site_suite.slug,
        "view": made.grid.convention or None,
        "revisions": state.revisions,
        "columns": len(suite.columns),
        "common": [suite.columns[at].name for at in made.columns],
        "untouched": [suite.columns[at].name for at in made.untouched]
        if made.untouched is not None
        else None,
        "overlaps": dict(made.overlaps),
        "pairs": [_pair_json(made, pair) for pair in found],
    }


def _entry_json(entry: Entry) -> dict[str, Any]:
    return {"key": entry.slug, "model": entry.model, "origin": entry.origin, "revision": entry.revision}


def _pair_json(made: Common, pair: Pair) -> dict[str, Any]:
    def told(one: Difference) -> dict[str, Any]:
        return {"difference": one.value, "half_of_interval": one.half, "told_apart": one.told_apart}

    return {
        "first": made.entries[pair.first].slug, "second": made.entries[pair.second].slug,
        "wins": pair.wins, "losses": pair.losses, "ties": pair.ties,
        "over_tasks": told(pair.tasks), "over_types": told(pair.types),
        "over_untouched": told(pair.untouched) if pair.untouched else None,
    }  # fmt: skip


class CompareState(State):
    """What a comparison can be asked."""

    m: Texts = Field([], description="Entries, 2 to 6; differences are to the first.")
    q: Text = Field("", description="Part of the name of a model that is to be added.")
    suite: Text = Field("", description="The suite; without one, that where all have most in common.")
    view: Text = Field("", description="The paper's convention that makes a task's number.")
    revisions: Literal["pinned", "any"] = Field(
        "pinned", description="Whether scores on other revisions of the data count (any)."
    )
    type: Text = Field("", description="Only tasks of this type in the table of tasks.")
    sort: Text = Field("", description="A column's key of the table of tasks; with - in front downwards.")


def view(site: Site, state: CompareState) -> Page:
    """The comparison."""
    found: ComparePage = compare_page(site.queries, state)
    return Page(
        title=found.title,
        template="compare.html",
        lead=found.lead,
        tables=found.tables,
        data=found.data,
        context=found,
        notes=found.notes,
        charts=[found.chart] if found.chart else [],
    )


def all_paths(site: Site) -> Iterable[str]:
    """The chooser."""
    return [PATH]


PAGE = PageRoute(
    path=PATH,
    state=CompareState,
    view=view,
    summary="2 to 6 entries: differences task by task, wins and losses, and why they may differ.",
    all_paths=all_paths,
    formats=("json", "csv", "md", "tex"),
)

PAGES = (PAGE,)
