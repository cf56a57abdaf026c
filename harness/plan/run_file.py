"""The file of a run: every argument of `harness.run` as TOML, read and written."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.core.arguments import collect_options, format_toml_value
from harness.core.errors import UsageError, explain_unknown
from harness.plan.request import Request, parse_changes, parse_sweep
from harness.plan.resolved_request import collect_settings, merge_changes

_FIELDS = {{"models": "model", "suites": "suite"}.get(name, name): name for name in collect_options(Request)}
"""The fields of a request by their names in a file, which are those of the arguments of `harness.run`."""

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")


def read_run(path: Path, typed: Request, names: set[str]) -> Request:
    """The request in a file; what was typed goes before it, in mappings entry by entry.

    Args:
        path: The TOML file.
        typed: The request of the command line.
        names: Its fields that were typed.

    Raises:
        UsageError: The file cannot be read, a name is unknown, or a value has another form.
    """
    values = _read_values(path)
    for name, parse in (("recipe_settings", parse_changes), ("sweep", parse_sweep)):
        values |= {name: parse(values[name])} if name in values else {}
    settings = values.get("recipe_settings")
    for name in names:
        value, before = _find_value(typed, name), values.get(name)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            value = {**before, **value}
        values[name] = value
    start = Request(models=values.pop("models", ()), suites=values.pop("suites", ()))
    request = start.replace_fields(values, of=str(path))
    if not isinstance(settings, Mapping) or names.isdisjoint(("recipe_settings", "sweep")):
        return request
    # One setting may be spelled in two ways, and one that was typed or swept goes before the file's.
    sweep = request.sweep if "sweep" in names else {}
    recipes = replace(request, recipe_settings=typed.recipe_settings, sweep=sweep)
    return replace(request, recipe_settings=merge_changes(settings, recipes))


def _read_values(path: Path) -> dict[str, Any]:
    """The values of a file by the fields of a request."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}.", hint="--dry-run --save FILE writes one."
        ) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}.") from error
    for name in content:
        if name not in _FIELDS:
            then = "See docs/python.md; settings of a recipe stand below [recipe_settings]."
            raise explain_unknown(f"setting in {path}", name, _FIELDS, then=then)
    return {_FIELDS[name]: value for name, value in content.items()}


def _find_value(request: Request, name: str) -> Any:
    """The value of a field of a request, of its settings or of its options."""
    part: Any = next(one for one in (request, request.settings, request.options) if hasattr(one, name))
    return getattr(part, name)


def format_run(request: Request) -> str:
    """The file of a request, complete: defaults and every setting of its recipes stand in it as well."""
    values = {name: _find_value(request, field) for name, field in _FIELDS.items()}
    values["recipe_settings"] = collect_settings(request)
    return "".join(f"{line}\n" for line in _iter_lines(values))


def _iter_lines(values: Mapping[str, Any]) -> Iterator[str]:
    yield "# harness run --config FILE"
    tables = {name: value for name, value in values.items() if isinstance(value, Mapping)}
    for name, value in values.items():
        if value is None:  # TOML has no word for it
            yield f"# {name} is not set"
        elif name not in tables:
            yield f"{name} = {format_toml_value(value)}"
    for name, table in tables.items():
        yield from ("", f"[{name}]")
        for key, value in table.items():
            plain = _PLAIN_KEY.fullmatch(key)
            yield f"{key if plain else format_toml_value(key)} = {format_toml_value(value)}"
