"""A line chart of a few rows of text: braille for the line, a dot for each checkpoint."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

WIDTH, HEIGHT = 64, 12
"""Of the plot in cells; a cell has 2 × 4 braille dots."""

LOGARITHMIC = 50
"""How many times the first step above 0 the last one must be for a logarithmic axis."""

_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))


def chart(
    points: Sequence[tuple[int, float]],
    flagged: Collection[int] = (),
    *,
    width: int = WIDTH,
    height: int = HEIGHT,
) -> Text:
    """Scores against steps.

    Args:
        points: (step, score), by step, at least one.
        flagged: Steps that are marked as dropped.
        width: Of the plot in cells.
        height: Likewise.
    """
    from rich.text import Text

    steps, values = [p[0] for p in points], [p[1] for p in points]
    logarithmic = len(steps) > 2 and steps[-1] >= LOGARITHMIC * next(filter(None, steps))
    across = _scaled([math.log1p(s) if logarithmic else float(s) for s in steps], 2 * width)
    up = _scaled(values, 4 * height)
    cells = _line(list(zip(across, up, strict=True)), width, height)
    dots = _dots(steps, across, up, flagged, width, height)
    labels = _labels(values, height)
    margin = max(map(len, labels.values()))
    drawn = Text()
    for row in range(height):
        label = labels.get(row, "")
        drawn.append(f"{label:>{margin}} {'┤' if label else '│'}")
        for column in range(width):
            mark = dots.get((row, column))
            drawn.append(mark or cells[row][column], style="bold red" if mark == "▼" else None)
        drawn.append("\n")
    ends = f"{steps[0]:,}", f"{steps[-1]:,} step{', logarithmic' if logarithmic else ''}"
    drawn.append(f"{'':>{margin}} └{'─' * width}\n")
    drawn.append(f"{'':>{margin}}  {ends[0]}{ends[1]:>{max(width - len(ends[0]), len(ends[1]) + 1)}}")
    return drawn


def _labels(values: Sequence[float], height: int) -> dict[int, str]:
    """What stands beside which row: the highest and the lowest score, or the only one."""
    low, high = f"{100 * min(values):.2f}", f"{100 * max(values):.2f}"
    return {0: high, height - 1: low} if min(values) < max(values) else {(height - 1) // 2: high}


def _scaled(values: Sequence[float], size: int) -> list[int]:
    """Places from 0 to `size` - 1; the middle where all are one."""
    low, high = min(values), max(values)
    if high == low:
        return [size // 2] * len(values)
    return [round((v - low) / (high - low) * (size - 1)) for v in values]


def _line(points: Sequence[tuple[int, int]], width: int, height: int) -> list[list[str]]:
    """The rows of cells with a line through all points."""
    bits = [[0] * width for _ in range(height)]
    for (x, y), (to_x, to_y) in itertools.pairwise(points):
        pieces = max(abs(to_x - x), abs(to_y - y), 1)
        for piece in range(pieces + 1):
            across = round(x + (to_x - x) * piece / pieces)
            down = 4 * height - 1 - round(y + (to_y - y) * piece / pieces)
            bits[down // 4][across // 2] |= _DOTS[across % 2][down % 4]
    return [[chr(0x2800 + one) if one else " " for one in row] for row in bits]


def _dots(
    steps: Sequence[int],
    across: Sequence[int],
    up: Sequence[int],
    flagged: Collection[int],
    width: int,
    height: int,
) -> dict[tuple[int, int], str]:
    """What stands in the cells of checkpoints: all of them if there is room, else those that dropped."""
    room = len(steps) <= width // 2
    marks: dict[tuple[int, int], str] = {}
    for step, x, y in zip(steps, across, up, strict=True):
        place = ((4 * height - 1 - y) // 4, x // 2)
        if step in flagged:
            marks[place] = "▼"
        elif room:
            marks.setdefault(place, "●")
    return marks
