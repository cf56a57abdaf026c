"""A paper's tables as on its page: the printed numbers, what follows from them, and measured lines."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TypeAlias

from harness.results.reported import (
    AVERAGE,
    Paper,
    PaperTable,
    PaperValue,
    normalize_metric,
    parse_finite_number,
)
from leaderboard.data.backbones import find_backbone
from leaderboard.data.paper_lines import (
    OVER_TASKS,
    OVER_TYPES,
    Line,
    compute_power_laws,
    find_read_value,
    format_anchor,
    format_table_title,
    group_printed_lines,
)
from leaderboard.web.tables import EMPTY, Cell, Table, TableColumn, TableRow, link

_SHORT = {OVER_TASKS: "mean over tasks"}
OURS = "what {} comes to from the printed numbers, where the print does not follow from them"


READ = (
    "[read …]: the number is damaged, as other numbers of the paper show; what was recomputed from it uses "
    "the one in brackets."
)


Measured: TypeAlias = Mapping[tuple[str, str, str, str], Cell]
"""Cells by printed model, size class, suite and metric (as printed, or as `plain` gives it).

The cell with neither suite nor metric stands at the head of the model's line."""


def build_paper_table(paper: Paper, table: PaperTable, *measured: Measured) -> Table:
    """A paper's table as in print, with what we make of its aggregates.

    Args:
        paper: The paper.
        table: One of its tables.
        measured: Cells of lines of their own, each directly below a model's last printed line.
    """
    lines = group_printed_lines(table.rows)
    ways = [OVER_TYPES, OVER_TASKS] if table.rows[0].suite.startswith("MTEB(") else []
    numbers, places = _build_number_columns(lines, ways)
    texts = {name: {line.labels[name] for line in lines} for name in lines[0].labels}
    # A setting that all lines share goes below the table.
    heads = [n for n, some in texts.items() if some != {""} and (n != "Setting" or len(some) > 1)]
    below = [{(m, size, suite, normalize_metric(suite, name)): cell
              for (m, size, suite, name), cell in cells.items()} for cells in measured]  # fmt: skip
    # A model may have several printed lines: measured ones stand below the last.
    last = {line.model: line for line in lines}
    rows: list[TableRow] = []
    for line in lines:
        labels = [Cell(text=line.labels[name], value=line.labels[name] or None) for name in heads]
        if backbone := find_backbone(line.first.backbone):
            note = ", ".join(filter(None, [backbone.name, line.first.hub_id]))
            labels[0] = replace(labels[0], href=f"/models/{backbone.slug}", note=f"stands for {note}")
        printed = _build_line_cells(line, ways)
        rows.append(TableRow(cells=[*labels, *(printed.get(one.key, EMPTY) for one in numbers)]))
        for cells in below if last[line.model] is line else ():
            numbers_below = {key: cells.get((*line.model, *place), EMPTY) for key, place in places.items()}
            values = [numbers_below.get(one.key, EMPTY) for one in numbers]
            if any(cell is not EMPTY for cell in values):
                head = cells.get((*line.model, "", ""), link("measured here"))
                some = [head, *[EMPTY] * (len(heads) - 1), *values]
                # A link to a measured model may be marked already.
                kinds = ["" if c is EMPTY or "measured" in c.kind.split() else "measured" for c in some]
                marked = [cell.mark(kind) for cell, kind in zip(some, kinds, strict=True)]
                rows.append(TableRow(cells=marked))
    # OptiBERT's laws stand in the column of models: `D/F_N vs C` must not look like a name.
    odd = any({"/", " "} <= set(line.first.model) for line in lines)
    keys = {name: format_anchor(name).lower() for name in heads} | ({"Model": "line"} if odd else {})
    columns = [TableColumn(key=keys[name], label=name, sticky=name == heads[0]) for name in heads]
    return Table(
        name=f"table-{format_anchor(table.id)}",
        caption=f"{paper.name}, {format_table_title(table.id)}: {table.caption}",
        columns=[*columns, *numbers],
        rows=rows,
        notes=_list_paper_notes(lines, table.rows, ways),
    )


