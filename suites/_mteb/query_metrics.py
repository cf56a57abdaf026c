"""The main metric of each query of a retrieval task, such as nDCG, by trec_eval as in mteb."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.core.types import SUBQUERIES


def compute_query_metric(
    metric: str, judged: Any, rankings: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """The main metric of each query, for the metrics that trec_eval has.

    Of a metric over subqueries (`base_1`, `base_2`) each has the score of its base query, whose documents
    have the highest score that any subquery gives.
    """
    if metric.startswith(SUBQUERIES):
        bases = _merge_subqueries(rankings)
        scored = compute_query_metric(
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
    return {q: values[f"{measure}_{depth}"] for q, values in evaluator.evaluate(dict(rankings)).items()}


def _merge_subqueries(
    rankings: Mapping[str, Mapping[str, float]],
) -> dict[str, tuple[list[str], dict[str, float]]]:
    """The subqueries of each base query, and the best score of each document over them."""
    bases: dict[str, tuple[list[str], dict[str, float]]] = {}
    for query, documents in rankings.items():
        queries, best = bases.setdefault(query.rpartition("_")[0], ([], {}))
        queries.append(query)
        for name, score in documents.items():
            best[name] = max(score, best.get(name, score))
    return bases
