"""The papers' conventions: which raw metrics make a task's number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.record import Record

Raw = Mapping[tuple[str, str], float]
"""(split, metric) → value, of one task."""


@dataclass(frozen=True, kw_only=True)
class Convention:
    """How a paper puts a suite into one table: what a user names with --view.

    Attributes:
        name: What a user types.
        says: The convention, and where it is from.
        parts: Of each task, the raw metrics whose mean is its number: (split, metric).
    """

    name: str
    says: str
    parts: Mapping[str, tuple[tuple[str, str], ...]]

    def number(self, task: str, raw: Raw) -> float | None:
        """A task's number; None unless all that it is made of is there."""
        found = [raw.get(part) for part in self.parts[task]]
        known = [value for value in found if value is not None]
        return sum(known) / len(known) if len(known) == len(found) else None


def raw(record: Record) -> Raw:
    """The raw metrics of a record, a mean over subsets where there are several."""
    found: dict[tuple[str, str], float] = {}
    for split, subsets in record.scores.items():
        for name in dict.fromkeys(name for metrics in subsets.values() for name in metrics):
            values = [m[name] for m in subsets.values() if isinstance(m.get(name), int | float)]
            if values:
                found[split, name] = sum(values) / len(values)
    return found
