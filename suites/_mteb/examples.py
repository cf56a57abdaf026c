"""Per-example results: mteb's predictions joined with gold and stable ids that we attach.

mteb writes predictions without gold labels and row ids. Retrieval is taken from our own search;
for clustering the drawn rows are found again by replaying the draws from the random state that
the task had before it ran.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.record import EXAMPLE_COLUMNS

if TYPE_CHECKING:
    from mteb.abstasks.abstask import AbsTask

    from suites._mteb.model import Model

Line = tuple[str, int, str | None, str | None, float | None]
"""example id, replicate, prediction, gold, metric"""


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

    def _lines(self, split: str, subset: str) -> Iterator[Line]:
        task = self._task
        if _searches(task):
            yield from retrieval(task, self._model.found[subset, split], split, subset)
            return
        predictions = self._predictions(split, subset)
        rows = _rows(task, split, subset)
        if predictions is None or rows is None:
            return
        kind = {c.__name__ for c in type(task).__mro__}
        if "AbsTaskSTS" in kind:
            yield from pairs(rows, predictions["cosine_scores"], task.column_names, "score")  # type: ignore[attr-defined]
        elif "AbsTaskPairClassification" in kind:
            columns = (task.input1_column_name, task.input2_column_name)  # type: ignore[attr-defined]
            yield from pairs(rows, predictions["similarity_scores"], columns, task.label_column_name)  # type: ignore[attr-defined]
        elif "AbsTaskClustering" in kind:
            yield from clustering(task, rows, predictions, self._random)
        elif "AbsTaskClassification" in kind and not task.is_cross_validation:  # type: ignore[attr-defined]
            yield from classification(task, rows, predictions)

    def _predictions(self, split: str, subset: str) -> Any:
        path = (self.folder or Path()) / self._task.prediction_file_name
        if not path.exists():
            return None
        return json.loads(path.read_text()).get(subset, {}).get(split)


def retrieval(
    task: AbsTask, found: Mapping[str, Mapping[str, float]], split: str, subset: str
) -> Iterator[Line]:
    """One line a query: its ten best documents, the judged ones, and its own main metric."""
    judged = task.dataset[subset][split]["relevant_docs"]  # type: ignore[index]
    metric = _per_query(task.metadata.main_score, judged, found)
    for query, documents in found.items():
        best = sorted(documents.items(), key=lambda item: (item[1], item[0]), reverse=True)[:10]
        shown = json.dumps([[name, round(score, 6)] for name, score in best])
        yield query, 0, shown, json.dumps(judged[query], sort_keys=True), metric.get(query)


def pairs(rows: Any, predicted: Sequence[float], columns: Sequence[str], gold: str) -> Iterator[Line]:
    """One line a pair: the similarity given to it and its gold score or label."""
    ids = row_ids(rows, columns)
    for name, prediction, truth in zip(ids, predicted, rows[gold], strict=True):
        yield name, 0, repr(prediction), str(truth), None


def classification(task: Any, rows: Any, predictions: Sequence[Sequence[Any]]) -> Iterator[Line]:
    """One line a test text and probe: the label given, the true one, and whether they agree."""
    ids = row_ids(rows, (task.input_column_name,))
    labels = list(rows[task.label_column_name])
    shown = getattr(task, "label_names", None)
    for probe, predicted in enumerate(predictions):
        for name, guess, truth in zip(ids, predicted, labels, strict=True):
            said = (guess, truth) if shown is None else (shown[guess], shown[truth])
            yield name, probe, str(said[0]), str(said[1]), float(guess == truth)


def clustering(task: Any, rows: Any, predictions: Mapping[str, Any], random: Any) -> Iterator[Line]:
    """One line a drawn text: the cluster it was put in and the group it belongs to.

    The replicate counts the draws of all levels in turn.
    """
    count = len(rows)
    limit = task.max_document_to_embed
    if task.max_fraction_of_documents_to_embed is not None:
        limit = int(task.max_fraction_of_documents_to_embed * count)
    if limit is not None:
        rows = rows.select(random.sample(range(count), k=min(count, limit)))
    ids = row_ids(rows, (task.input_column_name,))
    labels = [label if isinstance(label, list) else [label] for label in rows[task.label_column_name]]
    replicate = 0
    for level, draws in enumerate(predictions.values()):
        present = [i for i, label in enumerate(labels) if len(label) > level]
        for assigned in draws:
            drawn = random.choices(range(len(present)), k=task.max_documents_per_cluster)
            for at, cluster in zip(drawn, assigned, strict=True):
                row = present[at]
                yield ids[row], replicate, str(cluster), str(labels[row][level]), None
            replicate += 1


def row_ids(rows: Any, columns: Sequence[str]) -> list[str]:
    """The rows' own ids; else ids from their content, which stay the same when rows move.

    A content id is the start of the hash of the given columns, with a count if it is repeated.
    """
    if "id" in rows.column_names:
        return [str(name) for name in rows["id"]]
    seen: Counter[str] = Counter()
    ids = []
    for row in zip(*(rows[column] for column in columns), strict=True):
        name = hashlib.sha256(json.dumps([str(part) for part in row]).encode()).hexdigest()[:16]
        seen[name] += 1
        ids.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return ids


def _per_query(metric: str, judged: Any, found: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The main metric of each query, for the metrics that trec_eval has."""
    import pytrec_eval

    name, _, depth = metric.rpartition("_at_")
    measure = {"ndcg": "ndcg_cut", "map": "map_cut", "recall": "recall", "precision": "P"}.get(name)
    if measure is None:
        return {}
    evaluator = pytrec_eval.RelevanceEvaluator(dict(judged), {f"{measure}.{depth}"})
    return {q: values[f"{measure}_{depth}"] for q, values in evaluator.evaluate(dict(found)).items()}


def _searches(task: AbsTask) -> bool:
    return any(c.__name__ == "AbsTaskRetrieval" for c in type(task).__mro__)


def _rows(task: AbsTask, split: str, subset: str) -> Any:
    from datasets import Dataset

    holder: Any = task.dataset
    if isinstance(holder, Mapping) and subset in holder:
        holder = holder[subset]
    rows = holder[split]
    if isinstance(rows, Dataset) and len(rows) == 1 and isinstance(rows[0].get("labels"), list):
        return Dataset.from_dict(rows[0])  # mteb 1 kept all pairs in one row
    return rows if isinstance(rows, Dataset) else None
