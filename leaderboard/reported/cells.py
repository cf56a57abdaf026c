"""A printed number as a cell."""

from __future__ import annotations

import re
from decimal import Decimal

from leaderboard.reported.printed import Printed, last_place
from leaderboard.tables import Cell


def printed_cell(row: Printed) -> Cell:
    """A number with its error or its interval, and what is known of it."""
    if not row.value:
        return Cell(text="–", kind="away", note=_sentence(row.note))
    value = row.value if row.number is None else row.number
    said = [row.unit, row.note, _price(row), _odd(row)]
    return Cell(text=_text(row), value=value, kind="reported", note=_sentence(*said))


def _text(row: Printed) -> str:
    """The number with its error or its interval, as it was printed."""
    if not row.ci_low:
        return row.value
    value, low, high = (Decimal(text) for text in (row.value, row.ci_low, row.ci_high))
    if "plus/minus" in row.note and high - value == value - low:
        return f"{row.value} ± {high - value}"
    return f"{row.value} [{row.ci_low}, {row.ci_high}]"


def _price(row: Printed) -> str:
    found = re.search(r"\$[\d.]+/GPU-h$", row.setting)
    return found.group() if found else ""


def _odd(row: Printed) -> str:
    """Says that a number does not follow, and whether rounded parts may be why."""
    if row.follows != "no":
        return f"follows as: {row.recomputed_as}" if row.follows else ""
    said = f"does not follow from the printed numbers: {row.recomputed_as} is {row.recomputed}"
    apart = abs(Decimal(row.value) - Decimal(row.recomputed))
    return f"{said}, within what rounding of the parts can do" if apart <= last_place(row) else said


def _sentence(*parts: str) -> str:
    text = "; ".join(part for part in parts if part)
    return f"{text[0].upper()}{text[1:]}." if text else ""
