"""The index: what the folders hold, in tables that can be asked. It can be thrown away and made anew."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, TypeVar

from filelock import FileLock
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Engine,
    Float,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    create_engine,
    delete,
    event,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, OperationalError

from harness import files, paths
from harness.errors import StoreError, UsageError
from harness.imported import Imported
from leaderboard.data import checks as judged
from leaderboard.data import imports
from leaderboard.data import paper_rows as printed
from leaderboard.data import records as measured
from leaderboard.data import watches as watched
from leaderboard.data.entries import NewEntry, Outcome, StoredDocument, Unit
from leaderboard.data.suites import REASONS, Scope, SiteSuite, all_scopes, listed, possible
from leaderboard.web.settings import Settings

METADATA = MetaData()


def _text(length: int | None = None) -> String:
    """Text that every database puts in one order: that of its code points."""
    kind = Text if length is None else String
    return kind(length).with_variant(kind(length, collation="C"), "postgresql")


META = Table("meta", METADATA, Column("name", _text(64), primary_key=True), Column("value", _text()))
"""`version` rises whenever anything changed; `form` tells an index that this program cannot read."""

UNITS = Table(
    "units",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("source", _text(), nullable=False),
    Column("name", _text(), nullable=False),
    Column("stamp", _text(64), nullable=False),
)
"""What is taken in or dropped as a whole: a folder of records, or one entry of an import."""

ENTRIES = Table(
    "entries",
    METADATA,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("unit", Integer, nullable=False, index=True),
    Column("slug", _text(200), nullable=False, unique=True),
    Column("model", _text(), nullable=False),
    Column("model_slug", _text(200), nullable=False, index=True),
    Column("origin", _text(16), nullable=False),
    Column("source", _text(), nullable=False),
    Column("revision", _text()),
    Column("trust", _text(16), nullable=False),
    Column("artifact", _text(64)),
    Column("treatment", _text(), nullable=False),
    Column("recipe", _text()),
    Column("output", _text(16), nullable=False),
    Column("parameters", BigInteger),
    Column("dimension", Integer),
    Column("max_tokens", Integer),
    Column("released", _text(10)),
    Column("open_weights", Boolean),
    Column("adapted_from", _text()),
    Column("trained_on", _text()),
    Column("facts", _text(), nullable=False),
    Column("newest", _text(32)),
    Column("tasks", Integer, nullable=False),
    Column("lineage", _text()),
    Column("group", _text(64), index=True),
    Column("seeds", _text()),
    Column("member", Boolean, nullable=False),
)
"""One thing with scores: a model, its revision, and how it was measured; its number stays likewise.

Entries of one `group` differ only in the seed of their training. Where there are several, one more stands for
all of `seeds` (JSON), and they are its members.
"""

RESULTS = Table(
    "results",
    METADATA,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("entry", BigInteger, nullable=False, index=True),
    Column("task", _text(500), nullable=False, index=True),
    Column("type", _text(), nullable=False),
    Column("metric", _text(), nullable=False),
    Column("status", _text(8), nullable=False),
    Column("value", Float),
    Column("data", _text(), nullable=False),
    Column("key", _text(64), index=True),
    Column("written", _text(32)),
    Column("deviation", Float),
    Column("seeds", SmallInteger),
    Column("trained_on", Integer),
    Column("document", _text(), nullable=False),
)
"""One task's outcome as it was found, under a number that stays when the index is made anew.

`document` is its JSON; of an import: split → subset → score. Of several seeds there is their mean if all have
one, its standard deviation, and how many `seeds` have a score. `trained_on` counts the task's texts that the
model was trained on.
"""

SCOPES = Table(
    "scopes",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("form", _text(64), nullable=False, unique=True),
)
"""What a suite's column asks of a task: its splits, subsets, data, and the paper's convention."""

SCORES = Table(
    "scores",
    METADATA,
    Column("scope", Integer, primary_key=True, autoincrement=False),
    Column("entry", BigInteger, primary_key=True, autoincrement=False),
    Column("value", Float),
    Column("low", Float),
    Column("high", Float),
    Column("reason", SmallInteger, nullable=False),
    Column("result", BigInteger, nullable=False),
    Column("deviation", Float),
    Column("seeds", SmallInteger),
    Column("trained_on", Integer),
    Index("scores_entry", "entry"),
)
"""An entry's number for a scope, or why there is none (leaderboard.data.suites.REASONS)."""

