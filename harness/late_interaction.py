"""Scores of models with a vector for each token: the order of documents by MaxSim, and its job.

The order is exact, or that of an approximate index (see harness.plaid) whose recall is measured.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from harness.context import EncodedTexts, Event, JobContext
from harness.jobs import (
    ScoreJob,
    check_texts,
    encoded_provenance,
    lineage_of,
    model_part,
    texts_trained_on,
    with_weights,
)
from harness.plaid import AT, LEAST_DOCUMENTS, PlaidIndex, Recall, sampled_queries, shares_found
from harness.types import SIDES, Artifact, Encoding, Plaid, Role, TextTask

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from harness.vectors import Space, TokenVectors


class MaxSimRanker:
    """A TextRanker (see harness.types) with the order of a model's MaxSim, exact unless there is an index.

    Attributes:
        encoded: The cost of the texts that were encoded.
        seconds: The time of the searches, by its use.
        asked: The texts so far, by side.
        searches: The approximate searches of a whole corpus.
        pairs: The pairs of tokens that exact searches of a whole corpus have compared.
    """

    titles_on_lines = False

    def __init__(self, context: JobContext, artifact: Artifact, encoding: Encoding, task: TextTask) -> None:
        self.encoded = EncodedTexts()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.asked: dict[Role, set[str]] = {side: set() for side in SIDES}
        self.searches: list[_ApproximateSearch] = []
        self.pairs = 0
        self._context = context
        self._of = (artifact, encoding, task)
        self._pylate = encoding.similarity == "maxsim-pylate"
        self._index = encoding.index

    def rank(
        self,
        queries: Sequence[str],
        documents: Sequence[str],
        *,
        k: int,
        language: str = "",
        candidates: Sequence[Sequence[int]] | None = None,
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """The best documents of each query (see harness.types.TextRanker); `language` changes nothing.

        Documents of which no token has a vector are left out. The order of candidates is exact.
        """
        import numpy as np

        asked, there = self._known(queries, "query").get_tokens(queries), self._known(documents, "document")
        if candidates is not None:
            with self._timed("search"):
                return [self._ordered(asked, row, there, documents, at) for row, at in enumerate(candidates)]
        if self._index is None or np.count_nonzero(there.token_counts(documents)) < LEAST_DOCUMENTS:
            with self._timed("search"):
                return list(self._search(asked, there, documents, k))
        return self._search_index(self._index, asked, there, documents, k)

    @contextlib.contextmanager
    def _timed(self, use: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.seconds[use] += time.monotonic() - started

    def _known(self, texts: Sequence[str], side: Role) -> Space:
        """The vectors of a side, those of `texts` among them."""
        check_texts(texts, side)
        self.asked[side].update(texts)
        unique = list(dict.fromkeys(texts))
        self.encoded.add(self._context.encode_missing(*self._of, side, unique, hold=True))
        return self._context.space(*self._of, side)

    def _search(
        self, queries: TokenVectors, there: Space, documents: Sequence[str], k: int
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        from harness.search import top_k_by_maxsim

        emit = self._context.emit
        emit(
            Event(
                kind="ranking", text="searching exactly" if self._index else "searching", texts=len(documents)
            )
        )
        counts = there.token_counts(documents)
        self.pairs += len(queries.vectors) * int(counts.sum())
        yield from top_k_by_maxsim(
            queries,
            lambda start, end: there.get_tokens(documents[start:end]),
            counts,
            k=k,
            device=self._context.device,
            longest=int(counts.max()) if self._pylate else None,
            progress=lambda done: emit(Event(kind="ranked", texts=done)),
        )

    def _search_index(
        self, settings: Plaid, queries: TokenVectors, there: Space, documents: Sequence[str], k: int
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """The best documents by an index, and its recall on a sample of the queries."""
        context = self._context
        before = self.seconds.copy()
        with self._timed("index"):
            index = PlaidIndex.of(
                there,
                documents,
                settings,
                cache=context.cache,
                device=context.device,
                building=lambda: context.emit(Event(kind="stage", text="making the index")),
            )
        context.emit(Event(kind="ranking", text="searching", texts=len(queries)))
        with self._timed("search"):
            found = index.search(
                queries,
                k=k,
                threads=context.limits.threads,
                progress=lambda done: context.emit(Event(kind="ranked", texts=done)),
            )
        with self._timed("recall"):
            sample = sampled_queries(len(queries))
            exact = self._search(queries.take(sample), there, documents, AT)
            near = [found[row][0][:AT].tolist() for row in sample]
            recall = Recall.of(shares_found([at.tolist() for at, _ in exact], near), len(queries))
        self.searches.append(
            _ApproximateSearch(
                documents=len(index.places),
                tokens=int(there.token_counts(documents).sum()),
                recall=recall,
                bytes=index.nbytes,
                was_there=index.was_there,
                seconds={
                    use: round(self.seconds[use] - before[use], 3) for use in ("index", "search", "recall")
                },
            )
        )
        return found

    def _ordered(
        self,
        queries: TokenVectors,
        row: int,
        there: Space,
        documents: Sequence[str],
        candidates: Sequence[int],
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The candidates of one query in their order, with their scores."""
        import numpy as np

        from harness.search import maxsim

        if not len(candidates):
            return np.zeros(0, np.int64), np.zeros(0, np.float32)
        given = np.asarray(candidates, dtype=np.int64)
        block = there.get_tokens([documents[at] for at in candidates])
        longest = int(block.lengths.max()) if self._pylate else None
        scores = maxsim(queries.take([row]), block, device=self._context.device, longest=longest)[0]
        order = np.argsort(-scores, kind="stable")
        order = order[np.isfinite(scores[order])]
        return given[order], scores[order]


