"""What measured entries took on a suite: seconds, tokens and the device, from their records."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from sqlalchemy import select

from leaderboard.database import RESULTS
from leaderboard.grid import Grid
from leaderboard.queries import Queries


@dataclass(kw_only=True)
class Work:
    """What an entry took on one device.

    Attributes:
        tasks: Tasks of the suite that ran there.
        seconds: Of all their steps; for a trained task of every run behind it.
        tokens: Tokens that were encoded.
        encoding: Seconds of encoding them.
    """

    tasks: int = 0
    seconds: float = 0.0
    tokens: float = 0.0
    encoding: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Works:
    """The work of a grid's measured entries: row → device → work."""

    rows: Mapping[int, Mapping[str, Work]] = field(default_factory=dict)

    def devices(self) -> list[str]:
        """The devices, those with the most entries first."""
        count = Counter(device for found in self.rows.values() for device in found)
        return sorted(count, key=lambda device: (-count[device], device))

    def throughput(self, device: str) -> dict[int, float]:
        """Tokens per second of each row on a device."""
        found = {row: works[device] for row, works in self.rows.items() if device in works}
        return {row: w.tokens / w.encoding for row, w in found.items() if w.tokens and w.encoding}

    def cost(self, device: str, price: float) -> dict[int, float]:
        """The price of each row's seconds, where all that is known of it ran on this device."""
        return {
            row: works[device].seconds * price / 3600
            for row, works in self.rows.items()
            if set(works) == {device} and works[device].seconds
        }


def works(queries: Queries, grid: Grid) -> Works:
    """What the measured entries of a grid took, in one look at their records."""
    rows = {entry.id: row for row, entry in enumerate(grid.entries) if entry.origin == "measured"}
    names = [task.name for task in grid.listed.suite.tasks]
    wanted = select(RESULTS.c.entry, RESULTS.c.document).where(
        RESULTS.c.entry.in_(list(rows)), RESULTS.c.task.in_(names), RESULTS.c.status == "done"
    )
    found: dict[int, dict[str, Work]] = {}
    with queries.reading() as connection:
        for entry, document in connection.execute(wanted) if rows else ():
            said = json.loads(document).get("provenance", {})  # an object: the record's schema says so
            work = found.setdefault(rows[entry], {}).setdefault(_device(said), Work())
            _add(work, said)
    return Works(rows=found)


def _device(said: Mapping[str, Any]) -> str:
    device = said.get("device")
    return str(device.get("name") or device.get("kind")) if isinstance(device, dict) else "unknown device"


def _add(work: Work, said: Mapping[str, Any]) -> None:
    steps = said.get("seconds")
    seconds = {k: v for k, v in steps.items() if _amount(v)} if isinstance(steps, Mapping) else {}
    tokens = said.get("tokens_encoded")
    work.tasks += 1
    work.seconds += sum(seconds.values())
    if _amount(tokens) and seconds.get("encode"):
        work.tokens += tokens
        work.encoding += seconds["encode"]


def _amount(value: Any) -> TypeGuard[float]:
    """Whether this is a number of something; records of any origin may say what they like."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
