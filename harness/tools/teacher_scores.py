"""A teacher's scores for distillation: which documents a query has, and how similar they are to it.

Its positives come first, then candidates, which BM25 or a model ranks. The outcome is written by
harness.data.scored_data.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from harness.core import files, provenance
from harness.core.arguments import check_fields
from harness.core.encoding import Encoding, OwnTexts, Ranking, Settings, is_bm25
from harness.core.errors import DataError, UsageError
from harness.core.keys import build_encoding_identity, digest
from harness.core.terminal import shorten_names
from harness.core.types import SIDES, Artifact
from harness.data.collection import Collection
from harness.data.locate import DataSettings
from harness.data.scored_data import ScoredData, ScoredRow
from harness.jobs.context import Event, JobContext, WorkerLimits
from harness.jobs.jobs import Resolve, resolve_weights
from harness.jobs.maxsim import MaxSimRanker, score_documents
from harness.jobs.ranking import ENGLISH, BM25Ranker, tell_ranked
from harness.plan.catalog import require_sides
from harness.plan.models import ModelOptions, resolve_model
from harness.plan.plan import ConfiguredModel
from harness.storage.vectors import EmbeddingCache

Scale = Literal["none", "min-max"]
"""How a query's scores are written: as the teacher gives them, or from 0, the lowest, to 1, the highest."""

_RULES = 1
"""The version of how documents are chosen and scored, raised whenever either changes."""

_CHUNK = 256
"""Queries whose documents' vectors are held at once."""

_SAME = 1e-6
"""Scores that differ by less are equal but for rounding; relative to the score where that is above 1."""

_TEXTS = OwnTexts()


@dataclass(frozen=True, kw_only=True)
class ScoringRequest:
    """The settings of a requested data set.

    Attributes:
        teacher: The model that scores, spelled as for a run.
        candidates: The model that ranks documents, or BM25.
        train_data: The pairs.
        corpus: Further documents to choose from; empty for none.
        documents: The documents of a query, its positives among them.
        queries: The number of queries that are drawn; None for all.
        scale: How scores are written.
        settings: How the teacher encodes; its seed is that of every draw.
    """

    teacher: str
    candidates: str
    train_data: str
    corpus: str = ""
    documents: int = 32
    queries: int | None = None
    scale: Scale = "none"
    settings: Settings = field(default_factory=Settings)


