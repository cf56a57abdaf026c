"""Which entries are compared, and how others are found."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from harness.differences import Comparable
from harness.errors import nearest
from harness.scores import score_text, shown_only
from leaderboard.data.entries import TRUST
from leaderboard.data.queries import Entry, Queries, Score
from leaderboard.data.scores import NONE, OTHER, Floats, Means, SuiteScores
from leaderboard.data.suites import REASONS, Reason, views
from leaderboard.pages._suite_table import made_of, mean_of
from leaderboard.pages._task_scores import column_path
from leaderboard.web.formats import parameters_text, seeds_text, some_seeds
from leaderboard.web.page import missing
from leaderboard.web.parameters import address
from leaderboard.web.tables import EMPTY, Cell, Column, Row, Table

if TYPE_CHECKING:
    from leaderboard.pages.compare import CompareState


PATH = "/compare"
LEAST, MOST = 2, 6
LETTERS = "ABCDEF"
FOUND = 24
"""Entries that a search lists, at most."""


@dataclass(frozen=True, kw_only=True)
class Match:
    """An entry that a search found: what tells it from others, and the URL that adds it."""

    name: str
    facts: str
    href: str


@dataclass(frozen=True, kw_only=True)
class Chooser:
    """The form that adds entries.

    Attributes:
        chosen: Each entry's label and the URL without it.
        matches: What a search found.
        total: How many there are beyond those shown as well.
        near: Names that are like what was searched for, where nothing was found.
        message: Why nothing is compared; empty where something is.
        searched: What was searched for.
    """

    chosen: Sequence[tuple[str, str]]
    matches: Sequence[Match]
    total: int
    near: Sequence[str]
    message: str
    searched: str


def chosen(queries: Queries, names: Sequence[str]) -> list[Entry]:
    """The entries of some names in URLs, each once; a model's name stands for its best known entry.

    Raises:
        NotFound: A name is none.
    """
    found = {entry.id: entry for entry in (_entry(queries, name) for name in names)}
    return list(found.values())


def _entry(queries: Queries, name: str) -> Entry:
    if name in queries.by_slug:
        return queries.by_slug[name]
    if name in queries.models:
        return min(queries.models[name], key=lambda one: (one.member, TRUST.index(one.trust), -one.tasks))
    raise missing("entry", name, queries.by_slug, then="The page /compare finds entries by name.")


def labels(entries: Sequence[Entry]) -> list[str]:
    """A short name for each, with its letter: `A tiny-base`."""
    return [
        f"{letter} {entry.model.rpartition('/')[2] or entry.model}"
        for letter, entry in zip(LETTERS, entries, strict=False)
    ]


def lettered(entries: Sequence[Entry]) -> list[str]:
    """The whole name of each, with its letter where there is one."""
    return [f"{LETTERS[at : at + 1]} {entry.model}".lstrip() for at, entry in enumerate(entries)]


def chooser(queries: Queries, entries: Sequence[Entry], state: CompareState) -> Chooser:
    """The form for some entries."""
    slugs = [entry.slug for entry in entries]
    matches = _matches(queries, slugs, state.q)
    room = len(slugs) < MOST
    names = {entry.model for entry in queries.entries.values()}
    return Chooser(
        chosen=[
            (label, _link(state, [s for s in slugs if s != e.slug]))
            for e, label in zip(entries, lettered(entries), strict=True)
        ],
        matches=[
            Match(name=e.model, facts=told(e), href=_link(state, [*slugs, e.slug])) for e in matches[:FOUND]
        ]
        if room and (state.q or len(slugs) < LEAST)
        else [],
        total=len(matches),
        near=nearest(state.q, sorted(names)) if state.q and not matches else [],
        message=_message(len(slugs)),
        searched=state.q,
    )


def _matches(queries: Queries, slugs: Sequence[str], q: str) -> list[Entry]:
    """Entries whose model's name has `q`: those that begin with it first, then by how much they have."""
    text = q.casefold().strip()
    found = [
        e
        for e in queries.entries.values()
        if text in e.model.casefold() and e.slug not in slugs and not e.member
    ]

    def order(entry: Entry) -> tuple[bool, int]:
        plain = entry.model.casefold()
        return not (plain.startswith(text) or plain.rpartition("/")[2].startswith(text)), -entry.tasks

    return sorted(found, key=order)


