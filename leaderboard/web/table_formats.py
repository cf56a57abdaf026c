"""Tables as JSON, CSV, Markdown and LaTeX, and numbers as texts."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.core.terminal import clean_text
from harness.core.types import is_number
from leaderboard.data.entries import format_seeds
from leaderboard.web.marks import KINDS
from leaderboard.web.tables import Cell, Table, TableColumn, TableRow

UNKNOWN = ("", "?", "–")
"""Texts of nothing."""

_NUMBER = re.compile(r"[+−-]?\d[\d,]*(\.\d+)?")


def parse_cell_value(cell: Cell) -> Any:
    """A cell's value as its text prints it: 71.4 where the text is 71.40, whatever the share behind it.

    >>> [parse_cell_value(Cell(text=t, value=v)) for t, v in (("71.40 ± 0.2", 0.714), ("22.7 M", 22713216))]
    [71.4, 22713216]
    """
    value = cell.value
    if not is_number(value):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return None
    # A cell may also print an interval, a deviation or a count: only its first number is the value.
    text = re.split(r" ± | \(", cell.text)[0].removesuffix("%").rstrip()
    if not _NUMBER.fullmatch(text):
        return value
    plain = text.replace(",", "").replace("−", "-")
    return float(plain) if "." in plain else int(plain)


def parse_cell_deviation(cell: Cell) -> float | None:
    """The standard deviation beside a value, as printed."""
    text = cell.text.partition(" ± ")[2].split(" ")[0]
    return cell.deviation if cell.deviation is None or not _NUMBER.fullmatch(text) else float(text)


def render_csv(tables: Sequence[Table], as_of: str = "") -> str:
    """Tables as CSV, an empty line between two; headings over rows become a first column "Group".

    The last column of all is the `snapshot` that they are of.

    A text that a spreadsheet would take for a formula gets an apostrophe in front. The last columns
    "deviations" (over seeds) and "marks" (why a number cannot be compared) stand where a row has any.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    for number, table in enumerate(tables):
        if number:
            writer.writerow([])
        for index, line in enumerate(_build_csv_lines(table)):
            snapshot = [as_of if index else "snapshot"] if as_of else []
            writer.writerow([_escape_formula(value) for value in line] + snapshot)
    return out.getvalue()


def _build_csv_lines(table: Table, *, unique: bool = False) -> list[list[Any]]:
    """The heads and the rows; heads that shall be `unique` are the columns' keys where several are alike."""
    rows, heads = list(table.entries), [_format_column_heading(column) for column in table.columns]
    if unique:
        pairs = zip(table.columns, heads, strict=True)
        heads = [head if heads.count(head) == 1 else column.key for column, head in pairs]
    ways: dict[str, Callable[[Cell], str]] = {
        "deviations": lambda cell: "" if cell.deviation is None else repr(parse_cell_deviation(cell)),
        "marks": lambda cell: ", ".join(filter(None, (KINDS[kind].csv for kind in _list_cell_kinds(cell)))),
    }
    more = [
        (name, texts)
        for name, way in ways.items()
        if any(texts := [_join_cell_texts(row, table, way) for _, row in rows])
    ]
    grouped = any(heading for heading, _ in rows)
    lines: list[list[Any]] = [["Group", *heads, *(name for name, _ in more)]]
    for position, (heading, row) in enumerate(rows):
        values = [_format_csv_value(cell) for cell in row.cells]
        lines.append([heading, *values, *(texts[position] for _, texts in more)])
    return lines if grouped else [line[1:] for line in lines]


def render_parquet(tables: Sequence[Table], facts: Mapping[str, str] | None = None) -> bytes:
    """The first table as a Parquet file with the columns of its CSV: numbers, or else texts.

    The `facts` are metadata of its schema.
    """
    import pyarrow as pa
    from pyarrow import parquet

    heads, *rows = _build_csv_lines(tables[0], unique=True) if tables else [[]]
    values = [[None if row[at] == "" else row[at] for row in rows] for at in range(len(heads))]
    for column in values:
        if not all(value is None or is_number(value) for value in column):
            column[:] = [None if value is None else clean_text(str(value)) for value in column]
    sink = io.BytesIO()
    arrays = [pa.array(column) for column in values]
    table = pa.Table.from_arrays(arrays, names=heads, metadata=dict(facts or {}))
    parquet.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def _format_csv_value(cell: Cell) -> Any:
    value = parse_cell_value(cell)
    if value is not None:
        return value
    return "" if cell.text in UNKNOWN else cell.text


