"""Rows of training data from a user's own files and source: made into a Parquet file in the cache once.

The file is named by the hash of its texts, so a CSV file and a JSONL file of the same rows give the same one.
Rows without a line in a text file are counted from 1.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core import files
from harness.core.documents import with_digest, without_digest
from harness.core.errors import DataError, UsageError, shortened, unknown
from harness.core.identity import digest
from harness.core.registry import Registry
from harness.data.prepared import naming_full_disk
from harness.data.schema import TableHead, one_line
from harness.data.tables import FileRow, read_qrels, readable, stream_rows
from harness.data.training.text_rows import ColumnPath, path_in

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

ENDINGS = (".jsonl", ".csv", ".tsv", ".parquet")
"""The endings of files of one's own."""

CORPUS, QUERIES = "corpus.jsonl", "queries.jsonl"
"""The documents and the queries of a folder in BEIR's layout, each with `_id`."""

_ANCHORS = (
    *("anchor", "query", "question", "sentence1", "sentence_1", "sent1"),
    *("text1", "premise", "docstring", "text"),
)
"""The names that the column of anchors may have, the first that is there counts."""

_POSITIVES = (
    *("positive", "pos", "answer", "document", "passage", "response"),
    *("sentence2", "sentence_2", "sent2", "text2", "hypothesis", "code"),
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

BATCH = 10_000
"""Rows that are read at once."""


@dataclass(frozen=True, kw_only=True)
class TrainingSource:
    """A kind of pairs that a user gives as `name:argument`, the `TRAINING` of a suite's file.

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


def require_distinct(columns: Sequence[str], where: str) -> None:
    """Refuse a table that has two columns of one name."""
    twice = [name for name in dict.fromkeys(columns) if list(columns).count(name) > 1]
    if twice:
        raise DataError(f"{where}: a column name is there twice: {shortened(twice)}.")


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

    Where no column has the name of an anchor or none that of a positive, all columns of text in their order,
    but for ids and origins of rows.
    Of a list of positives the first counts, of a list of negatives each: such a column is a path.

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
    lower = {name.lower(): name for name in reversed(names)}
    anchor = next((lower[name] for name in _ANCHORS if name in lower), "")
    positive = next((lower[name] for name in _POSITIVES if name in lower), "")
    negatives = [name for name in names if _is_negative(name)]
    score = next((lower[name] for name in _SCORES if name in lower), "")
    if negatives and not (anchor and positive):
        lost = "positive" if anchor else "anchor"
        raise DataError(f"{where}: there is a column {negatives[0]!r} and none of {lost}s.", hint=FORMS)
    named = [anchor, positive, *sorted(negatives, key=_natural)] if anchor and positive else []
    for name in named:
        if name in no_text or (name in lists and name == anchor):
            raise DataError(f"{where}: the column {name!r} holds no text.", hint=FORMS)
    if not set(named).isdisjoint(lists):
        ends = {positive: "[0]", **dict.fromkeys(negatives, "[]")}
        return tuple(name + (ends[name] if name in lists else "") for name in named), ""
    if score.lower() == "label" and {anchor.lower(), positive.lower()} == {"premise", "hypothesis"}:
        raise DataError(f"{where}: the column {score!r} holds classes of entailment, no scores.", hint=FORMS)
    columns = named or _without_origins([name for name in names if name in text and name != score])
    if len(columns) < 2:
        raise DataError(
            f"{where}: two columns of text are needed; there is: {shortened(names) or 'nothing'}.",
            hint=FORMS,
        )
    return tuple(columns), score if len(columns) == 2 else ""


def _without_origins(columns: list[str]) -> list[str]:
    """Columns without those whose names say that they tell where a row is from."""
    for words in _NO_TEXTS:
        for name in reversed(columns):
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


def _natural(name: str) -> list[tuple[int, str]]:
    """The sorting key under which `negative_10` comes after `negative_9`."""
    return [(int(part or -1), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


# Files of one's own, made into Parquet once


_VERSION = 2
"""The version of the rows that are made, raised whenever the same file would give others, or other facts."""

_Row = tuple[Any, ...]
"""The texts of a row in order, then its score if there is one."""


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """Rows before they are written, in batches of Arrow, with the names of their columns.

    `read_as` says which columns of the user's file they are.
    """

    columns: tuple[str, ...]
    score: str
    read_as: str = ""
    batches: Iterator[pa.RecordBatch]


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
        read_as: What each column of the user's file is read as; empty where there are none to choose from.
    """

    file: Path
    name: str
    content: str
    columns: tuple[str, ...]
    score: str
    rows: int
    read_as: str = ""

    @staticmethod
    def of_file(path: Path, cache: Path) -> RowsFile:
        """The rows of a JSONL, CSV, TSV or Parquet file.

        Raises:
            UsageError: The name of the file has another ending.
            DataError: A row has no text, or too few columns; the message names file and row.
        """
        if path.suffix not in ENDINGS:
            raise UsageError(f"{path}: files of training data end in {', '.join(ENDINGS)}.", hint=FORMS)
        with readable(path):
            if not path.stat().st_size:
                raise DataError(f"{path}: there are no rows.")
            stamp = digest([_VERSION, path.suffix, files.sha256_file(path, cache)])
        read = _parquet_rows if path.suffix == ".parquet" else _text_rows
        return _made(path.name, stamp, lambda: read(path), str(path), cache)

    @staticmethod
    def of_judgements(folder: Path, split: str, cache: Path) -> RowsFile:
        """The queries of a folder in BEIR's layout, each with every document that a split judges relevant.

        Raises:
            UsageError: There is no such split.
            DataError: An id is unknown or there twice, or a text is blank; the message names file and row.
        """
        judged = judgement_file(folder, split)
        read = (folder / CORPUS, folder / QUERIES, judged)
        with readable(folder):
            stamp = digest([_VERSION, "judgements", *(files.sha256_file(path, cache) for path in read)])
        name = f"{folder.name}:{split}"
        return _made(name, stamp, lambda: _pairs(_judged_rows(*read)), str(judged), cache)

    @staticmethod
    def of_source(kind: str, argument: str, cache: Path) -> RowsFile | None:
        """The pairs of a training source with an argument; None if there is no such source.

        Raises:
            UsageError: The argument is missing or wrong.
            DataError: There are no pairs.
        """
        source = _source(kind)
        if source is None:
            return None
        if not argument:
            raise UsageError(f"{kind}: needs an argument.", hint=f"Type --train-data {kind}:FOLDER.")
        stamp = digest([_VERSION, kind, source.stamp(argument)])
        name = f"{kind}:{source.title(argument)}"
        return _made(name, stamp, lambda: _pairs(source.pairs(argument)), argument, cache)


def _source(kind: str) -> TrainingSource | None:
    try:
        return _SOURCES.named(kind)
    except UsageError as error:
        if isinstance(error.__cause__, AttributeError):  # a suite that gives no training data
            return None
        raise


def _made(name: str, stamp: str, read: Callable[[], _Rows], where: str, cache: Path) -> RowsFile:
    """The rows as a Parquet file in the cache, unless it is there already."""
    about = cache / "source" / f"{stamp}.training.json"
    facts = _kept(about, cache)
    if facts is None:
        with naming_full_disk(about.parent):
            facts = _write(read(), about.parent, where)
        files.replace(about, with_digest(facts).encode())
    return RowsFile(
        file=_parquet_file(about.parent, facts["content"]),
        name=name,
        content=facts["content"],
        columns=tuple(facts["columns"]),
        score=facts["score"],
        rows=facts["rows"],
        read_as=facts["read_as"],
    )


def _kept(about: Path, cache: Path) -> dict[str, Any] | None:
    """The facts on rows that were made before, None if they are not whole."""
    with contextlib.suppress(OSError, ValueError, LookupError):
        facts = without_digest(about.read_bytes())
        if files.has_sha256(_parquet_file(about.parent, facts["content"]), facts["sha256"], cache):
            return facts
    return None


def _parquet_file(folder: Path, content: str) -> Path:
    return folder / f"{content.rpartition(':')[2][:32]}.parquet"


def _write(rows: _Rows, folder: Path, where: str) -> dict[str, Any]:
    """Write rows to a Parquet file that is named by their content, and give the facts on it."""
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    staged = folder / f".training.{files.host()}-{os.getpid()}-{os.urandom(4).hex()}.tmp"
    names = [ColumnPath.of(column).column for column in rows.columns]
    content = _ContentHash([*names, *([rows.score] if rows.score else [])])
    number = 0
    writer = None
    try:
        for batch in rows.batches:
            writer = writer or pq.ParquetWriter(staged, batch.schema)
            writer.write_batch(batch)
            content.add(batch)
            number += batch.num_rows
        if writer is None or not number:
            raise DataError(f"{where}: there are no rows.")
        writer.close()
        staged.replace(_parquet_file(folder, content.text()))
    except OSError as error:
        raise files.write_error(folder, error) from error
    finally:
        staged.unlink(missing_ok=True)
    file = _parquet_file(folder, content.text())
    return {
        "content": content.text(),
        "columns": list(rows.columns),
        "score": rows.score,
        "rows": number,
        "read_as": rows.read_as,
        "sha256": files.sha256_file(file),
    }


class _ContentHash:
    """The hash of rows, whatever their batches: names of columns, and of each the lengths and the values."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._parts = {name: [hashlib.sha256(), hashlib.sha256()] for name in names}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        import pyarrow as pa
        import pyarrow.compute as pc

        for name, parts in self._parts.items():
            column = batch[name]
            if pa.types.is_list(column.type):
                parts += [] if parts[2:] else [hashlib.sha256()]
                parts[2].update(pc.list_value_length(column).to_numpy().astype("<i8").tobytes())
                column = pc.list_flatten(column)
            lengths, values, *_ = parts
            if pa.types.is_floating(column.type):
                values.update(column.to_numpy().astype("<f8").tobytes())
            else:
                lengths.update(pc.binary_length(column).to_numpy().astype("<i8").tobytes())
                values.update("".join(column.to_pylist()).encode())

    def text(self) -> str:
        """The hash, with its kind."""
        parts = [[part.hexdigest() for part in self._parts[name]] for name in self._names]
        return "sha256:" + digest([self._names, parts])


def _normal_names(paths: Sequence[ColumnPath], score: str) -> tuple[str, ...]:
    """The names of columns of text in the cache."""
    columns = len(paths)
    if score:
        return ("sentence1", "sentence2")
    if any(path.steps for path in paths):
        return ("anchor", "positive", f"{NEGATIVES}[]")
    negatives = ["negative"] if columns == 3 else [f"negative_{n}" for n in range(1, columns - 1)]
    return ("anchor", "positive", *negatives)


def _batch(rows: Sequence[_Row], columns: tuple[str, ...], score: str) -> pa.RecordBatch:
    import pyarrow as pa

    paths = [ColumnPath.of(column) for column in columns]
    names = [*(path.column for path in paths), *([score] if score else [])]
    several = pa.list_(pa.large_string())
    kinds = [*(several if path.several else pa.large_string() for path in paths), pa.float64()]
    values = zip(*rows, strict=True)
    arrays = [pa.array(column, kind) for column, kind in zip(values, kinds, strict=False)]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _in_batches(rows: Iterator[_Row], columns: tuple[str, ...], score: str) -> Iterator[pa.RecordBatch]:
    held: list[_Row] = []
    for row in rows:
        held.append(row)
        if len(held) == BATCH:
            yield _batch(held, columns, score)
            held = []
    if held:
        yield _batch(held, columns, score)


def _pairs(rows: Iterator[_Row]) -> _Rows:
    columns = ("anchor", "positive")
    return _Rows(columns=columns, score="", batches=_in_batches(rows, columns, ""))


def judgement_file(folder: Path, split: str) -> Path:
    """The file with the judgements of a split.

    Raises:
        UsageError: There is none; the message names the splits that there are.
    """
    path = folder / "qrels" / f"{split}.tsv"
    if not path.is_file():
        there = sorted(one.stem for one in (folder / "qrels").glob("*.tsv"))
        if not there:
            raise UsageError(
                f"{folder} has no qrels/{split}.tsv.", hint="It holds the judgements of a split."
            )
        raise unknown(
            f"split of {folder}", split, there, then=f"Name one after a colon, as {folder}:{there[0]}."
        )
    return path


def _judged_rows(corpus: Path, queries: Path, judged: Path) -> Iterator[_Row]:
    """A query and the title and text of a document for each judgement above 0, in their order."""
    rows = [row for row in read_qrels(judged) if row.number("score") > 0]
    if not rows:
        raise DataError(f"{judged}: no judgement is above 0.")
    asked = _by_id(queries, {row.token("query-id") for row in rows})
    found = _by_id(corpus, {row.token("corpus-id") for row in rows})
    for row in rows:
        query, document = row.token("query-id"), row.token("corpus-id")
        for name, there, where in ((query, asked, queries), (document, found, corpus)):
            if name not in there:
                raise row.error(f"the id {name!r} is not in {where}.")
        yield asked[query].text("text"), document_text(found[document])


def _by_id(path: Path, wanted: Collection[str]) -> dict[str, FileRow]:
    """The wanted rows of a file by their `_id`."""
    found: dict[str, FileRow] = {}
    with readable(path):
        for row in stream_rows(path):
            name = row.token("_id")
            if name in found:
                raise row.error(f"the id {name!r} is there twice, first in line {found[name].line}.")
            if name in wanted:
                found[name] = row
    return found


def document_text(row: FileRow) -> str:
    """Title and text of a document with a blank between them, as mteb puts them together."""
    title = row.text("title", may_be_blank=True) if "title" in row.fields else ""
    text = f"{title} {row.text('text', may_be_blank=True)}".strip()
    if not text:
        raise row.error("the document has no text.")
    return text


def _text_rows(path: Path) -> _Rows:
    """The rows of a JSONL, CSV or TSV file."""
    with readable(path):
        first = next(stream_rows(path), None)
    if first is None:
        raise DataError(f"{path}: there are no rows.")
    listed = {
        name
        for name, value in first.fields.items()
        if isinstance(value, list) or (value is None and _is_negative(name))
    }
    no_text = {name for name, value in first.fields.items() if not isinstance(value, str)} - listed
    text = {n for n, v in first.fields.items() if isinstance(v, str) and not _is_number(v)}
    text = text if path.suffix != ".jsonl" else first.fields.keys() - no_text - listed
    chosen, score = choose_columns(
        tuple(first.fields), text, f"{path}:{first.line}", no_text=no_text, lists=listed
    )
    paths = [path_in(name, tuple(first.fields), str(path)) for name in chosen]
    names = _normal_names(paths, score)
    rows = (_checked(row, first, paths, score) for row in stream_rows(path))
    return _Rows(
        columns=names,
        score="score" if score else "",
        read_as=describe_columns(chosen, score),
        batches=_in_batches(rows, names, "score" if score else ""),
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _checked(row: FileRow, first: FileRow, paths: Sequence[ColumnPath], score: str) -> _Row:
    """The texts of a row, and its score if there is one.

    Raises:
        DataError: A text is missing or blank, or the row has other columns than the first.
    """
    if row.fields.keys() != first.fields.keys():
        lost = [name for name in (*(path.column for path in paths), score) if name and name not in row.fields]
        more = [name for name in row.fields if name not in first.fields and _is_read(name, row.fields[name])]
        if lost:
            raise row.error(f"there is no {lost[0]!r}, which the first row has.")
        if more:
            raise row.error(f"there is a column {more[0]!r}, which the first row has not.")
    if any(path.steps for path in paths):
        return _with_lists(row.fields, paths, row.error)
    texts = tuple(row.text(path.column) for path in paths)
    return (*texts, row.number(score)) if score else texts


def _is_read(name: str, value: object) -> bool:
    """Whether a column may not begin after the first row: one of text, or one of lists of negatives."""
    return isinstance(value, str) or (_is_negative(name) and isinstance(value, list))


def _with_lists(
    fields: Mapping[str, object], paths: Sequence[ColumnPath], error: Callable[[str], DataError]
) -> _Row:
    """The anchor, the first positive and the list of all negatives of a row.

    Raises:
        DataError: A text is missing, blank or no string, or there is no positive.
    """
    texts: list[object] = []
    for path in paths:
        value = fields[path.column]
        if path.steps and not isinstance(value, list):
            raise error(f"the column {path.column!r} holds no list, as in the first row.")
        found = path.value(fields)
        for text in found if path.several else [found]:
            if not isinstance(text, str) or not text.strip():
                raise error(f"the column {path.column!r} holds no text.")
            texts.append(text)
    return (*texts[:2], texts[2:])


def _parquet_rows(path: Path) -> _Rows:
    """The rows of a Parquet file."""
    try:
        head = TableHead.read(path, {})
    except DataError as error:
        raise DataError(f"{path}{error.message}.") from None
    names = head.columns or ()
    no_text = {*names} - head.text - head.lists
    chosen, score = choose_columns(names, head.text, str(path), no_text=no_text, lists=head.lists)
    paths = [path_in(name, names, str(path)) for name in chosen]
    normal = _normal_names(paths, score)
    if any(one.steps for one in paths):
        batches = _in_batches(_parquet_lists(path, paths), normal, "")
    else:
        batches = _parquet_batches(path, chosen, score, normal)
    read_as = describe_columns(chosen, score)
    return _Rows(columns=normal, score="score" if score else "", read_as=read_as, batches=batches)


def _parquet_batches(
    path: Path, columns: tuple[str, ...], score: str, names: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    done = 0
    read = [*columns, *([score] if score else [])]
    try:
        with pq.ParquetFile(path) as opened:
            for batch in opened.iter_batches(BATCH, columns=read):
                arrays = [batch[name].cast(pa.large_string()) for name in columns]
                arrays += [_as_score(batch[score], score, str(path))] if score else []
                made = pa.RecordBatch.from_arrays(arrays, names=[*names, *(["score"] if score else [])])
                made.validate(full=True)
                require_values(made, str(path), range(done + 1, done + made.num_rows + 1), shown=read)
                done += made.num_rows
                yield made
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"{path}: it cannot be read: {one_line(error)}.") from None


def _parquet_lists(path: Path, paths: Sequence[ColumnPath]) -> Iterator[_Row]:
    """The rows of a Parquet file with lists of texts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as opened:
            for batch in opened.iter_batches(BATCH, columns=[one.column for one in paths]):
                for row in batch.to_pylist():
                    number += 1
                    yield _with_lists(row, paths, _row_error(path, number))
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"{path}: it cannot be read: {one_line(error)}.") from None


