"""What is kept beside the tables of a snapshot, for histories: ranks; and queries over kept snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from pyarrow import parquet

from leaderboard.data.queries import Queries
from leaderboard.data.snapshot import Snapshot
from leaderboard.data.tables import SETTINGS

_STANDINGS = pa.schema(
    {"suite": pa.string(), "name": pa.string(), "rank": pa.int32(), "ranked": pa.int32(),
     "mean": pa.float64()}
)  # fmt: skip
"""The ranks of a kept snapshot: `name` is the lasting one of a model, whatever its checkpoint."""


def locate_standings(folder: Path) -> Path:
    """The file of the ranks in the folder of a kept snapshot."""
    return folder / "standings.parquet"


def write_standings(queries: Queries, folder: Path) -> None:
    """Write the ranks on every board into the folder of a kept snapshot."""
    rows = []
    for listed in queries.suites.values():
        if listed.main and listed.slug in queries.entries_of_suites:
            scores = queries.load_suite_scores(listed)
            places = scores.compute_ranks("tasks", "model").place
            rows += [
                {"suite": listed.suite.title, "name": entry.typed_names[0], "rank": int(place),
                 "ranked": int((places > 0).sum()), "mean": float(mean)}
                for entry, place, mean in zip(scores.entries, places, scores.over_tasks.values, strict=True)
                if place
            ]  # fmt: skip
    parquet.write_table(pa.Table.from_pylist(rows, schema=_STANDINGS), locate_standings(folder))


def query_kept(sql: str, snapshots: Mapping[str, Snapshot], *values: Any) -> list[tuple[Any, ...]]:
    """Rows of a query over files of kept snapshots, each file's name replaced by its snapshot."""
    if not snapshots:
        return []
    with duckdb.connect(config={**SETTINGS, "threads": 1}) as connection:
        rows = connection.execute(sql, [list(snapshots), *values]).fetchall()
    return [(snapshots[path], *rest) for path, *rest in rows]
