"""Marks on numbers that cannot be compared as they stand, for the twins that have no colours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from leaderboard.tables import KINDS, Cell, Row, Table

SHORT = {
    "part": "part", "failed": "failed", "other": "other revision", "bad": "impossible",
    "reported": "reported", "leak": "trained on", "chosen": "chosen", "seeds": "some seeds",
    "own": "own data", "changed": "changed settings", "selected": "selected",
    "texts": "trained on texts",
}  # fmt: skip
"""What CSV calls the kinds that say why a number cannot be compared."""

Signs: TypeAlias = "Mapping[str, tuple[str, str]]"

MARKDOWN: Signs = {
    "best": ("**", "**"), "part": ("*", "*"), "other": ("", "‡"), "reported": ("", "¶"), "leak": ("", "†"),
    "chosen": ("", "§"), "own": ("", " (own data)"), "changed": ("", " (changed settings)"),
    "selected": ("", " (selected)"), "texts": ("", "◊"),
}  # fmt: skip
"""What stands before and after a text of a kind. What failed or is impossible prints a sign of its own."""

LATEX: Signs = {
    "best": (r"\textbf{", "}"), "part": (r"\textit{", "}"), "other": ("", r"$^\ddagger$"),
    "reported": ("", r"\P{}"), "leak": ("", r"$^\dagger$"), "chosen": ("", r"\S{}"),
    "own": ("", " (own data)"), "changed": ("", " (changed settings)"),
    "selected": ("", " (selected)"), "texts": ("", r"$^\diamond$"),
}  # fmt: skip

WORDS = {"best": "bold", "part": "italic"}
"""How the kinds without a sign look."""


def marked(cell: Cell, signs: Signs, escape: Callable[[str], str]) -> str:
    """A cell's text with its marks."""
    text = escape(cell.text)
    for kind in _kinds(cell) if text else ():
        before, after = signs.get(kind, ("", ""))
        text = f"{before}{text}{after}"
    return text


def explained(table: Table, signs: Signs, escape: Callable[[str], str]) -> str:
    """What the marks of a table mean, in a line; empty where it has none."""
    seen: dict[str, str] = {}
    for row in table.rows:
        for cell in row.cells:
            if text := escape(cell.text):
                for kind in _kinds(cell):
                    seen.setdefault(kind, text)
    found = []
    for kind in (kind for kind in KINDS if kind in seen):
        before, after = signs.get(kind, ("", ""))
        word = WORDS.get(kind, "" if kind in signs else seen[kind])
        found.append(f"{before}{word}{after}: {escape(KINDS[kind])}")
    return f"Marks: {'; '.join(found)}." if found else ""


def has_marks(table: Table) -> bool:
    """Whether CSV needs a column of marks."""
    return any(SHORT.keys() & set(_kinds(cell)) for row in table.rows for cell in row.cells if cell.kind)


def row_marks(row: Row, table: Table) -> str:
    """The marks of a row as CSV has them: columns, each with what is to be known of its number."""
    texts = [", ".join(SHORT[kind] for kind in _kinds(cell) if kind in SHORT) for cell in row.cells]
    return _by_column(table, texts)


def has_deviations(table: Table) -> bool:
    """Whether CSV needs a column of standard deviations."""
    return any(cell.deviation is not None for row in table.rows for cell in row.cells)


def row_deviations(row: Row, table: Table) -> str:
    """The standard deviations of a row over seeds, by column."""
    return _by_column(table, ["" if cell.deviation is None else repr(cell.deviation) for cell in row.cells])


def _by_column(table: Table, texts: Sequence[str]) -> str:
    """What is said of cells, with the names of their columns."""
    labels = [column.label for column in table.columns]
    found = []
    for column, text in zip(table.columns, texts, strict=True):
        once = labels.count(column.label) == 1 or not column.group
        name = column.label if once else f"{column.group}: {column.label}"
        found += [f"{name}: {text}"] if text else []
    return "; ".join(found)


def _kinds(cell: Cell) -> list[str]:
    """The kinds of a cell that are marked; a cell that says itself that it is reported needs no mark."""
    if not cell.kind:
        return []
    own = set(cell.kind.split()) & {"best", *SHORT}
    own -= {"reported"} if "reported" in cell.text else set()
    return [kind for kind in KINDS if kind in own]