def _link(state: CompareState, slugs: Sequence[str]) -> str:
    return f"{PATH}?{state.query(m=list(slugs), q='', sort='')}"


def told(entry: Entry) -> str:
    """What tells an entry from others of its model, in a line."""
    revision = f"revision {(entry.revision or 'not known')[:10]}" if entry.origin == "imported" else ""
    tasks = f"{entry.tasks} task{'s' if entry.tasks != 1 else ''}" if entry.tasks else ""
    return " · ".join(
        part for part in (entry.origin, revision, made_of(entry) or entry.treatment, tasks) if part
    )


def _message(count: int) -> str:
    if count > MOST:
        return f"{count} entries are chosen, and at most {MOST} can stand side by side. Remove some."
    if count == 1:
        return "One entry is chosen. Add at least one more to compare it with."
    return "" if count else f"Choose {LEAST} to {MOST} entries: search for a model, then add it."


UNKNOWN = "not known"


def facts_table(entries: Sequence[Entry], common: Common | None, state: CompareState) -> Table:
    """Facts as rows, entries as columns."""
    rows = [(name, [make(entry) for entry in entries]) for name, make in FACTS]
    if common is not None:
        rows.append(("Trained on this suite", [_trained(common, entry) for entry in entries]))
    rows.append(("Differences", [_first(entries, at, state) for at in range(len(entries))]))
    kept = [(name, cells) for name, cells in rows if any(cell.text not in ("", UNKNOWN) for cell in cells)]
    return Table(
        name="facts",
        caption="What is known of them",
        columns=[
            Column(key="fact", label="Fact", sticky=True),
            *(Column(key=f"s{at}", label=label) for at, label in enumerate(labels(entries))),
        ],
        rows=[Row(cells=[Cell(text=name, value=name), *cells]) for name, cells in kept],
    )


def _text(text: str | None, value: str | int | None = None, note: str = "") -> Cell:
    return Cell(text=text or UNKNOWN, value=text if value is None else value, note=note)


def _model(entry: Entry) -> Cell:
    return Cell(text=entry.model, value=entry.model, href=address(f"/models/{entry.model_slug}"))


def _revision(entry: Entry) -> Cell:
    if entry.revision is None:
        return _text(f"weights {entry.artifact[:10]}" if entry.artifact else None, entry.artifact)
    return _text(entry.revision[:10], entry.revision, entry.revision)


def _number(value: int | None) -> Cell:
    return _text(None if value is None else f"{value:,}", value)


def _parameters(entry: Entry) -> Cell:
    count = entry.parameters
    return _text(None if count is None else parameters_text(count), count)


def _open(entry: Entry) -> Cell:
    return _text(None if entry.open_weights is None else "yes" if entry.open_weights else "no")


TRUSTED = {
    "measured": "measured here: the hash of its weights",
    "commit": "a commit",
    "external": "its makers told the number",
    "none": "nothing: the source does not say",
    "other": "a name that is no commit",
    "reported": "a paper",
}

FACTS: Sequence[tuple[str, Callable[[Entry], Cell]]] = (
    ("Model", _model),
    ("Origin", lambda entry: Cell(text=entry.origin, value=entry.origin, kind=entry.origin)),
    ("Revision", _revision),
    ("Revision is known by", lambda entry: _text(TRUSTED[entry.trust], entry.trust)),
    ("Treatment", lambda entry: _text(entry.treatment)),
    ("Recipe", lambda entry: _text(entry.lineage.text if entry.lineage else entry.recipe)),
    ("Seeds", lambda entry: _text(seeds_text(entry.seeds) if entry.seeds else None)),
    ("Parameters", _parameters),
    ("Dimension", lambda entry: _number(entry.dimension)),
    ("Tokens, at most", lambda entry: _number(entry.max_tokens)),
    ("Released", lambda entry: _text(entry.released)),
    ("Open weights", _open),
    ("Made of", lambda entry: _text(entry.adapted_from)),
    ("Tasks with a result", lambda entry: _number(entry.tasks or None)),
)


