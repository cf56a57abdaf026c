"""The tables in a data set's folder and the paths to their columns, compared with those a task reads.

Found as the datasets library does, but without it: only a README, names of files, and their first lines or
footers are read.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from glob import escape, glob
from pathlib import Path, PurePath
from typing import Any

from harness.core.errors import DataError
from harness.core.keys import digest
from harness.core.terminal import shorten_names
from harness.core.types import DataTable
from harness.data.folder import (
    README,
    Configuration,
    find_declared_splits,
    list_visible_files,
    read_card,
    read_configurations,
    read_declared_rows,
)
from harness.data.tables import LONGEST_LINE, describe_alternatives, format_error_line

_NO_DATA = (README, "config.json", "dataset_info.json", "dataset_infos.json", "dataset_dict.json")
"""Names of files that the datasets library takes for data only if a README names them exactly."""

_SHARD = re.compile(r"data/(?P<split>[^/]+)-\d{5}-of-\d{5}[^/]*\.")

_SPLIT_WORDS = {
    "train": re.compile(r"(^|[-._ \d])(train|training)([-._ \d]|$)"),
    "validation": re.compile(r"(^|[-._ \d])(validation|valid|dev|val)([-._ \d]|$)"),
    "test": re.compile(r"(^|[-._ \d])(test|testing|eval|evaluation)([-._ \d]|$)"),
}
"""The words in names of files and folders by which the datasets library knows a split."""


def find_split_files(config: Configuration, split: str) -> list[Path]:
    """The files of a split, without licences and the like; none where a pattern matches nothing."""
    names = dict.fromkeys(
        name
        for pattern in config.patterns.get(split, ())
        for name in sorted(glob(pattern, root_dir=config.folder, recursive=True))
        if _is_data(name) or name == pattern
    )
    # A file that a README names exactly is data, whatever its name; a pattern finds licences and the like.
    files = [config.folder / name for name in names if (config.folder / name).is_file()]
    return [file for file in files if detect_file_kind(file) in _READ] or files


def _is_data(name: str) -> bool:
    path = PurePath(name)
    return path.name not in _NO_DATA and not any(part.startswith("__") for part in path.parent.parts)


def resolve_lone_split(table: DataTable, config: Configuration, split: str) -> str:
    """The split that a table reads for another: the only one, where that may stand for any."""
    lone = table.lone_split and split not in config.patterns and len(config.patterns) == 1
    return next(iter(config.patterns)) if lone else split


def _infer_split_patterns(folder: Path) -> dict[str, list[str]]:
    """The files of a folder by split, as the datasets library infers them where no README names them.

    By names like `data/SPLIT-00000-of-00001.parquet`, else by a word in the name of a folder, else by one in
    that of a file; else all files are of `train`. That library itself takes a second to import.
    """
    present = list_visible_files(folder) if folder.is_dir() else {}
    # The order of the rules is that of the datasets library (data_files.py): the first that matches counts.
    names = [PurePath(name) for name in present if _is_data(name)]
    shards: dict[str, list[str]] = {}
    for name in names:
        if match := _SHARD.match(name.as_posix()):
            # Escaped, since these names are used as patterns, and may hold * or [.
            shards.setdefault(match["split"], []).append(escape(name.as_posix()))
    if shards:
        return shards
    for places in ({name: name.parent.parts for name in names}, {name: (name.name,) for name in names}):
        patterns_by_split = {
            split: [escape(str(name)) for name, parts in places.items() if any(map(word.search, parts))]
            for split, word in _SPLIT_WORDS.items()
        }
        if any(patterns_by_split.values()):
            return {split: files for split, files in patterns_by_split.items() if files}
    return {"train": [escape(str(name)) for name in names]} if names else {}


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The configurations of a data set's folder by name; `declared` is whether its README names them."""

    folder: Path
    configs: Mapping[str, Configuration]
    declared: bool

    @staticmethod
    def read_schema(folder: Path) -> Schema:
        """The schema of a folder.

        Raises:
            DataError: The folder has no data file, or the README's metadata cannot be read.
        """
        configs = {
            name: replace(config, patterns=config.patterns or _infer_split_patterns(config.folder))
            for name, config in read_configurations(folder).items()
        }
        if configs:
            return Schema(folder=folder, configs=configs, declared=True)
        patterns = _infer_split_patterns(folder)
        if not patterns:
            file_names = shorten_names([*list_visible_files(folder)]) or "nothing"
            raise DataError(f"{folder} holds no data file; found: {file_names}.")
        configs = {"default": Configuration(folder=folder, patterns=patterns)}
        return Schema(folder=folder, configs=configs, declared=False)

    def has_declared_rows(self) -> bool:
        """Whether it has all rows that it declares, as far as that is known without reading them."""
        declared = read_declared_rows(self.folder)
        for name, config in self.configs.items():
            splits = find_declared_splits(declared, name)
            if splits and splits.keys() != config.patterns.keys():
                return False
            for split in config.patterns if splits else ():
                heads = (
                    TableHead.read_whole(file, config.options) for file in find_split_files(config, split)
                )
                counts = [head.rows for head in heads]
                if None in counts or sum(map(int, filter(None, counts))) != splits[split]:
                    return False
        return True

    def find_faults(self, tables: Sequence[DataTable]) -> list[str]:
        """What the folder lacks of the tables, one sentence each; empty if they can be read."""
        named = [(table, choose_config(self.configs, table.config)) for table in tables]
        absent = [table.config or ("default",) for table, name in named if name is None]
        declared = self.configs if self.declared else {}
        missing = [_describe_absent_configs(declared, absent)] if absent else []
        table_faults = (
            fault
            for table, name in named
            if name is not None
            for fault in self._find_table_faults(table, name)
        )
        return [*missing, *table_faults]

    def _find_table_faults(self, table: DataTable, name: str) -> Iterator[str]:
        config = self.configs[name]
        for split_name in table.splits:
            split = resolve_lone_split(table, config, split_name)
            files = find_split_files(config, split)
            if files:
                yield from self._split_faults(table, config, files)
            else:
                yield self.describe_absence(name, split)

    def describe_absence(self, name: str, split: str) -> str:
        """The sentence on a split of a configuration that has no files."""
        of, patterns = "" if name == "default" else f" of {name!r}", self.configs[name].patterns
        if split in patterns:
            missing = shorten_names(list(patterns[split]))
            return f"{README} names {missing} for the split {split!r}{of}, and no such file exists"
        split_names = shorten_names([*patterns]) or "nothing"
        return f"no split {split!r}{of}; found: {split_names}"

    def _split_faults(self, table: DataTable, config: Configuration, files: Sequence[Path]) -> Iterator[str]:
        rows: list[int | None] = []
        for file in files:
            try:
                head = TableHead.read_head(file, config.options)
            except DataError as error:
                yield f"{format_relative_path(file, self.folder)}{error.message}"
                return
            rows.append(head.rows)
            faults = list(head.find_column_faults(table))
            yield from (f"{format_relative_path(file, self.folder)}: {fault}" for fault in faults)
            if faults:
                return
        if all(count == 0 for count in rows):
            yield f"{format_relative_path(files[0], self.folder)}: there are no rows"


