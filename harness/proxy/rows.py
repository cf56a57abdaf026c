"""The rows of an import that belong to some tasks: scores, and recorded times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harness.errors import UsageError
from harness.imported import Imported
from harness.proxy.ridge import Floats
from harness.types import Task

Cells = Mapping[tuple[int, str], Mapping[tuple[str, str], "float | None"]]
"""(entry, task) → (split, subset) → main score, None where it is no sane one."""


def cells_of(source: Imported, tasks: Sequence[Task]) -> tuple[Cells, Mapping[tuple[int, str], str]]:
    """The scores of some tasks, and by entry and task the revision of the data that they are on."""
    columns = ["entry", "task", "split", "subset", "main_score", "flag", "data_revision"]
    cells: dict[tuple[int, str], dict[tuple[str, str], float | None]] = {}
    revisions: dict[tuple[int, str], str] = {}
    for row in _of_tasks(source.scores(columns), tasks):
        score = None if row["flag"] else row["main_score"]
        cells.setdefault((row["entry"], row["task"]), {})[row["split"], row["subset"]] = score
        revisions[row["entry"], row["task"]] = row["data_revision"] or ""
    return cells, revisions


def seconds_of(source: Imported, entries: int, tasks: Sequence[Task], cells: Cells) -> Floats:
    """Times of files that hold what is asked for and nothing else, (entries, tasks); NaN without one.

    Raises:
        UsageError: The import keeps no times.
    """
    table = source.files(["entry", "task", "seconds"])
    if "seconds" not in table.column_names:
        raise UsageError(
            "The import keeps no times: an older version made it.",
            hint=f"Import again: harness import {source.source} PATH",
        )
    files = _of_tasks(table, tasks)
    wanted = {task.name: {(split, s) for split in task.splits for s in task.subsets} for task in tasks}
    places = {task.name: place for place, task in enumerate(tasks)}
    often = Counter((file["entry"], file["task"]) for file in files)
    seconds = np.full((entries, len(tasks)), np.nan)
    for file in files:
        key = (file["entry"], file["task"])
        if file["seconds"] and often[key] == 1 and set(cells.get(key, ())) == wanted[file["task"]]:
            seconds[file["entry"], places[file["task"]]] = file["seconds"]
    return seconds


def _of_tasks(table: Any, tasks: Sequence[Task]) -> list[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    names = pa.array([task.name for task in tasks], pa.string())
    kept = pc.is_in(table["task"].cast(pa.string()), value_set=names)
    found: list[dict[str, Any]] = table.filter(kept).to_pylist()
    return found
