"""An import as a table: scores of complete models on a benchmark's tasks, model families, recorded times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import UsageError
from harness.core.types import Suite, Task
from harness.results.index import RecordIndex
from harness.results.results import MeasuredSuite, build_suite_views
from harness.results.scores import Aggregates
from harness.results.type_tasks import is_baseline
from harness.storage.imported import Imported

Cells = Mapping[tuple[int, str], Mapping[tuple[str, str], "float | None"]]
"""(entry, task) → (split, subset) → main score, None for a flagged score."""


def _read_score_cells(source: Imported, tasks: Sequence[Task]) -> tuple[Cells, Mapping[tuple[int, str], str]]:
    """The scores of some tasks, and the data revision of each by entry and task."""
    columns = ["entry", "task", "split", "subset", "main_score", "flag", "data_revision"]
    cells: dict[tuple[int, str], dict[tuple[str, str], float | None]] = {}
    revisions: dict[tuple[int, str], str] = {}
    for row in _filter_task_rows(source.load_table("scores", columns), tasks):
        score = None if row["flag"] else row["main_score"]
        cells.setdefault((row["entry"], row["task"]), {})[row["split"], row["subset"]] = score
        revisions[row["entry"], row["task"]] = row["data_revision"] or ""
    return cells, revisions


def _read_task_seconds(source: Imported, entries: int, tasks: Sequence[Task], cells: Cells) -> Floats:
    """The times of files with exactly the wanted splits and subsets, (entries, tasks); NaN without a time."""
    table = source.load_table("files", ["entry", "task", "seconds"])
    if "seconds" not in table.column_names:
        raise UsageError(
            "The import keeps no times: an older version made it.",
            hint=f"Import again: harness import {source.source} PATH",
        )
    files = _filter_task_rows(table, tasks)
    expected_cells = {
        task.name: {(split, s) for split in task.splits for s in task.subsets} for task in tasks
    }
    places = {task.name: place for place, task in enumerate(tasks)}
    often = Counter((file["entry"], file["task"]) for file in files)
    seconds = np.full((entries, len(tasks)), np.nan)
    for file in files:
        key = (file["entry"], file["task"])
        # Of several files of a task it is not known whether their times are parts or repeats.
        if file["seconds"] and often[key] == 1 and set(cells.get(key, ())) == expected_cells[file["task"]]:
            seconds[file["entry"], places[file["task"]]] = file["seconds"]
    return seconds


def _filter_task_rows(table: Any, tasks: Sequence[Task]) -> list[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    names = pa.array([task.name for task in tasks], pa.string())
    kept = pc.is_in(table["task"].cast(pa.string()), value_set=names)
    rows: list[dict[str, Any]] = table.filter(kept).to_pylist()
    return rows


def _assign_families(models: Sequence[str], parents: Mapping[str, str]) -> list[str]:
    """The family name of each model.

    Models that were adapted from the same root are one family. Models without a parent are one family by
    organisation, with everything that was adapted from them.

    >>> _assign_families(["a/one", "b/two", "b/three", "c/four"], {"b/two": "a/one", "c/four": "d/none"})
    ['a', 'a', 'b', 'd/none']
    """
    names = {*models, *parents}
    roots = [_find_root_model(model, parents) for model in models]
    return [root.partition("/")[0] if root in names else root for root in roots]


def _find_root_model(model: str, parents: Mapping[str, str]) -> str:
    """The last ancestor of a model; in a circle of ancestors, the first name by alphabet."""
    seen = [model]
    while (parent := parents.get(seen[-1])) is not None:
        if parent in seen:
            return min(seen[seen.index(parent) :])
        seen.append(parent)
    return seen[-1]


Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

TRUST = ("commit", "other", "external", "none")
"""Kinds of revisions, from the best known to the least known."""

LEAST_MODELS, LEAST_FAMILIES = 20, 10
"""Fewest complete models and families that a proxy can be fitted on."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreTable:
    """The models that have every task of a benchmark, each once.

    Attributes:
        models: The names of the models.
        families: The family of each model.
        tasks: The benchmark's tasks.
        scores: (models, tasks), main scores as shares of 1, means over the task's splits and subsets.
        weights: (tasks,), weights in the benchmark's mean over columns; they sum to 1.
        seconds: (entries, tasks), recorded times of all entries; NaN without a time of exactly that task.
        rows: (models,), the entry of each model.
        other_data: The number of models with a score on another revision of the data.
    """

    models: tuple[str, ...]
    families: tuple[str, ...]
    tasks: tuple[Task, ...]
    scores: Floats
    weights: Floats
    seconds: Floats
    rows: Ints
    other_data: int

    @cached_property
    def target(self) -> Floats:
        """(models,), the benchmark's mean of each model."""
        return np.asarray(self.scores @ self.weights)

    @cached_property
    def groups(self) -> Ints:
        """(models,), the number of each model's family."""
        return np.unique(self.families, return_inverse=True)[1].astype(np.int64)

    @staticmethod
    def read_score_table(source: Imported, suite: Suite) -> ScoreTable:
        """The complete models of an import on a suite; nothing is imputed.

        Of several entries of a model, that of the best known revision counts. Results of experiments are
        under another condition and left out. So are baselines, by their name: a random encoder says nothing
        of others.

        Raises:
            UsageError: There are too few complete models or families, or the import has no times.
            RecordError: Its tables cannot be read.
        """
        tasks = suite.tasks
        entries = source.load_table(
            "entries", ["model", "experiment", "trust", "adapted_from", "rows"]
        ).to_pylist()
        cells, revisions = _read_score_cells(source, tasks)
        model_rows = _select_complete_models(entries, cells, tasks)
        # Reversed, so that the first entry of a model decides.
        lines = {one["model"]: one["adapted_from"] for one in reversed(entries) if one["adapted_from"]}
        every = sorted({one["model"] for one in entries})
        # Families are those among all models of the import: a root may itself lack a task.
        family = dict(zip(every, _assign_families(every, lines), strict=True))
        _require_enough_models(suite, model_rows, {family[name] for name in model_rows})
        pinned = {task.name: task.data.revision for task in tasks}
        return ScoreTable(
            models=tuple(model_rows),
            families=tuple(family[name] for name in model_rows),
            tasks=tasks,
            scores=np.array(
                [
                    [_compute_task_mean(cells[row, task.name], task) for task in tasks]
                    for row in model_rows.values()
                ]
            ),
            weights=_compute_task_weights(suite),
            seconds=_read_task_seconds(source, len(entries), tasks, cells),
            rows=np.array(list(model_rows.values()), np.int64),
            other_data=sum(
                any(revisions[row, name] != pinned[name] for name in pinned) for row in model_rows.values()
            ),
        )


