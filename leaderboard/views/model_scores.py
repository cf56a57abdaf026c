"""The scores of one model: its entries in every suite, its results by task, and what kept snapshots say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import duckdb

from harness.results.reported import Paper
from harness.results.scores import score_text
from leaderboard.data.entries import format_seeds
from leaderboard.data.queries import Entry, EntryResult, Queries, ScopeScore
from leaderboard.data.scores import NONE, SuiteScores
from leaderboard.data.snapshot import Snapshot
from leaderboard.data.suites import REASONS, WHY, Scope, SiteSuite, list_conventions
from leaderboard.data.tables import SETTINGS
from leaderboard.views.cells import STATED, describe_stated
from leaderboard.views.sorting import Field, fill_table
from leaderboard.views.suite_table import build_count_cell, build_mean_cell, format_entry_kinds, mean_cell
from leaderboard.views.task_scores import format_task_path
from leaderboard.views.training import was_chosen
from leaderboard.web.marks import find_leak_kinds, format_leak_count, format_part_mean
from leaderboard.web.page_state import build_address
from leaderboard.web.table_formats import add_seed_deviation, build_seeds_cell
from leaderboard.web.tables import EMPTY, Cell, Table, link, values_table

TRUST = {
    "measured": "weights known by their hash", "commit": "pinned to a commit",
    "external": STATED, "none": "not stated", "other": "no commit", "reported": "not stated",
}  # fmt: skip
"""How far an entry's model is known, in words."""

UNKNOWN = "not known"
"""The type or metric of a task that only an import names."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Standing:
    """An entry in one suite by one convention: its row among the entries of its model, and its rank.

    The rank, which `tied` others share, is among `ranked` models; 0 where it has none.
    """

    scores: SuiteScores
    row: int
    rank: int = 0
    ranked: int = 0
    tied: int = 0

    @property
    def entry(self) -> Entry:
        """Whose it is."""
        return self.scores.entries[self.row]

    @property
    def suite(self) -> SiteSuite:
        """The suite."""
        return self.scores.site_suite

    @property
    def average(self) -> Mapping[str, Any]:
        """What else is known of its means (SuiteScores.averages)."""
        return self.scores.averages.get(self.row) or {}

    @property
    def mean(self) -> float:
        """The mean over the suite's tasks that count."""
        return float(self.scores.over_tasks.values[self.row])

    @property
    def complete(self) -> bool:
        """Whether every task of the suite counts."""
        return bool(self.scores.over_tasks.complete[self.row])


def iter_present_scores(
    queries: Queries, entries: Sequence[Entry], *, boards: bool = False, pinned: bool = False
) -> Iterator[SuiteScores]:
    """Every suite by every convention in which some entries have anything: numbers, or printed means.

    Args:
        queries: The site's queries.
        entries: The rows, in order.
        boards: Whether only the boards are asked for.
        pinned: Whether only scores on the pinned revisions of the data count.
    """
    ids = [entry.id for entry in entries]
    present = {score.scope for score in queries.find_scores(entry=ids)}
    means = queries.list_averages(ids)
    printed = {(slug, name) for _, slug, name, one in means if one.get("columns") or one.get("types")}
    for slug, site_suite in queries.suites.items():
        for convention in list_conventions(site_suite.suite) if site_suite.main or not boards else ():
            scopes = chain(*queries.list_scope_columns(site_suite, convention))
            if (slug, convention) in printed or any(number in present for number in scopes):
                yield queries.load_suite_scores(site_suite, convention, entries=entries, pinned=pinned)


def iter_standings(queries: Queries, entries: Sequence[Entry], *, boards: bool = False) -> Iterator[Standing]:
    """The entries of one model in every suite in which they have anything, or on the boards alone."""
    for scores in iter_present_scores(queries, entries, boards=boards):
        if scores.site_suite.main:
            # The random encoder, which says what chance gives, is another model.
            chance = queries.load_suite_scores(scores.site_suite, scores.convention).chance
            # A suite without any ranked score knows no columns.
            scores = replace(scores, chance=chance) if chance.size else scores
        for row in range(len(entries)):
            average = scores.averages.get(row) or {}
            if (scores.reasons[row] != NONE).any() or average.get("columns") or average.get("types"):
                yield _rank_standing(queries, Standing(scores=scores, row=row))


