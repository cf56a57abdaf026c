"""The prompts of a request: read from options and files, and checked against suites and tasks."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.core.arguments import Table, check_value
from harness.core.errors import UsageError, explain_unknown
from harness.core.types import SIDES, Suite
from harness.plan import catalog


def read_prompts(pairs: Sequence[str], file: Path | None) -> dict[str, str] | None:
    """Prompts from NAME=TEXT pairs over those of a JSON or TOML file; None if there are none.

    Raises:
        UsageError: A pair has no "=", or the file is not a table of strings.
    """
    prompts = _read_prompt_file(file) if file else {}
    for pair in pairs:
        name, equals, text = str(pair).partition("=")
        if not equals:
            raise UsageError(f"--prompt {pair!r} has no '='.", hint='Type --prompt query="search_query: ".')
        prompts[name] = text
    return prompts or None


def _read_prompt_file(file: Path) -> dict[str, str]:
    try:
        text = Path(file).read_text(encoding="utf-8")
        content = tomllib.loads(text) if Path(file).suffix == ".toml" else json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"The prompts in {file} cannot be read: {error}.") from error
    if not isinstance(content, dict):
        raise UsageError(f"{file} is not a table of prompt names and texts.")
    prompts: dict[str, str] = check_value("prompts", content, Table)
    return prompts


def require_sides(prompts: Mapping[str, str] | None) -> None:
    """Refuse prompts for anything but queries and documents, for commands that have no task.

    Raises:
        UsageError: A prompt has another name.
    """
    for name in prompts or {}:
        if name not in SIDES:
            raise explain_unknown("side", name, SIDES, then='Type e.g. --prompt query="search_query: ".')


def check_prompts(prompts: Mapping[str, str], suites: Sequence[Suite]) -> None:
    """Refuse prompts for no known side, task or type (with or without a side): they would be ignored."""
    if not prompts:
        return
    offered = [
        o for entry in catalog.load_suite_entries().values() for o in entry.offers() if o.kind == "task"
    ]
    tasks = {c.name for suite in suites for c in suite.columns} | {o.name for o in offered}
    # A column may have another name than its task, or several tasks: a prompt may have either name.
    tasks |= {task.name for suite in suites for task in suite.tasks}
    types = {t.type for suite in suites for t in suite.tasks} | {o.facts["type"] for o in offered}
    for name in prompts:
        base_name = name.removesuffix("-query").removesuffix("-document")
        if name not in SIDES and base_name not in tasks | types:
            valid_names = [*SIDES, *types, *tasks]
            then = "A prompt is for query, document, a type or a task (`harness list tasks`)."
            raise explain_unknown("side, type or task", name, valid_names, then=then)
