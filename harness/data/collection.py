"""A collection to search: the queries of training pairs, their positives, and a corpus of documents.

Two queries with the same text are one, with the positives of both, and so are two documents: else a document
would be a wrong answer beside its own copy. The first id counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.errors import DataError, UsageError
from harness.core.keys import serialize_canonical
from harness.data.locate import DataSettings
from harness.data.tables import (
    BATCH,
    FileRow,
    explain_file_error,
    iter_file_rows,
    read_qrels,
    resolve_user_path,
)
from harness.data.training.loading import load_training
from harness.data.training.own_rows import CORPUS, QUERIES, find_judgement_file, join_document_text
from harness.data.training.sets import LocatedTraining, find_judged_folder, locate_user_training


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
    def read_pairs(train_data: str, corpus: str, settings: DataSettings) -> Collection:
        """The collection of training pairs.

        Args:
            train_data: The pairs, as `locate_user_training` takes them. A folder in BEIR's layout has its own
                corpus.
            corpus: A folder in BEIR's layout or a file like its corpus.jsonl, whose documents can be chosen
                beside the positives; empty for the positives and negatives of the pairs alone.
            settings: The places to look.

        Raises:
            UsageError: There is no such data, or it has no positives.
            DataError: A row cannot be read; the message names file and row.
        """
        located = locate_user_training(train_data, settings)
        if located.data.score:
            raise UsageError(
                f"{located.name} has pairs with scores: which of its texts answer a query is not known.",
                hint="Give pairs of a query and its answer, perhaps with negatives (docs/training-data.md).",
            )
        judged = find_judged_folder(train_data)
        if judged is not None and corpus:
            raise UsageError(f"{located.name} has a corpus of its own.", hint="Leave out --corpus.")
        builder = _Builder()
        if judged is not None:
            builder.add_judged(*judged)
        else:
            if corpus:
                # The corpus first: of equal texts the first id counts, and that should be the corpus's.
                builder.add_corpus(_find_corpus_file(corpus))
            builder.add_rows(located, settings.cache)
        return builder.build_collection(located)


def _find_corpus_file(text: str) -> Path:
    path = resolve_user_path(text)
    with explain_file_error(path):
        file = path / CORPUS if path.is_dir() else path
        if not file.is_file():
            raise UsageError(
                f"No corpus {text!r} was found.",
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

    def build_collection(self, located: LocatedTraining) -> Collection:
        positives = {query: tuple(documents) for query, documents in self._positives.items()}
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
            content=_hash_collection(self._queries, self._documents, positives),
            notes=notes,
        )

    def add_corpus(self, file: Path) -> Mapping[str, str]:
        """Add the documents of a file; gives for each of its ids the id under which its text is stored."""
        stored_ids: dict[str, str] = {}
        with explain_file_error(file):
            for row in iter_file_rows(file):
                name = row.get_token_field("_id")
                if name in stored_ids:
                    raise row.build_row_error(f"the id {name!r} occurs twice.")
                text = _extract_document_text(row)
                stored_ids[name] = self._add_document(name, text) if text else ""
                self._blank += not text
        if not self._documents:
            raise DataError(f"{file}: there are no documents.")
        # A copy is stored under the id of the first document with its text; a blank one under no id.
        self._copies = sum(bool(stored) and stored != name for name, stored in stored_ids.items())
        return stored_ids

    def add_judged(self, folder: Path, split: str) -> None:
        """Add the corpus of a folder in BEIR's layout, and the queries with a document judged above 0."""
        stored_ids = self.add_corpus(folder / CORPUS)
        judged = [
            row for row in read_qrels(find_judgement_file(folder, split)) if row.get_number_field("score") > 0
        ]
        query_ids = {row.get_token_field("query-id") for row in judged}
        with explain_file_error(folder):
            texts = {
                name: row.get_text_field("text")
                for row in iter_file_rows(folder / QUERIES)
                if (name := row.get_token_field("_id")) in query_ids
            }
        for row in judged:
            name = row.get_token_field("query-id")
            query = self._add_query(name, texts[name])
            self._positives[query][stored_ids[row.get_token_field("corpus-id")]] = None

    def add_rows(self, located: LocatedTraining, cache: Path) -> None:
        """Add rows of an anchor, a positive and perhaps negatives."""
        table = load_training(located, cache=cache)
        anchor, positive, *negatives = located.data.columns
        for batch in table.iter(BATCH):
            texts = (batch[name] for name in (anchor, positive, *negatives))
            for query_text, answer, *others in zip(*texts, strict=True):
                query = self._add_query(f"q{len(self._queries)}", query_text)
                self._positives[query][self._add_document(self._create_document_id(), answer)] = None
                for other in others:
                    self._add_document(self._create_document_id(), other)

    def _create_document_id(self) -> str:
        """An id that no document has."""
        number = len(self._documents)
        # Ids of a corpus may look the same, e.g. d17.
        while (name := f"d{number}") in self._documents:
            number += 1
        return name

    def _add_query(self, name: str, text: str) -> str:
        query_id = self._query_ids.setdefault(text, name)
        self._queries.setdefault(query_id, text)
        self._positives.setdefault(query_id, {})
        return query_id

    def _add_document(self, name: str, text: str) -> str:
        document_id = self._document_ids.setdefault(text, name)
        self._documents.setdefault(document_id, text)
        return document_id


def _extract_document_text(row: FileRow) -> str:
    """Title and text of a document; empty for one without any."""
    fields = [row.fields.get(name) for name in ("title", "text")]
    blank = all(value is None or (isinstance(value, str) and not value.strip()) for value in fields)
    return "" if blank and "text" in row.fields else join_document_text(row)


def _hash_collection(
    queries: Mapping[str, str], documents: Mapping[str, str], positives: Mapping[str, Sequence[str]]
) -> str:
    hasher = hashlib.sha256()
    for part in (queries, documents, positives):
        for name, value in part.items():
            # In the order of reading, and with texts that plain UTF-8 refuses (half a surrogate pair).
            hasher.update(serialize_canonical([name, value]).encode("utf-8", "surrogatepass") + b"\n")
        hasher.update(b"\n")
    return f"sha256:{hasher.hexdigest()}"