def _rank_standing(queries: Queries, one: Standing) -> Standing:
    """An entry in a suite, with its rank on the suite's page where the suite is a board."""
    entry = one.entry
    if not one.complete or not one.suite.main or entry.origin == "reported" or entry.member:
        return one
    suite_scores = queries.load_suite_scores(one.suite, one.scores.convention)
    places = suite_scores.compute_ranks("tasks", "model").place
    place = int(places[suite_scores.row_of[entry.id]])
    tied = int((places == place).sum()) - 1 if place else 0
    return replace(one, rank=place, ranked=int((places > 0).sum()), tied=tied)


def build_suites_tables(
    queries: Queries, rows: Sequence[Standing], path: str, papers: Mapping[str, Paper]
) -> list[Table]:
    """The boards, and the other suites with the fullest first: a row for each entry that is in it.

    Args:
        queries: The site's queries.
        rows: The model's entries in suites.
        path: The model's page.
        papers: The papers by slug, whose names conventions have.
    """
    names = {slug: paper.name for slug, paper in papers.items()}
    origins, slugs = ("measured", "imported", "reported"), list(queries.suites)
    boards = [one for one in rows if one.suite.main]
    boards.sort(key=lambda one: (slugs.index(one.suite.slug), origins.index(one.entry.origin)))
    others = [one for one in rows if not one.suite.main]
    others.sort(key=lambda one: -one.scores.over_tasks.count[one.row] / one.scores.over_tasks.expected)
    both = [("boards", "Ranks and means × 100 on the boards", boards),
            ("others", "Other suites: means × 100", others)]  # fmt: skip
    shown = {field.key: field for field in SUITE_FIELDS}
    shown["convention"] = replace(
        shown["convention"], cell=lambda one: names.get(one.scores.convention, one.scores.convention)
    )

    def build_source(one: Standing) -> Cell:
        cell = build_source_cell(one.entry, path)
        stated = describe_stated(one.scores, one.row, queries.entries)
        return cell if not stated or stated in cell.note else replace(cell, note=f"{stated}; {cell.note}")

    fields = [*shown.values(), Field("source", "Source", build_source)]
    return [build_standings_table(name, caption, some, fields) for name, caption, some in both if some]


def build_standings_table(
    name: str, caption: str, rows: Sequence[Standing], fields: Sequence[Field[Standing]]
) -> Table:
    """A row for each entry in a suite; columns of nothing are left out."""
    shown = [field for field in fields if any(field.build_cell(one).text for one in rows)]
    columns = [
        replace(field, sticky=not at, card=field.label.lower() if at else "")
        for at, field in enumerate(shown)
    ]
    return fill_table(
        name, caption, columns, rows, key=lambda one: one.entry.slug, notes=list(_iter_standing_notes(rows)),
        kind=lambda one: "" if one.complete else "part", cards=True,
    )  # fmt: skip


def _build_suite_cell(one: Standing) -> Cell:
    convention = one.scores.convention
    is_alternative = convention and convention != list_conventions(one.suite.suite)[0]
    href = build_address(f"/suites/{one.suite.slug}", {"view": convention} if is_alternative else None)
    return Cell(text=one.suite.suite.title, value=one.suite.slug, href=href)


def _mean_over_untouched(one: Standing) -> Cell:
    """The mean over the tasks that did not choose the model, with their number; empty where none chose."""
    chose = one.scores.find_selection_columns(one.row)
    if not chose:
        return EMPTY
    untouched = one.scores.compute_untouched_means([one.row])
    if untouched is None:
        return Cell(text="none", kind="none", note="Scores on every task chose the model.")
    cell = mean_cell(untouched.over_tasks, one.row, None, one.entry.seeds)
    count = untouched.over_tasks.count[one.row]
    note = f"over {untouched.part.count} tasks, without {', '.join(chose)}"
    return replace(cell, text=f"{cell.text} ({count})" if count else "–", note=note)


