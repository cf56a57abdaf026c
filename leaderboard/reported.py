"""The papers' tables: read from `results/reported`, laid out as in print, and beside one another."""

from __future__ import annotations

import csv
import itertools
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from harness.errors import RecordError, unknown
from leaderboard.recompute import OVER_TASKS, OVER_TYPES, means, power_laws
from leaderboard.tables import EMPTY, Cell, Column, Row, Table

Measured: TypeAlias = Mapping[tuple[str, str, str, str], Cell]
"""Cells by printed model, size class, suite and metric (as printed, or as `plain` gives it)."""


@dataclass(frozen=True, kw_only=True)
class Printed:
    """One printed number: a line of a paper's file.

    Attributes:
        paper: The paper's name.
        table: The table, or the section, that it stands in.
        model: The model as printed.
        size_class: `base`, `medium`, `large` or nothing.
        params: Its parameters as printed.
        setting: The recipe, and what else tells lines apart.
        suite: What was measured.
        metric: The column.
        value: The number as printed; empty where the paper has a dash.
        ci_low: The lower end, where an interval or an error was printed.
        ci_high: The upper end.
        unit: Of the value.
        note: A fact about it.
        recomputed: Ours, where the print does not follow from the numbers beside it.
        recomputed_as: How it is made from those, where it can be.
        follows: `yes`, `no`, or nothing where it cannot be made again.
        backbone: One name for what papers spell differently.
        hub_id: The model on the hub, where that is beyond doubt.
    """

    paper: str
    table: str
    model: str
    size_class: str
    params: str
    setting: str
    suite: str
    metric: str
    value: str
    ci_low: str
    ci_high: str
    unit: str
    note: str
    recomputed: str = ""
    recomputed_as: str = ""
    follows: str = ""
    backbone: str = ""
    hub_id: str = ""

    @property
    def number(self) -> float | None:
        """The value, None if it is none or no number."""
        return _number(self.value)


FIELDS = tuple(one.name for one in fields(Printed) if one.name not in ("backbone", "hub_id"))
MODEL_FIELDS = ("model", "size_class", "backbone", "hub_id", "note")


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """One table of a paper, in print's order."""

    id: str
    caption: str
    rows: Sequence[Printed]


@dataclass(frozen=True, kw_only=True)
class Paper:
    """One paper; `arxiv` is empty where no source at hand gives it."""

    slug: str
    name: str
    title: str
    year: int
    authors: str
    arxiv: str
    tables: Mapping[str, PaperTable]

    @property
    def rows(self) -> list[Printed]:
        """All printed numbers."""
        return [row for table in self.tables.values() for row in table.rows]


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """What a printed name stands for."""

    name: str
    hub_id: str
    note: str


@dataclass(frozen=True, kw_only=True)
class Conflict:
    """One thing that papers print different values of."""

    backbone: str
    suite: str
    metric: str
    treatment: str
    prints: Sequence[Printed]


AVERAGE = "Avg."
SPELLED: Mapping[tuple[str, str], str] = MappingProxyType(
    {("GLUE dev", "SST"): "SST-2", ("GLUE dev", "STS"): "STS-B", ("GLUE dev", "GLUE"): AVERAGE}
)
TREATMENTS = ("unified contrastive", "SimCSE", "CDE", "DPR", "ColBERT")
SHORT = {OVER_TASKS: "mean over tasks"}
SCORES = ("score x100", "nDCG@10 x100", "fraction")


def plain(suite: str, metric: str) -> str:
    """One name for a column that papers spell differently.

    >>> plain("GLUE dev", "SST"), plain("MTEB(eng, v1)", "Avg. (56 tasks)"), plain("BEIR", "DPR BEIR")
    ('SST-2', 'Avg.', 'Avg.')
    """
    average = metric.startswith(AVERAGE) or metric.endswith(f" {suite}")
    return AVERAGE if average else SPELLED.get((suite, metric), metric)


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


DESCRIBED = {"name": str, "title": str, "year": int, "authors": str, "tables": dict}


def _paper(folder: Path, slug: str, said: Any, known: Mapping[tuple[str, str], Backbone]) -> Paper:
    for name, kind in DESCRIBED.items():
        if not isinstance(said, dict) or not isinstance(said.get(name), kind):
            raise RecordError(f"{folder / 'papers.toml'}: {slug} has no {name}, or not as {kind.__name__}.")
    tables: dict[str, list[Printed]] = {name: [] for name in said["tables"]}
    path = folder / f"{slug}.csv"
    for line, record in records(path, FIELDS):
        if problem := _problem(record, said):
            raise wrong(path, line, problem)
        own = record["model"], record["size_class"]
        found = known.get(own, Backbone(name=" ".join(own).strip(), hub_id="", note=""))
        tables[record["table"]].append(Printed(**record, backbone=found.name, hub_id=found.hub_id))
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
        if text and (_number(text) is None or _number(record["value"]) is None):
            return f"{name} is {text!r}, beside {record['value']!r}: no numbers."
    if bool(record["ci_low"]) != bool(record["ci_high"]):
        return "it has one end of an interval."
    return ""


