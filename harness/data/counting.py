"""What is odd in the tables that a task reads, counted once for their content.

Rows and parts against those that are declared, missing values, blank texts, ids that repeat, judgements of
texts that are not there, and test texts among the training texts. Files are read as a stream, and of
Parquet only the columns that a task reads: in memory are 8 bytes for each id, judgement and training text.
"""

from __future__ import annotations

import contextlib
import csv
import filecmp
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatch
from glob import glob
from itertools import combinations, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.documents import read_content_file, write_content_file
from harness.core.errors import DataError, StoreError
from harness.core.files import list_unfinished_downloads
from harness.core.keys import digest
from harness.core.terminal import shorten_names
from harness.core.types import CountedSource, Data, DataReport, DataTable, TableSource, Task
from harness.data.folder import (
    README,
    Declared,
    count_parts,
    describe_row_gap,
    find_declared_splits,
    find_part_gaps,
    find_recorded_gaps,
    list_visible_files,
    read_declared_rows,
)
from harness.data.schema import (
    SCORE,
    Schema,
    TableHead,
    choose_config,
    detect_file_kind,
    find_split_files,
    format_relative_path,
    iter_text_lines,
    resolve_lone_split,
)
from harness.data.tables import BATCH, LONGEST_LINE, format_error_line

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

_VERSION = 3
"""The version of the counts that are kept, raised whenever the same files would give others."""

LANGUAGE = "lang"
"""The column with the subset of each row, where one table has the rows of all."""

_MAY_BE_NULL = ("title", "partition")
"""Columns that a task reads, and whose values may be missing."""

_COUNTED = (".parquet", ".json", ".jsonl", ".ndjson", ".csv", ".tsv")
"""The endings of files whose rows are counted here."""