def _trained(common: Common, entry: Entry) -> Cell:
    """On how many of the suite's columns the model was trained, by its makers' account."""
    if entry.trained_on is None:
        return Cell(text=UNKNOWN)
    columns = common.grid.site_suite.suite.columns
    seen = [c.name for c in columns if any(task.name in entry.trained_on for task in c.tasks)]
    told = f"{len(seen)} of {len(columns)} columns"
    return Cell(text=told if seen else "no", value=len(seen), note=", ".join(seen))


def _first(entries: Sequence[Entry], at: int, state: CompareState) -> Cell:
    if at == 0:
        return Cell(text="are to this one")
    slugs = [entry.slug for entry in entries]
    order = [slugs[at], *slugs[:at], *slugs[at + 1 :]]
    return Cell(text="make it the first", href=f"{PATH}?{state.query(m=order)}")


@dataclass(frozen=True, kw_only=True, eq=False)
class TypeMean:
    """A type's mean of each entry, over `columns` of its `wanted` columns."""

    values: Floats
    columns: int
    wanted: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Common:
    """Entries on a suite.

    Attributes:
        entries: In the order that they were chosen in; differences are to the first.
        grid: The suite for these entries alone, a row for each.
        overlaps: How many columns all of them have, by suite; suites without any are left out.
    """

    entries: Sequence[Entry]
    grid: SuiteScores
    overlaps: Mapping[str, int]

    @property
    def labels(self) -> list[str]:
        """A short name for each entry."""
        return labels(self.entries)

    @cached_property
    def columns(self) -> list[int]:
        """The columns that all of them have."""
        return [int(at) for at in np.flatnonzero(self.grid.counted.all(axis=0))]

    @cached_property
    def by_type(self) -> dict[str, list[int]]:
        """Those columns by type; types without any are left out."""
        found: dict[str, list[int]] = {}
        for at in self.columns:
            found.setdefault(self.grid.site_suite.suite.columns[at].type, []).append(at)
        return {kind: found[kind] for kind in self.grid.by_type if kind in found}

    @property
    def on_other_data(self) -> int:
        """How many columns all of them would have if other revisions of the data counted."""
        fits = (self.grid.reasons == 0) | (self.grid.reasons == OTHER)
        return int((fits & np.isfinite(self.grid.values)).all(axis=0).sum())

    @cached_property
    def types(self) -> dict[str, TypeMean]:
        """The means within types that all have: whole ones, else those over the columns that all have."""
        found = {}
        for kind, means in self.grid.by_type.items():
            if means.complete.all():
                found[kind] = TypeMean(values=means.values, columns=means.expected, wanted=means.expected)
            elif at := self.by_type.get(kind):
                found[kind] = TypeMean(values=self.mean(at), columns=len(at), wanted=means.expected)
        return found

    @property
    def over_tasks(self) -> Floats:
        """The mean over the columns that all have, of each entry; NaN where there are none."""
        means = self.grid.over_tasks
        return means.values if means.complete.all() else self.mean(self.columns)

    @cached_property
    def selected(self) -> list[str]:
        """The columns by whose scores one of the entries was chosen among several."""
        columns = self.grid.site_suite.suite.columns
        return [column.name for at, column in enumerate(columns) if self.grid.selected[:, at].any()]

    @cached_property
    def untouched(self) -> list[int] | None:
        """The columns of a mean over tasks that chose none of the entries; None where no column chose any."""
        suite = self.grid.site_suite.suite
        apart = {*self.selected, *shown_only(suite)}
        return [at for at in self.columns if suite.columns[at].name not in apart] if self.selected else None

    @property
    def over_types(self) -> Floats:
        """The mean of the types' means that all have, of each entry; NaN where there are none."""
        values = [one.values for one in self.types.values()]
        return np.mean(values, axis=0) if values else np.full(len(self.entries), np.nan)

    def mean(self, columns: Sequence[int]) -> Floats:
        """The mean over some columns, of each entry."""
        if not columns:
            return np.full(len(self.entries), np.nan)
        found: Floats = self.grid.values[:, list(columns)].mean(axis=1)
        return found

    @property
    def type_weights(self) -> Floats:
        """What each common column weighs in the mean over types, of mean 1."""
        counts = {kind: len(at) for kind, at in self.by_type.items()}
        types = [self.grid.site_suite.suite.columns[at].type for at in self.columns]
        return np.array([len(types) / (len(counts) * counts[kind]) for kind in types])


