"""Training data: sets of the hub, of a data root, or of a user's own files, and their places.

What a plan needs is read without the datasets library: metadata of Parquet files, and first lines of others.
harness.data.training.loading reads the rest.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from harness.core.errors import DataError, UsageError, ask_for_names, find_similar_names
from harness.core.files import require_plain_name
from harness.core.keys import serialize_canonical
from harness.core.types import Data, DataTable
from harness.data.counting import count_tables
from harness.data.folder import (
    WHOLE,
    Need,
    find_file_gaps,
    find_missing_parts,
    list_data_sets,
    resolve_identity,
)
from harness.data.locate import (
    DataMissing,
    DataSettings,
    Located,
    explain_hub_error,
    find_root_folder,
    find_snapshot,
    list_readme_subsets,
    locate_data,
    locate_local,
)
from harness.data.schema import NO_VALUE, ColumnPath, SplitFiles, TableHead, require_column, require_distinct
from harness.data.scored_tables import IDS, SCORES, TEXTS, is_scored
from harness.data.tables import ENDINGS, explain_file_error, resolve_user_path
from harness.data.training.own_rows import CORPUS, FORMS, QUERIES, RowsFile, choose_columns, describe_columns
from harness.data.training.text_rows import JUDGED_TEXTS

Form = Literal[
    "pair",
    "triplet",
    "tuple",
    "row with any number of negatives",
    "pair of one class",
    "scored pair",
    "query with scored documents",
]
"""The form of a row."""


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """A data set that a recipe trains on.

    Attributes:
        path: A data set of the hub, `org/name`; empty for a user's own file.
        revision: The pinned commit, or a branch whose newest commit is taken.
        content: The hash of the data, in place of the revision, where that is not proven, as of own files.
        config: The configuration.
        split: The split.
        columns: The columns of text in the order anchor, positive, negatives; `a.b` is the field b of a,
            `a[0]` its first item, `a[]` each of its items. Recipes that take any number of negatives read
            such paths (see harness.data.training.text_rows).
        score: The column with a score, or with those of a row's documents in their order; empty without one.
        judged: Whether the columns are ids of a query and a document that belong together if their score, if
            there is one, is above 0, with texts in the configurations and splits `queries` and `corpus`, of
            which titles are not read.
        classes: The column with the class of a text, whose parts are the columns, joined by blanks, and none
            of them missing; the n texts of a class are n pairs, each text with the next in an order, and the
            last with the first. The order is drawn once, by numpy's default_rng(split_seed).
        file: The file of rows in the data set's folder, where the library finds none by itself.
        passages: Whether all columns but the first are lists of passages, the first of which counts by its
            `text`.
        filter: A column, a comparison (">", ">=", "<", "<=", "==") and a number that rows must satisfy.
        distinct: A column of text: of rows with equal text there, only the first is read; empty for all rows.
        held_out: The number of rows that are set aside, drawn as by `train_test_split` of the datasets
            library, which also shuffles the others.
        split_seed: The seed of that draw.
        first: The number of rows that are then read, from the first one on.
        texts: The configurations in which the texts of ids are looked up: in the first a `text` for each
            `query_id`, in the second for each `document_id`; empty for rows of texts.
        rows: The rows that remain, at this revision. For a plan without the data; not part of the identity.
    """

    path: str = ""
    revision: str = ""
    content: str = ""
    config: str = ""
    split: str = "train"
    columns: tuple[str, ...] = ("anchor", "positive")
    score: str = ""
    judged: bool = False
    classes: str = ""
    file: str = ""
    passages: bool = False
    filter: tuple[str, str, float] | None = None
    distinct: str = ""
    held_out: int = 0
    split_seed: int = 0
    first: int | None = None
    texts: tuple[str, ...] = ()
    rows: int | None = None

    @property
    def configs(self) -> tuple[str, ...]:
        """All configurations that are read; none where the data set's only one is."""
        return tuple(config for config, _ in self.tables if config)

    @property
    def tables(self) -> tuple[tuple[str, str], ...]:
        """The configuration and the split of every table that is read, that of the rows first."""
        texts = tuple((name, self.split) for name in self.texts)
        judged = tuple((name, name) for name in JUDGED_TEXTS) if self.judged else ()
        return ((self.config, self.split), *texts, *judged)

    @property
    def paths(self) -> tuple[ColumnPath, ...]:
        """The columns as paths."""
        return tuple(map(ColumnPath.parse_column_path, self.columns))

    @property
    def plain(self) -> bool:
        """Whether each row has one text in each column, which every recipe reads."""
        nested = any(path.steps for path in self.paths)
        return not (nested or self.judged or self.classes)

    @property
    def texts_per_row(self) -> int:
        """The texts of a row in training, a list of negatives counted once."""
        return 2 if self.classes else len(self.columns)

    @property
    def form(self) -> Form:
        """The form of a row."""
        if self.texts:
            return "query with scored documents"
        if self.score:
            return "scored pair"
        if self.classes:
            return "pair of one class"
        if any(path.several for path in self.paths):
            return "row with any number of negatives"
        return {2: "pair", 3: "triplet"}.get(len(self.columns), "tuple")  # type: ignore[return-value]

    @property
    def identity(self) -> Mapping[str, Any]:
        """The fields that a trained model depends on; where the data lies is not among them."""
        condition = self.filter and (*self.filter[:2], float(self.filter[2]))
        # Through JSON, so that it equals what is read back from a file: lists in place of tuples.
        fields: dict[str, Any] = json.loads(serialize_canonical(replace(self, rows=None, filter=condition)))
        return fields

    def count_remaining_rows(self, rows: int) -> int:
        """The number of rows that remain of those that satisfy the filter and are distinct."""
        left = max(0, rows - self.held_out)
        return left if self.first is None else min(left, self.first)


