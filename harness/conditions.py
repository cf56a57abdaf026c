"""What a score depends on and what happened to run it, as fields that can be held against another's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OWN = frozenset({"artifact", "runs", "start_weights"})
"""Fields that differ between any two models."""

MEASURED = frozenset(
    {
        *("started", "written", "seconds", "tokens_per_second", "texts_encoded", "tokens_encoded"),
        "peak_memory_bytes",
    }
)
"""Fields of the provenance that are measurements rather than conditions."""


def conditions(
    identity: Mapping[str, Any], provenance: Mapping[str, Any], *, measurements: bool = False
) -> dict[str, Any]:
    """What a score came about under, as dotted fields, without what differs between any two models.

    Args:
        identity: A record's.
        provenance: Likewise.
        measurements: Whether times, rates and memory are wanted, too.
    """
    own = {name: value for name, value in identity.items() if name not in OWN | {"task"}}
    if isinstance(own.get("start"), Mapping):
        own["start"] = {name: value for name, value in own["start"].items() if name != "run"}
    left_out = OWN if measurements else OWN | MEASURED
    ran = {name: value for name, value in provenance.items() if name not in left_out}
    return flatten({"identity": own, "provenance": ran})


def flatten(value: Any, name: str = "") -> dict[str, Any]:
    """A nested mapping as dotted fields.

    >>> flatten({"a": {"b": 1}, "c": [2]})
    {'a.b': 1, 'c': [2]}
    """
    if not isinstance(value, Mapping):
        return {name: value}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat.update(flatten(inner, f"{name}.{key}" if name else str(key)))
    return flat
