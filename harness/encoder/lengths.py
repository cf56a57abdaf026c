"""How many tokens a model takes, as its files say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.encoder.folder import read_object
from harness.encoder.settle import NO_LIMIT

OFFSET_MODELS = frozenset(
    {
        "camembert",
        "data2vec-text",
        "ibert",
        "longformer",
        "luke",
        "mluke",
        "mpnet",
        "roberta",
        "roberta-prelayernorm",
        "xlm-roberta",
        "xlm-roberta-xl",
        "xmod",
    }
)
"""Model types whose position table starts behind the padding id, as in RoBERTa."""

UNBOUND_MODELS = frozenset({"t5", "mt5", "umt5", "xlnet"})
"""Model types with relative positions, whose configs name a length that limits nothing."""


def own_length(root: Path) -> int | None:
    """The length a sentence-transformers model was saved with, None if it names none."""
    for path in sorted(root.glob("sentence_*_config.json")):
        length = read_object(path).get("max_seq_length")
        if isinstance(length, int):
            return length
    return None


def position_limit(config: Mapping[str, Any], own: int | None) -> int | None:
    """The most tokens a backbone has positions for, None where its config names no limit.

    Positions that are computed, not looked up in a table, go on beyond what the config names: if
    the model's own length is longer, that is the limit.
    """
    positions = config.get("max_position_embeddings", config.get("n_positions"))
    if config.get("model_type") in UNBOUND_MODELS or not isinstance(positions, int) or positions <= 0:
        return None
    if config.get("model_type") in OFFSET_MODELS:
        return positions - int(config.get("pad_token_id", 1)) - 1
    computed = any("rope" in name or "rotary" in name or "alibi" in name for name in config) or config.get(
        "position_embedding_type"
    ) not in (None, "absolute")
    return max(positions, own) if computed and own else positions


def max_length(root: Path, limit: int | None, own: int | None, *, tokenizer: bool) -> int:
    """The length SentenceTransformer would use, NO_LIMIT if nothing names one.

    Args:
        root: The backbone's folder.
        limit: What `position_limit` says.
        own: What `own_length` says.
        tokenizer: Whether the tokenizer's length counts where the model has none of its own.
    """
    named = own or (
        read_object(root / "tokenizer_config.json").get("model_max_length") if tokenizer else None
    )
    # A tokenizer that knows no limit says 1e30.
    lengths = [named] if isinstance(named, int | float) and 0 < named < NO_LIMIT else []
    return int(min([*lengths, *([limit] if limit else [])], default=NO_LIMIT))
