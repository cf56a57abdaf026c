"""Tasks of mteb: built fresh for every score, run by mteb's own task code."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import DataError
from harness.types import Data, Outcome, Scores, Task, TextEncoder
from suites._mteb import snapshot, version
from suites._mteb.columns import in_new_containers, with_lists
from suites._mteb.info import TaskInfo
from suites._mteb.quiet import quiet

if TYPE_CHECKING:
    from mteb.abstasks.abstask import AbsTask

_loaded: dict[tuple[object, ...], AbsTask] = {}
"""The task whose data was loaded last, as it was before anything ran on it."""


@dataclass(frozen=True, kw_only=True)
class MtebSource:
    """Scores the task of mteb that has the same name."""

    @property
    def scoring(self) -> str:
        """The scoring code's name and version."""
        return version.scoring()

    def evaluate(self, task: Task, encoder: TextEncoder, *, seed: int, data: Path | None) -> Outcome:
        """Score `encoder` on the mteb task of this name (see harness.types.TaskSource)."""
        version.require()
        info = snapshot.load().task(task.name)
        _require_hub(info, data)
        with quiet():
            outcome = run(fresh(task, seed=seed, data=data), encoder)
        return replace(outcome, notes=(*outcome.notes, *_pinned(info, task.data)))


def _require_hub(info: TaskInfo, data: Path | None) -> None:
    """Refuse a task that reads the hub by itself where its data is to come from elsewhere.

    Raises:
        DataError: Its data lies in a data root, or the hub may not be asked.
    """
    from huggingface_hub import constants

    if not info.fixed_data or data is None:
        return
    if constants.HF_HUB_OFFLINE or not data.is_relative_to(constants.HF_HUB_CACHE):
        raise DataError(
            f"mteb's code of {info.name} reads {info.path} from the hub by itself, not from {data}.",
            hint="It can be scored online only, and not with a data root that holds this data set.",
        )


def _pinned(info: TaskInfo, data: Data) -> tuple[str, ...]:
    """What to know of a result whose data set is not held to a commit."""
    if info.fixed_data:
        return (f"mteb reads {info.path} at the hub's newest revision: a change of it is not noticed.",)
    if info.on_a_branch and data.revision == info.revision:
        return (f"mteb pins {info.path} to the branch {info.revision}: a change of it is not noticed.",)
    return ()


def fresh(task: Task, *, seed: int, data: Path | None) -> AbsTask:
    """A task object of mteb on which nothing has run yet, with its data."""

    def make() -> AbsTask:
        built = build(task, seed=seed, data=data)
        built.load_data()
        return built

    return loaded((task, seed, data), make)


def loaded(wanted: tuple[object, ...], make: Callable[[], AbsTask]) -> AbsTask:
    """A copy of the loaded task that `make` gives; the last one made is kept.

    Each copy has the random state that the task had right after loading, so what is scored
    first changes nothing for what is scored next.
    """
    if wanted not in _loaded:
        _loaded.clear()
        made = make()
        made.dataset = with_lists(made.dataset)
        _loaded[wanted] = made
    return duplicate(_loaded[wanted])


def build(task: Task, *, seed: int, data: Path | None) -> AbsTask:
    """mteb's task object, narrowed to the splits and subsets, its data path put in place."""
    import mteb

    found = mteb.get_task(task.name, eval_splits=list(task.splits), hf_subsets=list(task.subsets))
    if seed != 42:
        built = type(found)(seed=seed)
        built.filter_eval_splits(list(task.splits))
        built.hf_subsets = found.hf_subsets
        found = built
    if data is not None:
        where = {**found.metadata.dataset, "path": str(data)}
        found.metadata = found.metadata.model_copy(update={"dataset": where})
    return found


def duplicate(task: AbsTask) -> AbsTask:
    """A copy that shares the data but not the random state nor the containers around the data."""
    twin = copy.copy(task)
    twin.rng_state = copy.deepcopy(task.rng_state)
    twin.np_rng = copy.deepcopy(task.np_rng)
    twin.dataset = in_new_containers(task.dataset, lambda data: data)
    return twin


def run(task: AbsTask, encoder: TextEncoder) -> Outcome:
    """Run a loaded task and gather scores and examples.

    Raises:
        DataError: The main score is not a number.
    """
    import tempfile

    from suites._mteb.examples import Examples, is_parallel
    from suites._mteb.model import Model

    model = Model(encoder)
    scores: dict[str, dict[str, Mapping[str, Any]]] = {}
    together = is_parallel(task)
    with tempfile.TemporaryDirectory() as folder:
        examples = Examples(task, model, Path(folder))
        for split in task.eval_splits:
            scores[split] = {}
            for subsets in [list(task.hf_subsets)] if together else [[s] for s in task.hf_subsets]:
                examples.before(split, subsets)
                made = task.evaluate(
                    model,
                    split,
                    subsets_to_run=subsets,
                    encode_kwargs={"show_progress_bar": False},
                    prediction_folder=examples.folder,
                )
                scores[split].update({name: plain(values) for name, values in made.items()})
                examples.after(split, subsets)
    return Outcome(
        main_score=main_score(scores),
        scores=scores,
        examples=examples.columns,
        notes=(*getattr(task, "notes", ()), *examples.notes),
    )


def main_score(scores: Scores) -> float:
    """The mean of the main score over all splits and subsets, as mteb takes it.

    Raises:
        DataError: It is not a finite number.
    """
    values = [float(subset["main_score"]) for split in scores.values() for subset in split.values()]
    mean = sum(values) / len(values)
    if not math.isfinite(mean):
        raise DataError(f"The main score came out as {mean}: too few examples, or constant ones.")
    return mean


def plain(value: Any) -> Any:
    """JSON's own types for what task code returns; NaN becomes None."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