SUITE_FIELDS: Sequence[Field[Standing]] = [
    Field("name", "Suite", _build_suite_cell),
    Field("convention", "Convention", sort=lambda one: one.scores.convention or None,
          note="The paper's convention that makes a task's number."),
    Field("rank", "Rank", sort=lambda one: one.rank or None, numeric=True,
          note="By the mean over tasks, of models with all; those that cannot be told apart share one."),
    Field("ranked", "of", sort=lambda one: one.ranked or None, numeric=True,
          note="How many models have a rank."),
    Field("tasks", "Mean over tasks", lambda one: build_mean_cell(one.scores, one.row), numeric=True),
    Field("types", "over types", lambda one: build_mean_cell(one.scores, one.row, "types"), numeric=True,
          note="The mean of the task types' own means."),
    Field("untouched", "over untouched tasks", _mean_over_untouched, numeric=True,
          note="The mean over the tasks whose scores did not choose this model."),
    Field("count", "Tasks", lambda one: build_count_cell(one.scores, one.row), numeric=True,
          note="How many of the suite's tasks count."),
    Field("tied", "Tied with", sort=lambda one: one.tied or None, numeric=True,
          note="How many other models share the rank."),
]  # fmt: skip
"""The columns of an entry's suites."""


def _iter_standing_notes(rows: Sequence[Standing]) -> Iterator[str]:
    if any(one.entry.origin == "reported" for one in rows):
        yield "Numbers of papers stand beside measured and imported ones, and are never ranked with them."
    board_rows = [one for one in rows if one.suite.main and one.complete and one.entry.origin != "reported"]
    if any(not one.rank for one in board_rows):
        yield "Where a complete entry has no rank, another entry of the model has it, or its seeds together."
    if any(not one.complete for one in rows):
        yield "A mean in italics is over a part of the tasks: it has no rank and is not to be compared."
    if any(one.scores.find_selection_columns(one.row) for one in rows):
        yield (
            "Scores on tasks chose this model, and err upward there: the mean over untouched tasks leaves "
            "these out, and stands with the number of the others. Ranks are by the mean over all."
        )


def build_source_cell(entry: Entry, path: str) -> Cell:
    """Where an entry's scores come from: a treatment, an import or a paper's table."""
    if entry.origin == "reported":
        href, text = build_address(f"/papers/{entry.source}"), entry.treatment
    else:
        href, text = f"{path}?entry={entry.slug}", f"{entry.origin}, {format_entry_name(entry)}"
    short = text if len(text) <= 50 else f"{text[:22]}…{text[-27:]}"
    note = "; ".join(filter(None, (entry.lineage_text or entry.treatment, TRUST[entry.trust])))
    kind = f"{entry.origin} {format_entry_kinds(entry)}".strip()
    return Cell(text=short, value=text, href=href, note=note, kind=kind)


def format_entry_name(entry: Entry) -> str:
    """What tells an entry from the others of its model: seeds, a revision, a hash."""
    if entry.revisions:
        return f"from {len(entry.revisions)} revisions"
    if entry.seeds or entry.origin == "reported":
        return format_seeds(entry.seeds) if entry.seeds else "printed"
    word = "revision " if entry.revision and entry.trust != "commit" else ""
    return f"{word}{(entry.revision or entry.artifact or entry.slug)[:12]}"