Scores = Mapping[int, Mapping[int, Score]]
"""By the row of an entry: its scores by scope."""


def common(
    queries: Queries, entries: Sequence[Entry], *, suite: str = "", view: str = "", pinned: bool = False
) -> Common:
    """Entries on a suite; without a name, on that where they have most in common.

    Args:
        queries: The index.
        entries: 2 to 6.
        suite: A suite that there is, by slug.
        view: A convention of it; empty for its first.
        pinned: Whether only scores on the pinned revisions of the data count.
    """
    scores, averages = _scores(queries, entries), _averages(queries, entries)
    printed = _printed(queries, averages)
    overlaps = _overlaps(queries, scores, printed, pinned=pinned)
    listed = queries.suites[suite or _most(queries, scores, printed, overlaps)]
    known = views(listed.suite)
    view = view or max(known, key=lambda one: len(averages.get((listed.slug, one), ())))
    made = queries.scores_of(entries, listed, view, pinned=pinned)
    return Common(entries=entries, grid=made, overlaps=overlaps)


def _scores(queries: Queries, entries: Sequence[Entry]) -> Scores:
    row = {entry.id: at for at, entry in enumerate(entries)}
    found: dict[int, dict[int, Score]] = {at: {} for at in row.values()}
    for one in queries.scores(entry=list(row)):
        found[row[one.entry]][one.scope] = one
    return found


_columns: WeakKeyDictionary[Queries, dict[str, list[list[int]]]] = WeakKeyDictionary()


def _suite_columns(queries: Queries) -> Mapping[str, list[list[int]]]:
    """The numbers of the scopes of each suite's columns, by its first convention."""
    if queries not in _columns:
        _columns[queries] = {
            slug: [[queries.scope_ids[s.form] for s in some] for some in one.scopes(views(one.suite)[0])]
            for slug, one in queries.suites.items()
        }
    return _columns[queries]


Held = Mapping[str, Sequence[set[int]]]
"""By suite, for each entry the places of columns."""


def _overlaps(
    queries: Queries, scores: Scores, printed: Mapping[str, Mapping[int, set[int]]], *, pinned: bool
) -> dict[str, int]:
    """How many columns of each suite all entries have; suites without any are left out."""
    counted = (0,) if pinned else (0, OTHER)
    return _shared(
        _held(queries, scores, printed, lambda one: one.value is not None and one.reason in counted)
    )


def _shared(held: Held) -> dict[str, int]:
    return {slug: n for slug, rows in held.items() if (n := len(set.intersection(*rows)))}


def _held(
    queries: Queries,
    scores: Scores,
    printed: Mapping[str, Mapping[int, set[int]]],
    fits: Callable[[Score], bool],
) -> Held:
    """The columns of which each entry has scores that fit, or that a paper prints of it."""
    good = [{number for number, one in own.items() if fits(one)} for own in scores.values()]
    return {
        slug: [
            printed.get(slug, {}).get(row, set())
            | {at for at, some in enumerate(columns) if some and known.issuperset(some)}
            for row, known in enumerate(good)
        ]
        for slug, columns in _suite_columns(queries).items()
    }


def _printed(queries: Queries, averages: Averages) -> dict[str, dict[int, set[int]]]:
    """The columns of which papers print numbers or the type's mean: by suite and row."""
    found: dict[str, dict[int, set[int]]] = {}
    for (slug, _), rows in averages.items():
        for row, document in rows.items():
            names, types = document.get("columns", {}), document.get("types", {})
            columns = queries.suites[slug].suite.columns
            there = {at for at, one in enumerate(columns) if one.name in names or one.type in types}
            found.setdefault(slug, {}).setdefault(row, set()).update(there)
    return found


