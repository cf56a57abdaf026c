"""The records of both sides of a check, as far as they are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.opened import Opened, opened
from harness.recipe import RecipeOptions
from harness.regress.baseline import Run
from harness.regress.scored import Scored, find
from harness.store import Store
from harness.wanted import Cell, Subject, wanted

if TYPE_CHECKING:
    from harness.regress.reading import Parts
    from harness.regress.same import Identity
    from harness.request import Request
    from harness.types import Suite

SEEDED = frozenset({"Classification", "MultilabelClassification", "Regression", "Clustering"})
"""Types whose tasks draw texts by chance: another seed gives another score of the same model."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side of a check.

    Attributes:
        runs: What stands on it: one model, or a baseline's repeats of one.
        home: The results folder where its records are looked for.
        scored: By task: the records that are there, seed by seed and model by model.
        missing: By task: how many records are not there.
    """

    runs: tuple[Run, ...]
    home: Path
    scored: Mapping[str, tuple[Scored, ...]]
    missing: Mapping[str, int]

    def by_model(self, task: str) -> list[list[Scored]]:
        """The records of a task, those of each model together."""
        found: dict[str, list[Scored]] = {}
        for one in self.scored[task]:
            found.setdefault(str(one.model.get("artifact")), []).append(one)
        return list(found.values())

    @property
    def complete(self) -> bool:
        """Whether every record is there."""
        return not any(self.missing.values())


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is wanted of one model: a request for each seed.

    Attributes:
        requests: Each with this one model; the second and further ones only for seeded tasks.
        opened: What the first of them came out as.
        keys: By task: the EvaluationKey of each seed.
        identities: By task: what each of these scores depends on.
    """

    requests: tuple[Request, ...]
    opened: Opened
    keys: Mapping[str, tuple[str, ...]]
    identities: Mapping[str, tuple[Identity, ...]]

    @property
    def subject(self) -> Subject:
        """The model."""
        return self.opened.asked[0]

    @property
    def run(self) -> Run:
        """The model as a baseline has it."""
        artifact = self.subject.artifact
        return Run(
            model=artifact.name,
            source=artifact.source,
            artifact=artifact.key,
            folder=artifact.slug,
            revision=artifact.revision,
            keys=self.keys,
        )


def ask(request: Request, model: str, seeds: int) -> Asked:
    """The requests for a model, and the keys of all its scores.

    Tasks that a recipe trains for have their seeds within one record; of finished models only those
    tasks are evaluated again whose score another seed changes.

    Raises:
        UsageError: A name or a setting that cannot be used.
    """
    first = replace(request, models=(model,))
    if seeds > 1 and first.recipe:
        first = replace(first, recipe_options=replace(first.recipe_options, fresh_seeds=seeds))
    found = opened(first)
    requests, cells = [first], _cells(found)
    every = {task: [cell] for task, cell in cells.items()}
    again = _seeded(found.suites)
    for seed in range(1, seeds) if again else ():
        more = replace(
            first,
            settings=replace(first.settings, seed=first.settings.seed + seed),
            options=replace(first.options, tasks=again),
            recipe="",
            recipe_options=RecipeOptions(),
        )
        requests.append(more)
        for task, cell in _cells(opened(more)).items():
            every[task].append(cell)
    return Asked(
        requests=tuple(requests),
        opened=found,
        keys={task: tuple(cell.key for cell in cells) for task, cells in every.items()},
        identities={task: tuple(cell.identity for cell in cells) for task, cells in every.items()},
    )


def _seeded(suites: Sequence[Suite]) -> tuple[str, ...]:
    """The columns that another seed changes."""
    columns = [column for suite in suites for column in suite.columns]
    return tuple(c.name for c in columns if any(t.output != "label" and t.type in SEEDED for t in c.tasks))


def _cells(found: Opened) -> dict[str, Cell]:
    """The score of every task that the one model of a request wants.

    Raises:
        UsageError: Two suites have different tasks of one name.
    """
    asked = wanted(
        found.subjects,
        found.suites,
        settings=found.data,
        seed=found.request.settings.seed,
        recipe=found.recipe,
    )
    by_key = {cell.key: cell for cell in asked.cells}
    cells: dict[str, Cell] = {}
    for (_, task), key in asked.keys.items():
        if cells.setdefault(task.name, by_key[key]).key != key:
            raise UsageError(
                f"Two of the suites have a task {task.name}, on other splits, languages or data.",
                hint="Check these suites one at a time.",
            )
    return cells


def side(runs: Sequence[Run], found: Opened, results: Path) -> Side:
    """What is there of one side.

    Args:
        runs: Its models with the keys of their records.
        found: The suites, and how their tasks are trained for.
        results: The results folder of the records.

    Raises:
        RecordError: A record is of a newer schema, or cannot be read.
    """
    store = Store(results)
    scored: dict[str, tuple[Scored, ...]] = {}
    missing: dict[str, int] = {}
    for task, parts in _parts(found).items():
        wanted_ones = [(run, key) for run in runs for key in run.keys.get(task, ())]
        there = [
            find(store, run.folder, task, key, parts=parts, cache=found.cache) for run, key in wanted_ones
        ]
        scored[task] = tuple(one for one in there if one is not None)
        missing[task] = there.count(None) + (not wanted_ones)
    return Side(runs=tuple(runs), home=results, scored=scored, missing=missing)


def _parts(found: Opened) -> dict[str, Parts]:
    """What the number of every task is made of, where a paper's convention says so."""
    view = found.recipe.convention if found.recipe is not None else ""
    parts: dict[str, Parts] = {}
    for suite in found.suites:
        convention = suite.conventions.get(view)
        for task in suite.tasks:
            known = task.output == "label" and convention is not None
            parts[task.name] = convention.parts[task.name] if known and convention else ()
    return parts