AVERAGES = Table(
    "averages",
    METADATA,
    Column("entry", BigInteger, primary_key=True, autoincrement=False),
    Column("suite", _text(200), primary_key=True),
    Column("view", _text(64), primary_key=True),
    Column("document", _text(), nullable=False),
)
"""Means of tasks that a recipe trained for, with their intervals (docs/json.md)."""

FILED = Table(
    "filed",
    METADATA,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("unit", Integer, nullable=False, index=True),
    Column("kind", _text(8), nullable=False),
    Column("name", _text(120), nullable=False),
    Column("written", _text(40), nullable=False),
    Column("facts", _text(), nullable=False),
    Column("document", _text(), nullable=False),
    Index("filed_kind", "kind"),
)
"""Checks and watches (leaderboard.data.entries.Filed); `facts` and `document` are JSON."""


def open_engine(url: str, *, file: Path) -> Engine:
    """The database at `url`, or the SQLite file where there is no URL.

    Raises:
        UsageError: The URL is none that can be used.
        StoreError: The database does not answer.
    """
    if not url:
        file.parent.mkdir(parents=True, exist_ok=True)
        url = f"sqlite:///{file}"
    try:
        engine = create_engine(make_url(url), **_arguments(url))
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
        raise UsageError(
            f"HARNESS_DATABASE_URL cannot be used: {error}.",
            hint="For example postgresql+psycopg://user:password@host/name, or leave it out for a file.",
        ) from None
    try:
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", _tune)
            event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
        with alone(engine), engine.begin() as connection:
            lock(connection)
            METADATA.create_all(connection)
    except OperationalError as error:
        where = make_url(url).render_as_string(hide_password=True)
        raise StoreError(
            f"The database {where} does not answer: {error.orig}.",
            hint="Start it, or mend HARNESS_DATABASE_URL.",
        ) from None
    return engine


def alone(engine: Engine) -> AbstractContextManager[Any]:
    """Keeps other processes from writing the same file."""
    file = engine.url.database
    known = engine.dialect.name == "sqlite" and file not in (None, "", ":memory:")
    return FileLock(f"{file}.lock") if known else nullcontext()