@dataclass(frozen=True, kw_only=True)
class _Line:
    """One line of a table: what stands before its numbers, and these by column."""

    labels: Mapping[str, str]
    first: Printed
    cells: dict[str, Printed] = field(default_factory=dict)

    @property
    def means(self) -> dict[str, float]:
        """Its means, made again."""
        suite = self.first.suite
        values = {plain(suite, name): row.number for name, row in self.cells.items()}
        return means(suite, {name: x for name, x in values.items() if name != AVERAGE})


@dataclass(frozen=True, kw_only=True)
class _Numbers:
    """A column of numbers; `measured` is what measured cells call it, empty if there are none."""

    column: Column
    make: Callable[[_Line], Cell]
    measured: tuple[str, str] | None = None


def paper_table(paper: Paper, table: PaperTable, measured: Measured = MappingProxyType({})) -> Table:
    """A paper's table as in print, with what we make of its aggregates.

    Args:
        paper: The paper.
        table: One of its tables.
        measured: Cells that go in a line of their own, directly below a model's last printed line.
    """
    lines = _lines(table.rows, _printed_labels, lambda row: _task(row)[1])
    ways = [OVER_TYPES, OVER_TASKS] if table.rows[0].suite.startswith("MTEB(") else []
    numbers = _numbers(lines, ways=ways, ours=not ways)
    heads = _heads(lines)
    made = {(m, s, suite, plain(suite, metric)): cell for (m, s, suite, metric), cell in measured.items()}
    rows: list[Row] = []
    for at, line in enumerate(lines):
        rows.append(_row(line, heads, numbers))
        below = [_measured(line, one, made) for one in numbers]
        if any(cell is not EMPTY for cell in below) and _model(line) not in map(_model, lines[at + 1 :]):
            head = Cell(text="measured here", kind="measured")
            rows.append(Row(cells=[head, *[EMPTY] * (len(heads) - 1), *below]))
    return Table(
        name=f"table-{_key(table.id)}",
        caption=f"{paper.name}, {title(table.id)}: {table.caption}",
        columns=[*_head_columns(heads), *(one.column for one in numbers)],
        rows=rows,
        notes=_notes(lines, table.rows, ways),
    )


def title(table: str) -> str:
    """What a table is called in a sentence.

    >>> title("S3"), title("Sec4.4")
    ('table S3', 'Sec4.4')
    """
    return f"table {table}" if re.fullmatch(r"S?\d+", table) else table


def _task(row: Printed) -> tuple[str, str]:
    """The task that a hyperparameter is of, and the column."""
    task, _, name = row.metric.rpartition(":")
    return (task, name) if row.unit == "hyperparameter" else ("", row.metric)


def _printed_labels(row: Printed) -> dict[str, str]:
    """MosaicBERT's settings also hold what stands in a column of print: hours, the price of an hour."""
    setting = re.sub(r"; [\d.]+ h$| at \$[\d.]+/GPU-h$", "", row.setting)
    return {
        "Model": row.model,
        "Size": row.size_class,
        "Parameters": row.params,
        "Setting": setting,
        "Task": _task(row)[0],
    }


def _lines(
    rows: Sequence[Printed], labels: Callable[[Printed], dict[str, str]], column: Callable[[Printed], str]
) -> list[_Line]:
    """A number goes into the last line with its labels, or a new one if its place there is taken."""
    lines: list[_Line] = []
    for row in rows:
        own, name = labels(row), column(row)
        fits = (line for line in reversed(lines) if line.labels == own and name not in line.cells)
        if (line := next(fits, None)) is None:
            lines.append(line := _Line(labels=own, first=row))
        line.cells[name] = row
    return lines


def _heads(lines: Sequence[_Line]) -> list[str]:
    """The labels that a table needs: a setting that all lines share goes below it."""
    values = {name: {line.labels[name] for line in lines} for name in lines[0].labels}
    return [name for name, found in values.items() if found != {""} and (name != "Setting" or len(found) > 1)]


def _head_columns(heads: Sequence[str]) -> list[Column]:
    return [Column(key=_key(name).lower(), label=name, sticky=name == heads[0]) for name in heads]


def _row(line: _Line, heads: Sequence[str], numbers: Sequence[_Numbers]) -> Row:
    labels = [Cell(text=line.labels[name], value=line.labels[name] or None) for name in heads]
    return Row(cells=[*labels, *(one.make(line) for one in numbers)])


