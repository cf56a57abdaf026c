"""Rows of training data from a user's own files or source, converted once to a Parquet file in the cache.

The file is named by the hash of its texts, so a CSV file and a JSONL file of the same rows give the same one.
Rows without a line in a text file are counted from 1.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core import files
from harness.core.documents import read_content_file, write_content_file
from harness.core.errors import DataError, UsageError, explain_unknown
from harness.core.files import Registry
from harness.core.keys import digest
from harness.core.terminal import shorten_names
from harness.data.prepared import explain_disk_full
from harness.data.schema import ColumnPath, TableHead, require_distinct
from harness.data.tables import BATCH, ENDINGS, FileRow, explain_file_error, iter_file_rows, read_qrels
from harness.data.training.text_rows import resolve_column_path

if TYPE_CHECKING:
    import pyarrow as pa

CORPUS, QUERIES = "corpus.jsonl", "queries.jsonl"
"""The documents and the queries of a folder in BEIR's layout, each with `_id`."""

_ANCHORS = (
    "anchor",
    "query",
    "question",
    "sentence1",
    "sentence_1",
    "sent1",
    "text1",
    "premise",
    "docstring",
    "text",
)
"""The names that the column of anchors may have; of several the first in this order counts."""

_POSITIVES = (
    "positive",
    "pos",
    "answer",
    "document",
    "passage",
    "response",
    "sentence2",
    "sentence_2",
    "sent2",
    "text2",
    "hypothesis",
    "code",
)
"""The names that the column of positives may have."""

_NEGATIVES = ("neg", "negs", "hard_neg", "hard_negs")
"""The names that a column of negatives may have beside those that begin with these words."""

_NEGATIVE_WORDS = ("negative", "hard_negative")
"""The beginnings of the names of columns of negatives."""

_SCORES = ("score", "similarity", "similarity_score", "label")
"""The names that the column of scores may have."""

_NO_TEXTS = (
    ("id", "idx", "index", "uuid", "guid", "url", "uri", "link", "href"),
    ("source", "origin", "dataset", "subset", "split", "domain", "lang", "language", "licence", "license"),
)
"""The names of columns that tell where a row is from, and the ends of such names behind `_`: they are not
taken for texts where two other columns are left, the later ones only where two are still."""

NEGATIVES = "negatives"
"""The column of negatives in the cache where a row has any number of them."""


@dataclass(frozen=True, kw_only=True)
class TrainingSource:
    """A source of pairs that a user names as `name:argument`; a suite's file defines it as `TRAINING`.

    Attributes:
        name: The name before the colon, that of the file.
        title: The name in tables of what an argument stands for.
        stamp: A hash that changes whenever the pairs of an argument may change.
        pairs: The pairs of an argument, anchor and positive.
    """

    name: str
    title: Callable[[str], str]
    stamp: Callable[[str], str]
    pairs: Callable[[str], Iterator[tuple[str, str]]]


_SOURCES = Registry(kind=TrainingSource, package="suites", attribute="TRAINING", group="harness.training")


FORMS = (
    "A row has an anchor and a positive, perhaps negatives, or two texts and a score; names of columns: "
    f"{', '.join(_ANCHORS[:4])}; {', '.join(_POSITIVES[:4])}; negative*; {', '.join(_SCORES)}. Positives and "
    "negatives may be lists, the first positive counts."
)


