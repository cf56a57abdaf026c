"""The settings under which a model was measured on the most tasks, and the commands that measure it again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.core import files
from harness.core.arguments import split_names
from harness.core.errors import UsageError, explain_unknown
from harness.core.keys import is_of_object
from harness.core.types import SEED, Suite
from harness.results.results import (
    Condition,
    RecipeCondition,
    build_suite_views,
    choose_settings,
    extract_condition,
    format_setting,
)
from harness.search.plaid import EXACT, format_index_option
from harness.storage.record import Record
from harness.training.model_store import ModelStore


@dataclass(frozen=True, kw_only=True)
class MeasuredCondition:
    """The records of one condition by their tasks."""

    condition: Condition
    records: dict[str, Record] = field(default_factory=dict)


def collect_conditions(
    records: Sequence[Record], suites: Sequence[Suite], wanted: Sequence[str]
) -> list[MeasuredCondition]:
    """The conditions of the wanted tasks: that of the most tasks first, equals in the order of `show`."""
    if suites:
        views = [view for suite in suites for view in build_suite_views(records, suite)]
        pairs = [(view.treatment, record) for view in views for record in view.records.values()]
    else:
        done = [record for record in records if record.main_score is not None]
        pairs = [(extract_condition(record), record) for record in sorted(done, key=_build_breadth_key)]
    groups: list[MeasuredCondition] = []
    for condition, record in pairs:
        if record.task.name in wanted:
            mine = next((one for one in groups if one.condition == condition), None)
            if mine is None:
                groups.append(mine := MeasuredCondition(condition=condition))
            mine.records[record.task.name] = record
    return sorted(groups, key=lambda one: (-len(one.records), one.condition.rank))


def _build_breadth_key(record: Record) -> tuple[int, str]:
    """The sort key of records of one task: the scored splits and subsets, then the time."""
    cells = sum(map(len, record.scores.values()))
    return cells, str(record.provenance.get("written", ""))


def select_conditions(
    model: str,
    records: Sequence[Record],
    suites: Sequence[Suite],
    names: Sequence[str],
    typed: str,
    *,
    kind: str,
) -> tuple[list[str], list[MeasuredCondition]]:
    """The tasks that are typed, or all, and the conditions under which they were measured.

    Args:
        model: The model as it was typed.
        records: Its records.
        suites: The suites whose tasks count; without any, all that were measured.
        names: The names of the tasks to choose from.
        typed: Names separated by commas; empty for all.
        kind: What the tasks are, in messages.

    Raises:
        UsageError: A typed task is none of them, or none was measured.
    """
    hint, tasks = f"`harness show {model}` lists what was measured.", split_names(typed)
    for name in tasks:
        if name not in names:
            raise explain_unknown(kind, name, names, then=hint)
    selected = [name for name in names if not tasks or name in tasks]
    conditions = collect_conditions(records, suites, selected)
    if not conditions:
        raise UsageError(f"No {kind} was measured with {model}.", hint=hint)
    return selected, conditions


def choose_condition(measured: Sequence[MeasuredCondition], settings: str) -> MeasuredCondition:
    """The first of several conditions, or the only one whose text has `settings` in it."""
    if not settings:
        return measured[0]
    text = choose_settings([one.condition.text for one in measured], settings)
    return next(one for one in measured if one.condition.text == text)


def build_rerun_command(record: Record, model: str, suites: Sequence[Suite], results: Path | None) -> str:
    """The command that makes the files of a record again."""
    if is_of_object(record.identity):
        return f"# {record.model.source}: measured once, no command opens it"
    task = record.task.name
    of = next((suite.name for suite in suites for suite_task in suite.tasks if suite_task.name == task), "")
    hub = record.identity["data"].get("path")
    suite = of or (f"mteb:{task}" if hub else "local:FOLDER")
    narrow = [] if suite == f"mteb:{task}" else ["--tasks", task]
    words = ["harness", "run", "--model", _format_model_argument(record, model, results), "--suite", suite]
    return shlex.join([*words, *narrow, *format_run_options(record, hub=bool(hub)), "--force"])


def _format_model_argument(record: Record, typed: str, results: Path | None) -> str:
    """The model of a record as `harness run` takes it."""
    about = record.model
    if record.lineage:
        matches = ModelStore(files.resolve_results_folder(results)).find(about.artifact)
        return str(matches[0]) if matches else typed
    if about.source != "local":
        pinned = f"@{about.revision}" if about.revision and "/" in about.source else ""
        return about.source if "@" in about.source else f"{about.source}{pinned}"
    return typed if files.resolve_home_path(typed).is_dir() else "FOLDER"


def build_repeat_commands(records: Sequence[Record], model: str, suites: Sequence[Suite]) -> list[str]:
    """The commands that measure records of one condition again; tasks with the same options share one.

    Args:
        records: The records, each of another task.
        model: The model as `harness run` takes it.
        suites: The suites to name the tasks by, where they have them.
    """
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        options = format_run_options(record, hub=bool(record.identity["data"].get("path")), prompts=False)
        groups.setdefault((_find_suite_name(record, suites), *options), []).append(record)
    return [_format_repeat_command(mine, model, suites, name) for (name, *_), mine in groups.items()]


def _find_suite_name(record: Record, suites: Sequence[Suite]) -> str:
    """The suite that has a record's task; empty for a task of mteb that none of them has."""
    names = (suite.name for suite in suites for task in suite.tasks if task.name == record.task.name)
    is_single = record.identity.get("scoring", "").startswith("mteb ") and record.identity["data"].get("path")
    return next(names, "" if is_single else "SUITE")


