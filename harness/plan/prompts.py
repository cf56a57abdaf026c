"""The prompts of a request: read from options and files, and held against what there is."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.core.arguments import Table, checked
from harness.core.errors import UsageError, unknown
from harness.core.types import SIDES, Suite
from harness.plan import catalog


def read_prompts(pairs: Sequence[str], file: Path | None) -> dict[str, str] | None:
    """Prompts from NAME=TEXT pairs over those of a JSON or TOML file; None if there are none.

    Raises:
        UsageError: A pair has no "=", or the file is not a table of strings.
    """
    prompts = _prompt_file(file) if file else {}
    for pair in pairs:
        name, found, text = str(pair).partition("=")
        if not found:
            raise UsageError(f"--prompt {pair!r} has no '='.", hint='Type --prompt query="search_query: ".')
        prompts[name] = text
    return prompts or None


def _prompt_file(file: Path) -> dict[str, str]:
    try:
        text = Path(file).read_text(encoding="utf-8")
        found = tomllib.loads(text) if Path(file).suffix == ".toml" else json.loads(text)
    except (OSError, ValueError) as error:
        raise UsageError(f"The prompts in {file} cannot be read: {error}.") from error
    if not isinstance(found, dict):
        raise UsageError(f"{file} is not a table of prompt names and texts.")
    prompts: dict[str, str] = checked("prompts", found, Table)
    return prompts


def require_sides(prompts: Mapping[str, str] | None) -> None:
    """Refuse prompts for anything but queries and documents, where there is no task.

    Raises:
        UsageError: A prompt has another name.
    """
    for name in prompts or {}:
        if name not in SIDES:
            raise unknown("side", name, SIDES, then='Type e.g. --prompt query="search_query: ".')


def check_prompts(prompts: Mapping[str, str], suites: Sequence[Suite]) -> None:
    """Refuse prompts for no known side, task or type (with or without a side): they would be ignored."""
    if not prompts:
        return
    offered = [o for entry in catalog.suites().values() for o in entry.offers() if o.kind == "task"]
    tasks = {c.name for suite in suites for c in suite.columns} | {o.name for o in offered}
    tasks |= {task.name for suite in suites for task in suite.tasks}
    types = {t.type for suite in suites for t in suite.tasks} | {o.facts["type"] for o in offered}
    for name in prompts:
        whole = name.removesuffix("-query").removesuffix("-document")
        if name not in SIDES and whole not in tasks | types:
            known = [*SIDES, *types, *tasks]
            then = "A prompt is for query, document, a type or a task (`harness list tasks`)."
            raise unknown("side, type or task", name, known, then=then)
