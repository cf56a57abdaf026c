"""Training data as memory-mapped tables: its rows, its size, and the texts that a model was trained on.

Needs the datasets library, unlike harness.data.training.sets, which finds the data.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core import files
from harness.core.errors import DataError
from harness.data.counting import hash_texts
from harness.data.prepared import explain_disk_full, hide_progress_bars, open_prepared_data
from harness.data.schema import ColumnPath, TableHead, resolve_readable_folder
from harness.data.scored_tables import ScoredTables
from harness.data.tables import BATCH, format_error_line
from harness.data.training.sets import LocatedTraining, TrainingData, match_filter, require_columns
from harness.data.training.text_rows import (
    RowSource,
    TextRows,
    open_class_rows,
    open_column_rows,
    open_judged_rows,
)

if TYPE_CHECKING:
    import datasets
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


def load_training(located: LocatedTraining, *, cache: Path) -> datasets.Dataset:
    """The rows as a memory-mapped table with the text columns in order, then the score if there is one.

    Queries with scored documents have the columns of `ScoredTables.rows`.

    Raises:
        DataError: A text is missing, blank or no text; the message names the row. Or a row has lists.
    """
    data = located.data
    if data.texts:
        return load_scored(located, cache=cache).rows
    if not data.plain:
        raise DataError(
            f"{located.name} has a {data.form} in each row, where columns of text are read.",
            hint="Give a column for each negative.",
        )
    with _open_training_cache(located, cache), hide_progress_bars():
        table = _load_training_table(located)
    _require_kinds(located, table)
    numbers = _select_row_numbers(table, data)
    # Not for all rows in order: a selection makes the library look up each row's place, which is slower.
    if len(numbers) < len(table) or data.held_out:
        table = table.select(numbers)
    table = table.select_columns([*data.columns, *([data.score] if data.score else [])])
    if not len(table):
        of = " that satisfy the filter" if data.filter else ""
        after = f" after {data.held_out} are set aside" if data.held_out else ""
        raise DataError(f"{located.name}: there are no rows{of}{after}.")
    # Batch by batch, so that the texts of a large table are never in memory together.
    done = 0
    for batch in table.with_format("arrow").iter(BATCH):
        _require_values(batch, located.name, numbers[done:] + 1)
        done += batch.num_rows
    return table


def load_scored(located: LocatedTraining, *, cache: Path) -> ScoredTables:
    """The tables of queries with scored documents, the first ones where the data says how many.

    Raises:
        DataError: An id has no text, or a row has another number of scores than of documents.
    """
    data = located.data
    with _open_training_cache(located, cache), hide_progress_bars():
        read = [
            _load_training_table(replace(located, data=replace(data, config=name))) for name in data.configs
        ]
    tables = ScoredTables.join(*read, name=located.name, identity=data.identity, cache=cache)
    if data.first is None:
        return tables
    return replace(
        tables, numbers=tables.numbers.select(range(data.count_remaining_rows(len(tables.numbers))))
    )


def load_rows(located: LocatedTraining, *, cache: Path) -> TextRows:
    """The rows of a recipe that takes any number of negatives; texts are read when a row is.

    A row without a query or a positive has no number.

    Raises:
        DataError: A column is absent or holds something else than texts, or there are no rows.
    """
    data = located.data
    source = RowSource(name=located.name, identity=data.identity, cache=cache)
    with _open_training_cache(located, cache), hide_progress_bars():
        tables = [
            _load_training_table(
                replace(located, data=replace(data, config=config, split=split, judged=False))
            )
            for config, split in data.tables
        ]
    _require_kinds(located, tables[0])
    if data.judged:
        return open_judged_rows(tables[0], tables[1:], data.columns, source)
    numbers = _select_row_numbers(tables[0], data)
    if data.classes:
        return open_class_rows(tables[0], data.columns, data.classes, numbers, source, seed=data.split_seed)
    return open_column_rows(tables[0], data.columns, numbers, source)


def _require_values(table: pa.Table, where: str, numbers: NDArray[np.int64]) -> None:
    """Refuse a text that is missing or blank, and a score that is no finite number.

    Args:
        table: Rows, all of whose columns are texts or scores.
        where: The data, for the message.
        numbers: The numbers of the rows for people.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
            bad = pc.fill_null(pc.invert(pc.is_finite(column)), True)
            fault = "is no finite number"
        else:
            bad = pc.fill_null(pc.equal(pc.utf8_trim_whitespace(column), ""), True)
            fault = "holds no text"
        position = pc.index(bad, True).as_py()
        if position >= 0:
            raise DataError(f"{where}: row {numbers[position]}: the column {name!r} {fault}.")


