"""The suite `local:<folder>`: a user's own data, scored from vectors or by a model that a recipe trains."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType

from harness.core import files
from harness.core.documents import read_content_file, write_content_file
from harness.core.errors import DataError, StoreError, UsageError, find_similar_names
from harness.core.files import require_plain_name
from harness.core.types import (
    DOCUMENT_TEXT,
    REGRESSION,
    SIDES,
    Column,
    Data,
    DataReport,
    LabelledData,
    LabelledSplit,
    Size,
    Suite,
    SuiteEntry,
    SuiteOptions,
    Task,
)
from harness.data import tables
from harness.data.counting import describe_overlap, parse_report
from harness.data.folder import find_file_gaps
from harness.data.tables import HEADER, FileRow, explain_file_error, read_qrels, read_rows, resolve_user_path
from suites import _local_description
from suites._content import (
    Clusters,
    Content,
    Document,
    Labelled,
    Pair,
    Pairs,
    Query,
    Retrieval,
    Row,
    count_content,
    measure_content,
)
from suites._local_description import KINDS, Learning, LocalTask
from suites._mteb.built import BuiltSource
from suites._mteb.snapshot import filter_suite_splits

_IDS = "Another column can be the id: id = \"...\" under 'columns' in harness.toml."


OPTIONAL = "text2"
"""The column of second texts, which tasks of single texts do not have."""

Texts = tuple[list[str], ...]
"""A list of texts for each column."""


@dataclass(frozen=True, kw_only=True)
class _LocalSource:
    """The source of a task that a recipe trains for (harness.core.types.LabelSource)."""

    task: LocalTask
    learning: Learning

    @property
    def scoring(self) -> str:
        """The scoring code's name and version."""
        return "local 1"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Every raw metric, that of early stopping first."""
        return self.learning.metrics

    @property
    def like(self) -> str:
        """The GLUE task whose settings hold."""
        return self.learning.like

    @property
    def from_mnli(self) -> bool:
        """Whether training starts from an MNLI model, by harness.toml."""
        return self.learning.from_mnli

    def measure(self, task: Task, *, cache: Path) -> Size:
        """The size of the texts that are trained on and scored (see harness.core.types.FileSource)."""
        return self._count(task, cache)[0]

    def count_data(self, task: Task, *, cache: Path) -> DataReport:
        """What was counted in the files (see harness.core.types.CountedSource)."""
        # Not cached: the names of files and a README beside them are no content.
        return replace(self._count(task, cache)[1], gaps=_find_gaps(self.task))

    def _count(self, task: Task, cache: Path) -> _Counted:
        return _load_counted(task.data.content, cache, lambda: self._read_counted(task))

    def _read_counted(self, task: Task) -> _Counted:
        data = self.load(task, data=None)
        rows = len(data.train) + sum(map(len, data.dev.values()))
        report = DataReport(counts={"rows": rows}, notes=data.notes)
        return _measure_labelled_data(data), report

    def load(self, task: Task, *, data: Path | None) -> LabelledData:
        """The rows of the task, from its own files."""
        tables.require_unchanged(task.name, self.task.content, task.data.content)
        return _load_labelled(self.task, self.learning)


def _load_labelled(task: LocalTask, learning: Learning) -> LabelledData:
    """The labelled rows of a task's files, checked."""
    with explain_file_error(task.files[0].parent):
        train, dev = (dict(_read_id_rows(task, path)) for path in task.files)
    first, second = [*train.values()], [*dev.values()]
    columns = _find_text_columns(task, [*first, *second])
    texts, scored = _extract_row_texts(columns, first), _extract_row_texts(columns, second)
    label = task.resolve_column("label")
    numeric = KINDS[task.type].numeric
    labels = (
        _parse_number_labels(label, first, second)
        if numeric
        else _parse_class_labels(label, learning, first, second)
    )
    return LabelledData(
        train=LabelledSplit(texts=texts, labels=labels.train, ids=[*train]),
        dev={task.split: LabelledSplit(texts=scored, labels=labels.dev, ids=[*dev])},
        classes=labels.classes,
        names=labels.names,
        notes=(
            *labels.notes,
            *_note_unread_columns(columns, label, first[0]),
            *_note_train_overlap(texts, scored),
        ),
    )