def _most(
    queries: Queries,
    scores: Scores,
    printed: Mapping[str, Mapping[int, set[int]]],
    overlaps: Mapping[str, int],
) -> str:
    """The suite with the most in common: columns that all have, times the share of the suite's columns.

    A main suite goes first where all have half of it. Where nothing is in common on the pinned data,
    other data serves to choose, and then what anybody has.
    """
    some = overlaps
    if not some:
        held = _held(queries, scores, printed, lambda one: one.reason != NONE)
        some = _shared(held) or {slug: sum(map(len, rows)) for slug, rows in held.items()}
    shares = {slug: n / len(queries.suites[slug].suite.columns) for slug, n in some.items()}
    main = [slug for slug in some if queries.suites[slug].main and shares[slug] >= 0.5]
    return max(main or some or queries.suites, key=lambda slug: some.get(slug, 0) * shares.get(slug, 0))


Averages = Mapping[tuple[str, str], Mapping[int, Mapping[str, Any]]]
"""By suite and convention: what is known of the means of each entry, by row."""


def _averages(queries: Queries, entries: Sequence[Entry]) -> Averages:
    row = {entry.id: at for at, entry in enumerate(entries)}
    found: dict[tuple[str, str], dict[int, Mapping[str, Any]]] = {}
    for entry, suite, convention, document in queries.averages(list(row)):
        if suite in queries.suites:
            found.setdefault((suite, convention), {})[row[entry]] = document
    return found


LONG = 160
"""Characters of a value that a page prints, at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """A field that differs: each entry's values, and on how many of the tasks they differ."""

    name: str
    values: Sequence[Sequence[Any]]
    tasks: int


@dataclass(kw_only=True)
class _Found:
    """Values of a field, by entry, while they are collected."""

    values: list[list[Any]]
    tasks: int = 0


@dataclass(frozen=True, kw_only=True)
class Differences:
    """What differs between measured entries: the fields, between whom, and over how many tasks."""

    entries: Sequence[Entry] = ()
    fields: Sequence[Field] = field(default_factory=list)
    tasks: int = 0


def measured_differences(queries: Queries, common: Common) -> Differences:
    """Fields of identity and provenance in which measured entries differ on tasks that all have."""
    rows = [row for row, entry in enumerate(common.entries) if entry.origin == "measured"]
    if len(rows) < 2:
        return Differences()
    documents = _documents(queries, common, rows)
    tasks = [
        [Comparable(identity=d["identity"]).fields(d["provenance"]) for d in (documents[one] for one in ids)]
        for at in common.columns
        for ids in [[int(common.grid.results[row, at]) for row in rows]]
        if all(one in documents for one in ids)
    ]
    return Differences(
        entries=[common.entries[row] for row in rows], fields=differing(tasks), tasks=len(tasks)
    )


def differing(tasks: Sequence[Sequence[Mapping[str, Any]]]) -> list[Field]:
    """The fields in which several differ on some task.

    Args:
        tasks: For each task, each one's fields.

    >>> [(f.name, f.values, f.tasks) for f in differing([[{"a": 1, "b": 2}, {"a": 1, "b": 3}]])]
    [('b', [[2], [3]], 1)]
    """
    found: dict[str, _Found] = {}
    for some in tasks:
        for name in sorted({name for fields in some for name in fields}):
            values = [fields.get(name) for fields in some]
            if all(value == values[0] for value in values):
                continue
            there = found.setdefault(name, _Found(values=[[] for _ in some]))
            there.tasks += 1
            for known, value in zip(there.values, values, strict=True):
                if value not in known:
                    known.append(value)
    return [Field(name=name, values=one.values, tasks=one.tasks) for name, one in sorted(found.items())]


def _documents(queries: Queries, common: Common, rows: Sequence[int]) -> dict[int, Any]:
    ids = [int(n) for n in common.grid.results[rows][:, common.columns].ravel() if n]
    return queries.result_documents(ids)


def differences_table(found: Differences, letters: Mapping[int, str]) -> Table:
    """The fields of measured entries, which differ."""
    return Table(
        name="differences",
        caption="Measured entries: fields that differ on tasks that all have",
        columns=[
            Column(key="field", label="Field", sticky=True),
            *(Column(key=f"e{at}", label=letters[entry.id]) for at, entry in enumerate(found.entries)),
            Column(key="tasks", label="Tasks", numeric=True, note="On how many of the tasks it differs."),
        ],
        rows=[
            Row(
                cells=[
                    Cell(text=one.name, value=one.name),
                    *(_values_cell(values) for values in one.values),
                    Cell(text=f"{one.tasks} of {found.tasks}", value=one.tasks),
                ]
            )
            for one in found.fields
        ],
        notes=["Times, rates and memory are left out: they are measurements, not conditions."],
    )


