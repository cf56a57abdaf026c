import functools
from collections.abc import Iterator, Mapping
from typing import Any

from harness.core.registry import Registry
from harness.encoder.family import BackboneEntry, Family

BACKBONES = Registry(
    kind=BackboneEntry, package="harness.encoder.backbones", attribute="BACKBONE", group="harness.backbones"
)


@functools.cache
def entries() -> dict[str, BackboneEntry]:
    """Every family of encoders, and every model with a name of its own, by name."""
    return BACKBONES.all()


def named_models() -> dict[str, BackboneEntry]:
    """The entries that name a model."""
    return {name: entry for name, entry in entries().items() if entry.locate is not None}


def named_model(name: str) -> BackboneEntry | None:
    """The entry of the model with this name, None without one."""
    entry = BACKBONES.named(name) or entries().get(name)
    return entry if entry is not None and entry.locate is not None else None


def family_of(config: Mapping[str, Any]) -> Family | None:
    """The family of a config.json, None if the catalog has none.

    Raises:
        UsageError: No family holds it, and an entry that may does not load.
    """
    if "model_type" not in config:  # a module without a backbone, as pooling
        return None
    return next((family for family in _families() if family.holds(config)), None)


def _families() -> Iterator[Family]:
    """Every family, the built-in ones first; plugins load only when needed."""
    yield from (entry.family for entry in BACKBONES.ours() if entry.family is not None)
    yield from (entry.family for entry in entries().values() if entry.family is not None)
    for error in BACKBONES.broken():
        raise error