@dataclass(frozen=True, kw_only=True)
class LocatedTraining:
    """Training data with its place.

    Attributes:
        data: The data set, with the content's hash where it lies in a data root or is the user's own.
        folder: The folder of a hub data set; None where the hub itself is read.
        file: The rows of a user's own file as Parquet, in the cache.
        name: The name in tables and messages.
        rows: The number of rows, if it is known without reading them all.
        own: Whether the user gave it in place of the recipe's.
        read_as: What each column of the user's data is read as; empty if its columns are fixed.
        notes: What is missing of it, where a part is accepted for the whole, and a number of rows that is not
            the source's.
    """

    data: TrainingData
    folder: Path | None = None
    file: Path | None = None
    name: str
    rows: int | None = None
    own: bool = False
    read_as: str = ""
    notes: tuple[str, ...] = ()


# The place of a recipe's data

_PULL = (
    "On a connected machine: harness data pull --recipe RECIPE --data DIR; then name that folder here with "
    "--data DIR."
)


def locate_training(data: TrainingData, settings: DataSettings) -> LocatedTraining:
    """The place of a recipe's data set: a data root, the hub's cache, or the hub.

    Raises:
        DataError: It is not on this machine and the network is forbidden, or lacks the configuration, the
            split or a column.
    """
    try:
        located = _locate_data_set(data, settings)
    except DataMissing as error:
        raise DataMissing(error.message, hint=_PULL) from None
    name = f"{data.path}:{data.config}" if data.config else data.path
    content, expected = located.data.content, data.rows
    data = replace(data, revision=located.data.revision, content=content, rows=None if content else expected)
    if located.folder is None or data.file:
        if located.folder is not None and not (located.folder / data.file).is_file():
            raise DataError(
                f"{located.folder} has no file {data.file}.",
                hint="Pull the data set again, with all its files.",
            )
        return LocatedTraining(data=data, folder=located.folder, name=name, rows=data.rows)
    parts = [_read_whole_split(located, *table, settings) for table in data.tables]
    split, gaps = parts[0][0], tuple(chain.from_iterable(gaps for _, gaps in parts))
    for file, head in zip(split.files, split.heads, strict=True):
        require_columns(data, head, str(file))
    rows = data.rows
    if rows is None and (count := _count_matching_rows(data, split)) is not None:
        rows = data.count_remaining_rows(count)
    if rows is not None and expected not in (None, rows):
        gaps = (*gaps, f"{name} has {rows:,} rows here, and {expected:,} at its source")
    return LocatedTraining(data=data, folder=located.folder, name=name, rows=rows, notes=gaps)


