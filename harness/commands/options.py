"""Options that several commands share, spelled and explained once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

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
