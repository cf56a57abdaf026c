"""Scores of multi-vector (ColBERT) models: the order of documents by MaxSim, and its job.

The order is exact, or that of an approximate index (see harness.search.plaid_index) whose recall is measured.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.encoding import Encoding, Plaid, TextTask
from harness.core.types import SIDES, Artifact, Role
from harness.data.locate import human_size
from harness.jobs.context import CPU_CHARACTERS, EncodedTexts, Event, JobContext, TextEncoding, portions
from harness.jobs.jobs import (
    ScoreJob,
    check_texts,
    encoded_provenance,
    lineage_of,
    model_part,
    texts_trained_on,
    with_weights,
)
from harness.search.plaid import AT, Corpus, Recall, sampled_queries, shares_found

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from harness.search.plaid_index import ExactSearch, PlaidIndex
    from harness.storage.vectors import Space, TokenVectors


class MaxSimRanker:
    """A TextRanker (harness.core.types) with the order of a model's MaxSim, exact unless there is an index.

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
        self._empty: dict[Role, set[str]] = {side: set() for side in SIDES}
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
        """The best documents of each query (see harness.core.types.TextRanker); `language` changes nothing.

        Documents of which no token has a vector are left out. The order of candidates is exact.
        """
        asked = self._known(queries, "query").get_tokens(queries)
        if candidates is not None:
            there = self._known(documents, "document")
            with self._timed("search"):
                return [self._ordered(asked, row, there, documents, at) for row, at in enumerate(candidates)]
        if self._index is not None:
            found = self._search_index(self._index, queries, asked, documents, k)
            if found is not None:
                return found
        there = self._known(documents, "document")
        with self._timed("search"):
            return list(self._search(asked, there, documents, k))

    @contextlib.contextmanager
    def _timed(self, use: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.seconds[use] += time.monotonic() - started

    def _known(self, texts: Sequence[str], side: Role) -> Space:
        """The vectors of a side, those of `texts` among them."""
        import numpy as np

        check_texts(texts, side)
        self.asked[side].update(texts)
        unique = list(dict.fromkeys(texts))
        self.encoded.add(self._context.encode_missing(*self._of, side, unique, hold=True))
        space = self._context.space(*self._of, side)
        self._empty[side].update(unique[at] for at in np.flatnonzero(space.token_counts(unique) == 0))
        return space

    def text_notes(self) -> list[str]:
        """Notes on the texts so far, cached or not: queries that were cut, texts without a vector."""
        from harness.encoder.token_encoder import count_cut

        artifact, encoding, task = self._of
        late, queries = encoding.late_interaction, self.asked["query"]
        assert late is not None
        prompt = encoding.prompt(task, "query")
        cut = count_cut(artifact, [prompt + text for text in queries], late)
        longer = f"more than {late.query_length} tokens and were cut"
        told = [f"{cut:,} of {len(queries):,} queries have {longer}"] if cut else []
        for side, texts in self._empty.items():
            if texts:
                of = f"{len(texts):,} of {len(self.asked[side]):,} texts ({side})"
                told.append(f"{of} have no token with a vector")
        return told

    def _search(
        self, queries: TokenVectors, there: Space, documents: Sequence[str], k: int
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        from harness.search.search import top_k_by_maxsim

        emit = self._context.emit
        emit(Event(kind="ranking", text="searching", texts=len(documents)))
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
        self, settings: Plaid, queries: Sequence[str], asked: TokenVectors, documents: Sequence[str], k: int
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]] | None:
        """The best documents by an index, and its recall on a sample of the queries.

        None where too few documents have a vector.
        """
        import numpy as np

        from harness.search import plaid_index

        context, sample = self._context, sampled_queries(len(queries))
        space = context.space(*self._of, "document")
        index = plaid_index.PlaidIndex.of(
            space, documents, settings, cache=context.cache, device=context.device
        )
        own = context.space(*self._of, "query")
        some = [queries[row] for row in sample.tolist()]
        exact = plaid_index.ExactSearch(asked.take(sample), own, some, device=context.device)
        was_there, before = index.is_there, self.seconds.copy()
        if not self._complete(index, exact, documents, was_there=was_there):
            return None
        context.emit(Event(kind="ranking", text="searching", texts=len(queries)))
        with self._timed("search"):
            found = index.search(
                asked,
                k=k,
                threads=context.limits.threads,
                progress=lambda done: context.emit(Event(kind="ranked", texts=done)),
            )
        absent = np.setdiff1d(np.arange(len(documents)), index.places)
        self._empty["document"].update(documents[at] for at in absent.tolist())
        near = [found[row][0][:AT].tolist() for row in sample]
        spent = {use: round(self.seconds[use] - before[use], 3) for use in ("index", "search", "recall")}
        self.searches.append(
            _ApproximateSearch(
                documents=len(index.places),
                tokens=index.tokens,
                recall=Recall.of(shares_found(index.exact(exact.key) or [], near), len(queries)),
                bytes=index.nbytes,
                was_there=was_there,
                vectors_kept=not space.missing(documents),
                seconds=spent,
            )
        )
        return found

    def _complete(
        self, index: PlaidIndex, exact: ExactSearch, documents: Sequence[str], *, was_there: bool
    ) -> bool:
        """Make the index and the exact results unless they are there; False where there can be no index."""
        check_texts(documents, "document")
        self.asked["document"].update(documents)
        if was_there and index.exact(exact.key) is not None:
            return True
        if not was_there:
            self._context.emit(Event(kind="stage", text="making the index"))
        corpus = self._corpus(index, documents, was_there=was_there)
        started = time.monotonic()
        made = index.complete(corpus, exact)
        taken = time.monotonic() - started - exact.seconds
        if isinstance(corpus, _PassingVectors):
            corpus.encoding.end()
            self.encoded.add(corpus.encoding.cost)
            taken -= corpus.encoding.cost.seconds
        self.seconds["recall" if was_there else "index"] += taken
        self.seconds["recall"] += exact.seconds
        return made

    def _corpus(self, index: PlaidIndex, documents: Sequence[str], *, was_there: bool) -> Corpus:
        """The documents of an index; their vectors are kept unless they take more than the limit."""
        emit = self._context.emit
        follow = {
            "begin": lambda use: emit(Event(kind="ranking", text=use, texts=len(documents))),
            "progress": lambda done: emit(Event(kind="ranked", texts=done)),
        }
        space = self._context.space(*self._of, "document")
        size = _token_bytes(space.missing(documents), self._of[1])
        if size <= self._context.limits.keep_vectors * 1e9:
            return Corpus(self._known(documents, "document"), documents, **follow)
        note = f"about {human_size(size)} of vectors of documents are not kept: they are encoded "
        note += "again, for the recall of other queries" if was_there else "into the index"
        self._context.tell([note])
        encoding = TextEncoding(self._context, *self._of, "document")
        encoding.cost.notes.append(note)
        return _PassingVectors(encoding, space, documents, folder=index.part, **follow)

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

        from harness.search.search import maxsim

        if not len(candidates):
            return np.zeros(0, np.int64), np.zeros(0, np.float32)
        given = np.asarray(candidates, dtype=np.int64)
        block = there.get_tokens([documents[at] for at in candidates])
        longest = int(block.lengths.max()) if self._pylate else None
        scores = maxsim(queries.take([row]), block, device=self._context.device, longest=longest)[0]
        order = np.argsort(-scores, kind="stable")
        order = order[np.isfinite(scores[order])]
        return given[order], scores[order]