@dataclass(frozen=True, kw_only=True)
class SplitFiles:
    """The files of a split with their heads, and the name of its configuration, if a README gives one."""

    config: str
    files: tuple[Path, ...]
    heads: tuple[TableHead, ...]

    @staticmethod
    def read_split(folder: Path, config: str, split: str) -> SplitFiles:
        """The files of a split, as the datasets library finds them, without that library.

        Args:
            folder: The folder of the data set.
            config: The name of the configuration; empty for the only one, or the default one.
            split: The name of the split.

        Raises:
            DataError: The configuration, the split or a file does not exist, or a file cannot be read.
        """
        schema = Schema.read_schema(folder)
        name = _require_config(folder, config, schema.configs if schema.declared else {})
        configuration = schema.configs[name]
        files = find_split_files(configuration, split)
        if not files:
            raise DataError(f"{folder}: {schema.describe_absence(name, split)}.")
        heads = tuple(TableHead.read_whole(file, configuration.options) for file in files)
        return SplitFiles(config=name if schema.declared else "", files=tuple(files), heads=heads)

    @staticmethod
    def read_split_patterns(folder: Path, config: str, split: str) -> list[str]:
        """The patterns of a split's files in a README; all files where it names none."""
        configs = read_configurations(folder)
        configuration = configs.get(_require_config(folder, config, configs))
        if configuration is None:
            return ["**"]
        base = configuration.folder.relative_to(folder)
        return [(base / pattern).as_posix() for pattern in configuration.patterns.get(split, ["**"])]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns; none where they are unknown."""
        return next((head.columns for head in self.heads if head.columns), ())

    @property
    def rows(self) -> int | None:
        """The number of rows; None where they are not counted."""
        counts = [head.rows for head in self.heads]
        return None if None in counts else sum(count or 0 for count in counts)


def choose_config(configs: Mapping[str, Configuration], names: Sequence[str]) -> str | None:
    """The configuration with one of these names; without names the only one, or the default one."""
    if names:
        return next((name for name in names if name in configs), None)
    flagged = [name for name, config in configs.items() if config.options.get("default")]
    only = [*configs] if len(configs) == 1 else []
    return next(iter([*only, *flagged, *({"default"} & configs.keys())]), None)


def _describe_absent_configs(declared: Mapping[str, object], absent: Sequence[Sequence[str]]) -> str:
    """The sentence on configurations that a README does not declare, each by the names that it may have."""
    absent_names = shorten_names([" or ".join(map(repr, names)) for names in absent], most=3)
    if not declared:
        return f"{README} declares no configuration {absent_names}: without that there is only 'default'"
    suggestion = describe_alternatives(absent[0][0] if len(absent) == 1 else "", declared)
    return f"{README} declares no configuration {absent_names}; {suggestion}"


def _require_config(folder: Path, config: str, declared: Mapping[str, Configuration]) -> str:
    """The name of a configuration in a README that a user names, or of the default one.

    Raises:
        DataError: The configuration does not exist, or none is named and several exist without a default.
    """
    if not declared and config in ("", "default"):
        return "default"
    name = choose_config(declared, (config,) if config else ())
    if name is None and config:
        raise DataError(f"{folder}: {_describe_absent_configs(declared, [(config,)])}.")
    if name is None:
        raise DataError(
            f"{folder} has several configurations: {shorten_names([*declared])}.",
            hint=f"Name one after a colon, as in ORG/NAME:{next(iter(declared))}.",
        )
    return name


def resolve_readable_folder(folder: Path) -> Path:
    """The folder; links to its files, in the library's cache, if its README declares what is not there.

    The library reads every split that a README names, and compares its rows with the number that is declared,
    also where no task asks for it. What a task reads was counted before (harness.data.counting).
    """
    import datasets.config

    schema = Schema.read_schema(folder)
    present: dict[str, dict[str, list[str]]] = {}
    for name, config in schema.configs.items():
        held = {split: _list_present_patterns(config, split) for split in config.patterns}
        present[name] = {split: patterns for split, patterns in held.items() if patterns}
    is_whole = not schema.declared or all(
        present[name] == config.patterns for name, config in schema.configs.items()
    )
    if is_whole and schema.has_declared_rows():
        return folder
    target = Path(datasets.config.HF_DATASETS_CACHE) / f"present-{digest([str(folder), present])[:12]}"
    if not target.exists():
        _link(folder, target, {name: patterns for name, patterns in present.items() if patterns})
    return target


def _list_present_patterns(config: Configuration, split: str) -> list[str]:
    """The patterns of a split that match a file; none where the split has no files."""
    patterns = config.patterns[split] if find_split_files(config, split) else ()
    return [pattern for pattern in patterns if glob(pattern, root_dir=config.folder, recursive=True)]


def format_relative_path(file: Path, folder: Path) -> str:
    """The path of a file as seen from its data set's folder."""
    return (file.relative_to(folder) if file.is_relative_to(folder) else file).as_posix()


