"""Ranks on one task, and which entry stands for its model."""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot

from leaderboard.grid import knownness
from leaderboard.pages.task.scores import Scored, counts


def first_of_models(rows: Sequence[Scored], *, any_revision: bool) -> list[Scored]:
    """One row for each model: a number that is ranked, then the best known revision, then the newest."""
    best: dict[str, Scored] = {}
    for one in rows:
        there = best.get(one.entry.model_slug)
        if there is None or _weight(one, any_revision) > _weight(there, any_revision):
            best[one.entry.model_slug] = one
    return list(best.values())


def _weight(one: Scored, any_revision: bool) -> tuple[bool | int | str, ...]:
    entry = one.entry
    ranked = counts(one, any_revision=any_revision)
    return (ranked, one.value is not None, *knownness(entry))


def places(rows: Sequence[Scored]) -> dict[int, int]:
    """Ranks by entry, of rows that all count; each group of ties begins with its best.

    Two share a rank where their scores are equal, or where both have intervals and differ by no more
    than the half-widths put together as those of independent numbers.
    """
    found: dict[int, int] = {}
    leader: Scored | None = None
    for position, one in enumerate(sorted(rows, key=lambda r: -(r.value or 0.0)), 1):
        if leader is None or not alike(leader, one):
            leader, first = one, position
        found[one.entry.id] = first
    return found


def alike(one: Scored, other: Scored) -> bool:
    """Whether two numbers of a task cannot be told apart, by what is known of them."""
    return tie(one.value, other.value, one.half, other.half)


def tie(one: float | None, other: float | None, half: float | None, other_half: float | None) -> bool:
    """Whether two numbers are equal, or lie within their known intervals put together.

    >>> tie(0.5, 0.52, None, 0.01), tie(0.5, 0.52, 0.015, 0.015)
    (False, True)
    """
    if one is None or other is None:
        return False
    room = hypot(half, other_half) if half is not None and other_half is not None else 0.0
    return abs(one - other) <= room
