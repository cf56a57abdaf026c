"""The papers' tables, read from `results/reported`."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from harness.errors import RecordError, unknown
from leaderboard.data.papers import (
    AVERAGE,
    OVER_TASKS,
    OVER_TYPES,
    SCORES,
    Backbone,
    Line,
    Numbers,
    Paper,
    PaperTable,
    PaperValue,
    head_columns,
    heads_of,
    key_of,
    last_place,
    lines_of,
    notes_of,
    number_of,
    numbers_of,
    plain,
    printed_lines,
    row_of,
    title,
)
from leaderboard.web.tables import EMPTY, Cell, Column, Row, Table

FIELDS = tuple(one.name for one in fields(PaperValue) if one.name not in ("backbone", "hub_id"))
MODEL_FIELDS = ("model", "size_class", "backbone", "hub_id", "note")
DESCRIBED = {"name": str, "title": str, "year": int, "authors": str, "tables": dict}


def papers(folder: Path) -> dict[str, Paper]:
    """The papers of a folder by slug, in the order of its `papers.toml`.

    Raises:
        RecordError: A file is missing or malformed.
    """
    known = backbones(folder)
    return {slug: _paper(folder, slug, said, known) for slug, said in _described(folder).items()}


def backbones(folder: Path) -> dict[tuple[str, str], Backbone]:
    """What the printed names stand for, by name and size class: `models.csv`.

    Raises:
        RecordError: The file is missing or malformed.
    """
    found: dict[tuple[str, str], Backbone] = {}
    path = folder / "models.csv"
    for line, record in records(path, MODEL_FIELDS):
        key = (record["model"], record["size_class"])
        if not record["model"] or not record["backbone"]:
            raise wrong(path, line, "it names no model or no backbone.")
        if key in found:
            raise wrong(path, line, f"{' '.join(key).strip()} stands there twice.")
        found[key] = Backbone(name=record["backbone"], hub_id=record["hub_id"], note=record["note"])
    return found


def records(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """A CSV file's records with their line numbers.

    Raises:
        RecordError: The file cannot be read, or has other columns.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = csv.reader(file, strict=True)
            if (header := next(lines, [])) != list(columns):
                raise wrong(
                    path, 1, f"the columns are {', '.join(header)}.", f"They are {','.join(columns)}."
                )
            for values in lines:
                if len(values) != len(columns):
                    raise wrong(path, lines.line_num, f"{len(values)} fields where {len(columns)} belong.")
                yield lines.line_num, dict(zip(columns, values, strict=True))
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror}.") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise RecordError(f"{path} is no CSV file in UTF-8: {error}.") from error


def wrong(path: Path, line: int, what: str, hint: str | None = None) -> RecordError:
    """The error for a line of a file."""
    return RecordError(f"{path}, line {line}: {what}", hint=hint)


def _described(folder: Path) -> dict[str, dict[str, Any]]:
    path = folder / "papers.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror}.") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RecordError(f"{path} is no TOML file: {error}.") from error


def _paper(folder: Path, slug: str, said: Any, known: Mapping[tuple[str, str], Backbone]) -> Paper:
    for name, kind in DESCRIBED.items():
        if not isinstance(said, dict) or not isinstance(said.get(name), kind):
            raise RecordError(f"{folder / 'papers.toml'}: {slug} has no {name}, or not as {kind.__name__}.")
    tables: dict[str, list[PaperValue]] = {name: [] for name in said["tables"]}
    path = folder / f"{slug}.csv"
    for line, record in records(path, FIELDS):
        if problem := _problem(record, said):
            raise wrong(path, line, problem)
        own = record["model"], record["size_class"]
        found = known.get(own, Backbone(name=" ".join(own).strip(), hub_id="", note=""))
        tables[record["table"]].append(PaperValue(**record, backbone=found.name, hub_id=found.hub_id))
    if empty := [name for name, rows in tables.items() if not rows]:
        raise RecordError(f"{path} has nothing of table {empty[0]}.")
    laid = {n: PaperTable(id=n, caption=said["tables"][n], rows=tuple(rows)) for n, rows in tables.items()}
    rest = {name: said[name] for name in ("name", "title", "year", "authors")}
    return Paper(slug=slug, arxiv=said.get("arxiv", ""), tables=MappingProxyType(laid), **rest)


def _problem(record: Mapping[str, str], said: Mapping[str, Any]) -> str:
    """What is wrong with a record; empty if nothing is."""
    if record["paper"] != said["name"]:
        return f"it is of {record['paper']!r}, not of {said['name']!r}."
    if record["table"] not in said["tables"]:
        return f"papers.toml has no table {record['table']!r}."
    if not record["model"] or not record["metric"]:
        return "it names no model or no metric."
    if odd := odd_numbers(record):
        return odd
    wanted = {"": (False, False), "yes": (False, True), "no": (True, True)}.get(record["follows"])
    if wanted is None:
        return f"follows is {record['follows']!r}, not yes, no or nothing."
    if wanted != (bool(record["recomputed"]), bool(record["recomputed_as"])):
        return "recomputed and recomputed_as do not fit what follows says."
    return ""


