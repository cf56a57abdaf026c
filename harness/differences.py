"""What two scores must share; pairing; field-by-field diff.

What a score depends on and what happened to run it, as fields that can be held against another's.

Which records of two models are held against each other.

Whether two scores came about alike in everything but the model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal

from harness.errors import UsageError

OWN = frozenset({"artifact", "runs", "start_weights"})
"""Fields that differ between any two models."""

MEASURED = frozenset(
    {
        *("started", "written", "seconds", "tokens_per_second", "texts_encoded", "tokens_encoded"),
        "peak_memory_bytes",
    }
)
"""Fields of the provenance that are measurements rather than conditions."""


def comparable_fields(
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
    return _flatten({"identity": own, "provenance": ran})


def _flatten(value: Any, name: str = "") -> dict[str, Any]:
    """A nested mapping as dotted fields.

    >>> _flatten({"a": {"b": 1}, "c": [2]})
    {'a.b': 1, 'c': [2]}
    """
    if not isinstance(value, Mapping):
        return {name: value}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat.update(_flatten(inner, f"{name}.{key}" if name else str(key)))
    return flat


Reason = Literal["task", "splits", "number", "data", "settings"]
"""What no record of the other model shares."""


SEEDS = frozenset({"fresh_seeds", "final_seeds"})
"""Seeds of a recipe: runs of one treatment, whatever their numbers."""

SHOWN = 6

Identity = Mapping[str, Any]
"""What a score depends on, as it was hashed."""

Difference = tuple[str, Any, Any]
"""A field, the candidate's value and the baseline's."""


def _differences(candidate: Identity, baseline: Identity) -> list[Difference]:
    """The fields of two identities that differ, but for the model itself."""
    first, second = (_identity(one) for one in (candidate, baseline))
    fields = dict.fromkeys((*first, *second))
    return [(f, first.get(f), second.get(f)) for f in fields if first.get(f) != second.get(f)]


def pair_seeds(
    candidate: Sequence[Identity], baseline: Sequence[Identity]
) -> list[tuple[Identity, Identity]]:
    """Each evaluation of the baseline with the candidate's of the same seed, else with its first."""
    seeds = {one.get("seed"): one for one in reversed(candidate)}
    return [(seeds.get(other.get("seed"), candidate[0]), other) for other in baseline if candidate]


def _identity(identity: Identity) -> dict[str, Any]:
    kept = {name: value for name, value in identity.items() if name not in SEEDS}
    found = comparable_fields(kept, {})
    return {name.removeprefix("identity."): value for name, value in found.items()}


def require_alike(
    pairs: Mapping[str, Sequence[tuple[Identity, Identity]]], allowed: Sequence[str], baseline: str
) -> list[str]:
    """Refuse to compare what is measured differently; gives sentences on what the policy allows.

    Args:
        pairs: By task: what the candidate's scores depend on, and what the baseline's do.
        allowed: Fields that may differ, with * and ? for any characters.
        baseline: Its name, for the message.

    Raises:
        UsageError: A field differs that may not; it is named with both values.
    """
    found: dict[Difference, list[str]] = {}
    for task, both in pairs.items():
        for field, one, other in dict.fromkeys(_text(d) for pair in both for d in _differences(*pair)):
            found.setdefault((field, one, other), []).append(task)
    allowed_ones = {d: t for d, t in found.items() if any(fnmatchcase(d[0], a) for a in allowed)}
    refused = {d: t for d, t in found.items() if d not in allowed_ones}
    if refused:
        raise _refusal(refused, baseline)
    return [f"{_describe(d, tasks)}, as the policy allows." for d, tasks in allowed_ones.items()]


def _text(difference: Difference) -> tuple[str, str, str]:
    field, mine, theirs = difference
    return field, repr(mine), repr(theirs)


def _refusal(refused: Mapping[Difference, Sequence[str]], baseline: str) -> UsageError:
    lines = [f"  {_describe(d, tasks)}" for d, tasks in refused.items()]
    more = len(lines) - SHOWN
    listed = "\n".join([*lines[:SHOWN], *([f"  and {more} more"] if more > 0 else [])])
    fields = json.dumps(list(dict.fromkeys(field for field, _, _ in refused)))
    return UsageError(
        f"The candidate is not evaluated as the baseline {baseline} was:\n{listed}",
        hint="Leave out the options that differ, or type those that make both alike (a model's own length "
        "or prompts can be overruled: --max-length, --prompt), or set the baseline anew. "
        f"To compare all the same: allow_differences = {fields} in a policy.",
    )


def _describe(difference: Difference, tasks: Sequence[str]) -> str:
    field, mine, theirs = difference
    more = f" and {len(tasks) - 1} more" if len(tasks) > 1 else ""
    return f"{field} is {_short(mine)}, the baseline's {_short(theirs)} ({tasks[0]}{more})"


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}…"


def describe_provenance_differences(
    pairs: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]],
) -> list[str]:
    """Sentences on library versions, device and precision that differ: they only warn.

    Args:
        pairs: By task: the provenance of the candidate's score, and of the baseline's.
    """
    found: dict[Difference, int] = {}
    for mine, theirs in pairs.values():
        first, second = _flatten(mine), _flatten(theirs)
        for field in dict.fromkeys((*first, *second)):
            one, other = first.get(field), second.get(field)
            if one != other and (field == "device.name" or not field.startswith("device.")):
                key = (field.removeprefix("packages."), one, other)
                found[key] = found.get(key, 0) + 1
    return [
        f"{field} was {theirs} for the baseline and is {mine} for the candidate ({count} tasks)."
        for (field, mine, theirs), count in found.items()
    ]