def _values_cell(values: Sequence[Any]) -> Cell:
    told = "; ".join(_plain(value) for value in values[:3])
    told += f"; and {len(values) - 3} more" if len(values) > 3 else ""
    return Cell(text=_short(told), value="; ".join(_plain(value) for value in values[:20]))


def _plain(value: Any) -> str:
    if value is None:
        return "not there"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _short(text: str) -> str:
    """A value of a table; hashes are cut."""
    text = re.sub(r"\b[0-9a-f]{16,}\b", lambda found: found[0][:12], text)
    return text if len(text) <= LONG else f"{text[:LONG]} …"


def origins_table(queries: Queries, common: Common) -> Table:
    """In what else the entries differ, as far as their sources say it."""
    entries = common.entries
    data = _data(common)
    facts = {entry.id: queries.facts(entry) for entry in entries}
    makes: Sequence[tuple[str, Callable[[Entry], str]]] = (
        ("Origin", lambda entry: entry.origin),
        ("Source", lambda entry: entry.source),
        ("Trust in the revision", lambda entry: entry.trust),
        ("Revision", lambda entry: entry.revision or "not known"),
        ("Treatment", lambda entry: entry.treatment or "the source does not say"),
        ("Output", lambda entry: entry.output),
        ("mteb", lambda entry: _mteb(facts[entry.id])),
        ("Data", lambda entry: data[entry.id]),
    )
    rows = [(name, [make(entry) for entry in entries]) for name, make in makes]
    return Table(
        name="origins",
        caption="Where the numbers come from: what differs",
        columns=[
            Column(key="field", label="Field", sticky=True),
            *(Column(key=f"s{at}", label=label) for at, label in enumerate(labels(entries))),
        ],
        rows=[
            Row(cells=[Cell(text=name, value=name), *(Cell(text=_short(v), value=v) for v in values)])
            for name, values in rows
            if len(set(values)) > 1
        ],
    )


def _mteb(facts: Mapping[str, Any]) -> str:
    """The version of mteb that scored, where it is known."""
    told = facts.get("mteb_versions") or facts.get("treatment", {}).get("scoring") or "not known"
    return told if isinstance(told, str) else ", ".join(map(str, told))


def _data(common: Common) -> dict[int, str]:
    """For each entry, on how many of the columns that all have its data is the suite's."""
    other = common.grid.reasons == OTHER
    count = len(common.columns)
    return {
        entry.id: f"the suite’s on {count - int(other[row, common.columns].sum())} of {count} columns"
        for row, entry in enumerate(common.entries)
    }


SHORT: dict[Reason, str] = {
    "none": "not run",
    "failed": "failed",
    "other": "other data",
    "bad": "impossible value",
    "part": "splits or subsets missing",
}
"""Why a cell does not count, in few words."""


def entry_columns(common: Common, *, numeric: bool = True) -> list[Column]:
    """A column for each entry."""
    return [Column(key=f"s{at}", label=label, numeric=numeric) for at, label in enumerate(common.labels)]


def means_table(common: Common) -> Table:
    """Means over the columns that all have, and below them each entry's own."""
    grid, suite = common.grid, common.grid.site_suite.suite
    count, whole = len(common.columns), len(suite.columns)
    rows = []
    if np.isfinite(common.over_tasks).all():
        told = f"{whole if grid.over_tasks.complete.all() else count} of {whole} columns"
        rows.append(_mean_row("Over tasks", told, common.over_tasks, common))
    if common.untouched:
        told = f"{len(common.untouched)} of {whole} columns"
        rows.append(_mean_row("Over untouched tasks", told, common.mean(common.untouched)))
    if len(grid.by_type) > 1:
        told = f"{len(common.types)} of {len(grid.by_type)} types, as below"
        rows.append(_mean_row("Over types", told, common.over_types, common))
        rows += [
            _mean_row(kind, f"{one.columns} of {one.wanted} columns", one.values, common, kind)
            for kind, one in common.types.items()
        ]
    own = [_own_row("Own, over tasks", grid, grid.over_tasks, "columns")]
    own += [_own_row("Own, over types", grid, grid.over_types, "types")] if len(grid.by_type) > 1 else []
    return Table(
        name="means",
        caption=f"{suite.title}: means × 100 over what all have",
        columns=[
            Column(key="mean", label="Mean", sticky=True),
            Column(key="of", label="Of"),
            *entry_columns(common),
        ],
        rows=[*rows, *own],
        notes=[
            "Like for like: over columns that all of them have. Rows that begin with “Own” are over "
            "whatever each has, so compare them only where they are complete.",
            *_selection_notes(common),
        ],
    )