def _build_number_columns(
    lines: Sequence[Line], ways: Sequence[str]
) -> tuple[list[TableColumn], dict[str, tuple[str, str]]]:
    """The printed columns, each with one of what follows where a number does not, or else two means.

    Returns:
        The columns, and by key the suite and metric of those that a measured line has.
    """
    columns, places = list[TableColumn](), dict[str, tuple[str, str]]()
    for name in dict.fromkeys(name for line in lines for name in line.cells):
        rows = [line.cells[name] for line in lines if name in line.cells]
        suite, units, key = rows[0].suite, {row.unit for row in rows if row.value}, format_anchor(name)
        numeric = all(row.number is not None for row in rows if row.value)
        note = units.pop() if len(units) == 1 else ""
        columns.append(TableColumn(key=key, label=name, group=suite, numeric=numeric, note=note))
        places[key] = suite, normalize_metric(suite, name)
        if not ways and any(row.follows == "no" for row in rows):
            key, note = f"{key}-recomputed", OURS.format(name)
            columns.append(TableColumn(key=key, label="recomputed", group=suite, numeric=True, note=note))
    for way in ways:
        name, note = _SHORT.get(way, way), f"{way}, from the printed numbers"
        key, label = format_anchor(name), f"{name} (recomputed)"
        columns.append(TableColumn(key=key, label=label, numeric=True, note=note))
        places[key] = lines[0].first.suite, name
    return columns, places


def _build_line_cells(line: Line, ways: Sequence[str]) -> dict[str, Cell]:
    """The numbers of a printed line by the columns' keys: as printed, as they follow, and its means."""
    cells = {}
    for name, row in line.cells.items():
        key, ours, how = format_anchor(name), row.recomputed, f"{row.recomputed_as}."
        cells[key] = build_printed_cell(row)
        if ours:
            cells[f"{key}-recomputed"] = Cell(text=ours, value=parse_finite_number(ours), note=how)
    for way in ways:
        if (mean := line.means.get(way)) is not None:
            cells[format_anchor(_SHORT.get(way, way))] = Cell(text=f"{mean:.2f}", value=round(mean, 2))
    return cells


def _list_paper_notes(lines: Sequence[Line], rows: Sequence[PaperValue], ways: Sequence[str]) -> list[str]:
    """What must be said below a paper's table."""
    settings = {line.labels["Setting"] for line in lines} - {""}
    notes = [f"Setting: {setting}." for setting in settings if len(settings) == 1]
    notes += [READ] if any(map(find_read_value, rows)) else []
    if ways:
        printed = _group_printed_lines(lines)
        notes += [f"The printed average is {way} of: {'; '.join(names)}." for way, names in printed.items()]
        return [*notes, *_note_mean_mixture(printed), *_note_reversals(lines)]
    odd = sum(row.follows == "no" for row in rows)
    if odd:
        notes.append(
            f"{odd} of the {sum(bool(row.follows) for row in rows)} numbers that can be recomputed do not "
            "follow from the printed ones; ours stand beside them."
        )
    return notes + _note_law_ratio(rows)


def list_print_warnings(table: PaperTable) -> list[str]:
    """What would mislead a reader of the print: two kinds of mean in one column, and what that turns round.

    These stand among the notes of `build_paper_table`, too.
    """
    if not table.rows[0].suite.startswith("MTEB("):
        return []
    lines = group_printed_lines(table.rows)
    return [*_note_mean_mixture(_group_printed_lines(lines)), *_note_reversals(lines)]


def _group_printed_lines(lines: Sequence[Line]) -> dict[str, list[str]]:
    """The lines by the mean that they print as their average."""
    ways: dict[str, list[str]] = {}
    for line in lines:
        for row in line.cells.values():
            if row.follows:
                way = "neither mean"
                if row.follows == "yes":
                    way = f"the {_SHORT.get(row.recomputed_as, row.recomputed_as)}"
                ways.setdefault(way, []).append(_format_line_name(line, lines))
    return ways


