"""The scores of one model: its entries in every suite side by side, and its results by task."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.scores import score_text
from leaderboard.data.queries import Entry, Queries
from leaderboard.data.scores import NONE, SuiteScores
from leaderboard.data.suites import REASONS, WHY, Scope, SiteSuite, views
from leaderboard.pages._suite_table import kinds_of, leaks, made_of, mean_cell, mean_of, texts_text
from leaderboard.pages._task_scores import task_path
from leaderboard.pages._training import was_chosen
from leaderboard.web.formats import over_seeds, seeds_text, some_seeds
from leaderboard.web.parameters import address
from leaderboard.web.tables import EMPTY, Cell, Column, Row, Sorted, Table

TRUST = {
    "measured": "weights known by their hash",
    "commit": "pinned to a commit",
    "external": "stated by its makers",
    "none": "not stated",
    "other": "no commit",
    "reported": "not stated",
}
"""How far an entry's model is known, in words."""

UNKNOWN = "not known"
"""The type or metric of a task that only an import names."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Standing:
    """An entry in one suite by one convention; the rank is 0 where it has none.

    Attributes:
        scores: Those of the suite, of all entries of the model.
        row: The entry's.
        rank: That of the first of those that cannot be told apart from it.
        ranked: How many models have a rank.
        tied: How many others share it.
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
    def complete(self) -> bool:
        """Whether every task of the suite counts."""
        return bool(self.scores.over_tasks.complete[self.row])


def standings(queries: Queries, entries: Sequence[Entry], present: Collection[int]) -> list[Standing]:
    """Every suite in which some entries have anything: numbers of scopes that are `present`, or means."""
    means = queries.averages([entry.id for entry in entries])
    printed = {(slug, name) for _, slug, name, one in means if one.get("columns") or one.get("types")}
    found = []
    for slug, one in queries.suites.items():
        for convention in views(one.suite):
            scopes = (number for column in queries.scope_columns(one, convention) for number in column)
            if (slug, convention) in printed or any(number in present for number in scopes):
                scores = queries.scores_of(entries, one, convention)
                rows = (row for row in range(len(entries)) if _has_any(scores, row))
                found += [_standing(queries, scores, row) for row in rows]
    return found


def _has_any(scores: SuiteScores, row: int) -> bool:
    means = scores.averages.get(row) or {}
    return bool((scores.reasons[row] != NONE).any() or means.get("columns") or means.get("types"))


def _standing(queries: Queries, scores: SuiteScores, row: int) -> Standing:
    """An entry in a suite, with its rank on the suite's page where the suite is a board."""
    entry, complete = scores.entries[row], scores.over_tasks.complete[row]
    if not complete or not scores.site_suite.main or entry.origin == "reported" or entry.member:
        return Standing(scores=scores, row=row)
    whole = queries.suite_scores(scores.site_suite, scores.convention)
    places = whole.ranks("tasks", "model").place
    place = int(places[next(at for at, other in enumerate(whole.entries) if other.id == entry.id)])
    tied = int((places == place).sum()) - 1 if place else 0
    return Standing(scores=scores, row=row, rank=place, ranked=int((places > 0).sum()), tied=tied)


def suites_tables(queries: Queries, found: Sequence[Standing], path: str) -> list[Table]:
    """The boards, and the other suites with the fullest first: a row for each entry that is in it."""
    origins, slugs = ("measured", "imported", "reported"), list(queries.suites)
    boards = [one for one in found if one.suite.main]
    boards.sort(key=lambda one: (slugs.index(one.suite.slug), origins.index(one.entry.origin)))
    others = sorted((one for one in found if not one.suite.main), key=lambda one: -_share(one))
    both = [
        ("boards", "Ranks and means × 100 on the boards", boards),
        ("others", "Other suites: means × 100", others),
    ]
    return [_suites_table(name, caption, some, path) for name, caption, some in both if some]


def _share(one: Standing) -> float:
    return float(one.scores.over_tasks.count[one.row]) / one.scores.over_tasks.expected