def _find_text_columns(task: LocalTask, rows: Sequence[FileRow]) -> list[str]:
    """The names of the text columns in the files; the second may be in neither file."""
    first, second = task.resolve_column("text1"), task.resolve_column(OPTIONAL)
    # A column that harness.toml names is required: a mistake in its name is an error.
    has_second = OPTIONAL in dict(task.columns) or any(second in record.fields for record in rows)
    return [first, second] if has_second else [first]


def _extract_row_texts(columns: Sequence[str], rows: Sequence[FileRow]) -> Texts:
    return tuple([record.get_text_field(name) for record in rows] for name in columns)


def _note_unread_columns(columns: Sequence[str], label: str, row: FileRow) -> tuple[str, ...]:
    """A note on another column that may hold a second text."""
    rest = [
        repr(name)
        for name, value in row.fields.items()
        if name not in (*columns, label) and isinstance(value, str)
    ]
    if len(columns) > 1 or not rest:
        return ()
    return (f"each row is one text, {columns[0]!r}; not read: {', '.join(rest)}",)


def _note_train_overlap(train: Texts, dev: Texts) -> tuple[str, ...]:
    """A note on dev rows with the texts of a training row."""
    train_rows = set(zip(*train, strict=True))
    rows = [*zip(*dev, strict=True)]
    same = sum(row in train_rows for row in rows)
    return (describe_overlap("dev", same, len(rows)),) if same else ()


OF_TWO = ("f1", "mcc")
"""Metrics of two classes."""

LARGE = 10
"""Labels beyond this number get a note: recipes are made for STS-B's labels, 0 to 5."""

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


@dataclass(frozen=True, kw_only=True)
class _Labels:
    """The labels of both files as numbers, and notes; `classes` is REGRESSION where labels are numbers."""

    train: tuple[float, ...]
    dev: tuple[float, ...]
    classes: int
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def _parse_number_labels(column: str, train: Sequence[FileRow], dev: Sequence[FileRow]) -> _Labels:
    """The labels of a regression task."""
    first, second = (tuple(record.get_number_field(column) for record in rows) for rows in (train, dev))
    for rows, values in ((train, first), (dev, second)):
        if len(set(values)) == 1:
            raise _build_rows_error(
                rows, f"every {column!r} is {values[0]:g}: nothing can correlate with that."
            )
    return _Labels(train=first, dev=second, classes=REGRESSION, notes=_note_large_labels(first))


def _note_large_labels(values: Sequence[float]) -> tuple[str, ...]:
    low, high = min(values), max(values)
    if max(abs(low), abs(high)) <= LARGE:
        return ()
    return (
        f"labels go from {low:g} to {high:g}, and recipes are made for 0 to 5: models learn such numbers "
        "badly; scaled ones change no correlation",
    )


def _parse_class_labels(
    column: str, learning: Learning, train: Sequence[FileRow], dev: Sequence[FileRow]
) -> _Labels:
    """Labels that are names, numbered from 0 in the order of `_sort_class_names`, the positive one last."""
    first = [record.get_token_field(column) for record in train]
    names = _sort_class_names(set(first))
    _require_classes(names, learning, train)
    if learning.positive:
        # F1 counts class 1, the last of two; the sort is stable.
        names.sort(key=lambda name: name == learning.positive)
    number = {name: at for at, name in enumerate(names)}
    for record in dev:
        if (name := record.get_token_field(column)) not in number:
            hint = _build_name_hint(name, names)
            raise record.build_row_error(
                f"the label {name!r} is in no row of {train[0].path.name}.", hint=hint
            )
    second = [record.get_token_field(column) for record in dev]
    _require_both(set(second), learning, dev)
    note = f'f1 counts the label {names[-1]!r}; positive = "..." in harness.toml names another'
    return _Labels(
        train=tuple(number[name] for name in first),
        dev=tuple(number[name] for name in second),
        classes=len(names),
        names=tuple(names),
        notes=(note,) if "f1" in learning.metrics and not learning.positive else (),
    )


