"""One task of a user's folder: its identity from the files' bytes, and how each type is loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from harness.errors import DataError
from harness.identity import digest
from suites._data import Clusters, Content, Document, Labelled, Pair, Pairs, Query, Retrieval, Row
from suites._places import reading
from suites._tables import Record, grade, qrels, records

_IDS = "Another column can be the id: id = \"...\" under 'columns' in harness.toml."


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A type of task: its main metric, the files it is made of, and the columns they have."""

    metric: str
    files: Mapping[str, str]
    columns: tuple[str, ...]
    load: Callable[[LocalTask], Content]


@dataclass(frozen=True, kw_only=True)
class LocalTask:
    """One task in a user's folder.

    `files` are in the order of the type's files in docs/local-data.md; `columns` are pairs of a
    column's name here and the name it has in the files, where the two differ. For the last field
    see suites._data.Retrieval.
    """

    name: str
    type: str
    split: str = "test"
    files: tuple[Path, ...]
    columns: tuple[tuple[str, str], ...] = ()
    ignore_identical_ids: bool = False

    @property
    def metric(self) -> str:
        """The main metric of the task's type, as mteb calls it."""
        return KINDS[self.type].metric

    @property
    def content(self) -> str:
        """The hash of the files' bytes and of how they are read, wherever they lie.

        It is computed at every access, so a changed file shows.
        """
        files = [[path.suffix, _file_hash(path)] for path in self.files]
        read = {"reader": 1, "type": self.type, "columns": dict(self.columns), "files": files}
        return digest({**read, "ignore_identical_ids": True} if self.ignore_identical_ids else read)

    def column(self, name: str) -> str:
        """What the column `name` is called in the files."""
        return dict(self.columns).get(name, name)

    def load(self) -> Content:
        """Read and check the files.

        Raises:
            DataError: With the file and the line of what cannot be used.
        """
        with reading(self.files[0].parent):
            return KINDS[self.type].load(self)


def _file_hash(path: Path) -> str:
    with reading(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _load_retrieval(task: LocalTask) -> Retrieval:
    corpus, queries, relevance = task.files
    documents = tuple(_document(task, r, id_) for id_, r in _identified(task, corpus))
    asked = tuple(Query(id=id_, text=r.text(task.column("text"))) for id_, r in _identified(task, queries))
    known = {"query-id": {q.id for q in asked}, "corpus-id": {d.id for d in documents}}
    found: dict[str, dict[str, int]] = {}
    for record in qrels(relevance):
        score = grade(record)
        for column, ids in known.items():
            if record.token(column) not in ids:
                file = queries if column == "query-id" else corpus
                raise record.error(f"the {column} {record.token(column)!r} is not in {file.name}.")
        grades = found.setdefault(record.token("query-id"), {})
        if grades.setdefault(record.token("corpus-id"), score) != score:
            raise record.error("this query and document were given another score before.")
    with _named(relevance):
        rule = task.ignore_identical_ids
        return _noted(
            Retrieval(documents=documents, queries=asked, qrels=found, ignore_identical_ids=rule).judged()
        )


def _noted(data: Retrieval) -> Retrieval:
    """The data with what a user should know of it."""
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


def _document(task: LocalTask, record: Record, id_: str) -> Document:
    column = task.column("title")
    optional = column == "title" and record.fields.get(column) is None
    title = "" if optional else record.text(column, may_be_blank=True)
    text = record.text(task.column("text"), may_be_blank=bool(title.strip()))
    return Document(id=id_, title=title, text=text)


def _load_sts(task: LocalTask) -> Pairs:
    one, two, score = (task.column(c) for c in ("text1", "text2", "score"))
    rows = tuple(
        Pair(id=id_, text1=r.text(one), text2=r.text(two), score=r.number(score))
        for id_, r in _identified(task, task.files[0])
    )
    with _named(*task.files):
        return Pairs(rows=rows)


def _load_classification(task: LocalTask) -> Labelled:
    train, test = (_rows(task, path) for path in task.files)
    with _named(*task.files):
        return Labelled(train=train, test=test)


def _load_clustering(task: LocalTask) -> Clusters:
    rows = _rows(task, task.files[0])
    with _named(*task.files):
        return Clusters(rows=rows)


def _rows(task: LocalTask, path: Path) -> tuple[Row, ...]:
    text, label = task.column("text"), task.column("label")
    return tuple(Row(id=id_, text=r.text(text), label=r.token(label)) for id_, r in _identified(task, path))


def _identified(task: LocalTask, path: Path) -> list[tuple[str, Record]]:
    """Each row with its id: the mapped column, else `_id` or `id`, else (no retrieval) its number."""
    mapped = dict(task.columns).get("id")
    found: dict[str, Record] = {}
    for number, record in enumerate(records(path), start=1):
        column = mapped or next((name for name in ("_id", "id") if name in record.fields), None)
        if column is None and task.type == "retrieval":
            column = "_id"
        id_ = record.token(column) if column else str(number)
        if id_ in found:
            raise record.error(f"the id {id_!r} is already that of line {found[id_].line}.", hint=_IDS)
        found[id_] = record
    return list(found.items())


@contextmanager
def _named(*paths: Path) -> Iterator[None]:
    """Put the files before what is wrong with the data as a whole."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{', '.join(map(str, paths))}: {error.message}", hint=error.hint) from None


KINDS: Mapping[str, Kind] = {
    "retrieval": Kind(
        metric="ndcg_at_10",
        files={"corpus": "corpus.jsonl", "queries": "queries.jsonl", "qrels": "qrels/{}.tsv"},
        columns=("id", "title", "text"),
        load=_load_retrieval,
    ),
    "sts": Kind(
        metric="cosine_spearman",
        files={"file": "pairs.jsonl"},
        columns=("id", "text1", "text2", "score"),
        load=_load_sts,
    ),
    "classification": Kind(
        metric="accuracy",
        files={"train": "train.jsonl", "test": "test.jsonl"},
        columns=("id", "text", "label"),
        load=_load_classification,
    ),
    "clustering": Kind(
        metric="v_measure",
        files={"file": "texts.jsonl"},
        columns=("id", "text", "label"),
        load=_load_clustering,
    ),
}
"""The types of task there are, by the name that harness.toml uses."""