def lock(connection: Connection) -> None:
    """Keep others from writing the same database on a server until the transaction ends."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(4717)"))


def _arguments(url: str) -> dict[str, Any]:
    if make_url(url).get_backend_name() == "sqlite":
        return {"connect_args": {"check_same_thread": False, "timeout": 30}}
    return {"pool_pre_ping": True}


def _tune(connection: Any, _record: Any) -> None:
    """Readers go on while the index is refreshed; tables are made and dropped in transactions, too."""
    connection.isolation_level = None
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "cache_size=-20000", "temp_store=MEMORY"):
        connection.execute(f"PRAGMA {pragma}")


log = logging.getLogger(__name__)

BEST = [REASONS.index(reason) for reason in ("", "other", "part", "bad", "failed", "none", "seeds")]
"""Which of several results of a task answers a scope: the first in this order, then the newest."""

WRITTEN = (UNITS, ENTRIES, RESULTS, SCORES, AVERAGES, FILED)
"""The tables that hold units, in the order in which rows go in."""

Item = TypeVar("Item")


class Writer:
    """Writes units, counting the identifiers itself so that rows can go in by the thousand."""

    def __init__(self, connection: Connection, scopes: dict[str, list[Scope]]) -> None:
        self.connection = connection
        self.scopes = scopes
        self.next = {
            table.name: int(connection.scalar(select(func.coalesce(func.max(table.c.id), 0))) or 0) + 1
            for table in (UNITS,)
        }
        self.ids = self._scope_ids()
        self.slugs = set(connection.scalars(select(ENTRIES.c.slug)))
        self.results = set(connection.scalars(select(RESULTS.c.id)))

    def _scope_ids(self) -> dict[str, int]:
        known = {form: number for number, form in self.connection.execute(select(SCOPES.c.id, SCOPES.c.form))}
        forms = [scope.form for scopes in self.scopes.values() for scope in scopes if scope.form not in known]
        added = {form: number for number, form in enumerate(forms, len(known) + 1)}
        self._insert(SCOPES, [{"id": number, "form": form} for form, number in added.items()])
        return known | added

    def write(self, units: Iterable[Unit], former: Mapping[tuple[str, str], int]) -> int:
        """Take units in, some at a time, each in place of its former state; returns how many.

        One that cannot be read leaves its former state.
        """
        taken = 0
        for some in _batched(units, 50):
            rows: dict[str, list[dict[str, Any]]] = {table.name: [] for table in WRITTEN}
            read = [(unit, found) for unit in some if (found := _read(unit)) is not None]
            self._forget([former[key] for unit, _ in read if (key := key_of(unit)) in former])
            for unit, found in read:
                number = self._number(UNITS.name)
                row = {"source": unit.source, "name": unit.name, "stamp": unit.stamp}
                rows["units"].append({"id": number, **{name: _storable(v) for name, v in row.items()}})
                for one in found:
                    if isinstance(one, StoredDocument):
                        rows["filed"].append(_document_row(one, number))
                    else:
                        self._entry(one, number, rows)
            for table in WRITTEN:
                self._insert(table, rows[table.name])
            taken += len(read)
        return taken

    def _forget(self, units: Sequence[int]) -> None:
        """Drop units whose new state is at hand."""
        ours = select(ENTRIES.c.id).where(ENTRIES.c.unit.in_(units))
        self.slugs -= set(self.connection.scalars(select(ENTRIES.c.slug).where(ENTRIES.c.unit.in_(units))))
        self.results -= set(self.connection.scalars(select(RESULTS.c.id).where(RESULTS.c.entry.in_(ours))))
        drop(self.connection, units)

    def _entry(self, entry: NewEntry, unit: int, rows: dict[str, list[dict[str, Any]]]) -> None:
        if entry.slug in self.slugs:
            log.warning("%s (%s) stands in two folders. One is left out.", entry.model, entry.treatment)
            return
        self.slugs.add(entry.slug)
        number = permanent(entry.slug)
        rows["entries"].append(_entry_row(entry, number, unit))
        scores: dict[int, list[dict[str, Any]]] = {}
        for outcome in sorted(entry.outcomes, key=lambda one: one.written or "", reverse=True):
            result = self._result(entry, outcome)
            rows["results"].append(_result_row(outcome, result, number))
            for score in self._scores(outcome, number, result):
                scores.setdefault(score["scope"], []).append(score)
        rows["scores"] += [
            min(some, key=lambda score: BEST.index(score["reason"])) for some in scores.values()
        ]
        rows["averages"] += [
            {"entry": number, "suite": suite, "view": view, "document": document}
            for suite, view, document in entry.averages
        ]

    def _scores(self, outcome: Outcome, entry: int, result: int) -> Iterator[dict[str, Any]]:
        for scope in self.scopes.get(outcome.task, ()):
            value, low, high, reason = _answer(scope, outcome)
            yield {
                "scope": self.ids[scope.form],
                "entry": entry,
                "value": value,
                "low": low,
                "high": high,
                "reason": REASONS.index(reason),
                "result": result,
                "deviation": None,
                "seeds": None,
                "trained_on": outcome.trained_on,
            }

    def _insert(self, table: Any, rows: Sequence[dict[str, Any]]) -> None:
        if rows:
            self.connection.execute(insert(table), rows)

    def _result(self, entry: NewEntry, outcome: Outcome) -> int:
        """The number of a result: what its address holds, so it comes of what it is a result of."""
        number = permanent(entry.slug, outcome.key or outcome.task)
        while number in self.results:
            number += 1
        self.results.add(number)
        return number

    def _number(self, table: str) -> int:
        self.next[table] += 1
        return self.next[table] - 1


def _answer(scope: Scope, outcome: Outcome) -> tuple[float | None, float | None, float | None, Any]:
    if outcome.status == "failed":
        return None, None, None, "failed"
    number = outcome.numbers.get(scope.view)
    if scope.view:
        if number is None or number.value is None:
            return None, None, None, "part"
        if not possible(number.value):
            return None, None, None, "bad"
        same = not scope.data or outcome.data == scope.data
        return number.value, number.low, number.high, "" if same else "other"
    value, reason = scope.answer(outcome.raw, outcome.data)
    return value, None, None, reason


def _entry_row(entry: NewEntry, number: int, unit: int) -> dict[str, Any]:
    names = (
        "model origin source trust treatment revision artifact recipe output parameters dimension "
        "max_tokens released open_weights adapted_from"
    )
    written = [outcome.written for outcome in entry.outcomes if outcome.written]
    return {
        **{name: _stored(ENTRIES.c[name], getattr(entry, name)) for name in names.split()},
        "id": number,
        "unit": unit,
        "slug": entry.slug,
        "model_slug": entry.model_slug,
        "trained_on": None if entry.trained_on is None else json.dumps(list(entry.trained_on)),
        "facts": json.dumps(entry.facts, default=str),
        "newest": _stored(ENTRIES.c.newest, max(written, default=None)),
        "tasks": len(entry.outcomes),
        "lineage": entry.lineage.model_dump_json() if entry.lineage else None,
        "group": entry.group,
        "seeds": json.dumps([entry.lineage.seed]) if entry.lineage else None,
        "member": False,
    }


def _document_row(one: StoredDocument, unit: int) -> dict[str, Any]:
    values = {name: _stored(FILED.c[name], getattr(one, name)) for name in ("kind", "name", "written")}
    documents = {"facts": json.dumps(one.facts), "document": one.document}
    return {**values, **documents, "id": permanent(one.kind, one.name), "unit": unit}


def key_of(unit: Unit) -> tuple[str, str]:
    """What a unit is known by, as the index holds it."""
    return _storable(unit.source), _storable(unit.name)


def _read(unit: Unit) -> Sequence[NewEntry | StoredDocument] | None:
    """What a unit holds; None, and a word in the log, where it cannot be read: it is tried again."""
    try:
        return unit.read()
    except Exception:
        log.exception("%s of %s cannot be read. What was known of it stays.", unit.name, unit.source)
        return None


def permanent(*parts: str) -> int:
    """A number made of some texts, which every program can hold exactly: below 2**52."""
    return int(hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:13], 16)


def _result_row(outcome: Outcome, number: int, entry: int) -> dict[str, Any]:
    names = ("task", "type", "metric", "status", "value", "data", "key", "written", "document", "trained_on")
    values = {name: _stored(RESULTS.c[name], getattr(outcome, name)) for name in names}
    return {**values, "id": number, "entry": entry, "deviation": None, "seeds": None}


def _stored(column: Column[Any], value: Any) -> Any:
    """A value as every database takes it: text of the column's length, numbers that it can hold."""
    if value is None:
        return None
    kind = column.type
    if isinstance(value, str):
        return _storable(value)[: kind.length] if isinstance(kind, String) else None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    most = 2**63 if isinstance(kind, BigInteger) else 2**31
    return None if isinstance(kind, Integer) and not -most <= value < most else value


