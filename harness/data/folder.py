"""A data set's folder in a data root: its files, its card and manifest, their identity, and gaps."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Predicate

from harness.core.errors import DataError
from harness.core.files import hash_file, list_unfinished_downloads, require_size
from harness.core.keys import digest
from harness.core.types import Data
from harness.data.tables import format_error_line, iter_file_rows, read_qrels

PARTIAL = "partial-data"
"""The name by which a user accepts a part of the data for the whole (`--allow`)."""

WHOLE = f"Copy all files of the data set there, or accept what is there, which records say: --allow {PARTIAL}"
"""What to do about a part of the data."""

_PART = re.compile(r"(?P<stem>.*?)(?P<number>\d+)(?P<of>[-_ ]?of[-_ ]?)(?P<count>\d{1,6})(?!\d)")
"""A file's name that tells its place among several, e.g. `data/test-00000-of-00002`."""

_HASHED = re.compile(r"^[0-9a-fA-F]{64} [ *](?:\./)?(\S.*?)\r?$", re.MULTILINE)
"""A line of SHA256SUMS, with the name of a file."""

_NUMBERED = re.compile(r"(?P<stem>(?:.*/)?[^/\d]*?)(?P<number>\d+)(?!.*of[-_ ]?\d)")
_PART_WORD = re.compile(r"(part|shard|chunk)\W?$", re.IGNORECASE)
"""A file's name with a number alone, as Spark writes parts, and the words before it that mean a part."""


def _parse_parts(names: Iterable[str]) -> dict[str, list[re.Match[str]]]:
    """The files whose names say that they are parts, by the beginning of their names."""
    parts: dict[str, list[re.Match[str]]] = {}
    for match in filter(None, map(_PART.match, sorted(names))):
        parts.setdefault(match["stem"], []).append(match)
    return parts


def _list_missing_parts(parts: list[re.Match[str]]) -> list[str]:
    """The names of the parts that are missing among those of one upload, without their endings."""
    stem, digits, of, count = parts[0].groups()
    numbers = {int(part["number"]) for part in parts}
    # Some tools count from 1: only then can a number be that of all parts, and most write it without zeros.
    first = int(0 not in numbers and (int(count) in numbers or not digits.startswith("0")))
    absent = (number for number in range(first, int(count) + first) if number not in numbers)
    return [f"{stem}{number:0{len(digits)}d}{of}{count}" for number in absent]


def find_missing_parts(names: Iterable[str]) -> Iterator[str]:
    """The names, without endings, of the parts that the names of others imply.

    >>> list(find_missing_parts(["test-00000-of-00002.parquet", "train.parquet"]))
    ['test-00001-of-00002']
    """
    for parts in _parse_parts(names).values():
        for count in sorted({int(part["count"]) for part in parts}):
            yield from _list_missing_parts([part for part in parts if int(part["count"]) == count])


def count_parts(names: Iterable[str]) -> tuple[int, int]:
    """The number of files that are parts, and of those that their names imply.

    >>> count_parts(["test-00000-of-00002.parquet", "train.parquet"])
    (1, 2)
    """
    parts = [part for group in _parse_parts(names).values() for part in group]
    return len(parts), sum(count for _, count in {(part["stem"], int(part["count"])) for part in parts})


def find_part_gaps(names: Iterable[str]) -> list[str]:
    """What the names of the files that are read together say against their being whole, in sentences.

    >>> find_part_gaps(["data/test-00000-of-00002.parquet"])
    ['data/test-00001-of-00002 is missing: 1 of 2 parts is here']
    """
    names, gaps = [*names], []
    for parts in _parse_parts(names).values():
        by_count = {int(part["count"]): part.string for part in reversed(parts)}
        by_number = {int(part["number"]): part.string for part in parts}
        first, last = min(by_count), max(by_count)
        if first != last:
            both = f"{by_count[first]} and {by_count[last]}"
            gaps.append(f"{both} are parts of two uploads: of {first} and of {last} files")
            continue
        again = next((part for part in parts if by_number[int(part["number"])] != part.string), None)
        if again is not None:
            gaps.append(f"{again.string} and {by_number[int(again['number'])]} are the same part twice")
        elif missing := _list_missing_parts(parts):
            more = f" and {len(missing) - 1:,} more are" if len(missing) > 1 else " is"
            held = f"{len(parts):,} of {first:,} parts {'is' if len(parts) == 1 else 'are'} here"
            gaps.append(f"{missing[0]}{more} missing: {held}")
    return [*gaps, *_find_number_gaps(names)]


