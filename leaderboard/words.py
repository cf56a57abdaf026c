"""Numbers and dates as pages print them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from leaderboard.tables import Cell


def parameters_text(number: int | None) -> str:
    """A number of parameters.

    >>> parameters_text(22_713_216), parameters_text(7_110_000_000), parameters_text(None)
    ('22.7 M', '7.11 B', '?')
    """
    if number is None:
        return "?"
    return f"{number / 1e9:.3g} B" if number >= 1e9 else f"{number / 1e6:.3g} M"


def seeds_text(seeds: Sequence[int]) -> str:
    """Seeds in words.

    >>> seeds_text([1]), seeds_text([1, 2, 3])
    ('seed 1', '3 seeds: 1, 2, 3')
    """
    listed = ", ".join(map(str, seeds))
    return f"{len(seeds)} seeds: {listed}" if len(seeds) > 1 else f"seed {listed}"


def over_seeds(cell: Cell, deviation: float | None, seeds: Sequence[int]) -> Cell:
    """A score times 100 with its standard deviation over seeds, where there is one.

    >>> over_seeds(Cell(text="51.00", value=0.51), 0.01, [1, 2]).text
    '51.00 ± 1.00'
    """
    if deviation is None or deviation != deviation:
        return cell
    notes = [f"mean ± standard deviation over {seeds_text(seeds)}", *([cell.note] if cell.note else [])]
    text = f"{cell.text} ± {100 * deviation:.2f}"
    return replace(cell, text=text, deviation=deviation, note="; ".join(notes))


def some_seeds(there: int, wanted: int) -> Cell:
    """The cell of a score that only some seeds have."""
    note = f"{there} of {wanted} seeds have a score: there is no mean over them"
    return Cell(text=f"{there} of {wanted} seeds", kind="seeds", note=note)
