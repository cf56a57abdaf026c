"""What there is: backbones, recipes and suites, found by their folder or by entry points.

One file in `harness/backbones/`, `finetune/recipes/` or `suites/` is one entry; another
distribution adds its own through the entry points `harness.backbones`, `harness.recipes` and
`harness.suites`, each naming the entry object.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, TypeVar

from harness.errors import UsageError, unknown
from harness.recipe import Recipe, RecipeEntry, RecipeOptions
from harness.types import BackboneEntry, Suite, SuiteEntry, SuiteOptions

if TYPE_CHECKING:
    from harness.encoder.family import Family

Entry = TypeVar("Entry", SuiteEntry, BackboneEntry, RecipeEntry)


@functools.cache
def suites() -> dict[str, SuiteEntry]:
    """Every suite by name."""
    return _find(SuiteEntry, package="suites", attribute="SUITE", group="harness.suites")


@functools.cache
def backbones() -> dict[str, BackboneEntry]:
    """Every family of encoders, and every model with a name of its own, by name."""
    return _find(BackboneEntry, package="harness.backbones", attribute="BACKBONE", group="harness.backbones")


@functools.cache
def recipes() -> dict[str, RecipeEntry]:
    """Every recipe by name."""
    return _find(RecipeEntry, package="finetune.recipes", attribute="RECIPE", group="harness.recipes")


def models() -> dict[str, BackboneEntry]:
    """The entries that name a model."""
    return {name: entry for name, entry in backbones().items() if entry.locate is not None}


def family_of(config: Mapping[str, Any]) -> Family | None:
    """The family that a config.json belongs to, None if it is none of ours."""
    families = [entry.family for entry in backbones().values() if entry.family is not None]
    return next((family for family in families if family.holds(config)), None)


def open_suite(text: str, options: SuiteOptions | None = None) -> Suite:
    """The suite called `name` or `name:argument`.

    Raises:
        UsageError: There is none, or its argument is missing or wrong.
    """
    name, _, argument = text.partition(":")
    if name not in suites():
        offered = [f"{e.name}:{o.name}" for e in suites().values() for o in e.offers() if o.name == text]
        if offered:
            raise UsageError(f"No suite is called {text!r}.", hint=f"Did you mean --suite '{offered[0]}'?")
        raise unknown("suite", text, suites(), then="`harness list suites` shows all.")
    entry = suites()[name]
    if argument and not entry.argument:
        raise UsageError(f"The suite {name!r} takes no argument.", hint=f"Type --suite {name}.")
    if not argument and not entry.alone:
        raise UsageError(
            f"The suite {name!r} needs an argument.", hint=f"Type --suite {name}:<{entry.argument}>."
        )
    return entry.open(argument, options or SuiteOptions())


def open_suites(names: Sequence[str], options: SuiteOptions | None = None) -> list[Suite]:
    """The suites of these names, in order, each with those of its columns that are asked for.

    Raises:
        UsageError: A name is that of no suite, or of no column.
    """
    suites = [open_suite(name, options) for name in names]
    wanted = options.tasks if options else ()
    columns = [column.name for suite in suites for column in suite.columns]
    for name in wanted:
        if name not in columns:
            of = " or ".join(names)
            raise unknown(f"task of {of}", name, columns, then="--tasks takes names of a suite's table.")
    return [_only(suite, wanted) for suite in suites] if wanted else suites


def _only(suite: Suite, wanted: Sequence[str]) -> Suite:
    """A suite of which other columns have nothing."""
    columns = tuple(c if c.name in wanted else replace(c, tasks=()) for c in suite.columns)
    return replace(suite, columns=columns)


def open_recipe(text: str, options: RecipeOptions) -> Recipe:
    """The recipe called `name` or `name:variant`.

    Raises:
        UsageError: There is none, or no such variant.
    """
    name, _, variant = text.partition(":")
    if name not in recipes():
        raise unknown("recipe", name, recipes(), then="`harness list recipes` shows all.")
    return recipes()[name].open(variant, options)


def _find(kind: type[Entry], *, package: str, attribute: str, group: str) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    home = importlib.import_module(package)
    for module in sorted(m.name for m in pkgutil.iter_modules(home.__path__) if not m.name.startswith("_")):
        entry = getattr(importlib.import_module(f"{package}.{module}"), attribute)
        found[entry.name] = entry
    for point in entry_points(group=group):
        entry = _load(point, kind)
        if entry.name in found:
            raise UsageError(f"{point.value} adds {entry.name!r} to {group}, a name that is already taken.")
        found[entry.name] = entry
    return found


def _load(point: Any, kind: type[Entry]) -> Entry:
    try:
        entry = point.load()
    except Exception as error:
        raise UsageError(
            f"The plugin {point.value} (entry point {point.group}) does not load: {error}.",
            hint="Repair or uninstall the distribution that brings it.",
        ) from error
    if not isinstance(entry, kind):
        raise UsageError(f"The plugin {point.value} is no {kind.__name__}.")
    return entry
