"""The per-example lines of tasks that are scored on a part of their rows: drawn, sampled, or set by set."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from suites._mteb.line import Line, row_ids

if TYPE_CHECKING:
    from datasets import Dataset


def multilabel(task: Any, rows: Any, predictions: Sequence[Any], split: str) -> Iterator[Line]:
    """One line a test text and probe: the labels given, the true ones, and whether all agree."""
    from mteb.abstasks.abstask import _multilabel_subsampling

    if task.max_eval_samples is not None and len(rows) > task.max_eval_samples:
        rows = _multilabel_subsampling(
            _as_dict(split, rows),
            seed=task.seed,
            splits=[split],
            label=task.label_column_name,
            n_samples=task.max_eval_samples,
        )[split]
    ids = row_ids(rows, (task.input_column_name,))
    gold = [sorted(set(labels)) for labels in rows[task.label_column_name]]
    known = sorted({label for labels in gold for label in labels})
    for probe, predicted in enumerate(predictions):
        for name, flags, truth in zip(ids, predicted, gold, strict=True):
            guess = [label for label, flag in zip(known, flags, strict=True) if flag]
            yield name, probe, json.dumps(guess), json.dumps(truth), float(guess == truth)


def clustering(task: Any, rows: Any, predictions: Mapping[str, Any], random: Any) -> Iterator[Line]:
    """One line a drawn text: the cluster it was put in and the group it belongs to.

    The replicate counts the draws of all levels in turn.
    """
    rows = _embedded(task, rows, random)
    ids = row_ids(rows, (task.input_column_name,))
    labels = [label if isinstance(label, list) else [label] for label in rows[task.label_column_name]]
    replicate = 0
    for level, draws in enumerate(predictions.values()):
        gold, present = _at_level(labels, level)
        for assigned in draws:
            drawn = random.choices(range(len(present)), k=task.max_documents_per_cluster)
            for at, cluster in zip(drawn, assigned, strict=True):
                row = present[at]
                yield ids[row], replicate, str(cluster), str(gold[row]), None
            replicate += 1


def _embedded(task: Any, rows: Dataset, random: Any) -> Dataset:
    """The rows that mteb encodes and draws from."""
    count, limit = len(rows), task.max_document_to_embed
    if task.max_fraction_of_documents_to_embed is not None:
        limit = int(task.max_fraction_of_documents_to_embed * count)
    return rows if limit is None else rows.select(random.sample(range(count), k=min(count, limit)))


def _at_level(labels: Sequence[Sequence[Any]], level: int) -> tuple[Any, list[int]]:
    """The group of every row on one level of a hierarchy, and the rows that mteb draws from there.

    A row without this level has the group -1 and is left out. Among groups that are words this is
    the word "-1", which is not equal to the number, so that such rows stay, as they do in mteb.
    """
    import numpy as np

    gold = np.array([label[level] if len(label) > level else -1 for label in labels])
    return gold, [row for row, group in enumerate(gold) if group != -1]


def clustering_sets(task: Any, rows: Any, predictions: Sequence[Sequence[int]]) -> Iterator[Line]:
    """One line a text of each set that is clustered on its own; the replicate is the set.

    A set of one group is not clustered by mteb, and has no lines.
    """
    from datasets import Dataset

    assigned = iter(predictions)
    for number, row in enumerate(rows):
        labels = row[task.label_column_name]
        if len(set(labels)) <= 1:
            continue
        texts = Dataset.from_dict({"text": row[task.input_column_name]})
        for name, cluster, label in zip(row_ids(texts, ("text",)), next(assigned), labels, strict=True):
            yield name, number, str(cluster), str(label), None


def _as_dict(split: str, rows: Dataset) -> Any:
    from datasets import DatasetDict

    return DatasetDict({split: rows})
