"""What the axes of the trade-off page can show: what a score costs, and which score."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from leaderboard.grid import Floats, Grid, Means, UntouchedMeans
from leaderboard.page import missing
from leaderboard.plots.shapes import Better
from leaderboard.queries import Entry
from leaderboard.words import parameters_text

Key = Literal["parameters", "dimension", "tokens", "date", "flops", "throughput", "cost"]

FLOPS = 1e18
"""Training compute is drawn in units of so many FLOP: ticks know no prefix beyond T."""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """Something to set a score against.

    Attributes:
        name: In a sentence, and where it is chosen.
        label: On the axis, with its unit.
        better: Which end is better; of dates the earlier one, so that the frontier is what led when.
        why: What is said where no entry has it.
        text: A value as the table prints it.
        of: A value of an entry by its own facts; None for what is found elsewhere.
    """

    name: str
    label: str
    better: Better
    why: str
    text: Callable[[Any], str]
    of: Callable[[Entry], float | date | None] | None = None


def day(text: str | None) -> date | None:
    """A date, None where the text is none.

    >>> day("2024-05-06"), day("2024-05"), day(None)
    (datetime.date(2024, 5, 6), None, None)
    """
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        return None


def _whole(number: float) -> str:
    return f"{number:,.0f}"


CARD = "No model with a score here says {} on its card, and no record holds it."

MEASURES: Mapping[Key, Measure] = {
    "parameters": Measure(
        name="parameter count",
        label="Parameters", better="lower", of=lambda entry: entry.parameters,
        text=parameters_text, why=CARD.format("how many parameters it has"),
    ),
    "dimension": Measure(
        name="embedding dimension",
        label="Embedding dimension", better="lower", of=lambda entry: entry.dimension,
        text=_whole, why=CARD.format("how long its vectors are"),
    ),
    "tokens": Measure(
        name="longest input",
        label="Longest input, tokens", better="higher", of=lambda entry: entry.max_tokens,
        text=_whole, why=CARD.format("how many tokens it takes"),
    ),
    "date": Measure(
        name="release date",
        label="Release date", better="lower", of=lambda entry: day(entry.released),
        text=str, why=CARD.format("when it was released"),
    ),
    "flops": Measure(
        name="training compute",
        label="Training compute, 10¹⁸ FLOP", better="lower", text=lambda flop: f"{flop:.3g} FLOP",
        why="Nobody says what it took to pretrain these models: records and imports do not hold it, and no "
        "paper at hand prints it beside this score.",
    ),
    "throughput": Measure(
        name="tokens per second",
        label="Tokens per second", better="higher", text=_whole,
        why="Only records measured by this harness hold how fast a model encoded; no finished model was "
        "measured on this suite, or all its vectors were known from before.",
    ),
    "cost": Measure(
        name="cost in dollars",
        label="Cost, USD", better="lower", text=lambda dollars: f"${dollars:,.4g}",
        why="Only records measured by this harness hold the seconds that a cost is made of; nothing was "
        "measured on this suite.",
    ),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class Target:
    """A score of every entry of a grid: (entries,) each, shares of 1.

    Attributes:
        label: What it is.
        values: NaN where nothing is known.
        whole: Whether all that it is made of is there.
        there: How many columns it is made of.
        wanted: How many there are.
        low: Of the 95 % interval; NaN for none.
        high: Likewise.
        selected: Whether scores that it is made of chose the model.
    """

    label: str
    values: Floats
    whole: NDArray[np.bool_]
    there: NDArray[np.int64]
    wanted: int
    low: Floats
    high: Floats
    selected: NDArray[np.bool_]


def targets(grid: Grid, untouched: UntouchedMeans | None) -> dict[str, str]:
    """The scores that can be asked for: key and name."""
    part = untouched.part if untouched else None
    own = {"untouched": f"mean over the {part.count} untouched tasks"} if part else {}
    count = len(grid.listed.suite.columns)
    means = {"tasks": f"mean over {count} tasks", "types": "mean over task types"}
    several = len(grid.by_type) > 1
    types = {f"type:{kind}": f"mean of {kind}" for kind in grid.by_type} if several else {}
    tasks = {f"task:{column.name}": column.name for column in grid.listed.suite.columns}
    return {**{key: means[key] for key in means if key == "tasks" or several}, **own, **types, **tasks}


def target(grid: Grid, key: str, untouched: UntouchedMeans | None) -> Target:
    """The score of this key.

    Raises:
        NotFound: There is none.
    """
    known = targets(grid, untouched)
    if key not in known:
        raise missing("score", key, known, then="The form above the plot offers those there are.")
    kind, _, name = key.partition(":")
    if kind == "task":
        return _of_task(grid, name)
    if untouched is not None and key == "untouched":
        return _of_means(
            known[key], untouched.over_tasks, *_bounds(grid, key), np.zeros(len(grid.entries), bool)
        )
    means = grid.by_type[name] if kind == "type" else grid.mean(key)
    selected = np.array([bool(grid.chose(row, name)) for row in range(len(grid.entries))], bool)
    return _of_means(known[key], means, *_bounds(grid, key), selected)


def _of_task(grid: Grid, name: str) -> Target:
    at = [column.name for column in grid.listed.suite.columns].index(name)
    counted = grid.counted[:, at]
    values = np.where(counted, grid.values[:, at], np.nan)
    return Target(
        label=name, values=values, whole=counted, there=counted.astype(np.int64), wanted=1,
        low=grid.low[:, at], high=grid.high[:, at], selected=grid.selected[:, at],
    )  # fmt: skip


def _of_means(label: str, means: Means, low: Floats, high: Floats, selected: NDArray[np.bool_]) -> Target:
    return Target(
        label=label, values=means.values, whole=means.complete, there=means.there, wanted=means.wanted,
        low=low, high=high, selected=selected,
    )  # fmt: skip


def _bounds(grid: Grid, key: str) -> tuple[Floats, Floats]:
    """The known intervals of the mean over tasks."""
    low, high = np.full((2, len(grid.entries)), np.nan)
    for row, average in grid.averages.items() if key == "tasks" else ():
        if average.get("interval"):
            low[row], high[row] = average["interval"]
    return low, high
