"""The former import, as far as a refresh needs it."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from harness import __version__, imported
from harness.errors import RecordError, UsageError
from harness.imported import Imported
from leaderboard.data import mteb_pool as rows_of
from leaderboard.data.mteb_files import (
    CARD,
    FLAGS,
    IMPOSSIBLE,
    NO_SCORE,
    Found,
    Parsed,
    Told,
    commit_of,
    digest_of,
    folder_of,
    results_of,
    scan,
)
from leaderboard.data.mteb_pool import TRUST, Codes, Rows, Size, cards_of, table_of

if TYPE_CHECKING:
    from leaderboard.data.mteb_pool import Progress


log = logging.getLogger(__name__)

ABOUT = ("path", "size", "mtime_ns", "ctime_ns", "problem")

PASSING = ("cannot be", "too large for the memory")
"""How the problems begin that do not lie in the file."""


class Row(NamedTuple):
    """What the manifest knows of a file."""

    size: int
    mtime_ns: int
    ctime_ns: int
    problem: str
    place: int

    def same(self, found: Found) -> bool:
        """Whether the file is what it was."""
        same = self.size == found.size and self.mtime_ns == found.mtime_ns
        return (
            same and self.ctime_ns == found.ctime_ns and (not found.problem or found.problem == self.problem)
        )

    @property
    def passing(self) -> bool:
        """Whether the file could not be read for a reason that may be gone by now."""
        return self.problem.startswith(PASSING)


@dataclass(frozen=True, kw_only=True)
class Former:
    """The import that stands: its files by path."""

    imported: Imported
    files: Mapping[str, Row]

    def told(self) -> list[Told]:
        """What each of its files is, in their order."""
        columns = [self.imported.files([name])[name].to_pylist() for name in Told._fields]
        return [Told(*values) for values in zip(*columns, strict=True)]


def usable(standing: Imported | None, versions: Mapping[str, Any]) -> bool:
    """Whether there is an import that is whole and was read as files are read now."""
    if standing is None or not standing.whole():
        return False
    return bool(standing.stamp.get("versions") == {"harness": __version__, **versions})


def stands(standing: Imported, digest: str) -> bool:
    """Whether nothing changed since, and nothing is to be tried again."""
    problems = standing.counts.get("problems", {})
    return standing.stamp.get("scan") == digest and not any(p.startswith(PASSING) for p in problems)


def read(standing: Imported) -> Former | None:
    """What a refresh needs of the import, None if its tables cannot be read."""
    try:
        table = standing.files(ABOUT)
        standing.scores(["flag"])
        standing.entries(["card"])
    except RecordError as error:
        log.warning("%s Everything is imported anew.", error.message)
        return None
    columns = [table[name].to_pylist() for name in ABOUT]
    places = range(table.num_rows)
    rows = {path: Row(*facts) for path, *facts in zip(*columns, places, strict=True)}
    return Former(imported=standing, files=rows)


LISTED = 50
"""Unreadable files that are named in a stamp."""

LISTED_SCORES = 200
"""Impossible scores that are named in a stamp."""


class File(NamedTuple):
    """A file of the import: what was found, what it is, and where its rows begin."""

    found: Found
    told: Told
    start: int


def tables_of(
    found: Sequence[Found], read: Sequence[str], parsed: Sequence[Parsed], before: Former | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tables by name, and the facts of the stamp.

    Args:
        found: Every file there is.
        read: The paths of those that were read now.
        parsed: What these hold, in their order.
        before: The former import, which holds all others.
    """
    parts = [rows_of.of_parsed(part) for part in parsed]
    files = _read_files(found, read, parsed)
    cards = {path.rpartition("/")[0]: facts for part in parsed for path, facts in part.cards.items()}
    if before:
        shift = sum(len(part.score) for part in parts)
        files |= _kept_files(found, files, before, shift)
        parts.append(rows_of.of_table(before.imported.scores(rows_of.COLUMNS)))
        cards = {**_kept_cards(files, read, before), **cards}
    files |= {f.path: File(f, Told(problem=f.problem), 0) for f in found if f.problem}
    ordered, folders = _ordered(files)
    lengths = np.array([file.told.rows for file in ordered], dtype=np.int32)
    starts = np.array([file.start for file in ordered], dtype=np.int64)
    rows = rows_of.taken(rows_of.joined(parts), starts, lengths)
    entries = table_of(_sizes(folders), cards)
    numbers = _numbers(ordered, folders)
    tables = {
        "entries": entries,
        "files": _files_table(ordered, numbers),
        "scores": _scores_table(ordered, numbers, lengths, rows),
    }
    return tables, _facts(ordered, lengths, rows, entries)


