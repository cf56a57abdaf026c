"""Whether data is whole: its parts by their names, and its rows by the numbers that it declares."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.errors import DataError
from harness.data.folder import list_visible_files, read_card, read_configurations
from harness.data.tables import iter_file_rows, read_qrels

PARTIAL = "partial-data"
"""The name by which a user accepts a part of the data for the whole (`--allow`)."""

WHOLE = f"Copy all files of the data set there, or accept what is there, which records say: --allow {PARTIAL}"
"""What to do about a part of the data."""

_PART = re.compile(r"(?P<stem>.*?)(?P<number>\d+)(?P<of>[-_]of[-_])(?P<count>\d{1,6})(?!\d)")
"""A file's name that tells its place among several, e.g. `data/test-00000-of-00002`."""


@dataclass(frozen=True, kw_only=True)
class _Part:
    """A file that is one of several; `form` is its name with a place for the number."""

    name: str
    stem: str
    form: str
    number: int
    count: int


def _parse_parts(names: Iterable[str]) -> dict[str, list[_Part]]:
    """The files whose names say that they are parts, by the beginning of their names."""
    parts: dict[str, list[_Part]] = {}
    for name in sorted(names):
        if match := _PART.match(name):
            stem, number, of, count = match["stem"], match["number"], match["of"], match["count"]
            part = _Part(
                name=name,
                stem=stem,
                form=f"{{:0{len(number)}d}}{of}{count}",
                number=int(number),
                count=int(count),
            )
            parts.setdefault(stem, []).append(part)
    return parts


def _list_missing_parts(parts: list[_Part]) -> list[str]:
    """The names of the parts that are missing among those of one upload, without their endings."""
    numbers, count = {part.number for part in parts}, parts[0].count
    # Some tools count from 1: only then can a number be that of all parts.
    first = int(count in numbers and 0 not in numbers)
    absent = (number for number in range(first, count + first) if number not in numbers)
    return [parts[0].stem + parts[0].form.format(number) for number in absent]


def find_missing_parts(names: Iterable[str]) -> Iterator[str]:
    """The names, without endings, of the parts that the names of others imply.

    >>> list(find_missing_parts(["test-00000-of-00002.parquet", "train.parquet"]))
    ['test-00001-of-00002']
    """
    for parts in _parse_parts(names).values():
        for count in sorted({part.count for part in parts}):
            yield from _list_missing_parts([part for part in parts if part.count == count])


def count_parts(names: Iterable[str]) -> tuple[int, int]:
    """The number of files that are parts, and of those that their names imply.

    >>> count_parts(["test-00000-of-00002.parquet", "train.parquet"])
    (1, 2)
    """
    parts = [part for group in _parse_parts(names).values() for part in group]
    return len(parts), sum({(part.stem, part.count): part.count for part in parts}.values())


def find_part_gaps(names: Iterable[str]) -> list[str]:
    """What the names of the files that are read together say against their being whole, in sentences.

    >>> find_part_gaps(["data/test-00000-of-00002.parquet"])
    ['data/test-00001-of-00002 is missing: 1 of 2 parts is here']
    """
    gaps = []
    for parts in _parse_parts(names).values():
        first, last = min(parts, key=lambda part: part.count), max(parts, key=lambda part: part.count)
        if first.count != last.count:
            gaps.append(f"{first.name} and {last.name} are parts of two uploads: of {first.count} and of "
                        f"{last.count} files")  # fmt: skip
            continue
        by_number = {part.number: part for part in parts}
        again = next((part for part in parts if by_number[part.number] is not part), None)
        if again is not None:
            gaps.append(f"{again.name} and {by_number[again.number].name} are the same part twice")
        elif missing := _list_missing_parts(parts):
            more = f" and {len(missing) - 1:,} more are" if len(missing) > 1 else " is"
            held = f"{len(parts):,} of {first.count:,} parts {'is' if len(parts) == 1 else 'are'} here"
            gaps.append(f"{missing[0]}{more} missing: {held}")
    return gaps