def _suites_table(name: str, caption: str, found: Sequence[Standing], path: str) -> Table:
    kept = {
        "convention": any(one.scores.convention for one in found),
        "untouched": any(one.scores.chose(one.row) for one in found),
        "rank": any(one.rank for one in found),
        "ranked": any(one.rank for one in found),
        "tied": any(one.tied for one in found),
    }
    columns = [column for column in SUITE_COLUMNS if kept.get(column.key, True)]
    rows = []
    for one in found:
        cells = dict(zip((column.key for column in SUITE_COLUMNS), _suite_cells(one, path), strict=True))
        kind = "" if one.complete else "part"
        rows.append(Row(cells=[cells[column.key] for column in columns], kind=kind, key=one.entry.slug))
    return Table(name=name, caption=caption, columns=columns, rows=rows, notes=list(_suite_notes(found)))


SUITE_COLUMNS = [
    Column(key="name", label="Suite", sticky=True),
    Column(key="source", label="Source"),
    Column(key="convention", label="Convention", note="The paper's convention that makes a task's number."),
    Column(key="rank", label="Rank", numeric=True,
           note="By the mean over tasks, of models with all; those that cannot be told apart share one."),
    Column(key="ranked", label="of", numeric=True, note="How many models have a rank."),
    Column(key="tied", label="Tied with", numeric=True, note="How many other models share the rank."),
    Column(key="tasks", label="Mean over tasks", numeric=True),
    Column(key="types", label="over types", numeric=True, note="The mean of the task types' own means."),
    Column(key="untouched", label="over untouched tasks", numeric=True,
           note="The mean over the tasks whose scores did not choose this model."),
    Column(key="count", label="Tasks", numeric=True, note="How many of the suite's tasks count."),
]  # fmt: skip


def _suite_cells(one: Standing, path: str) -> Iterator[Cell]:
    own, entry = one.scores, one.entry
    own_view = own.convention and own.convention != views(own.site_suite.suite)[0]
    href = address(f"/suites/{one.suite.slug}", {"view": own.convention} if own_view else None)
    yield Cell(text=one.suite.suite.title, value=one.suite.slug, href=href)
    yield source_cell(entry, path)
    yield Cell(text=own.convention, value=own.convention or None)
    yield from (Cell(text=str(n), value=n) if one.rank else EMPTY for n in (one.rank, one.ranked, one.tied))
    average = own.averages.get(one.row) or {}
    yield mean_of(mean_cell(own.over_tasks, one.row, average, entry.seeds), own, one.row)
    yield mean_of(mean_cell(own.over_types, one.row, None, entry.seeds), own, one.row)
    yield _untouched_cell(one)
    count, expected = int(own.over_tasks.count[one.row]), own.over_tasks.expected
    by_type = bool(average.get("types"))
    yield Cell(text="by type" if by_type else f"{count}/{expected}", value=None if by_type else count)


def source_cell(entry: Entry, path: str) -> Cell:
    """Where an entry's scores come from: a treatment, an import or a paper's table."""
    if entry.origin == "reported":
        href, text = address(f"/papers/{entry.source}"), entry.treatment
    else:
        href, text = f"{path}?entry={entry.slug}", f"{entry.origin}, {entry_name(entry)}"
    short = text if len(text) <= 44 else f"{text[:43]}…"
    note = "; ".join(part for part in (made_of(entry) or entry.treatment, TRUST[entry.trust]) if part)
    return Cell(
        text=short, value=text, href=href, note=note, kind=f"{entry.origin} {kinds_of(entry)}".strip()
    )


def entry_name(entry: Entry) -> str:
    """What tells an entry from the others of its model: seeds, a revision, a hash."""
    if entry.revisions:
        return f"{len(entry.revisions)} revisions joined"
    if entry.seeds or entry.origin == "reported":
        return seeds_text(entry.seeds) if entry.seeds else "printed"
    return (entry.revision or entry.artifact or entry.slug)[:12]


