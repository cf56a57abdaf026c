"""Runs on a grid: the mean score and the number of runs in each cell of two stated facts.

A fact is a column of numbers of the rows (harness.watch.curves), or the ratio of two, such as
`tokens/size`. It is cut into bins of about as many runs each, or at stated edges.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, FiniteFloat

from harness.core.documents import DocumentFolder, DocumentKind, DocumentPart
from harness.core.errors import UsageError, explain_unknown
from harness.core.terminal import shorten_names
from harness.results.notes import format_amount
from harness.watch.curves import TEXTS, Floats, Row, choose_column, explain_divergence, read_column

BINS, MOST = 6, 24
"""Bins of an axis where nothing is said, as in OptiBERT's figure 6, and the most."""


class _GridAxis(DocumentPart):
    """A fact and its bins: each holds its lower edge but not its upper one, and the last holds both.

    An axis whose last two edges are equal has a bin for each value.
    """

    name: str
    edges: Annotated[tuple[FiniteFloat, ...], Field(min_length=2, max_length=MOST + 1)]

    @property
    def is_by_value(self) -> bool:
        """Whether each value has a bin of its own."""
        return self.edges[-1] == self.edges[-2]

    @property
    def marks(self) -> tuple[float, ...]:
        """The edges, or the value of each bin."""
        return self.edges[:-1] if self.is_by_value else self.edges

    def format_bins(self) -> list[str]:
        """The bins in words.

        >>> _GridAxis(name="masking", edges=(0.15, 0.3, 0.5)).format_bins()
        ['0.15 – 0.3', '0.3 – 0.5']
        """
        texts = [format_amount(mark) for mark in self.marks]
        return texts if self.is_by_value else [f"{low} – {high}" for low, high in pairwise(texts)]


class _GridRun(DocumentPart):
    """A run or checkpoint: its name, its two facts, and its score × 100."""

    name: str
    x: FiniteFloat
    y: FiniteFloat
    score: FiniteFloat


class RunGrid(DocumentPart):
    """Runs on two axes, across and up, as the site shows them."""

    name: str
    when: str
    column: str
    """What the scores are of."""
    axes: tuple[_GridAxis, _GridAxis]
    runs: Annotated[tuple[_GridRun, ...], Field(min_length=1)]
    notes: tuple[str, ...] = ()

    def compute_cells(self) -> tuple[Floats, NDArray[np.int64]]:
        """The mean score, NaN in an empty cell, and the number of runs: both (bins up, bins across)."""
        y, x, scores = np.array([(run.y, run.x, run.score) for run in self.runs]).T
        edges = [axis.edges for axis in reversed(self.axes)]
        counts = np.histogram2d(y, x, edges)[0].astype(int)
        with np.errstate(invalid="ignore"):
            return np.histogram2d(y, x, edges, weights=scores)[0] / counts, counts

    def list_cells(self) -> tuple[list[list[float | None]], list[list[int]]]:
        """The same as lists, with None in an empty cell."""
        means, counts = self.compute_cells()
        values = [[None if mean != mean else mean for mean in line] for line in means.tolist()]
        return values, counts.tolist()


GRIDS = DocumentFolder(
    kind=DocumentKind(name="grid of runs", type=RunGrid), folder="grids", then="Give another --out."
)


def build_grid(rows: Sequence[Row], axes: Sequence[str], column: str = "", name: str = "") -> RunGrid:
    """The grid of rows that have both facts and a score.

    Args:
        rows: A run or checkpoint each.
        axes: Across and up: a column or `COLUMN/COLUMN`, and after `=` a number of bins, or edges between
            colons.
        column: The column of scores, or the task; by default the only mean, or the only column.
        name: The name of the document.

    Raises:
        UsageError: Something in the rows or axes does not fit; the message says what.
    """
    if len(axes) != 2:
        raise UsageError(
            f"A grid has two axes, and {len(axes)} are given.",
            hint="Type e.g. --grid masking --grid tokens/size=6; the first is across.",
        )
    _require_different(rows)
    texts = [text.rpartition("=")[::2] if "=" in text else (text, "") for text in axes]
    x, y = (_read_fact(rows, fact) for fact, _ in texts)
    used = {part for fact, _ in texts for part in (fact, *fact.split("/"))}
    column = choose_column([{n: v for n, v in row.items() if n not in used} for row in rows], column)
    scores = read_column(rows, column, _name_row)
    kept = np.flatnonzero(np.isfinite([x, y, scores]).all(axis=0)).tolist()
    scores *= _choose_scale([rows[n] for n in kept], scores[kept])
    across, up = (
        _build_axis(fact, bins, values[kept]) for (fact, bins), values in zip(texts, (x, y), strict=True)
    )
    runs = [_GridRun(name=_name_row(rows[n]), x=x[n], y=y[n], score=scores[n]) for n in kept]
    when = datetime.now(UTC).isoformat(timespec="seconds")
    grid = RunGrid(name=name, when=when, column=column, axes=(across, up), runs=tuple(runs))
    return grid.model_copy(update={"notes": tuple(_iter_notes(grid, rows, kept))})


