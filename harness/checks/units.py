"""Per-example rows -> resampling units by task type.

What a score is made of: the queries, pairs, texts or draws that a check resamples.

How the score of each type of task comes about from the rows of its per-example file.

The rows of a per-example file, as arrays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.metrics import MEASURES, METRICS, Floats, v_measure


@dataclass(frozen=True, kw_only=True)
class Stratum:
    """The units of one split and subset, drawn on their own.

    Attributes:
        measures: Names in MEASURES; their mean is the stratum's score.
        share: Its weight in the score of the task; the shares of a task sum to 1.
        examples: Digest of the units' ids, in whose order they stand: two models that were measured
            on the same units have the same.
        gold: (units,), empty where units are their scores (the measure `mean`).
        predicted: (runs, probes, units): what each run predicts, or what its units score. Of several
            probes the mean of their measures counts.
    """

    measures: tuple[str, ...]
    share: float = 1.0
    examples: str
    gold: Floats
    predicted: Floats

    @property
    def count(self) -> int:
        """How many units there are."""
        return int(self.predicted.shape[2])

    def scores(self, weights: Floats) -> Floats:
        """The score of each run in each resample, (runs, resamples), from weights (resamples, units)."""
        return np.stack([self._of_run(run, weights) for run in self.predicted])

    def _of_run(self, probes: Floats, weights: Floats) -> Floats:
        if self.measures == ("mean",):
            return MEASURES["mean"](self.gold, probes.mean(axis=0), weights)
        found = [MEASURES[name](self.gold, one, weights) for name in self.measures for one in probes]
        return np.asarray(np.mean(found, axis=0))


@dataclass(frozen=True, kw_only=True)
class Units:
    """One model's score on one task, taken apart.

    Attributes:
        metric: What the score is, in the words of the record.
        unit: What a unit is, in the plural.
        strata: At least one, each with as many runs.
    """

    metric: str
    unit: str
    strata: tuple[Stratum, ...]

    @property
    def count(self) -> int:
        """How many units there are in all strata."""
        return sum(stratum.count for stratum in self.strata)

    @property
    def runs(self) -> int:
        """How many runs (seeds) there are."""
        return len(self.strata[0].predicted)

    def scores(self) -> Floats:
        """The score of each run, (runs,)."""
        found = [
            one.share * one.scores(np.ones((1, one.count), dtype=np.float64))[:, 0] for one in self.strata
        ]
        return np.asarray(np.sum(found, axis=0))


DRAWS = "draws"
"""Units of which another seed has others."""


def join_runs(parts: Sequence[Units]) -> Units:
    """Several runs as one.

    Runs on the same units stand side by side. The draws of other seeds are further units of the
    same runs.

    Raises:
        ValueError: Other units than draws are not the same.
    """
    groups: dict[tuple[object, ...], list[Units]] = {}
    for part in parts:
        groups.setdefault(_shape(part), []).append(part)
    found = [_combined(group, axis=0) for group in groups.values()]
    if len(found) == 1:
        return found[0]
    if any(one.unit != DRAWS for one in found) or len({one.runs for one in found}) > 1:
        raise ValueError("the runs were measured on different units")
    return _combined(found, axis=2)


def _combined(parts: Sequence[Units], *, axis: int) -> Units:
    """Parts side by side (axis 0, runs of the same units) or end to end (axis 2, units of their own)."""
    if len(parts) == 1:
        return parts[0]
    strata = []
    for same in zip(*(part.strata for part in parts), strict=True):
        names = list(dict.fromkeys(one.examples for one in same))
        predicted = np.concatenate([one.predicted for one in same], axis=axis)
        strata.append(replace(same[0], examples="+".join(names), predicted=predicted))
    return replace(parts[0], strata=tuple(strata))


def as_probes(units: Units) -> Units:
    """One run, whose probes are all probes of all runs: what they vary by is no run's own."""
    strata = [replace(one, predicted=one.predicted.reshape(1, -1, one.count)) for one in units.strata]
    return replace(units, strata=tuple(strata))


def same_examples(first: Units, second: Units) -> bool:
    """Whether two models were measured on the same units."""
    return _shape(first) == _shape(second)


def _shape(units: Units) -> tuple[object, ...]:
    return tuple(
        (one.measures, one.examples, round(one.share, 12), one.count, one.gold.tobytes())
        for one in units.strata
    )


SUBQUERIES = "max_over_subqueries_"

NOTHING: Floats = np.zeros(0)


class NotTestableError(Exception):
    """There are no units that a score could be computed of again; the message says why."""


def example_metric(kind: str, metric: str) -> str:
    """The raw metric that is computed of single examples where `metric` is a task's main one."""
    return "similarity_ap" if (kind, metric) == ("PairClassification", "max_ap") else metric


def units_of(kind: str, metric: str, rows: ExampleRows) -> tuple[str, list[Stratum]]:
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


def _numbers(rows: ExampleRows) -> tuple[Floats, Floats]:
    return rows.gold.astype(np.float64), rows.prediction.astype(np.float64)