def _link(folder: Path, target: Path, configs: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
    """Make a folder of links to the files, with a README that names these configurations only."""
    import yaml

    target.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder as the target, so that the rename stays within one file system.
    staging_folder = Path(tempfile.mkdtemp(dir=target.parent))
    for name, path in list_visible_files(folder).items():
        if name not in (README, "dataset_infos.json"):
            (staging_folder / name).parent.mkdir(parents=True, exist_ok=True)
            (staging_folder / name).symlink_to(path.resolve())
    # Numbers of rows are those of the whole data set, and the library would refuse any other.
    card = {name: value for name, value in read_card(folder).items() if name != "dataset_info"}
    entries = [entry for entry in card.get("configs") or () if entry["config_name"] in configs]
    for entry in entries:
        splits = configs[entry["config_name"]].items()
        entry["data_files"] = [{"split": split, "path": list(patterns)} for split, patterns in splits]
    (staging_folder / README).write_text(
        f"---\n{yaml.safe_dump({**card, **({'configs': entries} if entries else {})})}---\n",
        encoding="utf-8",
    )
    try:
        staging_folder.rename(target)
    except OSError:  # another process was first
        if not target.exists():
            raise


SCORE = "score"
"""The column of numbers that a task compares with."""

_POINTER = b"version https://git-lfs"
_JSON = (".json", ".jsonl", ".ndjson")
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_READ = (".parquet", *_JSON, *_SEPARATORS)
_DOCUMENTS = (".xls", ".xlsx", ".ods", ".doc", ".docx", ".pdf")
_UNREAD = (*_DOCUMENTS, ".pkl", ".py", ".md", ".npy", ".yaml", ".toml", "")


def detect_file_kind(file: Path) -> str:
    """How a file's name ends, without that of its compression."""
    return next((suffix for suffix in reversed(file.suffixes) if suffix != ".gz"), "")


@dataclass(frozen=True, kw_only=True)
class TableHead:
    """The start of a file: its columns, None where unknown; the kinds of those that hold no text; its rows.

    `text` are columns that are known to hold a text in each row, `lists` those of lists of texts, `rows` None
    where they are not counted.
    """

    columns: tuple[str, ...] | None = None
    no_text: Mapping[str, str] = field(default_factory=dict)
    text: frozenset[str] = frozenset()
    lists: frozenset[str] = frozenset()
    rows: int | None = None

    @staticmethod
    def read_head(file: Path, options: Mapping[str, Any]) -> TableHead:
        """The head of a file, as its name ends.

        Raises:
            DataError: The file cannot be read; the message begins with a colon, to follow its name.
        """
        try:
            with file.open("rb") as opened:
                start = opened.read(len(_POINTER))
        except OSError as error:
            raise DataError(f": {error.strerror or error}") from None
        if start == _POINTER:
            raise DataError(": this is a pointer of git-lfs, not the file; type: git lfs pull")
        kind = detect_file_kind(file)
        if not start:
            return TableHead(rows=0)
        if kind == ".parquet":
            return _read_parquet_head(file)
        if kind in _JSON:
            return _read_json_head(file, options)
        if kind in _SEPARATORS:
            return _read_csv_head(file, kind, options)
        if kind == ".txt":
            return TableHead(columns=("text",))
        if kind in _UNREAD:
            raise DataError(": such files are not read; Parquet, JSON lines, CSV and TSV are")
        return TableHead()

    @staticmethod
    def read_whole(file: Path, options: Mapping[str, Any] | None = None) -> TableHead:
        """The head of a file that is read alone.

        Raises:
            DataError: The file cannot be read; the message begins with its name.
        """
        try:
            return TableHead.read_head(file, options or {})
        except DataError as error:
            raise DataError(f"{file}{error.message}.") from None

    def find_column_faults(self, table: DataTable) -> Iterator[str]:
        """The columns that are missing, or hold something else than the text or number that is read."""
        if self.columns is None:
            return
        for names in (*table.texts, *table.values):
            name = next((name for name in names if name in self.columns), None)
            if name is None:
                column_names = " or ".join(map(repr, names))
                yield f"no column {column_names}; {describe_alternatives(names[0], self.columns)}"
            elif names in table.texts and name in self.no_text:
                yield f"the column {name!r} holds {self.no_text[name]}, not text"
            elif table.lists and name in self.text:
                yield f"the column {name!r} holds one text a row, where the task reads lists of texts"
            elif name == SCORE and name in self.text:
                yield f"the column {name!r} holds text, not numbers"


def _read_parquet_head(file: Path) -> TableHead:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file) as opened:
            schema, rows = opened.schema_arrow, opened.metadata.num_rows
    except (pa.ArrowException, OSError) as error:
        raise DataError(f": this is not a complete Parquet file: {format_error_line(error)}") from None
    no_text = {f.name: str(f.type) for f in schema if not _is_text(f.type)}
    text = frozenset(f.name for f in schema if _is_text(f.type) and not f.type.num_fields)
    lists = frozenset(schema.names) - text - no_text.keys()
    return TableHead(columns=tuple(schema.names), no_text=no_text, text=text, lists=lists, rows=rows)


