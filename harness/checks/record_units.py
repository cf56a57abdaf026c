"""Records of scores with the units that a check compares, computed from the per-example file and cached."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.checks import units
from harness.checks.units import NOTHING, Stratum, Texts, Units
from harness.core import files
from harness.core.errors import StoreError
from harness.core.identity import digest
from harness.results.metrics import METRICS, Floats, v_measure, without_each
from harness.results.scores import raw_metrics
from harness.storage.record import Record
from harness.storage.store import Store

SUBQUERIES = "max_over_subqueries_"


class _NotTestableError(Exception):
    """An error for a score that cannot be computed again from units; the message is the reason."""


def _example_metric(kind: str, metric: str) -> str:
    """The metric that examples give: of pairs that of one similarity, not the best of all."""
    return "similarity_ap" if (kind, metric) == ("PairClassification", "max_ap") else metric


def _units_by_type(kind: str, metric: str, rows: _ExampleRows) -> tuple[str, list[Stratum]]:
    """The units from whose rows a metric is computed again: their name, and strata with shares that sum to 1.

    Any other type and metric is the mean over single queries, if the rows have it.
    """
    match kind, metric:
        case "STS", "cosine_spearman" | "cosine_pearson":
            gold, predicted = _numbers(rows)
            return "pairs", [_stratum(metric.removeprefix("cosine_"), gold, predicted, rows.digest)]
        case "PairClassification", "max_ap":
            gold, predicted = _numbers(rows)
            return "pairs", [_stratum("average_precision", gold, predicted, rows.digest)]
        case "Summarization", "cosine_spearman":
            return "texts", [_summaries(rows)]
        case "Clustering", "v_measure":
            unit, found = _clusterings(rows)
            return unit, [found]
        case "BitextMining", "f1":
            gold, predicted = _codes(rows)
            return "sentences", [_stratum("weighted_f1", gold, predicted, rows.digest)]
        case (("Classification" | "MultilabelClassification"), "accuracy"):
            return "texts", _probes(rows, "mean")
        case "Classification", "f1":
            return "texts", _probes(rows, "macro_f1")
    return "queries", [_queries(rows, metric)]


def _stratum(measure: str, gold: Floats, predicted: Floats, examples: str) -> Stratum:
    return Stratum(measures=(measure,), gold=gold, predicted=predicted[None, None, :], examples=examples)


def _mean_stratum(values: Sequence[float] | Floats, examples: str) -> Stratum:
    return _stratum("mean", NOTHING, np.asarray(values, dtype=np.float64), examples)


def _numbers(rows: _ExampleRows) -> tuple[Floats, Floats]:
    return rows.gold.astype(np.float64), rows.prediction.astype(np.float64)


def _codes(rows: _ExampleRows) -> tuple[Floats, Floats]:
    """Labels as numbers, equal for gold and prediction and in every file."""
    names, places = np.unique(np.concatenate([rows.gold, rows.prediction]).astype(str), return_inverse=True)
    codes = np.array([_code(name) for name in names.tolist()])[places]
    return codes[: len(rows.gold)], codes[len(rows.gold) :]


def _code(label: str) -> float:
    """A whole number that stands for a label, small enough to be exact as a float."""
    return float(int(_digest([label])[:13], 16))


def _queries(rows: _ExampleRows, metric: str) -> Stratum:
    if not np.isfinite(rows.metric).all():
        raise _NotTestableError(f"the per-example file has no {metric} of single queries")
    if not metric.startswith(SUBQUERIES):
        return _mean_stratum(rows.metric, rows.digest)
    whole = np.array([name.rpartition("_")[0] for name in rows.ids.tolist()])
    names, first = np.unique(whole, return_index=True)
    return _mean_stratum(rows.metric[first], _digest(names.tolist()))


def _summaries(rows: _ExampleRows) -> Stratum:
    """Each text's correlation over its summaries."""
    texts = np.array([name.rpartition("/")[0] for name in rows.ids.tolist()])
    names, of_text = np.unique(texts, return_inverse=True)
    gold, predicted = _numbers(rows)
    chosen = [np.flatnonzero(of_text == one) for one in range(len(names))]
    found = [METRICS["spearman"](gold[at], predicted[at], np.ones((1, len(at))))[0] for at in chosen]
    return _mean_stratum(found, _digest(names.tolist()))