def _sort_class_names(names: Iterable[str]) -> list[str]:
    """Names of classes in the order of their numbers: as whole numbers if all are, else as text.

    >>> _sort_class_names({"10", "9", "-1"}), _sort_class_names({"10", "9", "b"})
    (['-1', '9', '10'], ['10', '9', 'b'])
    """
    sorted_names = sorted(names)
    return (
        sorted(sorted_names, key=int)
        if all(_WHOLE.fullmatch(name) for name in sorted_names)
        else sorted_names
    )


def _require_classes(names: list[str], learning: Learning, train: Sequence[FileRow]) -> None:
    if len(names) < 2:
        raise _build_rows_error(train, f"there is only the label {names[0]!r}: at least two are needed.")
    limited = _list_binary_metrics(learning)
    if limited and len(names) > 2:
        verb = "are" if len(limited) > 1 else "is"
        raise _build_rows_error(
            train,
            f"{' and '.join(limited)} {verb} for two classes, and there are {len(names)}: "
            f"{_format_label_names(names)}.",
            hint='Ask for metrics = ["accuracy"] in harness.toml.',
        )
    if learning.positive and learning.positive not in names:
        raise _build_rows_error(
            train,
            f"no row has the label {learning.positive!r}, which 'positive' in harness.toml names.",
            hint=_build_name_hint(learning.positive, names),
        )


def _require_both(labels: set[str], learning: Learning, dev: Sequence[FileRow]) -> None:
    limited = _list_binary_metrics(learning)
    if limited and len(labels) == 1:
        reason = f"{' and '.join(limited)} {'say' if len(limited) > 1 else 'says'} nothing of one class."
        raise _build_rows_error(dev, f"there is only the label {labels.pop()!r}, and {reason}")


def _list_binary_metrics(learning: Learning) -> list[str]:
    return [metric for metric in learning.metrics if metric in OF_TWO]


def _build_name_hint(name: str, names: Sequence[str]) -> str:
    close = find_similar_names(name, names)
    return f"Did you mean {close[0]!r}?" if close else f"The labels are: {_format_label_names(names)}."


def _format_label_names(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:8])) + (", …" if len(names) > 8 else "")


def _build_rows_error(rows: Sequence[FileRow], message: str, *, hint: str | None = None) -> DataError:
    return DataError(f"{rows[0].path}: {message}", hint=hint)


def _load_vectors(task: LocalTask) -> Content:
    """The data of a task that is scored from vectors, checked."""
    with explain_file_error(task.files[0].parent):
        return LOADERS[task.type](task)


def _load_retrieval(task: LocalTask) -> Retrieval:
    corpus, queries, relevance = task.files
    documents = tuple(_build_local_document(task, r, id_) for id_, r in _read_id_rows(task, corpus))
    query_items = tuple(
        Query(id=id_, text=r.get_text_field(task.resolve_column("text")))
        for id_, r in _read_id_rows(task, queries)
    )
    valid_ids = {"query-id": {q.id for q in query_items}, "corpus-id": {d.id for d in documents}}
    qrels: dict[str, dict[str, int]] = {}
    for record in read_qrels(relevance):
        score = _parse_grade(record)
        for column, ids in valid_ids.items():
            if record.get_token_field(column) not in ids:
                file = queries if column == "query-id" else corpus
                raise record.build_row_error(
                    f"the {column} {record.get_token_field(column)!r} is not in {file.name}."
                )
        # The same judgement may stand twice, but not with two grades.
        grades = qrels.setdefault(record.get_token_field("query-id"), {})
        if grades.setdefault(record.get_token_field("corpus-id"), score) != score:
            raise record.build_row_error("this query and document were given another score before.")
    with _wrap_file_errors(relevance):
        rule = task.ignore_identical_ids
        return _add_retrieval_notes(
            Retrieval(
                documents=documents, queries=query_items, qrels=qrels, ignore_identical_ids=rule
            ).drop_unjudged_queries()
        )