def require_fetchable(located: LocatedTraining) -> None:
    """Refuse data that would have to be fetched and cannot be: a training finds out after minutes.

    Raises:
        DataMissing: It is not on this machine, and the hub cannot be reached or does not have it.
    """
    data = located.data
    if located.folder is not None or located.file is not None:
        return
    from huggingface_hub import constants

    error = _ask_hub(data.path, data.revision)
    # Where the datasets library keeps what it has fetched, whose import takes a second.
    library_cache = os.environ.get("HF_DATASETS_CACHE") or Path(constants.HF_HOME, "datasets")
    if error is not None and not Path(library_cache, data.path.replace("/", "___")).is_dir():
        message = f"The training data {data.path} is not on this machine. {error.message}"
        raise DataMissing(message, hint=_PULL)


@cache
def _ask_hub(path: str, revision: str) -> DataError | None:
    """Why a data set cannot be fetched, asked once in a process; None if it can be."""
    from huggingface_hub import HfApi

    try:
        with explain_hub_error(Need(path=path, revision=revision), None):
            HfApi().dataset_info(path, revision=revision or None, timeout=5)
    except DataError as error:
        return error
    return None


def _read_whole_split(
    located: Located, config: str, split: str, settings: DataSettings
) -> tuple[SplitFiles, tuple[str, ...]]:
    """The files of a split, and what is missing of them, where a part is accepted for the whole.

    Raises:
        DataError: A part is missing, or rows are; or the files cannot be read.
    """
    assert located.folder is not None
    files = SplitFiles.read_split(located.folder, config, split)
    table = DataTable(config=(config,) if config else (), splits=(split,))
    gaps = count_tables(located.folder, located.data, [table], (), settings.cache).gaps
    if gaps and not settings.partial:
        raise DataError(f"{located.folder}: {gaps[0]}.", hint=WHOLE)
    return files, gaps


def _locate_data_set(data: TrainingData, settings: DataSettings) -> Located:
    """The place of a data set; a snapshot in the hub's cache must be complete for this configuration only.

    A data set of a branch has the commit that the branch has now, in a data root its content.
    """
    # A branch moves on, so a folder in a data root cannot prove it: any revision there will do.
    pinned = _COMMIT.fullmatch(data.revision) is not None
    near = locate_local(Data(path=data.path, revision=data.revision if pinned else ""), settings)
    if near is not None:
        return near
    commit = data.revision if pinned else _resolve_commit(data.path, data.revision, settings)
    commit_data = Data(path=data.path, revision=commit)
    held = find_snapshot(data.path, commit)
    is_complete = held is not None and (
        (held / data.file).is_file()
        if data.file
        else all(_is_whole(held, config, split) for config, split in data.tables)
    )
    if held is not None and is_complete:
        return Located(data=commit_data, folder=held, origin="hub-cache")
    return locate_data(commit_data, settings, subsets=data.configs)


def _is_whole(folder: Path, config: str, split: str) -> bool:
    """Whether a snapshot has all files of a split."""
    try:
        files = SplitFiles.read_split(folder, config, split).files
    except DataError:
        return False
    return not [*find_missing_parts({file.name for file in files})]


