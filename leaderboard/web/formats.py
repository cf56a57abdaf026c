"""Tables as HTML, CSV, Markdown, LaTeX and JSON."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from markupsafe import Markup, escape

from leaderboard.web.tables import (
    KINDS,
    LATEX,
    MARKDOWN,
    Cell,
    Column,
    Row,
    Table,
    explained,
    has_deviations,
    has_marks,
    marked,
    row_deviations,
    row_marks,
)

CODES = {
    "best": "b", "second": "s", "none": "n", "failed": "f", "other": "o", "bad": "x", "part": "p",
    "away": "a", "measured": "m", "imported": "i", "reported": "r", "leak": "l", "chosen": "c",
    "seeds": "g", "own": "y", "changed": "z", "selected": "e", "texts": "h",
    "regressed": "d", "improved": "u", "unsure": "q",
}  # fmt: skip
"""Kinds in class names of one letter: a page of 7,000 cells stays small."""

SAMPLES = {"best": "71.2", "second": "70.9", "none": "–", "failed": "×", "bad": "!", "part": "–", "away": "·",
           "seeds": "2 of 3 seeds", "own": "model", "changed": "model", "selected": "model",
           "regressed": "▼", "improved": "▲", "unsure": "?"}  # fmt: skip
"""What a cell of a kind prints in the legend; "64.1" where nothing else is said."""


def html(table: Table, *, pick: bool = False) -> Markup:
    """A table with its legend and its notes.

    Args:
        table: What to print.
        pick: Whether rows can be ticked for a comparison.
    """
    label = escape(table.caption)
    head, body = "".join(_head(table.columns)), "".join(_row(r, table.columns, pick) for r in table.rows)
    notes = "".join(f"<li>{escape(note)}</li>" for note in table.notes)
    return Markup(
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">'
        f'<table class="data" id="t-{escape(table.name)}" data-name="{escape(table.name)}">'
        f"<caption>{label}</caption><thead>{head}</thead><tbody>{body}</tbody></table></div>"
        + (f'<ul class="notes">{notes}</ul>' if notes else "")
    )


def legend(tables: Sequence[Table]) -> list[tuple[str, str, str]]:
    """The kinds that tables use: letter, sample and meaning."""
    kinds = {cell.kind for table in tables for row in table.rows for cell in row.cells}
    used = {kind for some in kinds for kind in some.split()}
    return [(CODES[kind], SAMPLES.get(kind, "64.1"), says) for kind, says in KINDS.items() if kind in used]


def _head(columns: Sequence[Column]) -> Iterator[str]:
    if any(column.group for column in columns):
        yield '<tr class="groups">'
        for label, width, sticky in _groups(columns):
            cls = ' class="sticky"' if sticky else ""
            yield (
                f'<th{cls} colspan="{width}" scope="colgroup"><span>{escape(label)}</span></th>'
                if label
                else f'<td{cls} colspan="{width}"></td>'
            )
        yield "</tr>"
    yield "<tr>"
    for column in columns:
        yield _heading(column)
    yield "</tr>"


def _groups(columns: Sequence[Column]) -> Iterator[tuple[str, int, bool]]:
    start = 0
    for at in range(1, len(columns) + 1):
        ends = at == len(columns) or (columns[at].group, columns[at].sticky) != (
            columns[start].group,
            columns[start].sticky,
        )
        if ends:
            yield columns[start].group, at - start, columns[start].sticky
            start = at


def _heading(column: Column) -> str:
    classes = ["num" if column.numeric else "text", *(["sticky"] if column.sticky else [])]
    classes += ["sorted"] if column.sorted else []
    label = escape(column.label)
    inner = f'<a href="{escape(column.sort)}">{label}</a>' if column.sort else f"<span>{label}</span>"
    if column.href:
        inner += f' <a class="go" href="{escape(column.href)}" title="about {label}">›</a>'
    sort = f' aria-sort="{column.sorted or "none"}"' if column.sort or column.sorted else ""
    note = f' title="{escape(column.note)}"' if column.note else ""
    about = f'class="{" ".join(classes)}" data-key="{escape(column.key)}"{sort}{note}'
    return f'<th scope="col" {about}>{inner}</th>'


def _row(row: Row, columns: Sequence[Column], pick: bool) -> str:
    kind = f' class="{row.kind}"' if row.kind else ""
    key = f' data-key="{escape(row.key)}"' if row.key else ""
    pairs = zip(row.cells, columns, strict=True)
    own = islice(pairs, 2) if row.drawn else pairs
    cells = "".join([_cell(cell, column, row, pick) for cell, column in own])
    return f"<tr{kind}{key}>{cells}{row.drawn}</tr>"


def _cell(cell: Cell, column: Column, row: Row, pick: bool) -> str:
    if column.key not in ("model", "name") or not cell.text:
        return cell_html(cell, numeric=column.numeric, sticky=column.sticky)
    text: str = name_html(cell.text)
    inner = f'<a href="{escape(cell.href)}">{text}</a>' if cell.href else str(text)
    if pick and row.key and column.key == "model":
        inner = _tick(row, cell) + inner
    return f'<th scope="row"{_about(cell, column.numeric, column.sticky)}>{inner}</th>'


def cell_html(cell: Cell, *, numeric: bool, sticky: bool = False) -> str:
    """One cell that is not its row's heading."""
    if numeric and not (cell.kind or cell.note or cell.href or sticky or cell.width is not None):
        return f"<td>{escape(cell.text)}</td>"
    text = escape(cell.text)
    inner = f'<a href="{escape(cell.href)}">{text}</a>' if cell.href else text
    return f"<td{_about(cell, numeric, sticky)}>{inner}</td>"


