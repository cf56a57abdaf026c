"""The most tokens of a text: what the files of a model folder say, and what its positions allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.errors import ModelError
from harness.encoder.folder.architecture import max_positions, runs_remote_code
from harness.encoder.folder.files import read_object
from harness.encoder.folder.modules import (
    TOKENIZED,
    input_modules,
    library_class,
)

NO_LIMIT = 1_000_000
"""The max_length of a model that truncates nothing."""


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
"""Model types whose position table starts after the padding id, as in RoBERTa."""


UNBOUND_MODELS = frozenset({"t5", "mt5", "umt5", "xlnet"})
"""Model types with relative positions, for which the length in the config is no limit."""


@dataclass(frozen=True, kw_only=True)
class TokenLimits:
    """The token limits of an input module: `most` cuts texts; the others are None without a limit."""

    most: int
    named: int | None
    limit: int | None
    table: int | None


def lengths(folder: Path, *, own_code: bool = False) -> tuple[TokenLimits, ...]:
    """The length of each input module; with `own_code`, a backbone that names its own classes runs them."""
    entered = input_modules(folder) or [("", "")]
    return tuple(_length(kind, folder / sub, bare=not kind, own_code=own_code) for kind, sub in entered)


def longest_text(found: Sequence[TokenLimits]) -> int:
    """The largest length at which a module cuts texts, among those that cut at all."""
    return max((length.most for length in found if length.most < NO_LIMIT), default=NO_LIMIT)


def max_requested_length(found: Sequence[TokenLimits]) -> int | None:
    """The largest length that may be requested of any module, None if no file names a limit."""
    return max((length.limit for length in found if length.limit is not None), default=None)


def _length(kind: str, root: Path, *, bare: bool, own_code: bool) -> TokenLimits:
    config = _text_config(read_object(root / "config.json"))
    own = None if bare else _own_length(root)
    table = _table(config, own_code=own_code)
    limit = table if table is not None else _computed(config, own)
    named = own
    if named is None and (bare or library_class(kind) in TOKENIZED):
        named = read_object(root / "tokenizer_config.json").get("model_max_length")
    # A tokenizer without a limit has 1e30.
    known = int(named) if isinstance(named, int | float) and 0 < named < NO_LIMIT else None
    most = min((length for length in (known, limit) if length), default=NO_LIMIT)
    return TokenLimits(most=most, named=known, limit=limit, table=table)


def _own_length(root: Path) -> int | None:
    """The length in the config of a sentence-transformers module, None without one."""
    for path in [*sorted(root.glob("sentence_*_config.json")), root / "wordembedding_config.json"]:
        length = read_object(path).get("max_seq_length")
        if isinstance(length, int) and length < 1:
            raise ModelError(
                f"{path} has a max_seq_length of {length}.",
                hint="Write the length that the model has.",
            )
        if isinstance(length, int):
            return length
    return None


def _text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The text part of a config that also covers other inputs."""
    text = config.get("text_config")
    return text if isinstance(text, dict) and _positions(config) is None else config


def _positions(config: Mapping[str, Any]) -> int | None:
    positions = config.get("max_position_embeddings", config.get("n_positions"))
    named = isinstance(positions, int) and positions > 0 and config.get("model_type") not in UNBOUND_MODELS
    return positions if named else None


def _table(config: Mapping[str, Any], *, own_code: bool) -> int | None:
    """The number of learned positions, None where positions are computed."""
    positions = _positions(config)
    computed = (
        any("rope" in name or "rotary" in name or "alibi" in name for name in config)
        or config.get("position_embedding_type") not in (None, "absolute")
        or config.get("position_biased_input") is False
    )
    own = None if runs_remote_code(config, own_code) else max_positions(config)
    if own is not None:
        return own
    if positions is None or computed:
        return None
    if config.get("model_type") in OFFSET_MODELS:
        return positions - int(config.get("pad_token_id", 1)) - 1
    return positions


def _computed(config: Mapping[str, Any], own: int | None) -> int | None:
    """The most tokens with computed positions: as in the config, or the model's own length if longer."""
    positions = _positions(config)
    return None if positions is None else max(positions, own or 0)