def _is_text(type_: Any) -> bool:
    """Whether a column's type is text, or lists of text."""
    import pyarrow.types as kinds

    while kinds.is_list(type_) or kinds.is_large_list(type_):
        type_ = type_.value_type
    return bool(kinds.is_string(type_) or kinds.is_large_string(type_) or kinds.is_string_view(type_))


def _read_json_head(file: Path, options: Mapping[str, Any]) -> TableHead:
    """The head of lines of JSON; of one array or object with a field of rows nothing is known."""
    if options.get("field"):
        return TableHead()
    line, text = next(((n, text) for n, text in enumerate(iter_text_lines(file), 1) if text.strip()), (0, ""))
    if not text:
        return TableHead(rows=0)
    # An array or object over many lines would have to be read whole to know its fields.
    if text.lstrip().startswith("["):
        return TableHead()
    try:
        row = json.loads(text)
    except ValueError as error:
        # The first line of an object that is written over several lines.
        if text.strip() == "{":
            return TableHead()
        raise DataError(f":{line}: not valid JSON: {error}") from None
    _require_end(file)
    if not isinstance(row, dict):
        raise DataError(f":{line}: a JSON object is needed, not {text.strip()[:40]!r}")
    others = {n: v for n, v in row.items() if not isinstance(v, str | list)}
    return TableHead(
        columns=tuple(row),
        no_text={n: NO_VALUE if v is None else type(v).__name__ for n, v in others.items()},
        text=frozenset(n for n, v in row.items() if type(v) is str),
        lists=frozenset(n for n, v in row.items() if isinstance(v, list)),
    )


