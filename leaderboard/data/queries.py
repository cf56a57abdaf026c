"""What pages ask: entries, scores of suites, results and documents of one snapshot."""

from __future__ import annotations

import json
import logging
import re
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property, wraps
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import duckdb
import numpy as np

from harness.core.errors import StoreError
from harness.core.groups import group_by
from harness.core.keys import Lineage
from harness.results.notes import ComputeNote
from harness.results.scores import distinguish_names, score_text
from harness.storage.imported import Imported
from leaderboard.data.documents import CheckSummary
from leaderboard.data.entries import SIZES as SIZES
from leaderboard.data.entries import Entry as Entry
from leaderboard.data.entries import compute_precedence, extract_letters
from leaderboard.data.entries import find_size_class as find_size_class
from leaderboard.data.scores import Cells, SuiteScores, build_suite_scores
from leaderboard.data.seeds import merge_seed_documents, select_seed_results
from leaderboard.data.snapshot import SiteIndex
from leaderboard.data.suites import (
    REASONS,
    Raw,
    Reason,
    Scope,
    SiteSuite,
    build_whole_scope,
    extract_main_scores,
    list_conventions,
)
from leaderboard.data.tables import BEST, SETTINGS, TABLES, Tables

log = logging.getLogger(__name__)

R = TypeVar("R")

HELD = 24_000_000
"""Bytes that the scores of suites may take, by estimate."""

MANY = 50
"""Entries of which not all scores are read at once: those of a thousand take 18 MB."""

CATALOG: Mapping[str, str] = {"minilm": "sentence-transformers/all-MiniLM-L6-v2"}
"""The models of harness' catalog, with the repositories that have the same weights."""

COUNTED = [REASONS.index(""), REASONS.index("other")]
"""The reasons of scores that count, unless only those on the pinned data do."""

UNSCALED = "coalesce(type, '') NOT IN ('Efficiency', 'LanguageModelling')"
"""SQL for results that are shares of 1: pages of tasks and models show no others; /pareto has the speeds."""

MEMORY = "160MB"
"""Memory that DuckDB may take for a query."""


class EntryResult(NamedTuple):
    """One task's outcome; where a model's revisions are joined, `source` is the revision that has it."""

    id: int
    entry: int
    source: int
    task: str
    type: str
    metric: str
    status: str
    value: float | None
    data: str
    key: str | None
    written: str | None
    deviation: float | None
    seeds: int | None
    trained_on: int | None


class ScopeScore(NamedTuple):
    """An entry's number for a scope, or why it does not count: `reason` is a place in REASONS."""

    scope: int
    entry: int
    source: int
    value: float | None
    low: float | None
    high: float | None
    reason: int
    result: int
    data: str
    deviation: float | None
    seeds: int | None
    trained_on: int | None


LICENCES: Mapping[str, re.Pattern[str]] = {
    "non-commercial": re.compile(r"non-?commercial|\bnc\b"),
    "copyleft": re.compile(r"^([al]?gpl|mpl|epl|eupl|cc-by-sa)"),
    "permissive": re.compile(r"^(apache|mit\b|bsd|isc\b|cc0|cc-by-\d|unlicense|odc-by)"),
    "unknown": re.compile(""),
}
"""Groups of licences: a licence is of the first group whose pattern it has."""


class Card(NamedTuple):
    """Facts of a model's card that filters and columns take.

    `size_from` says where its size is from, if not from this card.
    """

    memory: float | None = None
    licence: str = ""
    languages: frozenset[str] = frozenset()
    instructions: bool | None = None
    size_from: str = ""

    @property
    def licence_group(self) -> str:
        """What the licence allows, a name of LICENCES; terms of a maker's own are unknown.

        >>> [Card(licence=name).licence_group for name in ("mit", "cc-by-nc-sa-4.0", "gpl-3.0", "gemma", "")]
        ['permissive', 'non-commercial', 'copyleft', 'unknown', 'unknown']
        """
        return next(name for name, pattern in LICENCES.items() if pattern.search(self.licence.casefold()))


class IndexChanged(Exception):
    """The snapshot was replaced and is gone."""


