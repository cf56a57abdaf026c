"""Scores with the training compute that a paper prints beside them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from leaderboard.queries import Entry
from leaderboard.reported.lines import Line, printed_lines
from leaderboard.reported.printed import Paper, key_of, plain
from leaderboard.reported.recompute import OVER_TASKS, OVER_TYPES, SUITES, TYPES

COMPUTE = re.compile(r"\bC=([\d.]+(?:e\d+)?)")
TOKENS = re.compile(r"\btokens ([\d.]+ ?[KMBT])\b")
SHORT = {full: short for short, full in TYPES.items()}
UNITS = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


@dataclass(frozen=True, kw_only=True)
class PrintedPoint:
    """A line of a paper's table.

    Attributes:
        entry: The line as filters see it; it is none of the index.
        flop: The printed training compute.
        score: A share of 1.
        href: The table.
        note: The printed setting.
    """

    entry: Entry
    flop: float
    score: float
    href: str
    note: str


def printed_points(papers: Iterable[Paper], suite: str, score: str) -> list[PrintedPoint]:
    """The lines that print both a training compute and a score.

    Args:
        papers: Where to look.
        suite: The suite's name in the catalog.
        score: As in `leaderboard.pages.pareto.measures.targets`.
    """
    return [point for paper in papers for point in _of_paper(paper, suite, score)]


def _of_paper(paper: Paper, suite: str, score: str) -> Iterator[PrintedPoint]:
    for table in paper.tables.values():
        for line in printed_lines(table.rows) if SUITES.get(table.rows[0].suite) == suite else ():
            compute, value = COMPUTE.search(line.first.setting), _score(line, score)
            if compute and value is not None:
                scale = 1 if line.first.unit == "fraction" else 100
                yield PrintedPoint(
                    entry=_entry(line, paper), flop=float(compute[1]), score=value / scale,
                    href=f"/papers/{paper.slug}#table-{key_of(table.id)}",
                    note=f"{paper.name}: {line.first.setting}",
                )  # fmt: skip


def _score(line: Line, score: str) -> float | None:
    kind, _, name = score.partition(":")
    if name:
        wanted = SHORT.get(name) if kind == "type" else name
        found = (row.number for column, row in line.cells.items() if plain(row.suite, column) == wanted)
        return next(found, None)
    if score == "untouched":
        return None  # a printed mean has the tasks that it leaves out
    means = line.means
    if score == "types":
        return means.get(OVER_TYPES)
    return means.get(OVER_TASKS) if OVER_TASKS in means else next(iter(means.values()), None)


def _entry(line: Line, paper: Paper) -> Entry:
    model, _ = line.model
    tokens = TOKENS.search(line.first.setting)
    name = f"{model} ({tokens[1]} tokens)" if tokens else model
    return Entry(
        id=0, slug="", model=name, model_slug="", origin="reported", source=paper.slug, revision=None,
        trust="reported", artifact=None, treatment=line.first.setting, recipe=None, output="",
        parameters=number_with_unit(line.first.params), dimension=None, max_tokens=None, released=None,
        open_weights=None, adapted_from=None, trained_on=None, newest=None, tasks=0,
    )  # fmt: skip


def number_with_unit(text: str) -> int | None:
    """A printed number of parameters.

    >>> number_with_unit("198M"), number_with_unit("1.3B"), number_with_unit("")
    (198000000, 1300000000, None)
    """
    found = re.fullmatch(r"([\d.]+) ?([KMBT])", text)
    return round(float(found[1]) * UNITS[found[2]]) if found else None
