"""Tables: what a page prints, and what its CSV, Markdown, LaTeX and JSON twins hold."""

from __future__ import annotations

from collections.abc import Sequence
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