def read_column_scores(source: Imported, suite: Suite) -> Floats:
    """The scores of an import's complete models, (models, columns); a column of several tasks is their mean.

    Raises:
        UsageError: As of ScoreTable.
    """
    table = ScoreTable.read_score_table(source, suite)
    places = {task.name: place for place, task in enumerate(table.tasks)}
    columns = [[places[task.name] for task in column.tasks] for column in suite.columns]
    return np.stack([table.scores[:, some].mean(axis=1) for some in columns], axis=1)


def read_measured_scores(results: Path, cache: Path, suite: Suite) -> Floats:
    """The scores of the measured models under one of their settings each, (models, columns); NaN for none."""
    rows = [np.full((0, len(suite.columns)), np.nan)]
    for model in RecordIndex(results, cache).list_models():
        records = MeasuredSuite.load_records(model.artifact, results, cache).records
        views = build_suite_views(records, suite)
        scores = [Aggregates.aggregate_scores(suite, dict(view.scores)).columns for view in views]
        values = np.array([[*each.values()] for each in scores], float)
        # The settings under which most tasks were measured.
        rows += [values[np.isfinite(values).sum(axis=1).argmax()][None]] if len(values) else []
    return np.concatenate(rows)


def _require_enough_models(suite: Suite, models: Mapping[str, int], names: set[str]) -> None:
    if len(models) < LEAST_MODELS or len(names) < LEAST_FAMILIES:
        raise UsageError(
            f"{len(models)} imported models of {len(names)} families have every task of {suite.title}; "
            f"a proxy needs {LEAST_MODELS} models of {LEAST_FAMILIES} families.",
            hint="Import more results, or choose another --target (`harness list benchmarks`).",
        )


def _select_complete_models(
    entries: Sequence[Mapping[str, Any]], cells: Cells, tasks: Sequence[Task]
) -> dict[str, int]:
    """The entry of each complete model by name, sorted."""
    best: dict[str, int] = {}
    for row, entry in enumerate(entries):
        if (
            entry["experiment"]
            or is_baseline(entry["model"])
            or any(_compute_task_mean(cells.get((row, t.name), {}), t) is None for t in tasks)
        ):
            continue
        former = best.get(entry["model"])
        if former is None or _rank_entry(entry) > _rank_entry(entries[former]):
            best[entry["model"]] = row
    return dict(sorted(best.items()))


def _rank_entry(entry: Mapping[str, Any]) -> tuple[int, int]:
    trust = entry["trust"]
    return (-TRUST.index(trust) if trust in TRUST else -len(TRUST), entry["rows"])


def _compute_task_mean(cells: Mapping[tuple[str, str], float | None], task: Task) -> float | None:
    values = [cells.get((split, subset)) for split in task.splits for subset in task.subsets]
    scores = [value for value in values if value is not None]
    return sum(scores) / len(scores) if scores and len(scores) == len(values) else None


def _compute_task_weights(suite: Suite) -> Floats:
    places = {task.name: place for place, task in enumerate(suite.tasks)}
    weights = np.zeros(len(places))
    for column in suite.columns:
        for task in column.tasks:
            # The mean is over columns, and a column of several tasks is their mean.
            weights[places[task.name]] += 1 / len(column.tasks) / len(suite.columns)
    return weights
