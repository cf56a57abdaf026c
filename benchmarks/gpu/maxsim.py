"""Exact MaxSim beside PyLate's exact ranking on a device, at two sizes; see bench_maxsim.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench_maxsim import measure_maxsim
from gpu.session import Session

SIZES = ((5000, 64, 4), (20_000, 200, 4), (20_000, 1000, 4))
"""Documents, queries, and queries that PyLate ranks."""


def iter_rows(session: Session) -> Iterator[dict[str, Any]]:
    """A row for each size, after a small one that warms up."""
    warm = (100, 4, 2)
    measure_maxsim(*warm, device=session.device)
    for size in session.choose(SIZES, (warm,)):
        row = measure_maxsim(*size, device=session.device)
        # The memory of the process, not of the device.
        yield {name: value for name, value in row.items() if not name.endswith("_mb")}
