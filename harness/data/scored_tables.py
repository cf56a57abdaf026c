"""Queries with documents and a teacher's scores of them: ids in one table, the texts in two others.

This is the form of PyLate's data for distillation: a row of the configuration `train` has a `query_id`, its
`document_ids` and their `scores`; `queries` and `documents` have the texts. The ids are looked up once, and
the numbers of the rows are kept in the cache, so that no text is held in memory.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.errors import DataError
from harness.core.terminal import shorten_names
from harness.data.prepared import open_cache_file
from harness.data.tables import format_error_line

if TYPE_CHECKING:
    import datasets
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

TEXTS = ("queries", "documents")
"""The configurations with the texts, in the order of the columns of ids."""

IDS, SCORES = ("query_id", "document_ids"), "scores"
"""The columns of a row: its ids, and the scores of its documents."""

_KEYS = ("query_id", "document_id")
"""The columns with the ids of the texts, beside which `text` has each text."""

_VERSION = 1
"""The version of the numbers that are kept, raised whenever the same tables would give others."""

_BATCH = 100_000
"""Rows whose ids are looked up at once."""


@dataclass(frozen=True, kw_only=True)
class ScoredTables:
    """The tables of a scored data set.

    Attributes:
        name: The data set, for messages.
        numbers: `query`, the number of a row of `queries`; `documents`, those of rows of `documents`; and
            `scores`, as many.
        queries: The queries; `text` has each one.
        documents: The documents, likewise.
    """

    name: str
    numbers: datasets.Dataset
    queries: datasets.Dataset
    documents: datasets.Dataset

    @staticmethod
    def join(
        train: datasets.Dataset,
        queries: datasets.Dataset,
        documents: datasets.Dataset,
        *,
        name: str,
        identity: Mapping[str, Any],
        cache: Path,
    ) -> ScoredTables:
        """The tables with every id looked up, from the cache where it has been done before.

        Args:
            train: The rows with ids and scores.
            queries: The texts of queries by `query_id`.
            documents: The texts of documents by `document_id`.
            name: The data set, for messages.
            identity: What tells this data from any other.
            cache: The cache folder.

        Raises:
            DataError: An id is unknown or there twice, a text is blank, or a row has another number of scores
                than of documents.
        """
        import datasets
        import pyarrow as pa

        # Written as a stream, which Dataset.from_file maps into memory.
        def write_numbers(file: Path) -> None:
            batches = _iter_number_batches(train, queries, documents, name)
            with pa.OSFile(str(file), "wb") as sink:
                # Only the first batch knows the schema; there is one, since an empty table is refused.
                first = next(batches)
                with pa.ipc.new_stream(sink, first.schema) as writer:
                    for batch in chain([first], batches):
                        writer.write_batch(batch)

        with open_cache_file(["scored", _VERSION, identity], "numbers.arrow", cache, write_numbers) as file:
            numbers = datasets.Dataset.from_file(str(file))
        return ScoredTables(name=name, numbers=numbers, queries=queries, documents=documents)

    @property
    def rows(self) -> datasets.Dataset:
        """The rows with the columns query, documents and scores; texts are looked up when a row is read."""
        return self.numbers.with_transform(self._resolve_row_texts)

    def _resolve_row_texts(self, rows: Mapping[str, Any]) -> dict[str, list[Any]]:
        # Only the column of texts is read, and each table is asked once for all rows.
        query_texts = self.queries.select_columns(["text"])[list(rows["query"])]["text"]
        document_numbers = [number for numbers in rows["documents"] for number in numbers]
        document_texts = iter(self.documents.select_columns(["text"])[document_numbers]["text"])
        return {
            "query": list(query_texts),
            "documents": [[next(document_texts) for _ in numbers] for numbers in rows["documents"]],
            "scores": [list(scores) for scores in rows["scores"]],
        }

    def count_row_documents(self) -> NDArray[np.int64]:
        """The number of documents of each row, (rows,)."""
        import numpy as np
        import pyarrow.compute as pc

        counts = pc.list_value_length(self.numbers.data.column("documents")).to_numpy()
        return np.asarray(counts, dtype=np.int64)

    def count_constant_rows(self) -> int:
        """The number of rows all of whose documents have one score."""
        import numpy as np
        import pyarrow.compute as pc

        scores = np.asarray(pc.list_flatten(self.numbers.data.column("scores")).to_numpy())
        counts = self.count_row_documents()
        # reduceat is right only for spans that are not empty: each row has two documents at least.
        starts = np.cumsum(counts) - counts
        return int((np.maximum.reduceat(scores, starts) == np.minimum.reduceat(scores, starts)).sum())

    def iter_used_texts(self) -> Iterator[tuple[str, list[str]]]:
        """All texts that rows refer to, each once: "query" or "documents", and some of them."""
        for name, table, numbers in self._iter_text_tables():
            for start in range(0, len(numbers), _BATCH):
                yield name, list(table.select_columns(["text"])[numbers[start : start + _BATCH]]["text"])

    def compute_mean_lengths(self) -> dict[str, float]:
        """The mean characters of a query and of a document over all rows."""
        import numpy as np
        import pyarrow.compute as pc

        mean_lengths = {}
        for name, table, _ in self._iter_text_tables():
            lengths = np.asarray(pc.utf8_length(table.data.column("text")).to_numpy(), dtype=np.int64)
            mean_lengths[name] = float(lengths[self._flatten_numbers(name)].mean())
        return mean_lengths

    def _iter_text_tables(self) -> Iterator[tuple[str, datasets.Dataset, NDArray[np.int64]]]:
        import numpy as np

        for name, table in (("query", self.queries), ("documents", self.documents)):
            yield name, table, np.unique(self._flatten_numbers(name))

    def _flatten_numbers(self, name: str) -> NDArray[np.int64]:
        import numpy as np
        import pyarrow.compute as pc

        column = self.numbers.data.column(name)
        return np.asarray((pc.list_flatten(column) if name == "documents" else column).to_numpy(), np.int64)


def is_scored(configs: Sequence[str]) -> bool:
    """Whether the configurations of a data set are those of scored documents."""
    return {"train", *TEXTS} <= set(configs)


def _iter_number_batches(
    train: datasets.Dataset, queries: datasets.Dataset, documents: datasets.Dataset, name: str
) -> Iterator[pa.RecordBatch]:
    """The rows with the number of each query and document in its table."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    _require_columns(train, (*IDS, SCORES), f"{name}:train")
    if not len(train):
        raise DataError(f"{name}: there are no rows.")
    query_texts = _Texts(queries, _KEYS[0], f"{name}:{TEXTS[0]}")
    document_texts = _Texts(documents, _KEYS[1], f"{name}:{TEXTS[1]}")
    for start in range(0, len(train), _BATCH):
        part = train.data.slice(start, min(_BATCH, len(train) - start))
        place = partial(_format_row_place, name, start)
        ids, scores = (_convert_lists(part[title], title, name, place) for title in (IDS[1], SCORES))
        _require_scores(ids, scores, name, place)
        ends = np.cumsum(pc.list_value_length(ids).to_numpy())
        # The offsets of a slice count from the start of the whole array.
        offsets = pc.subtract(ids.offsets, ids.offsets[0]).cast(pa.int32())
        document_numbers = document_texts.find_text_numbers(
            _convert_ids(ids.flatten()), partial(_place_of, name, start, ends)
        )
        yield pa.RecordBatch.from_arrays(
            [
                # Numbers of rows in 32 bits take half the room; Arrow refuses one that does not fit.
                pa.array(query_texts.find_text_numbers(_convert_ids(part[IDS[0]]), place), pa.int32()),
                pa.ListArray.from_arrays(offsets, pa.array(document_numbers, pa.int32())),
                pa.ListArray.from_arrays(offsets, scores.flatten().cast(pa.float32())),
            ],
            names=["query", "documents", "scores"],
        )