@dataclass(frozen=True, kw_only=True)
class ScoringPlan:
    """A request with its models and its data, before anything is encoded.

    Attributes:
        queries: The ids of the queries that are scored, in the order of the data.
    """

    request: ScoringRequest
    teacher: ConfiguredModel
    candidates: ConfiguredModel
    collection: Collection
    queries: tuple[str, ...]

    @staticmethod
    def build_scoring_plan(request: ScoringRequest, data: DataSettings, options: ModelOptions) -> ScoringPlan:
        """The plan of a request.

        Args:
            request: The settings as requested.
            data: Where data is looked for.
            options: How models are found and loaded.

        Raises:
            UsageError: A model or a setting cannot be used, or the data does not exist.
            DataError: A row of the data cannot be read.
        """
        settings = check_fields(request.settings, Settings, "settings")
        _check(request, settings)
        teacher = resolve_model(request.teacher, settings, options)
        same = request.candidates == request.teacher
        candidates = teacher if same else resolve_model(request.candidates, Settings(), options)
        _check_ranking(candidates)
        collection = Collection.read_pairs(request.train_data, request.corpus, data)
        names = tuple(collection.queries)
        if request.queries is not None and request.queries < len(names):
            # Places are drawn and then sorted, so that rows are in the order of the data.
            drawn = random.Random(settings.seed).sample(range(len(names)), request.queries)
            names = tuple(names[at] for at in sorted(drawn))
        return ScoringPlan(
            request=request, teacher=teacher, candidates=candidates, collection=collection, queries=names
        )

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that the scores depend on."""
        request = self.request
        return {
            "teacher": _build_model_identity(self.teacher),
            "candidates": _build_model_identity(self.candidates),
            "data": {"pairs": dict(self.collection.pairs), "content": self.collection.content},
            "documents": request.documents,
            "queries": request.queries,
            "scale": request.scale,
            "seed": request.settings.seed,
            "rules": _RULES,
        }

    @property
    def key(self) -> str:
        """The hash of the identity."""
        return digest(self.identity)

    @property
    def pairs(self) -> int:
        """The largest possible number of scores."""
        return len(self.queries) * min(self.request.documents, len(self.collection.documents))


def _check(request: ScoringRequest, settings: Settings) -> None:
    """Refuse values that no model could use."""
    if is_bm25(request.teacher):
        raise UsageError(
            f"{request.teacher} cannot be the teacher: its scores count the words that a query and a "
            "document share, and are 0 for all documents that share none.",
            hint="Give a model with vectors as --teacher; BM25 chooses the documents: --candidates bm25.",
        )
    if request.documents < 2:
        raise UsageError(f"--documents is {request.documents}, and must be 2 or more.")
    require_sides(settings.prompts)


def _check_ranking(model: ConfiguredModel) -> None:
    """Refuse methods of BM25 that also score documents without a word of the query."""
    if isinstance(model.encoding, Ranking) and model.encoding.method in ("bm25l", "bm25+"):
        raise UsageError(
            f"{model.artifact.name} gives a score to documents without a word of the query, too.",
            hint="Choose candidates by the method lucene, robertson or atire.",
        )


def _build_model_identity(model: ConfiguredModel) -> dict[str, Any]:
    """The identity of a model with its encoding or ranking."""
    encoding = model.encoding
    artifact = resolve_weights(model.artifact)
    identity: dict[str, Any] = {"artifact": artifact.key}
    if artifact.trained:
        identity["weights"] = artifact.weights
    identity["encoding"] = build_encoding_identity(encoding)
    if isinstance(encoding, Encoding):
        identity["prompts"] = {side: encoding.resolve_prompt(_TEXTS, side) for side in SIDES}
    return identity


@dataclass(kw_only=True)
class _Counts:
    """The queries with something to report: with fewer documents, with drawn ones, and so on.

    Attributes:
        fewer: Queries with fewer documents than asked.
        drawn: Documents that were drawn, as too few share a word with the query, by query.
        constant: Queries whose documents all have the same score.
        unscored: Documents without a vector of a token, which were left out.
        left_out: Queries that have no row: without a positive that has a score, or that cannot be scaled.
    """

    fewer: list[str] = field(default_factory=list)
    drawn: dict[str, int] = field(default_factory=dict)
    constant: list[str] = field(default_factory=list)
    unscored: int = 0
    left_out: list[str] = field(default_factory=list)


def make_scored_data(
    plan: ScoringPlan,
    folder: Path,
    *,
    device: str,
    cache: Path,
    limits: WorkerLimits,
    listen: Callable[[Event], None],
) -> ScoredData:
    """Choose documents, score them, and put the data set in place in one step.

    The vectors of the teacher, and of a model that chooses, are kept in the cache as they are made, so that
    an interrupted run goes on.

    Args:
        plan: The request with its models and data.
        folder: The folder to make; it may be there and empty.
        device: A torch device.
        cache: The cache folder.
        limits: Threads and tokens.
        listen: Called with the events of the work.

    Raises:
        ModelError: A model loads wrongly.
        DataError: No query can be scored.
        StoreError: The folder cannot be written.
    """

    def emit(event: Event) -> None:
        if event.kind != "vectors":
            listen(event)
            return
        EmbeddingCache.write_shard(cache, event.space, event.content)

    files.sweep_cache(cache)
    counts = _Counts()
    context = JobContext(device=device, cache=cache, emit=emit, limits=limits)
    chosen = _choose_documents(plan, context, counts)
    rows = list(_score_queries(plan, context, chosen, counts))
    if not rows:
        why = "has documents whose scores differ" if counts.constant else "can be scored"
        hint = "Look into the data: harness data check --train-data DATA."
        raise DataError(f"No query {why}.", hint=hint)
    facts = _collect_scoring_facts(plan, rows, counts)
    return ScoredData.write_scored_data(
        folder, plan.identity, facts, rows, plan.collection, _format_data_card(plan, facts)
    )


# The documents of each query


_Ranked = Sequence[tuple[NDArray[np.int64], NDArray[np.float32]]]
"""The places of the best documents of each query, and their scores."""


def _rank(
    model: ConfiguredModel, context: JobContext, queries: Sequence[str], documents: Sequence[str], *, k: int
) -> _Ranked:
    """The best documents of each query by a model; by BM25 only those that share a word with the query."""
    encoding = model.encoding
    if isinstance(encoding, Ranking):
        ranker = BM25Ranker(encoding, lambda *step: tell_ranked(context, *step))
        ranked = ranker.rank(queries, documents, k=k, language=ENGLISH)
        # A score of 0 is that of documents without a word of the query, in the order of the corpus.
        return [(places[scores > 0], scores[scores > 0]) for places, scores in ranked]
    assert isinstance(encoding, Encoding)
    artifact = _load_scoring_model(model, context)
    if model.interacts_late:
        return MaxSimRanker(context, artifact, encoding, _TEXTS).rank(queries, documents, k=k)
    from harness.search.exact import find_top_k

    query_space, document_space = _encode_sides(context, artifact, encoding, queries, documents)
    context.emit(Event(kind="stage", text="searching"))
    scores, places = find_top_k(
        query_space.get(queries),
        lambda start, end: document_space.get(documents[start:end]),
        len(documents),
        k=k,
        similarity=encoding.similarity,
    )
    return list(zip(places, scores, strict=True))


def _load_scoring_model(model: ConfiguredModel, context: JobContext) -> Artifact:
    """The artifact of a model that was loaded and passed the sanity gate."""
    assert isinstance(model.encoding, Encoding)
    Resolve(artifact=model.artifact, encoding=model.encoding).run(context)
    if model.has_two_stages:
        context.emit(Event(kind="note", text=f"{model.artifact.name} reads texts behind the null context"))
    return resolve_weights(model.artifact)


def _choose_documents(plan: ScoringPlan, context: JobContext, counts: _Counts) -> dict[str, tuple[int, ...]]:
    """The documents of each query by their place in the corpus: its positives, then candidates."""
    collection, document_count = plan.collection, plan.request.documents
    documents = list(collection.documents.values())
    places = {name: at for at, name in enumerate(collection.documents)}
    corpus_places = {text: at for at, text in enumerate(documents)}
    texts = [collection.queries[name] for name in plan.queries]
    most = max(len(collection.positives[name]) for name in plan.queries)
    # As many more as may be barred below: the positives of a query, and its own text.
    ranked = _rank(plan.candidates, context, texts, documents, k=document_count + most + 1)
    chosen = {}
    for name, text, (candidates, _) in zip(plan.queries, texts, ranked, strict=True):
        positives = [places[one] for one in collection.positives[name]]
        # A query that is a document, too, would be its own best candidate.
        barred = {*positives, corpus_places.get(text, -1)}
        first = [*positives, *(at for at in candidates.tolist() if at not in barred)][:document_count]
        drawn = _draw_documents(
            f"{plan.request.settings.seed} {name}", first, barred, len(documents), document_count
        )
        if drawn:
            counts.drawn[name] = len(drawn)
        chosen[name] = (*first, *drawn)
    return chosen


def _draw_documents(
    seed: str, first: Sequence[int], barred: set[int], count: int, wanted: int
) -> tuple[int, ...]:
    """Further documents by chance, as far as the corpus has any outside of `first` and `barred`."""
    taken = {*first, *barred} - {-1}
    lacking = min(wanted - len(first), count - len(taken))
    if lacking <= 0:
        return ()
    # A text as the seed is hashed by SHA-512, the same in every process; a dict keeps the order of the draws.
    chance, draws = random.Random(seed), dict[int, None]()
    # Drawing until a place is free takes few tries unless a quarter is taken; a list of all places of a large
    # corpus, for each query, would take long.
    if count < 4 * (len(taken) + lacking):
        return tuple(chance.sample([at for at in range(count) if at not in taken], lacking))
    while len(draws) < lacking:
        place = chance.randrange(count)
        if place not in taken:
            draws[place] = None
    return tuple(draws)


# Their scores


def _encode_sides(
    context: JobContext,
    artifact: Artifact,
    encoding: Encoding,
    queries: Sequence[str],
    documents: Sequence[str],
) -> tuple[EmbeddingCache, EmbeddingCache]:
    """The vectors of both sides, complete for these texts."""
    for side, texts in zip(SIDES, (queries, documents), strict=True):
        context.encode_missing(artifact, encoding, _TEXTS, side, list(dict.fromkeys(texts)), hold=True)
    query, document = (context.open_space(artifact, encoding, _TEXTS, side) for side in SIDES)
    return query, document


@dataclass(frozen=True, kw_only=True, eq=False)
class _Vectors:
    """The teacher's vectors of both sides, and how they are compared."""

    queries: EmbeddingCache
    documents: EmbeddingCache
    encoding: Encoding
    device: str

    def score_documents(
        self, queries: Sequence[str], documents: Sequence[str], rows: Sequence[Sequence[int]]
    ) -> Iterator[Sequence[float]]:
        """The scores of each query and its documents, whose places in `documents` are its row.

        By MaxSim a document of which no token has a vector has -inf.
        """
        if self.encoding.late_interaction is None:
            from harness.search.exact import compare

            vectors = self.documents.get(documents)
            for query, row in zip(self.queries.get(queries), rows, strict=True):
                yield compare(query, vectors[list(row)], self.encoding.similarity)
            return
        ours, theirs = self.queries.get_tokens(queries), self.documents.get_tokens(documents)
        is_pylate = self.encoding.similarity == "maxsim-pylate"
        for number, row in enumerate(rows):
            query, block = ours.take([number]), theirs.take(list(row))
            yield score_documents(query, block, device=self.device, is_pylate=is_pylate).tolist()


