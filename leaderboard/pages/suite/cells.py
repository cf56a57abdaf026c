"""Cells of a suite's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.scores import score_text
from leaderboard.grid import Floats, Grid, Means, Ranks
from leaderboard.queries import Entry
from leaderboard.scopes import REASONS
from leaderboard.tables import Cell

GONE = {"none": "–", "failed": "×", "bad": "!", "part": "–"}
"""What a cell without a number prints."""


def unseen_cell(share: float) -> Cell:
    """The share of columns that a model was not trained on; a question mark where nobody says."""
    return Cell(text=f"{100 * share:.0f} %", value=share) if share == share else Cell(text="?")


def rank_cell(ranks: Ranks, row: int) -> Cell:
    """A row's rank; empty for one that has none."""
    place = int(ranks.place[row])
    return Cell(text=str(place) if place else "", value=place or None)


def ranked_cell(ranks: Ranks, values: Floats, row: int, form: str) -> Cell:
    """A number that only ranked rows have."""
    if not ranks.place[row]:
        return Cell()
    return Cell(text=form.format(values[row]), value=float(values[row]))


def model_cell(entry: Entry) -> Cell:
    """A model's name, or that of a paper's row."""
    if entry.origin == "reported":
        text = f"{entry.model}: {entry.treatment.rpartition(';')[2].rpartition(': ')[2].strip()}"
        return Cell(text=text, value=entry.model, href=f"/papers/{entry.source}", note=entry.treatment)
    return Cell(text=entry.model, value=entry.model, href=f"/models/{entry.model_slug}", note=entry.treatment)


def origin_cell(entry: Entry) -> Cell:
    """Where the numbers of a row come from."""
    told = {"external": "by its makers", "none": "no revision"}.get(entry.trust, "")
    text = f"{entry.origin}, {told}" if told else entry.origin
    return Cell(text=text, value=entry.origin, kind=entry.origin)


def how_cell(entry: Entry) -> Cell:
    """An imported model's revision, a measured one's treatment, where a row is printed."""
    revision = entry.revision or ""
    text = entry.treatment or (revision[:10] if entry.trust == "commit" else revision.replace("_", " "))
    short = text if len(text) <= 36 else f"{text[:35]}…"
    return Cell(text=short, value=text, note=text if short != text else "")


def there_cell(grid: Grid, means: Means, row: int) -> Cell:
    """How many of the suite's columns count."""
    if grid.averages.get(row, {}).get("types"):
        return Cell(text="by type", value=None, note="The paper prints means of types only.")
    return Cell(text=f"{means.there[row]}/{means.wanted}", value=int(means.there[row]))


def mean_cell(means: Means, row: int, average: Mapping[str, Any] | None) -> Cell:
    """A mean; `average` is what else is known of it (Grid.averages)."""
    value = float(means.values[row])
    if average and "printed" in average:
        return _printed_mean(means, row, average)
    if not means.there[row]:
        return Cell(text="–", kind="none")
    if not means.complete[row]:
        return Cell(
            text=score_text(value), value=value, kind="part", note=f"of {means.there[row]} of {means.wanted}"
        )
    if average and average.get("interval"):
        low, high = average["interval"]
        return Cell(
            text=f"{score_text(value)} ± {50 * (high - low):.2f}",
            value=value,
            note="± half of the 95 % interval",
        )
    return Cell(text=score_text(value), value=value)


def _printed_mean(means: Means, row: int, document: Mapping[str, Any]) -> Cell:
    """A mean of a paper's row: of a type as printed, else made of what is printed."""
    value = float(means.values[row])
    if not means.there[row]:
        return Cell(text="–", kind="none")
    if means.over not in ("tasks", "types"):
        return Cell(text=f"{100 * value:.1f}", value=value)
    printed = document.get("printed")
    note = "made of the printed numbers" + (f"; the paper prints {100 * printed:.1f}" if printed else "")
    kind = "" if means.complete[row] else "part"
    return Cell(text=score_text(value), value=value, kind=kind, note=note)


def task_cell(grid: Grid, row: int, at: int, tasks: Sequence[str]) -> Cell:
    """A task's score, or why there is none."""
    reason, value = REASONS[grid.reasons[row, at]], float(grid.values[row, at])
    if reason in GONE:
        return Cell(text=GONE[reason], kind=reason)
    if grid.entries[row].origin == "reported":
        return Cell(text=f"{100 * value:.1f}", value=value)
    trained = grid.entries[row].trained_on
    kinds = ["leak"] if trained and any(task in trained for task in tasks) else []
    kinds += ["other"] if reason == "other" else []
    low, high = float(grid.low[row, at]), float(grid.high[row, at])
    note = f"95 %: {score_text(low)} to {score_text(high)}" if low == low else ""
    return Cell(text=score_text(value), value=value, kind=" ".join(kinds), note=note)


def columns_text(grid: Grid) -> str:
    """How many columns a suite has, in words."""
    count = len(grid.listed.suite.columns)
    return f"{count} columns" if count != 1 else "its one column"
