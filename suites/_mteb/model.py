"""An mteb model whose vectors come from ours: mteb scores, we encode and search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.errors import DataError
from harness.search import compare, top_k
from harness.types import Role, TextEncoder

if TYPE_CHECKING:
    import numpy as np
    from datasets import Dataset
    from mteb.models import ModelMeta
    from numpy.typing import NDArray


class Model:
    """Speaks mteb's encoder and search protocols for a TextEncoder.

    `found` keeps what each search returned, by (subset, split): query id → document id → score.
    """

    mteb_model_meta: ModelMeta

    def __init__(self, encoder: TextEncoder) -> None:
        from mteb.models import ModelMeta

        self.encoder = encoder
        names = {"name": "encoder/under-test", "revision": "0"}
        self.mteb_model_meta = ModelMeta.create_empty(overwrites=names)
        self.found: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
        self._corpus: Dataset | None = None

    def encode(self, inputs: Any, *, prompt_type: Any = None, **_: Any) -> NDArray[np.float32]:
        """The vectors of a data loader's texts, shape (texts, dimension)."""
        return self.encoder.encode(list(inputs.dataset["text"]), role=_role(prompt_type))

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """All similarities between two sets of vectors, shape (n, m)."""
        return self._function("")(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """The similarities of vectors pair by pair, shape (n,)."""
        return self._function("pairwise_")(embeddings1, embeddings2)

    def index(self, corpus: Dataset, **_: Any) -> None:
        """Take the documents that will be searched."""
        self._corpus = corpus

    def search(
        self,
        queries: Dataset,
        *,
        hf_split: str,
        hf_subset: str,
        top_k: int,
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        **_: Any,
    ) -> dict[str, dict[str, float]]:
        """The best documents of each query, or the order of those given in `top_ranked`."""
        assert self._corpus is not None
        asked, documents = query_texts(queries), document_texts(self._corpus)
        self.encoder.require(asked, role="query")
        self.encoder.require(documents, role="document")
        vectors = self.encoder.encode(asked, role="query")
        names = (list(queries["id"]), list(self._corpus["id"]))
        if top_ranked is None:
            results = self._search(vectors, documents, names, top_k)
        else:
            results = self._rerank(vectors, documents, names, top_ranked)
        self._corpus = None
        self.found[hf_subset, hf_split] = results
        return results

    def _search(
        self, vectors: NDArray[np.float32], documents: list[str], names: tuple[list[str], list[str]], k: int
    ) -> dict[str, dict[str, float]]:
        scores, at = top_k(
            vectors,
            lambda start, end: self.encoder.encode(documents[start:end], role="document"),
            len(documents),
            k=k,
            similarity=self.encoder.similarity,
        )
        query_ids, document_ids = names
        return {
            query: {document_ids[i]: s for i, s in zip(at[row].tolist(), scores[row].tolist(), strict=True)}
            for row, query in enumerate(query_ids)
        }

    def _rerank(
        self,
        vectors: NDArray[np.float32],
        documents: list[str],
        names: tuple[list[str], list[str]],
        top_ranked: Mapping[str, Sequence[str]],
    ) -> dict[str, dict[str, float]]:
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

    def _function(self, prefix: str) -> Any:
        from mteb import similarity_functions as functions

        names = {"cosine": "cos_sim", "dot": "dot_score", "euclidean": "euclidean_sim"}
        if self.encoder.similarity == "manhattan":
            from sentence_transformers import util

            return getattr(util, f"{prefix}manhattan_sim")
        return getattr(functions, prefix + names[self.encoder.similarity])


def query_texts(queries: Dataset) -> list[str]:
    """The text of each query as a model reads it, by mteb's own rules (instructions, dialogues)."""
    from mteb._create_dataloaders import _retrieval_texts
    from mteb.types import PromptType

    if set(queries.column_names) <= {"id", "text"} and isinstance(queries[0]["text"], str):
        return list(queries["text"])
    return list(_retrieval_texts(queries, PromptType.query))


def document_texts(corpus: Dataset) -> list[str]:
    """The text of each document as a model reads it: title, a blank, text, stripped.

    The same as mteb's row by row map, over whole columns (a test compares the two).

    Raises:
        DataError: A document has no text.
    """
    texts = list(corpus["text"])
    titles = list(corpus["title"]) if "title" in corpus.column_names else [None] * len(texts)
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"Row {row} of the corpus cannot be read: its text is {text!r}.")
    return [
        f"{title} {text}".strip() if title else text.strip()
        for title, text in zip(titles, texts, strict=True)
    ]


def _role(prompt_type: Any) -> Role:
    if prompt_type is None:
        return ""
    return "query" if prompt_type.value == "query" else "document"