def odd_numbers(record: Mapping[str, str]) -> str:
    """What is wrong with the numbers beside a record's value; empty if nothing is."""
    for name in ("ci_low", "ci_high", "recomputed"):
        text = record.get(name, "")
        if text and (number_of(text) is None or number_of(record["value"]) is None):
            return f"{name} is {text!r}, beside {record['value']!r}: no numbers."
    if bool(record["ci_low"]) != bool(record["ci_high"]):
        return "it has one end of an interval."
    return ""


Measured: TypeAlias = Mapping[tuple[str, str, str, str], Cell]
"""Cells by printed model, size class, suite and metric (as printed, or as `plain` gives it).

The cell with neither suite nor metric stands at the head of the model's line."""


def paper_table(paper: Paper, table: PaperTable, *measured: Measured) -> Table:
    """A paper's table as in print, with what we make of its aggregates.

    Args:
        paper: The paper.
        table: One of its tables.
        measured: Cells of lines of their own, each directly below a model's last printed line.
    """
    lines = printed_lines(table.rows)
    ways = [OVER_TYPES, OVER_TASKS] if table.rows[0].suite.startswith("MTEB(") else []
    numbers = numbers_of(lines, ways=ways, ours=not ways)
    heads = heads_of(lines)
    made = [_plainly(cells) for cells in measured]
    last = {line.model: at for at, line in enumerate(lines)}
    rows: list[Row] = []
    for at, line in enumerate(lines):
        rows.append(row_of(line, heads, numbers))
        if last[line.model] == at:
            rows += [row for cells in made for row in _below(line, heads, numbers, cells)]
    return Table(
        name=f"table-{key_of(table.id)}",
        caption=f"{paper.name}, {title(table.id)}: {table.caption}",
        columns=[*_heads(heads, lines), *(one.column for one in numbers)],
        rows=rows,
        notes=notes_of(lines, table.rows, ways),
    )


def _heads(heads: Sequence[str], lines: Sequence[Line]) -> list[Column]:
    """The columns of the labels; `model` only where names are names: `D/F_N vs C` is no one's model."""
    odd = any({"/", " "} <= set(line.first.model) for line in lines)
    columns = head_columns(heads)
    return [replace(one, key="line") if odd and one.key == "model" else one for one in columns]


def _plainly(cells: Measured) -> Measured:
    return {(m, s, suite, plain(suite, metric)): cell for (m, s, suite, metric), cell in cells.items()}


def _below(line: Line, heads: Sequence[str], numbers: Sequence[Numbers], cells: Measured) -> list[Row]:
    """What was measured of a line's model; nothing if that is nothing."""
    found = [_measured(line, one, cells) for one in numbers]
    if all(cell is EMPTY for cell in found):
        return []
    head = cells.get((*line.model, "", ""), Cell(text="measured here", value="measured here"))
    return [Row(cells=[_as_measured(head), *[EMPTY] * (len(heads) - 1), *found])]


def _measured(line: Line, numbers: Numbers, cells: Measured) -> Cell:
    if numbers.measured is None:
        return EMPTY
    return _as_measured(cells.get((*line.model, *numbers.measured), EMPTY))


def _as_measured(cell: Cell) -> Cell:
    kinds = dict.fromkeys([*cell.kind.split(), "measured"])
    return cell if cell is EMPTY else replace(cell, kind=" ".join(kinds))


TREATMENTS = ("unified contrastive", "SimCSE", "CDE", "DPR", "ColBERT")


@dataclass(frozen=True, kw_only=True)
class Conflict:
    """One thing that papers print different values of."""

    backbone: str
    suite: str
    metric: str
    treatment: str
    prints: Sequence[PaperValue]


def conflicts(papers: Mapping[str, Paper]) -> list[Conflict]:
    """What different papers print different values of, for one backbone under one name of treatment.

    Values that differ by rounding alone are no conflict.
    """
    groups: dict[tuple[str, str, str, str], list[PaperValue]] = {}
    for row in (row for paper in papers.values() for row in paper.rows):
        if row.number is not None and row.unit in SCORES:
            key = (row.backbone, row.suite, plain(row.suite, row.metric), _treatment(row))
            groups.setdefault(key, []).append(row)
    return [
        Conflict(backbone=backbone, suite=suite, metric=metric, treatment=treatment, prints=tuple(rows))
        for (backbone, suite, metric, treatment), rows in groups.items()
        if any(one.paper != other.paper and not _same(one, other) for one in rows for other in rows)
    ]


def _treatment(row: PaperValue) -> str:
    return next((name for name in TREATMENTS if name in f"{row.setting} {row.metric}"), "")


def _same(one: PaperValue, other: PaperValue) -> bool:
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


def _side_labels(row: PaperValue) -> dict[str, str]:
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