NO_VALUE = "nothing in the first row"
"""The kind of a column of a JSON file whose first row holds null: the other rows may hold text."""


TAIL = 1_000_000
"""The bytes at the end of a file in which its last line is looked for."""


def _require_end(file: Path) -> None:
    """Refuse a file whose last line is cut, as after an interrupted copy."""
    # Its end cannot be read without all before it.
    if file.suffix == ".gz":
        return
    with file.open("rb") as opened:
        opened.seek(max(0, file.stat().st_size - TAIL))
        lines = opened.read().split(b"\n")
    last = next((line for line in reversed(lines) if line.strip()), b"")
    try:
        # A single piece is either the one line of the file, which was read, or part of a line beyond TAIL.
        if len(lines) > 1:
            json.loads(last)
    except ValueError as error:
        raise DataError(f": the last line is not valid JSON: {format_error_line(error)}") from None


def _read_csv_head(file: Path, kind: str, options: Mapping[str, Any]) -> TableHead:
    """The head of a CSV or TSV file: its header."""
    # With these options of the reader the first line need not be the header.
    if options.keys() & {"names", "column_names", "skiprows", "header"}:
        return TableHead()
    separator = options.get("sep") or options.get("delimiter") or _SEPARATORS[kind]
    lines = iter_text_lines(file)
    try:
        header = next(csv.reader(lines, delimiter=separator), None)
        if not header:
            return TableHead(rows=0)
        return TableHead(columns=tuple(header), rows=None if next(lines, "") else 0)
    except csv.Error as error:
        raise DataError(f":1: {error}") from None


def iter_text_lines(file: Path) -> Iterator[str]:
    """The lines of a text file, compressed or not.

    Raises:
        DataError: The file is not UTF-8, or not compressed as its name says.
    """
    try:
        # A JSON file may be one array in one line.
        longest = -1 if detect_file_kind(file) == ".json" else LONGEST_LINE
        # utf-8-sig: a byte order mark, as spreadsheets write it, would be part of the first column's name.
        with (gzip.open if file.suffix == ".gz" else open)(file, "rt", encoding="utf-8-sig") as opened:
            for number, line in enumerate(iter(lambda: opened.readline(longest), ""), start=1):
                if len(line) == longest:
                    raise DataError(f":{number}: the line is longer than {longest:,} characters")
                yield line
    except UnicodeDecodeError as error:
        raise DataError(f": not UTF-8 text: {format_error_line(error)}") from None
    except (OSError, EOFError) as error:
        raise DataError(f": {format_error_line(error)}") from None