@dataclass(frozen=True, kw_only=True)
class _ApproximateSearch:
    """An approximate search of a corpus, for the record.

    Attributes:
        documents: Those in the index.
        tokens: Their vectors.
        recall: What it finds of the exact best documents.
        bytes: The size of the index on disk.
        was_there: Whether the index was made before.
        seconds: The time of making the index, of the search, and of the exact search of the sample.
    """

    documents: int
    tokens: int
    recall: Recall
    bytes: int
    was_there: bool
    seconds: Mapping[str, float]


def _index_provenance(settings: Plaid | None, searches: Sequence[_ApproximateSearch]) -> dict[str, Any]:
    """The approximate searches of a score; empty where all were exact."""
    if settings is None or not searches:
        return {}
    from importlib.metadata import version

    about = {"library": f"fast-plaid {version('fast-plaid')}", "settings": asdict(settings)}
    return {"index": {**about, "searches": [asdict(one) for one in searches]}}


@dataclass(frozen=True, kw_only=True)
class ScoreByMaxSim(ScoreJob):
    """Score a task from the MaxSim of its documents; the output is that of a Score."""

    encoding: Encoding

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        """Encode the texts that have no cached vectors, search, and return the record of the outcome."""
        started = datetime.now(tz=UTC)
        context.emit(Event(kind="stage", text=f"loading {self.task.name}"))
        artifact = with_weights(self.artifact)
        ranker = MaxSimRanker(context, artifact, self.encoding, self.task)
        outcome = self.outcome(ranker, context)
        for one in ranker.searches:
            context.emit(Event(kind="note", text=f"PLAID: {one.recall.text}"))
        texts = sum(map(len, ranker.asked.values()))
        taken = (datetime.now(tz=UTC) - started).total_seconds()
        spent = {"encode": ranker.encoded.seconds, "search": 0.0, **ranker.seconds}
        ran: dict[str, Any] = encoded_provenance(
            context, self.encoding, ranker.encoded, outcome, started, texts=texts
        )
        applied = {side: self.encoding.prompt(self.task, side) for side in SIDES}
        ran |= texts_trained_on(artifact, ranker.asked.values())
        ran |= {} if ranker.searches else {"token_pairs": ranker.pairs}
        ran |= _index_provenance(self.encoding.index, ranker.searches)
        ran |= {"prompts_applied": applied, "seconds": spent | {"score": taken - sum(spent.values())}}
        ran["seconds"] = {name: round(value, 3) for name, value in ran["seconds"].items()}
        model = model_part(artifact, context.input("facts"))
        return self.output(outcome, model, ran, lineage_of(artifact))