def describe_row_gap(where: str, rows: int, declared: int) -> str:
    """The sentence on a table that has fewer rows than the data set declares."""
    return f"{where}: {rows:,} of the {declared:,} rows that its data set declares are here"


Declared = Mapping[tuple[str, str], int]
"""Numbers of rows by configuration and split."""


def read_declared_rows(folder: Path) -> Declared:
    """The rows that a folder declares: in its README's `dataset_info`, dataset_infos.json, dataset_info.json.

    Raises:
        DataError: The README's metadata cannot be read.
    """
    entries: list[tuple[str, Any]] = []
    # The first that names a split counts: the README is what the hub and the datasets library go by.
    info = read_card(folder).get("dataset_info")
    for entry in info if isinstance(info, list) else [info]:
        entries.append(("", entry))
    for name in ("dataset_infos.json", "dataset_info.json"):
        with suppress(OSError, ValueError, AttributeError, RecursionError):
            content = json.loads((folder / name).read_bytes())
            entries += [("", content)] if name == "dataset_info.json" else [*content.items()]
    rows: dict[tuple[str, str], int] = {}
    for config, entry in entries:
        for split, count in _iter_split_rows(entry):
            rows.setdefault((str(config or entry.get("config_name") or "default"), split), count)
    return rows


def _iter_split_rows(info: Any) -> Iterator[tuple[str, int]]:
    """The splits with their rows in one `dataset_info`: a list of splits, or a mapping of their names."""
    splits = info.get("splits") if isinstance(info, dict) else None
    pairs = (
        splits.items()
        if isinstance(splits, dict)
        else [("", one) for one in (splits if isinstance(splits, list) else ())]
    )
    for name, split in pairs:
        count = split.get("num_examples") if isinstance(split, dict) else None
        # By type, since true is an int in Python.
        if type(count) is int:
            yield str(name or split.get("name")), count


def find_declared_splits(declared: Declared, config: str) -> dict[str, int]:
    """The rows that a data set declares for the splits of a configuration."""
    configs = {name for name, _ in declared}
    # A data set without configurations may have been uploaded under a name of its own.
    only = next(iter(configs)) if config == "default" and len(configs) == 1 else config
    return {split: rows for (name, split), rows in declared.items() if name == only}


def find_file_gaps(file: Path) -> list[str]:
    """What is missing of a user's own file, by its name and by a README beside it, in sentences.

    Raises:
        DataError: A row cannot be read.
    """
    gaps = find_part_gaps([file.name])
    declared = None if gaps else _find_declared_file_rows(file)
    if declared is not None:
        is_text = file.suffix in (".tsv", ".txt", ".qrels", ".trec") and file.parent.name == "qrels"
        rows = len(read_qrels(file)) if is_text else sum(1 for _ in iter_file_rows(file))
        gaps += [describe_row_gap(file.name, rows, declared)] if rows < declared else []
    return [f"{file.parent}: {gap}" for gap in gaps]


def _find_declared_file_rows(file: Path) -> int | None:
    """The rows that a README beside a file, or in the folder above, declares for it; None without any."""
    for folder in (file.parent, file.parent.parent):
        with suppress(DataError):  # a README of any form may lie beside a user's own files
            if declared := read_declared_rows(folder):
                return _match_file(file, folder, declared)
    return None


def _match_file(file: Path, folder: Path, declared: Declared) -> int | None:
    for name, config in read_configurations(folder).items():
        for split, patterns in config.patterns.items():
            if any(file in config.folder.glob(pattern) for pattern in patterns):
                return find_declared_splits(declared, name).get(split)
    stem = _PART.sub(lambda match: match["stem"].rstrip("-_."), file.name.partition(".")[0])
    matches = {rows for names, rows in declared.items() if stem in names}
    data_files = [path for path in list_visible_files(folder).values() if path.suffix == file.suffix]
    if not matches and len(data_files) == 1:
        matches = set(declared.values())
    return matches.pop() if len(matches) == 1 else None
