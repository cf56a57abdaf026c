"""What pages ask of the index."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Row, and_, func, select

from harness.lineage import Lineage
from leaderboard.data.checks import CheckSummary, judged
from leaderboard.data.entries import Origin, Trust
from leaderboard.data.snapshot import AVERAGES, ENTRIES, FILED, RESULTS, SCOPES, SCORES, SiteIndex
from leaderboard.data.suites import Raw, SiteSuite, main_scores, views
from leaderboard.data.watches import WatchSummary, watched

if TYPE_CHECKING:
    from leaderboard.data.scores import Cells, SuiteScores


HELD = 60_000_000
"""Bytes that the scores of suites may take, by estimate."""

SIZES: Mapping[str, tuple[float, float]] = {
    "small": (0, 60e6),
    "base": (60e6, 200e6),
    "large": (200e6, 600e6),
    "xl": (600e6, 2e9),
    "xxl": (2e9, float("inf")),
}
"""Size classes by number of parameters, from (in) and to (out)."""


@cache
def size_class(number: int | None) -> str:
    """The size class of a number of parameters.

    >>> size_class(110_000_000), size_class(None)
    ('base', '')
    """
    known = (name for name, (low, high) in SIZES.items() if number is not None and low <= number < high)
    return next(known, "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One thing with scores, as the index holds it (leaderboard.data.entries.Entry)."""

    id: int
    slug: str
    model: str
    model_slug: str
    origin: Origin
    source: str
    revision: str | None
    trust: Trust
    artifact: str | None
    treatment: str
    recipe: str | None
    output: str
    parameters: int | None
    dimension: int | None
    max_tokens: int | None
    released: str | None
    open_weights: bool | None
    adapted_from: str | None
    trained_on: frozenset[str] | None
    newest: str | None
    tasks: int
    lineage: Lineage | None = None
    group: str | None = None
    seeds: tuple[int, ...] = ()
    member: bool = False

    @property
    def of_seeds(self) -> bool:
        """Whether it stands for several seeds of a training."""
        return len(self.seeds) > 1

    @property
    def size(self) -> str:
        """The size class, empty where the number of parameters is not known."""
        return size_class(self.parameters)

    @property
    def organisation(self) -> str:
        """What stands before the slash of the model's name."""
        return self.model.rpartition("/")[0]

    @property
    def backbone(self) -> str:
        """What the model was made of, by its makers' own account; the model itself where nothing is said."""
        return self.adapted_from or self.model


class IndexChanged(Exception):
    """The index is at another version than what was asked of it."""