def _selection_notes(common: Common) -> list[str]:
    """What is to be known where columns chose some of the entries."""
    if common.untouched is None:
        return []
    rest = "the mean over untouched tasks leaves them out, for all alike"
    return [
        f"Scores on {', '.join(common.selected)} chose a checkpoint or a setting of some of these models, "
        f"and err upward there: "
        f"{rest if common.untouched else 'nothing that all of them have is untouched'}."
    ]


def _mean_row(name: str, told: str, values: Floats, common: Common | None = None, kind: str = "") -> Row:
    """A row of means; marked, where columns are given, of entries that some of these chose."""
    best = np.nanmax(values) if np.isfinite(values).any() else None
    cells = [
        Cell(text=score_text(v), value=_means_number(v), kind="best" if v == best else "")
        for v in map(float, values)
    ]
    if common is not None:
        cells = [mean_of(cell, common.grid, row, kind) for row, cell in enumerate(cells)]
    return Row(cells=[Cell(text=name, value=name), Cell(text=told, value=told), *cells])


def _own_row(name: str, grid: SuiteScores, means: Means, what: str) -> Row:
    cells = [mean_of(_own_cell(means, row, what), grid, row) for row in range(len(means.values))]
    return Row(cells=[Cell(text=name, value=name), Cell(text=f"{means.expected} {what}"), *cells])


def _own_cell(means: Means, row: int, what: str) -> Cell:
    there, value = int(means.count[row]), float(means.values[row])
    if not there:
        return Cell(text="–", kind="none")
    if means.complete[row]:
        return Cell(text=score_text(value), value=value)
    told = f"{score_text(value)} ({there}/{means.expected})"
    return Cell(text=told, value=value, kind="part", note=f"over {there} of {means.expected} {what}")


def _means_number(value: float) -> float | None:
    return value if value == value else None


def missing_table(common: Common) -> Table:
    """Columns that some of them have and others do not, with why."""
    grid, suite = common.grid, common.grid.site_suite.suite
    there = grid.reasons != REASONS.index("none")
    some = [at for at in range(len(suite.columns)) if at not in set(common.columns) and there[:, at].any()]
    nobody = int((~there.any(axis=0)).sum())
    return Table(
        name="missing",
        caption="Not compared, as not all have it",
        columns=[
            Column(key="name", label="Task", sticky=True), Column(key="type", label="Type"),
            *entry_columns(common),
        ],
        rows=[_missing_row(common, at) for at in some],
        notes=[f"{nobody} columns of the suite that nobody has are left out."] if nobody else [],
    )  # fmt: skip


def _missing_row(common: Common, at: int) -> Row:
    column = common.grid.site_suite.suite.columns[at]
    href = column_path(common.grid.site_suite, column)
    cells = [_why_cell(common, row, at) for row in range(len(common.entries))]
    name = Cell(text=column.name, value=column.name, href=href)
    return Row(cells=[name, Cell(text=column.type, value=column.type), *cells], key=column.name)


def _why_cell(common: Common, row: int, at: int) -> Cell:
    grid = common.grid
    reason, value = REASONS[grid.reasons[row, at]], float(grid.values[row, at])
    if reason == "seeds":
        return some_seeds(int(grid.seeds[row, at]), len(grid.entries[row].seeds))
    if grid.counted[row, at]:
        return Cell(text=score_text(value), value=value)
    if reason == "other" and value == value:
        return Cell(text=f"{score_text(value)}, {SHORT[reason]}", value=value, kind="other")
    kind = reason if reason in ("none", "failed", "bad") else ""
    return Cell(text=SHORT.get(reason, "–"), kind=kind) if reason else EMPTY
