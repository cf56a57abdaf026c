"""Per-example results: mteb's predictions joined with gold and stable ids that we attach.

mteb writes predictions without gold labels and row ids. Retrieval is taken from our own search;
the rows that a task drew are found again by replaying the draws from the random state that it had
before it ran.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.record import EXAMPLE_COLUMNS
from suites._mteb import lines
from suites._mteb.line import Line

if TYPE_CHECKING:
    from mteb.abstasks.abstask import AbsTask

    from suites._mteb.model import Model

MOST = 1_000_000
"""More lines than these are not kept of one task."""


class Examples:
    """Gathers the per-example columns of a task while its splits and subsets run.

    They are kept whole or not at all: where there are too many lines, or one cannot be made, there
    are no columns, and `notes` say why. A score never depends on them.
    """

    def __init__(self, task: AbsTask, model: Model, folder: Path) -> None:
        self._task = task
        self._model = model
        self.folder: Path | None = None if _searches(task) else folder
        self._random: Any = None
        self._columns: dict[str, list[Any]] = {name: [] for name in EXAMPLE_COLUMNS}
        self._kept = True
        self.notes: tuple[str, ...] = ()

    @property
    def columns(self) -> dict[str, list[Any]]:
        """The columns of the per-example file (harness.record.EXAMPLE_COLUMNS), {} without lines."""
        return self._columns if self._count else {}

    def before(self, split: str, subsets: Sequence[str]) -> None:
        """Keep the random state that the next subsets start from; `folder` is where mteb is to write."""
        self._random = copy.deepcopy(self._task.rng_state)
        with self._guarded():
            if is_parallel(self._task):
                rows = len(self._task.dataset[split])  # type: ignore[index]
                self._allow(self._count + rows * len(subsets))

    def after(self, split: str, subsets: Sequence[str]) -> None:
        """Take in what came of a split's subsets."""
        with self._guarded():
            written = self._written() if self._kept else {}
            for subset in subsets if self._kept else ():
                self._take(split, subset, written)

    @property
    def _count(self) -> int:
        return len(self._columns["split"])

    def _take(self, split: str, subset: str, written: Mapping[str, Any]) -> None:
        for line in self._lines_of(split, subset, written):
            for name, value in zip(EXAMPLE_COLUMNS, (split, subset, *line), strict=True):
                self._columns[name].append(value)
            if not self._allow(self._count):
                return

    def _lines_of(self, split: str, subset: str, written: Mapping[str, Any]) -> Iterable[Line]:
        task = self._task
        if _searches(task):
            return lines.retrieval(task, self._model.found[subset, split], split, subset)
        rows = _rows(task, split, subset)
        predictions = written.get("parallel" if is_parallel(task) else subset, {}).get(split)
        if predictions is None or rows is None:
            return ()
        return lines.of(task, rows, predictions, split=split, subset=subset, random=self._random)

    def _written(self) -> Mapping[str, Any]:
        """What mteb wrote since the last time; it would read and write all of it again for the next."""
        path = (self.folder or Path()) / self._task.prediction_file_name
        if self.folder is None or not path.exists():
            return {}
        written: Mapping[str, Any] = json.loads(path.read_bytes())
        path.unlink()
        return written

    def _allow(self, count: int) -> bool:
        if count > MOST:
            self._give_up(f"No per-example results: there are more than {MOST:,}.")
        return self._kept

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Let what goes wrong with the lines cost the lines only."""
        try:
            yield
        except Exception as error:
            self._give_up(f"No per-example results: {type(error).__name__}: {error}")

    def _give_up(self, note: str) -> None:
        if self._kept:
            self.notes = (note,)
        self._kept, self.folder = False, None
        self._columns = {name: [] for name in EXAMPLE_COLUMNS}


def _searches(task: AbsTask) -> bool:
    return _is(task, "AbsTaskRetrieval")


def _is(task: AbsTask, name: str) -> bool:
    return any(c.__name__ == name for c in type(task).__mro__)


def is_parallel(task: AbsTask) -> bool:
    """Whether mteb scores all language pairs of a parallel corpus together, under one name."""
    return bool(getattr(task, "parallel_subsets", False))


def _rows(task: Any, split: str, subset: str) -> Any:
    from datasets import Dataset

    holder: Any = task.dataset
    if isinstance(holder, Mapping) and subset in holder:
        holder = holder[subset]
    rows = holder[split]
    if not isinstance(rows, Dataset):
        return None
    if _is(task, "AbsTaskPairClassification") and len(rows) == 1:
        inside = rows[0]  # mteb 1 kept all pairs in one row
        return Dataset.from_dict(inside) if isinstance(inside[task.label_column_name], list) else rows
    return rows