def choose_columns(
    names: Sequence[str],
    text: Collection[str],
    where: str,
    *,
    no_text: Collection[str] = (),
    lists: Collection[str] = (),
) -> tuple[tuple[str, ...], str]:
    """The columns of text in the order anchor, positive, negatives, and that of scores, by their names.

    If no column has a name for anchors, or none has one for positives, all columns of text count in their
    order, without ids and origins of rows. Of a list of positives the first is read, of a list of negatives
    each: the name of such a column is a path (harness.data.training.text_rows).

    Args:
        names: All columns.
        text: Those that are taken for text where their names do not say what they are.
        where: The data, for messages.
        no_text: Those that are known to hold no text.
        lists: Those that are known to hold lists of texts.

    Raises:
        DataError: There are fewer than two columns of text, or names that do not fit.
    """
    require_distinct(names, where)
    if not all(name.strip() for name in names):
        raise DataError(f"{where}: a column has no name.")
    # Reversed, so that of two names that differ in case only the first is taken.
    lower = {name.lower(): name for name in reversed(names)}
    anchor = next((lower[name] for name in _ANCHORS if name in lower), "")
    positive = next((lower[name] for name in _POSITIVES if name in lower), "")
    negatives = [name for name in names if _is_negative(name)]
    score = next((lower[name] for name in _SCORES if name in lower), "")
    if negatives and not (anchor and positive):
        lost = "positive" if anchor else "anchor"
        raise DataError(f"{where}: there is a column {negatives[0]!r} and none of {lost}s.", hint=FORMS)
    named = [anchor, positive, *sorted(negatives, key=_build_natural_key)] if anchor and positive else []
    for name in named:
        if name in no_text or (name in lists and name == anchor):
            raise DataError(f"{where}: the column {name!r} holds no text.", hint=FORMS)
    if not set(named).isdisjoint(lists):
        ends = {positive: "[0]", **dict.fromkeys(negatives, "[]")}
        return tuple(name + (ends[name] if name in lists else "") for name in named), ""
    # NLI data calls its classes (0, 1, 2) `label`, as data with scores does; as scores they make no sense.
    if score.lower() == "label" and {anchor.lower(), positive.lower()} == {"premise", "hypothesis"}:
        raise DataError(f"{where}: the column {score!r} holds classes of entailment, no scores.", hint=FORMS)
    columns = named or _drop_origin_columns([name for name in names if name in text and name != score])
    if len(columns) < 2:
        raise DataError(
            f"{where}: two columns of text are needed; found: {shorten_names(names) or 'nothing'}.",
            hint=FORMS,
        )
    return tuple(columns), score if len(columns) == 2 else ""


def _drop_origin_columns(columns: list[str]) -> list[str]:
    """Columns without those whose names say that they tell where a row is from."""
    for words in _NO_TEXTS:
        for name in reversed(columns):
            # Never below two: a pair whose columns are called `text` and `source` stays a pair.
            if len(columns) > 2 and name.lower().rpartition("_")[2] in words:
                columns = [other for other in columns if other != name]
    return columns


def describe_columns(columns: Sequence[str], score: str) -> str:
    """What each column of a user's data is read as, e.g. "foo → anchor, bar → positive"."""
    roles = ["text", "text"] if score else ["anchor", "positive", *["negative"] * (len(columns) - 2)]
    pairs = [*zip(columns, roles, strict=True), *([(score, "score")] if score else [])]
    return ", ".join(f"{name} → {role}" for name, role in pairs)


def _is_negative(name: str) -> bool:
    """Whether a column of that name holds negatives."""
    return name.lower() in _NEGATIVES or name.lower().startswith(_NEGATIVE_WORDS)