def _row_error(path: Path, number: int) -> Callable[[str], DataError]:
    return lambda message: DataError(f"{path}: row {number}: {message}")


def _as_score(values: Any, name: str, where: str) -> Any:
    import pyarrow as pa

    kind = values.type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        raise DataError(f"{where}: the column {name!r} holds {kind}, not numbers.")
    return (
        values.cast(pa.int8()).cast(pa.float64()) if pa.types.is_boolean(kind) else values.cast(pa.float64())
    )


def require_values(
    table: pa.RecordBatch | pa.Table, where: str, numbers: range | NDArray[np.int64], *, shown: Sequence[str]
) -> None:
    """Refuse a text that is missing or blank, and a score that is no finite number.

    Args:
        table: Rows, all of whose columns are texts or scores.
        where: The data, for the message.
        numbers: The numbers of the rows for people.
        shown: The names of the columns for people.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    for name, column in zip(shown, table.columns, strict=True):
        if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
            bad = pc.fill_null(pc.invert(pc.is_finite(column)), True)
            fault = "is no finite number"
        else:
            bad = pc.fill_null(pc.equal(pc.utf8_trim_whitespace(column), ""), True)
            fault = "holds no text"
        at = pc.index(bad, True).as_py()
        if at >= 0:
            raise DataError(f"{where}: row {numbers[at]}: the column {name!r} {fault}.")
