"""The data of those tasks of a user's folder that are scored from vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from suites._data import Clusters, Content, Document, Labelled, Pair, Pairs, Query, Retrieval, Row
from suites._local_task import LocalTask, identified, named
from suites._places import reading
from suites._tables import Record, grade, qrels


def load(task: LocalTask) -> Content:
    """Read and check a task's files.

    Raises:
        DataError: With the file and the line of what cannot be used.
    """
    with reading(task.files[0].parent):
        return LOADERS[task.type](task)


def _load_retrieval(task: LocalTask) -> Retrieval:
    corpus, queries, relevance = task.files
    documents = tuple(_document(task, r, id_) for id_, r in identified(task, corpus))
    asked = tuple(Query(id=id_, text=r.text(task.column("text"))) for id_, r in identified(task, queries))
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
    with named(relevance):
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
        for id_, r in identified(task, task.files[0])
    )
    with named(*task.files):
        return Pairs(rows=rows)


def _load_classification(task: LocalTask) -> Labelled:
    train, test = (_rows(task, path) for path in task.files)
    with named(*task.files):
        return Labelled(train=train, test=test)


def _load_clustering(task: LocalTask) -> Clusters:
    rows = _rows(task, task.files[0])
    with named(*task.files):
        return Clusters(rows=rows)


def _rows(task: LocalTask, path: Path) -> tuple[Row, ...]:
    text, label = task.column("text"), task.column("label")
    return tuple(Row(id=id_, text=r.text(text), label=r.token(label)) for id_, r in identified(task, path))


LOADERS: Mapping[str, Callable[[LocalTask], Content]] = MappingProxyType(
    {
        "retrieval": _load_retrieval,
        "sts": _load_sts,
        "classification": _load_classification,
        "clustering": _load_clustering,
    }
)
"""By the type that harness.toml names."""