def _build_natural_key(name: str) -> list[tuple[int, str]]:
    """The sorting key under which `negative_10` comes after `negative_9`."""
    return [(int(part or -1), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


# A user's own files, converted to Parquet once


_VERSION = 2
"""The version of the rows that are made, raised whenever the same file would give others, or other facts."""

_Row = tuple[Any, ...]
"""The texts of a row in order, then its score if there is one."""


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """Rows before they are written, with the names of their columns.

    `read_as` says which columns of the user's file they are.
    """

    columns: tuple[str, ...] = ("anchor", "positive")
    score: str = ""
    read_as: str = ""
    rows: Iterator[_Row]


@dataclass(frozen=True, kw_only=True)
class RowsFile:
    """A Parquet file of rows in the cache.

    Attributes:
        file: The file.
        name: The name of its origin in tables and messages.
        content: The hash of the rows.
        columns: The columns of text in the order anchor, positive, negatives.
        score: The column with a score; empty without one.
        rows: The number of rows.
        read_as: What each column of the user's file is read as; empty if its columns are fixed.
    """

    file: Path
    name: str
    content: str
    columns: tuple[str, ...]
    score: str
    rows: int
    read_as: str = ""

    @staticmethod
    def convert_file(path: Path, cache: Path) -> RowsFile:
        """The rows of a JSONL, CSV, TSV or Parquet file.

        Raises:
            UsageError: The name of the file has another ending.
            DataError: A row has no text, or too few columns; the message names file and row.
        """
        if path.suffix not in ENDINGS:
            raise UsageError(f"{path}: files of training data end in {', '.join(ENDINGS)}.", hint=FORMS)
        with explain_file_error(path):
            if not path.stat().st_size:
                raise DataError(f"{path}: there are no rows.")
            stamp = digest([_VERSION, path.suffix, files.hash_file(path, cache)])
        return _prepare_rows_file(path.name, stamp, lambda: _read_file_rows(path), str(path), cache)

    @staticmethod
    def convert_judgements(folder: Path, split: str, cache: Path) -> RowsFile:
        """The queries of a folder in BEIR's layout, each with every document that a split judges relevant.

        Args:
            folder: The folder, with corpus.jsonl, queries.jsonl and qrels.
            split: The split, the name of a file in qrels.
            cache: The cache folder.

        Raises:
            UsageError: The split does not exist.
            DataError: An id is unknown or there twice, or a text is blank; the message names file and row.
        """
        judged = find_judgement_file(folder, split)
        read = (folder / CORPUS, folder / QUERIES, judged)
        with explain_file_error(folder):
            stamp = digest([_VERSION, "judgements", *(files.hash_file(path, cache) for path in read)])
        name = f"{folder.name}:{split}"
        return _prepare_rows_file(
            name, stamp, lambda: _Rows(rows=_iter_judged_rows(*read)), str(judged), cache
        )

    @staticmethod
    def convert_source(kind: str, argument: str, cache: Path) -> RowsFile | None:
        """The pairs of a training source with an argument; None if no source has this name.

        Args:
            kind: The name of the source, before the colon, e.g. "code".
            argument: The text behind the colon.
            cache: The cache folder.

        Raises:
            UsageError: The argument is missing or wrong.
            DataError: There are no pairs.
        """
        try:
            source = _SOURCES.find_entry(kind)
        except UsageError as error:
            if not isinstance(error.__cause__, AttributeError):
                raise
            source = None  # a suite that gives no training data
        if source is None:
            return None
        if not argument:
            raise UsageError(f"{kind}: needs an argument.", hint=f"Type --train-data {kind}:FOLDER.")
        stamp = digest([_VERSION, kind, source.stamp(argument)])
        name = f"{kind}:{source.title(argument)}"
        return _prepare_rows_file(name, stamp, lambda: _Rows(rows=source.pairs(argument)), argument, cache)


def _prepare_rows_file(name: str, stamp: str, read: Callable[[], _Rows], where: str, cache: Path) -> RowsFile:
    """The rows as a Parquet file in the cache, which is written unless it exists."""
    about = cache / "source" / f"{stamp}.training.json"
    facts = None
    # Made anew where the rows that an earlier run wrote are missing or damaged.
    with contextlib.suppress(OSError, ValueError, LookupError):
        earlier = read_content_file(about)
        if files.has_sha256(_build_parquet_path(about.parent, earlier["content"]), earlier["sha256"], cache):
            facts = earlier
    if facts is None:
        with explain_disk_full(about.parent):
            facts = _write_rows_file(read(), about.parent, where)
        write_content_file(about, facts)
    return RowsFile(
        file=_build_parquet_path(about.parent, facts["content"]),
        name=name,
        content=facts["content"],
        columns=tuple(facts["columns"]),
        score=facts["score"],
        rows=facts["rows"],
        read_as=facts["read_as"],
    )


def read_source_file(path: Path) -> None:
    """Read what caches keep of source; the rows that such facts name must be what was written.

    Raises:
        OSError: A file cannot be read.
        ValueError: One is not what was written.
    """
    facts = read_content_file(path)
    if path.name.endswith(".training.json"):
        rows = _build_parquet_path(path.parent, facts["content"])
        if not files.has_sha256(rows, facts["sha256"]):
            raise ValueError(f"{rows.name} is not what was written")


def _build_parquet_path(folder: Path, content: str) -> Path:
    return folder / f"{content.rpartition(':')[2][:32]}.parquet"


def _write_rows_file(rows: _Rows, folder: Path, where: str) -> dict[str, Any]:
    """Write rows to a Parquet file that is named by their content, and give the facts on it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    staged = files.generate_temporary_path(folder / "training")
    paths, text = map(ColumnPath.parse_column_path, rows.columns), pa.large_string()
    fields = [(path.column, pa.list_(text) if path.several else text) for path in paths]
    schema = pa.schema([*fields, *([(rows.score, pa.float64())] if rows.score else [])])
    content = _ContentHash(schema)
    number = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with pq.ParquetWriter(staged, schema) as writer:
            while part := [*islice(rows.rows, BATCH)]:
                columns = zip(zip(*part, strict=True), schema, strict=True)
                batch = pa.record_batch([pa.array(values, field.type) for values, field in columns], schema)
                # Hashed as it is written: the rows are read once, and never held all together.
                writer.write_batch(batch)
                content.add_batch(batch)
                number += len(part)
        if not number:
            raise DataError(f"{where}: there are no rows.")
        file = _build_parquet_path(folder, content.format_content_hash())
        staged.replace(file)
    except OSError as error:
        raise files.write_error(folder, error) from error
    finally:
        staged.unlink(missing_ok=True)
    return {
        "content": content.format_content_hash(),
        "columns": list(rows.columns),
        "score": rows.score,
        "rows": number,
        "read_as": rows.read_as,
        "sha256": files.hash_file(file),
    }


class _ContentHash:
    """The hash of rows, whatever their batches: names of columns, and of each the lengths and the values."""

    def __init__(self, schema: pa.Schema) -> None:
        import pyarrow as pa

        # Lengths and values have a hash each: values alone could not tell "ab", "c" from "a", "bc".
        self._parts = {
            field.name: [hashlib.sha256() for _ in range(3 if pa.types.is_list(field.type) else 2)]
            for field in schema
        }

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        import pyarrow as pa
        import pyarrow.compute as pc

        for name, (lengths, values, *list_lengths) in self._parts.items():
            column = batch[name]
            for part in list_lengths:
                # A fixed order of bytes: the hash names the rows on every machine.
                part.update(pc.list_value_length(column).to_numpy().astype("<i8").tobytes())
                column = pc.list_flatten(column)
            if pa.types.is_floating(column.type):
                values.update(column.to_numpy().astype("<f8").tobytes())
            else:
                lengths.update(pc.binary_length(column).to_numpy().astype("<i8").tobytes())
                values.update("".join(column.to_pylist()).encode())

    def format_content_hash(self) -> str:
        """The hash, with its kind."""
        parts = [[part.hexdigest() for part in parts] for parts in self._parts.values()]
        return "sha256:" + digest([list(self._parts), parts])


def _normalize_column_names(paths: Sequence[ColumnPath], score: str) -> tuple[str, ...]:
    """The names of columns of text in the cache."""
    columns = len(paths)
    if score:
        return ("sentence1", "sentence2")
    if any(path.steps for path in paths):
        return ("anchor", "positive", f"{NEGATIVES}[]")
    negatives = ["negative"] if columns == 3 else [f"negative_{n}" for n in range(1, columns - 1)]
    return ("anchor", "positive", *negatives)


def find_judgement_file(folder: Path, split: str) -> Path:
    """The file with the judgements of a split.

    Raises:
        UsageError: The split does not exist; the message names those that do.
    """
    path = folder / "qrels" / f"{split}.tsv"
    if not path.is_file():
        splits = sorted(path.stem for path in (folder / "qrels").glob("*.tsv"))
        if not splits:
            raise UsageError(
                f"{folder} has no qrels/{split}.tsv.", hint="It holds the judgements of a split."
            )
        raise explain_unknown(
            f"split of {folder}", split, splits, then=f"Name one after a colon, as {folder}:{splits[0]}."
        )
    return path


def _iter_judged_rows(corpus: Path, queries: Path, judged: Path) -> Iterator[_Row]:
    """A query and the title and text of a document for each judgement above 0, in their order."""
    rows = [row for row in read_qrels(judged) if row.get_number_field("score") > 0]
    if not rows:
        raise DataError(f"{judged}: no judgement is above 0.")
    query_rows = _collect_id_rows(queries, {row.get_token_field("query-id") for row in rows})
    document_rows = _collect_id_rows(corpus, {row.get_token_field("corpus-id") for row in rows})
    for row in rows:
        query, document = row.get_token_field("query-id"), row.get_token_field("corpus-id")
        for name, rows_by_id, where in ((query, query_rows, queries), (document, document_rows, corpus)):
            if name not in rows_by_id:
                raise row.build_row_error(f"the id {name!r} is not in {where}.")
        yield query_rows[query].get_text_field("text"), join_document_text(document_rows[document])


def _collect_id_rows(path: Path, wanted: Collection[str]) -> dict[str, FileRow]:
    """The wanted rows of a file by their `_id`."""
    rows_by_id: dict[str, FileRow] = {}
    with explain_file_error(path):
        for row in iter_file_rows(path):
            name = row.get_token_field("_id")
            if name in rows_by_id:
                raise row.build_row_error(
                    f"the id {name!r} occurs twice, first in line {rows_by_id[name].line}."
                )
            if name in wanted:
                rows_by_id[name] = row
    return rows_by_id


def join_document_text(row: FileRow) -> str:
    """Title and text of a document with a blank between them, as mteb puts them together."""
    title = row.get_text_field("title", may_be_blank=True) if "title" in row.fields else ""
    text = f"{title} {row.get_text_field('text', may_be_blank=True)}".strip()
    if not text:
        raise row.build_row_error("the document has no text.")
    return text


def _read_file_rows(path: Path) -> _Rows:
    """The rows of a JSONL, CSV, TSV or Parquet file."""
    sample, where = _look_at(path)
    lists = {n for n, v in sample.items() if isinstance(v, list) or (v is None and _is_negative(n))}
    text = {n for n, v in sample.items() if isinstance(v, str)}
    no_text = sample.keys() - lists - text
    # There everything is a string; a column whose first value is a number is not taken for texts.
    if path.suffix in (".csv", ".tsv"):
        text = {name for name in text if not _is_number(str(sample[name]))}
    chosen, score = choose_columns(tuple(sample), text, where, no_text=no_text, lists=lists)
    paths = [resolve_column_path(name, tuple(sample), str(path)) for name in chosen]
    read = [*(column.column for column in paths), *([score] if score else [])]
    # Of a Parquet file only the columns that are used are read, so that its rows have no others.
    names = frozenset(read if path.suffix == ".parquet" else sample)
    return _Rows(
        columns=_normalize_column_names(paths, score),
        score="score" if score else "",
        read_as=describe_columns(chosen, score),
        rows=(_extract_row_texts(row, names, paths, score) for row in iter_file_rows(path, read)),
    )


def _look_at(path: Path) -> tuple[Mapping[str, object], str]:
    """A value of each column that shows its kind, and the place where that is seen."""
    if path.suffix == ".parquet":
        head = TableHead.read_whole(path)
        names = head.columns or ()
        require_distinct(names, str(path))
        kinds: dict[str, object] = dict.fromkeys(names, 0)
        kinds |= dict.fromkeys(head.text, "text") | {name: [] for name in head.lists}
        return kinds, str(path)
    with explain_file_error(path):
        first = next(iter_file_rows(path), None)
    if first is None:
        raise DataError(f"{path}: there are no rows.")
    return first.fields, first.place


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _extract_row_texts(row: FileRow, names: Collection[str], paths: Sequence[ColumnPath], score: str) -> _Row:
    """The texts of a row, where some are lists those of all negatives in one; then its score if there is one.

    Raises:
        DataError: A text is missing, blank or no string, or the row has other columns than the first.
    """
    if row.fields.keys() != names:
        lost = [name for name in (*(path.column for path in paths), score) if name and name not in row.fields]
        # Only a column of text, or of lists of negatives, must not be new after the first row.
        more = [
            name
            for name, value in row.fields.items()
            if name not in names
            and (isinstance(value, str) or (_is_negative(name) and isinstance(value, list)))
        ]
        if lost:
            raise row.build_row_error(f"the column {lost[0]!r} is missing, which the first row has.")
        if more:
            raise row.build_row_error(f"the column {more[0]!r} is new; the first row does not have it.")
    texts: list[Any] = []
    for path in paths:
        if path.steps and not isinstance(row.fields[path.column], list):
            raise row.build_row_error(f"the column {path.column!r} holds no list, as in the first row.")
        value = path.extract_value(row.fields)
        texts += [row.require_text(path.text, text) for text in (value if path.several else [value])]
    if any(path.steps for path in paths):
        return (*texts[:2], texts[2:])
    if not score:
        return tuple(texts)
    # A score may be true or false.
    value = row.fields[score]
    return (*texts, float(value) if isinstance(value, bool) else row.get_number_field(score))
