"""How many tokens a model takes, as its files say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.encoder.folder import read_object
from harness.encoder.found import most_positions, runs_own_code
from harness.encoder.modules import input_modules, library_class
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

TOKENIZED = ("Transformer", "CLIPModel")
"""Modules with a tokenizer of transformers, whose length counts where the module names none."""


@dataclass(frozen=True, kw_only=True)
class Length:
    """How many tokens enter by one module.

    `most` is where texts are cut, NO_LIMIT if nowhere, and `named` where the files say they are, None
    if they do not. `limit` is the most that may be asked for, None where the files name no limit.
    `table` is how many positions there are where each has a vector of its own, so that a longer text
    is an error.
    """

    most: int
    named: int | None
    limit: int | None
    table: int | None


def lengths(folder: Path, *, own_code: bool = False) -> tuple[Length, ...]:
    """The length of each module that texts enter by, in the order of `input_modules`.

    With `own_code`, a backbone that names classes of its own runs those.
    """
    entered = input_modules(folder) or [("", "")]
    return tuple(_length(kind, folder / sub, bare=not kind, own_code=own_code) for kind, sub in entered)


def longest(found: Sequence[Length]) -> int:
    """Where texts are cut by the module that takes the longest, of those that cut at all."""
    return max((length.most for length in found if length.most < NO_LIMIT), default=NO_LIMIT)


def most_asked(found: Sequence[Length]) -> int | None:
    """The most that may be asked for of any module, None if no file names a limit."""
    return max((length.limit for length in found if length.limit is not None), default=None)


def _length(kind: str, root: Path, *, bare: bool, own_code: bool) -> Length:
    config = _text_config(read_object(root / "config.json"))
    own = None if bare else _own_length(root)
    table = _table(config, own_code=own_code)
    limit = table if table is not None else _computed(config, own)
    named = own
    if named is None and (bare or library_class(kind) in TOKENIZED):
        named = read_object(root / "tokenizer_config.json").get("model_max_length")
    # A tokenizer that knows no limit says 1e30.
    known = int(named) if isinstance(named, int | float) and 0 < named < NO_LIMIT else None
    most = min((length for length in (known, limit) if length), default=NO_LIMIT)
    return Length(most=most, named=known, limit=limit, table=table)


def _own_length(root: Path) -> int | None:
    """The length a sentence-transformers module was saved with, None if it names none."""
    for path in [*sorted(root.glob("sentence_*_config.json")), root / "wordembedding_config.json"]:
        length = read_object(path).get("max_seq_length")
        if isinstance(length, int):
            return length
    return None


def _text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a config that is about text, where a model takes other things too."""
    text = config.get("text_config")
    return text if isinstance(text, dict) and _positions(config) is None else config


def _positions(config: Mapping[str, Any]) -> int | None:
    positions = config.get("max_position_embeddings", config.get("n_positions"))
    named = isinstance(positions, int) and positions > 0 and config.get("model_type") not in UNBOUND_MODELS
    return positions if named else None


def _table(config: Mapping[str, Any], *, own_code: bool) -> int | None:
    """How many positions have a vector of their own, None where positions are computed."""
    positions = _positions(config)
    computed = (
        any("rope" in name or "rotary" in name or "alibi" in name for name in config)
        or config.get("position_embedding_type") not in (None, "absolute")
        or config.get("position_biased_input") is False
    )
    own = None if runs_own_code(config, own_code) else most_positions(config)
    if own is not None:
        return own
    if positions is None or computed:
        return None
    if config.get("model_type") in OFFSET_MODELS:
        return positions - int(config.get("pad_token_id", 1)) - 1
    return positions


def _computed(config: Mapping[str, Any], own: int | None) -> int | None:
    """The most tokens of a model that computes its positions.

    They go on beyond what the config names: if the model's own length is longer, that is the limit.
    """
    positions = _positions(config)
    return None if positions is None else max(positions, own or 0)