@dataclass(frozen=True, kw_only=True, eq=False)
class EntryResults:
    """The results of an entry by task, why suites do not count them, and the suites that it is in.

    `chosen` has the results on whose own scores settings were chosen, `revisions` the joined ones of the
    model by the number of their entry, `part_means` the means of the parts that a task's result contradicts.
    """

    entry: Entry
    rows: Mapping[str, Any]
    reasons: Mapping[int, frozenset[str]]
    standings: Sequence[Standing]
    chosen: frozenset[int]
    revisions: Mapping[int, str]
    part_means: Mapping[str, float]

    @property
    def intervals(self) -> dict[tuple[str, str], tuple[float, float]]:
        """The 95 % intervals of scores, by task and convention."""
        return {
            (column.tasks[0].name, one.scores.convention): (low, high)
            for one in self.standings
            for at, column in enumerate(one.suite.suite.columns)
            for low, high in [(float(one.scores.low[one.row, at]), float(one.scores.high[one.row, at]))]
            # NaN, which is no interval, is not equal to itself.
            if one.scores.convention and low == low and len(column.tasks) == 1
        }


def load_entry_results(queries: Queries, entries: Sequence[Entry]) -> list[EntryResults]:
    """What is known of the scores of some entries."""
    ids = [entry.id for entry in entries]
    scores, rows = queries.find_scores(entry=ids), queries.find_results(entry=ids)
    in_suites = list(iter_standings(queries, entries))
    trained = {entry.id for entry in entries if entry.origin == "measured" and entry.output == "label"}
    records = queries.load_result_documents([row.id for row in rows if row.entry in trained])
    chosen = frozenset(number for number, one in records.items() if was_chosen(one.get("training") or {}))
    results = []
    for entry in entries:
        entry_rows = {row.task: row for row in rows if row.entry == entry.id}
        means = {task: queries.find_part_means(task, [entry]) for task in entry_rows}
        results.append(EntryResults(
            entry=entry, rows=entry_rows, chosen=chosen,
            standings=[one for one in in_suites if one.entry is entry],
            reasons=collect_reasons(score for score in scores if score.entry == entry.id),
            revisions={m.id: m.revision or "" for m in queries.list_members(entry) if entry.revisions},
            part_means={task: some[entry.id] for task, some in means.items() if some},
        ))  # fmt: skip
    return results


def collect_reasons(scores: Iterable[ScopeScore]) -> dict[int, frozenset[str]]:
    """Why suites do not count results, by the results' numbers; an empty reason where one counts it."""
    reasons: dict[int, frozenset[str]] = {}
    for score in scores:
        reasons[score.result] = reasons.get(score.result, frozenset()) | {REASONS[score.reason]}
    return reasons


def build_score_cell(row: Any, entry: Entry, kinds: str = "", note: str = "") -> Cell:
    """The score of a result times 100, or why it has none."""
    if row.status == "failed":
        return Cell(text="×", kind="failed", note="It was run and failed: its result says why.")
    if row.status == "part":
        return build_seeds_cell(row.seeds or 0, len(entry.seeds))
    if row.status == "empty":
        return Cell(text="–", kind="none", note="Its file holds no score.")
    if row.value is None:
        return Cell(text="!", kind="bad", note="A score is impossible (above 1, or no number) or missing.")
    cell = Cell(text=score_text(row.value), value=row.value, kind=kinds, note=note)
    return add_seed_deviation(cell, row.deviation, entry.seeds)


def _build_result_cell(results: EntryResults, task: str) -> Cell:
    """An entry's score on a task, with its marks; empty where it has none."""
    row = results.rows.get(task)
    if row is None:
        return EMPTY
    reasons = results.reasons.get(row.id, frozenset())
    kinds = list_result_kinds(results.entry, row, reasons)
    kinds += ["chosen"] if row.id in results.chosen else []
    notes = [*(format_leak_count(n) for n in [row.trained_on] if n), describe_result_data(row.data, reasons)]
    if (mean := results.part_means.get(task)) is not None:
        kinds, notes = [*kinds, "contradicted"], [format_part_mean(mean), *notes]
    revision = results.revisions.get(row.source)
    is_stated = (revision or results.entry.revision) == "external"
    notes += [STATED] if is_stated else [] if revision is None else [f"revision {revision} of the model"]
    notes += [f"measured {row.written[:16].replace('T', ' ')} UTC"] if row.written else []
    cell = build_score_cell(row, results.entry, " ".join(kinds), "; ".join(notes))
    return replace(cell, href=f"/results/{row.id}")


