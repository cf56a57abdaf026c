"""What devices cost and can do at most, by a table in TOML, and what trainings took by their model.json."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from pydantic import Field, TypeAdapter, ValidationError

from harness.core.documents import DocumentPart
from harness.core.errors import UsageError
from harness.core.keys import ModelDocument
from harness.results.cost.compute import BackboneCompute


class DevicePrice(DocumentPart):
    """A line of the table of prices."""

    pattern: str
    """The device's name, with * for any text."""
    dollars: float = Field(ge=0, allow_inf_nan=False)
    """For an hour."""
    peak: float | None = Field(None, gt=0, allow_inf_nan=False)
    """The most operations a second; None where nobody says it."""
    source: str = ""


def read_prices(own: Path | None = None) -> tuple[DevicePrice, ...]:
    """The prices of the product, behind those of a file of the user's.

    Raises:
        UsageError: The file cannot be read, or is no such table.
    """
    path = own or Path(__file__).with_name("prices.toml")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        prices = TypeAdapter(tuple[DevicePrice, ...]).validate_python(content.get("devices"))
    except (OSError, ValueError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else None
        where = ".".join(map(str, first["loc"])) if first else ""
        reason = f"{where}: {first['msg']}" if first else error
        raise UsageError(
            f"{path} is no table of prices: {reason}.",
            hint='A line is [[devices]] with pattern = "*A100*80*", dollars = 2.5 and perhaps peak = 312e12.',
        ) from error
    return (*prices, *(read_prices() if own else ()))


def find_price(device: str, prices: Sequence[DevicePrice]) -> DevicePrice | None:
    """The price of a device by its name; None where the table has none.

    >>> [price.dollars for price in [find_price("NVIDIA A100-SXM4-80GB", read_prices())] if price]
    [2.5]
    """
    return next((one for one in prices if fnmatch(device.casefold(), one.pattern.casefold())), None)


def compute_price(device: str, hours: float, prices: Sequence[DevicePrice]) -> float | None:
    """The dollars for hours of a device; None where the table has no price."""
    price = find_price(device, prices)
    return None if price is None else price.dollars * hours


def compute_utilisation(parameters: float, rate: float, devices: int, peak: float) -> float:
    """The share of the peak that a training uses (MosaicBERT, eq. 3): 6 · N · T / (n · peak).

    Args:
        parameters: N, all of them.
        rate: T, tokens a second of all devices.
        devices: Their number n.
        peak: The operations a second of one.
    """
    return 6 * parameters * rate / (devices * peak)


@dataclass(frozen=True, kw_only=True)
class TrainingBill:
    """What a finished training of a model took in all of its steps.

    `operations` are as the training counted them, else 3 × those of a forward pass over its texts, each of
    the mean length: each token forwards, and twice as much backwards (Kaplan et al., 2020); None where their
    number is unknown, too. `utilisation` (by eq. 3) is None without a known peak, `dollars` without a price.
    """

    model: str
    key: str
    recipe: str
    tokens: int
    seconds: float
    device: str
    devices: int
    operations: float | None
    utilisation: float | None
    dollars: float | None

    @staticmethod
    def from_document(
        document: ModelDocument, compute: BackboneCompute, prices: Sequence[DevicePrice]
    ) -> TrainingBill | None:
        """The bill of a training; None where its model.json does not say what it took."""
        facts = document.training
        tokens, seconds = facts.get("tokens"), facts.get("seconds")
        if not tokens or not seconds:
            return None
        device, devices = facts.get("device", {}).get("name", ""), len(facts.get("devices") or "1")
        texts, price = facts.get("texts"), find_price(device, prices)
        peak = price.peak if price else None
        passes = 3 * texts * compute.count_operations(tokens / texts) if texts else None
        return TrainingBill(
            model=document.name, key=document.key, recipe=document.lineage.text, tokens=tokens,
            seconds=seconds, device=device, devices=devices, operations=facts.get("flops") or passes,
            utilisation=peak and compute_utilisation(compute.parameters, tokens / seconds, devices, peak),
            dollars=compute_price(device, devices * seconds / 3600, prices),
        )  # fmt: skip
