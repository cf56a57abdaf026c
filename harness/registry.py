"""Registries: the entries of one kind, one in each file of a folder, and those of other distributions."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from harness.errors import UsageError


class _Named(Protocol):
    @property
    def name(self) -> str: ...


Entry = TypeVar("Entry", bound=_Named)


@dataclass(frozen=True, kw_only=True)
class Registry(Generic[Entry]):
    """The registry of one kind of entry.

    Attributes:
        kind: The class of the entries.
        package: The folder; a file whose name begins with "_" has no entry.
        attribute: The name of the entry in each file.
        group: The entry points of other distributions.
    """

    kind: type[Entry]
    package: str
    attribute: str
    group: str

    def ours(self) -> Iterator[Entry]:
        """The entries of the folder, sorted by file; each file is imported only when its turn comes."""
        return map(self._opened, _files(self.package))

    def named(self, name: str) -> Entry | None:
        """The entry in the file of that name (`mteb_v1.py` for "mteb-v1"), or None; loads no plugin."""
        file = name.replace("-", "_")
        entry = self._opened(file) if file in _files(self.package) else None
        return entry if entry is not None and entry.name == name else None

    def all(self) -> dict[str, Entry]:
        """Every entry by name, those of the folder first.

        Raises:
            UsageError: A plugin does not load, has no such entry, or has one with a name that is taken.
        """
        from importlib.metadata import entry_points

        found = {entry.name: entry for entry in self.ours()}
        for point in entry_points(group=self.group):
            entry = self._load(point)
            if entry.name in found:
                taken = f"{entry.name!r} to {self.group}, a name that is already taken"
                raise UsageError(f"{point.value} adds {taken}.")
            found[entry.name] = entry
        return found

    def _opened(self, file: str) -> Entry:
        entry: Entry = getattr(importlib.import_module(f"{self.package}.{file}"), self.attribute)
        return entry

    def _load(self, point: Any) -> Entry:
        try:
            entry = point.load()
        except Exception as error:
            raise UsageError(
                f"The plugin {point.value} (entry point {point.group}) does not load: {error}.",
                hint="Repair or uninstall the distribution that brings it.",
            ) from error
        if not isinstance(entry, self.kind):
            raise UsageError(f"The plugin {point.value} is no {self.kind.__name__}.")
        return entry


@functools.cache
def _files(package: str) -> tuple[str, ...]:
    """The names of a folder's files with an entry, sorted."""
    home = importlib.import_module(package)
    return tuple(sorted(m.name for m in pkgutil.iter_modules(home.__path__) if not m.name.startswith("_")))
