"""A collection to search: the queries of training pairs, their positives, and a corpus of documents.

Two queries with the same text are one, with the positives of both, and so are two documents: else a document
would be a wrong answer beside its own copy. The first id counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.errors import DataError, UsageError
from harness.core.identity import canonical
from harness.data.locate import DataSettings
from harness.data.tables import BATCH, FileRow, absolute_path, read_qrels, readable, stream_rows
from harness.data.training.loading import load_training
from harness.data.training.own_rows import CORPUS, QUERIES, document_text, judgement_file
from harness.data.training.sets import LocatedTraining, judged_folder, own_training


@dataclass(frozen=True, kw_only=True)
class Collection:
    """Queries, documents, and for each query the documents that answer it.

    Attributes:
        name: The name of the pairs in tables and messages.
        queries: Texts by id.
        documents: Texts by id, each text once.
        positives: For each query the ids of its documents, in the order of the pairs.
        pairs: What a trained model's key would hold of the pairs.
        content: The hash of everything above but the name.
        notes: Sentences on what the data lacks.
    """

    name: str
    queries: Mapping[str, str]
    documents: Mapping[str, str]
    positives: Mapping[str, tuple[str, ...]]
    pairs: Mapping[str, Any]
    content: str
    notes: tuple[str, ...] = ()

    @staticmethod
    def read(train_data: str, corpus: str, settings: DataSettings) -> Collection:
        """The collection of training pairs.

        Args:
            train_data: The pairs, as `own_training` takes them. A folder in BEIR's layout has its own corpus.
            corpus: A folder in BEIR's layout or a file like its corpus.jsonl, whose documents can be chosen
                beside the positives; empty for the positives and negatives of the pairs alone.
            settings: The places to look.

        Raises:
            UsageError: There is no such data, or it has no positives.
            DataError: A row cannot be read; the message names file and row.
        """
        located = own_training(train_data, settings)
        if located.data.score:
            raise UsageError(
                f"{located.name} has pairs with scores: which of its texts answer a query is not known.",
                hint="Give pairs of a query and its answer, perhaps with negatives (docs/training-data.md).",
            )
        judged = judged_folder(train_data)
        if judged is not None and corpus:
            raise UsageError(f"{located.name} has a corpus of its own.", hint="Leave out --corpus.")
        made = _Builder()
        if judged is not None:
            made.add_judged(*judged)
        else:
            if corpus:
                made.add_corpus(_corpus_file(corpus))
            made.add_rows(located, settings.cache)
        return made.collection(located)


def _corpus_file(text: str) -> Path:
    path = absolute_path(text)
    with readable(path):
        file = path / CORPUS if path.is_dir() else path
        if not file.is_file():
            raise UsageError(
                f"There is no corpus {text!r}.",
                hint=f"Name a folder with a {CORPUS}, or such a file: _id, title and text in each row.",
            )
    return file


class _Builder:
    """A collection that is being read."""

    def __init__(self) -> None:
        self._queries: dict[str, str] = {}
        self._documents: dict[str, str] = {}
        self._query_ids: dict[str, str] = {}
        self._document_ids: dict[str, str] = {}
        self._positives: dict[str, dict[str, None]] = {}
        self._copies = self._blank = 0

    def collection(self, located: LocatedTraining) -> Collection:
        positives = {query: tuple(found) for query, found in self._positives.items()}
        notes = (
            *([f"copies of other documents: {self._copies:,}, left out"] if self._copies else []),
            *([f"no text: {self._blank:,} documents, left out"] if self._blank else []),
        )
        return Collection(
            name=located.name,
            queries=self._queries,
            documents=self._documents,
            positives=positives,
            pairs=located.data.identity,
            content=_content(self._queries, self._documents, positives),
            notes=notes,
        )

    def add_corpus(self, file: Path) -> Mapping[str, str]:
        """Add the documents of a file; gives for each of its ids the id under which its text is there."""
        known: dict[str, str] = {}
        with readable(file):
            for row in stream_rows(file):
                name = row.token("_id")
                if name in known:
                    raise row.error(f"the id {name!r} is there twice.")
                text = _text(row)
                known[name] = self._add_document(name, text) if text else ""
                self._blank += not text
        if not self._documents:
            raise DataError(f"{file}: there are no documents.")
        self._copies = sum(bool(there) and there != name for name, there in known.items())
        return known

    def add_judged(self, folder: Path, split: str) -> None:
        """Add the corpus of a folder in BEIR's layout, and the queries with a document judged above 0."""
        known = self.add_corpus(folder / CORPUS)
        judged = [row for row in read_qrels(judgement_file(folder, split)) if row.number("score") > 0]
        wanted = {row.token("query-id") for row in judged}
        with readable(folder):
            texts = {name: row.text("text") for name, row in _queries(folder / QUERIES) if name in wanted}
        for row in judged:
            name = row.token("query-id")
            query = self._add_query(name, texts[name])
            self._positives[query][known[row.token("corpus-id")]] = None

    def add_rows(self, located: LocatedTraining, cache: Path) -> None:
        """Add rows of an anchor, a positive and perhaps negatives."""
        table = load_training(located, cache=cache)
        anchor, positive, *negatives = located.data.columns
        for batch in table.iter(BATCH):
            texts = (batch[name] for name in (anchor, positive, *negatives))
            for asked, answer, *others in zip(*texts, strict=True):
                query = self._add_query(f"q{len(self._queries)}", asked)
                self._positives[query][self._add_document(self._fresh(), answer)] = None
                for other in others:
                    self._add_document(self._fresh(), other)

    def _fresh(self) -> str:
        """An id that no document has; those of a corpus may look like any."""
        number = len(self._documents)
        while (name := f"d{number}") in self._documents:
            number += 1
        return name

    def _add_query(self, name: str, text: str) -> str:
        known = self._query_ids.setdefault(text, name)
        self._queries.setdefault(known, text)
        self._positives.setdefault(known, {})
        return known

    def _add_document(self, name: str, text: str) -> str:
        known = self._document_ids.setdefault(text, name)
        self._documents.setdefault(known, text)
        return known


def _queries(file: Path) -> Iterator[tuple[str, FileRow]]:
    for row in stream_rows(file):
        yield row.token("_id"), row


def _text(row: FileRow) -> str:
    """Title and text of a document; empty for one without any."""
    fields = [row.fields.get(name) for name in ("title", "text")]
    blank = all(value is None or (isinstance(value, str) and not value.strip()) for value in fields)
    return "" if blank and "text" in row.fields else document_text(row)


def _content(
    queries: Mapping[str, str], documents: Mapping[str, str], positives: Mapping[str, Sequence[str]]
) -> str:
    found = hashlib.sha256()
    for part in (queries, documents, positives):
        for name, value in part.items():
            found.update(canonical([name, value]).encode("utf-8", "surrogatepass") + b"\n")
        found.update(b"\n")
    return f"sha256:{found.hexdigest()}"
