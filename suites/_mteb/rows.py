"""The rows of the snapshot's file, each parsed when it is asked for.

The file is JSON with one row a line, in sections; of its hundreds of tasks a suite wants a few.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


class Rows(Mapping[str, Any]):
    """A section of the file: name → row."""

    def __init__(self, lines: dict[str, str]) -> None:
        self._lines = lines
        self._parsed: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._parsed:
            self._parsed[name] = json.loads(self._lines[name])
        return self._parsed[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)

    def __contains__(self, name: object) -> bool:
        return name in self._lines


def sections(text: str) -> dict[str, Any]:
    r"""The content of a file that has one row a line; an object at its top becomes `Rows`.

    >>> found = sections('{\n"version": "2",\n"tasks": {\n"A": {"type":"STS"},\n"B": {}\n}\n}')
    >>> found["version"], dict(found["tasks"])
    ('2', {'A': {'type': 'STS'}, 'B': {}})
    """
    found: dict[str, Any] = {}
    lines: dict[str, str] | None = None
    for line in text.strip().split("\n")[1:-1]:
        name, colon, value = line.removesuffix(",").partition('": ')
        if not colon:
            lines = None
        elif value == "{":
            lines = {}
            found[_name(name)] = Rows(lines)
        elif lines is None:
            found[_name(name)] = json.loads(value)
        else:
            lines[_name(name)] = value
    return found


def _name(text: str) -> str:
    return str(json.loads(f'{text}"')) if "\\" in text else text[1:]
