"""The state of a task's data before a run: whether it is there, whole, and can be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from harness.core.errors import DataError, find_similar_names
from harness.core.types import DataReport, DataTable, FileSource, Size, TableSource, Task
from harness.data.counting import count_task_data
from harness.data.folder import WHOLE, list_data_sets, resolve_identity
from harness.data.locate import DataSettings, Located, find_root_folder
from harness.data.schema import Schema

_NOTHING = DataReport()


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The state of a task's data, as far as it can be checked before a run.

    `state` is "missing" if the data is not on this machine, and "faulty" if the task cannot read it or a part
    of it is missing. `tables` are those that the task reads, none where its own code decides.
    """

    task: Task
    state: Literal["ok", "faulty", "missing"]
    folder: Path | None = None
    tables: tuple[DataTable, ...] = ()
    faults: tuple[str, ...] = ()
    size: Size | None = None
    report: DataReport = _NOTHING

    @staticmethod
    def check_task_data(task: Task, settings: DataSettings) -> Finding:
        """The finding on a task's data, in the data root or in its own files."""
        tables = task.source.list_data_tables(task) if isinstance(task.source, TableSource) else ()
        folder = (
            find_root_folder(task.data.path, task.data.revision, settings.root) if task.data.path else None
        )
        if task.data.path and folder is None:
            return Finding(
                task=task, state="missing", tables=tables, faults=(_describe_missing_folder(task, settings),)
            )
        size, report, faults = task.size, _NOTHING, tuple[str, ...]()
        try:
            if isinstance(task.source, FileSource):
                size = task.source.measure(task, cache=settings.cache)
            elif folder:
                faults = tuple(Schema.read_schema(folder).find_faults(tables))
            if not faults:
                data = resolve_identity(task.data, folder, settings.cache) if folder else task.data
                report = count_task_data(replace(task, data=data), folder, settings.cache)
                faults = (*report.faults, *(() if settings.partial else report.gaps))
        except DataError as error:
            faults = (error.message,)
        return Finding(
            task=task,
            state="faulty" if faults else "ok",
            folder=folder,
            tables=tables,
            faults=faults,
            size=size,
            report=report,
        )


def _describe_missing_folder(task: Task, settings: DataSettings) -> str:
    """The sentence on a data set that is not in the data root."""
    path, root = task.data.path, settings.root
    if root is None:
        return f"no data root is named, so {path} cannot be looked for"
    data_paths = [need.path for need in list_data_sets(root)]
    close = find_similar_names(path, data_paths)
    return f"{root / path} does not exist" + (f"; did you mean {close[0]}?" if close else "")


def check_data(task: Task, located: Located, settings: DataSettings) -> Size:
    """The size of a task's data, whose files, columns and rows are checked before a run.

    Data at a pinned revision is known to be complete, and is not checked.

    Args:
        task: The task, with the identity of its data.
        located: The place of its data.
        settings: The places for data sets, and whether a part of one is accepted.

    Raises:
        DataError: The task cannot read the data, or a part of it is missing; the message names what.
    """
    source, size = task.source, task.size
    if isinstance(source, FileSource):
        size = source.measure(task, cache=settings.cache)
    elif located.folder is None or not located.data.content:
        return size
    elif isinstance(source, TableSource):
        faults = Schema.read_schema(located.folder).find_faults(source.list_data_tables(task))
        _require_none(faults, task, located, settings)
    report = count_task_data(task, located.folder, settings.cache)
    _require_none(report.faults, task, located, settings)
    if report.gaps and not settings.partial:
        _require_none(report.gaps, task, located, settings, hint=WHOLE)
    return size


def _require_none(
    problems: Sequence[str], task: Task, located: Located, settings: DataSettings, *, hint: str | None = None
) -> None:
    """Refuse data with problems, the first of which is named."""
    if problems:
        where = f"{located.folder}: " if located.folder else ""
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        place = settings.root if task.data.path else "DIR"
        raise DataError(
            f"{where}{problems[0]}{more}.",
            hint=hint or f"All that it needs: harness data check {place} --suite SUITE",
        )