def _escape_formula(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = clean_text(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _format_column_heading(column: TableColumn) -> str:
    return f"{column.group}: {column.label}" if column.group else column.label


def _join_cell_texts(row: TableRow, table: Table, way: Callable[[Cell], str]) -> str:
    """What is to be known of a row's cells, each with the name of its column."""
    labels = [column.label for column in table.columns]
    # Two columns may share a label under different groups.
    names = [c.label if labels.count(c.label) == 1 else _format_column_heading(c) for c in table.columns]
    pairs = zip(names, map(way, row.cells), strict=True)
    return "; ".join(f"{name}: {text}" for name, text in pairs if text)


def _list_cell_kinds(cell: Cell) -> list[str]:
    """The kinds of a cell in the legend's order; a text that says "reported" itself is not marked so."""
    cell_kinds = set(cell.kind.split()) - ({"reported"} if "reported" in cell.text else set())
    return [kind for kind in KINDS if kind in cell_kinds] if cell_kinds else []


def render_markdown(title: str, tables: Sequence[Table], *, notes: Sequence[str] = (), view: str = "") -> str:
    """Tables as GitHub's Markdown.

    Args:
        title: The heading.
        tables: What to print.
        notes: Sentences that must be read with the tables; they stand above them.
        view: The query that made the tables what they are.
    """
    parts = [f"# {_escape_md(title)}\n", *(f"{_escape_md(note)}\n" for note in notes)]
    parts += [f"View: `{view}`\n"] if view else []
    for table in tables:
        marks = _explain_marks(table, _render_md_cell)
        lines = [
            f"## {_escape_md(table.caption)}\n",
            _render_md_row([_escape_md(_format_column_heading(column)) for column in table.columns]),
            "|" + "|".join(" ---: " if c.numeric else " --- " for c in table.columns) + "|",
            *(_render_md_row([_render_md_cell(cell) for cell in row.cells]) for row in table.rows),
            *(f"\n{note}" for note in [*map(_escape_md, table.notes), *([marks] if marks else [])]),
        ]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _render_md_row(texts: Sequence[str]) -> str:
    return "| " + " | ".join(texts) + " |"


def _escape_md(text: str) -> str:
    flat = _flatten_text(text)
    for sign in "\\`*_[]|#":
        flat = flat.replace(sign, f"\\{sign}")
    return flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _render_md_cell(cell: Cell) -> str:
    kinds, text = _list_cell_kinds(cell), _escape_md(cell.text)
    text = f"**{text}**" if text and "best" in kinds else text
    text = f"*{text}*" if text and "part" in kinds else text
    return text + "".join(KINDS[kind].mark for kind in kinds) if text else ""


TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
    "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--", "−": "$-$", "±": r"$\pm$",
    "×": r"$\times$", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    # At the start of a row they would be taken for an argument of the `\\` before.
    "[": "{[}", "*": "{*}",
}  # fmt: skip
TEX_MARKS = {
    "‡": r"$^\ddagger$", "≠": r"$^{\neq}$", "†": r"$^\dagger$", "§": r"\S{}", "¶": r"\P{}",
    "◊": r"$^\diamond$", "‖": r"$^\parallel$", "○": r"$^\circ$", "★": r"$^\star$",
}  # fmt: skip


def render_tex(tables: Sequence[Table], *, notes: Sequence[str] = (), view: str = "") -> str:
    """Tables as LaTeX (package booktabs); the arguments are as for Markdown, and stand in comments."""
    above = [f"% {_flatten_text(note)}\n" for note in notes] + ([f"% View: {view}\n"] if view else [])
    return "".join(above) + "\n".join(_render_tex_table(table) for table in tables)


def _render_tex_table(table: Table) -> str:
    heads = " & ".join(escape_tex(column.label) for column in table.columns)
    rows = "\n".join(" & ".join(map(_render_tex_cell, row.cells)) + r" \\" for row in table.rows)
    notes = "".join(f"% {_flatten_text(note)}\n" for note in table.notes)
    form = "".join("r" if column.numeric else "l" for column in table.columns)
    marks = _explain_marks(table, _render_tex_cell)
    below = f"\\par\\smallskip\\footnotesize {marks}\n" if marks else ""
    return (
        f"{notes}\\begin{{table}}\n\\centering\n\\caption{{{escape_tex(table.caption)}}}\n"
        f"\\begin{{tabular}}{{{form}}}\n\\toprule\n{_render_tex_groups(table)}{heads} \\\\\n"
        f"\\midrule\n{rows}\n\\bottomrule\n"
        f"\\end{{tabular}}\n{below}\\end{{table}}\n"
    )


def _render_tex_groups(table: Table) -> str:
    """The line of headings over several columns, and the rules below it; empty without groups."""
    heads, rules, last = [], "", 0
    for column, width in table.groups:
        heads.append(rf"\multicolumn{{{width}}}{{c}}{{{escape_tex(column.group)}}}")
        rules += rf"\cmidrule(lr){{{last + 1}-{last + width}}}" if column.group else ""
        last += width
    return f"{' & '.join(heads)} \\\\\n{rules}\n" if heads else ""


def escape_tex(text: str) -> str:
    """A text as LaTeX prints it."""
    return "".join(TEX.get(sign, sign) for sign in _flatten_text(text))


def _render_tex_cell(cell: Cell) -> str:
    kinds, text = _list_cell_kinds(cell), escape_tex(cell.text)
    text = rf"\textbf{{{text}}}" if text and "best" in kinds else text
    text = rf"\textit{{{text}}}" if text and "part" in kinds else text
    return text + "".join(TEX_MARKS.get(KINDS[k].mark, KINDS[k].mark) for k in kinds) if text else ""


def _explain_marks(table: Table, marked: Callable[[Cell], str]) -> str:
    """What the marks of a table mean, in a line."""
    seen: dict[str, str] = {}
    for row in table.rows:
        for cell in row.cells:
            for cell_kind in _list_cell_kinds(cell) if cell.text else ():
                seen.setdefault(cell_kind, cell.text)
    words = {"best": "bold", "part": "italic"}
    meanings = []
    for name, kind in KINDS.items():
        if name not in seen or not (name == "best" or kind.csv):
            continue
        sample = words.get(name, "") or ("" if kind.mark else seen[name])
        sign = marked(Cell(text=sample, kind=name)) if sample else marked(Cell(text="x", kind=name))[1:]
        meanings.append(f"{sign}: {marked(Cell(text=kind.meaning))}")
    return f"Marks: {'; '.join(meanings)}." if meanings else ""


def _flatten_text(text: str) -> str:
    """A text in one line, without signs that control what reads it."""
    return " ".join(clean_text(text).split())


def build_table_json(table: Table) -> dict[str, Any]:
    """A table as plain values: the rows' cells by the columns' keys, headings over rows as `group`."""
    keys = [column.key for column in table.columns]
    rows = []
    for heading, row in table.entries:
        pairs = zip(keys, row.cells, strict=True)
        cells = {key: _build_cell_json(cell) for key, cell in pairs if cell.text or cell.value is not None}
        rows.append({"key": row.key, "kind": row.kind, "group": heading, "cells": cells})
    return {
        "name": table.name,
        "caption": table.caption,
        "columns": [{n: getattr(c, n) for n in ("key", "label", "group", "note")} for c in table.columns],
        "rows": rows,
        "notes": list(table.notes),
    }


def _build_cell_json(cell: Cell) -> dict[str, Any]:
    """A cell: its value as printed, and what else is known of it."""
    value = parse_cell_value(cell)
    if value is None and not cell.kind and cell.text not in UNKNOWN:
        value = cell.text
    more = {"text": cell.text, "kind": cell.kind, "note": cell.note, "href": cell.href}
    deviation = {} if cell.deviation is None else {"deviation": parse_cell_deviation(cell)}
    return {"value": value, **deviation, **{name: text for name, text in more.items() if text}}


def format_parameters(number: int | None) -> str:
    """A number of parameters.

    >>> format_parameters(22_713_216), format_parameters(999_885_952), format_parameters(7_110_000_000)
    ('22.7 M', '1 B', '7.11 B')
    >>> format_parameters(None)
    '?'
    """
    if number is None:
        return "?"
    # From here on millions would round to 1e+03.
    return f"{number / 1e9:.3g} B" if number >= 999.5e6 else f"{number / 1e6:.3g} M"


def add_seed_deviation(cell: Cell, deviation: float | None, seeds: Sequence[int]) -> Cell:
    """A score times 100 with its standard deviation over seeds, where there is one.

    Args:
        cell: The cell of the score.
        deviation: The standard deviation as a share of 1; None or NaN for none.
        seeds: The seeds that the score is the mean over.

    >>> add_seed_deviation(Cell(text="51.00", value=0.51), 0.01, [1, 2]).text
    '51.00 ± 1.00'
    """
    if deviation is None or deviation != deviation:
        return cell
    notes = [f"mean ± standard deviation over {format_seeds(seeds)}", *([cell.note] if cell.note else [])]
    text = f"{cell.text} ± {100 * deviation:.2f}"
    return replace(cell, text=text, deviation=deviation, note="; ".join(notes))


def build_seeds_cell(count: int, wanted: int) -> Cell:
    """The cell of a score that only some seeds have."""
    note = f"{count} of {wanted} seeds have a score: there is no mean over them"
    return Cell(text=f"{count} of {wanted} seeds", kind="seeds", note=note)
