"""A model as mteb knows it: its protocols over our encoder, with a search of our own, and result files."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.errors import DataError, ModelError
from harness.core.files import write_error
from harness.core.types import DOCUMENT_TEXT, DocumentText, ObjectEncoder, Role, TextEncoder, TextRanker
from harness.storage.record import Record

if TYPE_CHECKING:
    import numpy as np
    from datasets import Dataset
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models import ModelMeta
    from numpy.typing import NDArray


class Model:
    """mteb's protocols for a model; `found` is (subset, split) → query id → document id → score."""

    mteb_model_meta: ModelMeta

    def __init__(self, model: TextEncoder | TextRanker, documents: DocumentText = DOCUMENT_TEXT) -> None:
        from mteb.models import ModelMeta

        self._model, self._documents = model, documents
        # A name of mteb needs an owner. Neither of the two gets into our results.
        names = {"name": "encoder/under-test", "revision": "0"}
        self.mteb_model_meta = ModelMeta.create_empty(overwrites=names)
        self.found: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
        self.dimension: int | None = None
        self._corpus: Dataset | None = None

    @property
    def encoder(self) -> TextEncoder:
        """The model, if it gives vectors."""
        if isinstance(self._model, TextRanker):
            raise DataError(
                "The task needs a vector for each text, and the model ranks documents.",
                hint="Score it with a model that gives vectors (`harness list models`).",
            )
        return self._model

    def encode(self, inputs: Any, *, prompt_type: Any = None, **_: Any) -> NDArray[np.float32]:
        """The vectors of a data loader's texts, shape (texts, dimension)."""
        return self.encoder.encode(list(inputs.dataset["text"]), role=_parse_prompt_role(prompt_type))

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """All similarities between two sets of vectors, shape (n, m)."""
        return self._resolve_similarity("")(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """The similarities of vectors pair by pair, shape (n,)."""
        return self._resolve_similarity("pairwise_")(embeddings1, embeddings2)

    def index(self, corpus: Dataset, **_: Any) -> None:
        """Store the documents for the next search."""
        self._corpus = corpus

    def search(
        self,
        queries: Dataset,
        *,
        task_metadata: TaskMetadata,
        hf_split: str,
        hf_subset: str,
        top_k: int,
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        **_: Any,
    ) -> dict[str, dict[str, float]]:
        """The best documents of each query, or the scores of those in `top_ranked`.

        Args:
            queries: The queries of mteb, with `id` and `text`.
            task_metadata: mteb's facts on the task, for the language.
            hf_split: The split, under which the result is kept in `found`.
            hf_subset: The subset, likewise.
            top_k: The documents of each query.
            top_ranked: By query id the ids of its candidates; None for a search of the whole corpus.

        Returns:
            Query id → document id → score.
        """
        assert self._corpus is not None
        query_texts = _format_query_texts(queries)
        names = (list(queries["id"]), list(self._corpus["id"]))
        if isinstance(self._model, TextRanker):
            language = _find_subset_language(task_metadata, hf_subset)
            read = _format_document_lines if self._model.titles_on_lines else _format_document_texts
            documents = read(self._corpus, self._documents)
            results = _run_ranker(self._model, query_texts, documents, names, top_k, top_ranked, language)
        else:
            documents = _format_document_texts(self._corpus, self._documents)
            # Announced as a whole, since the search asks for documents block by block.
            self.encoder.require(query_texts, role="query")
            self.encoder.require(documents, role="document")
            vectors = self.encoder.encode(query_texts, role="query")
            if top_ranked is None:
                results = self._search_documents(vectors, documents, names, top_k)
            else:
                results = self._score_candidates(vectors, documents, names, top_ranked)
        # mteb gives a corpus before each search; a large one is not held until then.
        self._corpus = None
        self.found[hf_subset, hf_split] = results
        return results

    def _search_documents(
        self, vectors: NDArray[np.float32], documents: list[str], names: tuple[list[str], list[str]], k: int
    ) -> dict[str, dict[str, float]]:
        from harness.search.exact import find_top_k

        scores, indices = find_top_k(
            vectors,
            lambda start, end: self.encoder.encode(documents[start:end], role="document"),
            len(documents),
            k=k,
            similarity=self.encoder.similarity,
        )
        query_ids, document_ids = names
        return {
            query: {
                document_ids[i]: s for i, s in zip(indices[row].tolist(), scores[row].tolist(), strict=True)
            }
            for row, query in enumerate(query_ids)
        }

    def _score_candidates(
        self,
        vectors: NDArray[np.float32],
        documents: list[str],
        names: tuple[list[str], list[str]],
        top_ranked: Mapping[str, Sequence[str]],
    ) -> dict[str, dict[str, float]]:
        from harness.search.exact import compare

        query_ids, document_ids = names
        where = {document: row for row, document in enumerate(document_ids)}
        results: dict[str, dict[str, float]] = {}
        for row, query in enumerate(query_ids):
            candidates = list(top_ranked.get(query, ()))
            results[query] = {}
            if candidates:
                block = self.encoder.encode([documents[where[c]] for c in candidates], role="document")
                scores = compare(vectors[row], block, self.encoder.similarity)
                results[query] = dict(zip(candidates, scores, strict=True))
        return results

    def _resolve_similarity(self, prefix: str) -> Any:
        from mteb import similarity_functions as functions

        names = {"cosine": "cos_sim", "dot": "dot_score", "euclidean": "euclidean_sim"}
        # mteb has no function for this one.
        if self.encoder.similarity == "manhattan":
            from sentence_transformers import util

            return getattr(util, f"{prefix}manhattan_sim")
        return getattr(functions, prefix + names[self.encoder.similarity])


class CheckedEncoder:
    """An object of mteb's EncoderProtocol, used as mteb uses it, with checks of its vectors.

    `found` is as of a Model, and `dimension` that of its vectors.
    """

    def __init__(self, encoder: Any) -> None:
        from mteb.models import SearchEncoderWrapper, SearchProtocol

        self._encoder = encoder
        self.mteb_model_meta = encoder.mteb_model_meta
        self.similarity, self.similarity_pairwise = encoder.similarity, encoder.similarity_pairwise
        # Some encoders of mteb search in a way of their own.
        self._search: Any = encoder if isinstance(encoder, SearchProtocol) else SearchEncoderWrapper(self)
        self.index = self._search.index
        self.found: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
        self.dimension: int | None = None

    def encode(self, inputs: Any, **options: Any) -> Any:
        """The vectors of a data loader's texts as the object gives them, or a ModelError."""
        import torch

        from harness.encoder.sanity import require_sane_vectors

        vectors, texts = self._encoder.encode(inputs, **options), list(inputs.dataset["text"])
        shape = tuple(getattr(vectors, "shape", ()))
        width = self.dimension or (shape[-1] if shape else 0)
        if shape != (len(texts), width) or getattr(vectors, "is_sparse", False):
            before = f", after vectors of {self.dimension} numbers" if self.dimension else ""
            raise ModelError(
                f"encode gave a {type(vectors).__name__} of shape {shape} for {len(texts)} texts{before}.",
                hint="Give a dense array of numpy or torch with a row for each text, in their order.",
            )
        self.dimension = width
        require_sane_vectors(torch.as_tensor(vectors).detach().float().cpu().numpy(), texts)
        return vectors

    def search(self, queries: Dataset, **options: Any) -> dict[str, dict[str, float]]:
        """The best documents of each query; arguments and results as in `Model.search`."""
        results: dict[str, dict[str, float]] = self._search.search(queries, **options)
        self.found[options["hf_subset"], options["hf_split"]] = results
        return results


def build_model(model: Any, documents: DocumentText) -> Model | CheckedEncoder:
    """A TextModel as mteb knows it; arguments as of a Model."""
    is_object = isinstance(model, ObjectEncoder)
    return CheckedEncoder(model.encoder) if is_object else Model(model, documents)


def _run_ranker(
    ranker: TextRanker,
    asked: list[str],
    documents: list[str],
    names: tuple[list[str], list[str]],
    k: int,
    top_ranked: Mapping[str, Sequence[str]] | None,
    language: str,
) -> dict[str, dict[str, float]]:
    """The best documents of each query by a ranker, or the scores of those in `top_ranked`."""
    query_ids, document_ids = names
    candidates = None
    if top_ranked is not None:
        where = {document: row for row, document in enumerate(document_ids)}
        candidates = [[where[name] for name in top_ranked.get(query, ())] for query in query_ids]
    rankings = ranker.rank(asked, documents, k=k, language=language, candidates=candidates)
    return {
        query: {document_ids[i]: s for i, s in zip(at.tolist(), scores.tolist(), strict=True)}
        for query, (at, scores) in zip(query_ids, rankings, strict=True)
    }


def _format_document_lines(corpus: Dataset, documents: DocumentText) -> list[str]:
    """Title, line break and text of each document, as mteb's BM25 reads them, or the text alone."""
    texts = list(corpus["text"])
    titles = _list_titles(corpus, documents)
    return [
        text if not isinstance(text, str) else f"{title or ''}\n{text}"
        for title, text in zip(titles, texts, strict=True)
    ]


def _find_subset_language(about: TaskMetadata, subset: str) -> str:
    """The language of a subset (ISO 639-3), empty where it has several."""
    subset_languages = about.eval_langs
    languages = subset_languages.get(subset, []) if isinstance(subset_languages, dict) else subset_languages
    codes = {language.partition("-")[0] for language in languages}
    return codes.pop() if len(codes) == 1 else ""


def _format_query_texts(queries: Dataset) -> list[str]:
    """The text of each query for the model, by mteb's own rules (instructions, dialogues)."""
    from mteb._create_dataloaders import _retrieval_texts
    from mteb.types import PromptType

    # The usual case, without mteb's row by row map.
    if set(queries.column_names) <= {"id", "text"} and isinstance(queries[0]["text"], str):
        return list(queries["text"])
    return list(_retrieval_texts(queries, PromptType.query))


def _format_document_texts(corpus: Dataset, documents: DocumentText = DOCUMENT_TEXT) -> list[str]:
    """Title, blank and text of each document, stripped, as by mteb's row by row map (a test compares).

    With `documents` "text" a document is its text alone.
    """
    texts = list(corpus["text"])
    titles = _list_titles(corpus, documents)
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"Row {row} of the corpus cannot be read: its text is {text!r}.")
    return [
        f"{title} {text}".strip() if title else text.strip()
        for title, text in zip(titles, texts, strict=True)
    ]


