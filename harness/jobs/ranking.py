"""BM25's order of documents for a query, and the job that scores a task by it.

Words, stop words, stemmers and scores are those of mteb's BM25, which runs on the same libraries (bm25s and
PyStemmer). Of equal scores the first in the corpus counts, where mteb's choice is the processor's.
"""

from __future__ import annotations

import time
import unicodedata
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from harness.core import provenance
from harness.core.encoding import Ranking
from harness.core.errors import DataError
from harness.core.types import Outcome
from harness.jobs.context import Event, JobContext
from harness.jobs.jobs import ScoreJob, check_texts
from harness.search.bm25 import STOP_WORDS

if TYPE_CHECKING:
    import numpy as np
    from bm25s import BM25
    from numpy.typing import NDArray

ENGLISH = "eng"

LANGUAGES: Mapping[str, tuple[str, str]] = {
    **{"eng": ("en", "english"), "deu": ("de", "german"), "nld": ("nl", "dutch"), "fra": ("fr", "french")},
    **{"spa": ("es", "spanish"), "por": ("pt", "portuguese"), "ita": ("it", "italian")},
    **{"rus": ("ru", "russian"), "swe": ("sv", "swedish")},
    **dict.fromkeys(("nob", "nno", "nor"), ("no", "norwegian")),
    **dict.fromkeys(("zho", "cmn"), ("zh", "")),
    **{"ara": ("", "arabic"), "arb": ("", "arabic"), "hye": ("", "armenian"), "eus": ("", "basque")},
    **{"cat": ("", "catalan"), "dan": ("", "danish"), "epo": ("", "esperanto"), "est": ("", "estonian")},
    **{"fin": ("", "finnish"), "ell": ("", "greek"), "hin": ("", "hindi"), "hun": ("", "hungarian")},
    **{"ind": ("", "indonesian"), "gle": ("", "irish"), "lit": ("", "lithuanian"), "nep": ("", "nepali")},
    **{"ron": ("", "romanian"), "srp": ("", "serbian"), "tam": ("", "tamil"), "tur": ("", "turkish")},
    **{"yid": ("", "yiddish")},
}
"""By language (ISO 639-3), its stop words and its stemmer; empty where there is none, as in mteb."""

CHARACTERS = frozenset({"zho", "cmn", "jpn", "kor", "tha", "khm", "mya", "bod", "lao"})
"""Languages without blanks between words, whose characters are the words, as in mteb."""

FREQUENT = 0.9
"""The share of documents from which a word counts as a stop word in a language without a list."""


class _Words:
    """The words of texts: split, without stop words, stemmed.

    Attributes:
        facts: The stop words and the stemmer, and whether characters are the words.
    """

    def __init__(self, ranking: Ranking, language: str) -> None:
        stop_words, stemmer = LANGUAGES.get(language, ("", ""))
        automatic = ranking.stop_words == ranking.stemmer == "auto"
        if ranking.stop_words != "auto":
            stop_words = ranking.stop_words
        if ranking.stemmer != "auto":
            stemmer = "" if ranking.stemmer == "none" else ranking.stemmer
        self._characters = automatic and language in CHARACTERS
        self.by_frequency = not stop_words
        self._left_out = _stop_words(stop_words)
        self._stemmer: Any = None
        if stemmer:
            import Stemmer

            self._stemmer = Stemmer.Stemmer(stemmer)
        self.facts = {
            "stop_words": stop_words or f"in {FREQUENT:.0%} of the documents",
            "stemmer": stemmer or "none",
            "words": "characters" if self._characters else "words",
        }

    def add_stop_words(self, words: frozenset[str]) -> None:
        """Count these as stop words from now on."""
        self._left_out |= words

    def tokenize_texts(self, texts: Sequence[str]) -> tuple[list[list[int]], list[str]]:
        """The words of each text as numbers, and the word of each number."""
        import bm25s

        if self._characters:
            return _assign_word_numbers([self._split(text) for text in texts])
        stop_words: Any = sorted(self._left_out) or None
        tokens = bm25s.tokenize(list(texts), stopwords=stop_words, stemmer=self._stemmer, show_progress=False)
        words = [""] * len(tokens.vocab)
        for word, number in tokens.vocab.items():
            words[number] = word
        return tokens.ids, words

    def _split(self, text: str) -> list[str]:
        characters = unicodedata.normalize("NFKC", text).lower().replace(" ", "")
        return [character for character in characters if character not in self._left_out]


