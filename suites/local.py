"""A folder of your own data: retrieval in BEIR layout, scored pairs, labelled texts."""

from dataclasses import dataclass

from harness.types import SIDES, Column, Data, Suite, SuiteEntry, SuiteOptions, Task
from suites import _local_description, _local_rows, _tables
from suites._content import Content
from suites._local_description import KINDS, LocalTask
from suites._local_rows import LocalSource
from suites._mteb.snapshot import narrowed
from suites._mteb.source import BuiltSource
from suites._tables import place


@dataclass(frozen=True, kw_only=True)
class FolderLoader:
    """One task of a user's folder that is scored from vectors."""

    task: LocalTask
    planned: str

    def content(self) -> Content:
        """The task's data, read and checked.

        Raises:
            DataError: A file cannot be used, or changed after the plan was made.
        """
        _tables.require(self.task.name, self.task.content, self.planned)
        return _local_rows.load_vectors(self.task)


def _open(argument: str, options: SuiteOptions) -> Suite:
    folder = place(argument)
    columns = tuple(_column(task) for task in _local_description.read(folder))
    return narrowed(Suite(name=f"local:{argument}", title=folder.name, columns=columns), options)


def _column(task: LocalTask) -> Column:
    type_, content = KINDS[task.type].type, task.content
    made = Task(
        name=task.name,
        type=type_,
        metric=task.metric,
        splits=(task.split,),
        data=Data(content=content),
        roles=SIDES if type_ == "Retrieval" else ("",),
        output="label" if task.learning else "vector",
        source=_source(task, content),
    )
    return Column(name=task.name, type=type_, tasks=(made,))


def _source(task: LocalTask, content: str) -> LocalSource | BuiltSource:
    if task.learning:
        return LocalSource(task=task, learning=task.learning)
    return BuiltSource(loader=FolderLoader(task=task, planned=content))


SUITE = SuiteEntry(
    name="local",
    summary="Your own data: a folder in BEIR layout, or described by a harness.toml (docs/local-data.md)",
    open=_open,
    argument="folder",
    alone=False,
)