def _encode_teacher(
    plan: ScoringPlan, context: JobContext, chosen: Mapping[str, tuple[int, ...]], texts: Sequence[str]
) -> _Vectors:
    """The teacher's vectors of the queries and of every document that was chosen."""
    encoding = plan.teacher.encoding
    assert isinstance(encoding, Encoding)
    same_model = plan.teacher == plan.candidates
    artifact = (
        resolve_weights(plan.teacher.artifact) if same_model else _load_scoring_model(plan.teacher, context)
    )
    used = dict.fromkeys(at for places in chosen.values() for at in places)
    queries = [plan.collection.queries[name] for name in chosen]
    both = _encode_sides(context, artifact, encoding, queries, [texts[at] for at in used])
    return _Vectors(queries=both[0], documents=both[1], encoding=encoding, device=context.device)


def _score_queries(
    plan: ScoringPlan, context: JobContext, chosen: Mapping[str, tuple[int, ...]], counts: _Counts
) -> Iterator[ScoredRow]:
    """The rows, in the order of the queries."""
    texts = list(plan.collection.documents.values())
    vectors = _encode_teacher(plan, context, chosen, texts)
    context.emit(Event(kind="ranking", text="scoring", texts=len(chosen)))
    # In chunks, as the vectors of all chosen documents need not fit into memory.
    for start in range(0, len(chosen), _CHUNK):
        part = dict(islice(chosen.items(), start, start + _CHUNK))
        places = dict.fromkeys(at for row in part.values() for at in row)
        numbers = {at: number for number, at in enumerate(places)}
        queries = [plan.collection.queries[name] for name in part]
        rows = [[numbers[at] for at in row] for row in part.values()]
        scores = vectors.score_documents(queries, [texts[at] for at in places], rows)
        for (name, row), row_scores in zip(part.items(), scores, strict=True):
            scored_row = _build_query_row(plan, name, row, row_scores, counts)
            if scored_row is not None:
                yield scored_row
        context.emit(Event(kind="ranked", texts=len(part)))