def _storable(text: str) -> str:
    """Text that every database takes: no NUL, no half of a character."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


SEEDS = "seeds"
"""The source of units that stand for several seeds of a training."""

_SOME, _OTHER = REASONS.index("seeds"), REASONS.index("other")


def write_groups(connection: Connection) -> None:
    """Write an entry for every training with several seeds anew, in the place of the former ones."""
    drop(connection, list(connection.scalars(select(UNITS.c.id).where(UNITS.c.source == SEEDS))))
    connection.execute(update(ENTRIES).where(ENTRIES.c.member).values(member=False))
    groups: dict[str, list[Any]] = {}
    for entry in connection.execute(
        select(ENTRIES).where(ENTRIES.c.group.is_not(None)).order_by(ENTRIES.c.id)
    ):
        groups.setdefault(entry.group, []).append(entry)
    for members in groups.values():
        ordered = sorted(members, key=lambda one: json.loads(one.lineage)["seed"])
        if len(ordered) > 1:
            _write_group(connection, ordered)


def _write_group(connection: Connection, members: Sequence[Any]) -> None:
    """One entry for all seeds: means over them of what all of them have."""
    first, ids = members[0], [member.id for member in members]
    unit = int(connection.scalar(select(func.max(UNITS.c.id))) or 0) + 1
    slug = f"{first.model_slug}-{hashlib.sha256(f'{SEEDS} {first.group}'.encode()).hexdigest()[:8]}"
    number = permanent(slug)
    results = connection.execute(select(RESULTS).where(RESULTS.c.entry.in_(ids))).all()
    tasks: dict[str, list[Any]] = {}
    for result in sorted(
        results, key=lambda one: (ids.index(one.entry), one.status != "done", one.written or "")
    ):
        if all(other.entry != result.entry for other in tasks.get(result.task, ())):
            tasks.setdefault(result.task, []).append(result)
    rows = [_group_result(slug, number, some, members) for some in tasks.values()]
    seeds = [json.loads(member.lineage)["seed"] for member in members]
    connection.execute(insert(UNITS).values(id=unit, source=SEEDS, name=first.group, stamp=""))
    lineage = json.dumps(_shared_lineage([json.loads(member.lineage) for member in members]))
    own = {"id": number, "unit": unit, "slug": slug, "artifact": None, "seeds": json.dumps(seeds)}
    newest = max((member.newest or "" for member in members), default="") or None
    connection.execute(
        insert(ENTRIES).values(
            {**first._mapping, **own, "lineage": lineage, "newest": newest, "tasks": len(rows)}
        )
    )
    same = {"member": True, "model": first.model, "model_slug": first.model_slug}
    connection.execute(update(ENTRIES).where(ENTRIES.c.id.in_(ids)).values(same))
    connection.execute(insert(RESULTS), rows)
    task_of = {result.id: result.task for result in results}
    scores: dict[int, list[Any]] = {}
    for score in connection.execute(select(SCORES).where(SCORES.c.entry.in_(ids))):
        scores.setdefault(score.scope, []).append(score)
    if scores:
        made = [
            {**_over_seeds(some, len(members)), "scope": scope, "entry": number,
             "result": permanent(slug, task_of[some[0].result])}
            for scope, some in scores.items()
        ]  # fmt: skip
        connection.execute(insert(SCORES), made)


def _shared_lineage(lineages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The lineage of all seeds; what their sweeps chose stays where all chose the same value."""
    first = lineages[0]
    sweeps: list[dict[str, Any]] = [made["sweep"] for made in lineages if made.get("sweep")]
    if all(sweep["chosen"] == sweeps[0]["chosen"] for sweep in sweeps):
        return first
    return {**first, "sweep": {**sweeps[0], "chosen": None, "curve": []}}