def _untouched_cell(one: Standing) -> Cell:
    """The mean over the tasks that did not choose the model, with their number; empty where none chose."""
    chose, found = one.scores.chose(one.row), one.scores.untouched([one.row])
    if not chose:
        return EMPTY
    if found is None:
        return Cell(text="none", kind="none", note="Scores on every task chose the model.")
    cell, count = (
        mean_cell(found.over_tasks, one.row, None, one.entry.seeds),
        int(found.over_tasks.count[one.row]),
    )
    note = f"over {found.part.count} tasks, without {', '.join(chose)}"
    return replace(cell, text=f"{cell.text} ({count})" if count else "–", note=note)


def _suite_notes(found: Sequence[Standing]) -> Iterator[str]:
    if any(one.entry.origin == "reported" for one in found):
        yield "Numbers of papers stand beside measured and imported ones, and are never ranked with them."
    if any(
        one.suite.main and one.complete and not one.rank and one.entry.origin != "reported" for one in found
    ):
        yield "Where a complete entry has no rank, another entry of the model has it, or its seeds together."
    if any(not one.complete for one in found):
        yield "A mean in italics is over a part of the tasks: it has no rank and is not to be compared."
    if any(one.scores.chose(one.row) for one in found):
        yield (
            "Scores on tasks chose this model, and err upward there: the mean over untouched tasks leaves "
            "these out, and stands with the number of the others. Ranks are by the mean over all."
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class EntryResults:
    """The results of an entry by task, why suites do not count them, and the suites that it is in.

    `chosen` has the results on whose own scores settings were chosen, `revisions` the joined ones of the
    model by the number of their entry.
    """

    entry: Entry
    rows: Mapping[str, Any]
    reasons: Mapping[int, frozenset[str]]
    standings: Sequence[Standing]
    chosen: frozenset[int]
    revisions: Mapping[int, str]

    @property
    def intervals(self) -> dict[tuple[str, str], tuple[float, float]]:
        """The 95 % intervals of scores, by task and convention."""
        return {
            (column.tasks[0].name, one.scores.convention): (low, high)
            for one in self.standings
            for at, column in enumerate(one.suite.suite.columns)
            for low, high in [(float(one.scores.low[one.row, at]), float(one.scores.high[one.row, at]))]
            if one.scores.convention and low == low and len(column.tasks) == 1
        }


def results_of(queries: Queries, entries: Sequence[Entry]) -> list[EntryResults]:
    """What is known of the scores of some entries."""
    ids = [entry.id for entry in entries]
    scores, rows = queries.scores(entry=ids), queries.results(entry=ids)
    found = standings(queries, entries, {score.scope for score in scores})
    trained = {entry.id for entry in entries if entry.origin == "measured" and entry.output == "label"}
    records = queries.result_documents([row.id for row in rows if row.entry in trained]) if trained else {}
    chosen = frozenset(number for number, one in records.items() if was_chosen(one.get("training") or {}))
    return [
        EntryResults(
            entry=entry,
            rows={row.task: row for row in rows if row.entry == entry.id},
            reasons=reasons_of(score for score in scores if score.entry == entry.id),
            standings=[one for one in found if one.entry is entry],
            chosen=chosen,
            revisions={one.id: one.revision or "" for one in queries.members(entry)}
            if entry.revisions
            else {},
        )
        for entry in entries
    ]


def reasons_of(scores: Iterable[Any]) -> dict[int, frozenset[str]]:
    """Why suites do not count results, by the results' numbers; an empty reason where one counts it."""
    found: dict[int, set[str]] = {}
    for score in scores:
        found.setdefault(score.result, set()).add(REASONS[score.reason])
    return {result: frozenset(reasons) for result, reasons in found.items()}


def score_cell(row: Any, entry: Entry, kinds: str = "", note: str = "") -> Cell:
    """The score of a result times 100, or why there is none."""
    if row.status == "failed":
        return Cell(text="×", kind="failed", note="It was run and failed: its result says why.")
    if row.status == "part":
        return some_seeds(row.seeds or 0, len(entry.seeds))
    if row.value is None:
        return Cell(text="!", kind="bad", note="A score is impossible (above 1, or no number) or missing.")
    cell = Cell(text=score_text(row.value), value=row.value, kind=kinds, note=note)
    return over_seeds(cell, row.deviation, entry.seeds)


def result_cell(own: EntryResults, task: str) -> Cell:
    """An entry's score on a task, with its marks; empty where it has none."""
    row = own.rows.get(task)
    if row is None:
        return EMPTY
    reasons = own.reasons.get(row.id, frozenset())
    scope = Scope(task=task, splits=(), subsets=(), data=row.data)  # a result may have several parts
    kinds = leaks(own.entry, [scope], row.trained_on) + (["chosen"] if row.id in own.chosen else [])
    kinds += [reason for reason in ("other", "part") if reason in reasons and "" not in reasons]
    notes = [*(texts_text(n) for n in [row.trained_on] if n), data_text(row.data, reasons)]
    notes += [f"revision {own.revisions[row.source]} of the model"] if row.source in own.revisions else []
    notes += [f"measured {row.written[:16].replace('T', ' ')} UTC"] if row.written else []
    return replace(score_cell(row, own.entry, " ".join(kinds), "; ".join(notes)), href=f"/results/{row.id}")


def data_text(data: str, reasons: frozenset[str]) -> str:
    """Which data a result is of, and why suites do not count it as it is."""
    text = f"data {data}" if data else "its source proves no revision of the data"
    if not reasons:
        return f"{text}; no suite has this task"
    return text if "" in reasons else "; ".join([text, *(WHY[reason] for reason in WHY if reason in reasons)])


SORTS: Mapping[str, Callable[[tuple[str, Any]], Any]] = {
    "task": lambda pair: pair[0].casefold(),
    "type": lambda pair: (pair[1].type or UNKNOWN).casefold(),
    "metric": lambda pair: (pair[1].metric or UNKNOWN).casefold(),
    "score": lambda pair: pair[1].value,
}
"""By which columns results are sorted."""


def sorted_tasks(rows: Mapping[str, Any], sort: str) -> list[str]:
    """Tasks in order, those without a value last."""
    value = SORTS[sort.removeprefix("-")]
    known = [pair for pair in rows.items() if value(pair) is not None]
    known.sort(key=value, reverse=sort.startswith("-"))
    return [task for task, _ in known] + [task for task, row in rows.items() if value((task, row)) is None]


def results_table(rows: Mapping[str, Any], entries: Sequence[EntryResults], state: Any, path: str) -> Table:
    """Results by task, a column for each entry; the first is the one that the page shows in full.

    Args:
        rows: One result of each task, in the order of the rows.
        entries: Whose scores stand side by side.
        state: The page's, with `sort`.
        path: The page's own.
    """
    names = [f"{one.entry.origin}, {entry_name(one.entry)}" for one in entries]
    labels = {"task": "Task", "type": "Type", "metric": "Main metric", "score": names[0]}
    columns = [_sorted_column(key, label, state, path) for key, label in labels.items()]
    others = [
        Column(key=f"score:{one.entry.slug}", label=label, group="score × 100", numeric=True)
        for label, one in zip(names[1:], entries[1:], strict=True)
    ]
    return Table(
        name="results",
        caption="Results by task: main scores × 100",
        columns=[*columns, *others],
        rows=[
            Row(
                key=task,
                cells=[
                    Cell(text=task, value=task, href=task_path(task)),
                    Cell(text=row.type or UNKNOWN, value=row.type or None),
                    Cell(text=row.metric or UNKNOWN, value=row.metric or None),
                    *(result_cell(one, task) for one in entries),
                ],
            )
            for task, row in rows.items()
        ],
        notes=["A score is the mean over all splits and subsets of its result."],
    )


def _sorted_column(key: str, label: str, state: Any, path: str) -> Column:
    """A column with the URL that sorts by it; a second click turns the order."""
    score, down, own = key == "score", state.sort.startswith("-"), state.sort.lstrip("-") == key
    turned = not down if own else score
    now: Sorted = ("descending" if down else "ascending") if own else ""
    url = f"{path}?{state.query(sort='-' * turned + key, page=1)}"
    group, name = ("score × 100", key) if score else ("", "name" if key == "task" else key)
    return Column(
        key=name, label=label, group=group, numeric=score, sticky=key == "task", sort=url, sorted=now
    )
