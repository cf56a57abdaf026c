"""How a model is asked to encode: the requested settings and dtype, with the model's own defaults elsewhere.

Imports neither torch nor transformers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast, get_args

from harness.core.encoding import (
    ContextChoice,
    ContextDraw,
    Encoding,
    EvaluationSettings,
    LateInteraction,
    Plaid,
    Settings,
    parse_rope_scaling,
)
from harness.core.errors import UsageError, explain_unknown
from harness.core.types import MAXSIM, Dtype, Similarity
from harness.encoder.folder.description import Description
from harness.encoder.folder.modules_and_pooling import ATTENTION, MODEL2VEC, OWN_POOLING, POOLING_FLAGS
from harness.search.bm25 import describe_ranking
from harness.search.plaid import EXACT, NAME, describe_index, parse_plaid
from harness.storage.record import APPROXIMATE


def _choose_dtype(settings: Settings, evaluation: EvaluationSettings) -> Dtype:
    """The dtype that a user asks for, else that of the recipe's evaluations, else float32."""
    return settings.dtype or evaluation.dtype or "float32"


def require_runnable(dtype: Dtype, device: str) -> None:
    """Refuse a dtype in which a device runs no model.

    Raises:
        UsageError: It is float16 on a CPU.
    """
    if dtype == "float16" and device == "cpu":
        raise UsageError(
            "float16 is not run on a CPU: its range is too small for what is summed there.",
            hint="Ask for bfloat16 or float32.",
        )


def resolve_encoding(
    description: Description, settings: Settings, evaluation: EvaluationSettings | None = None
) -> Encoding:
    """The encoding of a model: the requested settings, and the model's own defaults elsewhere.

    A bare backbone has its family's pooling by default. An empty prompt is preserved: it means no prompt, not
    the default prompt.

    Args:
        description: The model.
        settings: As the user asked for them.
        evaluation: What holds of a recipe's beside them (`EvaluationSettings.limit_settings`).

    Raises:
        UsageError: The pooling is unknown, or the length exceeds the model's positions, also the scaled ones.
    """
    evaluation = evaluation or EvaluationSettings()
    if settings.max_length is None:
        settings = replace(settings, max_length=evaluation.max_length)
    model_prompts = description.prompts if evaluation.prompts is None else evaluation.prompts
    prompts = {**model_prompts, **(settings.prompts or {})}
    default = description.default_prompt_name
    normalize = description.normalize
    _check_similarity(description, settings)
    shared: dict[str, Any] = {
        "dtype": _choose_dtype(settings, evaluation),
        "similarity": settings.similarity or description.similarity_fn_name,
        "prompts": tuple(sorted(prompts.items())),
        "default_prompt": default if default in prompts else None,
        "rope_scaling": _resolve_rope_scaling(description, settings),
    }
    if description.late_interaction is not None:
        late = _resolve_late_interaction(description, settings)
        return Encoding(
            output="multivector",
            pooling="",
            normalize=True,
            max_length=max(late.query_length, late.document_length),
            vectors=settings.vectors or "float16",
            late_interaction=replace(late, by_task=late.by_task and evaluation.task_query_lengths),
            document_lengths=tuple(evaluation.document_lengths.items()),
            index=_resolve_search_index(description, late, settings),
            exact=settings.index == EXACT,
            **shared,
        )
    return Encoding(
        pooling=_resolve_pooling(description, settings.pooling),
        normalize=normalize if settings.normalize is None else settings.normalize,
        max_length=_resolve_max_length(description, settings.max_length, settings),
        vectors=settings.vectors or "float32",
        context=_resolve_context_draw(description, settings),
        truncate_dim=description.truncate_dim,
        normalized_types=evaluation.normalized_types,
        **shared,
    )


def _check_similarity(description: Description, settings: Settings) -> None:
    """Refuse what is not for the model: a comparison, a search, a length, a context."""
    late, similarity = description.late_interaction is not None, settings.similarity
    name = description.name
    if similarity is not None and (similarity in MAXSIM) != late:
        similarities = [one for one in get_args(Similarity) if (one in MAXSIM) == late]
        gives = "a vector for each token" if late else "one vector for each text"
        raise UsageError(
            f"{name} gives {gives}, which {similarity} does not compare.",
            hint=f"Choose one of {', '.join(similarities)}, or leave out --similarity.",
        )
    if settings.index and parse_plaid(settings.index) is not None and not late:
        raise UsageError(
            f"{name} gives one vector for each text, and --index {NAME} searches vectors of tokens.",
            hint="Leave out --index.",
        )
    if settings.query_length is not None and not late:
        raise UsageError(
            f"{name} has one length for all texts, and no length of queries.",
            hint="Type --max-length, or leave out --query-length.",
        )
    if settings.context is not None and description.two_stage is None:
        raise UsageError(
            f"The vectors of {name} depend on no context documents.", hint="Leave out --context."
        )


