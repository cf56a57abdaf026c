"""Differences between two scores: the fields of identity and provenance, and the refusal of unlike pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any

from harness.core.encoding import Encoding, LateInteraction
from harness.core.errors import UsageError
from harness.core.terminal import shorten_names
from harness.core.types import Data

OWN = frozenset({"artifact", "observed", "runs", "start_weights"})
"""Fields that differ between any two models."""

MEASURED = frozenset(
    {
        "started", "written", "seconds", "tokens_per_second", "peak_memory_bytes",
        "texts_encoded", "characters_encoded", "tokens_encoded",
    }
)  # fmt: skip
"""Fields of the provenance that are measurements rather than conditions."""

SEEDS = frozenset({"fresh_seeds", "final_seeds"})
"""Seeds of a recipe: runs with other seeds are still the same condition."""

RECIPE_SETTINGS = ("recipe", "protocol", "kind", "final_seeds", "fresh_seeds", "scoring")
"""Fields of an identity by which a recipe's scores are the same evaluation."""

CURVE = (
    "task", "data", "splits", "subsets", "scoring", "encoding", "prompts", "seed", "documents",
    "recipe", "protocol", "view", "kind", "final_seeds", "fresh_seeds",
)  # fmt: skip
"""Fields of an identity that checkpoints on one curve share."""

FIELDS = {
    *CURVE,
    *RECIPE_SETTINGS,
    "start",
    "modified",
    *(field.name for part in (Encoding, LateInteraction, Data) for field in fields(part)),
}

Identity = Mapping[str, Any]
"""The fields that a score depends on, as they were hashed."""

FieldDifference = tuple[str, Any, Any]
"""A field, the candidate's value and the baseline's."""


@dataclass(frozen=True, kw_only=True)
class Comparable:
    """The identity of a score, in the parts that two scores must share to be compared."""

    identity: Identity

    def flatten_fields(self, provenance: Mapping[str, Any], *, measurements: bool = False) -> dict[str, Any]:
        """Identity and provenance as dotted fields, without those that differ between any two models.

        Args:
            provenance: Of the same record.
            measurements: Whether times, rates and memory are fields, too.
        """
        identity = {name: value for name, value in self.identity.items() if name not in OWN | {"task"}}
        # `run` names the training that a task started from, which differs between any two models.
        if isinstance(identity.get("start"), Mapping):
            identity["start"] = {name: value for name, value in identity["start"].items() if name != "run"}
        left_out = OWN if measurements else OWN | MEASURED
        # A model's prompts for every task; those of this one are in the identity.
        left_out |= {"prompts_asked"}
        ran = {name: value for name, value in provenance.items() if name not in left_out}
        return flatten({"identity": identity, "provenance": ran})

    @property
    def settings(self) -> tuple[Any, ...]:
        """The settings of the evaluation, or of the recipe with its seeds and its start."""
        if "recipe" not in self.identity:
            names = ("encoding", "prompts", "seed", "scoring", "documents")
            return tuple(self.identity.get(name) for name in names)
        start = self.identity.get("start") or {}
        recipe_values = tuple(self.identity.get(name) for name in RECIPE_SETTINGS)
        return (*recipe_values, start.get("from"), start.get("content"))

    def has_same_settings(self, other: Comparable) -> bool:
        """Whether two scores share their settings; with one of BM25 or of an object, all that both have."""
        bare = ["dtype" not in (one.identity.get("encoding") or {"dtype": ""}) for one in (self, other)]
        if bare.count(True) == 1:
            return all(
                self.identity.get(name) == other.identity.get(name) for name in ("scoring", "documents")
            )
        return self.settings == other.settings

    @property
    def quantity(self) -> tuple[Any, ...]:
        """The way from raw metrics to the score; only scores that share it measure the same quantity."""
        scoring = self.identity["scoring"] if "recipe" in self.identity else ""
        return (self.identity.get("view"), self.identity.get("kind") == "maximum", scoring)

    @property
    def shape(self) -> tuple[Any, ...]:
        """Splits and subsets."""
        return tuple(self.identity["splits"]), tuple(self.identity["subsets"])

    @property
    def data(self) -> tuple[Any, ...]:
        """The data set, with its revision or its content."""
        return tuple(sorted(self.identity["data"].items()))

    @property
    def curve(self) -> dict[str, Any]:
        """The fields that all checkpoints on one curve share."""
        return {name: self.identity[name] for name in CURVE if name in self.identity}

    def find_field_differences(self, other: Comparable) -> list[FieldDifference]:
        """The fields that differ, apart from those of the model itself and a recipe's seeds."""
        first, second = self._drop_seeds(), other._drop_seeds()
        fields = dict.fromkeys((*first, *second))
        return [(f, first.get(f), second.get(f)) for f in fields if first.get(f) != second.get(f)]

    def _drop_seeds(self) -> dict[str, Any]:
        kept = {name: value for name, value in self.identity.items() if name not in SEEDS}
        fields = Comparable(identity=kept).flatten_fields({})
        return {name.removeprefix("identity."): value for name, value in fields.items()}


