"""Rows of JSONL, CSV, TSV and Parquet files, and paths that a user names; each error names file and line.

Text files are read line by line and not by the builders of the datasets library or by pyarrow: those turn the
text "007" into 7, "NA" and "null" into nothing, "2024-01-01" into a time and the number 5 into "5", fill up
rows that are too short, and none of them names the line at fault.
"""

from __future__ import annotations

import codecs
import csv
import json
import math
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.errors import DataError, UsageError, find_similar_names
from harness.core.terminal import shorten_names

FORMATS = (".jsonl", ".csv", ".tsv")
ENDINGS = (*FORMATS, ".parquet")
"""The endings of files of text, which local suites read, and of all files of rows, which trainings read."""

BATCH = 10_000
"""Rows that are held in memory at once."""

LONGEST_LINE, LONGEST_TEXT = 16 * 2**20, 1_000_000
"""The most bytes of a line, and characters of a text: a tokenizer takes 260 bytes of memory for each."""

MOST_ROWS, SMALL_BATCH = 100_000_000, 50
"""The most rows of a Parquet file, and how many of one are read at once: it stores a repeated text once."""

PACKED = 100
"""The most bytes that a megabyte or more of a Parquet file unpacks to, for each; texts have up to 10."""


@dataclass(frozen=True, kw_only=True)
class FileRow:
    """A row of a file: its fields by name, and its place; in Parquet `line` counts rows, from 1 on."""

    path: Path
    line: int
    fields: Mapping[str, object]

    @property
    def place(self) -> str:
        """The file and the line, or the row where there are no lines."""
        return (
            f"{self.path}: row {self.line}" if self.path.suffix == ".parquet" else f"{self.path}:{self.line}"
        )

    def get_text_field(self, name: str, *, may_be_blank: bool = False) -> str:
        """The field `name`, which must be a string."""
        return self.require_text(name, self.get_field(name), may_be_blank=may_be_blank)

    def require_text(self, name: str, value: object, *, may_be_blank: bool = False) -> str:
        """A value in the field `name`, which must be a string."""
        if not isinstance(value, str):
            raise self.build_row_error(f"the field {name!r} is {reprlib.repr(value)}, not a string.")
        if len(value) > LONGEST_TEXT:
            raise self.build_row_error(
                f"the field {name!r} has {len(value):,} characters, and may have {LONGEST_TEXT:,}.",
                hint="Split the text.",
            )
        if not may_be_blank and not value.strip():
            raise self.build_row_error(f"the field {name!r} is blank.")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise self.build_row_error(f"the field {name!r} holds half a surrogate pair.") from None
        return value

    def get_token_field(self, name: str) -> str:
        """The field `name`, which must be a string or a whole number: an id or a label."""
        value = self.get_field(name)
        # Not isinstance: True and False are ints, too, and are no ids.
        return str(value) if type(value) is int else self.get_text_field(name)

    def get_number_field(self, name: str) -> float:
        """The field `name`, which must be a finite number or spell one."""
        value = self.get_field(name)
        try:
            number = float(value) if isinstance(value, str | int | float) else math.nan
        except (ValueError, OverflowError):
            number = math.nan
        # True would count as 1; "nan" and "inf" are numbers for float().
        if isinstance(value, bool) or not math.isfinite(number):
            raise self.build_row_error(f"the field {name!r} is {reprlib.repr(value)}, not a finite number.")
        return number

    def build_row_error(self, message: str, *, hint: str | None = None) -> DataError:
        """An error with the file and the line of this row."""
        return DataError(f"{self.place}: {message}", hint=hint)

    def get_field(self, name: str) -> object:
        """The field `name`, of any type."""
        if name in self.fields:
            return self.fields[name]
        field_names = ", ".join(self.fields) or "nothing"
        close = find_similar_names(name, self.fields)
        hint = f"Did you mean {close[0]!r}? " if close else ""
        raise self.build_row_error(
            f"no field {name!r}; found: {field_names}.",
            hint=f"{hint}Other names are given under 'columns' in harness.toml.",
        )


def _fail(path: Path, line: int, message: str, *, hint: str | None = None) -> DataError:
    """An error for one line of a file."""
    return DataError(f"{path}:{line}: {message}", hint=hint)