def _note_mean_mixture(ways: Collection[str]) -> list[str]:
    text = "The table mixes two means: compare its lines in one of the recomputed columns only."
    return [text] if len(set(ways) - {"neither mean"}) > 1 else []


def _note_reversals(lines: Sequence[Line]) -> list[str]:
    """Pairs that print orders one way and both means the other."""
    notes = []
    for first, other in itertools.permutations(lines, 2):
        mine, theirs, printed = first.means, other.means, (_average(first), _average(other))
        below = mine and theirs and all(mine[way] < theirs[way] for way in mine)
        # Pairs compare by their first part: the first is printed above the other.
        if below and None not in printed and printed > printed[::-1]:
            sides = [
                f"{x:.2f} against {theirs[way]:.2f} as {_SHORT.get(way, way)}" for way, x in mine.items()
            ]
            names = f"{_format_line_name(first, lines)} is printed above {_format_line_name(other, lines)}"
            notes.append(f"{names} ({printed[0]} against {printed[1]}), but has {' and '.join(sides)}.")
    return notes


def _average(line: Line) -> float | None:
    return next((row.number for name, row in line.cells.items() if name.startswith(AVERAGE)), None)


def _format_line_name(line: Line, lines: Sequence[Line]) -> str:
    """A line's model, and the end of its setting where the model stands there more than once."""
    name = line.first.name
    alone = sum(other.model == line.model for other in lines) == 1
    return name if alone else f"{name} ({line.labels['Setting'].rpartition('; ')[2]})"


def _note_law_ratio(rows: Sequence[PaperValue]) -> list[str]:
    """How much the two readings of OptiBERT's parametric law differ within its range of compute."""
    name, setting = "D/F_N vs C", "Sec4.2 parametric"
    printed = {row.metric: row.number for row in rows if (row.model, row.setting) == (name, setting)}
    prefactor, exponent, laws = printed.get("a_log10"), printed.get("exponent"), compute_power_laws(rows)
    if prefactor is None or exponent is None or name not in laws:
        return []
    # In logarithms to base 10, with C = 1e19: log10 of the prefactor, and 19 times the exponent.
    ours = 10 ** (laws[name][0] + 19 * laws[name][1])
    text = f"At C = 1e19 the printed law gives D/F_N = {10 ** (prefactor + 19 * exponent):.2f}"
    return [f"{text}, eq. 7 with the printed A, B, alpha and beta {ours:.1f}."]


def build_printed_cell(row: PaperValue) -> Cell:
    """A printed number with its error or interval, and a note on its unit and on its agreement."""
    if not row.value:
        return Cell(text="–", kind="away", note=_format_sentence(row.note))
    value = row.value if row.number is None else row.number
    price = re.search(r"\$[\d.]+/GPU-h$", row.setting)
    notes = [row.unit, row.note, price.group() if price else "", _describe_agreement(row)]
    return Cell(text=_format_printed_value(row), value=value, kind="reported", note=_format_sentence(*notes))


def _format_printed_value(row: PaperValue) -> str:
    """The number with its error or its interval, as it was printed; a damaged one with what it must be."""
    if read := find_read_value(row):
        return f"{row.value} [read {read}]"
    if not row.ci_low:
        return row.value
    value, low, high = (Decimal(text) for text in (row.value, row.ci_low, row.ci_high))
    if "plus/minus" in row.note and high - value == value - low:
        return f"{row.value} ± {high - value}"
    return f"{row.value} [{row.ci_low}, {row.ci_high}]"


def _describe_agreement(row: PaperValue) -> str:
    """Whether a number follows from those beside it, and if not, whether rounded parts may be why."""
    if row.follows != "no":
        return f"follows as: {row.recomputed_as}" if row.follows else ""
    text = f"does not follow from the printed numbers: {row.recomputed_as} is {row.recomputed}"
    difference = abs(Decimal(row.value) - Decimal(row.recomputed))
    return f"{text}, within what rounding of the parts can do" if difference <= row.last_place else text


def _format_sentence(*parts: str) -> str:
    text = "; ".join(part for part in parts if part)
    return f"{text[0].upper()}{text[1:]}." if text else ""
