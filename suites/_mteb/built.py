"""Data that is built or read here, scored by the code of mteb for its kind."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from harness.core.types import Outcome, Task, TextModel
from suites._content import Clusters, Content, Labelled, Pairs, Retrieval
from suites._mteb.model import collect_corpus_texts
from suites._mteb.source import (
    copy_loaded_task,
    format_scoring_version,
    hide_mteb_output,
    require_mteb,
    run_mteb_task,
)

if TYPE_CHECKING:
    from mteb.abstasks.abstask import AbsTask

DRAWS = 10
"""Repetitions of a clustering on drawn texts, as in mteb."""

RULES = 1
"""The version of our rules, raised when a change gives other scores with the same mteb and data."""


class _Loader(Protocol):
    """A loader of a task's data; small, picklable and hashable."""

    def content(self) -> Content:
        """The data, checked."""
        ...


@dataclass(frozen=True, kw_only=True)
class BuiltSource:
    """The source of data that a loader gives, scored under mteb's rules for its kind."""

    loader: _Loader

    @property
    def scoring(self) -> str:
        """The scoring code's name and version."""
        return format_scoring_version(RULES)

    def evaluate(self, task: Task, encoder: TextModel, *, seed: int, data: Path | None) -> Outcome:
        """Score `encoder` on the loader's data (see harness.core.types.TaskSource)."""
        require_mteb()
        with hide_mteb_output():
            return run_mteb_task(self.build_mteb_task(task, seed=seed), encoder, task.documents)

    def corpus(self, task: Task, *, seed: int, data: Path | None) -> list[Any] | None:
        """The texts of the task (see harness.core.types.CorpusSource)."""
        require_mteb()
        with hide_mteb_output():
            return collect_corpus_texts(self.build_mteb_task(task, seed=seed), task.documents)

    def build_mteb_task(self, task: Task, *, seed: int) -> AbsTask:
        """The task object of mteb that is scored: it holds the loader's content, and nothing has run on it.

        Args:
            task: The task.
            seed: The seed of the samples that mteb draws.
        """
        return copy_loaded_task(
            task, (seed,), lambda: _build_content_task(task, self.loader.content(), seed=seed)
        )


def _build_content_task(task: Task, content: Content, *, seed: int) -> AbsTask:
    """An mteb task object that holds `content`, ready to be scored."""
    from datasets import Dataset, DatasetDict
    from mteb.abstasks import AbsTaskClassification, AbsTaskClustering, AbsTaskRetrieval, AbsTaskSTS

    make, split = functools.partial(_make, task, seed), task.splits[0]
    match content:
        case Retrieval():
            corpus = [{"id": d.id, "title": d.title, "text": d.text} for d in content.documents]
            part = {
                "corpus": Dataset.from_list(corpus),
                "queries": Dataset.from_list([{"id": q.id, "text": q.text} for q in content.queries]),
                "relevant_docs": {query: dict(grades) for query, grades in content.qrels.items()},
                "top_ranked": None,
            }
            rules = {"ignore_identical_ids": content.ignore_identical_ids, "notes": content.notes}
            return make(AbsTaskRetrieval, {"default": {split: part}}, **rules)
        case Pairs():
            pairs = [
                {"id": r.id, "sentence1": r.text1, "sentence2": r.text2, "score": r.score}
                for r in content.rows
            ]
            scores = [row.score for row in content.rows]
            data = DatasetDict({split: Dataset.from_list(pairs)})
            return make(AbsTaskSTS, data, min_score=min(scores), max_score=max(scores))
        case Labelled():
            # Labels become numbers in text order, as mteb cannot score two words.
            names = sorted({row.label for row in content.train})
            number = {name: place for place, name in enumerate(names)}
            data = DatasetDict(
                {
                    name: Dataset.from_list(
                        [{"id": r.id, "text": r.text, "label": number[r.label]} for r in rows]
                    )
                    for name, rows in {"train": content.train, split: content.test}.items()
                }
            )
            return make(AbsTaskClassification, data, label_names=names)
        case Clusters():
            texts = [{"id": r.id, "sentences": r.text, "labels": r.label} for r in content.rows]
            return make(
                AbsTaskClustering,
                DatasetDict({split: Dataset.from_list(texts)}),
                # mteb's default, 4 % of the texts, is made for very large sets.
                max_fraction_of_documents_to_embed=None,
                # 16,384 is mteb's own number.
                max_documents_per_cluster=min(len(content.rows), 16_384),
                n_clusters=DRAWS,
            )


def _make(task: Task, seed: int, base: Any, data: dict[str, Any], **attributes: Any) -> AbsTask:
    """An instance of a new subclass of an mteb task class, with its data."""
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
    mteb_task: AbsTask = type(base.__name__, (base,), {"metadata": metadata, **attributes})(seed=seed)
    mteb_task.dataset = data
    mteb_task.data_loaded = True
    return mteb_task
