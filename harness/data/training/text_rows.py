"""Rows of a query, a positive and any number of negatives, whose texts are read when they are needed.

Data sets of the hub hold such rows in many forms: columns of text, lists and structs, ids whose texts lie in
other tables, or texts with a class, of which two of one class are a pair. A row without a query or without a
positive is left out and counted. Which rows count is kept in the cache.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from harness.core.errors import DataError
from harness.core.identity import digest
from harness.data.prepared import naming_full_disk, prepared

if TYPE_CHECKING:
    import datasets
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

JUDGED_TEXTS = ("queries", "corpus")
"""The configurations with the texts of judged ids, in the order of the columns; so are splits named."""

_BATCH = 10_000
"""Rows that are looked through at once."""

_SHOWN = 120
"""The characters of a type in a message."""

_VERSION = 1
"""The version of the rows that count, raised whenever the same tables would give others."""


# Paths into columns


_STEP = re.compile(r"\.(?P<field>[^.\[\]\d][^.\[\]]*)|\[(?P<place>\d*)\]")
"""A step of a path; `.1` is none, as tables have columns `negative` and `negative.1`."""


@dataclass(frozen=True)
class ColumnPath:
    """The place of a text within the rows of a table: a column, then fields of structs and places in lists.

    >>> ColumnPath.of("pos_paras[0].text").value({"pos_paras": [{"text": "one"}, {"text": "two"}]})
    'one'
    >>> ColumnPath.of("set.neg[]").value({"set": {"neg": ["one", "two"]}})
    ['one', 'two']
    """

    column: str
    steps: tuple[str | int | None, ...] = ()
    """A field, a place in a list, or None for every element of it."""

    @staticmethod
    def of(text: str) -> ColumnPath:
        """The path that a text spells, e.g. `set[1]`, `pos_paras[0].text` or `set.neg[]`; else a column."""
        found = [*_STEP.finditer(text)]
        column = text[: found[0].start()] if found else text
        if not column or column + "".join(one.group() for one in found) != text:
            return ColumnPath(text)
        return ColumnPath(column, tuple(map(_step, found)))

    @property
    def text(self) -> str:
        """The path as it is spelled."""
        steps = (
            f".{one}" if isinstance(one, str) else f"[{'' if one is None else one}]" for one in self.steps
        )
        return self.column + "".join(steps)

    @property
    def several(self) -> bool:
        """Whether it leads to a list of texts."""
        return None in self.steps

    def value(self, row: Mapping[str, Any]) -> Any:
        """What a row holds there: a text, a list of texts, or None where there is nothing."""
        return _value(row.get(self.column), self.steps)

    def kind(self, schema: pa.Schema) -> Any:
        """The type of what a table has there, of a list that of its elements; None where it leads nowhere."""
        found = schema.field(self.column).type
        for step in self.steps:
            found = _child_kind(found, step)
        return found

    def texts(self, table: pa.Table) -> Any:
        """The texts of some rows as a column of Arrow, null where there is none."""
        found = table[self.column].combine_chunks()
        for step in self.steps:
            found = _child(found, step)
        return found


def _step(match: re.Match[str]) -> str | int | None:
    if match["field"] is not None:
        return match["field"]
    return int(match["place"]) if match["place"] else None


def _value(found: Any, steps: Sequence[str | int | None]) -> Any:
    for number, step in enumerate(steps):
        if found is None:
            return None
        if step is None:
            rest = steps[number + 1 :]
            return [_value(one, rest) for one in found]
        absent = isinstance(step, int) and step >= len(found)
        found = None if absent else found[step]
    return found


def _child_kind(kind: Any, step: str | int | None) -> Any:
    import pyarrow.types as kinds

    if kind is None or kinds.is_null(kind):
        return kind
    if isinstance(step, str):
        place = kind.get_field_index(step) if kinds.is_struct(kind) else -1
        return kind.field(place).type if place >= 0 else None
    lists = (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list)
    return kind.value_type if any(is_one(kind) for is_one in lists) else None


def _child(array: Any, step: str | int | None) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_null(array.type):
        return array
    if pa.types.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    if isinstance(step, str):
        return pc.struct_field(array, step)
    assert step is not None
    starts = array.offsets.slice(0, len(array))
    places = pc.if_else(pc.greater(pc.list_value_length(array), step), pc.add(starts, step), None)
    return array.values.take(places.cast(pa.int64()))


# Rows


@dataclass(frozen=True, kw_only=True)
class TextRow:
    """A query, its positive, and any number of negatives; `label` is their class where rows have classes."""

    query: str
    positive: str
    negatives: tuple[str, ...] = ()
    label: str | None = None


class TextRows(Protocol):
    """Rows by their numbers from 0 on."""

    @property
    def left_out(self) -> int:
        """The rows of the data that have no query or no positive, which have no number."""
        ...

    def __len__(self) -> int:
        """The number of rows."""
        ...

    def read(self, numbers: Sequence[int]) -> list[TextRow]:
        """The rows with some numbers, in their order."""
        ...

    @property
    def class_count(self) -> int:
        """The number of classes; 0 where rows have none."""
        ...


@dataclass(frozen=True, kw_only=True)
class ColumnRows:
    """Rows whose texts are columns of one table, or lie within its lists and structs.

    Attributes:
        table: The table.
        paths: The places of query, positive and negatives; a negative may be a list.
        numbers: The rows of the table that count.
        left_out: Those that do not.
        class_count: 0, as such rows have no classes.
    """

    table: datasets.Dataset
    paths: tuple[ColumnPath, ...]
    numbers: NDArray[np.int64]
    left_out: int
    class_count: int = 0

    @staticmethod
    def of(
        table: datasets.Dataset,
        columns: Sequence[str],
        numbers: NDArray[np.int64],
        *,
        name: str,
        identity: Mapping[str, Any],
        cache: Path,
    ) -> ColumnRows:
        """The rows of a table.

        Args:
            table: The table.
            columns: The columns of query, positive and negatives, or paths into them.
            numbers: The rows to choose from.
            name: The data set, for messages.
            identity: What tells this data from any other.
            cache: The cache folder.

        Raises:
            DataError: A column is absent or holds something else, or no row has its texts.
        """
        paths = _text_paths(table, columns, name, single=2)
        table = table.select_columns([*dict.fromkeys(path.column for path in paths)])

        def found() -> dict[str, Any]:
            return {"rows": numbers[_with_texts(table, paths[:2])[numbers]]}

        rows = _kept(["columns", columns, identity], cache, found)["rows"]
        if not len(rows):
            raise DataError(f"{name}: no row has both {columns[0]!r} and {columns[1]!r}.")
        return ColumnRows(table=table, paths=paths, numbers=rows, left_out=len(numbers) - len(rows))

    def __len__(self) -> int:
        return len(self.numbers)

    def read(self, numbers: Sequence[int]) -> list[TextRow]:
        """The rows with some numbers, in their order."""
        return _text_rows(self.table[self.numbers[list(numbers)].tolist()], self.paths)


@dataclass(frozen=True, kw_only=True)
class JudgedRows:
    """Pairs of ids that judgements find relevant, whose texts lie in two other tables.

    Attributes:
        queries, corpus: The tables of texts; `text` has each one.
        pairs: The rows of both tables, (rows, 2).
        left_out: Judgements above 0 of which a text is blank or absent.
        class_count: 0, as such rows have no classes.
    """

    queries: datasets.Dataset
    corpus: datasets.Dataset
    pairs: NDArray[np.int64]
    left_out: int
    class_count: int = 0

    @staticmethod
    def of(
        judged: datasets.Dataset,
        texts: Sequence[datasets.Dataset],
        columns: Sequence[str],
        *,
        name: str,
        identity: Mapping[str, Any],
        cache: Path,
    ) -> JudgedRows:
        """The pairs of a table of judgements, as mteb's data sets of searches have them.

        Args:
            judged: The judgements: a score beside two columns of ids.
            texts: The tables of queries and of documents, each with `_id` and `text`; titles are not read.
            columns: The columns of ids.
            name: The data set, for messages.
            identity: What tells this data from any other.
            cache: The cache folder.

        Raises:
            DataError: A column is absent, or no judgement has both texts.
        """
        import numpy as np
        import pyarrow.compute as pc

        for table, needed, part in (
            (judged, columns, "judgements"),
            *((table, ("_id", "text"), part) for table, part in zip(texts, JUDGED_TEXTS, strict=True)),
        ):
            if lost := [column for column in needed if column not in table.column_names]:
                there = ", ".join(table.column_names)
                raise DataError(f"{name}, {part}: there is no column {lost[0]!r}; there is: {there}.")
            for column in needed:
                expected = "text" if column == "text" else "ids"
                _require_kind(table, column, expected, f"{name}, {part}")
        if "score" in judged.column_names:
            _require_kind(judged, "score", "numbers", f"{name}, judgements")

        def found() -> dict[str, Any]:
            rows = judged.data.table
            if "score" in judged.column_names:
                rows = rows.filter(pc.greater(rows["score"], 0))
            sides = [_places(rows[c], table) for c, table in zip(columns, texts, strict=True)]
            pairs = np.stack(sides, axis=1)
            return {"pairs": pairs[(pairs >= 0).all(axis=1)], "judged": np.array(len(pairs))}

        kept = _kept(["judged", columns, identity], cache, found)
        if not len(kept["pairs"]):
            raise DataError(f"{name}: no judgement above 0 has the texts of both its ids.")
        queries, corpus = texts
        return JudgedRows(
            queries=queries.select_columns(["text"]),
            corpus=corpus.select_columns(["text"]),
            pairs=kept["pairs"],
            left_out=int(kept["judged"]) - len(kept["pairs"]),
        )

    def __len__(self) -> int:
        return len(self.pairs)

    def read(self, numbers: Sequence[int]) -> list[TextRow]:
        """The rows with some numbers, in their order."""
        pairs = self.pairs[list(numbers)]
        queries = self.queries[pairs[:, 0].tolist()]["text"]
        documents = self.corpus[pairs[:, 1].tolist()]["text"]
        return [TextRow(query=q, positive=d) for q, d in zip(queries, documents, strict=True)]


@dataclass(frozen=True, kw_only=True)
class ClassRows:
    """Pairs of texts of one class: each row has as its positive the next one of its class in a drawn order.

    Attributes:
        table: The table.
        paths: The parts of a text, which are put together with blanks.
        label: The place of the class.
        numbers: The rows that count.
        nexts: For each of them the row that is its positive.
        class_count: The number of classes.
        left_out: Rows without a text or a class, or alone in theirs.
    """

    table: datasets.Dataset
    paths: tuple[ColumnPath, ...]
    label: ColumnPath
    numbers: NDArray[np.int64]
    nexts: NDArray[np.int64]
    class_count: int
    left_out: int

    @staticmethod
    def of(
        table: datasets.Dataset,
        columns: Sequence[str],
        label: str,
        numbers: NDArray[np.int64],
        *,
        seed: int,
        name: str,
        identity: Mapping[str, Any],
        cache: Path,
    ) -> ClassRows:
        """The pairs of a table of texts with classes.

        Args:
            table: The table.
            columns: The columns of the parts of a text, or paths into them.
            label: The column of the class.
            numbers: The rows to choose from.
            seed: That of the order.
            name: The data set, for messages.
            identity: What tells this data from any other.
            cache: The cache folder.

        Raises:
            DataError: A column is absent or holds something else, or no class has two texts.
        """
        import numpy as np

        paths = _text_paths(table, columns, name, single=len(columns))
        of_class = path_in(label, table.column_names, name)
        _require_class(table, of_class, name)
        table = table.select_columns([*dict.fromkeys(path.column for path in (*paths, of_class))])

        def found() -> dict[str, Any]:
            kept = numbers[_with_texts(table, paths)[numbers]]
            rows, nexts, count = _next_of_class(table, of_class, kept, np.random.default_rng(seed))
            return {"rows": rows, "nexts": nexts, "count": np.array(count)}

        kept = _kept(["classes", columns, label, seed, identity], cache, found)
        if not len(kept["rows"]):
            raise DataError(f"{name}: no class of {label!r} has two texts.")
        return ClassRows(
            table=table,
            paths=paths,
            label=of_class,
            numbers=kept["rows"],
            nexts=kept["nexts"],
            class_count=int(kept["count"]),
            left_out=len(numbers) - len(kept["rows"]),
        )

    def __len__(self) -> int:
        return len(self.numbers)

    def read(self, numbers: Sequence[int]) -> list[TextRow]:
        """The rows with some numbers, in their order."""
        own, nexts = (_rows(self.table[rows[list(numbers)].tolist()]) for rows in (self.numbers, self.nexts))
        return [
            TextRow(query=self._text(one), positive=self._text(other), label=str(self.label.value(one)))
            for one, other in zip(own, nexts, strict=True)
        ]

    def _text(self, row: Mapping[str, Any]) -> str:
        return " ".join(path.value(row) for path in self.paths)


@dataclass(frozen=True)
class JoinedRows:
    """The rows of several parts, one after the other."""

    parts: tuple[TextRows, ...]
    _ends: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_ends", tuple(accumulate(map(len, self.parts))))

    @property
    def left_out(self) -> int:
        """The rows of all parts that do not count."""
        return sum(part.left_out for part in self.parts)

    def __len__(self) -> int:
        return self._ends[-1]

    def read(self, numbers: Sequence[int]) -> list[TextRow]:
        """The rows with some numbers, in their order."""
        found, begin = dict[int, TextRow](), 0
        for part, end in zip(self.parts, self._ends, strict=True):
            places = [place for place, number in enumerate(numbers) if begin <= number < end]
            own = part.read([int(numbers[place]) - begin for place in places]) if places else []
            found |= dict(zip(places, own, strict=True))
            begin = end
        return [found[place] for place in range(len(numbers))]

    @property
    def class_count(self) -> int:
        """The most classes of a part; 0 where a part has none."""
        counts = [part.class_count for part in self.parts]
        return max(counts) if all(counts) else 0


def path_in(text: str, columns: Sequence[str], where: str) -> ColumnPath:
    """The path that a text means in a table: a column of that very name, else a path into one.

    Args:
        text: The name or the path.
        columns: The columns of the table.
        where: The data, for the message.

    Raises:
        DataError: There is no such column.
    """
    found = ColumnPath(text) if text in columns else ColumnPath.of(text)
    if found.column not in columns:
        raise DataError(f"{where}: there is no column {found.column!r}; there is: {', '.join(columns)}.")
    return found


def _text_paths(
    table: datasets.Dataset, columns: Sequence[str], name: str, *, single: int
) -> tuple[ColumnPath, ...]:
    """The paths of columns, all of which lead to texts, and the first `single` of them to one in each row."""
    paths = tuple(path_in(column, table.column_names, name) for column in columns)
    for number, path in enumerate(paths):
        if path.several and number < single:
            raise DataError(
                f"{name}: {path.text!r} is all texts of a list, and one is needed, as "
                f"{path.text.replace('[]', '[0]', 1)!r}."
            )
        kind = path.kind(table.data.schema)
        if kind is None:
            holds = _shown(table.data.schema.field(path.column).type)
            raise DataError(
                f"{name}: the column {path.column!r} holds {holds}, in which there is no {path.text!r}."
            )
        if not _is(kind, "text"):
            raise DataError(f"{name}: the column {path.text!r} holds {_shown(kind)}, not text.")
    return paths


def _require_class(table: datasets.Dataset, path: ColumnPath, name: str) -> None:
    kind = path.kind(table.data.schema)
    if kind is None or path.several or not _is(kind, "classes"):
        holds = _shown(table.data.schema.field(path.column).type)
        raise DataError(
            f"{name}: the column {path.column!r} holds {holds}, in which {path.text!r} is no class."
        )


def _require_kind(table: datasets.Dataset, column: str, expected: str, where: str) -> None:
    kind = table.data.schema.field(column).type
    if not _is(kind, expected):
        raise DataError(f"{where}: the column {column!r} holds {_shown(kind)}, not {expected}.")


def _is(kind: Any, expected: str) -> bool:
    """Whether a type is one of text, ids, numbers or classes; a column without any value is all of them."""
    import pyarrow.types as kinds

    text = kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind)
    number = kinds.is_integer(kind) or kinds.is_floating(kind)
    found = {
        "text": text,
        "ids": text or kinds.is_integer(kind),
        "numbers": number,
        "classes": text or number or kinds.is_boolean(kind),
    }
    return bool(found[expected] or kinds.is_null(kind))


def _shown(kind: Any) -> str:
    """A type in a message, cut where a struct has many fields."""
    text = str(kind)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _rows(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _text_rows(columns: Mapping[str, Sequence[Any]], paths: Sequence[ColumnPath]) -> list[TextRow]:
    query, positive, *negatives = paths
    return [
        TextRow(
            query=query.value(row),
            positive=positive.value(row),
            negatives=tuple(text for path in negatives for text in _listed(path.value(row))),
        )
        for row in _rows(columns)
    ]


def _listed(found: Any) -> list[str]:
    """The texts of a column of negatives in a row, without blank ones."""
    return [text for text in (found if isinstance(found, list) else [found]) if text and text.strip()]


def _kept(identity: Sequence[Any], cache: Path, make: Callable[[], dict[str, Any]]) -> Mapping[str, Any]:
    """Arrays from the cache, made where they are not there."""
    import numpy as np

    with prepared(digest(["rows", _VERSION, *identity]), cache) as folder, naming_full_disk(folder):
        file = folder / "rows.npz"
        if not file.is_file():
            made = make()
            staged = file.with_suffix(".new.npz")
            np.savez(staged, **made)
            staged.replace(file)
        with np.load(file) as found:
            return {name: found[name] for name in found.files}


def _with_texts(table: datasets.Dataset, paths: Sequence[ColumnPath]) -> NDArray[np.bool_]:
    """Whether each row has all these texts, none of them blank."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    found: list[Any] = []
    for batch in table.with_format("arrow").iter(_BATCH):
        whole = np.ones(batch.num_rows, dtype=bool)
        for path in paths:
            texts = path.texts(batch).cast(pa.large_string())
            blank = pc.fill_null(pc.equal(pc.utf8_trim_whitespace(texts), ""), True)
            whole &= ~blank.to_numpy(zero_copy_only=False)
        found.append(whole)
    return np.concatenate(found) if found else np.zeros(0, dtype=bool)


