"""Cells that many pages have: scores, differences, sizes, times and counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.results.scores import format_delta, score_text
from leaderboard.data.entries import Entry
from leaderboard.data.scores import SuiteScores
from leaderboard.web.table_formats import format_parameters
from leaderboard.web.tables import Cell

SOURCES = {
    "measured": "measured by encoder-harness",
    "imported": "imported from the results of mteb",
    "reported": "printed in a paper",
}
"""Where a number comes from, as a sentence ends."""

STATED = "stated by its makers"
"""Of an imported score that the makers of a model report themselves: mteb did not run it."""


def describe_score(
    name: str, number: str, facts: Mapping[str, Any], *more: str, scale: str = " × 100"
) -> str:
    """A score on the task of `facts`, with its metric where they state it, and `more` of it."""
    metric = f"{facts.get('metric') or 'main score'}{scale}"
    return ", ".join([f"{name} scores {number} ({metric}) on {facts['task']}", *filter(None, more)])


def build_origin_cell(scores: SuiteScores, row: int, entries: Mapping[int, Entry]) -> Cell:
    """Where the numbers of a row come from, and how many of them the model's makers state."""
    entry = scores.entries[row]
    unknown = "no revision" if entry.trust == "none" else ""
    known = describe_stated(scores, row, entries) or unknown
    text = f"{entry.origin}, {known}" if known else entry.origin
    return Cell(text=text, value=entry.origin, kind=entry.origin)


def describe_stated(scores: SuiteScores, row: int, entries: Mapping[int, Entry]) -> str:
    """How many of a row's scores the makers of its model state themselves; empty for none."""
    sources = scores.sources[row][scores.counted[row]].tolist() if scores.sources.size else []
    stated = sum(number in entries and entries[number].trust == "external" for number in sources)
    share = "" if stated == len(sources) else f"{stated} of {len(sources)} scores "
    return f"{share}{STATED}" if stated else ""


def format_count(number: int, what: str) -> str:
    """A number of things.

    >>> format_count(1, "check"), format_count(1200, "watch"), format_count(2, "quantity")
    ('1 check', '1,200 watches', '2 quantities')
    """
    ending = next((end for end in ("ch", "y") if what.endswith(end)), "")
    plural = what.removesuffix("y") + {"ch": "es", "y": "ies", "": "s"}[ending]
    return f"{number:,} {what if number == 1 else plural}"


def format_task_count(count: int) -> str:
    """A number of tasks.

    >>> format_task_count(1), format_task_count(41)
    ('its one task', '41 tasks')
    """
    return "its one task" if count == 1 else f"{count} tasks"


def format_heading(text: str) -> str:
    """A text as a sentence begins: its other capitals stay."""
    return text[:1].upper() + text[1:]


def build_delta_cell(value: float | None) -> Cell:
    """The cell of a difference."""
    return Cell(text=format_delta(value), value=value)


def build_score_cell(value: float | None, href: str = "", *, kind: str = "", note: str = "") -> Cell:
    """The cell of a score."""
    return Cell(text=score_text(value), value=value, href=href, kind=kind, note=note)


def build_size_cell(parameters: int | None, unknown: str = "?") -> Cell:
    """The cell of a number of parameters; `unknown` is its text where the number is not known."""
    return Cell(text=format_parameters(parameters) if parameters else unknown, value=parameters)


def build_length_cell(entry: Entry) -> Cell:
    """The cell of the most tokens of an input."""
    if entry.tokens_unlimited:
        return Cell(text="no limit")
    return Cell(text=f"{entry.max_tokens:,}", value=entry.max_tokens) if entry.max_tokens else Cell()


def build_time_cell(when: str) -> Cell:
    """The cell of a time, to the minute."""
    return Cell(text=format_time(when), value=when or None, note=when)


def format_time(when: str) -> str:
    """An ISO time as pages print it.

    >>> format_time("2026-01-02T03:04:05+00:00"), format_time("")
    ('2026-01-02 03:04 UTC', '–')
    """
    zone = " UTC" if when.endswith(("+00:00", "Z")) else ""
    return f"{when[:16].replace('T', ' ')}{zone}" or "–"