def _numbers(lines: Sequence[_Line], *, ways: Sequence[str], ours: bool) -> list[_Numbers]:
    """The printed columns, with a column behind those that have numbers which do not follow, and means."""
    found: list[_Numbers] = []
    names = dict.fromkeys(name for line in lines for name in line.cells)
    for name in names:
        cells = [line.cells[name] for line in lines if name in line.cells]
        found.append(_printed_column(name, cells))
        if ours and any(row.follows == "no" for row in cells):
            found.append(_our_column(name, cells[0]))
    return found + [_mean_column(way, lines[0].first.suite) for way in ways]


def _printed_column(name: str, cells: Sequence[Printed]) -> _Numbers:
    units = {row.unit for row in cells if row.value}
    column = Column(
        key=_key(name),
        label=name,
        group=cells[0].suite,
        numeric=all(row.number is not None for row in cells if row.value),
        note=units.pop() if len(units) == 1 else "",
    )
    return _Numbers(
        column=column,
        make=lambda line: _cell(line.cells[name]) if name in line.cells else EMPTY,
        measured=(cells[0].suite, plain(cells[0].suite, name)),
    )


def _our_column(name: str, first: Printed) -> _Numbers:
    def make(line: _Line) -> Cell:
        row = line.cells.get(name)
        if row is None or not row.recomputed:
            return EMPTY
        return Cell(text=row.recomputed, value=_number(row.recomputed), note=f"{row.recomputed_as}.")

    note = f"what {name} comes to from the printed numbers, where the print does not follow from them"
    key = f"{_key(name)}-recomputed"
    column = Column(key=key, label="recomputed", group=first.suite, numeric=True, note=note)
    return _Numbers(column=column, make=make)


def _mean_column(way: str, suite: str) -> _Numbers:
    name, places = SHORT.get(way, way), 2 if way in (OVER_TYPES, OVER_TASKS) else 3

    def make(line: _Line) -> Cell:
        value = line.means.get(way)
        return EMPTY if value is None else Cell(text=f"{value:.{places}f}", value=round(value, places))

    label = f"{name} (recomputed)"
    column = Column(key=_key(name), label=label, numeric=True, note=f"{way}, from the printed numbers")
    return _Numbers(column=column, make=make, measured=(suite, name))


def _measured(line: _Line, numbers: _Numbers, made: Measured) -> Cell:
    if numbers.measured is None:
        return EMPTY
    cell = made.get((*_model(line), *numbers.measured), EMPTY)
    kinds = dict.fromkeys([*cell.kind.split(), "measured"])
    return EMPTY if cell is EMPTY else replace(cell, kind=" ".join(kinds))


def _model(line: _Line) -> tuple[str, str]:
    return line.first.model, line.first.size_class


def _cell(row: Printed) -> Cell:
    if not row.value:
        return Cell(text="–", kind="away", note=_sentence(row.note))
    value = row.value if row.number is None else row.number
    said = [row.unit, row.note, _price(row), _odd(row)]
    return Cell(text=_text(row), value=value, kind="reported", note=_sentence(*said))


def _text(row: Printed) -> str:
    """The number with its error or its interval, as it was printed."""
    if not row.ci_low:
        return row.value
    value, low, high = (Decimal(text) for text in (row.value, row.ci_low, row.ci_high))
    if "plus/minus" in row.note and high - value == value - low:
        return f"{row.value} ± {high - value}"
    return f"{row.value} [{row.ci_low}, {row.ci_high}]"


def _price(row: Printed) -> str:
    found = re.search(r"\$[\d.]+/GPU-h$", row.setting)
    return found.group() if found else ""


def _odd(row: Printed) -> str:
    """Says that a number does not follow, and whether rounded parts may be why."""
    if row.follows != "no":
        return f"follows as: {row.recomputed_as}" if row.follows else ""
    said = f"does not follow from the printed numbers: {row.recomputed_as} is {row.recomputed}"
    apart = abs(Decimal(row.value) - Decimal(row.recomputed))
    return f"{said}, within what rounding of the parts can do" if apart <= _last_place(row) else said


def _last_place(row: Printed) -> Decimal:
    return Decimal(1).scaleb(int(Decimal(row.value).as_tuple().exponent))


