"""The lines of printed tables, their means computed again, and what papers print different values of."""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from types import MappingProxyType
from typing import NamedTuple

from harness.core.groups import group_by
from harness.fits.laws import compute_optimum_law
from harness.plan.catalog import open_suite
from harness.results.reported import AVERAGE, TYPES, Paper, PaperValue, normalize_metric

# Names

_QUERIES = {"TREC-DL 2019": "TREC-DL 2019", "dev split": "dev"}
"""Words in the note of a printed number, and the queries that they name."""


def has_same_queries(row: PaperValue, column: str) -> bool:
    """Whether a number is of the queries that a task names in brackets, as far as its note says."""
    queries = next((queries for words, queries in _QUERIES.items() if words in row.note), "")
    return not queries or "(" not in column or column.endswith(f"({queries})")


def match_task_column(metric: str, names: Sequence[str]) -> str | None:
    """The task of a printed name: the same letters and digits, or the only task that begins with them."""
    letters = {name: re.sub(r"[^a-z0-9]", "", name.casefold()) for name in (*names, metric)}
    alike = [name for name in names if letters[name] == letters[metric]]
    longer = [name for name in names if letters[name].startswith(letters[metric])]
    if alike:
        return alike[0]
    return longer[0] if len(longer) == 1 else None


def format_table_title(table: str) -> str:
    """The name of a table in a sentence.

    >>> format_table_title("S3"), format_table_title("Sec4.4")
    ('table S3', 'Sec4.4')
    """
    return f"table {table}" if re.fullmatch(r"S?\d+", table) else table


def format_anchor(text: str) -> str:
    """A text as a part of a key or an anchor."""
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")


# Means

OVER_TYPES = "mean over types"
OVER_TASKS = "mean over tasks (types weighted by their number of tasks)"

SUITES: Mapping[str, str] = {
    "MTEB(eng, v1)": "mteb-v1", "MTEB(eng, v2)": "mteb", "GLUE dev": "glue", "BEIR": "beir"
}  # fmt: skip
"""A printed suite's name in the catalog."""


def compute_printed_means(suite: str, values: Mapping[str, float | None]) -> dict[str, float]:
    """The means of a row of scores by what they are over, by type for MTEB; empty unless all is there."""
    if suite not in SUITES:
        return {}
    counts = count_type_tasks(suite)
    mteb = suite.startswith("MTEB")
    scores = {name: x for name, x in values.items() if x is not None and (not mteb or name in TYPES)}
    if len(scores) != (len(counts) if mteb else sum(counts.values())):
        return {}
    if not mteb:
        return {f"mean of {len(scores)} tasks": fmean(scores.values())}
    # Papers print MTEB by type: a mean over tasks follows if each type weighs as many tasks as it has.
    weights = [counts[TYPES[name]] for name in scores]
    return {OVER_TYPES: fmean(scores.values()), OVER_TASKS: fmean(scores.values(), weights)}


@functools.cache
def count_type_tasks(suite: str) -> Mapping[str, int]:
    """The number of tasks of each type of a printed suite, by the catalog."""
    return MappingProxyType(Counter(column.type for column in open_suite(SUITES[suite]).columns))


def compute_power_laws(rows: Sequence[PaperValue]) -> dict[str, tuple[float, float]]:
    """OptiBERT's optimum by eq. 6 and 7 from its printed fit: log10 of the prefactor, and the exponent."""
    fit = {row.metric: row.number for row in rows if row.table == "1" and row.model.startswith("Lhat")}
    a, b, alpha, beta = (fit.get(name) for name in ("A_log10", "B_log10", "alpha", "beta"))
    if a is None or b is None or not alpha or not beta:
        return {}
    ln10 = math.log(10)
    n, eta = compute_optimum_law(a * ln10, alpha, b * ln10, beta)
    n /= ln10
    return {"F_N vs C": (n, eta), "D vs C": (-n, 1 - eta), "D/F_N vs C": (-2 * n, 1 - 2 * eta)}


_DAMAGED = re.compile(r"leading digit: .*, so read ([\d.]+)$")
"""What a note says of a number that lost a digit on its way from the print."""


def find_read_value(row: PaperValue) -> str:
    """What a damaged number must be, by its note; empty for a number as in print."""
    match = _DAMAGED.search(row.note)
    return match[1] if match else ""


# Lines


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a table: its labels, and its numbers by column."""

    labels: Mapping[str, str]
    first: PaperValue
    cells: dict[str, PaperValue] = field(default_factory=dict)

    @property
    def model(self) -> tuple[str, str]:
        """Its model's name and size class, as printed."""
        return self.first.model, self.first.size_class

    @property
    def means(self) -> dict[str, float]:
        """Its means, computed again."""
        suite = self.first.suite
        values = {normalize_metric(suite, name): row.number for name, row in self.cells.items()}
        return compute_printed_means(suite, {name: x for name, x in values.items() if name != AVERAGE})


def group_printed_lines(rows: Sequence[PaperValue]) -> list[Line]:
    """The lines of a paper's table."""
    return group_table_lines(rows, _build_line_labels, lambda row: _split_metric(row)[1])


def _split_metric(row: PaperValue) -> tuple[str, str]:
    """The task that a hyperparameter is of, and the column."""
    task, _, name = row.metric.rpartition(":")
    return (task, name) if row.unit == "hyperparameter" else ("", row.metric)


def _build_line_labels(row: PaperValue) -> dict[str, str]:
    """MosaicBERT's settings also hold what stands in a column of print: hours, the price of an hour."""
    return {
        "Model": row.model, "Size": row.size_class, "Parameters": row.params,
        "Setting": re.sub(r"; [\d.]+ h$| at \$[\d.]+/GPU-h$", "", row.setting), "Task": _split_metric(row)[0],
    }  # fmt: skip


def group_table_lines(
    rows: Sequence[PaperValue],
    labels: Callable[[PaperValue], dict[str, str]],
    column: Callable[[PaperValue], str],
) -> list[Line]:
    """A number goes into the last line with its labels, or a new one if its place there is taken.

    Args:
        rows: The printed numbers, in the order of print.
        labels: The labels of the line that a number belongs to, by heading.
        column: The name of its column.
    """
    lines: list[Line] = []
    for row in rows:
        line_labels, name = labels(row), column(row)
        fits = (line for line in reversed(lines) if line.labels == line_labels and name not in line.cells)
        if (line := next(fits, None)) is None:
            lines.append(line := Line(labels=line_labels, first=row))
        line.cells[name] = row
    return lines


class Conflict(NamedTuple):
    """One thing that papers print different values of."""

    backbone: str
    suite: str
    metric: str
    treatment: str
    prints: Sequence[PaperValue]


def find_paper_conflicts(papers: Mapping[str, Paper]) -> list[Conflict]:
    """What papers print different values of, beyond rounding, for one backbone and treatment."""
    scores = (row for paper in papers.values() for row in paper.rows if row.is_score)
    groups = group_by(
        scores, lambda row: (row.backbone, row.suite, normalize_metric(row.suite, row.metric), row.treatment)
    )
    return [
        Conflict(*key, rows)
        for key, rows in groups.items()
        if any(one.paper != other.paper and not one.is_same_value(other) for one in rows for other in rows)
    ]
