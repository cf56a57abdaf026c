"""Snapshots: what folders hold, as Parquet files of one version each; they can be written again."""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import duckdb
from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict

from harness.core import files
from harness.core.documents import read_content_file, write_content_file
from harness.core.errors import StoreError
from harness.results.revisions import REVISIONS
from harness.storage.imported import STAMP, Imported
from harness.storage.imported import TABLES as IMPORT_TABLES
from leaderboard.data import backbones, documents, imports, records
from leaderboard.data.entries import Unit
from leaderboard.data.seeds import SEEDS, put_seeds
from leaderboard.data.settings import SiteSettings
from leaderboard.data.suites import Scopes, SiteSuite, collect_scopes, load_site_suites
from leaderboard.data.tables import (
    TEXT_ROWS,
    Tables,
    clean_stored_text,
    create_text_schema,
    hash_tables,
    read_units,
    write_texts,
)

log = logging.getLogger(__name__)

FORM = 22
"""The form of snapshots; raised when tables or their contents change, so that old snapshots are not read."""

OWN = "own"
"""The part of a snapshot that holds everything but imports."""

FILES = 12
"""Files of texts beside the largest from which on they become one."""

WEEK = 7 * 24 * 3600
SPARE = 600
"""Seconds after which nobody reads a version that another one has replaced."""

REPORTED, RANKS = "reported", "ranks.json"
"""What a kept snapshot has beside its tables: those of the papers, and the ranks on the boards."""


class Snapshot(BaseModel):
    """One version of the tables: a folder of Parquet files for each part, the own one first.

    `units` are the stamps of the own part's units, `imports` the source, folder and identifier of each
    import, `files` the size and the SHA-256 of each file, `digests` what the tables of each part hold.
    `made` is when they were first seen to hold it, in UTC, and `form` names the software that can read them.
    """

    model_config = ConfigDict(frozen=True)

    folder: Path
    version: int
    units: Mapping[str, str]
    parts: Sequence[str]
    imports: Mapping[str, tuple[str, str, str]]
    files: Mapping[str, tuple[int, str]]
    digests: Mapping[str, str] = {}
    made: str = ""
    form: str = ""

    @property
    def id(self) -> str:
        """A short digest of what all tables hold, wherever and in whatever order they were read."""
        return hashlib.sha256("".join(sorted(self.digests.values())).encode()).hexdigest()[:12]

    def list_table_files(self, table: str) -> list[str]:
        """The Parquet files of a table."""
        return [str(self.folder / part / f"{table}.parquet") for part in self.parts]

    @cached_property
    def ranks(self) -> Mapping[str, Mapping[str, str]]:
        """The ranks of a kept snapshot, as Queries.list_ranks has them."""
        ranks: Mapping[str, Mapping[str, str]] = json.loads((self.folder.parent / RANKS).read_text())
        return ranks

    def locate_texts(self, batch: int) -> Path:
        """The file of the texts of a batch."""
        return self.folder / OWN / _format_texts_name(batch)

    @property
    def has_all_files(self) -> bool:
        """Whether all files are there in their full length."""
        return (
            bool(self.files)
            and self.files.keys() == _list_files(self.folder).keys()
            and all((self.folder / name).stat().st_size == size for name, (size, _) in self.files.items())
        )

    @property
    def is_whole(self) -> bool:
        """Whether all files are there as they were written; reads them."""
        return bool(self.files) and self.files == _hash_files(self.folder)


NOTHING = Snapshot(folder=Path(), version=0, units={}, parts=(), imports={}, files={})
"""The former snapshot of a folder that has none yet."""


