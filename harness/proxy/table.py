"""Reading an import as a table: complete models by the tasks of a benchmark, and recorded times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from harness.errors import UsageError
from harness.imported import Imported
from harness.proxy.families import families
from harness.proxy.ridge import Floats, Ints
from harness.proxy.rows import Cells, cells_of, seconds_of
from harness.types import Suite, Task

TRUST = ("commit", "other", "external", "none")
"""Kinds of revisions, from the best known model to the least known."""

LEAST_MODELS, LEAST_FAMILIES = 20, 10
"""Fewer complete models or families than that say nothing of others."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """The models that have every task of a benchmark, each once.

    Attributes:
        models: Their names.
        families: Of each, a name.
        tasks: The benchmark's tasks.
        scores: (models, tasks), main scores as shares of 1, means over the task's splits and subsets.
        weights: (tasks,), what each counts in the benchmark's mean over columns; they add up to 1.
        seconds: (entries, tasks), recorded times of all entries; NaN where none is told of just that.
        rows: (models,), the entry of each.
        other_data: How many of the models have a score on another revision of the data.
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
        """The benchmark's mean of each model, (models,)."""
        return np.asarray(self.scores @ self.weights)

    @cached_property
    def groups(self) -> Ints:
        """The number of each model's family, (models,)."""
        return np.unique(self.families, return_inverse=True)[1].astype(np.int64)


def read(source: Imported, suite: Suite) -> Table:
    """The complete models of an import on a suite; nothing is imputed.

    Of several entries of a model the best known revision stands for it; results of an experiment are
    another treatment and left out. So are baselines, by their name: a random encoder is no guide to others.

    Raises:
        UsageError: There are too few complete models or families, or the import has no times.
        RecordError: Its tables cannot be read.
    """
    tasks = suite.tasks
    entries = source.entries(["model", "experiment", "trust", "adapted_from", "rows"]).to_pylist()
    cells, revisions = cells_of(source, tasks)
    found = _complete(entries, cells, tasks)
    lines = {one["model"]: one["adapted_from"] for one in reversed(entries) if one["adapted_from"]}
    every = sorted({one["model"] for one in entries})
    family = dict(zip(every, families(every, lines), strict=True))
    _enough(suite, found, {family[name] for name in found})
    pinned = {task.name: task.data.revision for task in tasks}
    return Table(
        models=tuple(found),
        families=tuple(family[name] for name in found),
        tasks=tasks,
        scores=np.array([[_mean(cells[row, task.name], task) for task in tasks] for row in found.values()]),
        weights=_weights(suite),
        seconds=seconds_of(source, len(entries), tasks, cells),
        rows=np.array(list(found.values()), np.int64),
        other_data=sum(
            any(revisions[row, name] != pinned[name] for name in pinned) for row in found.values()
        ),
    )


def _enough(suite: Suite, found: Mapping[str, int], names: set[str]) -> None:
    if len(found) < LEAST_MODELS or len(names) < LEAST_FAMILIES:
        raise UsageError(
            f"{len(found)} imported models of {len(names)} families have every task of {suite.title}; "
            f"a proxy needs {LEAST_MODELS} of {LEAST_FAMILIES}.",
            hint="Import more results, or choose another --target (`harness list benchmarks`).",
        )


def _complete(entries: Sequence[Mapping[str, Any]], cells: Cells, tasks: Sequence[Task]) -> dict[str, int]:
    """The entry that stands for each complete model, by its name, sorted."""
    best: dict[str, int] = {}
    for row, entry in enumerate(entries):
        if (
            entry["experiment"]
            or _baseline(entry["model"])
            or any(_mean(cells.get((row, t.name), {}), t) is None for t in tasks)
        ):
            continue
        former = best.get(entry["model"])
        if former is None or _known(entry) > _known(entries[former]):
            best[entry["model"]] = row
    return dict(sorted(best.items()))


def _baseline(model: str) -> bool:
    """Whether a model is called a baseline: `baseline/…`, `mteb/baseline-…`."""
    return any(part == "baseline" or part.startswith("baseline-") for part in model.lower().split("/"))


def _known(entry: Mapping[str, Any]) -> tuple[int, int]:
    trust = entry["trust"]
    return (-TRUST.index(trust) if trust in TRUST else -len(TRUST), entry["rows"])


def _mean(found: Mapping[tuple[str, str], float | None], task: Task) -> float | None:
    values = [found.get((split, subset)) for split in task.splits for subset in task.subsets]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _weights(suite: Suite) -> Floats:
    places = {task.name: place for place, task in enumerate(suite.tasks)}
    weights = np.zeros(len(places))
    for column in suite.columns:
        for task in column.tasks:
            weights[places[task.name]] += 1 / len(column.tasks) / len(suite.columns)
    return weights
