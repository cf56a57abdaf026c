"""What a score can be set against: facts of a model, its speed and its cost, and printed training compute."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal, TypeAlias, TypeGuard

from harness.core.types import is_number
from leaderboard.data.backbones import parse_parameter_count
from leaderboard.data.papers import (
    OVER_TASKS,
    OVER_TYPES,
    SUITES,
    TYPES,
    Line,
    Paper,
    format_anchor,
    group_printed_lines,
    normalize_metric,
)
from leaderboard.data.queries import Entry, Queries
from leaderboard.data.scores import SuiteScores
from leaderboard.web.charts import Better, Point
from leaderboard.web.formats import format_parameters

Place: TypeAlias = "float | date"

Key = Literal["parameters", "dimension", "tokens", "date", "flops", "throughput", "cost"]


@dataclass(kw_only=True)
class _Work:
    """Seconds of all steps on one device, the tokens encoded there, and the seconds of encoding them."""

    seconds: float = 0.0
    tokens: float = 0.0
    encoding: float = 0.0


_Works: TypeAlias = "Mapping[int, Mapping[str, _Work]]"
"""The work of measured entries by row and device."""


def load_device_work(queries: Queries, scores: SuiteScores) -> _Works:
    """What the measured entries of a suite took, from their records."""
    rows = {entry.id: row for row, entry in enumerate(scores.entries) if entry.origin == "measured"}
    names = [task.name for task in scores.site_suite.suite.tasks]
    by_row: dict[int, dict[str, _Work]] = {}
    for entry, document in queries.load_entry_records(list(rows), names):
        # The schema of records makes it an object, so it needs no check.
        provenance = document.get("provenance", {})
        device = provenance.get("device")
        name = str(device.get("name") or device.get("kind")) if isinstance(device, dict) else "unknown device"
        _add(by_row.setdefault(rows[entry], {}).setdefault(name, _Work()), provenance)
    return by_row


def _add(work: _Work, provenance: Mapping[str, Any]) -> None:
    steps, tokens = provenance.get("seconds"), provenance.get("tokens_encoded")
    seconds = {k: v for k, v in steps.items() if _is_amount(v)} if isinstance(steps, Mapping) else {}
    work.seconds += sum(seconds.values())
    if _is_amount(tokens) and seconds.get("encode"):
        work.tokens += tokens
        work.encoding += seconds["encode"]


def _is_amount(value: Any) -> TypeGuard[float]:
    """Whether it is a number of something: a record of any origin may hold anything."""
    return is_number(value) and 0 <= value < math.inf


def rank_devices(by_row: _Works) -> list[str]:
    """The devices, those with the most entries first."""
    count = Counter(device for by_device in by_row.values() for device in by_device)
    return sorted(count, key=lambda device: (-count[device], device))


def compute_throughput(by_row: _Works, device: str) -> dict[int, float]:
    """Tokens per second of each row on a device."""
    work_by_row = {row: by_device[device] for row, by_device in by_row.items() if device in by_device}
    return {
        # Of the encoding alone: other steps take no tokens.
        row: work.tokens / work.encoding
        for row, work in work_by_row.items()
        if work.tokens and work.encoding
    }


def compute_cost(by_row: _Works, device: str, price: float) -> dict[int, float]:
    """The price of each row's seconds, where it ran on this device alone.

    Args:
        by_row: Work by row and device.
        device: The device.
        price: Dollars for an hour of it.

    Returns:
        Dollars by row.
    """
    return {
        # A price is for an hour of one machine: the cost of what ran on two is not known.
        row: by_device[device].seconds * price / 3600
        for row, by_device in by_row.items()
        if set(by_device) == {device} and by_device[device].seconds
    }


@dataclass(frozen=True, kw_only=True)
class _Measure:
    """Something to set a score against.

    `name` stands in a sentence, `label` on the axis with its unit. Of dates the earlier one is `better`, so
    the frontier is what led when. `why` is the reason where no entry has it, `text` a value as the table
    prints it, `of` takes it from an entry's own facts; None for what comes from records or papers.
    """

    name: str
    label: str
    better: Better
    why: str
    text: Callable[[Any], str]
    of: Callable[[Entry], Place | None] | None = None


def _parse_day(text: str | None) -> date | None:
    """A date, None where the text is none.

    >>> _parse_day("2024-05-06"), _parse_day("2024-05"), _parse_day(None)
    (datetime.date(2024, 5, 6), None, None)
    """
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        return None


_whole = "{:,.0f}".format
_CARD = "No model with a score here states {} on its card, and no record holds it.".format

MEASURES: Mapping[Key, _Measure] = {
    "parameters": _Measure(
        name="parameter count", label="Parameters", better="lower", text=format_parameters,
        of=lambda entry: entry.parameters, why=_CARD("how many parameters it has"),
    ),
    "dimension": _Measure(
        name="embedding dimension", label="Embedding dimension", better="lower", text=_whole,
        of=lambda entry: entry.dimension, why=_CARD("how long its vectors are"),
    ),
    "tokens": _Measure(
        name="longest input", label="Longest input, tokens", better="higher", text=_whole,
        of=lambda entry: entry.max_tokens, why=_CARD("how many tokens it takes"),
    ),
    "date": _Measure(
        name="release date", label="Release date", better="lower", text=str,
        of=lambda entry: _parse_day(entry.released), why=_CARD("when it was released"),
    ),
    "flops": _Measure(
        name="training compute", label="Training compute, 10¹⁸ FLOP", better="lower",
        text="{:.3g} FLOP".format,
        why="The compute of pretraining is not stated for these models: records and imports do not hold it, "
        "and no paper at hand prints it beside this score.",
    ),
    "throughput": _Measure(
        name="tokens per second", label="Tokens per second", better="higher", text=_whole,
        why="Only records measured by this harness hold how fast a model encoded; no finished model was "
        "measured on this suite, or all its vectors were known from before.",
    ),
    "cost": _Measure(
        name="cost in dollars", label="Cost, USD", better="lower", text="${:,.4g}".format,
        why="Only records measured by this harness hold the seconds that a cost is made of; nothing was "
        "measured on this suite.",
    ),
}  # fmt: skip


FLOPS = 1e18
"""The unit of training compute on the axis."""


@dataclass(frozen=True, kw_only=True)
class CostPoint(Point):
    """One point of the chart: an entry, or a line of a paper's table, which is none of the site's entries.

    `amount` is its x in the measure's own unit, `score` a share of 1. `count` says over how many tasks it is
    (None for a printed one), and `selected` whether scores that it is made of selected the model.
    """

    entry: Entry
    amount: Place
    score: float
    count: int | None = None
    selected: bool = False

    @staticmethod
    def from_entry(entry: Entry, amount: Place, score: float, **more: Any) -> CostPoint:
        """A point of an entry."""
        x = more.pop("x", amount)
        return CostPoint(
            entry=entry, amount=amount, score=score, x=x, y=100 * score, label=entry.model,
            series=entry.origin, **more,
        )  # fmt: skip


_COMPUTE = re.compile(r"\bC=([\d.]+(?:e\d+)?)")
_TOKENS = re.compile(r"\btokens ([\d.]+ ?[KMBT])\b")
_SHORT = {full: short for short, full in TYPES.items()}


def iter_printed_dots(papers: Iterable[Paper], suite: str, score: str) -> Iterator[CostPoint]:
    """The lines of papers that print a training compute and a score of the suite that is typed so."""
    for paper in papers:
        for table in paper.tables.values():
            for line in group_printed_lines(table.rows) if SUITES.get(table.rows[0].suite) == suite else ():
                compute, value = _COMPUTE.search(line.first.setting), _find_line_score(line, score)
                if compute and value is not None:
                    amount = float(compute[1])
                    yield CostPoint.from_entry(
                        _build_line_entry(line, paper), amount,
                        value / (1 if line.first.unit == "fraction" else 100), x=amount / FLOPS,
                        href=f"/papers/{paper.slug}#table-{format_anchor(table.id)}",
                        note=f"{paper.name}: {line.first.setting}",
                    )  # fmt: skip


def _find_line_score(line: Line, score: str) -> float | None:
    kind, _, name = score.partition(":")
    if name:
        column_name = _SHORT.get(name) if kind == "type" else name
        numbers = (
            row.number
            for column, row in line.cells.items()
            if normalize_metric(row.suite, column) == column_name
        )
        return next(numbers, None)
    means, first = line.means, next(iter(line.means.values()), None)
    # Not to be had: a printed mean includes the tasks that selected the model.
    if score == "untouched":
        return None
    return means.get(OVER_TYPES) if score == "types" else means.get(OVER_TASKS, first)


def _build_line_entry(line: Line, paper: Paper) -> Entry:
    tokens = _TOKENS.search(line.first.setting)
    name = f"{line.model[0]} ({tokens[1]} tokens)" if tokens else line.model[0]
    return Entry(
        id=0, slug="", model=name, model_slug="", origin="reported", source=paper.slug, revision=None,
        trust="reported", artifact=None, treatment=line.first.setting, recipe=None, output="",
        parameters=parse_parameter_count(line.first.params), dimension=None, max_tokens=None, released=None,
        open_weights=None, adapted_from=None, trained_on=None, newest=None, tasks=0,
    )  # fmt: skip