class SiteIndex:
    """The snapshots of some folders; the newest is shown."""

    def __init__(
        self, settings: SiteSettings, folder: Path, suites: dict[str, SiteSuite], scopes: Scopes
    ) -> None:
        self.settings = settings
        self.folder = folder
        self.suites = suites
        self._scopes = scopes
        self.scope_ids = {one.form: n for some in self._scopes.values() for n, one in some.items()}
        self._seen: tuple[tuple[int, int], Snapshot | None] = ((0, 0), None)
        self.damaged = False
        self._verified = 0
        self._filled: set[Path] = set()

    @property
    def vanished(self) -> list[Path]:
        """The results folders that held something at an earlier look, and now are gone or empty."""
        filled = {root for root in self.settings.results if _has_content(root)}
        self._filled |= filled
        return sorted(self._filled - filled)

    @property
    def snapshot(self) -> Snapshot | None:
        """The newest whole snapshot, read again only where another one replaced it."""
        try:
            facts = (self.folder / "current.json").stat()
        except OSError:
            return None
        # The file is replaced, never written in place: a new inode tells versions of one clock tick apart.
        place = (facts.st_mtime_ns, facts.st_ino)
        if place != self._seen[0]:
            self._seen = (place, _read_snapshot(self.folder / "current.json"))
        return self._seen[1]

    @property
    def version(self) -> int:
        """A number that rises whenever anything changed."""
        return self.snapshot.version if self.snapshot else 0

    def verify_snapshot(self) -> bool:
        """Whether there is a snapshot whose files are as they were written; read once for each version."""
        snapshot = self.snapshot or NOTHING
        if snapshot.version != self._verified:
            self._verified = snapshot.version if snapshot.is_whole else 0
        return bool(self._verified) and snapshot.has_all_files

    def refresh(self) -> int:
        """Look at every folder; returns how many units were read, as they are new or changed.

        Where another process is doing so, its former snapshot is good enough.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            # Without a snapshot to show, a process must wait for the one that makes it.
            with FileLock(self.folder / ".lock", timeout=0 if self.version and not self.damaged else -1):
                return self._refresh()
        except Timeout:
            return 0

    def _refresh(self) -> int:
        units = {clean_stored_text(f"{unit.source}/{unit.name}"): unit for unit in self._iter_source_units()}
        # After the listing: of a disk that goes away meanwhile nothing is taken for deleted.
        if self.version and (vanished := self.vanished):
            log.error("%s: gone or empty. The snapshot stays as it is.", ", ".join(map(str, vanished)))
            self.damaged = False
            return 0
        former = self.snapshot or NOTHING
        if former.version and (self.damaged or not self.verify_snapshot()):
            log.error("%s is damaged. It is written again from the folders.", former.folder)
            former = NOTHING
        fresh = {name: unit for name, unit in units.items() if former.units.get(name) != unit.stamp}
        has_gone = bool(former.units.keys() - units.keys())
        parts = _map_import_parts([i for root in self.settings.results for i in Imported.read_imports(root)])
        if not fresh and not has_gone and list(former.parts) == [OWN, *parts]:
            return 0
        return self._write_version(former, units, fresh, has_gone, parts)

    def _write_version(
        self,
        former: Snapshot,
        units: Mapping[str, Unit],
        fresh: Mapping[str, Unit],
        has_gone: bool,
        parts: Mapping[str, Imported],
    ) -> int:
        """Write a new version beside the former one, and then in its place; how many units were read."""
        old = [int(path.name) for path in self.folder.iterdir() if path.name.isdecimal()]
        # A process that was killed may have left a folder that current.json never named.
        version = max([self.version, *old]) + 1
        new = self.folder / f"new-{version}"
        # Left by killed processes: this one holds the lock, so nobody else is writing.
        for rest in self.folder.glob("new-*"):
            shutil.rmtree(rest, ignore_errors=True)
        new.mkdir()
        tables = Tables()
        (new / OWN).mkdir()
        read, stamps = self._fill_own_tables(tables, former, units, fresh, new, version)
        changed = bool(read or has_gone or not former.version)
        if changed:
            # After all units: means over seeds need those that were kept as well as those just read.
            put_seeds(tables)
            tables.save_tables(new / OWN)
        else:
            _link(former, OWN, new)
        import_parts, taken = self._write_imports(new, former, parts, tables.slugs)
        if not changed and import_parts.keys() == former.imports.keys():
            shutil.rmtree(new)
            return 0
        # The folder first, then current.json: no reader may see a version whose files are missing.
        files.move(new, self.folder / str(version))
        self._replace_current(version, stamps, import_parts)
        return read + taken

    def _fill_own_tables(
        self,
        tables: Tables,
        former: Snapshot,
        units: Mapping[str, Unit],
        fresh: Mapping[str, Unit],
        new: Path,
        version: int,
    ) -> tuple[int, dict[str, str]]:
        """Put everything but imports into tables: how many units were read, and the stamps of all there."""
        from pyarrow.parquet import ParquetWriter

        kept = [name for name in units if name in former.units and name not in fresh]
        if former.version:
            tables.keep(former.folder / OWN, [*kept, SEEDS])
        texts, failed = new / OWN / _format_texts_name(version), set[str]()
        with ParquetWriter(texts, create_text_schema(), compression="zstd") as writer:
            for chunk in read_units(fresh, self._scopes):
                write_texts(writer, tables.take(chunk.rows, version))
                failed.update(chunk.failed)
            if again := [name for name in failed if name in former.units]:
                tables.keep(former.folder / OWN, again)
            _take_texts(tables, former, version, writer)
        read = {name: unit.stamp for name, unit in fresh.items() if name not in failed}
        return len(read), read | {name: former.units[name] for name in (*kept, *again)}

    def _write_imports(
        self, new: Path, former: Snapshot, parts: Mapping[str, Imported], slugs: set[str]
    ) -> tuple[dict[str, tuple[str, str, str]], int]:
        """Write the parts of imports, and count the entries read; a damaged import keeps its former part."""
        locations: dict[str, tuple[str, str, str]] = {}
        taken = 0
        for name, source in parts.items():
            if name in former.imports:
                _link(former, name, new)
                locations[name] = former.imports[name]
                continue
            tables = Tables()
            # One set for all parts: of an entry that two imports have only the first is taken.
            tables.slugs = slugs
            try:
                taken += imports.put_import(tables, source, self._scopes)
                tables.save_tables(new / name)
                locations[name] = (source.source, str(source.folder.resolve()), source.id)
            except (duckdb.Error, KeyError, TypeError, ValueError) as error:
                reason = " ".join(str(error).split())[:300]
                log.error(
                    "The import %s cannot be read: %s. What was known of it stays.", source.folder, reason
                )
                for old, place in former.imports.items():
                    if place[1] == str(source.folder.resolve()):
                        _link(former, old, new)
                        locations[old] = place
        return locations, taken

    def _replace_current(
        self, version: int, units: Mapping[str, str], parts: Mapping[str, tuple[str, str, str]]
    ) -> None:
        folder, former, scopes = self.folder / str(version), self.snapshot or NOTHING, list(self.scope_ids)
        # The part of an import has another name whenever it holds anything else.
        digests = {n: former.digests.get(n) or hash_tables(folder / n, scopes) for n in parts}
        digests[OWN] = hash_tables(folder / OWN, scopes)
        current = Snapshot(
            folder=folder, version=version, units=units, parts=[OWN, *parts], imports=parts,
            files=_hash_files(folder), digests=digests, made=datetime.now(UTC).isoformat("T", "seconds"),
            form=self.folder.name,
        )  # fmt: skip
        if current.id == former.id:
            current = current.model_copy(update={"made": former.made})
        _write_snapshot(self.folder, current)
        self.damaged, self._verified = False, version
        for old in self.folder.iterdir():
            # Pages of the version before may still be at work.
            if old.name.isdecimal() and int(old.name) < version and time.time() - old.stat().st_mtime > SPARE:
                shutil.rmtree(old, ignore_errors=True)

    @property
    def _kept(self) -> Path:
        # Beside the folders of all forms: other software removes those that it does not know.
        return self.folder.with_name(f"{self.folder.name.rpartition('-')[0]}-kept")

    def list_kept(self) -> list[Snapshot]:
        """The kept snapshots that this software can read, the oldest first."""
        snapshots = []
        for path in self._kept.glob("[0-9a-f]*/current.json"):
            with suppress(OSError):
                snapshots.append(_read_kept(path, path.stat().st_mtime_ns))
        return sorted((s for s in snapshots if s and s.form == self.folder.name), key=lambda one: one.made)

    def open_kept(self, id: str) -> SiteIndex | None:
        """A kept snapshot as an index of its own; None if none has this id, or it is damaged.

        Raises:
            StoreError: It is there, and cannot be read now.
        """
        index, path = copy.copy(self), self._kept / id / "current.json"
        index.folder, index._verified = path.parent, 0
        index.settings = replace(self.settings, reported=self.settings.reported and index.folder / REPORTED)
        try:
            facts = path.stat()
            snapshot = _read_kept(path, facts.st_mtime_ns)
            index._seen = ((facts.st_mtime_ns, facts.st_ino), snapshot)
            is_ours = snapshot is not None and (snapshot.id, snapshot.form) == (id, self.folder.name)
            return index if is_ours and index.verify_snapshot() else None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"Snapshot {id} cannot be read: {error}.", hint="Reload the page.") from error

    def keep(self, snapshot: Snapshot, list_ranks: Callable[[], object]) -> bool:
        """Keep a snapshot under its id until somebody removes it; False if as many are kept as may be.

        Args:
            snapshot: One whose files are there.
            list_ranks: Gives its ranks.

        Raises:
            StoreError: Its files are gone, or the cache cannot be written.
        """
        place, new = self._kept / snapshot.id, self._kept / f"new-{snapshot.id}"
        try:
            self._kept.mkdir(exist_ok=True)
            with FileLock(self._kept / ".lock"):
                if any(one.id == snapshot.id and one.has_all_files for one in self.list_kept()):
                    return True
                if len(self.list_kept()) >= self.settings.keep:
                    return False
                # What is there under this id was cut off, or is of another form.
                for folder in (place, new):
                    shutil.rmtree(folder, ignore_errors=True)
                shutil.copytree(snapshot.folder, new / str(snapshot.version), copy_function=_link_file)
                homes = {}
                for part, (source, home, number) in snapshot.imports.items():
                    (new / part / source).mkdir(parents=True)
                    for name in (STAMP, *(f"{table}-{number}.parquet" for table in IMPORT_TABLES)):
                        _link_file(Path(home) / name, new / part / source / name)
                    homes[part] = (source, str(place / part / source), number)
                if self.settings.reported:
                    shutil.copytree(self.settings.reported, new / REPORTED)
                (new / RANKS).write_text(json.dumps(list_ranks()))
                _write_snapshot(new, snapshot.model_copy(update={"units": {}, "imports": homes}))
                files.move(new, place)
        except OSError as error:
            raise StoreError(f"Snapshot {snapshot.id} cannot be kept: {error}.", hint="Try again.") from error
        return True

    def _iter_source_units(self) -> Iterator[Unit]:
        reference = [self.settings.reference] if self.settings.reference else []
        roots = [*self.settings.results, *(path for path in reference if path not in self.settings.results)]
        return chain(
            records.iter_record_units(roots, records.RecordReader.for_suites(list(self.suites.values()))),
            documents.iter_document_units(roots),
            backbones.iter_paper_units(self.settings.reported, self.suites),
        )


def open_index(settings: SiteSettings) -> SiteIndex:
    """The snapshots of a site's folders, in the cache or where settings say."""
    cache = files.resolve_cache_folder()
    suites = load_site_suites(cache, settings.suites)
    folders = repr([str(Path(p).resolve()) for p in (*settings.results, settings.reference or "")])
    name = hashlib.sha256(folders.encode()).hexdigest()[:16]
    # Everything that a snapshot's numbers depend on beside the folders.
    scopes = collect_scopes(list(suites.values()))
    forms = [scope.form for some in scopes.values() for scope in some.values()]
    form = hashlib.sha256(repr((FORM, forms)).encode() + REVISIONS.read_bytes()).hexdigest()[:8]
    folder = (settings.snapshots or cache / "site") / f"{name}-{form}"
    # Those of other forms that nobody has used for a week.
    for old in folder.parent.glob(f"{name}-*"):
        with suppress(OSError):
            # Another process may be removing the same folders.
            if old != folder and time.time() - (old / "current.json").stat().st_mtime > WEEK:
                shutil.rmtree(old)
    return SiteIndex(settings, folder, suites, scopes)