def _find_number_gaps(names: Iterable[str]) -> Iterator[str]:
    """The parts that are missing between others, where names have a number and say no count."""
    numbers: dict[tuple[str, int], set[str]] = {}
    for match in filter(None, map(_NUMBERED.match, names)):
        numbers.setdefault((match["stem"], len(match["number"])), set()).add(match["number"])
    for (stem, width), digits in numbers.items():
        # Other numbers, such as years or sizes, begin elsewhere and have no zeros before them.
        is_part = min(map(int, digits)) <= 1 and any(one.startswith("0") for one in digits) and width > 1
        absent = range(int(min(digits)), int(max(digits))) if is_part or _PART_WORD.search(stem) else ()
        for number in [one for one in absent if f"{one:0{width}d}" not in digits][:1]:
            yield f"{stem}{number:0{width}d} is missing: the parts before and behind it are here"


def find_recorded_gaps(folder: Path) -> dict[str, str]:
    """The files that a record of a download, of hashes or of Parquet names and that lack, with the record."""
    recorded = dict.fromkeys(list_unfinished_downloads(folder), "the record of a download in .cache")
    for record, path in list_visible_files(folder).items():
        names = list[str]()
        if path.name == "SHA256SUMS" or path.suffix == ".sha256":
            names = _HASHED.findall(path.read_text(encoding="utf-8", errors="replace"))
        elif path.name == "_metadata":
            from pyarrow import ArrowException, parquet

            with suppress(ArrowException, OSError):
                groups = parquet.read_metadata(path)
                names = [groups.row_group(n).column(0).file_path for n in range(groups.num_row_groups)]
        lost = [path.parent / name for name in names if name and not (path.parent / name).is_file()]
        recorded |= {file.relative_to(folder).as_posix(): record for file in lost if ".." not in file.parts}
    return recorded


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


README = "README.md"

LARGEST = 16 * 2**20
"""The most bytes of a README."""

_HEADER = re.compile(r"\s*---\r?\n(.*?)\n---[ \t]*(?:\r?\n|$)", re.DOTALL)

MANIFEST = ".harness.json"
"""The hidden file that a pull leaves in a data set's folder."""


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """A file as it was pulled: its size in bytes, and its SHA-256."""

    size: int
    sha256: Annotated[str, Predicate(re.compile("[0-9a-f]{64}").fullmatch)]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The files of a pull, with which a folder can prove its revision without the hub.

    Attributes:
        repo: The data set's name on the hub, `org/name`.
        revision: The pinned revision of the files.
        files: Every visible file by its path inside the folder, with `/` between the parts.
        patterns: The patterns by which the files were chosen; none for the whole data set.
        schema: The form of the file.
    """

    schema: Literal[1] = 1
    repo: str
    revision: str
    files: Mapping[str, FileEntry]
    patterns: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The manifest as indented JSON with a final newline."""
        fields = {name: value for name, value in asdict(self).items() if name != "patterns" or value}
        return json.dumps(fields, indent=1, ensure_ascii=False) + "\n"

    @staticmethod
    def read_manifest(folder: Path) -> Manifest | None:
        """The manifest of a folder, None if no pull made it.

        Raises:
            DataError: The manifest is damaged or of a newer schema.
        """
        path = folder / MANIFEST
        try:
            # Fields of later versions are left out, and a manifest of another schema is not read.
            manifest: Manifest = _build_manifest_adapter().validate_json(path.read_bytes(), strict=True)
            return manifest
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError as error:
            raise DataError(
                f"{path} is damaged, or was written by a newer version.",
                hint="Until it is pulled again, the data set counts as a folder of unknown origin.",
            ) from error

    @staticmethod
    def read_intact_manifest(folder: Path) -> Manifest | None:
        """The manifest of a folder; None also if it is damaged or of a newer schema."""
        with suppress(DataError):
            return Manifest.read_manifest(folder)
        return None


