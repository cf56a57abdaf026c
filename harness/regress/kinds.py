"""How the score of each type of task comes about from the rows of its per-example file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.metrics import METRICS, Floats
from harness.regress.measures import v_measure
from harness.regress.rows import Rows, digest
from harness.regress.units import Stratum

SUBQUERIES = "max_over_subqueries_"

NOTHING: Floats = np.zeros(0)


class NotTestableError(Exception):
    """There are no units that a score could be computed of again; the message says why."""


def measured(kind: str, metric: str) -> str:
    """The raw metric that is computed of single examples where `metric` is a task's main one."""
    return "similarity_ap" if (kind, metric) == ("PairClassification", "max_ap") else metric


def units_of(kind: str, metric: str, rows: Rows) -> tuple[str, list[Stratum]]:
    """What the units of one split and subset are, and they themselves; their shares sum to 1.

    Args:
        kind: The task's type.
        metric: Its main metric.
        rows: Of the split and subset, by the ids of the examples.

    Raises:
        NotTestableError: The metric cannot be computed of these rows.
    """
    match kind, metric:
        case "STS", "cosine_spearman" | "cosine_pearson":
            gold, predicted = _numbers(rows)
            return "pairs", [_one(metric.removeprefix("cosine_"), gold, predicted, rows.digest)]
        case "PairClassification", "max_ap":
            gold, predicted = _numbers(rows)
            return "pairs", [_one("average_precision", gold, predicted, rows.digest)]
        case "Summarization", "cosine_spearman":
            return "texts", [_summaries(rows)]
        case "Clustering", "v_measure":
            return "draws", [_draws(rows)]
        case "BitextMining", "f1":
            gold, predicted = _codes(rows)
            return "sentences", [_one("weighted_f1", gold, predicted, rows.digest)]
        case (("Classification" | "MultilabelClassification"), "accuracy"):
            return "texts", _probes(rows, "mean")
        case "Classification", "f1":
            return "texts", _probes(rows, "macro_f1")
    return "queries", [_queries(rows, metric)]


def _one(measure: str, gold: Floats, predicted: Floats, examples: str) -> Stratum:
    return Stratum(measures=(measure,), gold=gold, predicted=predicted[None, None, :], examples=examples)


def _mean(values: Sequence[float] | Floats, examples: str) -> Stratum:
    return _one("mean", NOTHING, np.asarray(values, dtype=np.float64), examples)


def _numbers(rows: Rows) -> tuple[Floats, Floats]:
    return rows.gold.astype(np.float64), rows.prediction.astype(np.float64)


def _codes(rows: Rows) -> tuple[Floats, Floats]:
    """Labels as numbers, the same for gold and prediction, and in every file."""
    names, places = np.unique(np.concatenate([rows.gold, rows.prediction]).astype(str), return_inverse=True)
    codes = np.array([_code(name) for name in names.tolist()])[places]
    return codes[: len(rows.gold)], codes[len(rows.gold) :]


def _code(label: str) -> float:
    """A whole number that stands for a label, of as many bits as a float keeps."""
    return float(int(digest([label])[:13], 16))


def _queries(rows: Rows, metric: str) -> Stratum:
    if not np.isfinite(rows.metric).all():
        raise NotTestableError(f"the per-example file has no {metric} of single queries")
    if not metric.startswith(SUBQUERIES):
        return _mean(rows.metric, rows.digest)
    whole = np.array([name.rpartition("_")[0] for name in rows.ids.tolist()])
    names, first = np.unique(whole, return_index=True)
    return _mean(rows.metric[first], digest(names.tolist()))


def _summaries(rows: Rows) -> Stratum:
    """Each text's correlation over its summaries."""
    texts = np.array([name.rpartition("/")[0] for name in rows.ids.tolist()])
    names, of_text = np.unique(texts, return_inverse=True)
    gold, predicted = _numbers(rows)
    chosen = [np.flatnonzero(of_text == one) for one in range(len(names))]
    found = [METRICS["spearman"](gold[at], predicted[at], np.ones((1, len(at))))[0] for at in chosen]
    return _mean(found, digest(names.tolist()))


def _draws(rows: Rows) -> Stratum:
    """Each draw's V-measure; a draw is named by its texts."""
    gold, predicted = (one.astype(np.intp) for one in _separate_codes(rows))
    found, names = [], []
    for number in sorted(set(rows.replicate.tolist())):
        at = np.flatnonzero(rows.replicate == number)
        found.append(v_measure(gold[at], predicted[at]))
        names.append(digest(rows.ids[at].tolist()))
    return _mean(found, digest(names))


def _separate_codes(rows: Rows) -> tuple[Floats, Floats]:
    found = [np.unique(v.astype(str), return_inverse=True)[1] for v in (rows.gold, rows.prediction)]
    return found[0].astype(np.float64), found[1].astype(np.float64)


def _probes(rows: Rows, measure: str) -> list[Stratum]:
    """The texts with all their probes; where each has one of several folds, a stratum for each fold."""
    gold, predicted = _codes(rows) if measure == "macro_f1" else (rows.metric, rows.metric)
    places = [np.flatnonzero(rows.replicate == one) for one in sorted(set(rows.replicate.tolist()))]
    if len({tuple(rows.ids[at].tolist()) for at in places}) > 1:
        share = 1 / len(places)
        groups = [[at] for at in places]
    else:
        share, groups = 1.0, [places]
    return [
        Stratum(
            measures=(measure,),
            share=share,
            examples=digest(rows.ids[group[0]].tolist()),
            gold=NOTHING if measure == "mean" else gold[group[0]],
            predicted=np.stack([predicted[at] for at in group])[None],
        )
        for group in groups
    ]