def _format_repeat_command(records: Sequence[Record], model: str, suites: Sequence[Suite], suite: str) -> str:
    names = [record.task.name for record in records]
    words = [word for name in names for word in ("--suite", f"mteb:{name}")]
    if suite:
        complete = [sorted(task.name for task in one.tasks) for one in suites if one.name == suite]
        words = ["--suite", suite, *([] if sorted(names) in complete else ["--tasks", ",".join(names)])]
    hub = bool(records[0].identity["data"].get("path"))
    prompts = [word for record in records for word in _list_prompt_options(record)]
    options = format_run_options(records[0], hub=hub, prompts=False)
    return shlex.join(["harness", "run", "--model", model, *words, *options, *prompts])


def _list_prompt_options(record: Record) -> list[str]:
    prompts = [(role, text) for role, text in record.identity.get("prompts", {}).items() if text]
    names = [f"{record.task.name}-{role}" if role else record.task.name for role, _ in prompts]
    return [
        word
        for name, (_, text) in zip(names, prompts, strict=True)
        for word in ("--prompt", f"{name}={text}")
    ]


def _list_recipe_options(condition: RecipeCondition) -> list[str]:
    changed = {**condition.modified}
    if condition.fresh_seeds:
        changed["fresh_seeds"] = len(condition.fresh_seeds)
    settings = [word for name, value in changed.items() for word in ("--set", format_setting(name, value))]
    return ["--recipe", condition.recipe, *settings]


def format_run_options(record: Record, *, hub: bool, prompts: bool = True) -> list[str]:
    """The settings of a record as options of `harness run`."""
    condition, identity = extract_condition(record), record.identity
    if isinstance(condition, RecipeCondition):
        return _list_recipe_options(condition)
    encoding = identity["encoding"]
    options = []
    late = encoding.get("late_interaction")
    if late:
        fixed_length = not late.get("by_task", True)
        options += ["--query-length", str(late["query_length"])] if fixed_length else []
        options += ["--max-length", str(late["document_length"])]
        options += ["--dtype", encoding["dtype"], "--similarity", encoding["similarity"]]
        options += ["--vectors", encoding.get("vectors", "float32")]
        index = encoding.get("index") or identity.get("index")
        options += ["--index", format_index_option(index) if index else EXACT]
    elif encoding["output"] == "measured":
        options += ["--dtype", encoding["dtype"]]
        options += ["--max-length", str(encoding["max_length"])] if "max_length" in encoding else []
    elif "pooling" in encoding:
        options += ["--pooling", encoding["pooling"], "--max-length", str(encoding["max_length"])]
        options += ["--dtype", encoding["dtype"], "--similarity", encoding["similarity"]]
        # With a rule by type of tasks the recipe's evaluation has the rule, which an option would replace.
        if "normalized_types" not in encoding:
            options += ["--normalize" if encoding.get("normalize") else "--no-normalize"]
        options += ["--vectors", encoding["vectors"]] if "vectors" in encoding else []
    if scaling := encoding.get("rope_scaling"):
        options += ["--rope-scaling", scaling]
    if draw := encoding.get("context"):
        options += ["--context", draw["documents"]]
        options += ["--context-seeds", str(draw["seed"] - SEED + 1)] if draw["seed"] != SEED else []
    options += _list_prompt_options(record) if prompts else []
    options += ["--document-text", identity["documents"]] if "documents" in identity else []
    options += ["--seed", str(identity["seed"])] if identity["seed"] != SEED else []
    if hub:
        # Data without a revision came from a data root, which no record names.
        options += [] if identity["data"].get("revision") else ["--data", "DIR"]
        options += ["--splits", ",".join(identity["splits"])]
        options += ["--subsets", ",".join(identity["subsets"])] if identity["subsets"] != ["default"] else []
    return options
