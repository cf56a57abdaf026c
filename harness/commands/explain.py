"""`harness explain`: which token of a document each token of a query matches."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text

from harness.commands import options
from harness.core import files
from harness.core.arguments import check_fields, parse_allowances
from harness.core.encoding import Encoding, OwnTexts, Settings, TextToken, TextTokens
from harness.core.errors import UsageError
from harness.core.provenance import forbid_network
from harness.core.terminal import create_console, create_table, print_lines, print_table
from harness.core.types import SIDES, Role
from harness.executors.local import choose_device
from harness.jobs.context import JobContext, WorkerLimits
from harness.plan.catalog import read_prompts, require_sides
from harness.plan.models import ModelOptions, resolve_model
from harness.plan.plan import ConfiguredModel
from harness.storage.vectors import TokenVectors

SCHEMA = 1
"""The version of the --json output (docs/json.md)."""


@click.command("explain")
@click.option(
    "--model",
    required=True,
    metavar="MODEL",
    help="Multi-vector (ColBERT) model: a folder that PyLate saved, or org/name[@revision].",
)
@click.option("--query", required=True, metavar="TEXT", help="The query, or @FILE with its text.")
@click.option("--document", required=True, metavar="TEXT", help="The document, or @FILE with its text.")
@click.option("--matrix", is_flag=True, help="Also show the similarity of every pair of tokens.")
@options.add_options(
    "max_length", "query_length", "dtype", "vectors", "prompts", "prompt_file", "cache", "offline"
)
@options.device
@options.add_options("threads", "trust_remote_code", "allow")
@options.as_json
def command(
    model: str, query: str, document: str, matrix: bool, device: str, as_json: bool, **given: Any
) -> int:
    """Show which token of a document each token of a query matches, with their similarity.

    The sum of the similarities is the MaxSim, the score that `harness run` ranks documents by.
    """
    texts = _read_text_option("query", query), _read_text_option("document", document)
    with forbid_network() if given["offline"] else contextlib.nullcontext():
        configured_model = resolve_model(model, _build_text_settings(given), _build_model_options(given))
        encoding = _require_token_vectors(configured_model)
        explanation = _explain(configured_model, encoding, *texts, _build_job_context(device, given))
    if as_json:
        document_json = _serialize_explanation(configured_model, explanation, matrix=matrix)
        click.echo(json.dumps(document_json, indent=1, ensure_ascii=False))
    else:
        _print_explanation(configured_model, explanation, matrix=matrix)
    return 0


def _read_text_option(side: str, text: str) -> str:
    """The typed text, or the text of the file whose name follows an @."""
    if not text.startswith("@"):
        return text
    path = files.resolve_home_path(text[1:])
    try:
        # Editors end a file with a line feed, which is no part of the text and could be a token.
        return path.read_text(encoding="utf-8").rstrip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(
            f"The {side} in {path} cannot be read: {reason}.",
            hint="An @ is followed by the name of a file. Put a text that begins with an @ into a file.",
        ) from error


def _build_text_settings(values: dict[str, Any]) -> Settings:
    how = ("max_length", "query_length", "dtype", "vectors")
    prompts = read_prompts(values["prompts"], values["prompt_file"])
    require_sides(prompts)
    settings = Settings(prompts=prompts, **{name: values[name] for name in how})
    return check_fields(settings, Settings, "settings")


def _build_model_options(values: dict[str, Any]) -> ModelOptions:
    return ModelOptions(
        offline=values["offline"],
        trust_remote_code=values["trust_remote_code"],
        cache=files.resolve_cache_folder(values["cache"]),
        allow=parse_allowances(values["allow"]),
        results=files.resolve_results_folder(None),
    )


def _build_job_context(device: str, values: dict[str, Any]) -> JobContext:
    limits = WorkerLimits(threads=values["threads"])
    cache = files.resolve_cache_folder(values["cache"])
    return JobContext(device=choose_device(device), cache=cache, emit=lambda _event: None, limits=limits)


def _serialize_explanation(
    model: ConfiguredModel, explanation: _Explanation, *, matrix: bool
) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "model": {"name": model.artifact.name, "artifact": model.artifact.key},
        "total": explanation.total,
        "query": _serialize_side(explanation.query),
        "document": _serialize_side(explanation.document),
        "matches": [asdict(match) for match in explanation.matches],
        **({"matrix": explanation.matrix} if matrix else {}),
        "notes": list(explanation.notes),
    }


def _serialize_side(side: TextTokens) -> dict[str, Any]:
    return {"tokens": [asdict(token) for token in side.tokens], "whole": side.whole, "cut": side.cut}


def _print_explanation(model: ConfiguredModel, explanation: _Explanation, *, matrix: bool) -> None:
    out = create_console()
    if explanation.matches:
        print_table(_build_matches_table(explanation), out)
        if matrix:
            print_table(_build_matrix_table(explanation), out)
    if explanation.total is not None:
        tokens = len(explanation.matches)
        summary = f"MaxSim of {model.artifact.name}: {explanation.total:.5f}, the sum over {tokens} tokens"
        print_lines([summary], out)
    notes = (f"{note[:1].upper()}{note[1:]}." for note in explanation.notes)
    print_lines(notes, out, style="yellow")


def _build_matches_table(explanation: _Explanation) -> Table:
    title = "the best match of each token of the query"
    table = create_table("query", "", "document", "characters", numbers=["similarity"], title=title)
    for match in explanation.matches:
        query_token = explanation.query.tokens[match.query]
        document_token = explanation.document.tokens[match.document]
        span = "" if document_token.start is None else f"{document_token.start}–{document_token.end}"
        cells = (
            query_token.token,
            _describe_token_kind(query_token),
            document_token.token,
            span or _describe_token_kind(document_token),
        )
        table.add_row(*map(Text, cells), f"{match.similarity:.4f}")
    return table


def _build_matrix_table(explanation: _Explanation) -> Table:
    title = "the similarity of each token of the query (rows) and of the document (columns)"
    table = create_table("", title=title)
    places = _list_vector_places(explanation.document)
    for place in places:
        table.add_column(Text(explanation.document.tokens[place].token), justify="right")
    for token, row in zip(explanation.query.tokens, explanation.matrix, strict=True):
        table.add_row(Text(token.token), *(f"{row[at]:.2f}" for at in places))
    return table


def _describe_token_kind(token: TextToken) -> str:
    return "" if token.kind == "text" else token.kind


_TEXTS = OwnTexts()


@dataclass(frozen=True, kw_only=True)
class _TokenMatch:
    """A token of the query, the token of the document that is most similar to it, and their similarity.

    Both are places among the tokens of an explanation, and the similarity is their dot product.
    """

    query: int
    document: int
    similarity: float


@dataclass(frozen=True, kw_only=True)
class _Explanation:
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


def _require_token_vectors(model: ConfiguredModel) -> Encoding:
    """The encoding of a multi-vector (ColBERT) model.

    Raises:
        UsageError: It is another model.
    """
    if isinstance(model.encoding, Encoding) and model.interacts_late:
        return model.encoding
    does = "ranks documents by their words" if model.ranks else "gives one vector for each text"
    raise UsageError(
        f"{model.artifact.name} {does}: no token of a query matches one of a document.",
        hint="`harness explain` takes a multi-vector (ColBERT) model, a folder that PyLate saved "
        "(docs/retrieval.md).",
    )


def _explain(
    model: ConfiguredModel, encoding: Encoding, query: str, document: str, context: JobContext
) -> _Explanation:
    """The matches between the tokens of a query and those of a document.

    The vectors are those of a run, in the precision in which it keeps them; none are kept here.

    Raises:
        UsageError: A text is blank.
        ModelError: The model does not load.
    """
    from harness.search.maxsim import compute_maxsim

    for side, text in zip(SIDES, (query, document), strict=True):
        if not text.strip():
            raise UsageError(f"The {side} has no text.", hint="Is a variable of the shell unset?")
    query_tokens, ours = _encode_text_tokens(model, encoding, query, "query", context)
    document_tokens, theirs = _encode_text_tokens(model, encoding, document, "document", context)
    has_vectors = not all(token.skipped for token in document_tokens.tokens)
    # Vectors may be kept in float16; a search multiplies them in float32, and so must their explanation.
    products = ours.vectors.astype("float32") @ theirs.vectors.astype("float32").T
    return _Explanation(
        query=query_tokens,
        document=document_tokens,
        matches=_match_tokens(products, query_tokens, document_tokens) if has_vectors else (),
        total=float(compute_maxsim(ours, theirs, device=context.device)[0, 0]) if has_vectors else None,
        matrix=_build_similarity_matrix(products, document_tokens),
        notes=tuple(_iter_token_notes(query_tokens, document_tokens)),
    )


def _encode_text_tokens(
    model: ConfiguredModel, encoding: Encoding, text: str, role: Role, context: JobContext
) -> tuple[TextTokens, TokenVectors]:
    """The tokens of a text, and the vectors of those that have one, which a run may have left."""
    encoder: Any = context.get_encoder(model.artifact, encoding)
    space_key = (model.artifact, encoding, _TEXTS, role)
    # Nothing writes these vectors to the cache, as `emit` drops them: hold keeps them in memory.
    context.encode_missing(*space_key, [text], hold=True)
    tokens: TextTokens = encoder.describe_tokens(
        text, prompt=encoding.resolve_prompt(_TEXTS, role), role=role
    )
    return tokens, context.open_space(*space_key).get_tokens([text])


def _list_vector_places(tokens: TextTokens) -> list[int]:
    """The places of the tokens that have a vector."""
    return [at for at, token in enumerate(tokens.tokens) if not token.skipped]


def _match_tokens(
    products: NDArray[np.float32], query: TextTokens, document: TextTokens
) -> tuple[_TokenMatch, ...]:
    columns = _list_vector_places(document)
    best = products.argmax(axis=1)
    return tuple(
        _TokenMatch(query=at, document=columns[column], similarity=float(products[row, column]))
        for row, (at, column) in enumerate(zip(_list_vector_places(query), best.tolist(), strict=True))
    )


def _build_similarity_matrix(
    products: NDArray[np.float32], document: TextTokens
) -> tuple[tuple[float | None, ...], ...]:
    columns = {at: column for column, at in enumerate(_list_vector_places(document))}
    return tuple(
        tuple(row[columns[at]] if at in columns else None for at in range(len(document.tokens)))
        for row in products.tolist()
    )


def _iter_token_notes(query: TextTokens, document: TextTokens) -> Iterator[str]:
    for side, tokens in (("query", query), ("document", document)):
        if tokens.cut:
            yield f"the {side} has {tokens.whole:,} tokens; the last {tokens.cut:,} are cut off"
    skipped = sum(token.skipped for token in document.tokens)
    if skipped == len(document.tokens):
        yield "no token of the document has a vector: no query finds it, and it has no score"
    elif skipped:
        yield f"{skipped:,} of {len(document.tokens):,} tokens of the document have no vector (skiplist)"