def _select_row_numbers(table: datasets.Dataset, data: TrainingData) -> NDArray[np.int64]:
    """The numbers of the rows that satisfy the filter, are distinct and not set aside, from 0 on."""
    import numpy as np

    numbers = np.arange(len(table))
    if data.filter is not None:
        values = table.data.column(data.filter[0])
        numbers = numbers[match_filter(values, data.filter).to_numpy(zero_copy_only=False)]
    if data.distinct:
        hashes = [hash_texts(chunk.to_pylist()) for chunk in table.data.column(data.distinct).chunks]
        _, first = np.unique(np.concatenate(hashes)[numbers], return_index=True)
        numbers = numbers[np.sort(first)]
    if data.held_out:
        # As Dataset.train_test_split draws: one permutation, whose first rows are the part that is set aside.
        draw = np.random.default_rng(data.split_seed)
        numbers = numbers[draw.permutation(len(numbers))[data.held_out :]]
    return numbers[: data.first]


def _open_training_cache(located: LocatedTraining, cache: Path) -> contextlib.AbstractContextManager[object]:
    """A context in which the datasets library keeps local data by its content."""
    content = located.data.content or located.data.revision
    return open_prepared_data(content, cache) if located.folder or located.file else explain_disk_full()


def _load_training_table(located: LocatedTraining) -> datasets.Dataset:
    import datasets
    from datasets.exceptions import DatasetsError

    data = located.data
    where: dict[str, Any] = {"path": data.path, "revision": data.revision, "name": data.config or None}
    if located.folder is not None:
        where = {"path": str(resolve_readable_folder(located.folder)), "name": data.config or None}
    if data.file:
        base = f"hf://datasets/{data.path}@{data.revision}" if located.folder is None else located.folder
        # A file that the README does not name is read by the builder for its format.
        where = {"path": "json", "data_files": {data.split: f"{base}/{data.file}"}}
    if located.file is not None:
        where = {"path": "parquet", "data_files": str(located.file)}
    try:
        table = datasets.load_dataset(**where, split=data.split)
        return _select_first_passages(table, located) if data.passages else table
    except (ValueError, OSError, DatasetsError) as error:
        # The library's own message says only that the data set could not be made; its cause names the line.
        message = format_error_line(error.__cause__ if isinstance(error.__cause__, Exception) else error)
        raise DataError(f"{located.name} cannot be read: {message}.") from error


def _select_first_passages(table: datasets.Dataset, located: LocatedTraining) -> datasets.Dataset:
    """The rows with the text of the first passage in place of each list; none for an empty one."""
    paths = [ColumnPath(name, (0, "text")) for name in located.data.columns[1:] if name in table.column_names]

    def choose(batch: pa.Table) -> pa.Table:
        for path in paths:
            texts = path.extract_texts(batch).cast("large_string")
            batch = batch.set_column(batch.column_names.index(path.column), path.column, texts)
        return batch

    # Small batches, as each row holds a list of long passages.
    return table.with_format("arrow").map(choose, batched=True, batch_size=100).with_format(None)


def _require_kinds(located: LocatedTraining, table: datasets.Dataset) -> None:
    """Refuse a table without one of the columns, or whose column is of another kind."""
    import pyarrow as pa

    kinds = {field.name: field.type for field in table.data.schema}
    text = {n for n, k in kinds.items() if pa.types.is_string(k) or pa.types.is_large_string(k)}
    no_text = {name: str(kind) for name, kind in kinds.items() if name not in text}
    head = TableHead(columns=tuple(kinds), no_text=no_text, text=frozenset(text))
    require_columns(located.data, head, located.name)


@dataclass(frozen=True, kw_only=True)
class TrainingSize:
    """The size of training data.

    Attributes:
        rows: The number of rows.
        characters: The mean characters of the texts by column.
        documents: The fewest and the most documents of a query, of scored documents.
        constant: Queries whose documents all have one score, likewise.
        negatives: The fewest and the most negatives of a row, where they may differ.
    """

    rows: int
    characters: Mapping[str, float]
    documents: tuple[int, int] | None = None
    constant: int | None = None
    negatives: tuple[int, int] | None = None

    @staticmethod
    def measure_training(located: LocatedTraining, cache: Path) -> TrainingSize:
        """The size of training data, all of which is read.

        Raises:
            DataError: A text is missing, blank or no text; the message names the row.
        """
        import pyarrow.compute as pc

        if located.data.texts:
            tables = load_scored(located, cache=cache)
            counts = tables.count_row_documents()
            return TrainingSize(
                rows=len(tables.numbers),
                characters=tables.compute_mean_lengths(),
                documents=(int(counts.min()), int(counts.max())),
                constant=tables.count_constant_rows(),
            )
        if not located.data.plain:
            return TrainingSize._measure_rows(load_rows(located, cache=cache))
        table = load_training(located, cache=cache)
        totals = dict.fromkeys(located.data.columns, 0)
        for batch in table.with_format("arrow").iter(BATCH):
            for name in totals:
                totals[name] += pc.sum(pc.utf8_length(batch[name])).as_py()
        return TrainingSize(
            rows=len(table), characters={name: total / len(table) for name, total in totals.items()}
        )

    @staticmethod
    def _measure_rows(rows: TextRows) -> TrainingSize:
        totals = {"query": 0, "positive": 0, "negatives": 0}
        counts: set[int] = set()
        negatives = 0
        for start in range(0, len(rows), BATCH):
            for row in rows.read_text_rows(range(start, min(start + BATCH, len(rows)))):
                totals["query"] += len(row.query)
                totals["positive"] += len(row.positive)
                totals["negatives"] += sum(map(len, row.negatives))
                negatives += len(row.negatives)
                counts.add(len(row.negatives))
        texts = {"query": len(rows), "positive": len(rows), "negatives": negatives}
        return TrainingSize(
            rows=len(rows),
            characters={name: totals[name] / texts[name] for name in totals if texts[name]},
            negatives=(min(counts), max(counts)),
        )


