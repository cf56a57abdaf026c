"""The fields of a model folder's JSON files that loading reads, with their types and ranges.

They are checked wherever a file is read, so that no later reader, here or in a library, meets another type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from harness.core.errors import DamagedModelError


@dataclass(frozen=True)
class _Type:
    """The values that a field may have, in words and as a check; null is the same as no field.

    With `as_float` its readers in the libraries take 32.0 for 32.
    """

    words: str
    allows: Callable[[Any], bool]
    as_float: bool = False


def _is_count(value: Any, least: int = 1) -> bool:
    return type(value) is int and value >= least


def _is_length(value: Any) -> bool:
    # sentence-transformers writes -1 for a backbone without a length, such as XLNet.
    return value == -1 or (_is_count(value) and value < 2**31)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


TEXT = _Type("a text", _is_text)
FLAG = _Type("true or false", lambda value: isinstance(value, bool))
OBJECT = _Type("an object", lambda value: isinstance(value, dict))
COUNT = _Type("an integer of at least 1", _is_count)
SIZE = _Type("an integer of at least 1", _is_count, as_float=True)
# A library makes layer after layer, a billion of them for days.
LAYERS = _Type("an integer of at most 1,000", lambda value: _is_count(value, 0) and value <= 1000)
TOKEN = _Type("the number of a token", lambda value: _is_count(value, 0))
LENGTH = _Type("a number of tokens, at least 1 and whole", _is_length, as_float=True)
# transformers writes 1e30 for a tokenizer without a limit.
ANY_LENGTH = _Type(LENGTH.words, lambda value: value == -1 or _is_count(value), as_float=True)
# transformers asks an empty one for its number without end.
WORD = _Type("a token", lambda value: value != "")
SIDE = _Type('"left" or "right"', lambda value: value in ("left", "right"))
TEXTS = _Type("a list of texts", lambda value: isinstance(value, list) and all(map(_is_text, value)))
NAMED = _Type(
    "an object of texts",
    lambda value: isinstance(value, dict) and all(v is None or _is_text(v) for v in value.values()),
)
CODE = _Type("an object or a list", lambda value: isinstance(value, dict | list))
NUMBER = _Type("a number", _is_number)
POSITIONS = _Type("an integer", lambda value: _is_count(value, -1))

FIELDS: Mapping[str, Mapping[str, _Type]] = {
    # The config of a backbone, and those of modules, whose fields have other names.
    "config.json": {
        "model_type": TEXT,
        "architectures": TEXTS,
        "auto_map": CODE,
        "text_config": OBJECT,
        "id2label": OBJECT,
        "quantization_config": OBJECT,
        "architecture": OBJECT,
        "vocab_size": COUNT,
        "hidden_size": COUNT,
        **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layers", "n_layer"), LAYERS),
        "num_labels": TOKEN,
        "max_position_embeddings": POSITIONS,
        "n_positions": POSITIONS,
        "position_embedding_type": TEXT,
        "position_biased_input": FLAG,
        "layer_norm_eps": NUMBER,
        "tie_word_embeddings": FLAG,
        "is_decoder": FLAG,
        "word_embedding_dimension": SIZE,
        "in_features": COUNT,
        "out_features": COUNT,
        "bias": FLAG,
        "heads": COUNT,
        "activation_function": TEXT,
        "use_residual": FLAG,
        "include_prompt": FLAG,
        "pooling_mode_*": FLAG,
    },
    "sentence_*_config.json": {
        "max_seq_length": LENGTH,
        "do_lower_case": FLAG,
        "model_args": OBJECT,
        "tokenizer_args": OBJECT,
        "config_args": OBJECT,
    },
    "wordembedding_config.json": {"max_seq_length": LENGTH, "tokenizer_class": TEXT},
    "config_sentence_transformers.json": {
        "prompts": NAMED,
        "default_prompt_name": TEXT,
        "similarity_fn_name": TEXT,
        "model_type": TEXT,
    },
    "router_config.json": {"types": NAMED, "structure": OBJECT},
    "tokenizer_config.json": {
        "tokenizer_class": TEXT,
        "auto_map": CODE,
        "model_max_length": ANY_LENGTH,
        "padding_side": SIDE,
        "truncation_side": SIDE,
        "added_tokens_decoder": OBJECT,
        "unk_token": WORD,
        "do_lower_case": FLAG,
    },
    "added_tokens.json": {"*": TOKEN},
    "special_tokens_map.json": {},
    "*.index.json": {"weight_map": NAMED},
}
"""The fields by the name of their file; a name may have *."""


def is_schema_file(path: Path) -> bool:
    """Whether there is a schema for a file of this name."""
    return any(fnmatchcase(path.name, pattern) for pattern in FIELDS)


def check_fields(path: Path, content: dict[str, Any]) -> None:
    """Refuse a value of another type, or out of range, in a JSON file of a model folder.

    A length or dimension such as 32.0 becomes an integer.

    Raises:
        DamagedModelError: A field has such a value.
    """
    for pattern, fields in FIELDS.items():
        if not fnmatchcase(path.name, pattern):
            continue
        open_names = [field for field in fields if "*" in field]
        for name, value in content.items():
            like = next((field for field in open_names if fnmatchcase(name, field)), "")
            kind = fields.get(name) or fields.get(like)
            if kind is not None and kind.as_float and isinstance(value, float) and value.is_integer():
                content[name] = value = int(value)
            if kind is not None and value is not None and not kind.allows(value):
                shown = repr(value) if len(repr(value)) <= 60 else repr(value)[:60] + "…"
                raise DamagedModelError(f"{path} has {name} = {shown}.", hint=f"It must be {kind.words}.")
