"""Lines, table, terminal chart.

A watch in words, as a chart and as a table.

A line chart of a few rows of text: braille for the line, a dot for each checkpoint.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import unknown
from harness.report import score_text
from harness.watch.source import Checkpoint
from harness.watch.state import ChangePoint, Entry, Watch
from harness.watch.watch import Evaluated, Look

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


def how(done: Evaluated) -> str:
    """Whether a checkpoint was evaluated now, its scores were known, or nothing was scored."""
    return "evaluated" if done.new else "known already" if done.known else "nothing scored"


def said_of(done: Evaluated) -> str:
    """One line on a checkpoint that was evaluated."""
    entry = done.entry
    mean = f"mean {score_text(entry.mean)}" if entry.mean is not None else entry.state
    tasks = f"{done.new} scored now, {done.known} known"
    same = f"; the same weights as step {entry.same_as}" if entry.same_as is not None else ""
    reason = f": {entry.reason}" if entry.reason else ""
    return f"step {entry.step} ({entry.name}): {how(done)} ({tasks}), {mean}{reason}{same}"


def said_of_look(found: Look, *, skipped: bool) -> list[str]:
    """What a look waits for and, if asked for, what it passes over."""
    lines = [f"waiting for {_called(one.checkpoint)}: {one.reason}" for one in found.waiting]
    if skipped:
        lines += [f"skipped {one.name}: {one.reason}" for one in found.skipped]
    return lines


def said_of_change(change: ChangePoint) -> str:
    """A drop with its step, its size and how sure it is."""
    size = f"{100 * change.size:.2f} points"
    if change.kind == "shift":
        return f"from step {change.step} on the level is {size} lower ({_chance(change.p, 'curves')})"
    to = f" (to step {change.last})" if change.last != change.step else ""
    chance = _chance(change.p, "checkpoints")
    return f"step {change.step}{to} is {size} below what those before it lead to expect ({chance})"


def print_watch(watch: Watch, console: Console, *, task: str = "") -> None:
    """The curve, the table and what is flagged.

    Raises:
        UsageError: No checkpoint has a score on `task`.
    """
    points = _points(watch, task)
    wanted = max((one.wanted for one in watch.checkpoints), default=0)
    what = task or f"mean of {wanted} task{'s' * (wanted != 1)}"
    console.print(f"{watch.name}: {what} of {watch.suite}, scores × 100", style="bold", highlight=False)
    flagged = [change.step for change in watch.change_points] if not task else []
    if points:
        width = max(20, min(WIDTH, console.width - 12))
        console.print(chart(points, flagged, width=width), highlight=False, no_wrap=True)
    console.print(_table(watch, dict(points), task))
    for change in watch.change_points:
        console.print(said_of_change(change), style="red", highlight=False, soft_wrap=True)
    off = [one for one in watch.checkpoints if one.mean is not None and one not in watch.curve]
    if off:
        console.print(
            f"{len(off)} measured on other data or by other code: not on the curve.", highlight=False
        )


def listed(watch: Watch) -> dict[str, Any]:
    """A watch as a row of a list."""
    states = [one.state for one in watch.checkpoints]
    last = max(watch.curve, key=lambda one: one.step, default=None)
    return {
        "name": watch.name,
        "source": watch.source,
        "suite": watch.suite,
        **{state: states.count(state) for state in ("done", "partial", "failed", "waiting")},
        "last_step": None if last is None else last.step,
        "last_mean": None if last is None else last.mean,
        "drops": [change.step for change in watch.change_points],
    }


def print_list(watches: Sequence[Watch], results: Path, console: Console) -> None:
    """The watches of a results folder."""
    from rich.table import Table

    if not watches:
        console.print(f"Nothing is watched with the results in {results}.", highlight=False, soft_wrap=True)
        return
    table = Table()
    rows = [listed(watch) for watch in watches]
    for name in rows[0]:
        table.add_column(name.replace("_", " "), overflow="fold")
    for row in rows:
        row |= {"last_mean": score_text(row["last_mean"]), "drops": ", ".join(map(str, row["drops"]))}
        table.add_row(*("–" if value is None else str(value) for value in row.values()))
    console.print(table)


def _points(watch: Watch, task: str) -> list[tuple[int, float]]:
    if not task:
        return [(one.step, one.mean) for one in watch.curve if one.mean is not None]
    known = {name for one in watch.checkpoints for name in one.scores}
    if watch.checkpoints and task not in known:
        raise unknown("task of this watch", task, known, then=f"`harness list tasks --match {task}`.")
    latest = max((one for one in watch.checkpoints if task in one.scores), key=_when, default=None)
    alike = [one for one in watch.checkpoints if latest and one.treatment == latest.treatment]
    return [(one.step, one.scores[task]) for one in alike if task in one.scores]


def _when(entry: Entry) -> str:
    return entry.evaluated


def _table(watch: Watch, points: dict[int, float], task: str) -> Table:
    from rich.table import Table

    table = Table()
    for name in ("step", "score", "Δ"):
        table.add_column(name, justify="right")
    table.add_column("tasks", justify="right")
    table.add_column("", overflow="fold")
    before: float | None = None
    for one in watch.checkpoints:
        score = points.get(one.step)
        delta = "" if score is None or before is None else f"{100 * (score - before):+.2f}"
        tasks = f"{one.there}/{one.wanted}" if one.wanted else ""
        table.add_row(f"{one.step:,}", score_text(score), delta, tasks, _flag(watch, one, task))
        before = before if score is None else score
    return table


def _flag(watch: Watch, one: Entry, task: str) -> str:
    """What is to be said of a checkpoint in a table."""
    found = [f"{one.state}: {one.reason}"] if one.state != "done" else []
    for change in watch.change_points if not task else ():
        if change.step == one.step:
            found.append(f"{change.kind} of {100 * change.size:.2f} ({_chance(change.p)})")
        elif change.step < one.step <= change.last:
            found.append("still low")
    found += [f"the same weights as step {one.same_as}"] if one.same_as is not None else []
    return "; ".join(found)


def _chance(p: float, of: str = "") -> str:
    """How often chance does as much.

    >>> _chance(0.0004, "curves"), _chance(0.0)
    ('by chance in 1 of 2,500 curves', 'by chance in less than 1 of 1,000,000')
    """
    share = f"1 of {1 / p:,.0f}" if p > 1e-6 else "less than 1 of 1,000,000"
    return f"by chance in {share}{f' {of}' if of else ''}"


def _called(one: Checkpoint) -> str:
    return f"step {one.step} ({one.name})"


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