REPEATS = 5_000_000
"""Rows up to which repeated texts are counted, which takes about 3 s for each million."""


def describe_repeats(located: LocatedTraining, cache: Path) -> list[str]:
    """Sentences on rows with the pair, or the positive, of an earlier row; none on rows with scores.

    In a batch a repeated positive is a wrong negative of the other row.
    """
    import numpy as np

    data = located.data
    if not data.plain or data.texts or data.score:
        return []
    table = load_training(located, cache=cache)
    if len(table) > REPEATS:
        return []
    anchor, positive = data.columns[:2]
    hashes = [
        (hash_texts(batch[anchor].to_pylist()), hash_texts(batch[positive].to_pylist()))
        for batch in table.with_format("arrow").iter(BATCH)
    ]
    anchors, positives = (np.concatenate(parts) for parts in zip(*hashes, strict=True))
    rows, pairs = len(table), len(np.unique(np.stack([anchors, positives], axis=1), axis=0))
    answers = len(np.unique(positives))
    notes = []
    if pairs < rows:
        notes.append(f"{located.name}: {rows - pairs:,} of {rows:,} pairs are equal to an earlier one")
    if answers < pairs:
        notes.append(
            f"{located.name}: {rows:,} rows have {answers:,} different positives; equal ones are wrong "
            "negatives of each other in a batch"
        )
    return notes


# The texts that a model was trained on


_TEXTS = "training/texts.npy"
"""The file in a model's folder with the hashes of its training texts."""


def write_text_hashes(data: tuple[LocatedTraining, ...], model: Path, *, parent: Path, cache: Path) -> None:
    """Write the hashes of all training texts, with those of its parent, into a model's folder.

    `read_text_hashes` reads them again. Nothing is written where the training has written them itself.

    Args:
        data: The training data.
        model: The folder of the trained model.
        parent: The folder of the model that was trained further.
        cache: The cache folder.
    """
    # A training that mixes data sets writes the texts that it has really read (finetune.mix).
    if not (model / _TEXTS).exists():
        add_text_hashes(
            chain.from_iterable(_iter_training_texts(part, cache) for part in data), model, parents=[parent]
        )


def add_text_hashes(texts: Iterable[Sequence[str]], model: Path, *, parents: Sequence[Path]) -> None:
    """Write the hashes of texts, with those of its parents, into a model's folder.

    Args:
        texts: The texts, part by part.
        model: The folder of the trained model.
        parents: The folders of the models that it was made from.
    """
    import io

    import numpy as np

    before = [hashes for parent in parents if (hashes := read_text_hashes(parent)) is not None]
    parts = [np.empty(0, np.uint64), *before, *map(hash_texts, texts)]
    buffer = io.BytesIO()
    np.save(buffer, np.unique(np.concatenate(parts)))
    (model / _TEXTS).parent.mkdir(parents=True, exist_ok=True)
    files.replace(model / _TEXTS, buffer.getvalue())


def _iter_training_texts(located: LocatedTraining, cache: Path) -> Iterator[Sequence[str]]:
    """All texts of training data, part by part."""
    if located.data.texts:
        for _, texts in load_scored(located, cache=cache).iter_used_texts():
            yield texts
        return
    for batch in load_training(located, cache=cache).with_format("arrow").iter(BATCH):
        for name in located.data.columns:
            yield batch[name].to_pylist()


def read_text_hashes(model: Path) -> NDArray[np.uint64] | None:
    """The sorted 64-bit hashes of the texts that the model in a folder was trained on; None if not known."""
    import numpy as np

    try:
        hashes: NDArray[np.uint64] = np.load(model / _TEXTS)
    except (OSError, ValueError, EOFError):
        return None
    return hashes if hashes.dtype == np.uint64 and hashes.ndim == 1 else None


def count_trained(texts: Sequence[str], trained: NDArray[np.uint64]) -> int:
    """The number of distinct texts whose hashes are among those of `read_text_hashes`."""
    import numpy as np

    return len(np.intersect1d(np.unique(hash_texts(texts)), trained, assume_unique=True))
