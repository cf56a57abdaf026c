"""Per-example results: mteb's predictions joined with gold and stable ids that we attach.

mteb writes predictions without gold labels and row ids. Retrieval is taken from our own search;
the rows that a task drew are found again by replaying the draws from the random state that it had
before it ran.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.record import EXAMPLE_COLUMNS
from suites._mteb import lines
from suites._mteb.lines import Line

if TYPE_CHECKING:
    from mteb.abstasks.abstask import AbsTask

    from suites._mteb.model import Model


class Examples:
    """Gathers the per-example columns of a task while its splits and subsets run."""

    def __init__(self, task: AbsTask, model: Model, folder: Path) -> None:
        self._task = task
        self._model = model
        self.folder: Path | None = None if _searches(task) else folder
        self._random: Any = None
        self.columns: dict[str, list[Any]] = {name: [] for name in EXAMPLE_COLUMNS}

    def before(self) -> None:
        """Keep the random state that the next subset starts from."""
        self._random = copy.deepcopy(self._task.rng_state)

    def after(self, split: str, subsets: Sequence[str]) -> None:
        """Take in what came of a split's subsets."""
        for subset in subsets:
            for line in self._lines(split, subset):
                for name, value in zip(EXAMPLE_COLUMNS, (split, subset, *line), strict=True):
                    self.columns[name].append(value)

    def _lines(self, split: str, subset: str) -> Iterable[Line]:
        task = self._task
        if _searches(task):
            return lines.retrieval(task, self._model.found[subset, split], split, subset)
        rows = _rows(task, split, subset)
        predictions = self._predictions(split, _paired(task) or subset)
        if predictions is None or rows is None:
            return ()
        return lines.of(task, rows, predictions, split=split, subset=subset, random=self._random)

    def _predictions(self, split: str, subset: str) -> Any:
        path = (self.folder or Path()) / self._task.prediction_file_name
        if not path.exists():
            return None
        return json.loads(path.read_text()).get(subset, {}).get(split)


def _searches(task: AbsTask) -> bool:
    return any(c.__name__ == "AbsTaskRetrieval" for c in type(task).__mro__)


def _paired(task: AbsTask) -> str:
    """The name under which mteb keeps all language pairs of a parallel corpus, "" for other tasks."""
    return "parallel" if getattr(task, "parallel_subsets", False) else ""


def _rows(task: AbsTask, split: str, subset: str) -> Any:
    from datasets import Dataset

    holder: Any = task.dataset
    if isinstance(holder, Mapping) and subset in holder:
        holder = holder[subset]
    rows = holder[split]
    if isinstance(rows, Dataset) and len(rows) == 1 and isinstance(rows[0].get("labels"), list):
        return Dataset.from_dict(rows[0])  # mteb 1 kept all pairs in one row
    return rows if isinstance(rows, Dataset) else None