def _add_retrieval_notes(data: Retrieval) -> Retrieval:
    """The data with notes for the user."""
    notes, count = list(data.notes), len(data.queries)
    if data.unanswered:
        many = len(data.unanswered)
        notes.append(f"{many} of {count} queries have no relevant document: every model scores 0 on them.")
    if data.identical and not data.ignore_identical_ids:
        notes.append(
            f"{len(data.identical)} of {count} queries have the id of a document, which they may find; "
            "ignore_identical_ids = true in harness.toml leaves it out."
        )
    return replace(data, notes=tuple(notes))


def _build_local_document(task: LocalTask, record: FileRow, id_: str) -> Document:
    column = task.resolve_column("title")
    optional = column == "title" and record.fields.get(column) is None
    title = "" if optional else record.get_text_field(column, may_be_blank=True)
    text = record.get_text_field(task.resolve_column("text"), may_be_blank=True)
    return Document(id=id_, title=title, text=text)


def _load_sts(task: LocalTask) -> Pairs:
    first_text, second_text, score = (task.resolve_column(c) for c in ("text1", "text2", "score"))
    rows = tuple(
        Pair(
            id=id_,
            text1=r.get_text_field(first_text),
            text2=r.get_text_field(second_text),
            score=r.get_number_field(score),
        )
        for id_, r in _read_id_rows(task, task.files[0])
    )
    with _wrap_file_errors(*task.files):
        return Pairs(rows=rows)


def _load_classification(task: LocalTask) -> Labelled:
    train, test = (_load_label_rows(task, path) for path in task.files)
    with _wrap_file_errors(*task.files):
        return Labelled(train=train, test=test)


def _load_clustering(task: LocalTask) -> Clusters:
    rows = _load_label_rows(task, task.files[0])
    with _wrap_file_errors(*task.files):
        return Clusters(rows=rows)


def _load_label_rows(task: LocalTask, path: Path) -> tuple[Row, ...]:
    text, label = task.resolve_column("text"), task.resolve_column("label")
    return tuple(
        Row(id=id_, text=r.get_text_field(text), label=r.get_token_field(label))
        for id_, r in _read_id_rows(task, path)
    )


LOADERS: Mapping[str, Callable[[LocalTask], Content]] = MappingProxyType(
    {
        "retrieval": _load_retrieval,
        "sts": _load_sts,
        "classification": _load_classification,
        "clustering": _load_clustering,
    }
)
"""The loaders by the task types of harness.toml."""


_Counted = tuple[Size, DataReport]
"""The size of data, and what was counted in it."""


def _load_counted(content: str, cache: Path, count: Callable[[], _Counted]) -> _Counted:
    """The size and the counts of data with this hash, which is read once."""
    file = cache / "source" / f"size-4-{content}.json"
    with contextlib.suppress(OSError, ValueError, TypeError, LookupError):
        kept = read_content_file(file)
        return Size(**kept["size"]), parse_report(kept["report"])
    size, report = count()
    with contextlib.suppress(StoreError):  # the cache only saves time
        content_counts = {"size": asdict(size), "report": asdict(report)}
        write_content_file(file, content_counts)
    return size, report


def _find_gaps(task: LocalTask) -> tuple[str, ...]:
    return tuple(gap for file in task.files for gap in find_file_gaps(file))


def _measure_labelled_data(data: LabelledData) -> Size:
    splits = [data.train, *data.dev.values()]
    lengths = [len(text) for split in splits for column in split.texts for text in column]
    rows = sum(len(split.labels) for split in data.dev.values())
    return Size(texts=len(lengths), characters=sum(lengths), examples=rows)


@dataclass(frozen=True, kw_only=True)
class _FolderLoader:
    """The loader of a local task that is scored from vectors."""

    task: LocalTask
    planned: str

    def content(self) -> Content:
        """The task's data, read and checked."""
        tables.require_unchanged(self.task.name, self.task.content, self.planned)
        return _load_vectors(self.task)


