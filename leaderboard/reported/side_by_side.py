"""Papers beside one another: what they print of the same backbone, and where they differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from harness.errors import unknown
from leaderboard.reported.lines import Line, Numbers, head_columns, heads_of, lines_of, numbers_of, row_of
from leaderboard.reported.printed import AVERAGE, SCORES, Paper, Printed, key_of, last_place, plain, title
from leaderboard.tables import Cell, Table

TREATMENTS = ("unified contrastive", "SimCSE", "CDE", "DPR", "ColBERT")


@dataclass(frozen=True, kw_only=True)
class Conflict:
    """One thing that papers print different values of."""

    backbone: str
    suite: str
    metric: str
    treatment: str
    prints: Sequence[Printed]


def conflicts(papers: Mapping[str, Paper]) -> list[Conflict]:
    """What different papers print different values of, for one backbone under one name of treatment.

    Values that differ by rounding alone are no conflict.
    """
    groups: dict[tuple[str, str, str, str], list[Printed]] = {}
    for row in (row for paper in papers.values() for row in paper.rows):
        if row.number is not None and row.unit in SCORES:
            key = (row.backbone, row.suite, plain(row.suite, row.metric), _treatment(row))
            groups.setdefault(key, []).append(row)
    return [
        Conflict(backbone=backbone, suite=suite, metric=metric, treatment=treatment, prints=tuple(rows))
        for (backbone, suite, metric, treatment), rows in groups.items()
        if any(one.paper != other.paper and not _same(one, other) for one in rows for other in rows)
    ]


def _treatment(row: Printed) -> str:
    return next((name for name in TREATMENTS if name in f"{row.setting} {row.metric}"), "")


def _same(one: Printed, other: Printed) -> bool:
    coarser = max(last_place(one), last_place(other))
    return abs(Decimal(one.value) - Decimal(other.value)) * 2 <= coarser


def printed_suites(papers: Mapping[str, Paper]) -> list[str]:
    """The suites that more than one paper prints scores of."""
    found: dict[str, set[str]] = {}
    for row in (row for paper in papers.values() for row in paper.rows if row.unit in SCORES):
        found.setdefault(row.suite, set()).add(row.paper)
    return [suite for suite, names in found.items() if len(names) > 1]


def side_by_side(papers: Mapping[str, Paper], suite: str) -> Table:
    """Every paper's scores of a suite, those of one backbone below one another.

    Raises:
        UsageError: No paper prints scores of such a suite.
    """
    rows = [row for paper in papers.values() for row in paper.rows if row.unit in SCORES]
    if suite not in (known := {row.suite for row in rows}):
        raise unknown("printed suite", suite, known, then="`/papers` shows all.")
    own = sorted((row for row in rows if row.suite == suite), key=lambda row: row.backbone.casefold())
    lines = lines_of(own, _side_labels, lambda row: plain(suite, row.metric))
    ways = list(dict.fromkeys(way for line in lines for way in line.means))
    numbers = sorted(numbers_of(lines, ways=ways, ours=False), key=_average_last)
    heads = heads_of(lines)
    told = {id(row): conflict for conflict in conflicts(papers) for row in conflict.prints}
    shown = [replace(one, make=_with_conflicts(one, told)) for one in numbers]
    return Table(
        name=f"side-by-side-{key_of(suite)}",
        caption=f"{suite} in the papers, by backbone",
        columns=[*head_columns(heads), *(one.column for one in shown)],
        rows=[row_of(line, heads, shown) for line in lines],
        notes=["A cell's note names the papers that print another value of it."] if told else [],
    )


def _side_labels(row: Printed) -> dict[str, str]:
    return {
        "Backbone": row.backbone,
        "Paper": row.paper,
        "Table": row.table,
        "Printed as": f"{row.model} {row.size_class}".strip(),
        "Treatment": _treatment(row),
        "Setting": row.setting,
    }


def _average_last(numbers: Numbers) -> int:
    label = numbers.column.label
    return 2 if label.endswith(" (recomputed)") else int(label == AVERAGE)


def _with_conflicts(numbers: Numbers, told: Mapping[int, Conflict]) -> Callable[[Line], Cell]:
    def make(line: Line) -> Cell:
        cell, row = numbers.make(line), line.cells.get(numbers.column.label)
        conflict = told.get(id(row))
        if row is None or conflict is None:
            return cell
        others = [one for one in conflict.prints if one.paper != row.paper and not _same(one, row)]
        said = "; ".join(f"{one.paper}, {title(one.table)} has {one.value}" for one in others)
        return replace(cell, note=f"{cell.note} {said}.".strip()) if said else cell

    return make
