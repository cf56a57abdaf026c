"""The page that puts entries side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from leaderboard.filters import Control, Form, form
from leaderboard.page import missing
from leaderboard.pages.compare.chosen import LEAST, MOST, PATH, Chooser, chooser, chosen, labels
from leaderboard.pages.compare.common import Common, common
from leaderboard.pages.compare.differences import differences_table, measured_differences, origins_table
from leaderboard.pages.compare.facts import facts_table
from leaderboard.pages.compare.means import means_table, missing_table
from leaderboard.pages.compare.pair_tables import matrix_table, pairs_table
from leaderboard.pages.compare.pairs import Difference, Pair, pairs
from leaderboard.pages.compare.plots import has_radar, picture
from leaderboard.pages.compare.tasks import tasks_table
from leaderboard.queries import Entry, Queries
from leaderboard.scopes import views
from leaderboard.tables import Table

if TYPE_CHECKING:
    from leaderboard.views.compare import CompareState

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
        plot: The picture; empty where nothing is in common.
        tabs: Which picture: label, URL, current.
        notes: What must be read with it.
        same: Where measured entries were compared and no field differs: over how many tasks.
        data: For the JSON twin.
    """

    title: str
    lead: str
    chooser: Chooser
    form: Form
    tables: Sequence[Table] = ()
    plot: Markup | str = ""
    tabs: Sequence[tuple[str, str, bool]] = ()
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
        plot=picture(made, state.plot) if made.types else "",
        tabs=_tabs(state) if has_radar(made) else (),
        notes=_notes(made, state),
        same=differences.tasks if not differences.fields else 0,
        data=_data(made, found, state),
    )


def _lead(made: Common) -> str:
    suite, count = made.grid.listed.suite, len(made.columns)
    if made.types and not count:
        return f"{suite.title}: all of them have means within {len(made.types)} of its types."
    return f"{suite.title}: all of them have {count} of its {len(suite.columns)} columns."


def _common(queries: Queries, entries: Sequence[Entry], state: CompareState) -> Common:
    loose = state.revisions == "any"
    made = common(queries, entries, suite=state.suite, any_revision=loose)
    known = views(made.grid.listed.suite)
    if state.view in known[1:]:
        return common(queries, entries, suite=made.grid.listed.slug, view=state.view, any_revision=loose)
    every = {name for one in queries.suites.values() for name in views(one.suite)}
    if state.view and state.view not in every:
        raise missing("view", state.view, every, then="A suite's page offers those there are.")
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
    names = [*made.overlaps, *([] if made.grid.listed.slug in made.overlaps else [made.grid.listed.slug])]
    options = [
        (slug, f"{made.overlaps.get(slug, 0)}/{len(suites[slug].suite.columns)} {suites[slug].suite.title}")
        for slug in names
    ]
    found = [_select("suite", "Suite, with what all have", made.grid.listed.slug, options)]
    known = views(made.grid.listed.suite)
    if len(known) > 1:
        found.append(_select("view", "Numbers", made.grid.view, [(n, f"as {n} prints") for n in known]))
    if len(made.by_type) > 1:
        kinds = [("", "all"), *((kind, kind) for kind in made.by_type)]
        found.append(_select("type", "Tasks of type", state.type, kinds))
    return [*found, _select("revisions", "Data revisions", state.revisions, REVISIONS)]


def _select(name: str, label: str, value: str, options: Sequence[tuple[str, str]]) -> Control:
    return Control(kind="select", name=name, label=label, value=value, options=options)


def _tabs(state: CompareState) -> list[tuple[str, str, bool]]:
    labels = {"bars": "Bars by type", "radar": "Radar"}
    return [(label, f"{PATH}?{state.query(plot=kind)}", state.plot == kind) for kind, label in labels.items()]


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
    suite = made.grid.listed.suite
    return {
        "entries": [_entry_json(entry) for entry in made.entries],
        "suite": made.grid.listed.slug,
        "view": made.grid.view or None,
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