def list_visible_files(folder: Path) -> dict[str, Path]:
    """The files of a data set by their path inside `folder`, sorted, without hidden files; follows links.

    A folder that cannot be listed raises OSError, because without its files the data set would be another.
    """
    visible_paths: dict[str, Path] = {}
    for here, folders, names in os.walk(folder, followlinks=True, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = [Path(here, name) for name in names if not name.startswith(".")]
        visible_paths |= {path.relative_to(folder).as_posix(): path for path in paths}
    return dict(sorted(visible_paths.items()))


def read_card(folder: Path) -> dict[str, Any]:
    """The metadata of a README; {} without a README or metadata.

    Raises:
        DataError: The metadata cannot be read.
    """
    path = folder / README
    try:
        if path.exists():
            require_size(path, LARGEST)
        header = _HEADER.match(path.read_text(encoding="utf-8")) if path.is_file() else None
    except (ValueError, OSError) as error:
        raise DataError(f"{path}: the metadata cannot be read: {format_error_line(error)}.") from None
    if header is None:
        return {}
    import yaml

    try:
        card: dict[str, Any] = yaml.safe_load(header[1])
    except yaml.MarkedYAMLError as error:
        # YAML counts lines from 0, and the line --- before its text is the first of the file.
        line = error.problem_mark.line + 2 if error.problem_mark else 1
        raise DataError(
            f"{path}:{line}: the metadata between its lines --- is not valid YAML: {error.problem}."
        ) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise DataError(f"{path}: the metadata cannot be read: {format_error_line(error)}.") from None
    return card if isinstance(card, dict) else {}


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """A configuration: the patterns of its files by split, below `folder`, and its options for the reader."""

    folder: Path
    patterns: Mapping[str, Sequence[str]]
    options: Mapping[str, Any] = field(default_factory=dict)


def read_configurations(folder: Path) -> dict[str, Configuration]:
    """The configurations that a README names, in its order; without patterns where it names no files.

    Raises:
        DataError: The metadata cannot be read.
    """
    try:
        return {
            str(options["config_name"]): Configuration(
                folder=folder / str(options.get("data_dir") or ""),
                patterns=_split_patterns(options.get("data_files")),
                options=options,
            )
            for options in read_card(folder).get("configs") or ()
        }
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        raise DataError(
            f"{folder / README}: its configurations cannot be read: {format_error_line(error)}."
        ) from None


def _split_patterns(declared: Any) -> dict[str, list[str]]:
    """The patterns of a configuration's files, in any of the forms that a README may have."""
    if declared is None:
        return {}
    # The forms that the hub documents and its library reads: one pattern, a list of patterns, or a list of
    # split and path. It refuses a mapping.
    if isinstance(declared, str):
        return {"train": [declared]}
    if not isinstance(declared, list):
        raise ValueError("data_files must be a text or a list")
    if all(isinstance(entry, str) for entry in declared):
        pairs = [("train", declared)]
    else:
        pairs = [(entry["split"], entry["path"]) for entry in declared]
    patterns_by_split = {
        str(split): [path] if isinstance(path, str) else [*map(str, path)] for split, path in pairs
    }
    if len(patterns_by_split) < len(pairs):
        raise ValueError(f"a split occurs twice: {', '.join(str(split) for split, _ in pairs)}")
    return patterns_by_split


@functools.cache
def _build_manifest_adapter() -> Any:
    # Imported here, as most commands read no manifest.
    from pydantic import TypeAdapter

    return TypeAdapter(Manifest)


def resolve_identity(data: Data, folder: Path, cache: Path) -> Data:
    """The identity of a folder's data: the revision that its manifest proves, else a content hash.

    The manifest proves a revision if it names this data set and lists exactly the folder's files, unchanged.

    Args:
        data: The data set as a task pins it.
        folder: Its folder.
        cache: The cache folder, which keeps the hashes of files that have not changed.

    Raises:
        OSError: A file cannot be read.
    """
    # Every file is hashed (once for its size, times and inode): a manifest may be older than the files.
    hashes = {name: hash_file(path, cache) for name, path in list_visible_files(folder).items()}
    manifest = Manifest.read_intact_manifest(folder)
    if manifest and manifest.repo == data.path:
        listed = {name: entry.sha256 for name, entry in manifest.files.items()}
        if listed == hashes:
            return Data(path=data.path, revision=manifest.revision)
    return Data(path=data.path, content="sha256:" + digest(sorted(hashes.items())))


def _raise(error: OSError) -> None:
    raise error


@dataclass(frozen=True, kw_only=True)
class Need:
    """A data set at a pinned revision; `tasks` and `subsets` are its users' names in order of occurrence.

    `configs` has, for each table that is read, the names that its configuration may have. `files` are read
    without a configuration. If both are empty, the whole data set is needed.
    """

    path: str
    revision: str
    tasks: tuple[str, ...] = ()
    subsets: tuple[str, ...] = ()
    configs: tuple[tuple[str, ...], ...] = ()
    files: tuple[str, ...] = ()

    @property
    def data(self) -> Data:
        """The data set as a task pins it."""
        return Data(path=self.path, revision=self.revision)


def list_data_sets(root: Path) -> tuple[Need, ...]:
    """The data sets in a data root, sorted, at the revision of their manifest."""
    sets = []
    for folder in sorted(root.glob("*/*")):
        path = folder.relative_to(root).as_posix()
        is_hidden = path.startswith(".") or "/." in path
        if not is_hidden and folder.is_dir() and list_visible_files(folder):
            manifest = Manifest.read_intact_manifest(folder)
            # NAME@REVISION is the folder beside that of another revision of the same data set.
            sets.append(Need(path=path.partition("@")[0], revision=manifest.revision if manifest else ""))
    return tuple(sets)