def require_columns(data: TrainingData, head: TableHead, where: str) -> None:
    """Refuse a file without one of the columns, or whose column holds no text.

    Args:
        data: The training data, with the columns that it reads.
        head: The columns of the file.
        where: The file, for the message.

    Raises:
        DataError: A column is missing or of another kind, or two have one name.
    """
    if head.columns is None:
        return
    require_distinct(head.columns, where)
    score = (data.score,) if data.score else ()
    condition = data.filter[:1] if data.filter else ()
    label = (data.classes,) if data.classes else ()
    for name in (*data.columns, *score, *condition, *label):
        path = ColumnPath.parse_column_path(name)
        path = path if name in data.columns and name not in head.columns else ColumnPath(name)
        column = require_column(path.column, head.columns, where)
        if data.texts or data.judged or name == data.classes:
            continue  # ids, lists and classes, which are checked when they are looked up
        if path.steps:
            if column in head.text:
                raise DataError(
                    f"{where}: the column {column!r} holds text, in which {name!r} cannot be found."
                )
        elif name in data.columns and head.no_text.get(name, NO_VALUE) != NO_VALUE:
            raise DataError(f"{where}: the column {name!r} holds {head.no_text[name]}, not text.")
        elif name not in data.columns and name in head.text:
            raise DataError(f"{where}: the column {name!r} holds text, not numbers.")


def _count_matching_rows(data: TrainingData, split: SplitFiles) -> int | None:
    """The rows that satisfy the filter and are distinct, from Parquet files; None where none are counted."""
    columns = [*(data.filter or ())[:1], *filter(None, [data.distinct])]
    if not columns or split.rows is None:
        return split.rows
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    if any(file.suffix != ".parquet" for file in split.files):
        return None
    table = pa.concat_tables([pq.read_table(file, columns=columns) for file in split.files])
    if data.filter is not None:
        table = table.filter(match_filter(table[data.filter[0]], data.filter))
    return pc.count_distinct(table[data.distinct]).as_py() if data.distinct else len(table)


def match_filter(values: Any, condition: tuple[str, str, float]) -> Any:
    """Whether each value satisfies a filter; a missing one does not."""
    import pyarrow.compute as pc

    column, comparison, number = condition
    compare = {
        ">": pc.greater,
        ">=": pc.greater_equal,
        "<": pc.less,
        "<=": pc.less_equal,
        "==": pc.equal,
    }
    if comparison not in compare:
        raise UsageError(
            f"{comparison!r} cannot be the filter of {column!r}.", hint=f"Use one of {', '.join(compare)}."
        )
    # In float64, since Arrow cannot compare a column of text or decimals with a number.
    return pc.fill_null(compare[comparison](pc.cast(values, "float64"), float(number)), False)


# A user's own data


