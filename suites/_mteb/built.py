"""Data that we build or read ourselves, scored by mteb's own task classes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from harness.types import Outcome, Task, TextEncoder
from suites._data import Clusters, Content, Labelled, Pairs, Retrieval
from suites._mteb import version
from suites._mteb.quiet import quiet
from suites._mteb.source import loaded, run

if TYPE_CHECKING:
    from collections.abc import Iterable

    from datasets import Dataset
    from mteb.abstasks.abstask import AbsTask

    from suites._data import Row

DRAWS = 10
"""How often a clustering is repeated on drawn texts, as mteb does."""

RULES = 1
"""Raised whenever the same data would be scored otherwise by the same mteb."""


class Loader(Protocol):
    """Knows how to get a task's data; small, picklable and hashable."""

    def content(self) -> Content:
        """The data, checked.

        Raises:
            DataError: It cannot be read or scored.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class BuiltSource:
    """Scores data that a loader gives, under mteb's rules for its kind."""

    loader: Loader

    @property
    def scoring(self) -> str:
        """The scoring code's name and version."""
        return version.scoring(RULES)

    def evaluate(self, task: Task, encoder: TextEncoder, *, seed: int, data: Path | None) -> Outcome:
        """Score `encoder` on the loader's data (see harness.types.TaskSource)."""
        version.require()
        with quiet():
            made = loaded((task, seed), lambda: mteb_task(task, self.loader.content(), seed=seed))
            return run(made, encoder)


def mteb_task(task: Task, content: Content, *, seed: int) -> AbsTask:
    """An mteb task object that holds `content`, ready to be scored."""
    match content:
        case Retrieval():
            return _retrieval(task, content, seed)
        case Pairs():
            return _pairs(task, content, seed)
        case Labelled():
            return _labelled(task, content, seed)
        case Clusters():
            return _clusters(task, content, seed)


def _retrieval(task: Task, content: Retrieval, seed: int) -> AbsTask:
    from datasets import Dataset
    from mteb.abstasks import AbsTaskRetrieval

    corpus = [{"id": d.id, "title": d.title, "text": d.text} for d in content.documents]
    split = {
        "corpus": Dataset.from_list(corpus),
        "queries": Dataset.from_list([{"id": q.id, "text": q.text} for q in content.queries]),
        "relevant_docs": {query: dict(grades) for query, grades in content.qrels.items()},
        "top_ranked": None,
    }
    rules = {"ignore_identical_ids": content.ignore_identical_ids, "notes": content.notes}
    return _make(AbsTaskRetrieval, task, seed, {"default": {task.splits[0]: split}}, **rules)


def _pairs(task: Task, content: Pairs, seed: int) -> AbsTask:
    from datasets import Dataset
    from mteb.abstasks import AbsTaskSTS

    rows = [{"id": r.id, "sentence1": r.text1, "sentence2": r.text2, "score": r.score} for r in content.rows]
    scores = [row.score for row in content.rows]
    bounds = {"min_score": min(scores), "max_score": max(scores)}
    return _make(AbsTaskSTS, task, seed, {task.splits[0]: Dataset.from_list(rows)}, **bounds)


def _labelled(task: Task, content: Labelled, seed: int) -> AbsTask:
    """Labels become numbers, in their order as text: mteb cannot score two that are words."""
    from datasets import Dataset
    from mteb.abstasks import AbsTaskClassification

    names = sorted({row.label for row in content.train})
    number = {name: at for at, name in enumerate(names)}

    def rows(given: Iterable[Row]) -> Dataset:
        return Dataset.from_list([{"id": r.id, "text": r.text, "label": number[r.label]} for r in given])

    data = {"train": rows(content.train), task.splits[0]: rows(content.test)}
    return _make(AbsTaskClassification, task, seed, data, label_names=names)


def _clusters(task: Task, content: Clusters, seed: int) -> AbsTask:
    from datasets import Dataset
    from mteb.abstasks import AbsTaskClustering

    rules = {
        "max_fraction_of_documents_to_embed": None,
        "max_documents_per_cluster": min(len(content.rows), 16_384),
        "n_clusters": DRAWS,
    }
    rows = [{"id": r.id, "sentences": r.text, "labels": r.label} for r in content.rows]
    return _make(AbsTaskClustering, task, seed, {task.splits[0]: Dataset.from_list(rows)}, **rules)


def _make(base: Any, task: Task, seed: int, data: dict[str, Any], **attributes: Any) -> AbsTask:
    """An instance of a subclass of an mteb task class that has its data already."""
    from datasets import DatasetDict
    from mteb.abstasks.task_metadata import TaskMetadata

    metadata = TaskMetadata(
        name=task.name,
        description=task.name,
        reference=None,
        dataset={"path": "built/here", "revision": task.data.content},
        type=task.type,  # type: ignore[arg-type]
        category="t2t" if task.type in ("Retrieval", "STS") else "t2c",
        modalities=["text"],
        eval_splits=list(task.splits),
        eval_langs=["eng-Latn"],
        main_score=task.metric,
    )
    made: AbsTask = type(base.__name__, (base,), {"metadata": metadata, **attributes})(seed=seed)
    made.dataset = data if task.type == "Retrieval" else DatasetDict(data)
    made.data_loaded = True
    return made
