"""Rows of a query, a positive and any number of negatives, whose texts are read when they are needed.

Data sets of the hub hold such rows in many forms: columns of text, lists and structs, ids whose texts lie in
other tables, or texts with a class, where two of one class are a pair. A row without a query or without a
positive is left out and counted. Which rows count is kept in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.errors import DataError
from harness.data.prepared import open_cache_file
from harness.data.schema import ColumnPath, require_column
from harness.data.tables import BATCH

if TYPE_CHECKING:
    import datasets
    import numpy as np
    from numpy.typing import NDArray

JUDGED_TEXTS = ("queries", "corpus")
"""The configurations with the texts of judged ids, in the order of the columns; so are splits named."""

_SHOWN = 120
"""The characters of a type in a message."""

_VERSION = 1
"""The version of the rows that count, raised whenever the same tables would give others."""


# Paths into columns


# Rows


@dataclass(frozen=True, kw_only=True)
class TextRow:
    """A query, its positive, and any number of negatives; `label` is their class where rows have classes."""

    query: str
    positive: str
    negatives: tuple[str, ...] = ()
    label: str | None = None


@dataclass(frozen=True, kw_only=True)
class RowSource:
    """Where rows come from.

    Attributes:
        name: The data set, for messages.
        identity: What tells this data from any other.
        cache: The cache folder.
    """

    name: str
    identity: Mapping[str, Any]
    cache: Path

    def keep(self, identity: Sequence[Any], make: Callable[[], dict[str, Any]]) -> Mapping[str, Any]:
        """Arrays from the cache; `make` computes them if the cache lacks them."""
        import numpy as np

        def write_arrays(file: Path) -> None:
            with file.open("wb") as opened:
                # To an open file: np.savez would add .npz to a name that ends in something else.
                np.savez(opened, **make())

        with (
            open_cache_file(
                ["rows", _VERSION, *identity, self.identity], "rows.npz", self.cache, write_arrays
            ) as file,
            np.load(file) as archive,
        ):
            return {name: archive[name] for name in archive.files}


@dataclass(frozen=True, kw_only=True)
class TextRows:
    """Rows by their numbers from 0 on, whose texts are read from tables on disk when a row is asked for.

    Attributes:
        count: The number of rows.
        left_out: The rows of the data that have no query or no positive, which have no number.
        class_count: The number of classes; 0 where rows have none.
        fetch: Gives the rows with some numbers, in their order.
    """

    count: int
    left_out: int
    class_count: int = 0
    fetch: Callable[[list[int]], list[TextRow]]

    def __len__(self) -> int:
        return self.count

    def read_text_rows(self, numbers: Sequence[int]) -> list[TextRow]:
        """The rows with some numbers, in their order."""
        return self.fetch([*numbers])


def open_column_rows(
    table: datasets.Dataset, columns: Sequence[str], numbers: NDArray[np.int64], source: RowSource
) -> TextRows:
    """Rows whose texts are columns of one table, or lie within its lists and structs.

    Args:
        table: The table.
        columns: The columns of query, positive and negatives, or paths into them; a negative may be a list.
        numbers: The rows to choose from.
        source: Its name and its place in the cache.

    Raises:
        DataError: A column is absent or holds something else, or no row has its texts.
    """
    paths = _resolve_text_paths(table, columns, source.name, single=2)
    table = table.select_columns([*dict.fromkeys(path.column for path in paths)])

    def choose() -> dict[str, Any]:
        return {"rows": numbers[_mask_text_rows(table, paths[:2])[numbers]]}

    rows = source.keep(["columns", columns], choose)["rows"]
    if not len(rows):
        raise DataError(f"{source.name}: no row has both {columns[0]!r} and {columns[1]!r}.")

    def fetch(wanted: list[int]) -> list[TextRow]:
        text_rows = []
        for row in _read_table_rows(table, rows[wanted]):
            query, positive, *others = (path.extract_value(row) for path in paths)
            texts = chain.from_iterable(value if isinstance(value, list) else [value] for value in others)
            negatives = tuple(text for text in texts if text and text.strip())
            text_rows.append(TextRow(query=query, positive=positive, negatives=negatives))
        return text_rows

    return TextRows(count=len(rows), left_out=len(numbers) - len(rows), fetch=fetch)


def open_judged_rows(
    judged: datasets.Dataset, texts: Sequence[datasets.Dataset], columns: Sequence[str], source: RowSource
) -> TextRows:
    """Pairs of ids that judgements find relevant, as mteb's data sets of searches have them.

    A judgement above 0 is left out if one of its two texts is blank or missing.

    Args:
        judged: The judgements: a score beside two columns of ids.
        texts: The tables of queries and of documents, each with `_id` and `text`; titles are not read.
        columns: The columns of ids.
        source: Its name and its place in the cache.

    Raises:
        DataError: A column is absent, or no judgement has both texts.
    """
    import numpy as np
    import pyarrow.compute as pc

    for table, needed, part in (
        (judged, columns, "judgements"),
        *((table, ("_id", "text"), part) for table, part in zip(texts, JUDGED_TEXTS, strict=True)),
    ):
        for column in needed:
            expected = "text" if column == "text" else "ids"
            _require_kind(table, column, expected, f"{source.name}, {part}")
    if "score" in judged.column_names:
        _require_kind(judged, "score", "numbers", f"{source.name}, judgements")

    def choose() -> dict[str, Any]:
        rows = judged.data.table
        if "score" in judged.column_names:
            rows = rows.filter(pc.greater(rows["score"], 0))
        sides = [_find_row_numbers(rows[c], table) for c, table in zip(columns, texts, strict=True)]
        pairs = np.stack(sides, axis=1)
        return {"pairs": pairs[(pairs >= 0).all(axis=1)], "judged": np.array(len(pairs))}

    kept = source.keep(["judged", columns], choose)
    pairs = kept["pairs"]
    if not len(pairs):
        raise DataError(f"{source.name}: no judgement above 0 has the texts of both its ids.")
    queries, corpus = (table.select_columns(["text"]) for table in texts)

    def fetch(wanted: list[int]) -> list[TextRow]:
        sides = (queries[pairs[wanted, 0].tolist()]["text"], corpus[pairs[wanted, 1].tolist()]["text"])
        return [TextRow(query=query, positive=document) for query, document in zip(*sides, strict=True)]

    return TextRows(count=len(pairs), left_out=int(kept["judged"]) - len(pairs), fetch=fetch)


def open_class_rows(
    table: datasets.Dataset,
    columns: Sequence[str],
    label: str,
    numbers: NDArray[np.int64],
    source: RowSource,
    *,
    seed: int,
) -> TextRows:
    """Pairs of texts of one class: each row has as its positive the next one of its class in a drawn order.

    Rows without a text or a class, or alone in theirs, are left out.

    Args:
        table: The table.
        columns: The columns of the parts of a text, or paths into them; they are put together with blanks.
        label: The column of the class.
        numbers: The rows to choose from.
        seed: That of the order.
        source: Its name and its place in the cache.

    Raises:
        DataError: A column is absent or holds something else, or no class has two texts.
    """
    import numpy as np

    paths = _resolve_text_paths(table, columns, source.name, single=len(columns))
    of_class = resolve_column_path(label, table.column_names, source.name)
    kind = of_class.infer_type(table.data.schema)
    if kind is None or of_class.several or not _is(kind, "classes"):
        holds = _shorten_type(table.data.schema.field(of_class.column).type)
        raise DataError(
            f"{source.name}: the column {of_class.column!r} holds {holds}, in which {of_class.text!r} is no "
            "class."
        )
    table = table.select_columns([*dict.fromkeys(path.column for path in (*paths, of_class))])

    def choose() -> dict[str, Any]:
        kept = numbers[_mask_text_rows(table, paths)[numbers]]
        rows, nexts, count = _find_class_pairs(table, of_class, kept, np.random.default_rng(seed))
        return {"rows": rows, "nexts": nexts, "count": np.array(count)}

    kept = source.keep(["classes", columns, label, seed], choose)
    rows, nexts = kept["rows"], kept["nexts"]
    if not len(rows):
        raise DataError(f"{source.name}: no class of {label!r} has two texts.")

    def join(row: Mapping[str, Any]) -> str:
        return " ".join(path.extract_value(row) for path in paths)

    def fetch(wanted: list[int]) -> list[TextRow]:
        pairs = zip(
            _read_table_rows(table, rows[wanted]), _read_table_rows(table, nexts[wanted]), strict=True
        )
        return [
            TextRow(query=join(row), positive=join(other), label=str(of_class.extract_value(row)))
            for row, other in pairs
        ]

    left_out = len(numbers) - len(rows)
    return TextRows(count=len(rows), left_out=left_out, class_count=int(kept["count"]), fetch=fetch)


def join_rows(parts: Sequence[TextRows]) -> TextRows:
    """The rows of several parts, one after the other.

    Its classes are the most of a part, none where a part has none.
    """
    ends = [*accumulate(map(len, parts))]

    def fetch(wanted: list[int]) -> list[TextRow]:
        rows_by_place = dict[int, TextRow]()
        for part, end in zip(parts, ends, strict=True):
            begin = end - len(part)
            places = [place for place, number in enumerate(wanted) if begin <= number < end]
            part_rows = (
                part.read_text_rows([int(wanted[place]) - begin for place in places]) if places else []
            )
            rows_by_place |= dict(zip(places, part_rows, strict=True))
        return [rows_by_place[place] for place in range(len(wanted))]

    counts = [part.class_count for part in parts]
    return TextRows(
        count=ends[-1],
        left_out=sum(part.left_out for part in parts),
        class_count=max(counts) if all(counts) else 0,
        fetch=fetch,
    )


def resolve_column_path(text: str, columns: Sequence[str], where: str) -> ColumnPath:
    """The path that a text means in a table: a column of that very name, else a path into one.

    Args:
        text: The name or the path.
        columns: The columns of the table.
        where: The data, for the message.

    Raises:
        DataError: The table has no such column.
    """
    path = ColumnPath(text) if text in columns else ColumnPath.parse_column_path(text)
    require_column(path.column, columns, where)
    return path


def _resolve_text_paths(
    table: datasets.Dataset, columns: Sequence[str], name: str, *, single: int
) -> tuple[ColumnPath, ...]:
    """The paths of columns, all of which lead to texts, and the first `single` of them to one in each row."""
    paths = tuple(resolve_column_path(column, table.column_names, name) for column in columns)
    for number, path in enumerate(paths):
        if path.several and number < single:
            raise DataError(
                f"{name}: {path.text!r} is all texts of a list, and one is needed, as "
                f"{path.text.replace('[]', '[0]', 1)!r}."
            )
        kind = path.infer_type(table.data.schema)
        if kind is None:
            holds = _shorten_type(table.data.schema.field(path.column).type)
            raise DataError(
                f"{name}: the column {path.column!r} holds {holds}, in which {path.text!r} cannot be found."
            )
        if not _is(kind, "text"):
            raise DataError(f"{name}: the column {path.text!r} holds {_shorten_type(kind)}, not text.")
    return paths


def _require_kind(table: datasets.Dataset, column: str, expected: str, where: str) -> None:
    kind = table.data.schema.field(require_column(column, table.column_names, where)).type
    if not _is(kind, expected):
        raise DataError(f"{where}: the column {column!r} holds {_shorten_type(kind)}, not {expected}.")


def _is(kind: Any, expected: str) -> bool:
    """Whether a type is one of text, ids, numbers or classes; a column without any value is all of them."""
    import pyarrow.types as kinds

    text = kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind)
    number = kinds.is_integer(kind) or kinds.is_floating(kind)
    matches = {
        "text": text,
        "ids": text or kinds.is_integer(kind),
        "numbers": number,
        "classes": text or number or kinds.is_boolean(kind),
    }
    return bool(matches[expected] or kinds.is_null(kind))


def _shorten_type(kind: Any) -> str:
    """A type in a message, cut where a struct has many fields."""
    text = str(kind)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _read_table_rows(table: datasets.Dataset, numbers: NDArray[np.int64]) -> list[dict[str, Any]]:
    columns = table[numbers.tolist()]
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _mask_text_rows(table: datasets.Dataset, paths: Sequence[ColumnPath]) -> NDArray[np.bool_]:
    """Whether each row has all these texts, none of them blank."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    masks: list[Any] = []
    for batch in table.with_format("arrow").iter(BATCH):
        mask = np.ones(batch.num_rows, dtype=bool)
        for path in paths:
            # A column without any value has the type null, which has no text functions.
            texts = path.extract_texts(batch).cast(pa.large_string())
            blank = pc.fill_null(pc.equal(pc.utf8_trim_whitespace(texts), ""), True)
            mask &= ~blank.to_numpy(zero_copy_only=False)
        masks.append(mask)
    return np.concatenate(masks) if masks else np.zeros(0, dtype=bool)