_TEXT_COLUMNS = ("sentence1", "sentence2", "sentences", "text", "positive")
"""The columns of texts in tasks that name none, from the code of Morris and Rush (2024)."""


def collect_corpus_texts(task: Any, documents: DocumentText = DOCUMENT_TEXT) -> list[Any] | None:
    """The texts of a loaded task of mteb: its documents, else the columns of text in its scored splits.

    None where it has no such column. Rows that are not text are included.
    """
    parts = list(_iter_scored_parts(task.dataset, frozenset(task.eval_splits)))
    if any(isinstance(part, Mapping) and "corpus" in part for part in parts):
        return [text for part in parts for text in _format_document_texts(part["corpus"], documents)]
    named = [name for name, kind in task._get_content_columns().items() if kind == "text"]
    tables = [part for part in parts if hasattr(part, "column_names")]
    columns = [
        table[name][:]
        for table in tables
        for name in dict.fromkeys(named or _TEXT_COLUMNS)
        if name in table.column_names
    ]
    if not columns:
        return None
    rows = itertools.chain.from_iterable(columns)
    # The old form of a clustering has a list of texts in each row.
    return [text for row in rows for text in (row if isinstance(row, list) else [row])]


def _iter_scored_parts(dataset: Any, splits: frozenset[str]) -> Iterator[Any]:
    """The data of each scored split, in every subset."""
    for name, inner in dataset.items():
        if name in splits:
            yield inner
        elif isinstance(inner, Mapping):
            yield from (part for split, part in inner.items() if split in splits)