def require_alike(
    candidate: Mapping[str, Sequence[Identity]],
    baseline: Mapping[str, Sequence[Identity]],
    allowed: Sequence[str],
    name: str,
    *,
    own_prompts: bool = False,
) -> list[str]:
    """Refuse to compare scores that were measured differently; gives sentences on allowed differences.

    Args:
        candidate: By task, the identity of each of the candidate's scores.
        baseline: By task, those of the baseline.
        allowed: Fields that may differ, or the first or last word of them; * and ? stand for any characters.
        name: The baseline's name, for the message.
        own_prompts: Whether prompts may differ, as those that belong to the models.

    Raises:
        UsageError: A field differs that may not; the message has both values.
    """
    tasks_by_difference: dict[FieldDifference, list[str]] = {}
    for task, identities in candidate.items():
        pairs = _match_seeds(identities, baseline.get(task, ()))
        for difference in dict.fromkeys(
            _format_difference(d) for mine, theirs in pairs for d in mine.find_field_differences(theirs)
        ):
            tasks_by_difference.setdefault(difference, []).append(task)
    alike = {d: t for d, t in tasks_by_difference.items() if any(_match_field(a, d[0]) for a in allowed)}
    prompt_differences = {
        d: t
        for d, t in tasks_by_difference.items()
        if own_prompts and d not in alike and _match_field("prompts", d[0])
    }
    refused = {d: t for d, t in tasks_by_difference.items() if d not in alike and d not in prompt_differences}
    if refused:
        raise _explain_unlike_scores(refused, name)
    sentences = [f"{_describe(d, tasks)}, which is allowed." for d, tasks in alike.items()]
    if prompt_differences:
        tasks = dict.fromkeys(task for names in prompt_differences.values() for task in names)
        sentences.append(
            f"Each model has prompts of its own on {shorten_names(list(tasks))}; "
            "--prompt gives both the same."
        )
    return sentences


def is_field_name(name: str) -> bool:
    """Whether a name, a dotted one or a pattern can be of a field of an evaluation.

    >>> is_field_name("pooling"), is_field_name("data.*"), is_field_name("poling")
    (True, True, False)
    """
    return any(fnmatchcase(field, word) for word in name.split(".") for field in FIELDS)


def _match_field(pattern: str, field: str) -> bool:
    """Whether a pattern names a field, or its first or last word.

    >>> _match_field("pooling", "encoding.pooling"), _match_field("prompts", "prompts.query")
    (True, True)
    >>> _match_field("x", "data.x.y")
    False
    """
    words = (field, field.partition(".")[0], field.rpartition(".")[2])
    return any(fnmatchcase(word, pattern) for word in words)


def _match_seeds(
    candidate: Sequence[Identity], baseline: Sequence[Identity]
) -> list[tuple[Comparable, Comparable]]:
    """Each score of the baseline with the candidate's of the same seed, else with its first."""
    # Reversed, so that the first score of a seed stays.
    seeds = {one.get("seed"): one for one in reversed(candidate)}
    same = [(seeds.get(other.get("seed"), candidate[0]), other) for other in baseline if candidate]
    return [(Comparable(identity=mine), Comparable(identity=theirs)) for mine, theirs in same]


def find_provenance_differences(
    pairs: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]],
) -> list[str]:
    """Warnings on library versions, device and precision that differ.

    Args:
        pairs: By task, the provenance of the candidate's score and of the baseline's.
    """
    counts = Counter[FieldDifference]()
    for mine, theirs in pairs.values():
        first, second = flatten(mine), flatten(theirs)
        for field in dict.fromkeys((*first, *second)):
            value, other = first.get(field), second.get(field)
            if value != other and (field == "device.name" or not field.startswith("device.")):
                counts[field.removeprefix("packages."), value, other] += 1
    return [
        f"{field} was {theirs} for the baseline and is {mine} for the candidate "
        f"({'1 task' if count == 1 else f'{count} tasks'})."
        for (field, mine, theirs), count in counts.items()
    ]


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


SHOWN = 6
"""The number of differences that a refusal lists."""


def _format_difference(difference: FieldDifference) -> tuple[str, str, str]:
    mine, theirs = ("none" if value is None else repr(value) for value in difference[1:])
    return difference[0], mine, theirs


def _explain_unlike_scores(refused: Mapping[FieldDifference, Sequence[str]], baseline: str) -> UsageError:
    lines = [f"  {_describe(d, tasks)}" for d, tasks in refused.items()]
    more = len(lines) - SHOWN
    listed = "\n".join([*lines[:SHOWN], *([f"  and {more} more"] if more > 0 else [])])
    words = (
        f.rpartition(".")[2] if f.startswith("encoding.") else f.partition(".")[0] for f, _, _ in refused
    )
    flags = " ".join(f"--allow {word}" for word in dict.fromkeys(words))
    # Data without a revision was read from a data root.
    root = ""
    if any(field == "data.revision" and theirs == "none" for field, _, theirs in refused):
        root = "The baseline was measured on a data root: name it with --data DIR or HARNESS_DATA. "
    if any(field == "encoding.dtype" for field, _, _ in refused):
        root += "To ask whether the same model in another precision gives the same: --question port. "
    return UsageError(
        f"The candidate is not evaluated as the baseline {baseline} was:\n{listed}",
        hint=f"{root}To compare them anyway, e.g. models that each need their own pooling or prompts: "
        f"{flags}. Else type the options that make both alike (--max-length, --prompt and the like), leave "
        "out those that were typed for the candidate alone, or set the baseline again.",
    )


def _describe(difference: FieldDifference, tasks: Sequence[str]) -> str:
    field, mine, theirs = difference
    more = f" and {len(tasks) - 1} more" if len(tasks) > 1 else ""
    return f"{field} is {_shorten_value(mine)}, the baseline's {_shorten_value(theirs)} ({tasks[0]}{more})"


def _shorten_value(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}…"
