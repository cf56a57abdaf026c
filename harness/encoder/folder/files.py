"""The JSON files of a model folder, with the types and ranges of the fields that loading reads.

They are checked wherever a file is read, so that no later reader, here or in a library, meets another type.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from harness.core.errors import DamagedModelError
from harness.core.files import require_size

LARGEST = 64 * 2**20
"""The most bytes of a config or of a file of a tokenizer; the largest known has 35 MB."""


def read_json(path: Path) -> Any:
    """The content of a JSON file; ModelError if it cannot be read."""
    try:
        require_size(path, LARGEST)
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DamagedModelError(f"{path} cannot be read as JSON: {error}") from error
    except RecursionError:
        raise DamagedModelError(f"{path} is nested too deeply to be read as JSON.") from None


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file, empty without a file; ModelError if a field has another type."""
    if not path.exists():
        return {}
    content = read_json(path)
    if not isinstance(content, dict):
        raise DamagedModelError(f"{path} holds no JSON object.")
    _check_fields(path, content)
    return content


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
LIST = _Type("a list", lambda value: isinstance(value, list))
TEXTS = _Type("a list of texts", lambda value: isinstance(value, list) and all(map(_is_text, value)))
NAMED = _Type(
    "an object of texts",
    lambda value: isinstance(value, dict) and all(v is None or _is_text(v) for v in value.values()),
)
CODE = _Type("an object or a list", lambda value: isinstance(value, dict | list))
NUMBER = _Type("a number", lambda value: type(value) in (int, float) and math.isfinite(value))
POSITIONS = _Type("an integer", lambda value: _is_count(value, -1))

FIELDS: Mapping[str, Mapping[_Type, tuple[str, ...]]] = {
    # The config of a backbone, and those of modules, whose fields have other names.
    "config.json": {
        TEXT: ("model_type", "position_embedding_type", "activation_function"),
        TEXTS: ("architectures",),
        LIST: ("skiplist_words",),
        CODE: ("auto_map",),
        OBJECT: ("text_config", "id2label", "quantization_config", "architecture"),
        COUNT: ("vocab_size", "hidden_size", "in_features", "out_features", "heads"),
        SIZE: ("word_embedding_dimension",),
        LAYERS: ("num_hidden_layers", "num_layers", "n_layers", "n_layer"),
        TOKEN: ("num_labels",),
        POSITIONS: ("max_position_embeddings", "n_positions"),
        NUMBER: ("layer_norm_eps",),
        FLAG: (
            *("position_biased_input", "tie_word_embeddings", "is_decoder"),
            *("bias", "use_residual", "include_prompt", "pooling_mode_*"),
        ),
    },
    "sentence_*_config.json": {
        LENGTH: ("max_seq_length",),
        COUNT: ("query_length", "document_length"),
        FLAG: ("do_lower_case",),
        OBJECT: ("model_args", "tokenizer_args", "config_args"),
    },
    "wordembedding_config.json": {LENGTH: ("max_seq_length",), TEXT: ("tokenizer_class",)},
    "config_sentence_transformers.json": {
        NAMED: ("prompts",),
        TEXT: (
            *("default_prompt_name", "similarity_fn_name", "model_type"),
            *("query_prefix", "document_prefix"),
        ),
        COUNT: ("truncate_dim", "query_length", "document_length"),
        FLAG: ("do_query_expansion", "attend_to_expansion_tokens"),
        LIST: ("skiplist_words",),
    },
    "router_config.json": {NAMED: ("types",), OBJECT: ("structure",)},
    "tokenizer_config.json": {
        TEXT: ("tokenizer_class",),
        CODE: ("auto_map",),
        ANY_LENGTH: ("model_max_length",),
        SIDE: ("padding_side", "truncation_side"),
        OBJECT: ("added_tokens_decoder",),
        WORD: ("unk_token",),
        FLAG: ("do_lower_case",),
    },
    "added_tokens.json": {TOKEN: ("*",)},
    "special_tokens_map.json": {},
    "*.index.json": {NAMED: ("weight_map",)},
}
"""The fields by the name of their file and their type; a name may have *."""


def is_schema_file(path: Path) -> bool:
    """Whether there is a schema for a file of this name."""
    return any(fnmatchcase(path.name, pattern) for pattern in FIELDS)


def _check_fields(path: Path, content: dict[str, Any]) -> None:
    """Refuse a value of another type or out of range; a length such as 32.0 becomes an integer."""
    schemas = [schema for pattern, schema in FIELDS.items() if fnmatchcase(path.name, pattern)]
    kinds = {field: kind for schema in schemas for kind, fields in schema.items() for field in fields}
    patterns = [field for field in kinds if "*" in field]
    for name, value in content.items():
        kind = kinds.get(name) or next((kinds[one] for one in patterns if fnmatchcase(name, one)), None)
        if kind is None or value is None:
            continue
        if kind.as_float and isinstance(value, float) and value.is_integer():
            content[name] = value = int(value)
        if not kind.allows(value):
            shown = repr(value) if len(repr(value)) <= 60 else repr(value)[:60] + "…"
            raise DamagedModelError(f"{path} has {name} = {shown}.", hint=f"It must be {kind.words}.")
