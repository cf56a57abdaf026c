"""The plan of a run: which scores are wanted, which are there, and the jobs for the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness import data
from harness.errors import DataError
from harness.identity import digest, evaluation_identity
from harness.jobs import Encode, Job, Resolve, Score
from harness.record import Record
from harness.store import Store
from harness.types import SEED, Artifact, Encoding, Purpose, Suite, Task


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model together with how it turns text into vectors."""

    artifact: Artifact
    encoding: Encoding


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One score that is wanted: a subject on a task.

    `record` is what the store has of it; `problem` says why it cannot be run.
    """

    subject: Subject
    task: Task
    seed: int
    key: str
    identity: Mapping[str, Any]
    located: data.Located | None = None
    record: Record | None = None
    problem: DataError | None = None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything a run wants: the cells, and the jobs that fill the open ones.

    `keys` says which cell is the score of a subject on a task as a suite has it.
    """

    cells: tuple[Cell, ...]
    jobs: tuple[Job, ...]
    keys: Mapping[tuple[Subject, Task], str]
    purpose: Purpose = "final"

    @property
    def open(self) -> tuple[Cell, ...]:
        """Cells that are neither done nor impossible."""
        return tuple(c for c in self.cells if c.record is None and c.problem is None)

    @property
    def impossible(self) -> tuple[Cell, ...]:
        """Cells whose data cannot be had."""
        return tuple(c for c in self.cells if c.problem is not None)


def make_plan(
    subjects: Sequence[Subject],
    suites: Sequence[Suite],
    *,
    store: Store,
    settings: data.DataSettings,
    seed: int = SEED,
    force: bool = False,
    gate: bool = True,
    purpose: Purpose = "final",
) -> Plan:
    """Lay out a run: every task of every suite for every subject, each once."""
    tasks = tuple(dict.fromkeys(t for s in suites for t in s.tasks))
    located = {task: _locate(task, settings) for task in tasks}
    cells: dict[str, Cell] = {}
    keys: dict[tuple[Subject, Task], str] = {}
    for subject in subjects:
        for task in tasks:
            cell = _cell(subject, task, located[task], seed=seed)
            keys[subject, task] = cell.key
            if cell.key not in cells:
                known = None if force else _known(cell, store, purpose)
                cells[cell.key] = replace(cell, record=known)
    jobs = tuple(_jobs(cells.values(), gate=gate, purpose=purpose))
    return Plan(cells=tuple(cells.values()), jobs=jobs, keys=keys, purpose=purpose)


def _locate(task: Task, settings: data.DataSettings) -> data.Located | DataError:
    try:
        return data.locate(task.data, settings, subsets=task.subsets)
    except DataError as error:
        return error


def _known(cell: Cell, store: Store, purpose: Purpose) -> Record | None:
    return store.get(cell.subject.artifact.slug, cell.task.name, cell.key, purpose=purpose)


def _cell(subject: Subject, task: Task, located: data.Located | DataError, *, seed: int) -> Cell:
    problem = located if isinstance(located, DataError) else None
    if not isinstance(located, DataError):
        task = replace(task, data=located.data)
    identity = evaluation_identity(subject.artifact, task, subject.encoding, seed=seed)
    return Cell(
        subject=subject,
        task=task,
        seed=seed,
        key=digest(identity),
        identity=identity,
        located=None if isinstance(located, DataError) else located,
        problem=problem,
    )


def _jobs(cells: Iterable[Cell], *, gate: bool, purpose: Purpose) -> Iterable[Job]:
    resolved: set[str] = set()
    for cell in cells:
        if cell.record is not None or cell.located is None:
            continue
        artifact, encoding = cell.subject.artifact, cell.subject.encoding
        resolve = digest({"job": "resolve", "artifact": artifact.key, "encoding": encoding})
        if resolve not in resolved:
            resolved.add(resolve)
            yield Job(
                key=resolve,
                kind="resolve",
                label=artifact.name,
                work=Resolve(artifact=artifact, encoding=encoding, gate=gate),
            )
        yield from _task_jobs(cell, resolve, purpose)


def _task_jobs(cell: Cell, resolve: str, purpose: Purpose) -> Iterable[Job]:
    assert cell.located is not None
    artifact, encoding = cell.subject.artifact, cell.subject.encoding
    folder = cell.located.folder
    encode = digest({"job": "encode", "evaluation": cell.key})
    label = f"{cell.task.name} ({artifact.name})"
    yield Job(
        key=encode,
        kind="encode",
        label=label,
        inputs=(resolve,),
        claim=cell.key,
        work=Encode(artifact=artifact, encoding=encoding, task=cell.task, seed=cell.seed, data=folder),
    )
    yield Job(
        key=cell.key,
        kind="score",
        label=label,
        inputs=(resolve, encode),
        claim=cell.key,
        work=Score(
            artifact=artifact,
            encoding=encoding,
            task=cell.task,
            seed=cell.seed,
            data=folder,
            key=cell.key,
            identity=cell.identity,
            purpose=purpose,
        ),
    )
