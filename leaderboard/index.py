"""Keeping the index: what is new in the folders is taken in, what is gone is dropped."""

from __future__ import annotations

import hashlib
import logging
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import (
    Connection,
    Engine,
    insert,
    select,
    update,
)

from harness import files, paths
from harness.errors import StoreError
from harness.imported import Imported
from leaderboard import imports, judged, measured, printed, watched
from leaderboard.database import META, METADATA, UNITS, alone, lock, open_engine
from leaderboard.found import Unit
from leaderboard.index_writer import SEEDS, Writer, drop, key_of, write_groups
from leaderboard.scopes import Listed, Scope, all_scopes, listed
from leaderboard.settings import Settings

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
