"""Tables: what a page prints, and what its CSV, Markdown, LaTeX and JSON twins hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Value: TypeAlias = "float | int | str | bool | None"

Sorted = Literal["", "ascending", "descending"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One cell.

    Attributes:
        text: As a page prints it, not escaped; empty for nothing.
        value: What the twins carry; None for nothing.
        href: Where it leads, a path of this site; empty for nowhere.
        kind: Why it looks as it does: names of KINDS with spaces between.
        note: What a reader may want to know, in a sentence; it stands in the cell's title.
        width: For a bar behind the number, 0 to 1; None for no bar.
        deviation: The standard deviation of the value over the seeds of a training; None for no seeds.
    """

    text: str = ""
    value: Value = None
    href: str = ""
    kind: str = ""
    note: str = ""
    width: float | None = None
    deviation: float | None = None


EMPTY = Cell()

KINDS = {
    "best": "the best of this column, of what is shown",
    "second": "the second best of this column, of what is shown",
    "part": "a mean of some of its tasks: not ranked",
    "none": "no score: not run, or under another revision or treatment of the model",
    "failed": "it was run and failed",
    "other": "on another revision of the data, or data that does not prove its revision",
    "bad": "an impossible value",
    "away": "not applicable",
    "measured": "measured by this harness",
    "imported": "taken over from a public results repository",
    "reported": "printed in a paper",
    "leak": "the model was trained on this task's data, by its makers' own account",
    "chosen": "a choice of settings was made on this data",
    "seeds": "some seeds of the training have no score: no mean over them",
    "own": "trained on data of the user's own, not on that of the recipe",
    "changed": "trained with other settings than the recipe's",
    "selected": "scores on tasks selected a checkpoint or a setting: on the model, on those tasks, and on "
    "means that have them",
    "texts": "texts of this task are in the training data; the cell's title counts them",
    "regressed": "lower than it may be: a check's verdict, or a drop of a curve",
    "improved": "higher: a check's verdict",
    "unsure": "nothing can be said, or something is missing",
}
"""Every kind a cell can have, and what it means: pages print the legend from it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One column.

    Attributes:
        key: In URLs and twins; unique in the table.
        label: The heading.
        group: The heading over several columns that follow one another; empty for none.
        numeric: Whether it holds numbers, which stand to the right.
        href: Where the heading leads as a link of its own (a task's page); empty for nowhere.
        sort: The URL that sorts by this column; empty where one cannot.
        sorted: How it is sorted now.
        note: What the column is, in a sentence.
        sticky: Whether it stays when the table is scrolled sideways.
    """

    key: str
    label: str
    group: str = ""
    numeric: bool = False
    href: str = ""
    sort: str = ""
    sorted: Sorted = ""
    note: str = ""
    sticky: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One row; `kind` is "", "pinned", "part" (incomplete) or "group" (a heading over the rows below).

    `key` names what the row is about (an entry's slug) where there is such a thing, and `pin` is the
    URL that keeps it on top, or lets it go again. `drawn` is the HTML of its cells behind those of the
    first two columns, where it was made before.
    """

    cells: Sequence[Cell]
    key: str = ""
    kind: str = ""
    pin: str = ""
    drawn: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """One table of a page.

    Attributes:
        name: Unique on its page; its anchor, and the name of a twin's part.
        caption: What it shows, in a few words.
        columns: From left to right.
        rows: From top to bottom, each with a cell for every column.
        notes: Sentences below it.
    """

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    notes: Sequence[str] = ()


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