_STEP = re.compile(r"\.(?P<field>[^.\[\]\d][^.\[\]]*)|\[(?P<place>\d*)\]")
"""A step of a path; `.1` is none, as tables have columns `negative` and `negative.1`."""


@dataclass(frozen=True)
class ColumnPath:
    """The place of a text within the rows of a table: a column, then fields of structs and places in lists.

    >>> row = {"pos_paras": [{"text": "one"}, {"text": "two"}]}
    >>> ColumnPath.parse_column_path("pos_paras[0].text").extract_value(row)
    'one'
    >>> ColumnPath.parse_column_path("set.neg[]").extract_value({"set": {"neg": ["one", "two"]}})
    ['one', 'two']
    """

    column: str
    steps: tuple[str | int | None, ...] = ()
    """A field, a place in a list, or None for every element of it."""

    @staticmethod
    def parse_column_path(text: str) -> ColumnPath:
        """The path that a text spells, e.g. `set[1]`, `pos_paras[0].text` or `set.neg[]`; else a column."""
        matches = [*_STEP.finditer(text)]
        column = text[: matches[0].start()] if matches else text
        if not column or column + "".join(match.group() for match in matches) != text:
            return ColumnPath(text)
        steps = (match["field"] or (int(match["place"]) if match["place"] else None) for match in matches)
        return ColumnPath(column, tuple(steps))

    @property
    def text(self) -> str:
        """The path as it is spelled."""
        steps = (
            f".{step}" if isinstance(step, str) else f"[{'' if step is None else step}]"
            for step in self.steps
        )
        return self.column + "".join(steps)

    @property
    def several(self) -> bool:
        """Whether it leads to a list of texts."""
        return None in self.steps

    def extract_value(self, row: Mapping[str, Any]) -> Any:
        """What a row holds there: a text, a list of texts, or None."""
        return _extract_nested_value(row.get(self.column), self.steps)

    def infer_type(self, schema: Any) -> Any:
        """The type of the texts in a table of an Arrow schema, or of a list's elements; None without any."""
        import pyarrow as pa

        try:
            # Tried on no rows at all: Arrow itself says what each step leads to.
            return self.extract_texts(schema.empty_table()).type
        except pa.ArrowException:
            return None

    def extract_texts(self, table: Any) -> Any:
        """The texts of some rows as a column of Arrow, null for a missing one; lists one after the other."""
        array = table[self.column].combine_chunks()
        for step in self.steps:
            array = _follow_step(array, step)
        return array


def require_column(name: str, columns: Sequence[str], where: str) -> str:
    """The name of a column.

    Raises:
        DataError: The table has no such column; the message has the nearest, or all.
    """
    if name not in columns:
        raise DataError(f"{where}: no column {name!r}; {describe_alternatives(name, columns)}.")
    return name


def require_distinct(columns: Sequence[str], where: str) -> None:
    """Refuse a table that has two columns of one name."""
    twice = [name for name in dict.fromkeys(columns) if list(columns).count(name) > 1]
    if twice:
        raise DataError(f"{where}: a column name occurs twice: {shorten_names(twice)}.")


def _extract_nested_value(value: Any, steps: Sequence[str | int | None]) -> Any:
    for number, step in enumerate(steps):
        if value is None:
            return None
        if step is None:
            rest = steps[number + 1 :]
            return [_extract_nested_value(element, rest) for element in value]
        absent = isinstance(step, int) and step >= len(value)
        value = None if absent else value[step]
    return value


def _follow_step(array: Any, step: str | int | None) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_null(array.type):
        return array
    if pa.types.is_fixed_size_list(array.type):
        # It has no offsets, which are needed below.
        array = array.cast(pa.list_(array.type.value_type))
    if isinstance(step, str):
        return pc.struct_field(array, step)
    if step is None:
        return pc.list_flatten(array)
    # By hand, since pc.list_element raises where a single list is too short. Offsets count from the start
    # of `values`, also in a slice, so that `values` is right and `flatten()` is not.
    is_there = pc.greater(pc.list_value_length(array), step)
    places = pc.if_else(is_there, pc.add(array.offsets.slice(0, len(array)), step), None)
    return array.values.take(places.cast(pa.int64()))