def _list_titles(corpus: Dataset, documents: DocumentText) -> list[str | None]:
    """The title of each document, None where it has none or where only texts count."""
    titled = documents == "title and text" and "title" in corpus.column_names
    return list(corpus["title"]) if titled else [None] * len(corpus)


def _parse_prompt_role(prompt_type: Any) -> Role:
    if prompt_type is None:
        return ""
    return "query" if prompt_type.value == "query" else "document"


_PACKAGES = ("mteb", "torch", "sentence-transformers", "flash-attn", "transformers")
"""The packages whose versions mteb notes for each task."""

_KINDS = {"vector": "dense", "multivector": "late-interaction", "ranking": "sparse"}


def write_results(records: Sequence[Record], *, name: str, revision: str, folder: Path) -> tuple[Path, ...]:
    """Write the files of some tasks, the model's card and the notes on versions; gives the tasks' files.

    Args:
        records: Records of tasks of mteb on the data that it pins.
        name: The model's name, `org/name`.
        revision: The model's revision.
        folder: The folder of a `mteb.ResultCache`.

    Raises:
        StoreError: The folder cannot be written.
    """
    from mteb.cache import ResultCache
    from mteb.results.task_result import _write_and_merge_keyed_json

    meta, files = _build_model_meta(records, name, revision), []
    try:
        cache = ResultCache(folder)
        for record in records:
            cache.save_to_cache(_build_task_result(record), meta)
            files.append(cache.get_task_result_path(record.task.name, meta))
        # save_to_cache notes the versions that are installed now, which need not be those of the run.
        path = files[-1].with_name("run_settings.jsonl")
        _write_and_merge_keyed_json(path, [entry for one in records for entry in _list_settings(one)])
    except OSError as error:
        raise write_error(folder, error) from error
    return tuple(files)