BYTES_PER_TOKEN = 4.0
"""A rough figure of UTF-8, for English and for writing in which a token is one sign of three bytes."""


def _token_bytes(documents: Sequence[str], encoding: Encoding) -> int:
    """The bytes of the vectors of the tokens of documents, about; no score depends on it."""
    late = encoding.late_interaction
    assert late is not None
    sizes = (len(text.encode("utf-8", "surrogatepass")) / BYTES_PER_TOKEN for text in documents)
    tokens = sum(min(late.document_length, size + 3) for size in sizes)
    return round(tokens * late.dimension * (2 if encoding.vectors == "float16" else 4))


class _PassingVectors(Corpus):
    """The documents of an index whose token vectors are too many to be kept.

    Those that the cache has not are encoded when they are needed and dropped. Some are needed twice: these
    lie in the folder in which the index is made, and go with it.

    Attributes:
        encoding: The encoding of those that the cache has not.
    """

    def __init__(
        self, encoding: TextEncoding, space: Space, texts: Sequence[str], *, folder: Path, **follow: Any
    ) -> None:
        from harness.storage.vectors import Space

        super().__init__(space, texts, **follow)
        self.encoding = encoding
        self._folder, self._own = folder, Space(folder, space.identity)

    def views(self, texts: Sequence[str]) -> list[NDArray[np.float16]]:
        """The vectors of some documents, each (tokens, dimension), on disk from now on."""
        missing = self._own.missing(self.space.missing(texts))
        self.encoding.begin(len(missing), missing)
        self.encoding.write(missing, self._own, self._write)
        self._own.refresh()
        own = self.space.missing(texts)
        known = [*({*texts} - {*own})]
        views = dict(zip(known, self.space.token_views(known), strict=True))
        views |= zip(own, self._own.token_views(own), strict=True)
        return [views[text] for text in texts]

    def _write(self, event: Event) -> None:
        self._own.write_shard(self._folder, event.space, event.content)

    def parts(self, parts: Sequence[Sequence[str]], use: str) -> Iterator[TokenVectors]:
        """The vectors of the documents of each part in turn."""
        count = sum(len(self._own.missing(self.space.missing(part))) for part in parts)
        if not count:
            yield from super().parts(parts, use)
            return
        self.encoding.begin(count)
        yield from map(self._read, parts)

    def _read(self, part: Sequence[str]) -> TokenVectors:
        """The vectors of documents: those of the cache, those of the folder, and the others as they come."""
        from harness.storage.vectors import TokenVectors

        others = self.space.missing(part)
        new = self._own.missing(others)
        known = [*({*part} - {*others})]
        own = [*({*others} - {*new})]
        found = [self.space.get_tokens(known)] if known else []
        found += [self._own.get_tokens(own)] if own else []
        for few in filter(None, portions(new, characters=CPU_CHARACTERS)):
            vectors = self.space.rounded(self.encoding.encode(few))
            assert isinstance(vectors, TokenVectors)
            found.append(vectors)
        places = {text: place for place, text in enumerate([*known, *own, *new])}
        return TokenVectors.join(found).take([places[text] for text in part])


@dataclass(frozen=True, kw_only=True)
class _ApproximateSearch:
    """An approximate search of a corpus, for the record.

    Attributes:
        documents: Those in the index.
        tokens: Their vectors.
        recall: What it finds of the exact best documents.
        bytes: The size of the index on disk.
        was_there: Whether the index was made before.
        vectors_kept: Whether the cache has the vectors of all its documents.
        seconds: The time of making the index, of the search, and of the exact search of the sample.
    """

    documents: int
    tokens: int
    recall: Recall
    bytes: int
    was_there: bool
    vectors_kept: bool
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
        artifact = with_weights(self.artifact, context.remote)
        ranker = MaxSimRanker(context, artifact, self.encoding, self.task)
        outcome = self.outcome(ranker, context)
        for one in ranker.searches:
            context.emit(Event(kind="note", text=f"PLAID: {one.recall.text}"))
        ranker.encoded.notes += (notes := ranker.text_notes())
        for note in notes:
            context.emit(Event(kind="note", text=note))
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
