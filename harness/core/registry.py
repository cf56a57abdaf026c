"""Registries: the entries of one kind, one in each file of a folder, and those of other distributions."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import pkgutil
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Generic, Protocol, TypeVar

from harness.core.errors import UsageError


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

    def iter_entries(self) -> Iterator[Entry]:
        """The entries of the folder that load, sorted by file; each is imported only when its turn comes."""
        for file in _list_entry_files(self.package):
            with contextlib.suppress(UsageError):
                yield self._open_file_entry(file)

    def find_entry(self, name: str) -> Entry | None:
        """The entry in the file of that name (`mteb_v1.py` for "mteb-v1"), or None; loads no plugin.

        Raises:
            UsageError: The file does not load.
        """
        file = name.replace("-", "_")
        entry = self._open_file_entry(file) if file in _list_entry_files(self.package) else None
        return entry if entry is not None and entry.name == name else None

    def load_entries(self) -> dict[str, Entry]:
        """Every entry that loads by name, those of the folder first."""
        return self._scan()[0]

    def collect_failures(self) -> list[UsageError]:
        """An error for each file and plugin that does not load, or has no entry with a name of its own."""
        return self._scan()[1]

    def add_failures(self, error: UsageError) -> UsageError:
        """The error for an unknown name, with what does not load, where the name may be."""
        lines = [error.hint or "", *(one.message for one in self.collect_failures())]
        return type(error)(error.message, hint="\n".join(filter(None, lines)) or None)

    def _scan(self) -> tuple[dict[str, Entry], list[UsageError]]:
        files = _list_entry_files(self.package)
        places = {file: (f"{self.package}.{file}", self.attribute) for file in files}
        # Behind the folder's files: a plugin cannot take the name of an entry that comes with the harness.
        places |= {point.value: (point.module, point.attr) for point in entry_points(group=self.group)}
        entries: dict[str, Entry] = {}
        broken = []
        for place, (module, attribute) in places.items():
            try:
                entry = self._open_own_entry(place, module, attribute)
                if entry.name in entries:
                    taken = f"{entry.name!r} to {self.group}, a name that is already taken"
                    raise UsageError(f"{place} adds {taken}.")
                entries[entry.name] = entry
            except UsageError as error:
                broken.append(error)
        return entries, broken

    def _open_file_entry(self, file: str) -> Entry:
        return self._open_own_entry(file, f"{self.package}.{file}", self.attribute)

    def _open_own_entry(self, place: str, module: str, attribute: str) -> Entry:
        entry = open_entry(module, attribute)
        if not isinstance(entry, self.kind):
            raise UsageError(f"{place} is not a {self.kind.__name__} of {self.group}.")
        return entry


def open_entry(module: str, attribute: str) -> Any:
    """An attribute of a module, which is imported.

    Raises:
        UsageError: It does not load; the message names the file, the line and the error.
    """
    try:
        return functools.reduce(getattr, attribute.split("."), importlib.import_module(module))
    # A plugin may raise anything while it is imported; the other entries must stay usable.
    except Exception as error:
        # str() of a SyntaxError has file and line in it, which the message already names.
        message = error.msg if isinstance(error, SyntaxError) else str(error)
        reason = f"{type(error).__name__}: {message}".replace("\n", " ")
        raise UsageError(f"{_locate_failure(module, error)} does not load: {reason}") from error


def _locate_failure(module: str, error: Exception) -> str:
    """The file of a module with the line where its import failed."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno},"
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):  # its package does not load
        spec = None
    file = spec.origin if spec is not None and spec.origin else module
    # The last frame in this file: deeper ones lie in what it imports, and the first is that of importlib.
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"{file}, line {lines[-1]}," if lines else file


@functools.cache
def _list_entry_files(package: str) -> tuple[str, ...]:
    """The names of a folder's files with an entry, sorted."""
    home = importlib.import_module(package)
    return tuple(sorted(m.name for m in pkgutil.iter_modules(home.__path__) if not m.name.startswith("_")))
