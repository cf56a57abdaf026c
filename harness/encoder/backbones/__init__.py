import functools
from collections.abc import Iterator, Mapping
from typing import Any

from harness.core.registry import Registry
from harness.encoder.family import BackboneEntry, Family

BACKBONES = Registry(
    kind=BackboneEntry, package="harness.encoder.backbones", attribute="BACKBONE", group="harness.backbones"
)


@functools.cache
def list_backbones() -> dict[str, BackboneEntry]:
    """Every family of encoders, and every model with a name of its own, by name."""
    return BACKBONES.load_entries()


def list_catalog_models() -> dict[str, BackboneEntry]:
    """The entries that name a model."""
    return {name: entry for name, entry in list_backbones().items() if entry.locate is not None}


def find_catalog_model(name: str) -> BackboneEntry | None:
    """The entry of the model with this name, None without one."""
    entry = BACKBONES.find_entry(name) or list_backbones().get(name)
    return entry if entry is not None and entry.locate is not None else None


def find_family(config: Mapping[str, Any]) -> Family | None:
    """The family of a config.json, None if the catalog has none.

    Raises:
        UsageError: No family holds it, and an entry that may does not load.
    """
    # A module without a backbone, such as pooling.
    if "model_type" not in config:
        return None
    return next((family for family in _iter_families() if family.holds(config)), None)


def _iter_families() -> Iterator[Family]:
    """Every family, the built-in ones first; plugins load only when needed."""
    yield from (entry.family for entry in BACKBONES.iter_entries() if entry.family is not None)
    yield from (entry.family for entry in list_backbones().values() if entry.family is not None)
    for error in BACKBONES.collect_failures():
        raise error
