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
from harness.data.locate import format_size
from harness.jobs.context import CPU_CHARACTERS, EncodedTexts, Event, JobContext, TextEncoding, split_portions
from harness.jobs.jobs import (
    ScoreJob,
    build_encoding_provenance,
    check_texts,
    count_contamination,
    resolve_weights,
)
from harness.search.plaid import AT, Corpus, Recall, compute_recall_shares, sample_queries

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from harness.search.plaid_index import ExactSearch, PlaidIndex
    from harness.storage.vectors import EmbeddingCache, TokenVectors


class MaxSimRanker:
    """A TextRanker (harness.core.types) with the order of a model's MaxSim, exact unless there is an index.

    Attributes:
        encoded: The cost of the texts that were encoded.
        seconds: The time that was spent, by step.
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
        """The best documents of each query; `language` changes nothing. See harness.core.types.TextRanker.

        Documents of which no token has a vector are left out. The order of candidates is exact.
        """
        query_vectors = self._encode_side(queries, "query").get_tokens(queries)
        if candidates is not None:
            space = self._encode_side(documents, "document")
            with self._measure_step("search"):
                return [
                    self._sort_candidates(query_vectors, row, space, documents, at)
                    for row, at in enumerate(candidates)
                ]
        if self._index is not None:
            matches = self._search_index(self._index, queries, query_vectors, documents, k)
            if matches is not None:
                return matches
        space = self._encode_side(documents, "document")
        with self._measure_step("search"):
            # A list: a generator would do its work after the time is taken.
            return list(self._search_exact(query_vectors, space, documents, k))

    @contextlib.contextmanager
    def _measure_step(self, use: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.seconds[use] += time.monotonic() - started

    def _encode_side(self, texts: Sequence[str], side: Role) -> EmbeddingCache:
        """The vectors of a side, those of `texts` among them."""
        import numpy as np

        check_texts(texts, side)
        self.asked[side].update(texts)
        unique = list(dict.fromkeys(texts))
        self.encoded.add_counts(self._context.encode_missing(*self._of, side, unique, hold=True))
        space = self._context.open_space(*self._of, side)
        self._empty[side].update(unique[at] for at in np.flatnonzero(space.count_token_vectors(unique) == 0))
        return space

    def collect_text_notes(self) -> list[str]:
        """Notes on the texts so far, cached or not: queries that were cut, texts without a vector."""
        from harness.encoder.token_encoder import count_cut

        artifact, encoding, task = self._of
        late, queries = encoding.late_interaction, self.asked["query"]
        assert late is not None
        prompt = encoding.resolve_prompt(task, "query")
        cut = count_cut(artifact, [prompt + text for text in queries], late)
        longer = f"more than {late.query_length} tokens and were cut"
        notes = [f"{cut:,} of {len(queries):,} queries have {longer}"] if cut else []
        for side, texts in self._empty.items():
            if texts:
                of = f"{len(texts):,} of {len(self.asked[side]):,} texts ({side})"
                notes.append(f"{of} have no token with a vector")
        return notes

    def _search_exact(
        self, queries: TokenVectors, space: EmbeddingCache, documents: Sequence[str], k: int
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        from harness.search.maxsim import find_maxsim_top_k

        emit = self._context.emit
        emit(Event(kind="ranking", text="searching", texts=len(documents)))
        counts = space.count_token_vectors(documents)
        self.pairs += len(queries.vectors) * int(counts.sum())
        yield from find_maxsim_top_k(
            queries,
            lambda start, end: space.get_tokens(documents[start:end]),
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

        context, sample = self._context, sample_queries(len(queries))
        space = context.open_space(*self._of, "document")
        index = plaid_index.PlaidIndex.locate_index(
            space, documents, settings, cache=context.cache, device=context.device
        )
        query_space = context.open_space(*self._of, "query")
        some = [queries[row] for row in sample.tolist()]
        exact = plaid_index.ExactSearch(asked.take(sample), query_space, some, device=context.device)
        # A task may search several corpora, and each record part has the time of its own search.
        if problem := index.find_damage(exact.key):
            context.tell([f"{index.folder} is damaged: {problem}. It is made again."])
        was_there, before = index.is_there, self.seconds.copy()
        if not self._ensure_index(index, exact, documents, was_there=was_there):
            return None
        context.emit(Event(kind="ranking", text="searching", texts=len(queries)))
        with self._measure_step("search"):
            matches = index.search(
                asked,
                k=k,
                threads=context.limits.threads,
                progress=lambda done: context.emit(Event(kind="ranked", texts=done)),
            )
        absent = np.setdiff1d(np.arange(len(documents)), index.places)
        self._empty["document"].update(documents[at] for at in absent.tolist())
        near = [matches[row][0][:AT].tolist() for row in sample]
        spent = {use: round(self.seconds[use] - before[use], 3) for use in ("index", "search", "recall")}
        self.searches.append(
            _ApproximateSearch(
                documents=len(index.places),
                tokens=index.tokens,
                recall=Recall.estimate_recall(
                    compute_recall_shares(index.read_exact_matches(exact.key) or [], near), len(queries)
                ),
                bytes=index.nbytes,
                was_there=was_there,
                vectors_kept=not space.find_missing_texts(documents),
                seconds=spent,
            )
        )
        return matches

    def _ensure_index(
        self, index: PlaidIndex, exact: ExactSearch, documents: Sequence[str], *, was_there: bool
    ) -> bool:
        """Make the index and the exact results unless they are there; False where there can be no index."""
        check_texts(documents, "document")
        self.asked["document"].update(documents)
        if was_there and index.read_exact_matches(exact.key) is not None:
            return True
        if not was_there:
            self._context.emit(Event(kind="stage", text="making the index"))
        corpus = self._open_corpus(index, documents, was_there=was_there)
        started = time.monotonic()
        is_complete = index.ensure_complete(corpus, exact)
        taken = time.monotonic() - started - exact.seconds
        if isinstance(corpus, _PassingVectors):
            corpus.encoding.finish_encoding()
            self.encoded.add_counts(corpus.encoding.cost)
            taken -= corpus.encoding.cost.seconds
        self.seconds["recall" if was_there else "index"] += taken
        self.seconds["recall"] += exact.seconds
        return is_complete

    def _open_corpus(self, index: PlaidIndex, documents: Sequence[str], *, was_there: bool) -> Corpus:
        """The documents of an index; their vectors are kept unless they take more than the limit."""
        emit = self._context.emit
        follow = {
            "begin": lambda use: emit(Event(kind="ranking", text=use, texts=len(documents))),
            "progress": lambda done: emit(Event(kind="ranked", texts=done)),
        }
        space = self._context.open_space(*self._of, "document")
        size = _estimate_token_bytes(space.find_missing_texts(documents), self._of[1])
        if size <= self._context.limits.keep_vectors * 1e9:
            return Corpus(self._encode_side(documents, "document"), documents, **follow)
        note = f"about {format_size(size)} of vectors of documents are not kept: they are encoded "
        note += "again, for the recall of other queries" if was_there else "into the index"
        self._context.tell([note])
        encoding = TextEncoding(self._context, *self._of, "document")
        encoding.cost.notes.append(note)
        return _PassingVectors(encoding, space, documents, folder=index.part, **follow)

    def _sort_candidates(
        self,
        queries: TokenVectors,
        row: int,
        space: EmbeddingCache,
        documents: Sequence[str],
        candidates: Sequence[int],
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The candidates of one query in their order, with their scores."""
        import numpy as np

        if not len(candidates):
            return np.zeros(0, np.int64), np.zeros(0, np.float32)
        candidate_places = np.asarray(candidates, dtype=np.int64)
        block = space.get_tokens([documents[at] for at in candidates])
        scores = score_documents(
            queries.take([row]), block, device=self._context.device, is_pylate=self._pylate
        )
        order = np.argsort(-scores, kind="stable")
        order = order[np.isfinite(scores[order])]
        return candidate_places[order], scores[order]