def _build_query_row(
    plan: ScoringPlan, name: str, places: Sequence[int], scores: Sequence[float], counts: _Counts
) -> ScoredRow | None:
    """The row of a query; None without a positive that has a score, or where scores cannot be scaled."""
    positive_count = len(plan.collection.positives[name])
    indices = [at for at, score in enumerate(scores) if score != float("-inf")]
    counts.unscored += len(scores) - len(indices)
    # Positives come first, so the first scored document is one of them or none has a score.
    if not indices or indices[0] >= positive_count:
        counts.left_out.append(name)
        return None
    values = [scores[at] for at in indices]
    if len(values) < plan.request.documents:
        counts.fewer.append(name)
    if max(values) - min(values) <= _SAME * max(1.0, abs(max(values))):
        counts.constant.append(name)
        if plan.request.scale == "min-max":
            counts.left_out.append(name)
            return None
    if plan.request.scale == "min-max":
        low, high = min(values), max(values)
        values = [(score - low) / (high - low) for score in values]
    return ScoredRow(query=name, documents=tuple(places[at] for at in indices), scores=tuple(values))


def _collect_scoring_facts(plan: ScoringPlan, rows: Sequence[ScoredRow], counts: _Counts) -> dict[str, Any]:
    """The facts in provenance.json beside identity and files, without times and paths: runs are alike."""
    every = [score for row in rows for score in row.scores]
    return {
        "teacher": _describe_scoring_model(plan.teacher),
        "candidates": _describe_scoring_model(plan.candidates),
        "data": plan.collection.name,
        "counts": {
            "queries": len(rows),
            "documents": len({at for row in rows for at in row.documents}),
            "scores": len(every),
            "fewer": len(counts.fewer),
            "drawn": sum(counts.drawn.values()),
            "constant": len(counts.constant),
            "left_out": len(counts.left_out),
        },
        "range": [min(every), max(every)],
        "constant": counts.constant,
        "left_out": counts.left_out,
        "notes": [*plan.collection.notes, *_iter_scoring_notes(plan, rows, counts)],
        "harness": provenance.find_version(),
        "packages": {name: provenance.find_package_version(name) for name in ("torch", "bm25s", "pyarrow")},
    }