def _map_import_parts(sources: Sequence[Imported]) -> dict[str, Imported]:
    """Imports by the names of their parts; of two with the same source the first goes before the second."""
    tables = imports.MAIN_REVISIONS.read_bytes() + imports.TRAINING_TASKS.read_bytes()
    parts: dict[str, Imported] = {}
    for source in sources:
        # What a part holds depends on the imports before it, as their slugs go first, on the main
        # revisions, and on what mteb's registry declares: a change of any must give it a new name.
        before = [one.id for one in parts.values() if one.source == source.source]
        digest = hashlib.sha256(repr((source.source, source.id, before)).encode() + tables).hexdigest()
        parts[f"{source.id}-{digest[:12]}"] = source
    return parts


def _has_content(folder: Path) -> bool:
    try:
        return any(folder.iterdir())
    except OSError:
        return False


def _link(former: Snapshot, part: str, new: Path) -> None:
    """Take over the files of a part of the former snapshot."""
    (new / part).mkdir(exist_ok=True)
    for old in (former.folder / part).glob("*.parquet"):
        _link_file(old, new / part / old.name)


def _link_file(old: Path | str, place: Path | str) -> None:
    if Path(place).exists():
        return
    try:
        # A hard link takes no space; some file systems have none.
        os.link(old, place)
    except OSError:
        shutil.copyfile(old, place)