def score_documents(
    query: TokenVectors, documents: TokenVectors, *, device: str, is_pylate: bool
) -> NDArray[np.float32]:
    """The MaxSim of a query and each document, shape (documents,), -inf for one without a vector.

    Args:
        query: The token vectors of one query.
        documents: Those of its documents.
        device: A torch device.
        is_pylate: Whether shorter documents are padded to the longest, as PyLate does.
    """
    from harness.search.maxsim import compute_maxsim

    longest = int(documents.lengths.max()) if is_pylate else None
    scores: NDArray[np.float32] = compute_maxsim(query, documents, device=device, longest=longest)[0]
    return scores


BYTES_PER_TOKEN = 4.0
"""A rough figure of UTF-8, for English and for writing in which a token is one sign of three bytes."""


def _estimate_token_bytes(documents: Sequence[str], encoding: Encoding) -> int:
    """An estimate of the bytes of the token vectors of documents; no score depends on it."""
    late = encoding.late_interaction
    assert late is not None
    sizes = (len(text.encode("utf-8", "surrogatepass")) / BYTES_PER_TOKEN for text in documents)
    # Three more: a first token, the prefix, a last one.
    tokens = sum(min(late.document_length, size + 3) for size in sizes)
    return round(tokens * late.dimension * (2 if encoding.vectors == "float16" else 4))


