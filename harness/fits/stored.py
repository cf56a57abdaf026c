"""Fits as documents in a results folder, with the runs that they are of, as the site shows them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from harness.core.documents import DocumentFolder, DocumentKind, DocumentPart
from harness.fits.runs import LawName, Size

COLUMNS = ("size", "tokens", "flops", "loss")
"""The columns that every stored fit has."""


class Quantity(DocumentPart):
    """A number that a fit gives.

    Attributes:
        name: What it is.
        method: The method of the runs that it is of; "" for none.
        value: The estimate; None where the runs cannot tell it.
        low: The lower end of its interval.
        high: The upper end.
        reason: Why there is no value.
    """

    name: str
    method: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""


class StoredFit(DocumentPart):
    """A fit (harness.fits.fitting.Fit) with its runs."""

    name: str
    when: str
    law: LawName
    size_is: Size
    budget: float | None = None
    """The operations that were planned."""
    method: tuple[str, ...]
    columns: Mapping[str, tuple[float, ...]]
    """The runs' size, tokens, flops, loss and further numbers, an item for each run as in `method`; `budget`
    is that which a run counts as one of, where budgets are apart."""
    quantities: tuple[Quantity, ...]
    plans: Mapping[str, Mapping[str, Quantity]] = {}
    notes: tuple[str, ...] = ()

    def find_values(self, method: str) -> dict[str, float]:
        """The quantities of a method that have a value, by name."""
        return {q.name: q.value for q in self.quantities if q.method == method and q.value is not None}


def _find_problem(fit: StoredFit) -> str:
    lengths = {len(fit.method), *map(len, fit.columns.values())}
    missing = [column for column in COLUMNS if column not in fit.columns]
    if missing or len(lengths) > 1:
        return f"it has no column {missing[0]}" if missing else "its columns have several lengths"
    # Logarithms and ranges are taken of them.
    if not fit.method or not all(0 < value < math.inf for name in COLUMNS for value in fit.columns[name]):
        return f"it has no runs, or one whose {', '.join(COLUMNS)} are not all numbers above 0"
    return ""


FITS = DocumentFolder(
    kind=DocumentKind(name="fit", type=StoredFit, find_problem=_find_problem),
    folder="fits",
    then="Give another --out.",
)