class Queries:
    """One version of the tables; suites that were put together are cached, and what views `known` of them."""

    def __init__(self, index: SiteIndex, version: int) -> None:
        self.index = index
        self.version = version
        self.suites = index.suites
        self.scope_ids = index.scope_ids
        self._suite_scores: OrderedDict[tuple[Any, ...], SuiteScores] = OrderedDict()
        self._stored_of: OrderedDict[tuple[int, ...], dict[str, Any]] = OrderedDict()
        # Badges are made beside pages.
        self._lock = threading.Lock()
        self._scopes: dict[tuple[str, str], tuple[list[list[int]], list[int]]] = {}
        self.known: dict[Any, Any] = {}
        snapshot = index.snapshot
        self.snapshot = snapshot if snapshot and snapshot.version == version else None

    @cached_property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        """The tables of the snapshot, the large ones as views; empty tables without a snapshot."""
        if self.snapshot is None:
            return Tables().connection
        # One thread: a process renders one page at a time, and several workers share the machine.
        # What a query took goes back to the system when it ends: 27 MB less for each worker.
        freed = {"allocator_bulk_deallocation_flush_threshold": "1MB"}
        connection = duckdb.connect(config={**SETTINGS, **freed, "threads": 1, "memory_limit": MEMORY})
        # Pages of the former version may still be at work: the last of them to end closes the connection.
        weakref.finalize(self, connection.close)
        for name in TABLES:
            # In memory, as every page asks for it; the others are read from their files.
            kind = "TABLE" if name == "entries" else "VIEW"
            files = self.snapshot.list_table_files(name)
            connection.execute(f"CREATE {kind} {name} AS SELECT * FROM read_parquet({files!r})")
        return connection

    def _execute(self, sql: str, *values: Any) -> duckdb.DuckDBPyConnection:
        """A query in a cursor of its own.

        Raises:
            IndexChanged: The snapshot was replaced and is gone.
            StoreError: Its files cannot be read.
        """
        try:
            # A DuckDB connection is not safe for several threads; its cursors are.
            return self._connection.cursor().execute(sql, list(values))
        except duckdb.Error as error:
            # Files of a former version are removed after a while: the page is rendered again with the new
            # one.
            if self.index.version != self.version:
                raise IndexChanged from error
            # The next refresh reads this, and writes the snapshot again.
            self.index.damaged = True
            reason = " ".join(str(error).split())[:300]
            raise StoreError(
                f"The site's snapshot cannot be read: {reason}.",
                hint="It is written again within a minute: reload the page.",
            ) from error

    def _fetch_rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._execute(sql, *values).fetchall()

    @cached_property
    def entries(self) -> dict[int, Entry]:
        """Every entry by its number, ordered by model and trust, each model with a name of its own."""
        names = Entry.__dataclass_fields__
        columns = ", ".join(f'"{name}"' for name in names)
        # All seeds get the name of the entry that stands for them, so that they share the page of one model.
        rows = self._fetch_rows(
            f"""SELECT {columns} FROM (
                  SELECT e.* REPLACE (coalesce(g.model, e.model) AS model,
                                      coalesce(g.model_slug, e.model_slug) AS model_slug)
                  FROM entries e LEFT JOIN entries g
                    ON e.member AND NOT g.member AND g."group" = e."group")
                ORDER BY model, id"""
        )
        entries = [_parse_entry_row(dict(zip(names, row, strict=True))) for row in rows]
        # Not in the snapshot: a model that is new may share the name of one that was read before.
        named = [entry.named for entry in entries]
        labels = distinguish_names(named)
        pairs = zip(entries, (labels[one.key, one.name] for one in named), strict=True)
        return {e.id: e if label == e.model else replace(e, model=label) for e, label in pairs}

    def count_entries(self) -> int:
        """The number of entries, which need not be read for it."""
        return int(self._fetch_rows("SELECT count(*) FROM entries")[0][0])

    @cached_property
    def cards(self) -> dict[int, Card]:
        """The card of each entry, by the entry's number."""
        return {
            number: Card(
                memory=facts.get("memory_usage_mb"),
                licence=str(facts.get("license") or "").rpartition("/")[2],
                languages=frozenset(code.partition("-")[0] for code in facts.get("languages") or ()),
                instructions=facts.get("use_instructions"),
                size_from=facts.get("size_from", ""),
            )
            for number, facts in self.load_facts(origin="imported").items()
        }

    @cached_property
    def measured_facts(self) -> dict[int, Mapping[str, Any]]:
        """The `weights` (a hash) and the `treatment` of each measured entry, by the entry's number."""
        return self.load_facts(origin="measured")

    @cached_property
    def by_slug(self) -> dict[str, Entry]:
        """Every entry by its name in URLs."""
        return {entry.slug: entry for entry in self.entries.values()}

    @cached_property
    def models(self) -> dict[str, list[Entry]]:
        """The entries of each model, by the model's name in URLs."""
        return group_by(self.entries.values(), lambda entry: entry.model_slug)

    def find_named_entries(self, name: str) -> list[Entry]:
        """The entries of the model that a typed name means, the best known first; none for several.

        Args:
            name: A name in any case, with or without its organisation, or one of the catalog's models.
        """
        for typed in map(extract_letters, (name, CATALOG.get(name.casefold(), ""))):
            for place in (0, 1, 2):
                matches = self._by_typed_name[place].get(typed, []) if typed else []
                # A whole name goes first; the same end of two organisations' names means neither.
                if matches and len({e.typed_names[0] for e in matches}) == 1:
                    return sorted(matches, key=compute_precedence, reverse=True)
        return []

    def list_other_names(self, entries: Iterable[Entry]) -> list[str]:
        """The other names that records have for the same files as some entries."""
        facts = (self.measured_facts.get(entry.id, {}) for entry in entries)
        return sorted({name for one in facts for name in one.get("folders", ())})

    @cached_property
    def _by_typed_name(self) -> list[dict[str, list[Entry]]]:
        """The entries by the letters of their names with organisation, without, and of copies."""
        copies: dict[str, list[Entry]] = {}
        for entry in map(self.entries.__getitem__, self.measured_facts):
            for name in self.list_other_names([entry]):
                copies.setdefault(extract_letters(name), []).append(entry)
        named = self.entries.values()
        return [
            group_by(named, lambda e: e.typed_names[0]), group_by(named, lambda e: e.typed_names[1]), copies,
        ]  # fmt: skip

    @cached_property
    def _members(self) -> dict[str | None, list[Entry]]:
        return group_by((one for one in self.entries.values() if one.member), lambda one: one.group)

    def list_members(self, entry: Entry) -> list[Entry]:
        """The entries that one of several seeds or revisions stands for, in their order."""
        if entry.member or not entry.group or not (entry.of_seeds or entry.revisions):
            return []
        order = {revision: at for at, revision in enumerate(entry.revisions)}
        members = self._members.get(entry.group, ())
        return sorted(members, key=lambda one: (one.seeds, order.get(one.revision or "", 0)))

    @cached_property
    def tasks(self) -> dict[str, tuple[str, str, int]]:
        """Type, metric and number of results of every task that has any, by name; seeds count once."""
        rows = self._fetch_rows(
            f"""SELECT task, max(type), max(metric), count(*) FROM results WHERE {UNSCALED}
               AND entry NOT IN (SELECT id FROM entries WHERE member) GROUP BY task ORDER BY task"""
        )
        return {task: (kind, metric, count) for task, kind, metric, count in rows}

    @cached_property
    def entries_of_suites(self) -> dict[str, int]:
        """How many entries have a score in each suite, by its slug; suites without any are left out."""
        pairs = {
            (slug, self.scope_ids[scope.form])
            for slug, one in self.suites.items()
            for view in list_conventions(one.suite)
            for column in one.list_scopes(view)
            for scope in column
        }
        slugs, scopes = [slug for slug, _ in pairs], [scope for _, scope in pairs]
        rows = self._fetch_rows(
            """SELECT suite, count(DISTINCT entry) FROM scores
               JOIN (SELECT unnest(?::VARCHAR[]) AS suite, unnest(?::INTEGER[]) AS scope) USING (scope)
               WHERE entry NOT IN (SELECT id FROM entries WHERE member) GROUP BY suite""",
            slugs,
            scopes,
        )
        counts = dict(rows)
        return {slug: counts[slug] for slug in self.suites if slug in counts}

    @cached_property
    def checks(self) -> dict[str, CheckSummary]:
        """Every check by its name in URLs, the newest first."""
        return {one["name"]: CheckSummary.model_validate(one) for one in self.list_document_facts("check")}

    @cached_property
    def notes(self) -> dict[str, ComputeNote]:
        """What users state of pretrainings, by the hash of the weights."""
        documents = self._fetch_rows("SELECT document FROM documents WHERE kind = 'note'")
        notes = (ComputeNote.model_validate_json(document) for (document,) in documents)
        return {note.weights: note for note in notes}

    def list_document_facts(self, kind: str) -> list[dict[str, Any]]:
        """What lists show of the documents of a kind, the newest first."""
        rows = self._fetch_rows(
            "SELECT name, written, facts FROM documents WHERE kind = ? ORDER BY written DESC, name DESC", kind
        )
        return [{**json.loads(facts), "name": name, "when": written} for name, written, facts in rows]

    def fetch_document(self, kind: str, name: str) -> str:
        """The JSON of a document that is in the index."""
        sql = "SELECT document FROM documents WHERE kind = ? AND name = ?"
        return str(self._fetch_rows(sql, kind, name)[0][0])

    def list_document_kinds(self) -> frozenset[str]:
        """The kinds of documents in the index: "check", "watch", "note", "curves", "grid", "fit"."""
        return frozenset(kind for (kind,) in self._fetch_rows("SELECT DISTINCT kind FROM documents"))

    def load_suite_scores(
        self,
        site_suite: SiteSuite,
        convention: str = "",
        *,
        entries: Sequence[Entry] | None = None,
        pinned: bool = False,
        revisions: bool = False,
    ) -> SuiteScores:
        """A suite by a convention, with all its entries (cached) or a row for each of some.

        Args:
            site_suite: The suite.
            convention: The convention's name; empty for the suite's first one.
            entries: The rows, in order, which may be members of others; None for all.
            pinned: Whether only scores on the pinned revisions of the data count.
            revisions: Of all entries, whether each revision of an imported model has its own row.
        """
        convention = convention or list_conventions(site_suite.suite)[0]
        if entries is not None:
            return self._build_scores(entries, site_suite, convention, pinned, revisions)
        scopes = [] if site_suite.typed else site_suite.list_scopes()
        forms = tuple(one.form for some in scopes for one in some)
        key = (site_suite.slug, forms, convention, pinned, revisions)
        scores = self._suite_scores.get(key)
        if scores is None:
            scores = self._build_scores(None, site_suite, convention, pinned, revisions)
        with self._lock:
            self._suite_scores[key] = scores
            # Used last, dropped last.
            self._suite_scores.move_to_end(key)
            # The suite of this page stays in any case, even if it alone is larger than HELD.
            while sum(one.size for one in self._suite_scores.values()) > HELD and len(self._suite_scores) > 1:
                self._suite_scores.popitem(last=False)
        return scores

    @cached_property
    def _wholes(self) -> dict[str, tuple[SiteSuite, int]]:
        """A suite and the place of its column, by the name of a column of several tasks."""
        places = [(s, at, c) for s in self.suites.values() for at, c in enumerate(s.suite.columns)]
        return {column.name: (suite, at) for suite, at, column in places if len(column.tasks) > 1}

    def find_part_means(self, task: str, entries: Sequence[Entry]) -> dict[int, float]:
        """The means over a task's parts that its own result contradicts, by the entry's number."""
        if task not in self._wholes:
            return {}
        suite, column = self._wholes[task]
        scores = self.load_suite_scores(suite, entries=entries)
        means = [(row, scores.values[row, at]) for row, at in scores.contradicted if at == column]
        return {entries[row].id: float(mean) for row, mean in means}

    def _build_scores(
        self,
        entries: Sequence[Entry] | None,
        site_suite: SiteSuite,
        convention: str,
        pinned: bool,
        revisions: bool,
    ) -> SuiteScores:
        columns, wholes, others = self._resolve_column_scopes(site_suite, convention)
        scopes = list(dict.fromkeys(chain(*columns, filter(None, wholes))))
        place = {number: at for at, number in enumerate(scopes)}
        if entries is None:
            # Numbers of our own: no text of a reader gets into the SQL.
            stored = self._fetch_score_columns(f"scope IN ({', '.join(map(str, scopes)) or 'NULL'})")
            if others and (answers := self._answer_scopes(others)):
                # numpy's masked arrays have no types.
                join: Callable[..., Any] = np.ma.concatenate
                stored = {name: join([stored[name], answers[name]]) for name in stored}
        else:
            stored = self._load_entry_columns(
                {one.id for entry in entries for one in (entry, *self.list_members(entry))}, scopes
            )
        ids = None if entries is None else [entry.id for entry in entries]
        listed = self.suites.get(site_suite.slug, site_suite)
        averages = {
            entry: document
            for entry, suite, name, document in self.list_averages(ids)
            # Known means are over all of the suite's own columns.
            if (suite, name, listed.suite.columns) == (site_suite.slug, convention, site_suite.suite.columns)
        }
        if entries is None:
            ids_of = {*np.unique(stored["entry"]).tolist(), *averages}
            entries = [e for e in self.entries.values() if e.id in ids_of and e.is_row(revisions=revisions)]
        seeds = {row: [m.id for m in self.list_members(e)] for row, e in enumerate(entries) if e.of_seeds}
        return build_suite_scores(
            site_suite, convention, entries,
            Cells.from_columns(stored, [entry.id for entry in entries], scopes, seeds),
            [[place[number] for number in column] for column in columns],
            {row: averages[entry.id] for row, entry in enumerate(entries) if entry.id in averages},
            pinned=pinned, wholes=[place.get(number) for number in wholes],
        )  # fmt: skip

    def list_scope_columns(self, site_suite: SiteSuite, convention: str) -> list[list[int]]:
        """The numbers of the scopes of each column of a suite."""
        return self._resolve_column_scopes(site_suite, convention)[0]

    def _resolve_column_scopes(
        self, site_suite: SiteSuite, convention: str
    ) -> tuple[list[list[int]], list[int], dict[int, Scope]]:
        """The numbers of the scopes of each column, and of the whole of a column of several tasks, else 0.

        Scopes that no suite of the site asks for have negative numbers, and stand at the end.
        """
        key = (site_suite.slug, convention)
        if site_suite.typed and key in self._scopes:
            return *self._scopes[key], {}
        columns = site_suite.list_scopes(convention)
        wholes = [build_whole_scope(column) for column in site_suite.suite.columns]
        scopes = {one.form: one for one in (*chain(*columns), *filter(None, wholes))}
        others = {form: -at for at, form in enumerate(scopes.keys() - self.scope_ids.keys(), 1)}
        numbers = {form: self.scope_ids.get(form) or others[form] for form in scopes}
        of_columns = [[numbers[one.form] for one in column] for column in columns]
        of_wholes = [numbers[scope.form] if scope else 0 for scope in wholes]
        if site_suite.typed:
            self._scopes[key] = (of_columns, of_wholes)
        return of_columns, of_wholes, {number: scopes[form] for form, number in others.items()}

    def _answer_scopes(self, scopes: Mapping[int, Scope]) -> dict[str, Any]:
        """The columns of scores, as they are stored, of scopes that the snapshot has no scores of."""
        by_task = group_by(scopes.items(), lambda pair: pair[1].task)
        subsets = sorted({subset for scope in scopes.values() for subset in scope.subsets})
        lacks: Mapping[str, Reason] = {"failed": "failed", "part": "seeds", "empty": "part"}
        answers = [
            (
                number,
                row,
                *(scope.answer(raw, row.data) if row.status == "done" else (None, lacks[row.status])),
            )
            for row, raw in self.find_task_results([*by_task], subsets)
            for number, scope in by_task[row.task]
        ]
        # Of several results of a task the last one stays: the best, then the newest.
        answers.sort(key=lambda one: (-BEST.index(REASONS.index(one[3])), one[1].written or ""))
        rows = [
            (number, row.entry, row.source, np.nan if value is None else value, np.nan, np.nan,
             REASONS.index(reason), row.id, row.seeds or 0, row.trained_on or 0,
             row.data if reason == "other" else "")
            for number, row, value, reason in answers
        ]  # fmt: skip
        names = (
            "scope", "entry", "source", "value", "low", "high", "reason", "result", "seeds", "trained_on",
            "data",
        )  # fmt: skip
        return dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True)) if rows else {}

    def _fetch_score_columns(self, wanted: str) -> dict[str, Any]:
        columns: dict[str, Any] = self._execute(
            f"""SELECT scope, entry, source, value, low, high, reason::INTEGER AS reason, result,
                  seeds::INTEGER AS seeds, trained_on,
                  CASE WHEN reason = {REASONS.index("other")} THEN data ELSE '' END AS data
                FROM scores WHERE {wanted}"""
        ).fetchnumpy()
        return columns

    def _load_entry_columns(self, entries: set[int], scopes: Sequence[int]) -> dict[str, Any]:
        """Every score of a few entries, cached, as a page asks suite by suite; of many those in `scopes`."""
        ids = tuple(sorted(entries))
        columns, condition = self._stored_of.get(ids), f"entry IN ({', '.join(map(str, ids)) or 'NULL'})"
        if len(ids) > MANY:
            return self._fetch_score_columns(
                f"{condition} AND scope IN ({', '.join(map(str, scopes)) or 'NULL'})"
            )
        if columns is None:
            columns = self._fetch_score_columns(condition)
            with self._lock:
                self._stored_of[ids] = columns
                # A page asks for a few sets of entries at most; the next page may ask for the same ones.
                while len(self._stored_of) > 4:
                    self._stored_of.popitem(last=False)
        return columns

    def find_results(self, **where: Any) -> list[EntryResult]:
        """Results by task, entry, key or number, without their documents; lists stand for any of them.

        An entry that stands for several revisions has the results that were chosen, under their own numbers.
        Those that are no shares of 1 come only by their type.
        """
        fits, values = _build_sql_conditions(where)
        # The entry that joins revisions has a copy of each chosen row, under the same id.
        source_filter = " AND source = entry" if "id" in where else ""
        unscaled = "" if "type" in where else f" AND {UNSCALED}"
        sql = f"SELECT {_RESULT} FROM results WHERE {fits}{source_filter}{unscaled} ORDER BY task, id, entry"
        return [EntryResult._make(row) for row in self._fetch_rows(sql, *values)]

    def find_scores(self, **where: Any) -> list[ScopeScore]:
        """Scores by entry, scope or result; lists stand for any of them."""
        fits, values = _build_sql_conditions(where)
        source_filter = " AND source = entry" if "result" in where else ""
        sql = f"SELECT {_SCORE} FROM scores WHERE {fits}{source_filter} ORDER BY entry, scope"
        return [ScopeScore._make(row) for row in self._fetch_rows(sql, *values)]

    def find_close_scores(
        self,
        scopes: Sequence[int],
        models: Mapping[int, str],
        always: Sequence[int],
        printed: Collection[tuple[str, int]],
        random: int,
        room: float,
    ) -> list[tuple[int, int, float, str, int, float]]:
        """Scores of which a model has several, those on the scopes `always`, and those at chance level.

        Args:
            scopes: The scopes that are asked for.
            models: The model of each entry that is compared.
            always: More scopes.
            printed: The models and scopes of which papers print a score.
            random: The entry whose scores are those of chance; where it has none, chance is 0.
            room: How far above chance a score is still at its level.

        Returns:
            The scope, entry, value, data, result and chance of each.
        """
        return self._fetch_rows(
            """WITH compared AS (SELECT unnest(?::BIGINT[]) AS entry, unnest(?::VARCHAR[]) AS model),
                 always AS (SELECT unnest(?::INTEGER[]) AS scope),
                 printed AS (SELECT unnest(?::VARCHAR[]) AS model, unnest(?::INTEGER[]) AS scope)
               SELECT s.scope, s.entry, s.value, s.data, s.result, coalesce(c.value, 0) AS chance
               FROM scores s LEFT JOIN (SELECT scope, value FROM scores WHERE entry = ?) c USING (scope)
                 LEFT JOIN compared m USING (entry)
               WHERE s.reason IN (SELECT unnest(?::INTEGER[])) AND s.value IS NOT NULL
                 AND s.scope IN (SELECT unnest(?::INTEGER[]))
               QUALIFY s.scope IN (FROM always) OR s.value <= chance + ? OR m.model IS NOT NULL AND (
                 count(*) OVER (PARTITION BY m.model, s.scope) > 1 OR (m.model, s.scope) IN (FROM printed))
               ORDER BY s.entry, s.scope""",
            list(models), list(models.values()), list(always), [model for model, _ in printed],
            [scope for _, scope in printed], random, COUNTED, [*scopes, *always], room,
        )  # fmt: skip

    def find_mteb_versions(self, entries: Sequence[int]) -> dict[tuple[int, str], str]:
        """The version of mteb that scored each task of some entries, where it is stated."""
        scoring = {n: one.get("treatment", {}).get("scoring") or "" for n, one in self.measured_facts.items()}
        measured = self.find_results(entry=[number for number in entries if number in scoring])
        versions = {(one.entry, one.task): scoring[one.entry] for one in measured}
        imported = "task, max(mteb_version)", "mteb_version != '' GROUP BY ALL"
        rows = self._read_imports("scores", *imported, {*entries})
        return {**versions, **{(number, task): version for number, task, version in rows}}

    def list_averages(
        self, entries: Sequence[int] | None = None
    ) -> list[tuple[int, str, str, Mapping[str, Any]]]:
        """Known means of some entries, or of all: entry, suite, convention and document."""
        return [row for row in self._averages if entries is None or row[0] in entries]

    @cached_property
    def _averages(self) -> list[tuple[int, str, str, Mapping[str, Any]]]:
        rows = self._fetch_rows("SELECT entry, suite, convention, document FROM averages")
        return [(entry, suite, convention, json.loads(text)) for entry, suite, convention, text in rows]

    def find_best_scores(self, scopes: Sequence[int]) -> dict[int, tuple[int, float]]:
        """The entry with the highest score that counts of each scope, and that score."""
        # Ties go to the lower number of an entry, so that every worker names the same one.
        rows = self._fetch_rows(
            """SELECT scope, entry, value FROM scores WHERE scope IN (SELECT unnest(?::INTEGER[]))
                 AND reason IN (SELECT unnest(?::INTEGER[])) AND value IS NOT NULL
                 AND entry IN (SELECT id FROM entries WHERE origin != 'reported' AND NOT member)
               QUALIFY row_number() OVER (PARTITION BY scope ORDER BY value DESC, entry) = 1""",
            list(scopes),
            COUNTED,
        )
        return {scope: (entry, value) for scope, entry, value in rows}

    def find_task_results(
        self, tasks: Sequence[str], subsets: Sequence[str] | None = None
    ) -> list[tuple[EntryResult, Raw]]:
        """Every result of some tasks with its main scores by split and subset, or by some subsets alone."""
        results = self.find_results(task=list(tasks))
        raw = self.load_raw_scores(results, subsets)
        return [(row, raw[row.id]) for row in results]

    def load_raw_scores(
        self, results: Sequence[EntryResult], subsets: Sequence[str] | None = None
    ) -> dict[int, Raw]:
        """The main scores of some results by split and subset, by the results' numbers."""
        imported = [row for row in results if self.entries[row.source].origin == "imported"]
        others = {row.id: row for row in results if self.entries[row.source].origin != "imported"}
        measured = {
            number: extract_main_scores(document["scores"], others[number].metric, document.get("main_score"))
            for number, document in self.load_result_documents(list(others)).items()
        }
        return {**self._read_imported_scores(imported, subsets), **measured}

    def _read_imported_scores(
        self, results: Sequence[EntryResult], subsets: Sequence[str] | None = None
    ) -> dict[int, dict[str, dict[str, float | None]]]:
        """Main scores by split and subset, read from the Parquet files of imports."""
        result_ids = {(row.source, row.task): row.id for row in results}
        scores_by_result: dict[int, dict[str, dict[str, float | None]]] = {row.id: {} for row in results}
        rows = self._read_imports(
            "scores", "task, split, subset, CASE WHEN coalesce(flag, '') = '' THEN main_score END",
            """task IN (SELECT unnest(?::VARCHAR[])) AND flag IS DISTINCT FROM 'no-score'
               AND (?::VARCHAR[] IS NULL OR list_contains(?::VARCHAR[], subset)) ORDER BY file_row_number""",
            {row.source for row in results}, sorted({row.task for row in results}), subsets, subsets,
        )  # fmt: skip
        for number, task, split, subset, score in rows:
            if (number, task) in result_ids:
                scores_by_result[result_ids[number, task]].setdefault(split, {})[subset] = score
        return scores_by_result

    def list_ranks(self) -> dict[str, dict[str, str]]:
        """Rank and mean × 100 on every board, as a text, by the letters of a model's lasting name."""
        ranks: dict[str, dict[str, str]] = {}
        for listed in self.suites.values():
            if listed.main and listed.slug in self.entries_of_suites:
                scores = self.load_suite_scores(listed)
                places, means = scores.compute_ranks("tasks", "model").place, scores.over_tasks.values
                ranked = int((places > 0).sum())
                rows = zip(places, means, scores.entries, strict=True)
                for place, mean, entry in sorted(rows, key=itemgetter(0)):
                    # The first of several checkpoints is the one that ranks highest.
                    texts = ranks.setdefault(entry.typed_names[0], {}) if place else {}
                    texts.setdefault(listed.suite.title, f"{place} of {ranked} ({score_text(mean)})")
        return ranks

    @property
    def _imports(self) -> Iterable[tuple[str, str, str]]:
        """The source, the folder and the identifier of each import."""
        return self.snapshot.imports.values() if self.snapshot else ()

    def list_imports(self) -> list[Imported]:
        """The imports that it holds, with their stamps."""
        published = (Imported.read_import(Path(folder)) for _, folder, _ in self._imports)
        return [one for one in published if one is not None]

    def _read_imports(
        self, table: str, columns: str, fits: str, entries: set[int], *values: Any
    ) -> list[tuple[Any, ...]]:
        """Rows of a table of the imports' Parquet files: the number of each of some entries, and columns.

        Args:
            table: The table.
            columns: SQL of the columns.
            fits: SQL of what rows must be, and what may follow it.
            entries: The entries.
            values: What stands for the question marks in `fits`.
        """
        sql = """SELECT source, number, id FROM entries
                 WHERE number IS NOT NULL AND id IN (SELECT unnest(?::BIGINT[]))"""
        ids = {(source, row): number for source, row, number in self._fetch_rows(sql, list(entries))}
        rows = []
        for source, folder, identifier in self._imports if ids else ():
            part = self._fetch_rows(
                f"""SELECT entry, {columns} FROM read_parquet(?, file_row_number = true)
                    WHERE entry IN (SELECT unnest(?::INTEGER[])) AND {fits}""",
                f"{folder}/{table}-{identifier}.parquet",
                sorted(row for name, row in ids if name == source),
                *values,
            )
            rows += [(ids[source, row], *others) for row, *others in part]
        return rows

    def find_source_file(self, result: EntryResult) -> str:
        """The file of an imported result below its source's folder of results; empty for any other."""
        last = "arg_max(path, file_row_number)", "task = ? GROUP BY entry"
        rows = self._read_imports("files", *last, {result.source}, result.task)
        return str(rows[0][1]) if rows else ""

    def load_entry_records(
        self, entries: Sequence[int], tasks: Sequence[str]
    ) -> list[tuple[int, Mapping[str, Any]]]:
        """The whole records of measured entries on some tasks, with the entry's number."""
        results = self.find_results(entry=list(entries), task=list(tasks), status="done")
        documents = self.load_result_documents([row.id for row in results])
        return [(row.entry, documents[row.id]) for row in results if row.id in documents]

    def load_result_documents(self, ids: Sequence[int]) -> dict[int, Any]:
        """The whole records of some results by number; imported ones are left out."""
        if not ids:
            return {}
        sql = f"""SELECT {_RESULT} FROM results
                  WHERE batch IS NULL AND source = entry AND id IN (SELECT unnest(?::BIGINT[]))"""
        unread = map(EntryResult._make, self._fetch_rows(sql, list(ids)))
        means = [row for row in unread if self.entries[row.entry].of_seeds]
        # The results of the seeds that each is the mean over.
        members = []
        for row in means:
            seeds = [one.id for one in self.list_members(self.entries[row.entry])]
            some = [one._asdict() for one in self.find_results(entry=seeds, task=row.task)]
            members.append(select_seed_results(some, seeds))
        records = self._load_records([*ids, *(one["id"] for some in members for one in some)])
        documents = {number: records[number] for number in ids if number in records}
        for row, results in zip(means, members, strict=True):
            numbers = [self.entries[one["entry"]].seeds[0] for one in results]
            texts = [records[one["id"]] for one in results]
            documents[row.id] = merge_seed_documents(row.value, results, numbers, texts)
        return documents

    def _load_records(self, ids: Sequence[int]) -> dict[int, Any]:
        rows = self._fetch_rows(
            """SELECT batch, list(DISTINCT id) FROM results
               WHERE id IN (SELECT unnest(?::BIGINT[])) AND batch IS NOT NULL GROUP BY batch""",
            list(ids),
        )
        records: dict[int, Any] = {}
        for batch, numbers in rows:
            assert self.snapshot is not None
            sql = "SELECT id, document FROM read_parquet(?) WHERE id IN (SELECT unnest(?::BIGINT[]))"
            texts = self._fetch_rows(sql, str(self.snapshot.locate_texts(batch)), numbers)
            records |= {number: json.loads(document) for number, document in texts}
        return records

    def load_result_document(self, number: int) -> Any:
        """The whole of a result: a record, or an import's scores by split and subset."""
        if document := self.load_result_documents([number]).get(number):
            return document
        return self._read_imported_scores(self.find_results(id=number))[number]

    def list_newest_results(self, count: int) -> list[tuple[EntryResult, Entry]]:
        """The records that were written last, with their entries."""
        fits = "written IS NOT NULL AND key IS NOT NULL ORDER BY written DESC, id DESC LIMIT ?"
        rows = self._fetch_rows(f"SELECT {_RESULT} FROM results WHERE {fits}", count)
        return [(row, self.entries[row.entry]) for row in map(EntryResult._make, rows)]

    def load_facts(self, **where: Any) -> dict[int, Mapping[str, Any]]:
        """The facts of entries, by number or origin, that have no column of their own; by entry's number."""
        fits, values = _build_sql_conditions(where)
        rows = self._fetch_rows(f"SELECT id, parameters, facts FROM entries WHERE {fits}", *values)
        return {number: _refuse_memory(json.loads(facts), size) for number, size, facts in rows}


