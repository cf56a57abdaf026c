"""The tables of an import, put together from what was read now and what a former import holds."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from leaderboard.importers import _mteb_rows as rows_of
from leaderboard.importers._mteb_entries import TRUST, Size, cards_of, table_of
from leaderboard.importers._mteb_files import FLAGS, IMPOSSIBLE, NO_SCORE, Parsed, Told
from leaderboard.importers._mteb_former import Former
from leaderboard.importers._mteb_rows import Codes, Rows
from leaderboard.importers._mteb_scan import CARD, Found, folder_of

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