def _about(cell: Cell, numeric: bool, sticky: bool) -> str:
    """A cell's class and title."""
    classes = [CODES[kind] for kind in cell.kind.split()]
    classes += [] if numeric else ["t"]
    classes += ["sticky"] if sticky else []
    classes += [] if cell.width is None else [f"w{round(20 * cell.width)}"]
    title = f' title="{escape(cell.note)}"' if cell.note else ""
    return (f' class="{" ".join(classes)}"' if classes else "") + title


def _tick(row: Row, cell: Cell) -> str:
    label = f'aria-label="compare {escape(cell.text)}"'
    tick = f'<input type="checkbox" name="m" value="{escape(row.key)}" form="pick" {label}>'
    if not row.pin:
        return tick
    does, cls = ("unpin", "pin on") if row.kind == "pinned" else ("pin", "pin")
    return f'{tick}<a class="{cls}" href="{escape(row.pin)}" aria-label="{does} {escape(cell.text)}"></a>'


def name_html(name: str) -> Markup:
    """A model's name with its organisation set back."""
    organisation, slash, rest = name.rpartition("/")
    if not slash:
        return escape(name)
    return Markup('<span class="org">{}/</span>{}').format(organisation, rest)


def csv_text(tables: Sequence[Table]) -> str:
    """Tables as CSV with full precision, an empty line between two.

    Text that a spreadsheet would take for a formula gets an apostrophe in front. Where a number cannot be
    compared as it stands, a last column "marks" says which and why; before it stands one of standard
    deviations over seeds, where there are any.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    for number, table in enumerate(tables):
        if number:
            writer.writerow([])
        more = [("deviations", row_deviations)] if has_deviations(table) else []
        more += [("marks", row_marks)] if has_marks(table) else []
        heads = [f"{c.group}: {c.label}" if c.group else c.label for c in table.columns]
        writer.writerow([_plain(head) for head in [*heads, *(name for name, _ in more)]])
        for row in table.rows:
            marks = [text_of(row, table) for _, text_of in more]
            writer.writerow([_plain(value) for value in [*map(_csv_value, row.cells), *marks]])
    return out.getvalue()


def _csv_value(cell: Cell) -> Any:
    """A cell's value, else its text where that says something."""
    value = _known(cell)
    if value is None:
        return "" if cell.text in UNKNOWN else cell.text
    return value


UNKNOWN = ("", "?", "–")
"""What stands for nothing."""


def _known(cell: Cell) -> Any:
    """A cell's value; None for a number that is none, which JSON cannot hold."""
    value = cell.value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def markdown(title: str, tables: Sequence[Table], *, notes: Sequence[str] = (), view: str = "") -> str:
    """Tables as GitHub's Markdown.

    Args:
        title: The heading.
        tables: What to print.
        notes: Sentences that must be read with the tables; they stand above them.
        view: The query that made the tables what they are; empty for the usual one.
    """
    parts = [f"# {_md(title)}\n", *(f"{_md(note)}\n" for note in notes)]
    parts += [f"View: `{view}`\n"] if view else []
    for table in tables:
        below = [_md(note) for note in table.notes]
        below += [says] if (says := explained(table, MARKDOWN, _md)) else []
        lines = [
            f"## {_md(table.caption)}\n",
            _md_row([_md(f"{c.group}: {c.label}" if c.group else c.label) for c in table.columns]),
            "|" + "|".join(" ---: " if c.numeric else " --- " for c in table.columns) + "|",
            *(_md_row([marked(cell, MARKDOWN, _md) for cell in row.cells]) for row in table.rows),
            *(f"\n{note}" for note in below),
        ]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _md_row(texts: Sequence[str]) -> str:
    return "| " + " | ".join(texts) + " |"