_CSV_NULLS = frozenset(
    {"", "#N/A", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null", "-nan", "-NaN"}
)
"""What the reader of CSV in the datasets library takes for a missing value."""


_CSV_DIALECT = {
    *("quoting", "quotechar", "doublequote", "escapechar", "lineterminator", "encoding", "comment", "nrows"),
    *("keep_default_na", "na_values", "na_filter", "on_bad_lines", "skipfooter", "skip_blank_lines"),
}
"""Options of the reader of CSV with which a file has other rows or missing values than those counted here."""


def count_task_data(task: Task, folder: Path | None, cache: Path) -> DataReport:
    """What was counted in a task's data: its tables in a folder, or a user's own files.

    Args:
        task: The task, with the identity of its data.
        folder: The folder of its data set; None where there is none.
        cache: The cache folder, which keeps the counts.

    Raises:
        DataError: The data cannot be read.
    """
    if isinstance(task.source, CountedSource):
        return task.source.count_data(task, cache=cache)
    if folder is None:
        return DataReport()
    tables = task.source.list_data_tables(task) if isinstance(task.source, TableSource) else ()
    # A table may name the splits that it needs: of the others that are scored, those count that are there.
    tables = tuple(
        table
        if table.part or not table.texts
        else replace(table, splits=tuple(dict.fromkeys((*table.splits, *task.splits))))
        for table in tables
    )
    return count_tables(folder, task.data, tables, task.subsets, cache)


def count_tables(
    folder: Path, data: Data, tables: Sequence[DataTable], subsets: Sequence[str], cache: Path
) -> DataReport:
    """What was counted in tables of a folder.

    Args:
        folder: The folder of a data set.
        data: The identity of the data set.
        tables: The tables; none for all that are there.
        subsets: The subsets that are read, where one table has the rows of all.
        cache: The cache folder, which keeps the counts.

    Raises:
        DataError: The folder has no data file, or its README cannot be read.
    """
    # A folder at a pinned revision may be filled up later, so that its files count as well.
    sizes = {name: path.stat().st_size for name, path in list_visible_files(folder).items()}
    unfinished = list_unfinished_downloads(folder)
    file = cache / "source" / f"counts-{_VERSION}-{digest([data, sizes, tables, unfinished])}.json"
    try:
        kept = read_content_file(file)
        report, held_subsets = parse_report(kept["report"]), kept["subsets"]
    except (OSError, ValueError, TypeError, LookupError):
        report, held_subsets = _read_tables(folder, tables)
        with contextlib.suppress(StoreError):  # the cache only saves time
            content = {"report": asdict(report), "subsets": held_subsets}
            write_content_file(file, content)
    faults = [*report.faults]
    for split, held in held_subsets.items():
        if lost := [subset for subset in subsets if subset not in held]:
            cure = f"--subsets {','.join([subset for subset in subsets if subset in held] or held)}"
            names = shorten_names(lost, most=3)
            faults.append(f"{split} has no row of the subset {names}; {cure} reads what is there")
    return replace(report, faults=tuple(faults))


def parse_report(kept: Mapping[str, Any]) -> DataReport:
    """A report as it was kept in JSON."""
    sentences = {name: tuple(kept[name]) for name in ("gaps", "faults", "notes")}
    return DataReport(counts=kept["counts"], **sentences)


@dataclass(kw_only=True)
class _Rows:
    """What is kept of the rows of a split: hashes of ids and of texts, grades, and which texts are blank.

    Attributes:
        number: The number of rows; None where they cannot be counted without the datasets library.
        blank: Rows whose texts are blank.
        ids: Hashes by column.
        first: The first value by column of ids.
    """

    number: int | None = 0
    blank: list[NDArray[np.bool_]] = field(default_factory=list)
    texts: list[NDArray[np.uint64]] = field(default_factory=list)
    ids: dict[str, list[NDArray[np.uint64]]] = field(default_factory=dict)
    grades: list[NDArray[np.float64]] = field(default_factory=list)
    first: dict[str, str] = field(default_factory=dict)
    languages: set[str] = field(default_factory=set)

    def get_ids(self, *names: str) -> NDArray[np.uint64]:
        """The hashes in the column with one of these names."""
        return _join(next((self.ids[name] for name in names if name in self.ids), []))


def _join(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    import numpy as np

    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def _read_tables(folder: Path, tables: Sequence[DataTable]) -> tuple[DataReport, Mapping[str, Sequence[str]]]:
    """What was counted, and the subsets in each split of a table that has the rows of all."""
    schema = Schema.read_schema(folder)
    counting = _Counting(schema, read_declared_rows(folder))
    read: dict[str, dict[str, _Rows]] = {}
    held_subsets: dict[str, list[str]] = {}
    for table in tables or _list_present_tables(schema):
        splits = counting.count_table(table)
        counting.compare_training(table, splits)
        held_subsets |= {name: sorted(rows.languages) for name, rows in splits.items() if rows.languages}
        # The tables of a retrieval task come in this order for each subset.
        read = {} if table.part == "judgements" else read
        read[table.part] = splits
        if table.part == "queries":
            counting.compare_judgements(read)
    report = counting.build_report()
    # The task's own code may read such files in another way.
    return report if tables else replace(report, faults=()), held_subsets


def _list_present_tables(schema: Schema) -> Iterator[DataTable]:
    """The tables of which there are files, for a task whose own code decides what it reads."""
    for name, config in schema.configs.items():
        splits = tuple(split for split in config.patterns if find_split_files(config, split))
        yield DataTable(config=(name,) if schema.declared else (), splits=splits)


class _Counting:
    """The counts of a folder's tables, as far as they have been read."""

    def __init__(self, schema: Schema, declared: Declared) -> None:
        self._schema = schema
        self._declared = declared
        self._recorded = find_recorded_gaps(schema.folder)
        self._counts: Counter[str] = Counter()
        self._of: Counter[str] = Counter()
        self._gaps: dict[str, None] = {}
        self._faults: dict[str, None] = {}
        # By split, as the subsets of a task may be tables of their own.
        self._overlaps: Counter[str] = Counter()
        self._compared: Counter[str] = Counter()
        self._null_columns: set[tuple[str, str]] = set()

    def count_table(self, table: DataTable) -> dict[str, _Rows]:
        """Read a table; gives its rows by split."""
        name = choose_config(self._schema.configs, table.config)
        if name is None:
            return {}
        config = self._schema.configs[name]
        splits: dict[str, _Rows] = {}
        for split in table.splits or config.patterns:
            split_name = resolve_lone_split(table, config, split)
            files = find_split_files(config, split_name)
            earlier = next(iter(splits.values()), None) if split_name != split else None
            if earlier is not None:
                # One split stands for several: its rows are counted once.
                splits[split] = earlier
            elif files:
                self._find_gaps(name, split_name, files)
                splits[split] = rows = _Rows()
                for file in files:
                    where = format_relative_path(file, self._schema.folder)
                    try:
                        self._read_file(table, file, config.options, rows, where)
                    except DataError as error:
                        self._faults[f"{where}{error.message}"] = None
                self._compare_declared(name, split_name, splits[split])
        return splits

    def _find_gaps(self, config: str, split: str, files: Sequence[Path]) -> None:
        names = [format_relative_path(file, self._schema.folder) for file in files]
        parts, implied = count_parts(names)
        self._counts.update(parts=parts, parts_declared=implied)
        patterns, folder = self._schema.configs[config].patterns[split], self._schema.configs[config].folder
        lost = [pattern for pattern in patterns if not glob(pattern, root_dir=folder, recursive=True)]
        if lost and self._schema.declared:
            self._gaps[f"{README} names {lost[0]} for the split {split!r}, and no such file exists"] = None
        self._gaps |= dict.fromkeys(find_part_gaps(names))
        for name, record in self._recorded.items():
            # Without a README the patterns are the names of the files that are there.
            is_named = any(fnmatch(str(self._schema.folder / name), str(folder / one)) for one in patterns)
            if name.startswith(".") or is_named or (not self._schema.declared and split in name):
                self._gaps[f"{name} is not whole: {record} names it"] = None
        sizes = [file.stat().st_size for file in files]
        self._gaps |= {f"{name} is empty": None for name, size in zip(names, sizes, strict=True) if not size}
        for first, second in combinations(range(len(files)), 2):
            if sizes[first] == sizes[second] > 0 and filecmp.cmp(files[first], files[second], shallow=False):
                self._gaps[f"{names[second]} is a copy of {names[first]}, in place of another part"] = None

    def _compare_declared(self, config: str, split: str, rows: _Rows) -> None:
        number, declared = rows.number, find_declared_splits(self._declared, config).get(split)
        if number is None:
            return
        self._counts["rows"] += number
        if declared is not None:
            self._of["declared"] += number
            self._counts["declared"] += declared
            if number < declared:
                name = split if config == "default" else f"{config}, {split}"
                self._gaps[describe_row_gap(name, number, declared)] = None

    def _read_file(
        self, table: DataTable, file: Path, options: Mapping[str, Any], rows: _Rows, where: str
    ) -> None:
        head = TableHead.read_head(file, options)
        kind = detect_file_kind(file)
        other_dialect = kind in (".csv", ".tsv") and options.keys() & _CSV_DIALECT
        if kind not in _COUNTED or other_dialect or (head.columns is None and head.rows is None):
            rows.number = None  # the library alone reads it
            return
        wanted = [*table.texts, *table.values, *([("title",)] if table.part == "documents" else [])]
        chosen = [next((name for name in names if name in (head.columns or ())), "") for names in wanted]
        columns = tuple(dict.fromkeys(filter(None, chosen)))
        texts = tuple(name for name in chosen[: len(table.texts)] if name)
        start = 0
        for number, batch in _iter_batches(file, columns, head, options):
            self._require_values(batch, where, start)
            self._add_batch(table, texts, batch, rows)
            start += number
        if rows.number is not None:
            rows.number += start

    def _require_values(self, batch: Mapping[str, pa.Array], where: str, start: int) -> None:
        """Note the first missing value, or number that is not finite, of each column."""
        import pyarrow as pa
        import pyarrow.compute as pc

        for name, column in batch.items():
            if name in _MAY_BE_NULL:
                continue
            values, is_list = _flatten(column)
            bad = pc.is_null(values, nan_is_null=pa.types.is_floating(values.type))
            count = pc.sum(bad).as_py() or 0
            if count:
                self._counts["nulls"] += count
                if (where, name) in self._null_columns:
                    continue
                self._null_columns.add((where, name))
                place = "a row" if is_list else f"row {start + pc.index(bad, True).as_py() + 1:,}"
                self._faults[f"{where}: {place}: the column {name!r} holds no value"] = None

    def _add_batch(
        self, table: DataTable, texts: Sequence[str], batch: Mapping[str, pa.Array], rows: _Rows
    ) -> None:
        import numpy as np
        import pyarrow.compute as pc

        kept = [batch[name] for name in texts if name != LANGUAGE]
        if kept:
            # In a retrieval task a row has one text, and perhaps a title; elsewhere each text counts.
            mask = np.concatenate([_find_blank(column) for column in kept])
            if "title" in batch and table.part == "documents":
                mask &= _find_blank(batch["title"], absent=True)
            rows.blank.append(mask)
        if LANGUAGE in texts:
            rows.languages |= set(map(str, pc.unique(batch[LANGUAGE]).to_pylist()))
        if table.train and kept and not table.lists:
            pairs = zip(*(column.to_pylist() for column in kept), strict=True)
            rows.texts.append(hash_texts(["\0".join(map(str, pair)) for pair in pairs]))
        if table.part:
            for name in {"_id", "id", "query-id", "corpus-id"} & batch.keys():
                values = [str(value) for value in batch[name].to_pylist()]
                rows.ids.setdefault(name, []).append(hash_texts(values))
                rows.first.setdefault(name, next(iter(values), ""))
        if table.part == "judgements" and SCORE in batch:
            rows.grades.append(_convert_numbers(batch[SCORE]))

    def compare_training(self, table: DataTable, splits: Mapping[str, _Rows]) -> None:
        """Count the rows of scored splits whose texts are those of a training row, and blank texts."""
        import numpy as np

        if not table.part:
            for rows in {id(rows): rows for rows in splits.values()}.values():
                self._count("blank", int(_join(rows.blank).sum()), sum(map(len, rows.blank)))
        train = splits[table.train].texts if table.train in splits else []
        for name, rows in splits.items() if train else ():
            if name != table.train:
                texts = _join(rows.texts)
                same = int(np.isin(texts, _join(train)).sum())
                self._count("test_in_train", same, len(texts))
                self._overlaps.update({name: same})
                self._compared.update({name: len(texts)})

    def compare_judgements(self, tables: Mapping[str, Mapping[str, _Rows]]) -> None:
        """Count the judgements of texts that are not there, blank texts, ids that repeat."""
        import numpy as np

        seen: set[int] = set()
        for split, judged in tables.get("judgements", {}).items():
            # The texts that the judgements of a split are about: the only ones, or those of the same split.
            parts = {part: tables.get(part, {}) for part in ("documents", "queries")}
            sides = {
                part: next(iter(rows.values())) if len(rows) == 1 else rows.get(split)
                for part, rows in parts.items()
            }
            if not all(rows is not None and rows.number for rows in sides.values()) or not judged.number:
                continue
            queries, grades = judged.get_ids("query-id"), _join(judged.grades)
            for part, ids in (("documents", judged.get_ids("corpus-id")), ("queries", queries)):
                rows, unique = sides[part], np.unique(ids)
                assert rows is not None
                names = rows.get_ids("_id", "id")
                lost = int((~np.isin(unique, names)).sum())
                self._count(f"lost_{part}", lost, len(unique))
                if lost == len(unique):
                    side, column = ("document", "corpus-id") if part == "documents" else ("query", "query-id")
                    example = f"{judged.first.get(column)!r} is not"
                    self._faults[f"{split}: no judged {side} is in the {part}: {example}"] = None
                blank = _join(rows.blank).astype(bool)
                if part == "queries":
                    # A query without a judgement is left out by the task.
                    self._count("unjudged_queries", int((~np.isin(names, unique)).sum()), len(names))
                    blank, names = blank[np.isin(names, unique)], names[np.isin(names, unique)]
                elif id(rows) in seen:
                    continue
                seen.add(id(rows))
                self._count(f"blank_{part}", int(blank.sum()), len(names))
                self._count(f"duplicate_{part}", len(names) - len(np.unique(names)), len(names))
            unanswered = ~np.isin(np.unique(queries), queries[grades > 0])
            self._count("unanswered_queries", int(unanswered.sum()), len(unanswered))

    def _count(self, name: str, count: int, of: int) -> None:
        self._counts[name] += count
        self._of[name] += of

    def build_report(self) -> DataReport:
        """The report on everything that was read."""
        if self._of["declared"] != self._counts["rows"]:
            # Of some tables only the number is declared: a sum over these would be read as that of all.
            del self._counts["declared"]
        overlaps = (
            describe_overlap(n, same, self._compared[n]) for n, same in self._overlaps.items() if same
        )
        kept = {name: count for name, count in self._counts.items() if count or name == "rows"}
        return DataReport(
            counts=kept,
            gaps=tuple(self._gaps),
            faults=tuple(self._faults),
            notes=(*format_count_notes(self._counts, self._of), *overlaps),
        )


_SENTENCES = {
    "blank": "{n} of {m} texts are blank.",
    "lost_documents": "{n} of {m} judged documents are not in the corpus: no model can find them.",
    "lost_queries": "{n} of {m} judged queries are not among the queries: they are left out.",
    "blank_documents": "{n} of {m} documents are empty.",
    "blank_queries": "{n} of {m} queries are empty.",
    "duplicate_documents": "{n} of {m} documents have the id of another.",
    "duplicate_queries": "{n} of {m} queries have the id of another.",
    "unanswered_queries": "{n} of {m} judged queries have no relevant document: every model scores 0 on "
    "them.",
}
"""What a count says, by its name in a record."""


def format_count_notes(counts: Mapping[str, int], of: Mapping[str, int]) -> list[str]:
    """The sentences on counts that are not 0, each of the number in `of`."""
    return [
        text.format(n=f"{counts[name]:,}", m=f"{of[name]:,}")
        for name, text in _SENTENCES.items()
        if name in of and counts.get(name)
    ]


def describe_overlap(split: str, same: int, rows: int) -> str:
    """The sentence on scored rows that are training rows, too."""
    return f"{same:,} of {rows:,} {split} rows have the texts of a training row"


def _flatten(column: pa.Array) -> tuple[pa.Array, bool]:
    """The values of a column, those of lists one after the other; and whether it has lists."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_list = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
    return (
        (_flatten(pc.list_flatten(column))[0], True) if is_list and not column.null_count else (column, False)
    )


def _find_blank(column: pa.Array, *, absent: bool = False) -> NDArray[np.bool_]:
    """Which values are blank; a missing one counts as `absent` says, of lists each text has an entry."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    values, _ = _flatten(column)
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return np.full(len(values), absent)
    blank = pc.fill_null(pc.equal(pc.utf8_trim_whitespace(values), ""), absent)
    return np.asarray(blank.to_numpy(zero_copy_only=False), dtype=bool)


def _convert_numbers(column: pa.Array) -> NDArray[np.float64]:
    """Grades as numbers; NaN for what is none."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    with contextlib.suppress(pa.ArrowException):
        return np.asarray(pc.cast(column, "float64").to_numpy(zero_copy_only=False))
    return np.full(len(column), np.nan)


def _iter_batches(
    file: Path, columns: Sequence[str], head: TableHead, options: Mapping[str, Any]
) -> Iterator[tuple[int, Mapping[str, pa.Array]]]:
    """The rows of a file, some at a time: their number, and the values of some columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kind = detect_file_kind(file)
    if kind == ".parquet" and not columns:
        yield head.rows or 0, {}
    elif kind == ".parquet":
        try:
            with pq.ParquetFile(file) as opened:
                for table in opened.iter_batches(BATCH, columns=[*columns]):
                    yield table.num_rows, {name: table[name] for name in columns}
        except (pa.ArrowException, OSError) as error:
            raise DataError(f": it cannot be read: {format_error_line(error)}") from None
    else:
        is_csv = kind in (".csv", ".tsv")
        rows = _iter_csv_rows(file, kind, options) if is_csv else _iter_json_rows(file)
        while batch := [*islice(rows, BATCH)]:
            yield len(batch), {name: _build_array([row.get(name) for row in batch]) for name in columns}


def _iter_json_rows(file: Path) -> Iterator[Mapping[str, object]]:
    for line, text in enumerate(iter_text_lines(file), 1):
        if text.strip():
            try:
                row = json.loads(text, strict=False)
            except (ValueError, RecursionError) as error:
                raise DataError(f":{line}: not valid JSON: {error}") from None
            if not isinstance(row, dict):
                raise DataError(f":{line}: a JSON object is needed, not {text.strip()[:40]!r}")
            yield row


def _iter_csv_rows(file: Path, kind: str, options: Mapping[str, Any]) -> Iterator[Mapping[str, object]]:
    separator = options.get("sep") or options.get("delimiter") or {".csv": ",", ".tsv": "\t"}[kind]
    limit = csv.field_size_limit(LONGEST_LINE)
    try:
        for row in csv.DictReader(iter_text_lines(file), delimiter=separator):
            yield {name: None if value in _CSV_NULLS else value for name, value in row.items()}
    except csv.Error as error:
        raise DataError(f": {error}") from None
    finally:
        csv.field_size_limit(limit)


def _build_array(values: Sequence[object]) -> pa.Array:
    """Values of JSON as an array; those of several kinds as text."""
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        texts = (value if isinstance(value, str) or value is None else json.dumps(value) for value in values)
        # Half a surrogate pair is text in JSON alone.
        plain = [text and text.encode("utf-8", "replace").decode() for text in texts]
        return pa.array(plain, pa.large_string())


def hash_texts(texts: Sequence[str]) -> NDArray[np.uint64]:
    """The 64-bit hash of each text, shape (len(texts),)."""
    import numpy as np

    joined = b"".join(
        hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest() for text in texts
    )
    return np.frombuffer(joined, np.dtype("<u8")).astype(np.uint64)
