"""A model's scores in the layout of mteb's results, which a lab submits to mteb's leaderboard."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from harness.core import paths
from harness.core.errors import UsageError
from harness.core.types import SEED, SuiteOptions, Task
from harness.plan import catalog
from harness.results.results import MeasuredSuite
from harness.results.scores import MAIN_SCORE
from harness.storage.record import Record
from harness.tools.conditions import choose_condition, select_conditions
from harness.tools.model_card import list_marks
from harness.tools.publishing import REPOSITORY

# "." and ".." would lead out of the revision's folder.
_PUBLISHED = re.compile(rf"({REPOSITORY})@(\w[\w.-]*)")


@runtime_checkable
class _ResultWriter(Protocol):
    """A source of tasks that can write their scores in the layout of its own project."""

    def write_results(
        self, records: Sequence[Record], *, name: str, revision: str, folder: Path
    ) -> tuple[Path, ...]:
        """Write complete records of its tasks for the model `org/name` at a revision; gives the files."""
        ...


@dataclass(frozen=True, kw_only=True)
class _MtebExport:
    """The files that an export wrote, and what it left out.

    Attributes:
        files: A file for each task.
        settings: The settings under which their scores were measured.
        left_out: By task, the reason why there is no file of it.
        others: Other settings with which some of the tasks were measured.
    """

    files: tuple[Path, ...]
    settings: str
    left_out: Mapping[str, str]
    others: tuple[str, ...]


def export_mteb(
    model: str,
    folder: Path,
    *,
    published: str = "",
    suites: Sequence[str] = (),
    tasks: str = "",
    settings: str = "",
    results: Path | None = None,
    resolve_revision: Callable[[str, str], str] = lambda _task, data: data,
) -> _MtebExport:
    """Write `results/ORG__NAME/REVISION/` with mteb's card of the model and a file for each of its tasks.

    All scores are of one condition. A task is left out, with the reason, where mteb has no such task, pins
    other data, or asks for splits or subsets that were not measured, and where tables mark its score.

    Args:
        model: A name, six or more digits of an artifact key, or a folder.
        folder: The folder to write to, a cache of results for mteb.
        published: `org/name@revision` of the model; empty for that of a hub model.
        suites: Only the tasks of these suites, with the splits and subsets that they use.
        tasks: Only these tasks, separated by commas.
        settings: A part of the text of the condition to write, where there are several.
        results: The results folder, None for the default.
        resolve_revision: The revision of a task's data that is known to have the same content as other data.

    Raises:
        UsageError: Nothing can be written, none of several conditions is chosen, or the model has no name and
            revision.
    """
    measured = MeasuredSuite.load_own_records(model, results)
    records = [record for record in measured.records if record.main_score is not None]
    name, revision = _resolve_published(measured.records[0], published)
    options = SuiteOptions(cache=paths.resolve_cache_folder(), results=results)
    opened = catalog.open_suites(suites, options)
    uses = {task.name: task for suite in opened for task in suite.tasks}
    names = list(uses or dict.fromkeys(record.task.name for record in records))
    kind = f"task of {' or '.join(suites) or model}"
    selected, conditions = select_conditions(model, records, opened, names, tasks, kind=kind)
    texts = dict.fromkeys(one.condition.text for one in conditions)
    if len(texts) > 1 and not settings:
        raise UsageError(
            f"{model} was measured with these settings: {'; '.join(texts)}. mteb's files do not name them.",
            hint="Choose: type a part of one with --settings.",
        )
    chosen = choose_condition(conditions, settings)
    left_out: dict[str, str] = {}
    complete: dict[_ResultWriter, list[Record]] = {}
    for task_name in selected:
        record, task = chosen.records.get(task_name), uses.get(task_name) or _find_task(task_name)
        if reason := _find_obstacle(record, task, resolve_revision):
            left_out[task_name] = reason
        elif record is not None and task is not None and isinstance(task.source, _ResultWriter):
            complete.setdefault(task.source, []).append(record)
    files = [
        path
        for source, mine in complete.items()
        for path in source.write_results(mine, name=name, revision=revision, folder=folder)
    ]
    others = tuple(one.condition.text for one in conditions if one is not chosen)
    return _MtebExport(files=tuple(files), settings=chosen.condition.text, left_out=left_out, others=others)


def _resolve_published(record: Record, typed: str) -> tuple[str, str]:
    """The name and the revision of a model on the hub."""
    about = record.model
    hub_id = f"{about.source.partition('@')[0]}@{about.revision}" if about.revision else ""
    match = _PUBLISHED.fullmatch(typed or hub_id)
    if match is None:
        what = f"{typed!r} is no name of a model" if typed else f"{about.name} has no name"
        raise UsageError(
            f"{what} and revision on the hub, which mteb's results are stored by.",
            hint="Give both: --as org/name@revision.",
        )
    return match[1], match[2]


def _find_task(name: str) -> Task | None:
    """The task of mteb of this name, with all splits and subsets that mteb scores."""
    try:
        (task,) = catalog.open_suite(f"mteb:{name}").tasks
    except (UsageError, ValueError):
        return None
    return task


def _find_obstacle(record: Record | None, task: Task | None, resolve: Callable[[str, str], str]) -> str:
    """Why a record is no whole result of a task of mteb; empty if it is."""
    if task is None or not isinstance(task.source, _ResultWriter):
        return "mteb has no such task"
    if record is None:
        return "not measured with these settings"
    if marks := list_marks(record, record.lineage):
        return f"tables mark its score: {', '.join(marks)}; mteb's files have no marks"
    identity, data = record.identity, record.identity["data"]
    if identity.get("scoring", "").partition(" ")[0] != task.source.scoring.partition(" ")[0]:
        return f"scored by {identity.get('scoring')}, not by mteb"
    revision = resolve(task.name, str(data.get("revision") or data.get("content")))
    if (data.get("path"), revision) != (task.data.path, task.data.revision):
        return f"its data is not known to be {task.data.path} at {task.data.revision[:12]}, which mteb pins"
    if identity.get("documents") or identity["seed"] != SEED:
        return "measured with another text of documents or another seed than mteb's"
    missing = [
        f"{split}, {subset}"
        for split, subset in task.cells
        if MAIN_SCORE not in record.scores.get(split, {}).get(subset, {})
    ]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        return f"no score of {missing[0]}{more} (--suite SUITE takes the parts that a benchmark uses)"
    return ""