def _format_texts_name(batch: int | str) -> str:
    return f"texts-{batch}.parquet"


def _take_texts(tables: Tables, former: Snapshot, version: int, writer: Any) -> None:
    """Take over the texts of a former snapshot that results name; of many files all but the largest."""
    import pyarrow as pa

    sql = "SELECT batch, count(*) AS n FROM results WHERE batch < ? GROUP BY batch ORDER BY n DESC"
    batches = {row["batch"]: former.locate_texts(row["batch"]) for row in tables.fetch_rows(sql, version)}
    others = list(batches)[1:]
    for batch in others if len(others) >= FILES else ():
        texts = tables.connection.execute(
            """SELECT id, document FROM read_parquet(?)
               WHERE id IN (SELECT id FROM results WHERE batch = ?)""",
            [str(batches.pop(batch)), batch],
        )
        while rows := texts.fetchmany(TEXT_ROWS):
            arrays = [pa.array(values) for values in zip(*rows, strict=True)]
            write_texts(writer, pa.Table.from_arrays(arrays, schema=writer.schema))
        tables.connection.execute("UPDATE results SET batch = ? WHERE batch = ?", [version, batch])
    for old in batches.values():
        _link_file(old, Path(writer.where).with_name(old.name))


def _list_files(folder: Path) -> dict[str, Path]:
    return {str(path.relative_to(folder)): path for path in sorted(folder.glob("*/*.parquet"))}


def _hash_files(folder: Path) -> dict[str, tuple[int, str]]:
    return {n: (path.stat().st_size, files.hash_file(path)) for n, path in _list_files(folder).items()}


def _read_snapshot(path: Path) -> Snapshot | None:
    """The snapshot that a file names; None, with a line in the log, if the file is damaged."""
    try:
        return _parse_snapshot(path)
    except (OSError, *DAMAGE):
        log.exception("%s cannot be read. The snapshot is written again from the folders.", path)
        return None


DAMAGE = (ValueError, KeyError, TypeError)
"""What a damaged file raises when it is read."""


def _parse_snapshot(path: Path) -> Snapshot:
    document = read_content_file(path)
    return Snapshot(**document, folder=path.parent / str(document["version"]))


@cache
def _read_kept(path: Path, _mtime: int) -> Snapshot | None:
    """The kept snapshot that a file names; None if it is damaged. What could not be read is not cached."""
    try:
        return _parse_snapshot(path)
    except DAMAGE:
        log.exception("%s is damaged.", path)
        return None


def _write_snapshot(folder: Path, snapshot: Snapshot) -> None:
    write_content_file(folder / "current.json", snapshot.model_dump(mode="json", exclude={"folder"}))