def _refuse_memory(facts: dict[str, Any], parameters: int | None) -> Mapping[str, Any]:
    """Facts without a memory that is 100 times that of the parameters in float32, or a hundredth of it."""
    memory, expected = facts.get("memory_usage_mb"), 4e-6 * (parameters or 0)
    if not memory or not expected or expected / 100 < memory < expected * 100:
        return facts
    note = f"its card’s {memory:,.0f} MB contradict its parameters"
    return {**facts, "memory_usage_mb": None, "memory_note": note}


def cache_by_queries(compute: Callable[[Queries], R]) -> Callable[[Queries], R]:
    """Make a function keep what it gives for each Queries, as long as these live."""

    @wraps(compute)
    def load(queries: Queries) -> R:
        if compute not in queries.known:
            queries.known[compute] = compute(queries)
        result: R = queries.known[compute]
        return result

    return load


_RESULT, _SCORE = (", ".join(f'"{name}"' for name in kind._fields) for kind in (EntryResult, ScopeScore))


def _build_sql_conditions(where: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """SQL for columns that are equal to values, or in lists of them."""
    lists = {name: value if isinstance(value, list) else [value] for name, value in where.items()}
    # `IN ()` is no SQL; nothing is in (NULL).
    names = [f"{name} IN ({', '.join('?' * len(some)) or 'NULL'})" for name, some in lists.items()]
    return " AND ".join(names) or "true", [*chain(*lists.values())]


@cache
def _parse_list(text: str, kind: Callable[[list[Any]], Any] = tuple) -> Any:
    # Many entries have the same list: parsed once, they share it.
    return kind(json.loads(text))


def _parse_entry_row(values: dict[str, Any]) -> Entry:
    trained_on, lineage = values["trained_on"], values["lineage"]
    parsed = {name: _parse_list(values[name] or "[]") for name in ("seeds", "revisions")}
    parsed["trained_on"] = None if trained_on is None else _parse_list(trained_on, frozenset)
    parsed["lineage"] = None if lineage is None else Lineage.model_validate_json(lineage)
    return Entry(**{**values, **parsed})