def _resolve_context_draw(description: Description, settings: Settings) -> ContextDraw | None:
    """The draw of the context documents; None for a model whose vectors depend on none."""
    stages, name = description.two_stage, description.folder.name
    if stages is None:
        return None
    prefixes = {*description.prompts.values()}
    strange = sorted({text for text in (settings.prompts or {}).values() if text not in prefixes})
    if strange and prefixes:
        raise UsageError(
            f"{name} was trained with the prefixes {', '.join(map(repr, sorted(prefixes)))}, and its context "
            f"documents would have {strange[0]!r}.",
            hint="Give one of the model's own prefixes, or leave out --prompt.",
        )
    usual = "task-with-replacement" if stages.replacement else "task"
    return ContextDraw(size=stages.size, documents=settings.context or cast(ContextChoice, usual))


def _resolve_late_interaction(description: Description, settings: Settings) -> LateInteraction:
    """The settings of a multi-vector (ColBERT) model, with the requested lengths."""
    late = description.late_interaction
    assert late is not None
    for option, is_set in (
        ("--pooling", settings.pooling is not None),
        ("--no-normalize", settings.normalize is False),
    ):
        if is_set:
            raise UsageError(
                f"{description.name} gives a vector of length 1 for each token: there is nothing for "
                f"{option} to change.",
                hint=f"Leave out {option}.",
            )
    # A first token, the prefix and a last token.
    least = 3
    lengths = {
        "queries": settings.query_length or late.query_length,
        "documents": settings.max_length or late.document_length,
    }
    for name, length in lengths.items():
        if length <= least:
            raise UsageError(
                f"A length of {length} tokens is too short for {name}: special tokens and the prefix take "
                f"{least}.",
                hint=f"Give more than {least}.",
            )
    return replace(
        late,
        query_length=_resolve_max_length(description, lengths["queries"], settings),
        by_task=settings.query_length is None,
        document_length=_resolve_max_length(description, lengths["documents"], settings),
    )


def _resolve_search_index(
    description: Description, late: LateInteraction, settings: Settings
) -> Plaid | None:
    """The requested search; None for an exact one."""
    index = parse_plaid(settings.index) if settings.index else None
    if index is not None and settings.similarity == "maxsim-pylate":
        raise UsageError(
            "maxsim-pylate fills up documents beside longer ones, which an index does not.",
            hint="Leave out --similarity, or type --index exact.",
        )
    # PLAID stores `nbits` of every dimension, packed into whole bytes.
    if index is not None and late.dimension % 8:
        raise UsageError(
            f"fast-plaid packs vectors whose dimension is a multiple of 8; that of {description.name} "
            f"is {late.dimension}.",
            hint="Type --index exact.",
        )
    return index


def _resolve_pooling(description: Description, asked: str | None) -> str:
    model_pooling = description.pooling
    if asked is None or asked == model_pooling:
        return model_pooling or description.usual_pooling
    if model_pooling in (OWN_POOLING, MODEL2VEC):
        raise UsageError(
            f"{description.folder} has no Pooling module, so its pooling cannot be replaced.",
            hint="Leave the pooling out.",
        )
    poolings = [
        *POOLING_FLAGS.values(),
        *([model_pooling] if model_pooling and model_pooling not in POOLING_FLAGS.values() else []),
    ]
    if asked == ATTENTION:
        raise UsageError(
            f"{description.folder} has no attentive pooling, whose weights are learned in training.",
            hint=f"Train one (`--recipe simcse`), or give one of {', '.join(poolings)}.",
        )
    if asked not in poolings:
        raise explain_unknown(
            "pooling", asked, poolings, then="Choose one of these, or leave the pooling out."
        )
    return asked


def _resolve_rope_scaling(description: Description, settings: Settings) -> str | None:
    """The requested scaling of rotary positions; None where they reach the requested length as they are."""
    text, name, limit = settings.rope_scaling, description.name, description.position_limit
    if text is None:
        return None
    kind, factor = parse_rope_scaling(text)
    if description.unscalable or limit is None:
        reason = description.unscalable or "its files name no number of positions"
        raise UsageError(
            f"--rope-scaling {text} is not for {name}: {reason}.", hint="Leave out --rope-scaling."
        )
    length = max(settings.max_length or 0, settings.query_length or 0)
    if not length:
        raise UsageError(
            f"--rope-scaling {text} is for texts beyond the {limit} positions of {name}, and no length is "
            "given.",
            hint=f"Type --max-length with more than {limit}, or leave out --rope-scaling.",
        )
    # The base of the dynamic one follows the length, whatever its factor is.
    if kind != "dynamic" and length > limit * factor:
        raise UsageError(
            f"--rope-scaling {text} takes the {limit} positions of {name} to {int(limit * factor)} tokens, "
            f"and a length of {length} is given.",
            hint=f"Type --rope-scaling {kind}:{math.ceil(100 * length / limit) / 100:g}, or a lower one.",
        )
    return text if length > limit else None