def _over_seeds(scores: Sequence[Any], wanted: int) -> dict[str, Any]:
    """The mean of a scope's scores and its deviation; where some seeds have none, how many have one."""
    values = [score.value for score in scores if score.value is not None]
    complete = len(values) == wanted
    reasons = {score.reason for score in scores}
    reason = (_OTHER if _OTHER in reasons else 0) if complete else _SOME if values else max(reasons)
    return {
        "value": fmean(values) if complete else None,
        "low": None,
        "high": None,
        "reason": reason,
        "deviation": stdev(values) if complete else None,
        "seeds": len(values),
        "trained_on": max(
            (score.trained_on for score in scores if score.trained_on is not None), default=None
        ),
    }


def _group_result(slug: str, entry: int, results: Sequence[Any], members: Sequence[Any]) -> dict[str, Any]:
    """The result of a task over all seeds, with a document like a record's that names those of the seeds."""
    values = [result.value for result in results if result.value is not None and result.status == "done"]
    complete = len(values) == len(members)
    newest = max(results, key=lambda one: one.written or "")
    seeds = {member.id: json.loads(member.lineage)["seed"] for member in members}
    documents = [json.loads(result.document) for result in results]
    document = {
        name: value
        for name, value in documents[0].items()
        if name not in ("key", "digest", "examples", "run")
    }
    document["lineage"] = _shared_lineage([one["lineage"] for one in documents])
    for part, own in (
        ("identity", ("artifact",)),
        ("model", ("artifact", "weights")),
        ("lineage", ("seed",)),
    ):
        document[part] = {name: value for name, value in document[part].items() if name not in own}
    document |= {
        "training": {},
        "main_score": fmean(values) if complete else None,
        "scores": _mean_of([one["scores"] for one in documents]) if complete else {},
        "seeds": [
            {"seed": seeds[r.entry], "result": r.id, "key": r.key, "status": r.status, "main_score": r.value}
            for r in results
        ],
        "error": None,
    }
    return {
        **newest._mapping,
        "id": permanent(slug, newest.task),
        "entry": entry,
        "status": "done" if complete else "part",
        "value": document["main_score"],
        "data": newest.data if len({result.data for result in results}) == 1 else "",
        "key": None,
        "deviation": stdev(values) if complete else None,
        "seeds": len(values),
        "document": json.dumps(document),
    }