REFIT = 1.2
"""What a corpus' variance is more than with the clusters of its texts fixed: clusters move with the texts.

`benchmarks/simulate_gate.py` holds it against the truth for k-means.
"""


def _clusterings(rows: _ExampleRows) -> tuple[str, Stratum]:
    """Each draw's V-measure, and what each text adds to it where draws share texts.

    Draws of one corpus are no sample of corpora: texts are. A text's influence is what the V-measure loses
    without it while the others stay in their clusters (a jackknife). A draw is identified by its texts.
    """
    gold, predicted = (
        np.unique(values.astype(str), return_inverse=True)[1] for values in (rows.gold, rows.prediction)
    )
    texts, of_row = np.unique(rows.ids.astype(str), return_inverse=True)
    found, names, influences, seen = [], [], np.zeros(len(texts)), 0
    for number in sorted(set(rows.replicate.tolist())):
        at = np.flatnonzero(rows.replicate == number)
        found.append(v_measure(gold[at], predicted[at]))
        names.append(_digest(rows.ids[at].tolist()))
        own = np.unique(of_row[at])
        influences[own] += without_each(gold[at], predicted[at], of_row[at])
        seen += len(own)
    stratum = _mean_stratum(found, _digest(names))
    if seen == len(texts):
        return "draws", stratum
    of_texts = (influences - influences.mean()) * np.sqrt(REFIT) / len(found)
    return "texts", replace(stratum, texts=texts, influences=of_texts[None])


def _probes(rows: _ExampleRows, measure: str) -> list[Stratum]:
    """The texts with all their probes; with cross-validation folds, a stratum for each fold."""
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


@dataclass(frozen=True, kw_only=True)
class _ExampleRows:
    """Columns of a per-example file, of equal length (results/README.md).

    `replicate` is the probe, fold, draw or seed. `prediction` and `gold` are text, or numbers where a recipe
    trained. `metric` is NaN where a row has no score of its own.
    """

    split: Texts
    subset: Texts
    ids: Texts
    replicate: NDArray[np.int64]
    prediction: NDArray[Any]
    gold: NDArray[Any]
    metric: NDArray[np.float64]

    def parts(self) -> Iterator[tuple[tuple[str, str], _ExampleRows]]:
        """The rows of each split and subset, in the order of their example ids."""
        for name in dict.fromkeys(zip(self.split.tolist(), self.subset.tolist(), strict=True)):
            chosen = np.flatnonzero((self.split == name[0]) & (self.subset == name[1]))
            yield name, self.at(chosen[np.argsort(self.ids[chosen].astype(str), kind="stable")])

    def replicates(self) -> list[_ExampleRows]:
        """The rows of each probe, fold, draw or seed."""
        found = dict.fromkeys(self.replicate.tolist())
        return [self.at(np.flatnonzero(self.replicate == one)) for one in sorted(found)]

    def at(self, places: NDArray[np.intp]) -> _ExampleRows:
        """The rows at some positions."""
        return _ExampleRows(**{column.name: getattr(self, column.name)[places] for column in fields(self)})

    @property
    def digest(self) -> str:
        """The digest of the example ids in their order."""
        return _digest(self.ids.tolist())

    @property
    def outputs(self) -> str:
        """The digest of the predictions with the examples that they are of."""
        columns = (self.split, self.subset, self.ids, self.replicate, self.prediction)
        return _digest(sorted("\1".join(map(str, row)) for row in zip(*columns, strict=True)))


def _digest(names: list[str]) -> str:
    """The digest of unit names in their order."""
    return hashlib.sha256("\0".join(names).encode()).hexdigest()


def _read_examples(path: Path) -> _ExampleRows:
    """The rows of a per-example file."""
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        table = file.read()
    split, subset, ids = (
        np.array(table[name].to_pylist(), dtype=object) for name in ("split", "subset", "example_id")
    )
    return _ExampleRows(
        split=split,
        subset=subset,
        ids=ids,
        replicate=table["replicate"].to_numpy().astype(np.int64),
        prediction=table["prediction"].to_numpy(),
        gold=table["gold"].to_numpy(),
        metric=np.array(table["metric"].to_pylist(), dtype=np.float64),
    )