def _read_files(found: Sequence[Found], read: Sequence[str], parsed: Sequence[Parsed]) -> dict[str, File]:
    by_path = {file.path: file for file in found}
    told = [one for part in parsed for one in part.told]
    starts = np.cumsum([0, *(one.rows for one in told)]).tolist()
    return {
        path: File(by_path[path], one, start)
        for path, one, start in zip(read, told, starts[:-1], strict=True)
    }


def _kept_files(
    found: Sequence[Found], files: Mapping[str, File], before: Former, shift: int
) -> dict[str, File]:
    """The files that are what they were, their rows behind `shift` others."""
    told = before.told()
    starts = np.cumsum([shift, *(one.rows for one in told)]).tolist()
    places = (
        (f, before.files[f.path].place) for f in found if f.path in before.files and f.path not in files
    )
    return {file.path: File(file, told[place], starts[place]) for file, place in places}


def _kept_cards(files: Mapping[str, File], read: Sequence[str], before: Former) -> dict[str, Any]:
    new = set(read)
    kept = {path.rpartition("/")[0] for path in files if path.endswith(f"/{CARD}") and path not in new}
    return {f: facts for f, facts in cards_of(before.imported.entries()).items() if f in kept}


def _ordered(files: Mapping[str, File]) -> tuple[list[File], dict[str, list[File]]]:
    """The files by entry, task and path, those of no entry last; and those of each entry."""
    folders: dict[str, list[File]] = {}
    others = []
    for path in sorted(files):
        folder = folder_of(path)
        if folder is None or not path.endswith(".json"):
            others.append(files[path])
        else:
            folders.setdefault(folder, []).append(files[path])
    folders = dict(sorted(folders.items(), key=lambda item: item[0].split("/")))
    for of in folders.values():
        of.sort(key=lambda file: (file.told.task or "", file.found.path))
    return [*(file for of in folders.values() for file in of), *others], folders


def _numbers(ordered: Sequence[File], folders: Mapping[str, list[File]]) -> Codes:
    """The entry of each file, -1 for none."""
    numbers = np.repeat(np.arange(len(folders)), [len(of) for of in folders.values()]).astype(np.int32)
    return np.concatenate([numbers, np.full(len(ordered) - len(numbers), -1, dtype=np.int32)])


def _sizes(folders: Mapping[str, list[File]]) -> dict[str, Size]:
    return {
        folder: Size(
            files=sum(file.told.task is not None for file in files),
            rows=sum(file.told.rows for file in files),
            digest=hashlib.sha256(repr([(*f.found, *f.told) for f in files]).encode()).hexdigest(),
        )
        for folder, files in folders.items()
    }


def _files_table(ordered: Sequence[File], numbers: Codes) -> Any:
    found = {name: [getattr(f.found, name) for f in ordered] for name in Found._fields if name != "problem"}
    told = {name: [getattr(f.told, name) for f in ordered] for name in Told._fields}
    kinds = {"size": pa.int64(), "mtime_ns": pa.int64(), "ctime_ns": pa.int64(), "converted": pa.bool_()}
    kinds |= {"repeated": pa.int32(), "rows": pa.int32(), "seconds": pa.float64()}
    columns = {name: pa.array(v, kinds.get(name, pa.string())) for name, v in {**found, **told}.items()}
    for name in ("problem", "task", "data_revision", "mteb_version"):
        columns[name] = columns[name].dictionary_encode()
    return pa.table({"entry": pa.array(numbers, mask=numbers < 0), **columns})


def _scores_table(ordered: Sequence[File], numbers: Codes, lengths: Codes, rows: Rows) -> Any:
    def spread(name: str) -> Any:
        return rows_of.spread([getattr(file.told, name) for file in ordered], lengths)

    return pa.table(
        {
            "entry": pa.array(np.repeat(numbers, lengths)),
            "task": spread("task"),
            **rows_of.columns_of(rows),
            "data_revision": spread("data_revision"),
            "mteb_version": spread("mteb_version"),
        }
    )