def _stop_words(name: str) -> frozenset[str]:
    from bm25s import stopwords

    listed = STOP_WORDS.get(name)
    return frozenset(getattr(stopwords, f"STOPWORDS_{listed}")) if listed else frozenset()


def _assign_word_numbers(texts: Sequence[Sequence[str]]) -> tuple[list[list[int]], list[str]]:
    numbers: dict[str, int] = {}
    rows = [[numbers.setdefault(word, len(numbers)) for word in text] for text in texts]
    return rows, list(numbers)


_Progress = Callable[[str, int, int], None]
"""Called with the name of a step, its size where it begins, and the number of texts done."""

DOCUMENTS = 10_000
"""Documents whose words are split at once."""

QUERIES = 256
"""Queries between two reports of progress."""


class BM25Ranker:
    """A TextRanker (see harness.core.types) with BM25's order.

    Attributes:
        seconds: The time that indexing and searching took.
        languages: By language, the stop words and the stemmer that were used.
        texts: The number of queries and documents.
        queries: The number of queries.
        unmatched: The number of queries no word of which is in a document.
    """

    titles_on_lines = True

    def __init__(self, ranking: Ranking, progress: _Progress = lambda _step, _size, _done: None) -> None:
        self._ranking = ranking
        self._progress = progress
        self.seconds = {"index": 0.0, "search": 0.0}
        self.languages: dict[str, dict[str, str]] = {}
        self.texts = 0
        self.queries = 0
        self.unmatched = 0

    def rank(
        self,
        queries: Sequence[str],
        documents: Sequence[str],
        *,
        k: int,
        language: str = "",
        candidates: Sequence[Sequence[int]] | None = None,
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """The best documents of each query (see harness.core.types.TextRanker)."""
        check_texts(queries, "query")
        check_texts(documents, "document")
        started = time.monotonic()
        words = _Words(self._ranking, language or ENGLISH)
        self.languages[language or ENGLISH] = words.facts
        index = self._build_bm25_index(documents, words)
        indexed = time.monotonic()
        matches = list(self._search_queries(queries, index, words, min(k, len(documents)), candidates))
        self.seconds["index"] += indexed - started
        self.seconds["search"] += time.monotonic() - indexed
        self.texts += len(queries) + len(documents)
        self.queries += len(queries)
        return matches

    def _build_bm25_index(self, documents: Sequence[str], words: _Words) -> BM25:
        import bm25s
        from bm25s.tokenization import Tokenized

        ids, vocabulary = self._split(documents, words)
        if words.by_frequency:
            frequent = _find_frequent_words(ids)
            names = list(vocabulary)
            # Queries must lose the same words, whatever their numbers are there.
            words.add_stop_words(frozenset(names[number] for number in frequent))
            ids = [array("i", (n for n in row if n not in frequent)) for row in ids]
        if not any(ids):
            raise DataError(
                "BM25 finds no word in any document: all of them are stop words or punctuation.",
                hint="Check the documents of the data, or keep every word: bm25:stop_words=none.",
            )
        bm25_index = bm25s.BM25(
            k1=self._ranking.k1, b=self._ranking.b, delta=self._ranking.delta, method=self._ranking.method
        )
        self._progress("making the index", len(documents), 0)
        bm25_index.index(Tokenized(ids=ids, vocab=vocabulary), show_progress=False)
        return bm25_index

    def _split(self, documents: Sequence[str], words: _Words) -> tuple[list[array[int]], dict[str, int]]:
        """The words of the documents as numbers, in few bytes, and the number of each word."""
        self._progress("splitting documents", len(documents), 0)
        rows: list[array[int]] = []
        vocabulary: dict[str, int] = {}
        for start in range(0, len(documents), DOCUMENTS):
            part = documents[start : start + DOCUMENTS]
            ids, names = words.tokenize_texts(part)
            numbers = [vocabulary.setdefault(name, len(vocabulary)) for name in names]
            # 4 bytes a word; a list of Python numbers takes 8 for each reference alone.
            rows += [array("i", [numbers[number] for number in row]) for row in ids]
            self._progress("", 0, len(part))
        return rows, vocabulary

    def _search_queries(
        self,
        queries: Sequence[str],
        index: BM25,
        words: _Words,
        k: int,
        candidates: Sequence[Sequence[int]] | None,
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        import numpy as np

        self._progress("searching", len(queries), 0)
        for start in range(0, len(queries), QUERIES):
            part = queries[start : start + QUERIES]
            ids, names = words.tokenize_texts(part)
            for row, numbers in enumerate(ids, start):
                # Queries have numbers of their own, and words that no document has.
                word_ids = [index.vocab_dict[names[n]] for n in numbers if names[n] in index.vocab_dict]
                scores = index.get_scores_from_ids(word_ids)
                if candidates is None:
                    places = _select_best_places(scores, k)
                else:
                    candidate_places = np.asarray(candidates[row], dtype=np.int64)
                    places = candidate_places[np.argsort(-scores[candidate_places], kind="stable")]
                # The words decide first: with a delta, documents without any of them score above 0, too.
                self.unmatched += not (word_ids and scores[places].any())
                yield places, scores[places]
            self._progress("", 0, len(part))


def _find_frequent_words(rows: Sequence[Sequence[int]]) -> frozenset[int]:
    """The words in so many documents that they count as stop words."""
    counts = Counter(number for row in rows for number in set(row))
    return frozenset(number for number, count in counts.items() if count / len(rows) >= FREQUENT)


def _select_best_places(scores: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """The places of the `k` highest scores, highest first; of equal ones the first places."""
    import numpy as np

    # Only the best are sorted: a corpus has far more documents than k.
    least = np.partition(scores, -k)[-k]
    above, equal = np.flatnonzero(scores > least), np.flatnonzero(scores == least)
    above = above[np.argsort(-scores[above], kind="stable")]
    return np.concatenate([above, equal[: k - len(above)]])


@dataclass(frozen=True, kw_only=True)
class Rank(ScoreJob):
    """Score a task from BM25's order of its documents, on the CPU; the output is that of a Score."""

    ranking: Ranking

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        """Run the task with the ranking and return the record of the outcome."""
        started = datetime.now(tz=UTC)
        context.emit(Event(kind="stage", text=f"ranking {self.task.name}"))
        ranker = BM25Ranker(self.ranking, lambda *step: tell_ranked(context, *step))
        outcome = self.compute_outcome(ranker, context)
        if ranker.unmatched:
            note = (
                f"{ranker.unmatched:,} of {ranker.queries:,} queries match no document: all documents are "
                "equal for them, and their scores come from the order of equal ones alone."
            )
            context.emit(Event(kind="note", text=note))
            counts = {**outcome.data, "unmatched_queries": ranker.unmatched}
            outcome = replace(outcome, notes=(*outcome.notes, note), data=counts)
        ran = self._build_rank_provenance(context, ranker, outcome, started)
        return self.build_output(outcome, self.artifact, {}, ran)

    @staticmethod
    def _build_rank_provenance(
        context: JobContext, ranker: BM25Ranker, outcome: Outcome, started: datetime
    ) -> dict[str, Any]:
        ran = provenance.collect_provenance(device="cpu", threads=context.limits.threads, started=started)
        library_versions = {name: provenance.find_package_version(name) for name in ("bm25s", "PyStemmer")}
        rest = (datetime.now(tz=UTC) - started).total_seconds() - sum(ranker.seconds.values())
        return {
            **ran,
            "packages": {**ran["packages"], **library_versions},
            "languages": ranker.languages,
            "notes": list(dict.fromkeys(outcome.notes)),
            "texts": ranker.texts,
            "seconds": {n: round(value, 3) for n, value in {**ranker.seconds, "score": rest}.items()},
            "peak_memory_bytes": provenance.measure_peak_memory(),
        }


def tell_ranked(context: JobContext, step: str, size: int, done: int) -> None:
    """Pass on the progress of a ranking.

    Args:
        context: The context of the job.
        step: The name of a step that begins; empty for progress within one.
        size: The texts of that step.
        done: The texts that were done since the last call.
    """
    if step:
        context.emit(Event(kind="ranking", text=step, texts=size))
    else:
        context.emit(Event(kind="ranked", texts=done))
