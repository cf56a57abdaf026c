"""Files that mteb wrote before version 1.11, read as mteb itself reads them.

They hold split → metric → value, or split → subset → metric → value, and name no main score where
the task had one of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RENAMED = {
    "NorwegianParliament": "NorwegianParliamentClassification",
    "CMedQAv2": "CMedQAv2-reranking",
    "CMedQAv1": "CMedQAv1-reranking",
    "8TagsClustering": "EightTagsClustering",
    "PPC": "PpcPC",
}
"""Tasks that have another name by now."""

GONE = {f"Scala{language}Classification": "accuracy" for language in ("Nb", "Nn", "Da", "Sv")}
"""The metrics of tasks that mteb has no more."""

_ABOUT = ("mteb_dataset_name", "dataset_revision", "mteb_version")
_METRICS = {
    "cos_sim": "cosine",
    "manhattan": "manhattan",
    "euclidean": "euclidean",
    "dot": "dot",
    "max": "max",
    "similarity": "similarity",
}
"""Tables of metrics, and what their metrics' names begin with today."""

_NO_SUBSETS = {"v_measures", "cos_sim", "euclidean", "manhattan", "dot", "max"}
_FRENCH_ONLY = ("MLSUMClusteringP2P", "MLSUMClusteringS2S")

Known = Mapping[str, tuple[str, str]]
"""A task's name and metric by its name, and by that in lower case."""


def known_tasks(metrics: Mapping[str, str]) -> Known:
    """What `convert` must know of the tasks with these metrics, by name."""
    pairs = {name: (name, metric) for name, metric in {**GONE, **metrics}.items()}
    return {**{name.lower(): pair for name, pair in pairs.items()}, **pairs}


def convert(data: Mapping[str, Any], known: Known) -> tuple[str, dict[str, dict[str, Any]]]:
    """The task's name of today, and its main scores: split → subset → score, None where there is none.

    What is no table where one belongs is passed over.
    """
    named = data["mteb_dataset_name"]
    named = RENAMED.get(named, named)
    task, metric = known.get(named) or known.get(named.lower()) or (named, "main_score")
    splits = {s: table for s, table in data.items() if s not in _ABOUT and isinstance(table, dict)}
    nested = any(_has_subsets(table) for table in splits.values())
    scores = {
        split: {subset: _main_score(metrics, metric) for subset, metrics in _subsets(table, nested).items()}
        for split, table in splits.items()
    }
    _rename(task, data.get("mteb_version"), scores)
    return task, scores


def _has_subsets(table: Mapping[str, Any]) -> bool:
    return any(isinstance(value, dict) for name, value in table.items() if name not in _NO_SUBSETS)


def _subsets(table: Mapping[str, Any], nested: bool) -> dict[str, dict[str, Any]]:
    if not nested:
        return {"default": dict(table)}
    return {subset: metrics for subset, metrics in table.items() if isinstance(metrics, dict)}


def _main_score(metrics: Mapping[str, Any], metric: str) -> Any:
    if "main_score" in metrics:
        return metrics["main_score"]
    if metric in metrics:
        return metrics[metric]
    for table, prefix in _METRICS.items():
        within = metrics.get(table)
        if metric.startswith(f"{prefix}_") and isinstance(within, dict):
            return within.get(metric.removeprefix(f"{prefix}_"))
    return None


def _rename(task: str, version: Any, scores: dict[str, dict[str, Any]]) -> None:
    """Give subsets the names they have today."""
    test = scores.get("test", {})
    if task in _FRENCH_ONLY and version in ("1.1.2.dev0", "1.1.3.dev0") and "default" in test:
        test["fr"] = test.pop("default")
    if task == "XPQARetrieval" and "fr" in test:
        test["fra-fra"] = test.pop("fr")
