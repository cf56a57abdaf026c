"""The scores that are wanted, with their keys, before anything is looked up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from harness import data
from harness.errors import DataError
from harness.identity import digest, evaluation_identity
from harness.types import SEED, Artifact, Data, Encoding, Suite, Task

if TYPE_CHECKING:
    from harness.recipe import Laid, Locate, Recipe
    from harness.record import Record

Found = TypeVar("Found", covariant=True)


class Look(Protocol[Found]):
    """A way to find a data set: `data.locate`, or `data.at_hand`."""

    def __call__(self, wanted: Data, settings: data.DataSettings, /, *, subsets: Sequence[str]) -> Found:
        """Where it lies."""
        ...


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model together with how it turns text into vectors."""

    artifact: Artifact
    encoding: Encoding


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One score that is wanted: a subject on a task.

    `located` says where its data lies, `record` is what the store has of it, and `problem` why it
    cannot be run, each as far as somebody has looked; `laid` is what a recipe has to do for it,
    where the task is one to be trained for.
    """

    subject: Subject
    task: Task
    seed: int
    key: str
    identity: Mapping[str, Any]
    located: data.Located | None = None
    record: Record | None = None
    problem: DataError | None = None
    laid: Laid | None = None


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Every score that is wanted, once, in order.

    `keys` says which cell is the score of a subject on a task as a suite has it.
    """

    cells: tuple[Cell, ...]
    keys: Mapping[tuple[Subject, Task], str]


def wanted(
    subjects: Sequence[Subject],
    suites: Sequence[Suite],
    *,
    settings: data.DataSettings,
    seed: int = SEED,
    recipe: Recipe | None = None,
) -> Wanted:
    """Every task of every suite for every subject, each once.

    No record is read. Where a data set is not at hand, the hub is left out too: it could have no
    other than the one that the task pins. `recipe` is needed where tasks have labels.
    """
    tasks = tuple(dict.fromkeys(t for s in suites for t in s.tasks))
    at_hand, locate = looking(data.at_hand, settings), looking(data.locate, settings)
    cells: dict[str, Cell] = {}
    keys: dict[tuple[Subject, Task], str] = {}
    for subject in subjects:
        for task in tasks:
            if task.output == "label":
                assert recipe is not None
                cell = _learnt(subject, task, recipe, locate, seed=seed)
            else:
                cell = _cell(subject, task, at_hand(task), seed=seed)
            keys[subject, task] = cell.key
            cells.setdefault(cell.key, cell)
    return Wanted(cells=tuple(cells.values()), keys=keys)


def looking(look: Look[Found], settings: data.DataSettings) -> Callable[[Task], Found | DataError]:
    """A way to look for a task's data that looks once for each task, and gives the error it meets."""
    found: dict[Task, Found | DataError] = {}

    def looked_for(task: Task) -> Found | DataError:
        if task not in found:
            try:
                found[task] = look(task.data, settings, subsets=task.subsets)
            except DataError as error:
                found[task] = error
        return found[task]

    return looked_for


def _learnt(subject: Subject, task: Task, recipe: Recipe, locate: Locate, *, seed: int) -> Cell:
    """The cell of a task that a recipe trains for."""
    laid = recipe.lay_out(subject.artifact, task, locate=locate)
    return Cell(
        subject=subject,
        task=task,
        seed=seed,
        key=digest(laid.identity),
        identity=laid.identity,
        problem=laid.problem,
        laid=laid,
    )


def _cell(subject: Subject, task: Task, found: data.Located | DataError | None, *, seed: int) -> Cell:
    located = found if isinstance(found, data.Located) else None
    if located is not None:
        task = replace(task, data=located.data)
    identity = evaluation_identity(subject.artifact, task, subject.encoding, seed=seed)
    return Cell(
        subject=subject,
        task=task,
        seed=seed,
        key=digest(identity),
        identity=identity,
        located=located,
        problem=found if isinstance(found, DataError) else None,
    )