def _find_row_numbers(ids: Any, table: datasets.Dataset) -> NDArray[np.int64]:
    """The row of each id in a table of texts, -1 where it is not there or its text is blank."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    text_ids = table.data.table["_id"]
    places = pc.index_in(
        ids.cast(pa.large_string()), value_set=text_ids.cast(pa.large_string()), skip_nulls=True
    )
    numbers = np.asarray(pc.fill_null(places, -1).to_numpy(), dtype=np.int64)
    # One more, False: the number -1, of an id without a row, takes the last.
    has_text = np.append(_mask_text_rows(table, (ColumnPath("text"),)), False)
    return np.where(has_text[numbers], numbers, -1)


def _find_class_pairs(
    table: datasets.Dataset, label: ColumnPath, numbers: NDArray[np.int64], draw: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """The rows whose class has another one, for each the next of its class in a drawn order; the classes."""
    import numpy as np

    labels = label.extract_texts(table.data.table).to_numpy(zero_copy_only=False)[numbers]
    # A missing number becomes NaN in numpy, which does not equal itself.
    has_label = np.array([value is not None and value == value for value in labels], dtype=bool)
    named = numbers[has_label]
    _, codes = np.unique(labels[has_label], return_inverse=True)
    order = draw.permutation(len(named))
    # A stable sort: within a class the drawn order stays.
    order = order[np.argsort(codes[order], kind="stable")]
    nexts = np.empty(len(named), dtype=np.int64)
    for members in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        nexts[members] = np.roll(members, -1)
    # A text that is alone in its class is its own next one.
    alone = nexts == np.arange(len(named))
    return named[~alone], named[nexts[~alone]], len(np.unique(codes[~alone]))