def list_result_kinds(entry: Entry, row: Any, reasons: frozenset[str]) -> list[str]:
    """Why a result flatters an entry, or is not what suites ask for, as kinds."""
    # Without splits and subsets, as one result may answer several suites with different parts.
    scope = Scope(task=row.task, splits=(), subsets=(), data=row.data)
    kinds = find_leak_kinds(entry, [scope], row.trained_on)
    return kinds + [reason for reason in ("other", "part") if reason in reasons and "" not in reasons]


def describe_result_data(data: str, reasons: frozenset[str]) -> str:
    """Which data a result is of, and why suites do not count it as it is."""
    text = f"data {data}" if data else "its source proves no revision of the data"
    if not reasons:
        return f"{text}; no suite has this task"
    return text if "" in reasons else "; ".join([text, *(WHY[reason] for reason in WHY if reason in reasons)])


def build_result_fields(entries: Sequence[EntryResults]) -> list[Field[Any]]:
    """The columns of results by task, one for each entry; the first entry's sorts, and is shown in full."""

    def build_fact_cell(value: str) -> Cell:
        return Cell(text=value or UNKNOWN, value=value or None)

    def build_score_field(place: int, results: EntryResults) -> Field[Any]:
        label = f"{results.entry.origin}, {format_entry_name(results.entry)}"
        key, sort = (f"score:{results.entry.slug}", None) if place else ("score", lambda row: row.value)
        return Field(key, label, lambda row: _build_result_cell(results, row.task), sort, numeric=True)

    return [
        Field("name", "Task", lambda row: link(row.task, format_task_path(row.task)),
              lambda row: row.task.casefold(), sticky=True),
        *(build_score_field(place, one) for place, one in enumerate(entries)),
        Field("type", "Type", lambda row: build_fact_cell(row.type), lambda row: row.type.casefold()),
        Field("metric", "Main metric", lambda row: build_fact_cell(row.metric),
              lambda row: row.metric.casefold()),
    ]  # fmt: skip


def build_rank_history(kept: Sequence[Snapshot], entries: Sequence[Entry], slug: str) -> Table:
    """The ranks that a model had on the boards, with its means × 100.

    Args:
        kept: Snapshots, the oldest first.
        entries: Its entries, the best known first, whose lasting name all of its checkpoints share.
        slug: Its name in URLs.
    """
    name = entries[0].typed_names[0] if entries else ""
    ranks = [(one, one.ranks.get(name, {})) for one in reversed(kept)]
    suites = dict.fromkeys(suite for _, texts in ranks for suite in texts)
    lines = [
        [_link_snapshot(one, f"/models/{slug}"), *(Cell(text=texts.get(suite, "")) for suite in suites)]
        for one, texts in ranks
        if texts
    ]
    labels = {"snapshot": "Snapshot", **{f"suite{at}": suite for at, suite in enumerate(suites)}}
    return values_table("history", "Ranks and means × 100 in earlier snapshots", labels, lines)


def build_score_history(kept: Sequence[Snapshot], result: EntryResult) -> Table:
    """The scores that an entry had on a task in snapshots, the oldest first."""
    sql = "SELECT arg_max(value, coalesce(written, '')) FROM read_parquet(?) WHERE entry = ? AND task = ?"
    lines = []
    with duckdb.connect(config={**SETTINGS, "threads": 1}) as connection:
        for snapshot in reversed(kept):
            values = [snapshot.list_table_files("results"), result.entry, result.task]
            ((score,),) = connection.execute(sql, values).fetchall()
            if score is not None:
                place = _link_snapshot(snapshot, format_task_path(result.task))
                lines.append([place, Cell(text=score_text(score), value=score)])
    labels = {"snapshot": "Snapshot", "score": "Score × 100"}
    return values_table("history", "The score in earlier snapshots", labels, lines, "score")


def _link_snapshot(snapshot: Snapshot, path: str) -> Cell:
    return link(f"{snapshot.made[:10]} {snapshot.id}", build_address(f"/s/{snapshot.id}{path}"))