def _name_row(row: Row) -> str:
    names = [row.get(key) for key in ("model", "run", "seed", "step")]
    return "/".join(str(name) for name in names if name not in (None, ""))


def _require_different(rows: Sequence[Row]) -> None:
    """Refuse two rows of one checkpoint, or of no name and the same content."""
    counts = Counter(_name_row(row) or str(sorted(row.items())) for row in rows)
    if twice := [key for key, count in counts.items() if count > 1]:
        raise UsageError(
            f"Rows are there twice: {shorten_names(twice)}.",
            hint="Take one out, or tell them apart by a column model, run, seed or step.",
        )


def _read_fact(rows: Sequence[Row], fact: str) -> Floats:
    names = sorted({name for row in rows for name in row if name not in TEXTS})
    parts = [fact] if fact in names else fact.split("/", 1)
    if unknown := [part for part in parts if part not in names]:
        raise explain_unknown("column of numbers", unknown[0], names, then="A ratio is COLUMN/COLUMN.")
    first, *second = (read_column(rows, part, _name_row) for part in parts)
    with np.errstate(divide="ignore", invalid="ignore"):
        return first / second[0] if second else first


def _choose_scale(rows: Sequence[Row], scores: Floats) -> int:
    """What scores are multiplied by: 100 for fractions. Of several recipes or units nothing is a mean."""
    if len(methods := sorted({str(row["method"]) for row in rows if row.get("method")})) > 1:
        raise UsageError(
            f"The rows have several methods: {shorten_names(methods)}.",
            hint="Scores of several recipes have no common mean; give the rows of one.",
        )
    # A score of 0 may be a fraction or not.
    low = np.abs(scores[scores != 0]) <= 1
    if low.any() and not low.all():
        raise UsageError(
            f"{low.sum()} of {len(low)} scores lie between 0 and 1, and the others do not.",
            hint="Give all scores as fractions, or all × 100.",
        )
    return 100 if low.all() else 1


def _build_axis(fact: str, bins: str, values: Floats) -> _GridAxis:
    if len(different := np.unique(values)) < 2:
        raise UsageError(
            f"{fact} has {len(different)} values in the {len(values)} rows with both facts and a score.",
            hint="An axis has two values or more.",
        )
    try:
        edges = [float(edge) for edge in bins.split(":")] if ":" in bins else []
        count = len(edges) - 1 if edges else int(bins or BINS)
    except ValueError:
        count = 0
    if not 0 < count <= MOST or sorted({*edges}) != edges or not all(map(math.isfinite, edges)):
        raise UsageError(
            f"{bins!r} are no bins of {fact}.",
            hint=f"Type a number up to {MOST}, or ascending edges such as {fact}=0:0.2:0.4.",
        )
    if not edges:
        quantiles = np.unique(np.quantile(values, np.linspace(0, 1, count + 1)))
        edges = [*different, different[-1]] if len(different) <= count else [*quantiles]
    return _GridAxis(name=fact, edges=tuple(edges))


def _iter_notes(grid: RunGrid, rows: Sequence[Row], kept: Sequence[int]) -> Iterator[str]:
    """Which rows are left out, which have diverged, and which cells are empty."""
    if left := [_name_row(rows[n]) or "unnamed" for n in sorted({*range(len(rows))} - {*kept})]:
        lack = "lack a fact or a score, and are left out"
        yield f"{len(left)} of {len(rows)} rows {lack}: {shorten_names(left)}."
    for row in rows:
        if reason := explain_divergence([row], grid.column, read_column([row], grid.column, _name_row)):
            yield f"{_name_row(row)} diverged: {reason}."
    _, counts = grid.compute_cells()
    if outside := len(grid.runs) - int(counts.sum()):
        yield f"{outside} of {len(grid.runs)} runs lie beside the stated edges."
    if empty := int((counts == 0).sum()):
        fewer = f", as there are only {len(grid.runs)} runs" if len(grid.runs) < counts.size else ""
        yield f"Empty cells: {empty} of {counts.size}{fewer}."