def _sentence(*parts: str) -> str:
    text = "; ".join(part for part in parts if part)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _notes(lines: Sequence[_Line], rows: Sequence[Printed], ways: Sequence[str]) -> list[str]:
    """What must be said below a paper's table."""
    settings = {line.labels["Setting"] for line in lines} - {""}
    notes = [f"Setting: {setting}." for setting in settings if len(settings) == 1]
    if ways:
        return [*notes, *_which_means(lines), *_turned(lines)]
    odd = sum(row.follows == "no" for row in rows)
    if odd:
        notes.append(
            f"{odd} of the {sum(bool(row.follows) for row in rows)} numbers that can be made again do not "
            "follow from the printed ones; ours stand beside them."
        )
    return notes + _ratio(rows)


def _which_means(lines: Sequence[_Line]) -> list[str]:
    """Which mean each line of MTEB printed as its average."""
    found: dict[str, list[str]] = {}
    for line in lines:
        for row in line.cells.values():
            if row.follows:
                way = SHORT.get(row.recomputed_as, row.recomputed_as) if row.follows == "yes" else "neither"
                found.setdefault(way, []).append(_name(line, lines))
    notes = [f"The printed average is {_which(way)} of: {'; '.join(names)}." for way, names in found.items()]
    if len(found.keys() - {"neither"}) > 1:
        notes.append("The table mixes two means: compare its lines in one of the recomputed columns only.")
    return notes


def _which(way: str) -> str:
    return "neither mean" if way == "neither" else f"the {way}"


def _turned(lines: Sequence[_Line]) -> list[str]:
    """Pairs that print orders one way and both means the other."""
    notes = []
    for one, other in itertools.permutations(lines, 2):
        mine, theirs, printed = one.means, other.means, (_average(one), _average(other))
        below = mine and theirs and all(mine[way] < theirs[way] for way in mine)
        if below and None not in printed and printed > printed[::-1]:
            sides = [f"{x:.2f} against {theirs[way]:.2f} as {SHORT.get(way, way)}" for way, x in mine.items()]
            names = f"{_name(one, lines)} is printed above {_name(other, lines)}"
            notes.append(f"{names} ({printed[0]} against {printed[1]}), but has {' and '.join(sides)}.")
    return notes


def _average(line: _Line) -> float | None:
    return next((row.number for name, row in line.cells.items() if name.startswith(AVERAGE)), None)


def _name(line: _Line, lines: Sequence[_Line]) -> str:
    """A line's model, and the end of its setting where the model stands there more than once."""
    name = " ".join(_model(line)).strip()
    alone = sum(_model(other) == _model(line) for other in lines) == 1
    return name if alone else f"{name} ({line.labels['Setting'].rpartition('; ')[2]})"


def _ratio(rows: Sequence[Printed]) -> list[str]:
    """How much the two readings of OptiBERT's parametric law differ within its range of compute."""
    name = "D/F_N vs C"
    printed = {
        row.metric: row.number for row in rows if (row.model, row.setting) == (name, "Sec4.2 parametric")
    }
    prefactor, exponent = printed.get("a_log10"), printed.get("exponent")
    laws = power_laws(rows)
    if prefactor is None or exponent is None or name not in laws:
        return []
    ours = 10 ** (laws[name][0] + 19 * laws[name][1])
    text = f"At C = 1e19 the printed law gives D/F_N = {10 ** (prefactor + 19 * exponent):.2f}"
    return [f"{text}, eq. 7 with the printed A, B, alpha and beta {ours:.1f}."]


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
    coarser = max(_last_place(one), _last_place(other))
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
    lines = _lines(own, _side_labels, lambda row: plain(suite, row.metric))
    ways = list(dict.fromkeys(way for line in lines for way in line.means))
    numbers = sorted(_numbers(lines, ways=ways, ours=False), key=_average_last)
    heads = _heads(lines)
    told = {id(row): conflict for conflict in conflicts(papers) for row in conflict.prints}
    shown = [replace(one, make=_with_conflicts(one, told)) for one in numbers]
    return Table(
        name=f"side-by-side-{_key(suite)}",
        caption=f"{suite} in the papers, by backbone",
        columns=[*_head_columns(heads), *(one.column for one in shown)],
        rows=[_row(line, heads, shown) for line in lines],
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


def _average_last(numbers: _Numbers) -> int:
    label = numbers.column.label
    return 2 if label.endswith(" (recomputed)") else int(label == AVERAGE)


def _with_conflicts(numbers: _Numbers, told: Mapping[int, Conflict]) -> Callable[[_Line], Cell]:
    def make(line: _Line) -> Cell:
        cell, row = numbers.make(line), line.cells.get(numbers.column.label)
        conflict = told.get(id(row))
        if row is None or conflict is None:
            return cell
        others = [one for one in conflict.prints if one.paper != row.paper and not _same(one, row)]
        said = "; ".join(f"{one.paper}, {title(one.table)} has {one.value}" for one in others)
        return replace(cell, note=f"{cell.note} {said}.".strip()) if said else cell

    return make


def _key(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None