_HUB_NAME = re.compile(r"(?P<path>[\w.-]+/[\w.-]+)(@(?P<revision>[^:@]+))?(:(?P<config>.+))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def locate_user_training(text: str, settings: DataSettings) -> LocatedTraining:
    """The training data that a user names with `--train-data`.

    Args:
        text: A file of rows (JSONL, CSV, TSV or Parquet), a folder `path[:split]` in BEIR's layout, a folder
            of scored documents, a data set `org/name[@revision][:config]` of the data root or the hub, or
            `code:FOLDER` for the pairs of docstring and function in Python source.
        settings: The places to look.

    Raises:
        UsageError: Nothing has this name, or the name is empty.
        DataError: A row has no text, or too few columns; the message names file and row.
    """
    if not text.strip():
        raise UsageError("--train-data has an empty name.", hint=_EXAMPLES)
    file = resolve_user_path(text)
    require_plain_name(file.name or text, "the name of training data", hint="Rename the file or folder.")
    with explain_file_error(file):
        if file.is_file():
            return _wrap_rows_file(
                RowsFile.convert_file(file, settings.cache), _require_whole_files([file], settings)
            )
    judged = find_judged_folder(text)
    if judged is not None:
        files = [judged[0] / CORPUS, judged[0] / QUERIES]
        judged_rows = RowsFile.convert_judgements(*judged, settings.cache)
        return _wrap_rows_file(judged_rows, _require_whole_files(files, settings))
    # Before names with a colon and names of the hub: an existing path is what a user means.
    if file.is_dir() and is_scored(list_readme_subsets(file)):
        data = resolve_identity(Data(path=""), file, settings.cache)
        return _locate_scored_training(Located(data=data, folder=file, origin="root"), file.name, settings)
    kind, colon, argument = text.partition(":")
    rows_file = (
        RowsFile.convert_source(kind, argument, settings.cache) if colon and kind.isidentifier() else None
    )
    if rows_file is not None:
        return _wrap_rows_file(rows_file)
    named = _HUB_NAME.fullmatch(text)
    if named is None or file.suffix in ENDINGS or text.startswith("."):
        raise _explain_absent_file(text, file, settings)
    path, revision, config = named["path"], named["revision"] or "", named["config"] or ""
    # The name of a folder here, and of no data set in the data root.
    if file.is_dir() and find_root_folder(path, revision, settings.root) is None:
        raise _explain_absent_file(text, file, settings)
    return _locate_user_data_set(path, revision, config, settings)


def _require_whole_files(files: Sequence[Path], settings: DataSettings) -> tuple[str, ...]:
    """What is missing of a user's own files, which are refused unless a part is accepted for the whole."""
    gaps = tuple(gap for file in files for gap in find_file_gaps(file))
    if gaps and not settings.partial:
        raise UsageError(f"{gaps[0]}.", hint=WHOLE)
    return gaps


_EXAMPLES = (
    "Name a file of pairs (pairs.jsonl), a folder in BEIR's layout, a data set (ORG/NAME:CONFIG), or "
    "code:FOLDER."
)


def find_judged_folder(text: str) -> tuple[Path, str] | None:
    """The folder in BEIR's layout and its split that a text names, "train" where it names none."""
    folder, (name, _, split) = resolve_user_path(text), text.rpartition(":")
    named = [(folder, "train"), *([(resolve_user_path(name), split)] if name and split else [])]
    with explain_file_error(folder):
        return next((pair for pair in named if (pair[0] / CORPUS).is_file()), None)


def _wrap_rows_file(source: RowsFile, notes: tuple[str, ...] = ()) -> LocatedTraining:
    data = TrainingData(content=source.content, columns=source.columns, score=source.score)
    return LocatedTraining(
        data=data,
        file=source.file,
        name=source.name,
        rows=source.rows,
        own=True,
        read_as=source.read_as,
        notes=notes,
    )


def _explain_absent_file(text: str, file: Path, settings: DataSettings) -> UsageError:
    if file.is_dir():
        if configs := list_readme_subsets(file):
            return UsageError(
                f"The README of {text} has the configurations {', '.join(configs)}.",
                hint="Queries with scored documents need the configurations train, queries and documents "
                "(docs/training-data.md); another data set is named with --data DIR and ORG/NAME:CONFIG.",
            )
        return UsageError(
            f"{text} is a folder.",
            hint=f"For the functions in its Python source: --train-data code:{text}. "
            "A data root is named with --data DIR, and its data sets with ORG/NAME.",
        )
    folder = file.parent
    file_names = [path.name for path in folder.iterdir() if path.suffix in ENDINGS] if folder.is_dir() else []
    sets = [need.path for need in list_data_sets(settings.root)] if settings.root else []
    beside = [str(Path(text).with_name(name)) for name in find_similar_names(file.name, file_names)]
    near = f"Did you mean {' or '.join(beside)}? " if beside else ask_for_names(text, sets)
    return UsageError(f"No training data {text!r} was found.", hint=near + _EXAMPLES)


def _locate_user_data_set(path: str, revision: str, config: str, settings: DataSettings) -> LocatedTraining:
    """A data set of the data root or the hub, its columns taken by their names."""
    folder, data = _find_user_folder(path, revision, config, settings)
    located = Located(data=data, folder=folder, origin="root")
    if config in ("", "train") and is_scored(list_readme_subsets(folder)):
        return _locate_scored_training(located, path, settings)
    try:
        split, gaps = _read_whole_split(located, config, "train", settings)
    except DataError as error:
        raise UsageError(error.message, hint=error.hint) from None
    if not split.columns:
        raise DataError(f"{split.files[0]}: its columns cannot be known before it is read.", hint=FORMS)
    no_text = {name for head in split.heads for name in head.no_text}
    lists = {name for head in split.heads for name in head.lists}
    text = [name for name in split.columns if name not in no_text | lists]
    columns, score = choose_columns(split.columns, text, str(split.files[0]), no_text=no_text, lists=lists)
    return LocatedTraining(
        data=TrainingData(**asdict(data), config=split.config, columns=columns, score=score),
        folder=folder,
        name=f"{path}:{split.config}" if split.config not in ("", "default") else path,
        rows=split.rows,
        own=True,
        read_as=describe_columns(columns, score),
        notes=gaps,
    )


def _locate_scored_training(located: Located, name: str, settings: DataSettings) -> LocatedTraining:
    """Queries with scored documents in a folder in hub layout."""
    data = TrainingData(**asdict(located.data), config="train", columns=IDS, score=SCORES, texts=TEXTS)
    parts = {config: _read_whole_split(located, config, "train", settings) for config in data.configs}
    gaps = tuple(chain.from_iterable(gaps for _, gaps in parts.values()))
    rows = parts["train"][0].rows
    return LocatedTraining(data=data, folder=located.folder, name=name, rows=rows, own=True, notes=gaps)


def _find_user_folder(path: str, revision: str, config: str, settings: DataSettings) -> tuple[Path, Data]:
    """The folder of a data set and its identity; it is fetched into the hub's cache if no folder has it."""
    near = locate_local(Data(path=path, revision=revision), settings)
    if near is not None and near.folder is not None:
        return near.folder, near.data
    commit = _resolve_commit(path, revision, settings)
    data = Data(path=path, revision=commit)
    held = find_snapshot(path, commit)
    if held is not None and _is_whole(held, config, "train"):
        return held, data
    if _is_offline(settings):
        raise _explain_offline_miss(data, settings)
    return _fetch_configuration(path, commit, config), data


def _is_offline(settings: DataSettings) -> bool:
    from huggingface_hub import constants

    return settings.offline or bool(constants.HF_HUB_OFFLINE)


_FETCH = (
    "On a connected machine: hf download --repo-type dataset {path} --local-dir DIR/{path}; "
    "then name that folder here with --data DIR."
)


def _resolve_commit(path: str, revision: str, settings: DataSettings) -> str:
    """The commit that a revision stands for: the hub's answer, or offline that of its cache."""
    from huggingface_hub import HfApi

    if _COMMIT.fullmatch(revision):
        return revision
    if _is_offline(settings):
        held = find_snapshot(path, revision or "main")
        if held is None:
            raise _explain_offline_miss(Data(path=path, revision=revision), settings)
        # The folder of a snapshot is named by its commit.
        return held.name
    with explain_hub_error(Need(path=path, revision=revision or "main"), None):
        return str(HfApi().dataset_info(path, revision=revision or None).sha)


def _explain_offline_miss(data: Data, settings: DataSettings) -> DataMissing:
    path, revision_note = data.path, f" at revision {data.revision}" if data.revision else ""
    places = f"{settings.root} or the hub's cache" if settings.root else "the hub's cache"
    sets = [need.path for need in list_data_sets(settings.root)] if settings.root else []
    return DataMissing(
        f"Offline, and the data set {path}{revision_note} is not in {places}, or only in part.",
        hint=ask_for_names(path, sets) + _FETCH.format(path=path),
    )


def _fetch_configuration(path: str, commit: str, config: str) -> Path:
    """The folder in the hub's cache after the files of a configuration have been fetched."""
    from huggingface_hub import snapshot_download

    fetch = partial(snapshot_download, path, repo_type="dataset", revision=commit)
    with explain_hub_error(Need(path=path, revision=commit), None):
        # The README first, which says what files the configuration has.
        about = Path(fetch(allow_patterns=["*.md"]))
        return Path(fetch(allow_patterns=[*SplitFiles.read_split_patterns(about, config, "train"), "*.md"]))
