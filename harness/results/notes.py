"""What a user states of a model's pretraining: documents beside the records, apart from what was measured."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from pydantic import Field

from harness.core.documents import DocumentFolder, DocumentKind, DocumentPart
from harness.results.cost.price import DevicePrice, compute_price, find_price

FACTOR = 3.0
"""How far two statements of the same operations may be apart: counts differ in what they leave out."""

_UNITS = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


class CountedPart(DocumentPart):
    """What the files of the model said when the note was written."""

    parameters: int
    without_embeddings: int
    operations: float
    """Of a forward pass over 512 tokens, or over as many as the model takes."""
    token_flops: float
    """F_N at the length of the pretraining."""


class ComputeNote(DocumentPart):
    """What is stated of the pretraining of a model, found by the hash of its weights."""

    model: str
    weights: str
    artifact: str
    when: str
    tokens: float | None = Field(None, gt=0, allow_inf_nan=False)
    length: int = Field(gt=0)
    """The tokens of a sequence."""
    flops: float | None = Field(None, gt=0, allow_inf_nan=False)
    hours: float | None = Field(None, gt=0, allow_inf_nan=False)
    devices: int = Field(1, gt=0)
    device: str = ""
    masking: float | None = Field(None, gt=0, lt=1)
    """The share of masked tokens."""
    counted: CountedPart

    @property
    def operations(self) -> float | None:
        """Those of the pretraining: as stated, else C = F_N · D of the stated tokens; None without both."""
        return self.flops or (self.counted.token_flops * self.tokens if self.tokens else None)

    def compute_dollars(self, prices: Sequence[DevicePrice]) -> float | None:
        """The price of the stated hours; None without hours or a price."""
        return compute_price(self.device, self.hours * self.devices, prices) if self.hours else None

    def list_statements(self, prices: Sequence[DevicePrice]) -> list[str]:
        """What is stated, and what follows from it."""
        dollars, way = self.compute_dollars(prices), "as stated" if self.flops else "F_N · D"
        facts = {
            f"{format_amount(self.tokens or 0)} tokens in sequences of {self.length:,}": self.tokens,
            f"{format_amount(self.operations or 0)} operations ({way})": self.operations,
            f"{self.hours or 0:,g} h on {self.devices} × {self.device or 'a device'}": self.hours,
            f"${dollars or 0:,.2f}": dollars,
            f"{self.masking or 0:.3g} of the tokens masked": self.masking,
        }
        return [text for text, value in facts.items() if value]

    def list_contradictions(self, prices: Sequence[DevicePrice]) -> Iterator[str]:
        """What cannot be true of the statements together, in sentences."""
        token_flops, operations = self.counted.token_flops, self.operations
        computed = token_flops * (self.tokens or 0)
        is_near = computed / FACTOR <= (self.flops or computed) <= computed * FACTOR
        if self.flops and computed and not is_near:
            yield (
                f"{format_amount(self.tokens or 0)} tokens make {format_amount(computed)} operations "
                f"(F_N · D with F_N = {format_amount(token_flops)} at {self.length:,} tokens), and "
                f"{format_amount(self.flops)} are stated."
            )
        price = find_price(self.device, prices)
        rate = operations / (self.hours * 3600 * self.devices) if operations and self.hours else 0.0
        if price and price.peak and rate > price.peak:
            yield (
                f"{format_amount(operations or 0)} operations in {self.hours:,g} h on {self.devices} × "
                f"{self.device} are {format_amount(rate)} a second for each, and its peak is "
                f"{format_amount(price.peak)}."
            )


NOTES = DocumentFolder(
    kind=DocumentKind(name="note", type=ComputeNote), folder="notes", stem=lambda note: note.weights
)


def parse_amount(text: str) -> float | None:
    """A number above 0 as people write it; None for another text.

    >>> parse_amount("2.1T"), parse_amount("2.9e21"), parse_amount("12"), parse_amount("0")
    (2100000000000.0, 2.9e+21, 12.0, None)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?) ?([KMBT]?)", text.strip(), re.IGNORECASE)
    number = float(match[1]) * _UNITS[match[2].upper()] if match else 0.0
    return number if 0 < number < math.inf else None


def format_amount(number: float) -> str:
    """A number with its unit, or from a quadrillion on as a power of ten.

    >>> format_amount(2.1e12), format_amount(97.4e9), format_amount(2.9e21), format_amount(312)
    ('2.1T', '97.4B', '2.9e21', '312')
    """
    if number >= 1e15:
        return f"{number:.4g}".replace("e+", "e")
    unit = next((unit for unit, size in reversed(_UNITS.items()) if number >= size), "")
    return f"{number / _UNITS[unit]:.4g}{unit}"
