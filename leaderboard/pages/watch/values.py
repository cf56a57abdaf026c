"""The values of a curve, and which of them are comparable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.watch.state import Entry as Checkpoint
from harness.watch.state import Watch


@dataclass(frozen=True, kw_only=True)
class Value:
    """A checkpoint's value; `apart` says why it is not comparable with the others, empty where it is."""

    checkpoint: Checkpoint
    value: float | None
    apart: str = ""


def values_of(watch: Watch, task: str = "") -> list[Value]:
    """The value of every checkpoint, by step: its mean, or a task's score.

    An incomplete checkpoint has the mean over the tasks that it has, which is not comparable.
    """
    latest = _treatment(watch)
    return [_value(one, task, latest) for one in sorted(watch.checkpoints, key=lambda one: one.step)]


def _treatment(watch: Watch) -> str:
    """How the newest complete checkpoint was measured; of several that are alike the curve is made."""
    return watch.curve[-1].treatment if watch.curve else ""


def _value(one: Checkpoint, task: str, latest: str) -> Value:
    other = "measured in another way than the newest one" if latest and one.treatment != latest else ""
    if task:
        return Value(checkpoint=one, value=one.scores.get(task), apart=other if task in one.scores else "")
    if one.mean is not None:
        return Value(checkpoint=one, value=one.mean, apart=other)
    there: Sequence[float] = list(one.scores.values())
    value = sum(there) / len(there) if there else None
    return Value(checkpoint=one, value=value, apart=f"{one.there} of {one.wanted} columns" if there else "")