VERSION = 6
"""The version of the cached form, raised whenever the same record would give other units."""


@dataclass(frozen=True, kw_only=True)
class ScoredRecord:
    """A finished score with its units.

    Attributes:
        key: The EvaluationKey.
        task: Name, type and main metric.
        model: The record's description of the model.
        identity: The settings that the score depends on.
        provenance: Packages, device, dtype and attention of the run.
        score: The main score; None where a part of it is missing.
        units: The units of the score; None where they cannot be had.
        problem: The reason why there are no units; empty otherwise.
    """

    key: str
    task: Mapping[str, str]
    model: Mapping[str, Any]
    identity: Mapping[str, Any]
    provenance: Mapping[str, Any]
    score: float | None
    units: Units | None = None
    problem: str = ""

    @staticmethod
    def read(
        store: Store, artifact: str, task: str, key: str, *, parts: Parts, cache: Path
    ) -> ScoredRecord | None:
        """The scored record under `key`, None without a finished record.

        Args:
            store: The results folder.
            artifact: The artifact's folder there (`Artifact.slug`).
            task: The task's name.
            key: The EvaluationKey.
            parts: The metrics whose mean is a trained task's number.
            cache: The cache folder; units are cached by the size and times of the record's files.

        Raises:
            RecordError: The record is of a newer schema, or cannot be read.
        """
        path = store.path(artifact, task, key)
        stamps = [_stamp(path), _stamp(path.with_suffix(".examples.parquet"))]
        if not stamps[0]:
            return None
        name = digest({"version": VERSION, "key": key, "stamps": stamps, "parts": list(parts)})
        kept = cache / "units" / f"{name[:40]}.npz"
        with contextlib.suppress(OSError, ValueError):
            return _unpacked(files.without_sha256(kept))
        record = store.get(artifact, task, key)
        if record is None or record.status != "done":
            return None
        found = _with_units(record, store.examples(record, artifact), parts)
        try:
            files.replace(kept, files.with_sha256(kept.name, _packed(found)))
        except StoreError:
            return found  # the cache only saves time
        return found

    @staticmethod
    def find(
        stores: Sequence[Store], artifact: str, task: str, key: str, *, parts: Parts, cache: Path
    ) -> ScoredRecord | None:
        """The scored record from the first of some stores that has its units, else from the last with it."""
        last = None
        for store in stores:
            found = ScoredRecord.read(store, artifact, task, key, parts=parts, cache=cache)
            if found is not None and found.units is not None:
                return found
            last = last or found
        return last


def _stamp(path: Path) -> list[int]:
    """Size, time and inode of a file, [] without a file."""
    try:
        stat = path.stat()
    except OSError:
        return []
    return [stat.st_size, stat.st_mtime_ns, stat.st_ino]


def _with_units(record: Record, examples: Path | None, parts: Parts) -> ScoredRecord:
    ran = {n: record.provenance.get(n) for n in ("packages", "device", "dtype_as_run", "attention")}
    found = ScoredRecord(
        key=record.key,
        task=record.task.model_dump(),
        model=record.model.model_dump(),
        identity=dict(record.identity),
        provenance=ran,
        score=record.main_score,
    )
    if examples is None:
        gone, never = "its per-example file is gone or damaged", "no per-example results were kept"
        return replace(found, problem=gone if record.examples else never)
    try:
        return replace(found, units=_units_of(record, examples, parts))
    except _NotTestableError as error:
        return replace(found, problem=str(error))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:  # pyarrow's among them
        reason = f"{type(error).__name__}: {error}"
        return replace(found, problem=f"its per-example file cannot be read ({reason})")


_ARRAYS = ("gold", "predicted", "texts", "influences")
"""The fields of a stratum that are arrays of their own in the cached form."""