@dataclass(frozen=True, kw_only=True)
class _FileSource(BuiltSource):
    """The source of a local task that is scored from vectors."""

    loader: _FolderLoader

    def measure(self, task: Task, *, cache: Path) -> Size:
        """The size of the texts to encode (see harness.core.types.FileSource)."""
        return self._count(task, cache)[0]

    def count_data(self, task: Task, *, cache: Path) -> DataReport:
        """What was counted in the files (see harness.core.types.CountedSource)."""
        return replace(self._count(task, cache)[1], gaps=_find_gaps(self.loader.task))

    def _count(self, task: Task, cache: Path) -> _Counted:
        # Titles change the size, but not the hash of the data.
        content = task.data.content + ("" if task.documents == DOCUMENT_TEXT else "-text")
        return _load_counted(content, cache, lambda: self._read_counted(task))

    def _read_counted(self, task: Task) -> _Counted:
        data = self.loader.content()
        return measure_content(data, task.documents), count_content(data, task.splits[0])


def _open_local_suite(argument: str, options: SuiteOptions) -> Suite:
    folder = resolve_user_path(argument)
    try:
        tasks = _local_description.LocalTask.read_all(folder)
        columns = tuple(
            _build_local_column(task, task.hash_task_files(options.cache), options.cache) for task in tasks
        )
    except DataError as error:
        if isinstance(error.__cause__, OSError):  # not the data's fault
            raise
        raise UsageError(error.message, hint=error.hint) from error
    require_plain_name(folder.name, "the name of a folder of tasks", hint="Rename the folder.")
    suite = Suite(name=f"local:{argument}", title=folder.name, columns=columns, averages="large")
    return filter_suite_splits(suite, options)


def _build_local_column(task: LocalTask, content: str, cache: Path | None) -> Column:
    type_ = KINDS[task.type].type
    source: _LocalSource | _FileSource = (
        _LocalSource(task=task, learning=task.learning)
        if task.learning
        else _FileSource(loader=_FolderLoader(task=task, planned=content))
    )
    planned_task = Task(
        name=task.name,
        type=type_,
        metric=task.metric,
        splits=(task.split,),
        data=Data(content=content),
        roles=SIDES if type_ == "Retrieval" else ("",),
        output="label" if task.learning else "vector",
        source=source,
    )
    with contextlib.suppress(DataError):  # the plan says what is wrong with the data
        planned_task = replace(
            planned_task, size=source.measure(planned_task, cache=cache or files.resolve_cache_folder(None))
        )
    return Column(name=task.name, type=type_, tasks=(planned_task,))


SUITE = SuiteEntry(
    name="local",
    summary="Your own data: a folder in BEIR layout, or described by a harness.toml (docs/local-data.md)",
    open=_open_local_suite,
    argument="folder",
    alone=False,
)


def _parse_grade(record: FileRow) -> int:
    """The relevance grade in a row of qrels."""
    value = record.get_field("score")
    if type(value) in (int, str) and re.fullmatch("[+-]?[0-9]{1,9}", str(value)):
        return int(str(value))
    shown = repr(value) if len(repr(value)) <= 40 else f"{repr(value)[:40]}…"
    raise record.build_row_error(f"the score is {shown}, not a whole number of up to 9 digits.", hint=HEADER)


def _read_id_rows(task: LocalTask, path: Path) -> list[tuple[str, FileRow]]:
    """The rows by id: the mapped column, else `_id` or `id`, else (not in retrieval) the row's number."""
    mapped = dict(task.columns).get("id")
    rows_by_id: dict[str, FileRow] = {}
    for number, record in enumerate(read_rows(path), start=1):
        column = mapped or next((name for name in ("_id", "id") if name in record.fields), None)
        # Judgements name ids, so that the number of a row would be a guess; the error is about `_id`.
        if column is None and task.type == "retrieval":
            column = "_id"
        id_ = record.get_token_field(column) if column else str(number)
        if id_ in rows_by_id:
            raise record.build_row_error(
                f"the id {id_!r} is already that of line {rows_by_id[id_].line}.", hint=_IDS
            )
        rows_by_id[id_] = record
    return list(rows_by_id.items())


@contextlib.contextmanager
def _wrap_file_errors(*paths: Path) -> Iterator[None]:
    """Put the names of files before an error on their data as a whole."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{', '.join(map(str, paths))}: {error.message}", hint=error.hint) from None
