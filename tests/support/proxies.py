"""Small imports to fit proxies on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fakes import task
from harness.core.types import Column, Suite
from harness.storage import imported
from harness.storage.imported import Imported
from leaderboard.data.mteb_import import SCHEMA

Floats = NDArray[np.float64]


def suite(columns: int, *, inside: int = 1) -> Suite:
    """A suite of columns A, B, … whose last one has `inside` tasks."""
    names = [[chr(ord("A") + at)] for at in range(columns)]
    names[-1] = [f"{names[-1][0]}{part}" for part in range(inside)] if inside > 1 else names[-1]
    made = [tuple(task(name) for name in group) for group in names]
    listed = [Column(name=group[0].name[0], type="STS", tasks=group) for group in made]
    return Suite(name="made", title="MADE(up, v1)", columns=tuple(listed))


def put(
    folder: Path,
    of: Suite,
    scores: Floats,
    *,
    models: Sequence[str] = (),
    parents: Mapping[str, str] | None = None,
    seconds: Floats | None = None,
    entries: Mapping[int, Mapping[str, Any]] | None = None,
    flags: Mapping[tuple[int, str], str] | None = None,
) -> Imported:
    """Write an import of models with scores (models, tasks), NaN where a file is missing.

    Args:
        folder: The results folder.
        of: The suite whose tasks, splits and subsets the columns are.
        scores: Main scores, the same in every split and subset.
        models: Names; an organisation of its own for each where none are given.
        parents: What a model was adapted from.
        seconds: (models, tasks), a second for each where none are given.
        entries: What else an entry says, by row.
        flags: Of the rows of an entry's task.
    """
    names = models or [f"org{row}/model" for row in range(len(scores))]
    times = np.ones_like(scores) if seconds is None else seconds
    about: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    files: list[dict[str, Any]] = []
    for row, name in enumerate(names):
        more = (entries or {}).get(row, {})
        about.append({
            "folder": str(row), "model": name, "revision": "a" * 40, "experiment": "", "trust": "commit",
            "files": 1, "rows": 1, "digest": "", "card": True, "adapted_from": (parents or {}).get(name),
            **more,
        })  # fmt: skip
        for at, one in enumerate(of.tasks):
            if np.isnan(scores[row, at]):
                continue
            files.append({"entry": row, "task": one.name, "seconds": _told(times[row, at])})
            rows += [
                {"entry": row, "task": one.name, "split": split, "subset": subset,
                 "main_score": scores[row, at], "flag": (flags or {}).get((row, one.name), ""),
                 "data_revision": one.data.revision, "mteb_version": "2.1.0"}
                for split in one.splits for subset in one.subsets
            ]  # fmt: skip
    tables = {
        "entries": pa.Table.from_pylist(about, schema=SCHEMA),
        "files": pa.Table.from_pylist(files),
        "scores": pa.Table.from_pylist(rows),
    }
    home = imported.Imported.resolve_import_folder(folder, "mteb-results")
    with imported.Imported.lock(home):
        return imported.Imported.publish(home, tables, {"counts": {}}, {"parser": 2})


def _told(seconds: float) -> float | None:
    return None if np.isnan(seconds) else float(seconds)