def _mean_of(values: Sequence[Any]) -> Any:
    """The means of numbers in documents of one form; None where one of them has something else."""
    if all(isinstance(value, Mapping) for value in values):
        shared = [name for name in values[0] if all(name in value for value in values)]
        return {name: _mean_of([value[name] for value in values]) for name in shared}
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return fmean(values) if numbers else None


def drop(connection: Connection, units: Sequence[int]) -> None:
    """Drop units with all that they hold."""
    for some in _batched(units, 500):
        entries = select(ENTRIES.c.id).where(ENTRIES.c.unit.in_(some))
        for table in (SCORES, RESULTS, AVERAGES):
            connection.execute(delete(table).where(table.c.entry.in_(entries)))
        for table in (ENTRIES, FILED):
            connection.execute(delete(table).where(table.c.unit.in_(some)))
        connection.execute(delete(UNITS).where(UNITS.c.id.in_(some)))


def _batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


WEEK = 7 * 24 * 3600

log = logging.getLogger(__name__)


OWN = (measured.SOURCE, printed.SOURCE, judged.SOURCE, watched.SOURCE)
"""The sources of units that are no imports."""

FORM = 12
"""The form of the index; raised when tables or what they hold change, so that old ones are made anew."""


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What a refresh did: units taken in, new and changed ones, and units that are gone."""

    taken: int
    dropped: int
    version: int


class SiteIndex:
    """The index of some folders."""

    def __init__(self, settings: Settings, engine: Engine, suites: dict[str, SiteSuite]) -> None:
        self.settings = settings
        self.engine = engine
        self.suites = suites
        self._scopes = all_scopes(list(suites.values()))
        self._form = _form(self._scopes)
        self._opened = False

    @property
    def version(self) -> int:
        """A number that rises whenever anything changed."""
        with self.engine.connect() as connection:
            return int(_meta(connection, "version") or 0)

    def refresh(self) -> Changes:
        """Look at every folder; what is as it was is not read."""
        with alone(self.engine), self.engine.begin() as connection:
            lock(connection)
            self._claim(connection)
            fresh, gone, former, seen = self._new(connection)
            drop(connection, gone)
            taken = Writer(connection, self._scopes).write(fresh, former) if fresh else 0
            if taken or gone:
                write_groups(connection)
            _set_meta(connection, "imports", seen if taken == len(fresh) else "")
            if taken or gone:
                _set_meta(connection, "version", str(int(_meta(connection, "version") or 0) + 1))
            version = int(_meta(connection, "version") or 0)
        return Changes(taken=taken, dropped=len(gone), version=version)

    def _claim(self, connection: Connection) -> None:
        """Make the tables anew where another program made them; only once, or two would take turns.

        Raises:
            StoreError: Another program has made them its own since.
        """
        home = _home(self.settings) if self.engine.dialect.name != "sqlite" else ""
        if _meta(connection, "form") is not None and (_meta(connection, "home") or "") != home:
            raise StoreError(
                "This database holds the index of another results folder.",
                hint="Give each folder a database of its own in HARNESS_DATABASE_URL.",
            )
        if _meta(connection, "form") != self._form:
            if self._opened:
                raise StoreError(
                    "Another version of the program, or one with other suites, uses this database.",
                    hint="Give each a database of its own, and start this one again.",
                )
            _empty(connection)
            _set_meta(connection, "form", self._form)
            _set_meta(connection, "home", home)
        self._opened = True

    def _new(self, connection: Connection) -> tuple[list[Unit], list[int], dict[tuple[str, str], int], str]:
        """The units to take in, the numbers of those that are gone, and of those that others replace.

        Imports are looked at only if any is another one than before; last stands what is to be known
        of them when all were read.
        """
        units = connection.execute(select(UNITS).where(UNITS.c.source != SEEDS))
        there = {(u.source, u.name): (u.id, u.stamp) for u in units}
        found = imports.sources(self.settings.results)
        names = repr([(str(one.folder), one.id) for one in found])
        if names == _meta(connection, "imports"):
            found = []
            there = {key: unit for key, unit in there.items() if key[0] in OWN}
        listed, broken = _listed(found)
        if broken:
            names = ""
            there = {key: unit for key, unit in there.items() if key[0] not in broken}
        wanted = {key_of(unit): unit for unit in [*self._units(), *listed]}
        same = {key for key, unit in wanted.items() if key in there and there[key][1] == unit.stamp}
        fresh = [unit for key, unit in wanted.items() if key not in same]
        gone = [number for key, (number, _) in there.items() if key not in wanted]
        former = {key: number for key, (number, _) in there.items() if key in wanted and key not in same}
        return fresh, gone, former, names

    def _units(self) -> Iterator[Unit]:
        reference = [self.settings.reference] if self.settings.reference else []
        roots = [*self.settings.results, *(path for path in reference if path not in self.settings.results)]
        yield from measured.units(roots, list(self.suites.values()))
        yield from judged.units(roots)
        yield from watched.units(roots)
        yield from printed.units(self.settings.reported, self.suites)


def open_index(settings: Settings) -> SiteIndex:
    """The index of a site's folders, in the database that was named or a file in the cache."""
    cache = paths.cache_folder()
    suites = listed(cache, settings.suites)
    names = repr([str(Path(p).resolve()) for p in (*settings.results, settings.reference or "")])
    name = hashlib.sha256(names.encode()).hexdigest()[:16]
    form = _form(all_scopes(list(suites.values())))[:8]
    file = cache / "site" / f"{name}-{form}.sqlite"
    _tidy(file.parent, name, file)
    return SiteIndex(settings, open_engine(settings.database, file=file), suites)


