"""Runs as the jobs behind them find them on their desk."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from harness.desk import Desk

if TYPE_CHECKING:
    from harness.record import Record


def records_in(desk: Desk, keys: Sequence[str]) -> list[Record]:
    """The records of runs that are this job's inputs."""
    from harness.record import parse

    return [parse(desk.inputs[key]["record"].decode(), where=f"the run {key[:12]}") for key in keys]


def examples_in(desk: Desk, key: str) -> dict[str, list[Any]]:
    """The per-example columns of a run that is this job's input."""
    import pyarrow.parquet as pq

    from harness.record import EXAMPLE_COLUMNS

    table = pq.read_table(io.BytesIO(desk.inputs[key]["examples"]))
    return {name: table[name].to_pylist() for name in EXAMPLE_COLUMNS}