def _build_task_result(record: Record) -> Any:
    import mteb
    from mteb.results import TaskResult

    provenance, version = record.provenance, record.identity["scoring"].split(" ")[1]
    scores = {
        split: {subset: {**metrics, "mteb_version": version} for subset, metrics in subsets.items()}
        for split, subsets in record.scores.items()
    }
    written = provenance.get("written")
    return TaskResult.from_task_results(
        mteb.get_task(record.task.name),
        scores,
        evaluation_time=sum(provenance.get("seconds", {}).values()),
        date=datetime.fromisoformat(written) if written else None,
    )


def _list_settings(record: Record) -> list[dict[str, Any]]:
    """What mteb notes of a run, with the versions of the packages that ran it."""
    packages = record.provenance.get("packages", {})
    about = {"version": {name: packages.get(name) for name in _PACKAGES}, "encode_kwargs": {}}
    return [
        {"task": record.task.name, "splits": [split], **about, "subsets": sorted(subsets)}
        for split, subsets in record.scores.items()
    ]


def _build_model_meta(records: Sequence[Record], name: str, revision: str) -> ModelMeta:
    """mteb's own card of a model that it knows, else one with what the records say and no more."""
    import mteb
    from mteb.models import ModelMeta

    try:
        # A card in a file has no loader: what names one cannot be read again.
        return mteb.get_model_meta(name, revision).model_copy(update={"loader": None})
    except (KeyError, ValueError):
        pass
    about, output = records[0].model, records[0].identity["encoding"]["output"]
    # No length and no similarity: those of a record are settings of its run, those of a card the model's.
    facts = {
        "name": name,
        "revision": revision,
        "n_parameters": about.parameters,
        "embed_dim": about.dimension,
        "framework": [] if output == "ranking" else ["PyTorch"],
        "use_instructions": any(text for one in records for text in one.identity["prompts"].values()),
        "model_type": [_KINDS[output]],
    }
    return ModelMeta.model_validate({**ModelMeta.create_empty().model_dump(), **facts})