def _codes(rows: ExampleRows) -> tuple[Floats, Floats]:
    """Labels as numbers, the same for gold and prediction, and in every file."""
    names, places = np.unique(np.concatenate([rows.gold, rows.prediction]).astype(str), return_inverse=True)
    codes = np.array([_code(name) for name in names.tolist()])[places]
    return codes[: len(rows.gold)], codes[len(rows.gold) :]


def _code(label: str) -> float:
    """A whole number that stands for a label, of as many bits as a float keeps."""
    return float(int(_digest([label])[:13], 16))


def _queries(rows: ExampleRows, metric: str) -> Stratum:
    if not np.isfinite(rows.metric).all():
        raise NotTestableError(f"the per-example file has no {metric} of single queries")
    if not metric.startswith(SUBQUERIES):
        return _mean(rows.metric, rows.digest)
    whole = np.array([name.rpartition("_")[0] for name in rows.ids.tolist()])
    names, first = np.unique(whole, return_index=True)
    return _mean(rows.metric[first], _digest(names.tolist()))


def _summaries(rows: ExampleRows) -> Stratum:
    """Each text's correlation over its summaries."""
    texts = np.array([name.rpartition("/")[0] for name in rows.ids.tolist()])
    names, of_text = np.unique(texts, return_inverse=True)
    gold, predicted = _numbers(rows)
    chosen = [np.flatnonzero(of_text == one) for one in range(len(names))]
    found = [METRICS["spearman"](gold[at], predicted[at], np.ones((1, len(at))))[0] for at in chosen]
    return _mean(found, _digest(names.tolist()))


def _draws(rows: ExampleRows) -> Stratum:
    """Each draw's V-measure; a draw is named by its texts."""
    gold, predicted = (one.astype(np.intp) for one in _separate_codes(rows))
    found, names = [], []
    for number in sorted(set(rows.replicate.tolist())):
        at = np.flatnonzero(rows.replicate == number)
        found.append(v_measure(gold[at], predicted[at]))
        names.append(_digest(rows.ids[at].tolist()))
    return _mean(found, _digest(names))


def _separate_codes(rows: ExampleRows) -> tuple[Floats, Floats]:
    found = [np.unique(v.astype(str), return_inverse=True)[1] for v in (rows.gold, rows.prediction)]
    return found[0].astype(np.float64), found[1].astype(np.float64)


def _probes(rows: ExampleRows, measure: str) -> list[Stratum]:
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
            examples=_digest(rows.ids[group[0]].tolist()),
            gold=NOTHING if measure == "mean" else gold[group[0]],
            predicted=np.stack([predicted[at] for at in group])[None],
        )
        for group in groups
    ]


Texts = NDArray[np.object_]


@dataclass(frozen=True, kw_only=True)
class ExampleRows:
    """Columns of equal length (results/README.md).

    Attributes:
        split: Of the data.
        subset: Likewise.
        ids: Of the examples.
        replicate: The probe, fold, draw or seed.
        prediction: As text, or numbers where a recipe trained.
        gold: Likewise.
        metric: What the row scored; NaN where it has no score of its own.
    """

    split: Texts
    subset: Texts
    ids: Texts
    replicate: NDArray[np.int64]
    prediction: NDArray[Any]
    gold: NDArray[Any]
    metric: NDArray[np.float64]

    def parts(self) -> Iterator[tuple[tuple[str, str], ExampleRows]]:
        """The rows of each split and subset, by the ids of their examples."""
        for name in dict.fromkeys(zip(self.split.tolist(), self.subset.tolist(), strict=True)):
            chosen = np.flatnonzero((self.split == name[0]) & (self.subset == name[1]))
            yield name, self.at(chosen[np.argsort(self.ids[chosen].astype(str), kind="stable")])

    def replicates(self) -> list[ExampleRows]:
        """The rows of each probe, fold, draw or seed."""
        found = dict.fromkeys(self.replicate.tolist())
        return [self.at(np.flatnonzero(self.replicate == one)) for one in sorted(found)]

    def at(self, places: NDArray[np.intp]) -> ExampleRows:
        """Some of the rows."""
        return ExampleRows(
            split=self.split[places],
            subset=self.subset[places],
            ids=self.ids[places],
            replicate=self.replicate[places],
            prediction=self.prediction[places],
            gold=self.gold[places],
            metric=self.metric[places],
        )

    @property
    def digest(self) -> str:
        """What stands for the examples in their order."""
        return _digest(self.ids.tolist())


def _digest(names: list[str]) -> str:
    """What stands for units in their order."""
    return hashlib.sha256("\0".join(names).encode()).hexdigest()


def read_examples(path: Path) -> ExampleRows:
    """The rows of a per-example file."""
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        table = file.read()
    texts = {name: np.array(table[name].to_pylist(), dtype=object) for name in ("split", "subset")}
    values = {name: table[name].to_numpy() for name in ("prediction", "gold")}
    metric = table["metric"].to_pylist()
    return ExampleRows(
        split=texts["split"],
        subset=texts["subset"],
        ids=np.array(table["example_id"].to_pylist(), dtype=object),
        replicate=table["replicate"].to_numpy().astype(np.int64),
        prediction=values["prediction"],
        gold=values["gold"],
        metric=np.array([np.nan if one is None else one for one in metric], dtype=np.float64),
    )