def _md(text: str) -> str:
    flat = _flat(text)
    for sign in "\\`*_[]|#":
        flat = flat.replace(sign, f"\\{sign}")
    return flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
    "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--", "−": "$-$", "±": r"$\pm$",
    "×": r"$\times$", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    "[": "{[}", "*": "{*}",  # at the start of a row they would belong to the end of the one before
}  # fmt: skip


def tex(tables: Sequence[Table], *, notes: Sequence[str] = (), view: str = "") -> str:
    """Tables as LaTeX (package booktabs); the arguments are as for Markdown, and stand in comments."""
    above = [f"% {_flat(note)}\n" for note in notes] + ([f"% View: {view}\n"] if view else [])
    return "".join(above) + "\n".join(_tex_table(table) for table in tables)


def _tex_table(table: Table) -> str:
    heads = " & ".join(_tex(column.label) for column in table.columns)
    rows = "\n".join(" & ".join(marked(c, LATEX, _tex) for c in row.cells) + r" \\" for row in table.rows)
    notes = "".join(f"% {_flat(note)}\n" for note in table.notes)
    form = "".join("r" if column.numeric else "l" for column in table.columns)
    marks = explained(table, LATEX, _tex)
    below = f"\\par\\smallskip\\footnotesize {marks}\n" if marks else ""
    return (
        f"{notes}\\begin{{table}}\n\\centering\n\\caption{{{_tex(table.caption)}}}\n"
        f"\\begin{{tabular}}{{{form}}}\n\\toprule\n{heads} \\\\\n\\midrule\n{rows}\n\\bottomrule\n"
        f"\\end{{tabular}}\n{below}\\end{{table}}\n"
    )


def _tex(text: str) -> str:
    return "".join(TEX.get(sign, sign) for sign in _flat(text))


def _flat(text: str) -> str:
    """A text in one line, without signs that control what reads it."""
    return " ".join("".join(sign if sign >= " " and sign != "\x7f" else " " for sign in text).split())


def table_json(table: Table) -> dict[str, Any]:
    """A table as plain values: the rows' cells by the columns' keys."""
    keys = [column.key for column in table.columns]
    return {
        "name": table.name,
        "caption": table.caption,
        "columns": [
            {"key": c.key, "label": c.label, "group": c.group, "note": c.note} for c in table.columns
        ],
        "rows": [
            {
                "key": row.key,
                "kind": row.kind,
                "cells": {
                    k: _value(c)
                    for k, c in zip(keys, row.cells, strict=True)
                    if c.text or c.value is not None
                },
            }
            for row in table.rows
        ],
        "notes": list(table.notes),
    }


def _value(cell: Cell) -> dict[str, Any]:
    """A cell: its value, and what else is known of it where there is something."""
    value = _known(cell)
    says = value is None and not cell.kind and cell.text not in UNKNOWN
    found: dict[str, Any] = {"value": cell.text if says else value}
    more = {"text": cell.text, "kind": cell.kind, "note": cell.note, "href": cell.href}
    deviation = {} if cell.deviation is None else {"deviation": cell.deviation}
    return found | deviation | {name: value for name, value in more.items() if value}


def parameters_text(number: int | None) -> str:
    """A number of parameters.

    >>> parameters_text(22_713_216), parameters_text(7_110_000_000), parameters_text(None)
    ('22.7 M', '7.11 B', '?')
    """
    if number is None:
        return "?"
    return f"{number / 1e9:.3g} B" if number >= 1e9 else f"{number / 1e6:.3g} M"


def seeds_text(seeds: Sequence[int]) -> str:
    """Seeds in words.

    >>> seeds_text([1]), seeds_text([1, 2, 3])
    ('seed 1', '3 seeds: 1, 2, 3')
    """
    listed = ", ".join(map(str, seeds))
    return f"{len(seeds)} seeds: {listed}" if len(seeds) > 1 else f"seed {listed}"


def over_seeds(cell: Cell, deviation: float | None, seeds: Sequence[int]) -> Cell:
    """A score times 100 with its standard deviation over seeds, where there is one.

    >>> over_seeds(Cell(text="51.00", value=0.51), 0.01, [1, 2]).text
    '51.00 ± 1.00'
    """
    if deviation is None or deviation != deviation:
        return cell
    notes = [f"mean ± standard deviation over {seeds_text(seeds)}", *([cell.note] if cell.note else [])]
    text = f"{cell.text} ± {100 * deviation:.2f}"
    return replace(cell, text=text, deviation=deviation, note="; ".join(notes))


def some_seeds(there: int, wanted: int) -> Cell:
    """The cell of a score that only some seeds have."""
    note = f"{there} of {wanted} seeds have a score: there is no mean over them"
    return Cell(text=f"{there} of {wanted} seeds", kind="seeds", note=note)
