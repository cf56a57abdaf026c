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
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, TypeVar

from harness.errors import UsageError, unknown
from harness.types import BackboneEntry, Suite, SuiteEntry, SuiteOptions

if TYPE_CHECKING:
    from harness.encoder.family import Family

Entry = TypeVar("Entry", SuiteEntry, BackboneEntry)


@functools.cache
def suites() -> dict[str, SuiteEntry]:
    """Every suite by name."""
    return _find(SuiteEntry, package="suites", attribute="SUITE", group="harness.suites")


@functools.cache
def backbones() -> dict[str, BackboneEntry]:
    """Every family of encoders, and every model with a name of its own, by name."""
    return _find(BackboneEntry, package="harness.backbones", attribute="BACKBONE", group="harness.backbones")


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
    """The suites of these names, in order."""
    return [open_suite(name, options) for name in names]


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
