"""The JSON files of a model folder, with the types and ranges of the fields that loading reads.

They are checked wherever a file is read, so that no later reader, here or in a library, meets another type.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from harness.core.errors import DamagedModelError, ModelError
from harness.core.files import require_size

SETTINGS = "config_sentence_transformers.json"
"""The file with the settings of a model of several modules."""

LARGEST = 64 * 2**20
"""The most bytes of a config or of a file of a tokenizer; the largest known has 35 MB."""

_CONTENTS: ContextVar[dict[Path, Any]] = ContextVar("_CONTENTS")
"""What JSON files hold, while they are read once."""


@contextmanager
def read_files_once() -> Iterator[None]:
    """While open, or in a function that it decorates, each JSON file is read once."""
    token = _CONTENTS.set(_CONTENTS.get({}))
    try:
        yield
    finally:
        _CONTENTS.reset(token)


def read_json(path: Path) -> Any:
    """The content of a JSON file, which callers leave as it is; ModelError if it cannot be read."""
    contents = _CONTENTS.get({})
    try:
        if path not in contents:
            require_size(path, LARGEST)
            contents[path] = json.loads(path.read_text(encoding="utf-8"))
        return contents[path]
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
    typed = is_schema_file(path)
    return {name: _parse_field(path, name, value) if typed else value for name, value in content.items()}


def require_inside(path: Path, name: str, what: str) -> None:
    """Refuse a name in a file that leads out of the file's folder: ModelError. It is to be a `what`."""
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise ModelError(f"{path} names a {what} outside of the model: {name}.")


SCHEMA_FILES = (
    *("config.json", "sentence_*_config.json", "wordembedding_config.json", "router_config.json"),
    *("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", SETTINGS, "*.index.json"),
    "adapter_config.json",
)
"""The files whose fields have types."""


def is_schema_file(path: Path) -> bool:
    """Whether the fields of a file of this name have types."""
    return any(fnmatchcase(path.name, pattern) for pattern in SCHEMA_FILES)


@dataclass(frozen=True)
class _Type:
    """The values that a field may have, in words and as a check; null is the same as no field.

    With `as_float` its readers in the libraries take 32.0 for 32.
    """

    words: str
    allows: Callable[[Any], bool]
    as_float: bool = False


def _is_count(value: Any, least: int = 1, most: float = math.inf) -> bool:
    return type(value) is int and least <= value <= most


TEXT = _Type("a text", lambda value: isinstance(value, str))
FLAG = _Type("true or false", lambda value: isinstance(value, bool))
OBJECT = _Type("an object", lambda value: isinstance(value, dict))
COUNT = _Type("an integer of at least 1", _is_count)
SIZE = _Type(COUNT.words, _is_count, as_float=True)
# A library makes layer after layer, a billion of them for days.
LAYERS = _Type("an integer of at most 1,000", lambda value: _is_count(value, 0, 1000))
TOKEN = _Type("the number of a token", lambda value: _is_count(value, 0))
# sentence-transformers writes -1 for a backbone without a length, such as XLNet; transformers writes 1e30.
ANY_LENGTH = _Type(
    "a number of tokens, at least 1 and whole", lambda n: n == -1 or _is_count(n), as_float=True
)
LENGTH = _Type(ANY_LENGTH.words, lambda n: n == -1 or _is_count(n, most=2**31 - 1), as_float=True)
# transformers asks an empty one for its number without end.
WORD = _Type("a token", lambda value: value != "")
SIDE = _Type('"left" or "right"', lambda value: value in ("left", "right"))
LIST = _Type("a list", lambda value: isinstance(value, list))
TEXTS = _Type(
    "a list of texts", lambda value: isinstance(value, list) and all(isinstance(v, str) for v in value)
)
NAMED = _Type(
    "an object of texts",
    lambda value: isinstance(value, dict) and all(isinstance(v, str | None) for v in value.values()),
)
CODE = _Type("an object or a list", lambda value: isinstance(value, dict | list))
ABOVE_ZERO = _Type("a number above 0", lambda value: type(value) in (int, float) and 0 < value < math.inf)
SHARE = _Type("a number from 0 to 1", lambda value: type(value) in (int, float) and 0 <= value <= 1)
POSITIONS = _Type("an integer", lambda value: _is_count(value, -1))

FIELDS = {
    TEXT: "model_type tokenizer_class position_embedding_type activation_function default_prompt_name "
    "similarity_fn_name query_prefix document_prefix peft_type base_model_name_or_path revision "
    "adapter_config.json/bias adapter_config.json/task_type",
    TEXTS: "architectures adapter_config.json/modules_to_save",
    LIST: "skiplist_words",
    CODE: "auto_map",
    OBJECT: "text_config id2label quantization_config architecture model_args tokenizer_args config_args "
    "router_config.json/structure added_tokens_decoder rope_parameters rope_scaling",
    NAMED: f"{SETTINGS}/prompts router_config.json/types weight_map",
    COUNT: "vocab_size hidden_size in_features out_features heads truncate_dim query_length document_length "
    "original_max_position_embeddings",
    SIZE: "word_embedding_dimension",
    LENGTH: "max_seq_length",
    ANY_LENGTH: "model_max_length",
    LAYERS: "num_hidden_layers num_layers n_layers n_layer num_hidden_groups inner_group_num",
    TOKEN: "num_labels",
    POSITIONS: "max_position_embeddings n_positions",
    ABOVE_ZERO: "layer_norm_eps norm_eps rms_norm_eps layer_norm_epsilon rope_theta rotary_emb_base "
    "global_rope_theta local_rope_theta rotary_theta rotary_theta_local",
    SHARE: "hidden_dropout_prob attention_probs_dropout_prob",
    SIDE: "padding_side truncation_side",
    WORD: "unk_token",
    FLAG: "position_biased_input tie_word_embeddings is_decoder do_lower_case bias use_residual "
    "include_prompt do_query_expansion attend_to_expansion_tokens",
}
"""The fields by their type, whichever file has them if none is named; also the flags of a Pooling."""

NESTED = ("architecture", "rope_parameters", "rope_scaling", "full_attention", "sliding_attention")
"""The objects whose fields have types: our architecture, and the base of rotary positions of layers."""

_TYPES = {name: kind for kind, names in FIELDS.items() for name in names.split()}


def _parse_field(path: Path, name: str, value: Any) -> Any:
    """The value of a field, with 32.0 as 32; ModelError if it is of another type or out of range."""
    if name in NESTED and isinstance(value, dict):
        return {inner: _parse_field(path, inner, field) for inner, field in value.items()}
    kind = _TYPES.get(f"{path.name}/{name}") or _TYPES.get(name)
    kind = FLAG if name.startswith("pooling_mode_") else kind
    # Its fields are tokens.
    kind = TOKEN if path.name == "added_tokens.json" else kind
    if kind is None or value is None:
        return value
    if kind.as_float and isinstance(value, float) and value.is_integer():
        value = int(value)
    if not kind.allows(value):
        shown = repr(value) if len(repr(value)) <= 60 else repr(value)[:60] + "…"
        raise DamagedModelError(f"{path} has {name} = {shown}.", hint=f"It must be {kind.words}.")
    return value