def describe_rope_scaling(description: Description, settings: Settings, encoding: Encoding) -> str:
    """A sentence on what a requested scaling does to a model; empty where none is requested."""
    if settings.rope_scaling is None:
        return ""
    where = f"{description.name} at {encoding.max_length} tokens: its {description.position_limit} positions"
    scaling = encoding.rope_scaling
    return f"{where} are scaled by {scaling}" if scaling else f"{where} suffice, and are not scaled"


def _resolve_max_length(description: Description, asked: int | None, settings: Settings) -> int:
    if asked is None:
        return description.max_length
    if asked <= 0:
        raise UsageError(f"A maximum length of {asked} tokens is not possible.", hint="Give 1 or more.")
    if asked != description.max_length and not any(length.cuts for length in description.lengths):
        raise UsageError(
            f"{description.name} cannot truncate its input.", hint="Leave the maximum length out."
        )
    limit = description.position_limit
    # With a scaling the length was checked beside it.
    is_free = description.is_unbound or settings.rope_scaling is not None
    if limit is not None and asked > limit and not is_free:
        more = "" if description.unscalable else " --rope-scaling yarn:2 goes beyond it (docs/backbones.md)."
        raise UsageError(
            f"A maximum length of {asked} tokens is more than {description.name} has positions for.",
            hint=f"Its limit is {limit} tokens.{more}",
        )
    return asked


def describe_encoding(encoding: Mapping[str, Any]) -> str:
    """The encoding of an identity in a few words.

    >>> encoding = {"dtype": "float32", "max_length": 256, "normalize": True, "output": "vector"}
    >>> describe_encoding({**encoding, "pooling": "mean", "similarity": "cosine"})
    'mean pooling, normalized, 256 tokens, float32, cosine'
    """
    if encoding.get("output") == "ranking":
        return describe_ranking(encoding)
    if "dtype" not in encoding:
        return "an object in Python"
    if "late_interaction" in encoding:
        return _describe_late_interaction(encoding)
    rest = dict(encoding)
    if rest.get("output") == "measured":
        scaling = [f"rope_scaling {rest['rope_scaling']}"] if "rope_scaling" in rest else []
        length = [f"{rest['max_length']} tokens"] if "max_length" in rest else []
        return ", ".join([rest["dtype"], *scaling, *length])
    parts = [
        f"{rest.pop('pooling')} pooling",
        *(["normalized"] if rest.pop("normalize", False) else []),
        *([f"normalized in {', '.join(types)}"] if (types := rest.pop("normalized_types", ())) else []),
        f"{rest.pop('max_length')} tokens",
        rest.pop("dtype"),
        rest.pop("similarity"),
    ]
    if rest.get("output") == "vector":
        rest.pop("output")
    if "context" in rest:
        parts.append(_describe_context(rest.pop("context")))
    return ", ".join([*parts, *(f"{name} {value}" for name, value in rest.items())])


def _describe_context(draw: Mapping[str, Any]) -> str:
    """The context documents of an identity in a few words."""
    if draw["documents"] == "null":
        return f"null context of {draw['size']}"
    twice = ", with replacement" if draw["documents"] == "task-with-replacement" else ""
    return f"{draw['size']} context documents of the task{twice}, context seed {draw['seed']}"


def _describe_late_interaction(encoding: Mapping[str, Any]) -> str:
    """The encoding of an identity in a few words, of a multi-vector (ColBERT) model."""
    late = encoding["late_interaction"]
    expansion = "" if late["expansion"] else " at most"
    if late["expansion"] and late["attends_to_expansion"]:
        expansion = ", attended to"
    vectors, by_task = encoding.get("vectors", "float32"), late.get("by_task", True)
    return ", ".join(
        [
            f"{late['dimension']} dimensions for each token",
            f"queries of {late['query_length']} tokens{expansion}{'' if by_task else ' on all tasks'}",
            f"documents of {late['document_length']}",
            *([] if late["skiplist"] else ["no skiplist"]),
            encoding["dtype"],
            *([f"rope_scaling {encoding['rope_scaling']}"] if "rope_scaling" in encoding else []),
            *([f"vectors {vectors}"] if vectors != "float16" else []),
            encoding["similarity"],
            *([f"{APPROXIMATE} ({describe_index(encoding['index'])})"] if encoding.get("index") else []),
        ]
    )
