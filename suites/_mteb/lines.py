"""The per-example lines of each kind of task, from mteb's predictions and the rows they belong to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from suites._mteb.drawn_lines import clustering, clustering_sets, multilabel
from suites._mteb.line import Line, row_ids

if TYPE_CHECKING:
    from datasets import Dataset
    from mteb.abstasks.abstask import AbsTask


def of(task: Any, rows: Dataset, predictions: Any, *, split: str, subset: str, random: Any) -> Iterable[Line]:
    """The lines of any task that does not search; none for a kind that has no examples.

    Args:
        task: mteb's task object, after it ran.
        rows: The rows of the split, with gold.
        predictions: What mteb wrote of them.
        split: The split.
        subset: The subset, which names the two columns of a parallel corpus.
        random: The random state the task had before it ran.
    """
    kinds = [c.__name__.removeprefix("AbsTask") for c in type(task).__mro__]
    match next((kind for kind in kinds if kind in KINDS), None):
        case "STS":
            return pairs(rows, predictions["cosine_scores"], task.column_names, "score")
        case "PairClassification":
            columns = (task.input1_column_name, task.input2_column_name)
            return pairs(rows, predictions["similarity_scores"], columns, task.label_column_name)
        case "Clustering":
            return clustering(task, rows, predictions, random)
        case "ClusteringLegacy":
            return clustering_sets(task, rows, predictions)
        case "MultilabelClassification":
            return multilabel(task, rows, predictions, split)
        case "Regression":
            return regression(task, rows, predictions)
        case "Classification":
            folds = cross_validated if task.is_cross_validation else classification
            return folds(task, rows, predictions)
        case "BitextMining":
            return bitext(rows, predictions, subset if task.parallel_subsets else "sentence1-sentence2")
        case "Summarization":
            return summaries(task, rows, predictions)
    return ()


KINDS = frozenset(
    {
        "STS",
        "PairClassification",
        "Clustering",
        "ClusteringLegacy",
        "MultilabelClassification",
        "Regression",
        "Classification",
        "BitextMining",
        "Summarization",
    }
)
"""What follows AbsTask in the names of mteb's classes; a subclass is looked up before its base."""


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
    for probe, predicted in enumerate(predictions):
        yield from _labelled(task, zip(ids, predicted, labels, strict=True), probe)


def cross_validated(task: Any, rows: Any, predictions: Sequence[Sequence[Any]]) -> Iterator[Line]:
    """One line a text: the label it was given in the fold that left it out; the replicate is the fold."""
    from sklearn.model_selection import KFold

    ids = row_ids(rows, (task.input_column_name,))
    labels = list(rows[task.label_column_name])
    folds = KFold(n_splits=task.n_splits, shuffle=True, random_state=task.seed).split(range(len(rows)))
    for fold, (predicted, (_, held_out)) in enumerate(zip(predictions, folds, strict=True)):
        named = [(ids[row], labels[row]) for row in held_out]
        told = zip(named, predicted, strict=True)
        yield from _labelled(task, ((name, guess, truth) for (name, truth), guess in told), fold)


def regression(task: Any, rows: Any, predictions: Sequence[Sequence[float]]) -> Iterator[Line]:
    """One line a test text and probe: the value given and the true one."""
    ids = row_ids(rows, (task.input_column_name,))
    values = list(rows[task.label_column_name])
    for probe, predicted in enumerate(predictions):
        for name, guess, truth in zip(ids, predicted, values, strict=True):
            yield name, probe, repr(guess), str(truth), None


def bitext(rows: Any, predictions: Mapping[str, Sequence[Mapping[str, Any]]], pair: str) -> Iterator[Line]:
    """One line a sentence: the nearest in the other language, its translation, whether they are one."""
    ids = row_ids(rows, pair.split("-"))
    for row, (name, found) in enumerate(zip(ids, predictions[pair], strict=True)):
        at = int(found["corpus_id"])
        yield name, 0, ids[at], name, float(at == row)


def summaries(task: Any, rows: Any, predictions: Mapping[str, Sequence[Any]]) -> Iterator[Line]:
    """One line a machine summary: its likeness to the human ones and the grade people gave it.

    mteb leaves out a text whose summaries all have one grade.

    Raises:
        ValueError: It left out others too, and which ones cannot be told.
    """
    ids = row_ids(rows, (task.text_column_name,))
    grades = list(rows[task.relevancy_column_name])
    kept = [row for row, values in enumerate(grades) if len(set(values)) > 1]
    if len(kept) != len(predictions["cosine_scores"]):
        raise ValueError(f"{len(kept)} texts can be scored, {len(predictions['cosine_scores'])} were")
    for row, predicted in zip(kept, predictions["cosine_scores"], strict=True):
        for number, (guess, grade) in enumerate(zip(predicted, grades[row], strict=True)):
            yield f"{ids[row]}/{number}", 0, repr(guess), str(grade), None


SUBQUERIES = "max_over_subqueries_"


def _per_query(metric: str, judged: Any, found: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The main metric of each query, for the metrics that trec_eval has.

    Of a metric over subqueries (`base_1`, `base_2`) each has what its base query scores, whose
    documents have the highest score that any of them gives.
    """
    if metric.startswith(SUBQUERIES):
        bases = _joined(found)
        scored = _per_query(
            metric.removeprefix(SUBQUERIES),
            {b: judged[qs[-1]] for b, (qs, _) in bases.items()},
            {b: documents for b, (_, documents) in bases.items()},
        )
        return {
            query: scored[base] for base, (queries, _) in bases.items() for query in queries if base in scored
        }
    import pytrec_eval

    name, _, depth = metric.rpartition("_at_")
    measure = {"ndcg": "ndcg_cut", "map": "map_cut", "recall": "recall", "precision": "P"}.get(name)
    if measure is None:
        return {}
    evaluator = pytrec_eval.RelevanceEvaluator(dict(judged), {f"{measure}.{depth}"})
    return {q: values[f"{measure}_{depth}"] for q, values in evaluator.evaluate(dict(found)).items()}


def _joined(
    found: Mapping[str, Mapping[str, float]],
) -> dict[str, tuple[list[str], dict[str, float]]]:
    """The subqueries of each base query, and the best score of each document over them."""
    bases: dict[str, tuple[list[str], dict[str, float]]] = {}
    for query, documents in found.items():
        queries, best = bases.setdefault(query.rpartition("_")[0], ([], {}))
        queries.append(query)
        for name, score in documents.items():
            best[name] = max(score, best.get(name, score))
    return bases


def _labelled(task: Any, told: Iterable[tuple[str, Any, Any]], replicate: int) -> Iterator[Line]:
    shown = getattr(task, "label_names", None)
    for name, guess, truth in told:
        said = (guess, truth) if shown is None else (shown[guess], shown[truth])
        yield name, replicate, str(said[0]), str(said[1]), float(guess == truth)
