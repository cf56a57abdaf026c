"""Why a document has its MaxSim for a query: the token of it that each token of the query matches best."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.core.encoding import Encoding, OwnTexts, TextTokens
from harness.core.errors import UsageError
from harness.core.types import SIDES, Role
from harness.jobs.context import JobContext
from harness.plan.plan import ConfiguredModel
from harness.storage.vectors import TokenVectors

_TEXTS = OwnTexts()


@dataclass(frozen=True, kw_only=True)
class _TokenMatch:
    """A token of the query, the token of the document that is most similar to it, and their similarity.

    Both are places among the tokens of an Explanation, and the similarity is their dot product.
    """

    query: int
    document: int
    similarity: float


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """The matches behind the score of a document.

    Attributes:
        query: The tokens of the query.
        document: The tokens of the document.
        matches: The best match of each token of the query; none where no token of the document has a vector.
        total: The MaxSim, the sum of their similarities; None likewise.
        matrix: The similarity of each token of the query, a row, to each of the document, a column; None in
            the columns of tokens that have no vector.
        notes: What to know about the texts, in sentences.
    """

    query: TextTokens
    document: TextTokens
    matches: tuple[_TokenMatch, ...]
    total: float | None
    matrix: tuple[tuple[float | None, ...], ...]
    notes: tuple[str, ...]


def require_token_vectors(one: ConfiguredModel) -> Encoding:
    """The encoding of a model with a vector for each token.

    Raises:
        UsageError: It is another model.
    """
    if isinstance(one.encoding, Encoding) and one.interacts_late:
        return one.encoding
    does = "ranks documents by their words" if one.ranks else "gives one vector for each text"
    raise UsageError(
        f"{one.artifact.name} {does}: no token of a query matches one of a document.",
        hint="`harness explain` takes a model with a vector for each token, a folder that PyLate saved "
        "(docs/retrieval.md).",
    )


def explain(one: ConfiguredModel, query: str, document: str, context: JobContext) -> Explanation:
    """The matches between the tokens of a query and those of a document.

    The vectors are those of a run, in the precision in which it keeps them; none are kept here.

    Raises:
        UsageError: The model has no vector for each token, or a text is blank.
        ModelError: The model does not load.
    """
    from harness.search.search import maxsim

    encoding = require_token_vectors(one)
    for side, text in zip(SIDES, (query, document), strict=True):
        if not text.strip():
            raise UsageError(f"The {side} has no text.", hint="Is a variable of the shell unset?")
    asked, ours = _encoded(one, encoding, query, "query", context)
    there, theirs = _encoded(one, encoding, document, "document", context)
    found = not all(token.skipped for token in there.tokens)
    products = ours.vectors.astype("float32") @ theirs.vectors.astype("float32").T
    return Explanation(
        query=asked,
        document=there,
        matches=_matches(products, asked, there) if found else (),
        total=float(maxsim(ours, theirs, device=context.device)[0, 0]) if found else None,
        matrix=_matrix(products, there),
        notes=tuple(_notes(asked, there)),
    )


def _encoded(
    one: ConfiguredModel, encoding: Encoding, text: str, role: Role, context: JobContext
) -> tuple[TextTokens, TokenVectors]:
    """The tokens of a text, and the vectors of those that have one, which a run may have left."""
    encoder: Any = context.engine(one.artifact, encoding)
    asked = (one.artifact, encoding, _TEXTS, role)
    context.encode_missing(*asked, [text], hold=True)
    tokens: TextTokens = encoder.tokens(text, prompt=encoding.prompt(_TEXTS, role), role=role)
    return tokens, context.space(*asked).get_tokens([text])


def _places(tokens: TextTokens) -> list[int]:
    """The places of the tokens that have a vector."""
    return [at for at, token in enumerate(tokens.tokens) if not token.skipped]


def _matches(
    products: NDArray[np.float32], query: TextTokens, document: TextTokens
) -> tuple[_TokenMatch, ...]:
    columns = _places(document)
    best = products.argmax(axis=1)
    return tuple(
        _TokenMatch(query=at, document=columns[column], similarity=float(products[row, column]))
        for row, (at, column) in enumerate(zip(_places(query), best.tolist(), strict=True))
    )


def _matrix(products: NDArray[np.float32], document: TextTokens) -> tuple[tuple[float | None, ...], ...]:
    columns = {at: column for column, at in enumerate(_places(document))}
    return tuple(
        tuple(row[columns[at]] if at in columns else None for at in range(len(document.tokens)))
        for row in products.tolist()
    )


def _notes(query: TextTokens, document: TextTokens) -> Iterator[str]:
    for side, tokens in (("query", query), ("document", document)):
        if tokens.cut:
            yield f"the {side} has {tokens.whole:,} tokens; the last {tokens.cut:,} are cut off"
    skipped = sum(token.skipped for token in document.tokens)
    if skipped == len(document.tokens):
        yield "no token of the document has a vector: no query finds it, and it has no score"
    elif skipped:
        yield f"{skipped:,} of {len(document.tokens):,} tokens of the document have no vector (skiplist)"
