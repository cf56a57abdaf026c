"""The catalog of backbones, recipes and suites, found in folders and through entry points.

Each file in `harness/encoder/backbones/`, `finetune/recipes/` or `suites/` is one entry; other distributions
add entries through the entry points `harness.backbones`, `harness.recipes` and `harness.suites`. A name is
first looked up in the file of that name, so that no other file is imported.
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from harness.core.arguments import split_names, with_settings
from harness.core.errors import UsageError, unknown
from harness.core.registry import Registry
from harness.core.types import Column, Suite, SuiteEntry, SuiteOptions
from harness.jobs.recipe import ModelRecipe, RecipeEntry, TaskRecipe

SUITES = Registry(kind=SuiteEntry, package="suites", attribute="SUITE", group="harness.suites")
RECIPES = Registry(kind=RecipeEntry, package="finetune.recipes", attribute="RECIPE", group="harness.recipes")


@functools.cache
def suites() -> dict[str, SuiteEntry]:
    """Every suite by name."""
    return SUITES.all()


@functools.cache
def recipes() -> dict[str, RecipeEntry]:
    """Every recipe by name."""
    return RECIPES.all()


def open_suite(text: str, options: SuiteOptions | None = None) -> Suite:
    """The suite called `name` or `name:argument`.

    Raises:
        UsageError: There is no such suite, or its argument is missing or wrong.
    """
    name, _, argument = text.partition(":")
    entry = SUITES.named(name) or suites().get(name)
    if entry is None:
        raise SUITES.with_broken(_no_suite(text))
    if argument and not entry.argument:
        _refuse_tasks(entry, argument)
        raise UsageError(f"The suite {name!r} takes no argument.", hint=f"Type --suite {name}.")
    if not argument and not entry.alone:
        raise UsageError(
            f"The suite {name!r} needs an argument.", hint=f"Type --suite {name}:<{entry.argument}>."
        )
    try:
        return entry.open(argument, options or SuiteOptions())
    except UsageError:
        _refuse_tasks(entry, argument)
        raise


def _refuse_tasks(entry: SuiteEntry, argument: str) -> None:
    """Say how tasks of a suite are chosen, where they are given as the suite's argument."""
    asked = split_names(argument)
    if not asked or not entry.alone or entry.offers():
        return
    columns = entry.open("", SuiteOptions()).columns
    if all(any(_is_column(column, name) for column in columns) for name in asked):
        raise UsageError(
            f"The suite {entry.name} takes no task behind a colon.",
            hint=f"Type --suite {entry.name} --tasks {shlex.quote(','.join(asked))}.",
        )


def _no_suite(text: str) -> UsageError:
    offered = [f"{e.name}:{o.name}" for e in suites().values() for o in e.offers() if o.name == text]
    if offered:
        return UsageError(f"No suite is called {text!r}.", hint=f"Did you mean {offered[0]}?")
    return unknown("suite", text, suites(), then="`harness list suites` shows all.")


def open_suites(names: Sequence[str], options: SuiteOptions | None = None) -> list[Suite]:
    """The suites of these names, in order, narrowed to the requested columns.

    Raises:
        UsageError: A name is that of no suite, or of no column.
    """
    suites = [open_suite(name, options) for name in names]
    wanted = options.tasks if options else ()
    every = [column for suite in suites for column in suite.columns]
    for name in wanted:
        if not any(_is_column(column, name) for column in every):
            of = " or ".join(names)
            columns = [column.name for column in every]
            types = [f"{_TYPE}{column.type}" for column in every]
            known = [*dict.fromkeys(types)] if name.startswith(_TYPE) else columns
            then = f"Names of tasks are those of a suite's table; {_TYPE}STS are all of a type."
            raise unknown(f"task of {of}", name, known, then=then)
    return [_only(suite, wanted) for suite in suites] if wanted else suites


_TYPE = "type:"
"""What a user types before a type of tasks."""


def _is_column(column: Column, name: str) -> bool:
    """Whether a column has this name, or its only task has, or it is of the type in `type:STS`."""
    if name.startswith(_TYPE):
        return column.type.lower() == name.removeprefix(_TYPE).lower()
    return column.name == name or [task.name for task in column.tasks] == [name]


def _only(suite: Suite, wanted: Sequence[str]) -> Suite:
    """The suite with tasks in the wanted columns only."""
    found = tuple(c.name for c in suite.columns if any(_is_column(c, name) for name in wanted))
    columns = tuple(c if c.name in found else replace(c, tasks=()) for c in suite.columns)
    return replace(suite, columns=columns, requested=found if len(found) < len(columns) else ())


def join_single_tasks(suites: Sequence[Suite]) -> list[Suite]:
    """The suites with the single tasks of one family, as `mteb:STS12` and `mteb:STS13`, as one suite of them.

    It is for showing: its name is that of no suite, and its mean is over the tasks asked for.
    """
    groups: dict[str | int, list[Suite]] = {}
    for number, suite in enumerate(suites):
        family, _, argument = suite.name.partition(":")
        single = [column.name for column in suite.columns] == [argument]
        groups.setdefault(family if single else number, []).append(suite)
    return [_joined(str(family), found) for family, found in groups.items()]


def _joined(family: str, suites: Sequence[Suite]) -> Suite:
    columns = {column.name: column for suite in suites for column in suite.columns}
    if len(suites) == 1 or len(columns) == 1:
        return suites[0]
    return Suite(
        name=" + ".join(f"{family}:{name}" for name in columns),
        title=family,
        columns=tuple(columns.values()),
        requested=tuple(columns),
    )


def recipe_entry(text: str) -> RecipeEntry:
    """The entry of the recipe called `name` or `name:variant`.

    Raises:
        UsageError: There is no such recipe or variant.
    """
    name, _, variant = text.partition(":")
    entry = RECIPES.named(name) or recipes().get(name)
    if entry is None:
        then = "`harness list recipes` shows all."
        raise RECIPES.with_broken(unknown("recipe", name, recipes(), then=then))
    if variant not in entry.settings:
        then = f"Without one it is the recipe's own default: --recipe {name}."
        raise unknown(f"variant of {name}", variant, entry.variants, then=then)
    return entry


def recipe_kind(text: str) -> Literal["model", "task"]:
    """What a recipe makes, or recipes that make a model one after the other, `A+B`.

    Raises:
        UsageError: There is no such recipe, or one of several makes no model.
    """
    stages = text.split("+")
    kinds = [recipe_entry(stage).kind for stage in stages]
    for stage, kind in zip(stages, kinds, strict=True):
        if kind == "task" and len(stages) > 1:
            raise UsageError(
                f"{stage} trains for tasks with labels: no recipe goes before or after it.",
                hint=f"Name it on its own: --recipe {stage}.",
            )
    return kinds[-1]


def recipe_chain(text: str) -> str:
    """A recipe as those that make its models one after the other, `A+B`; most are one.

    Raises:
        UsageError: There is no such recipe or variant.
    """
    found: list[str] = []
    for stage in text.split("+"):
        chain = recipe_entry(stage).chains.get(stage.partition(":")[2])
        found += [stage] if chain is None else [f"{stage.partition(':')[0]}:{variant}" for variant in chain]
    return "+".join(found)


def open_recipe(text: str, changes: Mapping[str, Any] | None = None) -> TaskRecipe | ModelRecipe:
    """The recipe called `name` or `name:variant`, with changed settings.

    Raises:
        UsageError: There is no such recipe, variant or setting, or a value has another form.
    """
    entry, variant = recipe_entry(text), text.partition(":")[2]
    return entry.open(variant, with_settings(entry.settings[variant], changes or {}, of=text))
