"""Data of a task that is built or read here: plain containers, checked when they are made.

Every container raises DataError at construction if its data could not be scored, so its ids are unique, its
references resolve, and no text but a document's is blank.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from harness.core.errors import DataError
from harness.core.types import DOCUMENT_TEXT, DataReport, DocumentText, Size
from harness.data.counting import describe_overlap, format_count_notes


@dataclass(frozen=True, kw_only=True)
class Document:
    """A text that can be found; title and text may be empty, as in BEIR."""

    id: str
    title: str = ""
    text: str


@dataclass(frozen=True, kw_only=True)
class Query:
    """A text to search with."""

    id: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two texts and their similarity; a higher score means more alike."""

    id: str
    text1: str
    text2: str
    score: float


@dataclass(frozen=True, kw_only=True)
class Row:
    """A text with its label."""

    id: str
    text: str
    label: str


@dataclass(frozen=True, kw_only=True)
class Retrieval:
    """Documents, queries, and the relevance of documents to queries.

    `qrels` maps query id → document id → grade; a document is relevant if its grade is above 0. With
    `ignore_identical_ids` a query does not find the document that has its id, as in mteb. `notes` say in
    sentences what was left out when the data was read; they are not in the data's hash.
    """

    documents: tuple[Document, ...]
    queries: tuple[Query, ...]
    qrels: dict[str, dict[str, int]]
    ignore_identical_ids: bool = False
    notes: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        _require_text(self.documents, "The corpus has no documents.")
        _require_text(self.queries, "The data has no queries.")
        documents = _require_unique_ids(self.documents, "document")
        queries = _require_unique_ids(self.queries, "query")
        for document in self.documents:
            _require_valid_text(document.title, f"title of document {document.id!r}", may_be_blank=True)
            _require_valid_text(document.text, f"text of document {document.id!r}", may_be_blank=True)
        for query in self.queries:
            _require_valid_text(query.text, f"text of query {query.id!r}")
        _require_known(self.qrels, queries, "query")
        _require_known((d for grades in self.qrels.values() for d in grades), documents, "document")
        _require_valid_grades(self.qrels)

    @property
    def unanswered(self) -> tuple[str, ...]:
        """The ids of queries without a relevant document; every model scores 0 on them."""
        return tuple(q.id for q in self.queries if not any(g > 0 for g in self.qrels.get(q.id, {}).values()))

    @property
    def identical(self) -> tuple[str, ...]:
        """The ids of queries that are also ids of documents."""
        documents = {document.id for document in self.documents}
        return tuple(query.id for query in self.queries if query.id in documents)

    def drop_unjudged_queries(self) -> Retrieval:
        """The same data without the queries that `qrels` say nothing about, as BEIR scores it."""
        kept = tuple(q for q in self.queries if q.id in self.qrels)
        if len(kept) == len(self.queries):
            return self
        note = f"{len(self.queries) - len(kept)} of {len(self.queries)} queries have no judgement: left out."
        return replace(self, queries=kept, notes=(*self.notes, note))


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Pairs of texts with a similarity each (STS)."""

    rows: tuple[Pair, ...]

    def __post_init__(self) -> None:
        _require_text(self.rows, "The data has no pairs.")
        _require_unique_ids(self.rows, "pair")
        for row in self.rows:
            _require_valid_text(row.text1, f"text1 of pair {row.id!r}")
            _require_valid_text(row.text2, f"text2 of pair {row.id!r}")
            if not _is_number(row.score):
                raise DataError(f"The score of pair {row.id!r} is {row.score!r}, not a finite number.")
        if len({row.score for row in self.rows}) == 1:
            raise DataError(f"Every score is {self.rows[0].score}: nothing can correlate with that.")
        if all(row.text1 == row.text2 for row in self.rows):
            raise DataError("Both texts of every pair are the same: so are all similarities.")


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """Texts with labels for training, and others for testing (classification)."""

    train: tuple[Row, ...]
    test: tuple[Row, ...]

    def __post_init__(self) -> None:
        _require_valid_rows(self.train, "training row")
        _require_valid_rows(self.test, "test row")
        train_labels = {row.label for row in self.train}
        for row in self.test:
            if row.label not in train_labels:
                raise DataError(f"The label {row.label!r} of test row {row.id!r} is in no training row.")
        _require_labels(self.train)


@dataclass(frozen=True, kw_only=True)
class Clusters:
    """Texts with the group of each (clustering)."""

    rows: tuple[Row, ...]

    def __post_init__(self) -> None:
        _require_valid_rows(self.rows, "row")
        if _require_labels(self.rows) == len(self.rows):
            raise DataError("Every row has a label of its own, so that nothing can be grouped.")


Content = Retrieval | Pairs | Labelled | Clusters


def hash_content(data: Content) -> str:
    """The SHA-256 of the data, 64 hex digits: one JSON line for each row, in the order given.

    The order of rows counts, because few-shot samples depend on it; that of the qrels does not.
    """
    digest = hashlib.sha256()
    for line in _iter_content_lines(data):
        digest.update(json.dumps(line, separators=(",", ":")).encode() + b"\n")
    return digest.hexdigest()


def measure_content(data: Content, documents: DocumentText = DOCUMENT_TEXT) -> Size:
    """The number of texts to encode, of their characters, and of scored examples."""
    lengths = [len(text) for text in _iter_content_texts(data, documents)]
    return Size(texts=len(lengths), characters=sum(lengths), examples=_count_examples(data))


def count_content(data: Content, split: str) -> DataReport:
    """What was counted in the data.

    Args:
        data: The data.
        split: The name of the split that is scored.
    """
    counts, notes = {"rows": _count_rows(data)}, list[str]()
    match data:
        case Retrieval():
            empty = sum(not f"{d.title}{d.text}".strip() for d in data.documents)
            counts |= {"blank_documents": empty, "unanswered_queries": len(data.unanswered)}
            notes += format_count_notes(counts, {"blank_documents": len(data.documents)})
            notes += data.notes
        case Labelled():
            train = {row.text for row in data.train}
            same = counts["test_in_train"] = sum(row.text in train for row in data.test)
            notes += [describe_overlap(split, same, len(data.test))] if same else []
    return DataReport(counts={n: c for n, c in counts.items() if c or n == "rows"}, notes=tuple(notes))


def _count_rows(data: Content) -> int:
    match data:
        case Retrieval():
            return len(data.documents) + len(data.queries) + sum(map(len, data.qrels.values()))
        case Labelled():
            return len(data.train) + len(data.test)
        case Pairs() | Clusters():
            return len(data.rows)


def _count_examples(data: Content) -> int:
    match data:
        case Retrieval():
            return len(data.queries)
        case Labelled():
            return len(data.test)
        case Pairs() | Clusters():
            return len(data.rows)


def _iter_content_lines(data: Content) -> Iterator[Sequence[object]]:
    match data:
        case Retrieval():
            yield from (["document", d.id, d.title, d.text] for d in data.documents)
            yield from (["query", q.id, q.text] for q in data.queries)
            # The order of rows counts, as samples are drawn by it; that of judgements changes no score.
            for query, grades in sorted(data.qrels.items()):
                yield from (["qrel", query, *grade] for grade in sorted(grades.items()))
            if data.ignore_identical_ids:
                yield ["ignore_identical_ids"]
        case Pairs():
            yield from (["pair", p.id, p.text1, p.text2, float(p.score)] for p in data.rows)
        case Labelled():
            yield from (["train", r.id, r.text, r.label] for r in data.train)
            yield from (["test", r.id, r.text, r.label] for r in data.test)
        case Clusters():
            yield from (["row", r.id, r.text, r.label] for r in data.rows)


def _iter_content_texts(data: Content, documents: DocumentText) -> Iterator[str]:
    match data:
        case Retrieval():
            has_title = documents == "title and text"
            yield from (f"{d.title if has_title else ''} {d.text}".strip() for d in data.documents)
            yield from (q.text for q in data.queries)
        case Pairs():
            yield from (text for p in data.rows for text in (p.text1, p.text2))
        case Labelled():
            yield from (r.text for r in (*data.train, *data.test))
        case Clusters():
            yield from (r.text for r in data.rows)


def _require_text(rows: Sequence[object], message: str) -> None:
    if not rows:
        raise DataError(message)


def _require_unique_ids(rows: Sequence[Document | Query | Pair | Row], what: str) -> frozenset[str]:
    for row in rows:
        if not isinstance(row.id, str) or not row.id.strip():
            raise DataError(f"The id of a {what} must be a string that is not blank, not {row.id!r}.")
    counts = Counter(row.id for row in rows)
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        more = f" (and {len(twice) - 1} more such ids)" if len(twice) > 1 else ""
        raise DataError(f"The {what} id {twice[0]!r} occurs {counts[twice[0]]} times{more}.")
    return frozenset(counts)


def _require_valid_text(value: object, what: str, may_be_blank: bool = False) -> None:
    if not isinstance(value, str):
        raise DataError(f"The {what} is {value!r}, not a string.")
    if not may_be_blank and not value.strip():
        raise DataError(f"The {what} is blank.")
    try:
        # JSON can hold half a surrogate pair, and no tokenizer takes it.
        value.encode()
    except UnicodeEncodeError:
        raise DataError(f"The {what} is not valid Unicode: it holds half a surrogate pair.") from None


def _require_known(names: Iterable[str], valid_names: frozenset[str], what: str) -> None:
    missing = sorted(set(names) - valid_names)
    if missing:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise DataError(f"The qrels name the {what} {missing[0]!r}{more}, which does not exist.")


def _require_valid_grades(qrels: Mapping[str, Mapping[str, int]]) -> None:
    for query, grades in qrels.items():
        for document, grade in grades.items():
            # By type, since True is an int in Python.
            if type(grade) is not int:
                message = f"The grade of document {document!r} for query {query!r} is {grade!r}"
                raise DataError(f"{message}, not a whole number.")
    if not any(grade > 0 for grades in qrels.values() for grade in grades.values()):
        raise DataError("No query has a relevant document: the qrels hold no grade above 0.")


def _require_valid_rows(rows: Sequence[Row], what: str) -> None:
    _require_text(rows, f"The data has no {what}.")
    _require_unique_ids(rows, what)
    for row in rows:
        _require_valid_text(row.text, f"text of {what} {row.id!r}")
        _require_valid_text(row.label, f"label of {what} {row.id!r}")


def _require_labels(rows: Sequence[Row]) -> int:
    labels = {row.label for row in rows}
    if len(labels) < 2:
        raise DataError(f"There is only the label {rows[0].label!r}: at least two are needed.")
    return len(labels)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
