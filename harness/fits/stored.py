"""Fits as documents in a results folder, with the runs that they are of, as the site shows them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from harness.core.documents import DocumentFolder, DocumentKind, DocumentPart
from harness.fits.estimate import Quantity
from harness.fits.fitting import Fit, LawName
from harness.fits.runs import Runs, Size

COLUMNS = ("size", "tokens", "flops", "loss")


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
    """The runs' size, tokens, flops, loss and further numbers, an item for each run as in `method`."""
    quantities: tuple[Quantity, ...]
    plans: Mapping[str, Mapping[str, Quantity]] = {}
    notes: tuple[str, ...] = ()

    @classmethod
    def from_fit(cls, name: str, fit: Fit, runs: Runs, budget: float | None) -> StoredFit:
        """The document of a fit."""
        columns = {column: getattr(runs, column) for column in COLUMNS} | dict(runs.others)
        return cls(
            name=name,
            when=datetime.now(UTC).isoformat(timespec="seconds"),
            law=fit.law,
            size_is=runs.counts,
            budget=budget,
            method=runs.method,
            columns={column: tuple(values.tolist()) for column, values in columns.items()},
            quantities=tuple(fit.quantities),
            plans=fit.plans,
            notes=tuple(fit.notes),
        )

    def find_values(self, method: str) -> dict[str, float]:
        """The quantities of a method that have a value, by name."""
        return {q.name: q.value for q in self.quantities if q.method == method and q.value is not None}


def _find_problem(fit: StoredFit) -> str:
    lengths = {len(fit.method), *map(len, fit.columns.values())}
    missing = [column for column in COLUMNS if column not in fit.columns]
    if missing or len(lengths) > 1:
        return f"it has no column {missing[0]}" if missing else "its columns have several lengths"
    return ""


FITS = DocumentFolder(
    kind=DocumentKind(name="fit", type=StoredFit, find_problem=_find_problem),
    folder="fits",
    then="Give another --out.",
)