def _home(settings: Settings) -> str:
    """What tells results folders apart wherever they are mounted: an identifier kept in the first one."""
    place = settings.home / "site" / "id"
    try:
        return place.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        pass
    made = secrets.token_hex(8)
    try:
        files.write_once(place, made.encode())
        return place.read_text(encoding="ascii").strip()
    except (StoreError, OSError):  # a folder that is read only
        return hashlib.sha256(str(settings.home.resolve()).encode()).hexdigest()[:16]


def _tidy(folder: Path, name: str, keep: Path) -> None:
    """Remove what other versions of the program made of the same folders and have not used for a week."""
    for old in folder.glob(f"{name}-*"):
        with suppress(OSError):
            if not old.name.startswith(keep.name) and time.time() - old.stat().st_mtime > WEEK:
                old.unlink()


def _listed(found: Sequence[Imported]) -> tuple[list[Unit], set[str]]:
    """The units of imports, and the imports that cannot be read: what was known of those stays."""
    units: list[Unit] = []
    broken = set()
    for one in found:
        try:
            units += imports.units(one)
        except Exception:
            log.exception("The import %s cannot be read. What was known of it stays.", one.source)
            broken.add(one.source)
    return units, broken


def _empty(connection: Connection) -> None:
    """Make the tables anew; their numbers of versions go on."""
    version = _meta(connection, "version")
    METADATA.drop_all(connection)
    METADATA.create_all(connection)
    _set_meta(connection, "version", version or "0")


def _form(scopes: dict[str, list[Scope]]) -> str:
    """What an index must have been made with to be of use: this form, and these scopes."""
    forms = sorted(scope.form for some in scopes.values() for scope in some)
    return hashlib.sha256(repr((FORM, forms)).encode()).hexdigest()


def _meta(connection: Connection, name: str) -> str | None:
    found: str | None = connection.scalar(select(META.c.value).where(META.c.name == name))
    return found


def _set_meta(connection: Connection, name: str, value: str) -> None:
    if _meta(connection, name) is None:
        connection.execute(insert(META).values(name=name, value=value))
    else:
        connection.execute(update(META).where(META.c.name == name).values(value=value))
