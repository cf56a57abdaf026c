"""Reading the values of harness.toml; every error says in which file and task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from harness.errors import UsageError, unknown

GUIDE = "See docs/local-data.md."


def only_known(table: Mapping[str, object], known: Iterable[str], where: str, what: str) -> None:
    """Refuse a key that means nothing here: it would be passed over without a word."""
    for key in table:
        require_known(key, known, where, what)


def require_known(name: str, known: Iterable[str], where: str, what: str) -> None:
    """Refuse a name that is none of `known`."""
    if name not in known:
        error = unknown(what, name, known, then=GUIDE)
        raise UsageError(f"{where} {error.message}", hint=error.hint)


def string(table: Mapping[str, Any], key: str, where: str, default: str = "") -> str:
    """The value of `key`, a string that is not empty."""
    value = table.get(key, default)
    if not isinstance(value, str) or not value:
        raise UsageError(f"{where} {key!r} is {value!r}, not a name.", hint=GUIDE)
    return value


def strings(table: Mapping[str, Any], key: str, where: str, default: tuple[str, ...]) -> tuple[str, ...]:
    """The value of `key`, a list of different names."""
    value = table.get(key, list(default))
    if not isinstance(value, list) or not value or not all(isinstance(one, str) for one in value):
        raise UsageError(
            f"{where} {key!r} is {value!r}, not a list of names.", hint=f'Write {key} = ["…"]. {GUIDE}'
        )
    if len(set(value)) < len(value):
        raise UsageError(f"{where} {key!r} has a name twice: {', '.join(value)}.", hint=GUIDE)
    return tuple(value)


def flag(table: Mapping[str, Any], key: str, where: str) -> bool:
    """The value of `key`, true or false, which is the default."""
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise UsageError(f"{where} {key!r} is {value!r}, not true or false.", hint=GUIDE)
    return value
