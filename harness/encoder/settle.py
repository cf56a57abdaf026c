"""From what a model says and what the user asked for to the one Encoding that counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.errors import UsageError, unknown
from harness.types import Encoding, Settings

if TYPE_CHECKING:
    from harness.encoder.describe import Description

POOLING_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""The flags of a Pooling module's config and the mode each turns on, in the order of the name.

"cls+mean+max" is the library's name for these three; the vector it gives has the maximum before the
mean.
"""

OWN_POOLING = "own"
"""The pooling of a model whose own code goes from tokens to a vector."""

NO_LIMIT = 1_000_000
"""The max_length of a model that truncates nothing."""


def resolve_encoding(description: Description, settings: Settings) -> Encoding:
    """How the model is to be run: what was asked for, the model's own default elsewhere.

    A bare backbone without a pooling asked for has its family's. An empty prompt is kept: what it
    names has none, not the default one.

    Raises:
        UsageError: For an unknown pooling, or a length that the model has no positions for.
    """
    prompts = {**description.prompts, **(settings.prompts or {})}
    default = description.default_prompt_name
    own = description.normalize
    return Encoding(
        dtype=settings.dtype,
        pooling=_pooling(description, settings.pooling),
        normalize=own if settings.normalize is None else settings.normalize,
        max_length=_max_length(description, settings.max_length),
        similarity=settings.similarity or description.similarity_fn_name,
        prompts=tuple(sorted(prompts.items())),
        default_prompt=default if default in prompts else None,
    )


def _pooling(description: Description, asked: str | None) -> str:
    own = description.pooling
    if asked is None or asked == own:
        return own or description.usual_pooling
    if own == OWN_POOLING:
        raise UsageError(
            f"{description.folder} has no Pooling module, so its pooling cannot be replaced.",
            hint="Leave the pooling out.",
        )
    known = [*POOLING_FLAGS.values(), *([own] if own and "+" in own else [])]
    if asked not in known:
        raise unknown("pooling", asked, known, then="Choose one of these, or leave the pooling out.")
    return asked


def _max_length(description: Description, asked: int | None) -> int:
    if asked is None:
        return description.max_length
    if asked <= 0:
        raise UsageError(f"A maximum length of {asked} tokens is not possible.", hint="Give 1 or more.")
    limit = description.position_limit
    if limit is not None and asked > limit:
        raise UsageError(
            f"A maximum length of {asked} tokens is more than {description.folder.name} has positions for.",
            hint=f"Its limit is {limit} tokens.",
        )
    return asked