class Queries:
    """The index at one version; what was asked is kept until it changes."""

    def __init__(self, index: SiteIndex, version: int) -> None:
        self.index = index
        self.version = version
        self.suites = index.suites
        self._suite_scores: OrderedDict[tuple[str, str, bool], SuiteScores] = OrderedDict()
        self._cells: dict[tuple[str, str], tuple[list[Entry], Cells, Mapping[int, Mapping[str, Any]]]] = {}

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection to the index, for a read that is of this version alone.

        Raises:
            Stale: Somebody brought the index to another version meanwhile.
        """
        with self.index.engine.connect() as connection:
            yield connection
        if self.index.version != self.version:
            raise IndexChanged

    @cached_property
    def entries(self) -> dict[int, Entry]:
        """Every entry by its number, ordered by model and trust."""
        names = Entry.__dataclass_fields__
        wanted = select(*[ENTRIES.c[name] for name in names]).order_by(ENTRIES.c.model, ENTRIES.c.id)
        with self.reading() as connection:
            return {row.id: _entry(row) for row in connection.execute(wanted)}

    @cached_property
    def by_slug(self) -> dict[str, Entry]:
        """Every entry by its name in URLs."""
        return {entry.slug: entry for entry in self.entries.values()}

    @cached_property
    def models(self) -> dict[str, list[Entry]]:
        """The entries of each model, by the model's name in URLs."""
        found: dict[str, list[Entry]] = {}
        for entry in self.entries.values():
            found.setdefault(entry.model_slug, []).append(entry)
        return found

    @cached_property
    def scope_ids(self) -> dict[str, int]:
        """The number of each scope."""
        with self.reading() as connection:
            return {form: number for number, form in connection.execute(select(SCOPES.c.id, SCOPES.c.form))}

    @cached_property
    def tasks(self) -> dict[str, tuple[str, str, int]]:
        """Type, metric and number of results of every task that has any, by name; seeds count once."""
        wanted = (
            select(
                RESULTS.c.task, func.max(RESULTS.c.type), func.max(RESULTS.c.metric), func.count(RESULTS.c.id)
            )
            .where(RESULTS.c.entry.not_in(select(ENTRIES.c.id).where(ENTRIES.c.member)))
            .group_by(RESULTS.c.task)
            .order_by(RESULTS.c.task)
        )
        with self.reading() as connection:
            return {task: (kind, metric, n) for task, kind, metric, n in connection.execute(wanted)}

    @cached_property
    def entries_of_suites(self) -> dict[str, int]:
        """How many entries have a score in each suite, by its slug; suites without any are left out."""
        found = {}
        with self.reading() as connection:
            for slug, one in self.suites.items():
                forms = {s.form for view in views(one.suite) for column in one.scopes(view) for s in column}
                ids = [self.scope_ids[form] for form in forms]
                wanted = select(func.count(SCORES.c.entry.distinct())).where(
                    SCORES.c.scope.in_(ids),
                    SCORES.c.entry.not_in(select(ENTRIES.c.id).where(ENTRIES.c.member)),
                )
                found[slug] = int(connection.scalar(wanted) or 0)
        return {slug: count for slug, count in found.items() if count}

    @cached_property
    def checks(self) -> dict[str, CheckSummary]:
        """Every check by its name in URLs, the newest first."""
        return {
            row.name: judged(row.name, row.written, json.loads(row.facts)) for row in self._filed("check")
        }

    @cached_property
    def checks_of(self) -> dict[str, list[CheckSummary]]:
        """The checks of each candidate by its ArtifactKey, the newest first."""
        found: dict[str, list[CheckSummary]] = {}
        for check in self.checks.values():
            for artifact in check.artifacts:
                found.setdefault(artifact, []).append(check)
        return found

    @cached_property
    def watches(self) -> dict[str, WatchSummary]:
        """Every watch by its name, the one with the newest score first."""
        return {
            row.name: watched(row.name, row.written, json.loads(row.facts)) for row in self._filed("watch")
        }

    def _filed(self, kind: str) -> Sequence[Any]:
        wanted = select(FILED.c.name, FILED.c.written, FILED.c.facts).where(FILED.c.kind == kind)
        with self.reading() as connection:
            return connection.execute(wanted.order_by(FILED.c.written.desc(), FILED.c.name.desc())).all()

    def document(self, kind: str, name: str) -> str:
        """The whole of a check or a watch that is there, as JSON."""
        wanted = select(FILED.c.document).where(FILED.c.kind == kind, FILED.c.name == name)
        with self.reading() as connection:
            return str(connection.execute(wanted).scalar_one())

    def kinds(self) -> frozenset[str]:
        """Of which kinds anything was filed: "check", "watch"."""
        with self.index.engine.connect() as connection:
            return frozenset(connection.scalars(select(FILED.c.kind).distinct()))

    def suite_scores(
        self, site_suite: SiteSuite, convention: str = "", *, pinned: bool = False
    ) -> SuiteScores:
        """A suite put together."""
        key = (site_suite.slug, convention, pinned)
        found = self._suite_scores.get(key)
        if found is None:
            found = self._suite_scores[key] = self._make(site_suite, convention, pinned)
            self._spare()
        self._suite_scores.move_to_end(key)
        return found

    def _spare(self) -> None:
        """Forget the scores that were asked for longest ago when they take more than HELD."""
        while sum(one.size for one in self._suite_scores.values()) > HELD and len(self._suite_scores) > 1:
            self._suite_scores.popitem(last=False)
        kept = {(slug, view) for slug, view, _ in self._suite_scores}
        self._cells = {name: cells for name, cells in self._cells.items() if name in kept}

    def _make(self, listed: SiteSuite, view: str, pinned: bool) -> SuiteScores:
        from leaderboard.data.scores import suite_scores

        forms = listed.scopes(view)
        ids = list(dict.fromkeys(self.scope_ids[scope.form] for column in forms for scope in column))
        column = {number: at for at, number in enumerate(ids)}
        entries, cells, averages = self._known(listed, view, ids)
        columns = [[column[self.scope_ids[scope.form]] for scope in scopes] for scopes in forms]
        return suite_scores(listed, view, entries, cells, columns, averages, pinned=pinned)

    def _known(
        self, listed: SiteSuite, view: str, ids: Sequence[int]
    ) -> tuple[list[Entry], Cells, Mapping[int, Mapping[str, Any]]]:
        """The entries with anything in a suite, their cells by scope, and what is known of their means."""
        key = (listed.slug, view)
        if key not in self._cells:
            self._cells[key] = self._read(listed, view, ids)
        return self._cells[key]

    def _read(
        self, listed: SiteSuite, view: str, ids: Sequence[int]
    ) -> tuple[list[Entry], Cells, Mapping[int, Mapping[str, Any]]]:
        import numpy as np

        from leaderboard.data.scores import NONE, Cells

        wanted = select(
            SCORES.c.scope, SCORES.c.entry, SCORES.c.value, SCORES.c.low, SCORES.c.high, SCORES.c.reason,
            SCORES.c.result, SCORES.c.seeds, SCORES.c.trained_on,
        ).where(SCORES.c.scope.in_(ids))  # fmt: skip
        with self.reading() as connection:
            rows = connection.execute(wanted).all()
            averages = self._averages(connection, listed, view)
        there = {row.entry for row in rows} | averages.keys()
        entries = [entry for number, entry in self.entries.items() if number in there and not entry.member]
        place = {entry.id: at for at, entry in enumerate(entries)}
        column = {number: at for at, number in enumerate(ids)}
        shape = (len(entries), len(ids))
        values, low, high = (np.full(shape, np.nan) for _ in range(3))
        reasons, results = np.full(shape, NONE, np.uint8), np.zeros(shape, np.int64)
        seeds, texts = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        own, others = ([r for r in rows if (r.entry in place) == here] for here in (True, False))
        if own:
            scopes, owners, *numbers, codes, sources, counts, trained = zip(*own, strict=True)
            at = ([place[n] for n in owners], [column[n] for n in scopes])
            for array, found in zip((values, low, high), numbers, strict=True):
                array[at] = np.array(found, float)
            reasons[at], results[at] = codes, sources
            seeds[at], texts[at] = [n or 0 for n in counts], [n or 0 for n in trained]
        cells = Cells(
            values=values, low=low, high=high, reasons=reasons, results=results, seeds=seeds,
            trained_on=texts, by_seed=self._by_seed(entries, others, column),
        )  # fmt: skip
        return entries, cells, {place[n]: document for n, document in averages.items() if n in place}

    def members(self, entry: Entry) -> list[Entry]:
        """The entries that one of several seeds stands for, by their seeds; none for any other."""
        found = [one for one in self.entries.values() if one.member and one.group == entry.group]
        return sorted(found, key=lambda one: one.seeds) if entry.of_seeds else []

    def scores_by_seed(self, entry: Entry) -> list[dict[int, float | None]]:
        """The values by scope of each seed that an entry stands for; empty for any other."""
        members = self.members(entry)
        wanted = select(SCORES.c.entry, SCORES.c.scope, SCORES.c.value)
        found: dict[int, dict[int, float | None]] = {member.id: {} for member in members}
        with self.reading() as connection:
            for row in connection.execute(wanted.where(SCORES.c.entry.in_(list(found)))) if members else ():
                found[row.entry][row.scope] = row.value
        return list(found.values())

    def _by_seed(
        self, entries: Sequence[Entry], rows: Sequence[Any], column: Mapping[int, int]
    ) -> dict[int, Any]:
        """The values of each seed, (seeds, scopes), by the rows that stand for several."""
        from leaderboard.data.scores import seed_values

        values: dict[int, dict[int, float | None]] = {}
        for row in rows:
            values.setdefault(row.entry, {})[row.scope] = row.value
        return {
            at: seed_values([values.get(member.id, {}) for member in self.members(entry)], column)
            for at, entry in enumerate(entries)
            if entry.of_seeds
        }

    def _averages(self, connection: Any, listed: SiteSuite, view: str) -> dict[int, Mapping[str, Any]]:
        wanted = select(AVERAGES.c.entry, AVERAGES.c.document).where(
            AVERAGES.c.suite == listed.slug, AVERAGES.c.view == view
        )
        return {entry: json.loads(document) for entry, document in connection.execute(wanted)}

    def results(self, **where: Any) -> Sequence[Row[Any]]:
        """Results by task, entry, key or number, without their documents."""
        columns = [column for column in RESULTS.c if column.name != "document"]
        wanted = select(*columns)
        for name, value in where.items():
            wanted = wanted.where(
                RESULTS.c[name].in_(value) if isinstance(value, list) else RESULTS.c[name] == value
            )
        with self.reading() as connection:
            return connection.execute(wanted.order_by(RESULTS.c.task, RESULTS.c.id)).all()

    def scores(self, **where: Any) -> Sequence[Row[Any]]:
        """Scores by entry, scope or result, each with the revision of its data."""
        wanted = select(SCORES, RESULTS.c.data).join(RESULTS, RESULTS.c.id == SCORES.c.result)
        for name, value in where.items():
            wanted = wanted.where(
                SCORES.c[name].in_(value) if isinstance(value, list) else SCORES.c[name] == value
            )
        with self.reading() as connection:
            return connection.execute(wanted.order_by(SCORES.c.entry)).all()

    def averages(self, entries: Sequence[int]) -> list[tuple[int, str, str, Mapping[str, Any]]]:
        """What is known of the means of some entries: entry, suite, convention and document."""
        wanted = select(AVERAGES.c.entry, AVERAGES.c.suite, AVERAGES.c.view, AVERAGES.c.document)
        with self.reading() as connection:
            rows = connection.execute(wanted.where(AVERAGES.c.entry.in_(list(entries)))).all()
        return [(entry, suite, convention, json.loads(text)) for entry, suite, convention, text in rows]

    def best_scores(self, scopes: Sequence[int]) -> dict[int, tuple[int, float]]:
        """The entry with the highest score that counts of each scope, and that score."""
        counted = and_(SCORES.c.reason == 0, SCORES.c.scope.in_(list(scopes)), ENTRIES.c.origin != "reported",
                       ENTRIES.c.member.is_(False))  # fmt: skip
        wanted = select(SCORES.c.scope, SCORES.c.entry, SCORES.c.value).join(
            ENTRIES, ENTRIES.c.id == SCORES.c.entry
        )
        order = wanted.where(counted).order_by(SCORES.c.value, SCORES.c.entry.desc())
        with self.reading() as connection:
            return {scope: (entry, value) for scope, entry, value in connection.execute(order)}

    def task_results(self, tasks: Sequence[str]) -> list[tuple[Row[Any], Raw]]:
        """Every result of some tasks with its main scores by split and subset."""
        with self.reading() as connection:
            rows = connection.execute(
                select(RESULTS).where(RESULTS.c.task.in_(list(tasks))).order_by(RESULTS.c.id)
            ).all()
        return [(row, self._raw(row)) for row in rows]

    def _raw(self, row: Row[Any]) -> Raw:
        document = json.loads(row.document)
        if self.entries[row.entry].origin != "measured":
            return document  # type: ignore[no-any-return]
        return main_scores(document["scores"], row.metric, document.get("main_score"))

    def records(self, entries: Sequence[int], tasks: Sequence[str]) -> list[tuple[int, Mapping[str, Any]]]:
        """The whole records of measured entries on some tasks, with the entry's number."""
        wanted = select(RESULTS.c.entry, RESULTS.c.document).where(
            RESULTS.c.entry.in_(list(entries)), RESULTS.c.task.in_(list(tasks)), RESULTS.c.status == "done"
        )
        with self.reading() as connection:
            return [(entry, json.loads(text)) for entry, text in connection.execute(wanted)]

    def result_documents(self, ids: Sequence[int]) -> dict[int, Any]:
        """The whole of some results by number."""
        wanted = select(RESULTS.c.id, RESULTS.c.document).where(RESULTS.c.id.in_(list(ids)))
        with self.reading() as connection:
            return {number: json.loads(text) for number, text in connection.execute(wanted)}

    def newest(self, count: int) -> list[tuple[Row[Any], Entry]]:
        """The records that were written last, with their entries."""
        columns = [column for column in RESULTS.c if column.name != "document"]
        wanted = select(*columns).where(RESULTS.c.written.is_not(None), RESULTS.c.key.is_not(None)).order_by(
            RESULTS.c.written.desc(), RESULTS.c.id.desc()
        )  # fmt: skip
        with self.reading() as connection:
            rows = connection.execute(wanted.limit(count)).all()
        return [(row, self.entries[row.entry]) for row in rows]

    def result_document(self, number: int) -> Any:
        """The whole of a result: a record, or an import's scores by split and subset."""
        wanted = select(RESULTS.c.document).where(RESULTS.c.id == number)
        with self.reading() as connection:
            return json.loads(connection.execute(wanted).scalar_one())

    def facts(self, entry: Entry) -> Mapping[str, Any]:
        """What else is known of an entry."""
        wanted = select(ENTRIES.c.facts).where(ENTRIES.c.id == entry.id)
        with self.reading() as connection:
            found: Mapping[str, Any] = json.loads(connection.execute(wanted).scalar_one())
            return found


def _entry(row: Any) -> Entry:
    values = dict(row._mapping)
    text, lineage, seeds = (values.pop(name) for name in ("trained_on", "lineage", "seeds"))
    return Entry(
        **values,
        trained_on=None if text is None else frozenset(json.loads(text)),
        lineage=None if lineage is None else Lineage.model_validate_json(lineage),
        seeds=tuple(json.loads(seeds or "[]")),
    )
