"""What papers print, as data."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType


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
        return number_of(self.value)


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """One table of a paper, in print's order."""

    id: str
    caption: str
    rows: Sequence[Printed]

    @property
    def numbers(self) -> int:
        """How many numbers it prints: a dash is none, nor is a word among settings."""
        return sum(row.number is not None for row in self.rows)


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
        """The lines of its file, in print's order; some hold a dash or a word."""
        return [row for table in self.tables.values() for row in table.rows]

    @property
    def numbers(self) -> int:
        """How many numbers it prints."""
        return sum(table.numbers for table in self.tables.values())


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """What a printed name stands for."""

    name: str
    hub_id: str
    note: str


AVERAGE = "Avg."
SPELLED: Mapping[tuple[str, str], str] = MappingProxyType(
    {("GLUE dev", "SST"): "SST-2", ("GLUE dev", "STS"): "STS-B", ("GLUE dev", "GLUE"): AVERAGE}
)
SCORES = ("score x100", "nDCG@10 x100", "fraction")


def plain(suite: str, metric: str) -> str:
    """One name for a column that papers spell differently.

    >>> plain("GLUE dev", "SST"), plain("MTEB(eng, v1)", "Avg. (56 tasks)"), plain("BEIR", "DPR BEIR")
    ('SST-2', 'Avg.', 'Avg.')
    """
    average = metric.startswith(AVERAGE) or metric.endswith(f" {suite}")
    return AVERAGE if average else SPELLED.get((suite, metric), metric)


_QUERIES = (("TREC-DL 2019", "TREC-DL 2019"), ("dev split", "dev"))
"""Words in the note of a printed number, and the queries that they name."""


def same_queries(row: Printed, column: str) -> bool:
    """Whether a number is, as far as its note says, of the queries that a column names in brackets."""
    queries = next((queries for words, queries in _QUERIES if words in row.note), "")
    return not queries or "(" not in column or column.endswith(f"({queries})")


def column_of(metric: str, names: Sequence[str]) -> str | None:
    """The column that a printed name means: alike but for signs, or the only one that begins so."""
    wanted = _letters(metric)
    alike = [name for name in names if _letters(name) == wanted]
    begins = [name for name in names if _letters(name).startswith(wanted)]
    return alike[0] if alike else begins[0] if len(begins) == 1 else None


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold())


def title(table: str) -> str:
    """What a table is called in a sentence.

    >>> title("S3"), title("Sec4.4")
    ('table S3', 'Sec4.4')
    """
    return f"table {table}" if re.fullmatch(r"S?\d+", table) else table


def last_place(row: Printed) -> Decimal:
    """One unit of the last place that a number was printed with."""
    return Decimal(1).scaleb(int(Decimal(row.value).as_tuple().exponent))


def key_of(text: str) -> str:
    """A text as a part of a key or an anchor."""
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")


def number_of(text: str) -> float | None:
    """A text as a finite number, None if it is none."""
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None