class _PassingVectors(Corpus):
    """The documents of an index whose token vectors are too many to be kept.

    Vectors that the cache does not have are encoded when they are needed, and dropped. Some are needed twice:
    they are kept in the folder in which the index is made, and removed with it.

    Attributes:
        encoding: The encoding of the texts that the cache has no vectors of.
    """

    def __init__(
        self,
        encoding: TextEncoding,
        space: EmbeddingCache,
        texts: Sequence[str],
        *,
        folder: Path,
        **follow: Any,
    ) -> None:
        from harness.storage.vectors import EmbeddingCache

        super().__init__(space, texts, **follow)
        self.encoding = encoding
        self._folder, self._own = folder, EmbeddingCache(folder, space.identity)

    def load_document_vectors(self, texts: Sequence[str]) -> list[NDArray[np.float16]]:
        """The vectors of some documents, each (tokens, dimension), on disk from now on."""
        missing = self._own.find_missing_texts(self.space.find_missing_texts(texts))
        self.encoding.start_encoding(len(missing), missing)
        self.encoding.write_shards(missing, self._own, self._write_folder_shard)
        self._own.refresh()
        own_texts = self.space.find_missing_texts(texts)
        cached_texts = [*({*texts} - {*own_texts})]
        views = dict(zip(cached_texts, self.space.list_token_views(cached_texts), strict=True))
        views |= zip(own_texts, self._own.list_token_views(own_texts), strict=True)
        return [views[text] for text in texts]

    def _write_folder_shard(self, event: Event) -> None:
        self._own.write_shard(self._folder, event.space, event.content)

    def iter_part_vectors(self, parts: Sequence[Sequence[str]], use: str) -> Iterator[TokenVectors]:
        """The vectors of the documents of each part in turn."""
        count = sum(len(self._own.find_missing_texts(self.space.find_missing_texts(part))) for part in parts)
        if not count:
            yield from super().iter_part_vectors(parts, use)
            return
        self.encoding.start_encoding(count)
        yield from map(self._load_part_vectors, parts)

    def _load_part_vectors(self, part: Sequence[str]) -> TokenVectors:
        """The vectors of documents: those of the cache, those of the folder, and the others as they come."""
        from harness.storage.vectors import TokenVectors

        others = self.space.find_missing_texts(part)
        new = self._own.find_missing_texts(others)
        cached_texts = [*({*part} - {*others})]
        own_texts = [*({*others} - {*new})]
        blocks = [self.space.get_tokens(cached_texts)] if cached_texts else []
        blocks += [self._own.get_tokens(own_texts)] if own_texts else []
        for few in filter(None, split_portions(new, characters=CPU_CHARACTERS)):
            vectors = self.space.round_vectors(self.encoding.encode_texts(few))
            assert isinstance(vectors, TokenVectors)
            blocks.append(vectors)
        places = {text: place for place, text in enumerate([*cached_texts, *own_texts, *new])}
        return TokenVectors.join(blocks).take([places[text] for text in part])


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


def _describe_index_searches(
    settings: Plaid | None, searches: Sequence[_ApproximateSearch]
) -> dict[str, Any]:
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
        artifact = resolve_weights(self.artifact, context.remote)
        ranker = MaxSimRanker(context, artifact, self.encoding, self.task)
        outcome = self.compute_outcome(ranker, context)
        for search in ranker.searches:
            context.emit(Event(kind="note", text=f"PLAID: {search.recall.text}"))
        ranker.encoded.notes += (notes := ranker.collect_text_notes())
        for note in notes:
            context.emit(Event(kind="note", text=note))
        texts = sum(map(len, ranker.asked.values()))
        taken = (datetime.now(tz=UTC) - started).total_seconds()
        spent = {"encode": ranker.encoded.seconds, "search": 0.0, **ranker.seconds}
        ran: dict[str, Any] = build_encoding_provenance(
            context, self.encoding, ranker.encoded, outcome, started, texts=texts
        )
        applied = {side: self.encoding.resolve_prompt(self.task, side) for side in SIDES}
        ran |= count_contamination(artifact, ranker.asked.values())
        ran |= {} if ranker.searches else {"token_pairs": ranker.pairs}
        ran |= _describe_index_searches(self.encoding.index, ranker.searches)
        ran |= {"prompts_applied": applied, "seconds": spent | {"score": taken - sum(spent.values())}}
        ran["seconds"] = {name: round(value, 3) for name, value in ran["seconds"].items()}
        return self.build_output(outcome, artifact, context.read_input("facts"), ran)