def _format_row_place(name: str, start: int, row: int) -> str:
    """A row of a part that begins at `start`, by its number counted from 1 over all parts."""
    return f"{name}: row {start + row + 1}"


def _place_of(name: str, start: int, ends: NDArray[np.int64], value: int) -> str:
    """The row that holds a value of its lists, by where the values of each row end."""
    return _format_row_place(name, start, int(ends.searchsorted(value, side="right")))


def _require_columns(table: datasets.Dataset, columns: Sequence[str], where: str) -> None:
    lost = [column for column in columns if column not in table.column_names]
    if lost:
        raise DataError(
            f"{where} has no column {lost[0]!r}; found: {shorten_names(table.column_names)}.",
            hint=f"Rows have {', '.join((*IDS, SCORES))}; queries have query_id and text, documents "
            "document_id and text.",
        )


class _Texts:
    """The ids of a table of texts, with the numbers of their rows."""

    def __init__(self, table: datasets.Dataset, key: str, where: str) -> None:
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        _require_columns(table, (key, "text"), where)
        self._where = where
        self._ids = _convert_ids(table.data.column(key))
        if pc.count_distinct(self._ids).as_py() < len(self._ids):
            counts = pc.value_counts(self._ids)
            position = int(np.argmax(counts.field("counts").to_numpy()))
            raise DataError(f"{where}: the id {counts.field('values')[position].as_py()!r} occurs twice.")
        parts = [pc.equal(pc.utf8_trim_whitespace(part), "") for part in table.data.column("text").chunks]
        blank = pc.fill_null(pa.chunked_array(parts, pa.bool_()), True)
        self._blank = np.asarray(blank.to_numpy(), dtype=bool)

    def find_text_numbers(self, ids: pa.Array, row: Callable[[int], str]) -> NDArray[np.int64]:
        """The number of the text of each id; `row` names the row that a place in `ids` is of."""
        import numpy as np
        import pyarrow.compute as pc

        matches = pc.index_in(ids, value_set=self._ids)
        if matches.null_count:
            position = pc.index(pc.is_null(matches), True).as_py()
            more = matches.null_count - 1
            others = f", nor are {more:,} others of {len(ids):,}" if more else ""
            raise DataError(
                f"{row(position)}: the id {ids[position].as_py()!r} is not in {self._where}{others}.",
                hint="Fetch or make the data set again; a missing text would be trained on as an empty one.",
            )
        numbers = np.asarray(matches.to_numpy(), np.int64)
        blank = np.flatnonzero(self._blank[numbers])
        if blank.size:
            position = int(blank[0])
            raise DataError(
                f"{row(position)}: the text of {ids[position].as_py()!r} in {self._where} is blank."
            )
        return numbers