def _places(ids: Any, table: datasets.Dataset) -> NDArray[np.int64]:
    """The row of each id in a table of texts, -1 where it is not there or its text is blank."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    known = table.data.table["_id"]
    places = pc.index_in(
        ids.cast(pa.large_string()), value_set=known.cast(pa.large_string()), skip_nulls=True
    )
    found = np.asarray(pc.fill_null(places, -1).to_numpy(), dtype=np.int64)
    whole = np.append(_with_texts(table, (ColumnPath("text"),)), False)
    return np.where(whole[found], found, -1)


def _next_of_class(
    table: datasets.Dataset, label: ColumnPath, numbers: NDArray[np.int64], draw: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """The rows whose class has another one, for each the next of its class in a drawn order; the classes."""
    import numpy as np

    labels = label.texts(table.data.table).to_numpy(zero_copy_only=False)[numbers]
    known = np.array([one is not None and one == one for one in labels], dtype=bool)
    named = numbers[known]
    _, codes = np.unique(labels[known], return_inverse=True)
    order = draw.permutation(len(named))
    order = order[np.argsort(codes[order], kind="stable")]
    nexts = np.empty(len(named), dtype=np.int64)
    for members in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        nexts[members] = np.roll(members, -1)
    alone = nexts == np.arange(len(named))
    return named[~alone], named[nexts[~alone]], len(np.unique(codes[~alone]))
