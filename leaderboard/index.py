"""Keeping the index: what is new in the folders is taken in, what is gone is dropped."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Integer,
    String,
    delete,
    func,
    insert,
    select,
    update,
)

from harness import files, paths
from harness.errors import StoreError
from harness.imported import Imported
from leaderboard import imports, measured, printed
from leaderboard.database import (
    AVERAGES,
    ENTRIES,
    META,
    METADATA,
    RESULTS,
    SCOPES,
    SCORES,
    UNITS,
    alone,
    lock,
    open_engine,
)
from leaderboard.found import Entry, Outcome, Unit
from leaderboard.scopes import REASONS, Listed, Scope, all_scopes, listed, possible
from leaderboard.settings import Settings

Item = TypeVar("Item")

WEEK = 7 * 24 * 3600

log = logging.getLogger(__name__)

BEST = [REASONS.index(reason) for reason in ("", "other", "part", "bad", "failed", "none")]
"""Which of several results of a task answers a scope: the first in this order, then the newest."""

FORM = 8
"""The form of the index; raised when tables or what they hold change, so that old ones are made anew."""


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What a refresh did: units taken in, new and changed ones, and units that are gone."""

    taken: int
    dropped: int
    version: int


class SiteIndex:
    """The index of some folders."""

    def __init__(self, settings: Settings, engine: Engine, suites: dict[str, Listed]) -> None:
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
            _drop(connection, gone)
            taken = _Writer(connection, self._scopes).write(fresh, former) if fresh else 0
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
        there = {(u.source, u.name): (u.id, u.stamp) for u in connection.execute(select(UNITS))}
        found = imports.sources(self.settings.results)
        names = repr([(str(one.folder), one.id) for one in found])
        if names == _meta(connection, "imports"):
            found = []
            there = {key: unit for key, unit in there.items() if key[0] in (measured.SOURCE, printed.SOURCE)}
        listed, broken = _listed(found)
        if broken:
            names = ""
            there = {key: unit for key, unit in there.items() if key[0] not in broken}
        wanted = {_key(unit): unit for unit in [*self._units(), *listed]}
        same = {key for key, unit in wanted.items() if key in there and there[key][1] == unit.stamp}
        fresh = [unit for key, unit in wanted.items() if key not in same]
        gone = [number for key, (number, _) in there.items() if key not in wanted]
        former = {key: number for key, (number, _) in there.items() if key in wanted and key not in same}
        return fresh, gone, former, names

    def _units(self) -> Iterator[Unit]:
        reference = [self.settings.reference] if self.settings.reference else []
        roots = [*self.settings.results, *(path for path in reference if path not in self.settings.results)]
        yield from measured.units(roots, list(self.suites.values()))
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


class _Writer:
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
            rows: dict[str, list[dict[str, Any]]] = {
                t.name: [] for t in (UNITS, ENTRIES, RESULTS, SCORES, AVERAGES)
            }
            read = [(unit, entries) for unit in some if (entries := _read(unit)) is not None]
            self._forget([former[key] for unit, _ in read if (key := _key(unit)) in former])
            for unit, entries in read:
                number = self._number(UNITS.name)
                row = {"source": unit.source, "name": unit.name, "stamp": unit.stamp}
                rows["units"].append({"id": number, **{name: _storable(v) for name, v in row.items()}})
                for entry in entries:
                    self._entry(entry, number, rows)
            for table in (UNITS, ENTRIES, RESULTS, SCORES, AVERAGES):
                self._insert(table, rows[table.name])
            taken += len(read)
        return taken

    def _forget(self, units: Sequence[int]) -> None:
        """Drop units whose new state is at hand."""
        ours = select(ENTRIES.c.id).where(ENTRIES.c.unit.in_(units))
        self.slugs -= set(self.connection.scalars(select(ENTRIES.c.slug).where(ENTRIES.c.unit.in_(units))))
        self.results -= set(self.connection.scalars(select(RESULTS.c.id).where(RESULTS.c.entry.in_(ours))))
        _drop(self.connection, units)

    def _entry(self, entry: Entry, unit: int, rows: dict[str, list[dict[str, Any]]]) -> None:
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
            }

    def _insert(self, table: Any, rows: Sequence[dict[str, Any]]) -> None:
        if rows:
            self.connection.execute(insert(table), rows)

    def _result(self, entry: Entry, outcome: Outcome) -> int:
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


def _entry_row(entry: Entry, number: int, unit: int) -> dict[str, Any]:
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
    }


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


def _key(unit: Unit) -> tuple[str, str]:
    return _storable(unit.source), _storable(unit.name)


def _read(unit: Unit) -> Sequence[Entry] | None:
    """The entries of a unit; None, and a word in the log, where it cannot be read: it is tried again."""
    try:
        return unit.read()
    except Exception:
        log.exception("%s of %s cannot be read. What was known of it stays.", unit.name, unit.source)
        return None


def permanent(*parts: str) -> int:
    """A number made of some texts, which every program can hold exactly: below 2**52."""
    return int(hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:13], 16)


def _result_row(outcome: Outcome, number: int, entry: int) -> dict[str, Any]:
    names = ("task", "type", "metric", "status", "value", "data", "key", "written", "document")
    values = {name: _stored(RESULTS.c[name], getattr(outcome, name)) for name in names}
    return {**values, "id": number, "entry": entry}


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


def _drop(connection: Connection, units: Sequence[int]) -> None:
    for some in _batched(units, 500):
        entries = select(ENTRIES.c.id).where(ENTRIES.c.unit.in_(some))
        for table in (SCORES, RESULTS, AVERAGES):
            connection.execute(delete(table).where(table.c.entry.in_(entries)))
        connection.execute(delete(ENTRIES).where(ENTRIES.c.unit.in_(some)))
        connection.execute(delete(UNITS).where(UNITS.c.id.in_(some)))


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


def _batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some
