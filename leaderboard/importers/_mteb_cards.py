"""What a model_meta.json says of a model, cleaned: a value that is not of its type is unknown."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

HUB = "https://huggingface.co/"
LONGEST = 500
"""No text is longer; what is longer is no name, license or address."""

MOST = 5_000
"""No list holds more."""

_SAME = {
    "maxsim": "max_sim",
    "apache-2": "apache-2.0",
    "not specified": None,
    "none": None,
    "": None,
}
_TYPOS = {
    "open_weights": "open_source",
    "memory_usage_mb": "memory_usage",
    "use_instructions": "use_instuctions",
    "embed_dim": "embedding_dimension",
}
"""Fields, and what some files call them."""


def facts_of(card: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a card by name, None for what is unknown."""
    given = {**{name: card.get(typo) for name, typo in _TYPOS.items()}, **card}
    return {name: read(given.get(field)) for name, (field, read) in FACTS.items()}


def text(value: Any) -> str | None:
    """A text, None if it says nothing."""
    if not isinstance(value, str) or len(value) > LONGEST:
        return None
    plain = clean(value).strip()
    return _SAME.get(plain.lower(), plain)


def clean(value: str) -> str:
    """A text without what cannot be written as UTF-8."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def link(value: Any) -> str | None:
    """An address of the web, None for anything else: it is to become a link."""
    plain = text(value)
    return plain if plain and plain.startswith(("https://", "http://")) else None


def model(value: Any) -> str | None:
    """The name of a model, without the address of the hub."""
    plain = text(value)
    return plain.removeprefix(HUB) if plain else None


def yes(value: Any) -> bool | None:
    """Yes or no."""
    return value if isinstance(value, bool) else None


def given(value: Any) -> bool | None:
    """Yes or no; an address says yes."""
    return True if link(value) else yes(value)


def number(value: Any) -> float | None:
    """A number above zero."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 2**62:
        return None
    return float(value)


def count(value: Any) -> int | None:
    """A whole number above zero.

    >>> count(512.0), count("512"), count(0), count(float("inf"))
    (512, None, None, None)
    """
    return int(value) if number(value) is not None and value == int(value) else None


def unlimited(value: Any) -> bool | None:
    """Whether a number is infinite, None if there is none."""
    if isinstance(value, float) and math.isinf(value):
        return value > 0
    return None if count(value) is None else False


def date(value: Any) -> str | None:
    """A day, as 2024-01-31."""
    try:
        return datetime.date.fromisoformat(value).isoformat() if isinstance(value, str) else None
    except ValueError:
        return None


def names(value: Any) -> list[str] | None:
    """Names, sorted and without repeats: the members of a list, the keys of a table, or a single one."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | dict):
        return None
    found = {text(item) for item in list(value)[:MOST]}
    return sorted(item for item in found if item)


def some(value: Any) -> list[str] | None:
    """Names, None if there are none."""
    return names(value) or None


def languages(value: Any) -> list[str] | None:
    """Codes of languages, None if there are none.

    >>> languages(["zho_Hans", "eng-Latn"])
    ['eng-Latn', 'zho-Hans']
    """
    found = some(value)
    return sorted({code.replace("_", "-") for code in found}) if found else None


def settings(value: Any) -> str | None:
    """A table as JSON, None if it is empty or large."""
    try:
        said = json.dumps(value, sort_keys=True) if isinstance(value, dict) and value else None
    except (ValueError, RecursionError):
        return None
    return said if said and len(said) <= LONGEST else None


FACTS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "card_name": ("name", text),
    "release_date": ("release_date", date),
    "n_parameters": ("n_parameters", count),
    "n_embedding_parameters": ("n_embedding_parameters", count),
    "n_active_parameters_override": ("n_active_parameters_override", count),
    "memory_usage_mb": ("memory_usage_mb", number),
    "max_tokens": ("max_tokens", count),
    "tokens_unlimited": ("max_tokens", unlimited),
    "embed_dim": ("embed_dim", count),
    "license": ("license", text),
    "open_weights": ("open_weights", yes),
    "adapted_from": ("adapted_from", model),
    "superseded_by": ("superseded_by", model),
    "training_datasets": ("training_datasets", names),
    "public_training_data": ("public_training_data", given),
    "training_data_link": ("public_training_data", link),
    "public_training_code": ("public_training_code", given),
    "training_code_link": ("public_training_code", link),
    "use_instructions": ("use_instructions", yes),
    "similarity_fn_name": ("similarity_fn_name", text),
    "languages": ("languages", languages),
    "framework": ("framework", some),
    "modalities": ("modalities", some),
    "model_type": ("model_type", some),
    "reference": ("reference", link),
    "is_cross_encoder": ("is_cross_encoder", yes),
    "experiment_settings": ("experiment_kwargs", settings),
}
"""Facts by name: the field they are read from, and how."""
