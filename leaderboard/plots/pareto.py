"""The frontier: what nothing else beats on both axes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from leaderboard.plots.shapes import Better


def frontier(points: Sequence[tuple[float, float]], better: Better) -> list[int]:
    """Which points no other beats, in order of x.

    A point beats another if it is at least as good on both axes and better on one. Points alike on
    both stay together. A point that is not a number on an axis is never on the frontier.

    Args:
        points: (x, y) each; y is better the higher.
        better: Which x is better.

    Returns:
        Indices into `points`, by x and then as they came.

    >>> frontier([(1, 10), (2, 9), (3, 30), (3, 20)], "lower")
    [0, 2]
    >>> frontier([(1, 10), (2, 9), (3, 30), (3, 20)], "higher")
    [2]
    """
    sign = 1 if better == "lower" else -1
    usable = [i for i, (x, y) in enumerate(points) if x == x and y == y]
    usable.sort(key=lambda i: (sign * points[i][0], -points[i][1], i))
    found: list[int] = []
    best: float | None = None
    for (_, y), alike in groupby(usable, key=lambda i: points[i]):
        if best is None or y > best:
            best = y
            found += alike
    return sorted(found, key=lambda i: (points[i][0], i))


def steps(
    corners: Sequence[tuple[float, float]], better: Better, *, edge: float
) -> list[tuple[float, float]]:
    """The frontier as a line of steps: the best y within reach at each x.

    Args:
        corners: The frontier's points in order of x.
        better: Which x is better.
        edge: The x where the line ends, beyond the worst of them.

    >>> steps([(1, 10), (3, 30)], "lower", edge=9)
    [(1, 10), (3, 10), (3, 30), (9, 30)]
    >>> steps([(1, 30), (3, 10)], "higher", edge=0)
    [(0, 30), (1, 30), (1, 10), (3, 10)]
    """
    if better == "higher":
        return [
            (-x, y) for x, y in reversed(steps([(-x, y) for x, y in reversed(corners)], "lower", edge=-edge))
        ]
    line: list[tuple[float, float]] = []
    for x, y in corners:
        if line:
            line.append((x, line[-1][1]))
        if not line or line[-1] != (x, y):
            line.append((x, y))
    return [*line, (edge, line[-1][1])] if line and line[-1][0] != edge else line
