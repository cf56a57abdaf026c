"""Options that several commands share, spelled and explained once."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from harness.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

results = click.option(
    "--results",
    type=click.Path(path_type=Path),
    envvar="HARNESS_RESULTS",
    default=None,
    help="Results folder (default: ./results).",
)
cache = click.option(
    "--cache",
    type=click.Path(path_type=Path),
    envvar="HARNESS_CACHE",
    default=None,
    help="Cache of embeddings and prepared data (default: the user's cache folder).",
)
data = click.option(
    "--data",
    type=click.Path(path_type=Path),
    envvar="HARNESS_DATA",
    default=None,
    help="Data root in hub layout, ORG/NAME below it; used before the hub.",
)
languages = click.option(
    "--languages", default="", help="Only these languages of multilingual tasks, e.g. eng or eng-Latn,deu."
)
splits = click.option("--splits", default="", help="Only these splits, e.g. test.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines (docs/json.md).")
suites = click.option(
    "--suite",
    "suites",
    multiple=True,
    required=True,
    metavar="SUITE",
    help="Suite, or suite:argument (`harness list suites`). Repeat for several.",
)
offline = click.option(
    "--offline", is_flag=True, help="Forbid the network; tasks without data at hand are named at once."
)


def listed(text: str) -> tuple[str, ...]:
    """The parts of a comma-separated list."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def read_prompts(pairs: tuple[str, ...], file: Path | None) -> dict[str, str] | None:
    """Prompts from NAME=TEXT pairs over those of a JSON or TOML file; None if there are none.

    Raises:
        UsageError: A pair has no "=", or the file is not a table of strings.
    """
    prompts = _prompt_file(file) if file else {}
    for pair in pairs:
        name, found, text = pair.partition("=")
        if not found:
            raise UsageError(f"--prompt {pair!r} has no '='.", hint='Type --prompt query="search_query: ".')
        prompts[name] = text
    return prompts or None


def _prompt_file(file: Path) -> dict[str, str]:
    try:
        text = file.read_text(encoding="utf-8")
        found = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    except (OSError, ValueError) as error:
        raise UsageError(f"The prompts in {file} cannot be read: {error}.") from error
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise UsageError(f"{file} is not a table of prompt names and texts.")
    return found