def describe_alternatives(name: str, names: Iterable[str]) -> str:
    """The end of a message about an unknown name: the most similar name, else all names."""
    options = [*names]
    close = find_similar_names(name, options)
    return f"did you mean {close[0]!r}?" if close else f"found: {shorten_names(options) or 'nothing'}"


def format_error_line(error: Exception) -> str:
    """The message of an error of another library on one line, without its full stop."""
    return " ".join(str(error).split())[:200].rstrip(".")


def read_rows(path: Path) -> list[FileRow]:
    """The rows of a file, in its order.

    Raises:
        DataError: The file holds no rows, or a line of it cannot be read.
    """
    rows = list(iter_file_rows(path))
    if not rows:
        raise DataError(f"{path}: there are no rows.")
    return rows


def iter_file_rows(path: Path, columns: Sequence[str] = ()) -> Iterator[FileRow]:
    """The rows of a file one after the other, in its order; none in an empty file.

    Args:
        path: The file, JSONL, CSV, TSV or Parquet by its ending.
        columns: The columns that are read of a Parquet file, by default all.

    Raises:
        DataError: A line cannot be read.
    """
    if path.suffix == ".parquet":
        return _iter_parquet_rows(path, columns)
    return _iter_json_rows(path) if path.suffix == ".jsonl" else _iter_csv_rows(path)


def _iter_parquet_rows(path: Path, columns: Sequence[str]) -> Iterator[FileRow]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as opened:
            _require_plain_parquet(path, opened.metadata)
            for batch in opened.iter_batches(SMALL_BATCH, columns=[*columns] or None):
                for fields in batch.to_pylist():
                    number += 1
                    yield FileRow(path=path, line=number, fields=fields)
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        raise DataError(f"{path}: it cannot be read: {format_error_line(error)}.") from None


def _require_plain_parquet(path: Path, metadata: Any) -> None:
    """Refuse a file of a few kilobytes whose rows would fill the memory."""
    if metadata.num_rows > MOST_ROWS:
        raise DataError(f"{path}: it has {metadata.num_rows:,} rows, and may have {MOST_ROWS:,}.")
    groups = (metadata.row_group(n) for n in range(metadata.num_row_groups))
    for chunk in (group.column(n) for group in groups for n in range(group.num_columns)):
        unpacked = chunk.total_uncompressed_size
        if unpacked > PACKED * max(chunk.total_compressed_size, 2**20):
            raise DataError(f"{path}: the column {chunk.path_in_schema!r} unpacks to {unpacked:,} bytes.")


def _iter_json_rows(path: Path) -> Iterator[FileRow]:
    for line, text in _decode_lines(path):
        if not text.strip():
            continue
        try:
            fields = json.loads(text, object_pairs_hook=_collect_json_fields)
        except json.JSONDecodeError as error:
            raise _fail(path, line, f"not valid JSON at column {error.colno}: {error.msg}.") from None
        except (ValueError, RecursionError) as error:
            raise _fail(path, line, f"not valid JSON: {error}.") from None
        if not isinstance(fields, dict):
            raise _fail(path, line, f"a JSON object is needed, not {text.strip()[:40]!r}.")
        yield FileRow(path=path, line=line, fields=fields)


