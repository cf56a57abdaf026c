"""Fits as documents in a results folder, with the runs that they are of, as terminal and site show them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from pydantic import Field

from harness.core.documents import DocumentFolder, DocumentKind, DocumentPart
from harness.fits.runs import Floats, LawName, Size

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
    """A law that was fitted to runs, with these."""

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
    """By method the size, tokens and loss at the optimum of the wanted budget."""
    notes: tuple[str, ...] = ()
    optima: Mapping[str, tuple[tuple[float, float], ...]] = Field({}, exclude=True)
    """By method, for each optimum its objective and the share of starts that reach it; not stored."""

    @property
    def methods(self) -> list[str]:
        """The names of the methods."""
        return [*dict.fromkeys(self.method)]

    @property
    def planned(self) -> list[Quantity]:
        """The quantities of all plans."""
        return [quantity for plan in self.plans.values() for quantity in plan.values()]

    @property
    def untold(self) -> int:
        """How many quantities the runs do not tell."""
        return sum(bool(quantity.reason) for quantity in (*self.quantities, *self.planned))

    def find_values(self, method: str) -> dict[str, float]:
        """The quantities of a method that have a value, by name."""
        return {q.name: q.value for q in self.quantities if q.method == method and q.value is not None}

    def select_columns(self, method: str) -> dict[str, Floats]:
        """The columns of the runs of a method, each (runs,)."""
        kept = np.array(self.method) == method
        return {name: np.array(values)[kept] for name, values in self.columns.items()}

    def iter_told_plans(self) -> Iterator[tuple[str, Mapping[str, Quantity]]]:
        """The plans, with their method, of which every quantity has a value."""
        return (pair for pair in self.plans.items() if not any(q.reason for q in pair[1].values()))

    def choose_method(self) -> str | None:
        """The method of the lowest loss at the wanted budget; None where intervals overlap, or of no plan."""
        ends = {
            method: (plan["loss"].low or 0.0, plan["loss"].high or 0.0)
            for method, plan in self.iter_told_plans()
        }
        best = min(ends, key=lambda method: ends[method][1], default=None)
        lows = [low for method, (low, _) in ends.items() if method != best]
        return best if best is not None and all(low > ends[best][1] for low in lows) else None

    def dump_output(self) -> dict[str, Any]:
        """The fit as the JSON output of the command has it: without its runs."""
        optima = {m: [{"objective": o, "share": s} for o, s in every] for m, every in self.optima.items()}
        kept = self.model_dump(include={"law", "size_is", "budget", "quantities", "plans", "notes"})
        counts = {"runs": len(self.method), "identified": not self.untold, "method": self.choose_method()}
        return {**kept, **counts, "optima": optima}


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
"""Laws through many runs: optima by budget, scaling laws and frontiers, with intervals."""