def _convert_ids(column: Any) -> pa.Array:
    """Ids, whether texts or numbers, as texts."""
    import pyarrow as pa

    # large_string: the texts of a string array cannot have more than 2 GiB together (32-bit offsets).
    return _merge_chunks(column).cast(pa.large_string())


def _merge_chunks(column: Any) -> pa.Array:
    import pyarrow as pa

    if not isinstance(column, pa.ChunkedArray):
        return column
    array = column.combine_chunks()
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _convert_lists(column: Any, title: str, name: str, place: Callable[[int], str]) -> pa.ListArray:
    """The lists of a column, which may be written as text."""
    import pyarrow as pa

    array = _merge_chunks(column)
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        lists = []
        for row, text in enumerate(array.to_pylist()):
            try:
                lists.append(list(ast.literal_eval(text)))
            except (ValueError, SyntaxError, TypeError) as error:
                reason = format_error_line(error)
                raise DataError(f"{place(row)}: {title!r} is no list: {reason}.") from None
        array = pa.array(lists)
    if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
        raise DataError(f"{name}: the column {title!r} holds {array.type}, not lists.")
    return array


def _require_scores(
    documents: pa.ListArray, scores: pa.ListArray, name: str, place: Callable[[int], str]
) -> None:
    """Refuse rows with another number of scores than of documents, and scores that are no numbers."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    counts, scored = (
        pc.fill_null(pc.list_value_length(lists), 0).to_numpy() for lists in (documents, scores)
    )
    for position in np.flatnonzero((counts != scored) | (counts < 2))[:1]:
        least = "" if counts[position] >= 2 else "; at least two are compared"
        raise DataError(
            f"{place(int(position))}: {counts[position]} documents and {scored[position]} scores{least}."
        )
    values = scores.flatten()
    if not (pa.types.is_floating(values.type) or pa.types.is_integer(values.type)):
        raise DataError(f"{name}: the scores are {values.type}, not numbers.")
    bad = pc.index(pc.fill_null(pc.invert(pc.is_finite(values)), True), True).as_py()
    if bad >= 0:
        row = np.searchsorted(np.cumsum(scored), bad, side="right")
        raise DataError(f"{place(int(row))}: a score is no finite number.")