def _facts(ordered: Sequence[File], lengths: Codes, rows: Rows, entries: Any) -> dict[str, Any]:
    """What the stamp tells beside its tables."""
    bad = [file for file in ordered if file.told.problem]
    trust = Counter(entries["trust"].to_pylist())
    counts = {
        "files": sum(file.told.task is not None for file in ordered),
        "cards": sum(entries["card"].to_pylist()),
        "models": len(set(entries["model"].to_pylist())),
        "entries": entries.num_rows,
        "rows": len(rows.score),
        "trust": {kind: trust[kind] for kind in TRUST},
        "converted": sum(file.told.converted for file in ordered),
        "repeated": sum(file.told.repeated for file in ordered),
        "impossible": int((rows.flag == IMPOSSIBLE).sum()),
        "no_score": int((rows.flag == NO_SCORE).sum()),
        "unreadable": len(bad),
        "problems": dict(Counter(file.told.problem.partition(":")[0] for file in bad).most_common()),
    }
    return {
        "counts": counts,
        "unreadable": [{"path": f.found.path, "problem": f.told.problem} for f in bad[:LISTED]],
        "impossible": list(_impossible(ordered, lengths, rows)),
    }


def _impossible(ordered: Sequence[File], lengths: Codes, rows: Rows) -> Iterator[dict[str, Any]]:
    ends = np.cumsum(lengths)
    for row in np.flatnonzero(rows.flag == FLAGS.index("impossible"))[:LISTED_SCORES]:
        score = float(rows.score[row])
        yield {
            "path": ordered[int(np.searchsorted(ends, row, side="right"))].found.path,
            "split": rows.splits[rows.split[row]],
            "subset": rows.subsets[rows.subset[row]],
            "main_score": None if np.isnan(score) else score,
        }


SOURCE = "mteb-results"

PARSER = 2
"""The version of the reading of files: another one reads all of them again."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What an import did.

    Attributes:
        imported: The import as it stands now.
        changed: Whether its tables were written.
        read: Files that were read, new and changed ones.
        unchanged: Files that were not, as they are what they were.
        removed: Files of the former import that are gone.
    """

    imported: Imported
    changed: bool
    read: int
    unchanged: int
    removed: int


def import_results(
    path: Path, results: Path, *, workers: int | None = None, progress: Progress | None = None
) -> Outcome:
    """Import a checkout of the repository into a results folder, or refresh the import there.

    Running it again after it was stopped begins anew; the former import stands until the last step.

    Args:
        path: The checkout, or its `results` folder.
        results: The results folder.
        workers: Processes that read files; None means one for each core.
        progress: Told how many files were read.

    Raises:
        UsageError: There are no results at `path`, or another import is at work.
        StoreError: The results folder cannot be written.
        RecordError: The import there is of a newer schema.
    """
    root = results_of(path)
    found = scan(root)
    if not any(not file.problem for file in found):  # nothing is made for a wrong path
        raise UsageError(
            f"{path} holds no results of mteb.",
            hint="They lie at <model>/<revision>/<Task>.json, here or in `results` below.",
        )
    folder = imported.Imported.home(results, SOURCE)
    with imported.Imported.lock(folder):
        standing = imported.Imported.read(folder)
        digest = digest_of(found)
        told = {"commit": commit_of(root), "scan": digest}
        if standing is None or not usable(standing, versions()):
            return _refreshed(folder, root, found, None, told, workers, progress)
        if stands(standing, digest):
            return _unchanged(standing, told, read=0, of=len(found))
        return _refreshed(folder, root, found, read(standing), told, workers, progress)


def versions() -> Mapping[str, Any]:
    """What decides how files are read."""
    return {"parser": PARSER}


def _refreshed(
    folder: Path,
    root: Path,
    found: list[Found],
    before: Former | None,
    told: Mapping[str, Any],
    workers: int | None,
    progress: Progress | None,
) -> Outcome:
    """Read what is new, and what could not be read before; write the tables if that changed them."""
    from leaderboard.data.mteb_pool import parse

    known = before.files if before else {}
    others = [file for file in found if (row := known.get(file.path)) is None or not row.same(file)]
    again = [file for file in found if file.path in known and known[file.path].passing]
    read = sorted({file.path for file in (*others, *again) if not file.problem})
    parsed = parse(root, read, workers, progress) if read else []
    gone = len(known.keys() - {file.path for file in found})
    if before and not others and not gone and all(one.problem for part in parsed for one in part.told):
        return _unchanged(before.imported, told, read=len(read), of=len(found))
    pass

    tables, facts = tables_of(found, read, parsed, before)
    now = imported.Imported.publish(folder, tables, {**told, **facts}, versions())
    return Outcome(imported=now, changed=True, read=len(read), unchanged=len(found) - len(read), removed=gone)


def _unchanged(now: Imported, told: Mapping[str, Any], *, read: int, of: int) -> Outcome:
    """The import as it stands, with the commit it is of now."""
    if now.stamp.get("commit") != told["commit"]:
        now = now.restamp({"commit": told["commit"]})
    return Outcome(imported=now, changed=False, read=read, unchanged=of - read, removed=0)