def _packed(found: ScoredRecord) -> bytes:
    about = asdict(found)
    strata = about["units"]["strata"] if found.units else ()
    arrays: dict[str, Any] = {f"{n}{at}": one.pop(n) for at, one in enumerate(strata) for n in _ARRAYS}
    sink = io.BytesIO()
    np.savez(sink, about=np.frombuffer(json.dumps(about).encode(), dtype=np.uint8), **arrays)
    return sink.getvalue()


def _unpacked(content: bytes) -> ScoredRecord:
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        about = json.loads(arrays["about"].tobytes())
        if plain := about.pop("units", None):
            strata = [
                Stratum(
                    **{**one, "measures": tuple(one["measures"])},
                    **{name: arrays[f"{name}{at}"] for name in _ARRAYS},
                )
                for at, one in enumerate(plain["strata"])
            ]
            about["units"] = Units(**{**plain, "strata": tuple(strata)})
        return ScoredRecord(**about)


NEAR = 2e-5
"""The tolerance between recomputed and recorded scores; task code rounds some to five digits."""

Parts = Sequence[tuple[str, str]]
"""The (split, metric) pairs whose mean is a trained task's number."""


def _units_of(record: Record, path: Path, parts: Parts = ()) -> Units:
    """The units of a finished record."""
    rows = _read_examples(path)
    if "recipe" in record.identity:
        return _of_trained(record, rows, parts or tuple(raw_metrics(record)))
    about = record.task
    found = [(cell, *_units_by_type(about.type, about.metric, part)) for cell, part in rows.parts()]
    if not found:
        raise _NotTestableError("the per-example file is empty")
    made = Units(
        metric=_example_metric(record.task.type, record.task.metric),
        unit=found[0][1],
        strata=tuple(
            replace(one, share=one.share / len(found), split=split, subset=subset)
            for (split, subset), _, strata in found
            for one in strata
        ),
        outputs=rows.outputs,
    )
    _require_recorded_score(made, record)
    return made


def _of_trained(record: Record, rows: _ExampleRows, parts: Parts) -> Units:
    made = Units(
        metric=", ".join(dict.fromkeys(metric for _, metric in parts)),
        unit=units.TRAINED,
        strata=tuple(_strata_of_trained(rows, parts)),
        outputs=rows.outputs,
    )
    found = raw_metrics(record)
    if not all(part in found for part in parts):
        raise _NotTestableError("its record lacks a metric that its number is made of")
    _require_same(made, float(np.mean([found[part] for part in parts])))
    return made


def _strata_of_trained(rows: _ExampleRows, parts: Parts) -> Iterator[Stratum]:
    """The strata of a trained task: the rows of each development set, with a run for each seed."""
    sets = {split: part for (split, _), part in rows.parts()}
    for split in dict.fromkeys(split for split, _ in parts):
        if split not in sets:
            raise _NotTestableError(f"the per-example file has no {split}")
        runs = sets[split].replicates()
        if len({run.digest for run in runs}) > 1:
            raise _NotTestableError(f"its seeds were scored on different examples of {split}")
        metrics = tuple(metric for at, metric in parts if at == split)
        gold = runs[0].gold.astype(np.float64)
        predicted = np.stack([run.prediction.astype(np.float64) for run in runs])
        exact = metrics == ("accuracy",)
        yield Stratum(
            measures=("mean",) if exact else metrics,
            share=len(metrics) / len(parts),
            examples=runs[0].digest,
            gold=units.NOTHING if exact else gold,
            predicted=((predicted == gold).astype(np.float64) if exact else predicted)[:, None, :],
        )


def _require_recorded_score(made: Units, record: Record) -> None:
    recorded = [subset.get(made.metric) for subsets in record.scores.values() for subset in subsets.values()]
    known = [float(one) for one in recorded if one is not None]
    _require_same(made, float(np.mean(known)) if len(known) == len(recorded) else record.main_score)


def _require_same(made: Units, expected: float | None) -> None:
    score = float(made.scores().mean())
    if expected is None or not abs(score - expected) <= NEAR:
        told = "nothing" if expected is None else f"{100 * expected:.3f}"
        raise _NotTestableError(f"its examples give {made.metric} {100 * score:.3f}, its record has {told}")
