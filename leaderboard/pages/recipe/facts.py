"""What a recipe of the catalog is: its words, its settings, its grids. Nothing here loads torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from math import prod
from typing import Any

from harness import catalog
from harness.data.training import TrainingData
from harness.recipe import ModelRecipe, RecipeEntry, TaskRecipe
from leaderboard.reported.printed import Paper

AnyRecipe = TaskRecipe | ModelRecipe
"""A recipe of either kind."""

APART = ("name", "source", "view", "grids", "assumed", "variants")
"""Parts of a protocol that have a place of their own on the page."""


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """A recipe's protocol as plain values, where its object shows one; else all of it is empty.

    Attributes:
        runs: Of all tasks.
        settings: Name and value.
        grids: By task, the values of each setting that is tried.
        assumed: What no source says, in sentences.
    """

    runs: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    grids: Mapping[str, Mapping[str, tuple[Any, ...]]] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()


def opened(name: str, variant: str = "") -> AnyRecipe:
    """A recipe with its own defaults."""
    return catalog.open_recipe(f"{name}:{variant}" if variant else name)


def convention_of(recipe: AnyRecipe) -> str:
    """The name of the recipe's convention for a task's number; empty for a recipe that makes models."""
    return str(getattr(recipe, "convention", ""))


def protocol_of(entry: RecipeEntry, variant: str, recipe: AnyRecipe) -> Protocol:
    """The protocol behind a recipe in a variant; of one that makes models, its settings."""
    found = getattr(recipe, "protocol", None)
    if entry.kind == "model":
        return _of_settings(entry.settings.get(variant), recipe)
    if not is_dataclass(found):
        return Protocol()
    grids: Mapping[str, Any] = getattr(found, "grids", {})
    return Protocol(
        runs=getattr(found, "runs", None),
        settings=dict(_flat(found)),
        grids={task: {f.name: getattr(grid, f.name) for f in fields(grid)} for task, grid in grids.items()},
        assumed=tuple(getattr(found, "assumed", ())),
    )


def _of_settings(settings: Any, recipe: AnyRecipe) -> Protocol:
    """The settings of a recipe that makes models, and what it takes to be so; its object may say that."""
    if not is_dataclass(settings):
        return Protocol()
    assumed = getattr(recipe, "assumed", ())
    return Protocol(
        settings={one.name: words(getattr(settings, one.name)) for one in fields(settings)},
        assumed=(
            *(assumed(settings) if callable(assumed) else assumed),
            *getattr(recipe, "assumed_data", ()),
        ),
    )


def data_of(recipe: AnyRecipe) -> list[tuple[TrainingData, str]]:
    """The data sets of a recipe that makes models, each with its use."""
    trained = [(one, "training") for one in getattr(recipe, "data", ())]
    return [*trained, *((one, "choosing a checkpoint") for one in getattr(recipe, "selection", ()))]


def runs(grid: Mapping[str, tuple[Any, ...]]) -> int:
    """How many runs a grid is: all values against all."""
    return prod(len(values) for values in grid.values())


def words(value: Any) -> str:
    """A setting's value in words.

    >>> words(1e-05), words((0.9, 0.98)), words(None), words(True), words({"RTE": 100})
    ('1e-05', '0.9, 0.98', '–', 'yes', 'RTE 100')
    """
    if value is None or value in ((), {}, ""):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {words(one)}" for key, one in value.items())
    if isinstance(value, tuple | list):
        return ", ".join(words(one) for one in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _flat(part: Any, above: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for one in fields(part):
        value = getattr(part, one.name)
        name = f"{above}{one.name.replace('_', ' ')}"
        if not above and one.name in APART:
            continue
        if is_dataclass(value):
            found += _flat(value, "" if name == "training" else f"{name}: ")
        else:
            found.append((name, words(value)))
    return found


def recipes_of(paper: Paper) -> list[str]:
    """The recipes that are made after a paper: their sources begin with its name."""
    return [name for name in catalog.recipes() if _is_of(opened(name), paper)]


def paper_of(recipe: AnyRecipe, papers: Mapping[str, Paper]) -> Paper | None:
    """The paper that a recipe is made after, where its tables are at hand."""
    return next((paper for paper in papers.values() if _is_of(recipe, paper)), None)


def _is_of(recipe: AnyRecipe, paper: Paper) -> bool:
    return recipe.source.startswith(f"{paper.name},")
