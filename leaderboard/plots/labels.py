"""Names beside points such that no two overlap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from leaderboard.plots.svg import FONT, element, wide

Box: TypeAlias = tuple[float, float, float, float]
"""Left, top, right, bottom."""

Anchor = Literal["start", "middle", "end"]
HEIGHT = FONT * 1.15
DISTANCES = (8.0, 16.0, 28.0, 44.0, 64.0)
FAR = 20.0
"""A name beyond this is tied to its point by a line."""


NEAR, CLEAR = 28.0, 1
"""How far off a name that is no must may lie, and how much it may cover."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Name:
    """A name and its point; a `must` may lie far off and cover other points."""

    text: str
    x: float
    y: float
    must: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed:
    """A name and the box it fills; `anchor` and `x` say how it is written there."""

    text: str
    x: float
    box: Box
    anchor: Anchor
    point: tuple[float, float]
    distance: float


def place(names: Sequence[Name], *, inside: Box, hard: Sequence[Box], soft: Sequence[Box]) -> list[Placed]:
    """Places for names, the first ones first; a name for which there is no room is left out.

    Args:
        names: The most important first.
        inside: What no name leaves.
        hard: What no name covers.
        soft: What a name covers only if it must.
    """
    taken = [*hard]
    ground = np.asarray(soft, dtype=np.float64).reshape(-1, 4)
    found: list[Placed] = []
    for name in names:
        blocked = np.asarray(taken, dtype=np.float64).reshape(-1, 4)
        best = _best(name, inside, blocked, ground)
        if best is not None:
            found.append(best)
            taken.append(best.box)
    return found


def _best(
    name: Name, inside: Box, blocked: NDArray[np.float64], ground: NDArray[np.float64]
) -> Placed | None:
    free = (
        (_covers(one.box, ground), one)
        for one in _places(name)
        if _within(one.box, inside) and not _covers(one.box, blocked)
    )
    fair = [(n, one) for n, one in free if name.must or (n <= CLEAR and one.distance <= NEAR)]
    return min(fair, key=lambda two: two[0] + two[1].distance / 12, default=(0, None))[1]


def _places(name: Name) -> Iterator[Placed]:
    text, x, y = name.text, name.x, name.y
    width, half = wide(text), HEIGHT / 2
    for far in DISTANCES:
        near = far * 0.75
        spots: tuple[tuple[float, float, Anchor], ...] = (
            (far, 0, "start"),
            (-far, 0, "end"),
            (0, -far - 2, "middle"),
            (0, far + 2, "middle"),
            (near, -near, "start"),
            (-near, -near, "end"),
            (near, near, "start"),
            (-near, near, "end"),
        )
        for right, down, anchor in spots:
            left = x + right - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
            box = (left, y + down - half, left + width, y + down + half)
            yield Placed(text=text, x=x + right, box=box, anchor=anchor, point=(x, y), distance=far)


def _within(box: Box, around: Box) -> bool:
    return box[0] >= around[0] and box[1] >= around[1] and box[2] <= around[2] and box[3] <= around[3]


def _covers(box: Box, others: NDArray[np.float64]) -> int:
    left, top, right, bottom = others.T
    return int(((left < box[2]) & (right > box[0]) & (top < box[3]) & (bottom > box[1])).sum())


def around(x: float, y: float, size: float) -> Box:
    """The box of a marker."""
    return (x - size, y - size, x + size, y + size)


def along(corners: Sequence[tuple[float, float]]) -> list[Box]:
    """Boxes that cover a line of steps."""
    return [
        (min(a, c) - 1, min(b, d) - 1, max(a, c) + 1, max(b, d) + 1) for (a, b), (c, d) in pairwise(corners)
    ]


def drawn(one: Placed) -> Markup:
    """The name, and a line to its point where it lies far off."""
    _, top, _, bottom = one.box
    text = element("text", one.text, x=one.x, y=bottom - 3.4, class_="plot-label", text_anchor=one.anchor)
    if one.distance < FAR:
        return text
    x, y = one.point
    end = (one.x, (top + bottom) / 2) if one.anchor != "middle" else (one.x, bottom if y > bottom else top)
    return (
        element("line", x1=x, y1=y, x2=end[0], y2=end[1], class_="plot-leader", stroke="currentColor") + text
    )