def _collect_json_fields(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """The fields of a JSON object, whose names are all different."""
    # json keeps the last of two fields of one name without a word.
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError(f"a field occurs twice: {', '.join(name for name, _ in pairs)}")
    return fields


def _iter_csv_rows(path: Path) -> Iterator[FileRow]:
    rows = _iter_csv_values(path, "\t" if path.suffix == ".tsv" else ",")
    _, header = next(rows, (1, []))
    if len(set(header)) < len(header):
        raise _fail(path, 1, f"a column name occurs twice: {', '.join(header)}.")
    for line, values in rows:
        if len(values) != len(header):
            raise _fail(path, line, f"{len(values)} columns, where the header has {len(header)}.")
        yield FileRow(path=path, line=line, fields=dict(zip(header, values, strict=True)))


def _iter_csv_values(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not empty, with the line on which each starts."""
    # strict: else a quotation mark that is never closed swallows the rest of the file without an error.
    reader = csv.reader((text for _, text in _decode_lines(path)), delimiter=delimiter, strict=True)
    # The limit holds for the whole process, so the former one is set again below.
    limit = csv.field_size_limit(LONGEST_LINE)
    line = 1
    try:
        for values in reader:
            if values:
                yield line, values
            # A quoted field may go over several lines: the next row starts after the last line that was read.
            line = reader.line_num + 1
    except csv.Error as error:
        raise _fail(
            path, line, f"{error}.", hint="A field that starts with a quotation mark must end with one."
        ) from None
    finally:
        csv.field_size_limit(limit)


def _decode_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Each line with its number, without a byte order mark."""
    # Read as bytes, which end a line at \n only: text mode would also split at \r inside a quoted field.
    with path.open("rb") as file:
        for number, raw in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), b""), start=1):
            if len(raw) > LONGEST_LINE:
                raise _fail(path, number, f"the line is longer than {LONGEST_LINE:,} bytes.")
            try:
                yield number, (raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw).decode()
            except UnicodeDecodeError as error:
                message = f"not UTF-8 text: byte 0x{error.object[error.start]:02x}."
                raise _fail(path, number, message, hint="Save the file as UTF-8.") from None


def resolve_user_path(argument: str) -> Path:
    """The absolute path of a text.

    Raises:
        UsageError: The path leads nowhere: no such user's home, or links in a circle.
    """
    try:
        return Path(argument).expanduser().resolve()
    except RuntimeError as error:
        raise UsageError(f"{argument} leads nowhere: {error}.") from None


def is_readable_folder(path: Path) -> bool:
    """Whether `path` is a folder.

    Raises:
        DataError: The path cannot be examined, for example because this user may not enter its parent.
    """
    with explain_file_error(path):
        return path.is_dir()


@contextmanager
def explain_file_error(path: Path) -> Iterator[None]:
    """Turn an error of the file system into a DataError that names the file, else `path`."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{error.filename or path}: {error.strerror or error}.") from error


def require_unchanged(name: str, found: str, planned: str) -> None:
    """Refuse data that has changed since a plan was made.

    Args:
        name: The task, for the message.
        found: The content hash of the data now.
        planned: The content hash in the plan, which names the result.

    Raises:
        DataError: The two differ.
    """
    if found != planned:
        raise DataError(
            f"The files of {name} changed after the run had begun.",
            hint="Run the same command again: it plans with the files as they are then.",
        )


QRELS_HEADER = ("query-id", "corpus-id", "score")

HEADER = f"The columns of a qrels file are {', '.join(QRELS_HEADER)}."


def read_qrels(path: Path) -> list[FileRow]:
    """The rows of a relevance file: fields query-id, corpus-id and score, all strings or numbers.

    A text file has three columns with BEIR's header or without a header, or TREC's four without a header.
    """
    if path.suffix in (".jsonl", ".csv"):
        rows = read_rows(path)
        if lacking := [row for row in rows if not set(QRELS_HEADER) <= set(row.fields)]:
            raise lacking[0].build_row_error("this is not a row of qrels.", hint=HEADER)
        return rows
    judgements = list(_iter_qrels_rows(path))
    if not judgements:
        raise DataError(f"{path}: there are no rows.")
    return judgements


def _iter_qrels_rows(path: Path) -> Iterator[FileRow]:
    order: Sequence[str] = QRELS_HEADER
    for line, text in _decode_lines(path):
        values = [v.strip() for v in text.split("\t")] if "\t" in text else text.split()
        if set(values) == set(QRELS_HEADER) and line == 1:
            order = values
        elif len(values) in (3, 4):
            # The header may name the columns in another order; TREC's four have a fixed one.
            names = order if len(values) == 3 else QRELS_HEADER
            # The second of TREC's columns is the iteration, which is not used.
            fields = dict(zip(names, (*values[:1], *values[-2:]), strict=True))
            yield FileRow(path=path, line=line, fields=fields)
        elif text.strip():
            raise _fail(path, line, f"{len(values)} columns, where qrels have 3 (BEIR) or 4 (TREC).")