def _iter_scoring_notes(plan: ScoringPlan, rows: Sequence[ScoredRow], counts: _Counts) -> Iterator[str]:
    """What the data set lacks, in lines that name the first queries."""
    document_count, of = plan.request.documents, f"of {len(plan.queries):,} queries"
    if counts.fewer:
        least = min(len(row.documents) for row in rows)
        named = shorten_names(counts.fewer, most=3)
        yield f"fewer than {document_count} documents: {len(counts.fewer):,} {of}, {least} at least ({named})"
    if counts.drawn:
        several = f"{sum(counts.drawn.values()):,} documents of {len(counts.drawn):,} {of}"
        yield f"drawn by chance, as too few share a word with the query: {several}"
    if counts.constant:
        then = "left out" if plan.request.scale == "min-max" else "min–max scaling would divide 0 by 0"
        named = shorten_names(counts.constant, most=3)
        yield f"the same score for all documents: {len(counts.constant):,} {of}, {then} ({named})"
    if counts.unscored:
        yield f"no token with a vector: {counts.unscored:,} documents of queries, left out"
    gone = [name for name in counts.left_out if name not in set(counts.constant)]
    if gone:
        named = shorten_names(gone, most=3)
        yield f"no positive with a score: {len(gone):,} {of}, left out ({named})"


def _describe_scoring_model(model: ConfiguredModel) -> dict[str, Any]:
    artifact = resolve_weights(model.artifact)
    return {
        "name": artifact.name,
        "artifact": artifact.key,
        "weights": artifact.weights,
        "revision": artifact.revision,
    }


def _format_data_card(plan: ScoringPlan, facts: Mapping[str, Any]) -> str:
    """The text of the README."""
    counts = facts["counts"]
    scales = {"none": "the teacher's own similarities", "min-max": "scaled from 0 to 1 for each query"}
    return (
        f"{counts['queries']:,} queries with up to {plan.request.documents} documents each, and "
        f"{counts['scores']:,} scores of {plan.teacher.artifact.name}.\n"
        f"The first documents of a query are its positives, the others were ranked by "
        f"{plan.candidates.artifact.name}.\n"
        f"Scores are {scales[plan.request.scale]}; provenance.json says more.\n"
    )
