"""Records of scores with their units, computed from the per-example file and cached."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.core import files
from harness.core.errors import StoreError
from harness.core.keys import digest
from harness.core.types import LOWER_IS_BETTER, SUBQUERIES, Suite
from harness.results import units
from harness.results.scores import Spread, collect_raw_metrics, list_small_columns
from harness.results.units import NOTHING, Names, Stratum, Texts, Units
from harness.results.weighted_metrics import METRICS, Floats, compute_v_measure, compute_v_measure_losses
from harness.storage.record import Record
from harness.storage.store import Store


class _NotTestableError(Exception):
    """An error for a score that cannot be computed again from units; the message is the reason."""


def _build_strata(kind: str, metric: str, rows: _ExampleRows) -> tuple[str, list[Stratum]]:
    """The units of a metric, by which it is computed again: their name, and strata whose shares sum to 1.

    Any other type and metric is the mean over single queries, if the rows have it.
    """
    if metric in LOWER_IS_BETTER:
        raise _NotTestableError(f"lower is better in {metric}, and a check tests for lower values as losses")
    match kind, metric:
        case "STS", "cosine_spearman" | "cosine_pearson":
            return "pairs", [_build_pair_stratum(metric.removeprefix("cosine_"), rows)]
        case "PairClassification", "max_ap":
            return "pairs", [_build_pair_stratum("average_precision", rows)]
        case "Summarization", "cosine_spearman":
            return "texts", [_build_summary_stratum(rows)]
        case "Clustering", "v_measure":
            unit, stratum = _build_clustering_stratum(rows)
            return unit, [stratum]
        case "BitextMining", "f1":
            gold, predicted = _encode_labels(rows)
            stratum = _build_stratum("weighted_f1", gold, predicted, rows.digest)
            return "sentences", [replace(stratum, names=_name_texts(rows.ids))]
        case (("Classification" | "MultilabelClassification"), "accuracy"):
            return "texts", _build_probe_strata(rows, "mean")
        case "Classification", "f1":
            return "texts", _build_probe_strata(rows, "macro_f1")
    return "queries", [_build_query_stratum(rows, metric)]


def _build_stratum(measure: str, gold: Floats, predicted: Floats, examples: str) -> Stratum:
    return Stratum(measures=(measure,), gold=gold, predicted=predicted[None, None, :], examples=examples)


def _mean_stratum(values: Sequence[float] | Floats, examples: str) -> Stratum:
    return _build_stratum("mean", NOTHING, np.asarray(values, dtype=np.float64), examples)


HASHED = re.compile("([0-9a-f]{16})(-[0-9]+)?")
"""An example id that is a hash of the example's text, with a count for a copy."""


def _name_texts(ids: Texts) -> Names:
    """Numbers that are equal for equal texts, from ids that are hashes; none from other ids."""
    matches = [HASHED.fullmatch(name) for name in ids.tolist()]
    hashes = [int(match[1], 16) for match in matches if match]
    return np.array(hashes if len(hashes) == len(ids) else [], dtype=np.uint64)


def _name_outputs(outputs: Sequence[Any], examples: str) -> Names:
    """Numbers that are equal for texts of which a model says the same."""
    first: dict[Any, int] = {}
    places = [first.setdefault(output, place) for place, output in enumerate(outputs)]
    return units.name_places(examples, np.array(places))


def _build_pair_stratum(measure: str, rows: _ExampleRows) -> Stratum:
    """Pairs, of which the same similarity tells copies where ids do not and no similarity has two scores."""
    gold, predicted = _extract_numbers(rows)
    stratum = _build_stratum(measure, gold, predicted, rows.digest)
    if not len(names := _name_texts(rows.ids)):
        answers = np.stack([predicted, gold], axis=1)
        if len(np.unique(answers, axis=0)) == len(np.unique(predicted)):
            names = _name_outputs(predicted.tolist(), rows.digest)
    return replace(stratum, names=names)


def _extract_numbers(rows: _ExampleRows) -> tuple[Floats, Floats]:
    return rows.gold.astype(np.float64), rows.prediction.astype(np.float64)


def _encode_labels(rows: _ExampleRows) -> tuple[Floats, Floats]:
    """Labels as numbers, equal for gold and prediction and in every file."""
    # The numbers of np.unique depend on which labels a model predicted, so they differ between the two sides.
    names, places = np.unique(np.concatenate([rows.gold, rows.prediction]).astype(str), return_inverse=True)
    codes = np.array([_hash_label(name) for name in names.tolist()])[places]
    return codes[: len(rows.gold)], codes[len(rows.gold) :]


def _hash_label(label: str) -> float:
    """A whole number that stands for a label, small enough to be exact as a float."""
    # 13 hexadecimal digits are 52 bits; a float64 holds whole numbers up to 2**53.
    return float(int(_digest([label])[:13], 16))


def _build_query_stratum(rows: _ExampleRows, metric: str) -> Stratum:
    if not np.isfinite(rows.metric).all():
        raise _NotTestableError(f"the per-example file has no {metric} of single queries")
    if not metric.startswith(SUBQUERIES):
        names = _name_outputs(
            [_identify_ranking(*row) for row in zip(rows.prediction, rows.ids, strict=True)], rows.digest
        )
        return replace(_mean_stratum(rows.metric, rows.digest), names=names)
    # The rows of a query's parts all have the query's score: one of them counts.
    query_ids = np.array([name.rpartition("_")[0] for name in rows.ids.tolist()])
    names, first = np.unique(query_ids, return_index=True)
    return _mean_stratum(rows.metric[first], _digest(names.tolist()))


def _identify_ranking(ranking: object, query: str) -> object:
    """A ranking with its scores, which copies of a query share; the query where the scores tell nothing."""
    # The first and the last score of `[["a", 0.9], ["b", 0.1]]`.
    scores = str(ranking).replace("]]", "").split("], [")
    same = scores[0].rpartition(", ")[2] == scores[-1].rpartition(", ")[2]
    return (query,) if same else ranking


def _build_summary_stratum(rows: _ExampleRows) -> Stratum:
    """Each text's correlation over its summaries."""
    texts = np.array([name.rpartition("/")[0] for name in rows.ids.tolist()])
    names, of_text = np.unique(texts, return_inverse=True)
    gold, predicted = _extract_numbers(rows)
    chosen = [np.flatnonzero(of_text == one) for one in range(len(names))]
    correlations = [METRICS["spearman"](gold[at], predicted[at], np.ones((1, len(at))))[0] for at in chosen]
    return _mean_stratum(correlations, _digest(names.tolist()))


REFIT = 1.2
"""The factor of a corpus' variance over that with fixed clusters: clusters move with the texts.

`benchmarks/simulate_gate.py` compares it with the truth for k-means.
"""


def _build_clustering_stratum(rows: _ExampleRows) -> tuple[str, Stratum]:
    """Each draw's V-measure, and what each text adds to it where draws share texts.

    Draws of one corpus are no sample of corpora: texts are. A text's influence is what the V-measure loses
    without it while the others stay in their clusters (a jackknife). A draw is identified by its texts.
    """
    gold, predicted = (
        np.unique(values.astype(str), return_inverse=True)[1] for values in (rows.gold, rows.prediction)
    )
    # Copies of a text are the text at several places.
    ids = [match[1] if (match := HASHED.fullmatch(name)) else name for name in rows.ids.tolist()]
    texts, of_row = np.unique(np.array(ids), return_inverse=True)
    scores, names, influences, seen = [], [], np.zeros(len(texts)), 0
    for number in sorted(set(rows.replicate.tolist())):
        positions = np.flatnonzero(rows.replicate == number)
        scores.append(compute_v_measure(gold[positions], predicted[positions]))
        names.append(_digest(rows.ids[positions].tolist()))
        # A draw may have a text several times; it is left out with all its places.
        draw_texts = np.unique(of_row[positions])
        influences[draw_texts] += compute_v_measure_losses(
            gold[positions], predicted[positions], of_row[positions]
        )
        seen += len(draw_texts)
    stratum = _mean_stratum(scores, _digest(names))
    # No text is in two draws: draws are a sample of their own, and no text says more.
    if seen == len(texts):
        return "draws", stratum
    # REFIT is of the variance, so an influence gets its root.
    of_texts = (influences - influences.mean()) * np.sqrt(REFIT) / len(scores)
    return "texts", replace(stratum, texts=texts, influences=of_texts[None], names=_name_texts(texts))


def _build_probe_strata(rows: _ExampleRows, measure: str) -> list[Stratum]:
    """The texts with all their probes; with cross-validation folds, a stratum for each fold."""
    gold, predicted = _encode_labels(rows) if measure == "macro_f1" else (rows.metric, rows.metric)
    places = [np.flatnonzero(rows.replicate == one) for one in sorted(set(rows.replicate.tolist()))]
    # Folds of a cross-validation test other texts each; probes of one test set test the same.
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
            names=_name_texts(rows.ids[group[0]]),
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

    def iter_subsets(self) -> Iterator[tuple[tuple[str, str], _ExampleRows]]:
        """The rows of each split and subset, in the order of their example ids."""
        for name in dict.fromkeys(zip(self.split.tolist(), self.subset.tolist(), strict=True)):
            chosen = np.flatnonzero((self.split == name[0]) & (self.subset == name[1]))
            # Both sides of a check are compared place by place, whatever order a run wrote its rows in.
            yield name, self.take_rows(chosen[np.argsort(self.ids[chosen].astype(str), kind="stable")])

    def split_replicates(self) -> list[_ExampleRows]:
        """The rows of each probe, fold, draw or seed."""
        numbers = dict.fromkeys(self.replicate.tolist())
        return [self.take_rows(np.flatnonzero(self.replicate == one)) for one in sorted(numbers)]

    def take_rows(self, places: NDArray[np.intp]) -> _ExampleRows:
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


VERSION = 7
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
        units: The units of the score; None where `problem` says why.
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
    def load_record(
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
        path = store.locate_record(artifact, task, key)
        stamps = [_read_file_stamp(path), _read_file_stamp(path.with_suffix(".examples.parquet"))]
        if not stamps[0]:
            return None
        # A key alone does not do: `--force` and a trained model's new weights write other content under the
        # same key.
        name = digest({"version": VERSION, "key": key, "stamps": stamps, "parts": list(parts)})
        kept = cache / "units" / f"{name[:40]}.npz"
        # A cached file that is missing or damaged is made again.
        with contextlib.suppress(OSError, ValueError):
            return _unpack_scored_record(files.unpack_hashed_file(kept))
        record = store.get(artifact, task, key)
        if record is None or record.status != "done":
            return None
        examples = store.find_part_file(record, artifact)
        reference = store.root == files.find_reference_folder()
        scored_record = _build_scored_record(record, examples, parts, reference=reference)
        try:
            files.replace(kept, files.pack_hashed_file(kept.name, _pack_scored_record(scored_record)))
        except StoreError:
            return scored_record  # the cache only saves time
        return scored_record

    @staticmethod
    def find(
        stores: Sequence[Store], artifact: str, task: str, key: str, *, parts: Parts, cache: Path
    ) -> ScoredRecord | None:
        """The scored record from the first store that has its units, else from the first that has it.

        Args:
            stores: The results folders, in the order of preference.
            artifact: The artifact's folder there (`Artifact.slug`).
            task: The task's name.
            key: The EvaluationKey.
            parts: The metrics whose mean is a trained task's number.
            cache: The cache folder.
        """
        without_units = None
        for store in stores:
            scored_record = ScoredRecord.load_record(store, artifact, task, key, parts=parts, cache=cache)
            if scored_record is not None and scored_record.units is not None:
                return scored_record
            without_units = without_units or scored_record
        return without_units


def _read_file_stamp(path: Path) -> list[int]:
    """Size, time and inode of a file, [] without a file."""
    try:
        stat = path.stat()
    except OSError:
        return []
    # The inode tells a file that was replaced by one of equal size within a tick of the clock.
    return [stat.st_size, stat.st_mtime_ns, stat.st_ino]


def _build_scored_record(
    record: Record, examples: Path | None, parts: Parts, *, reference: bool
) -> ScoredRecord:
    ran = {n: record.provenance.get(n) for n in ("packages", "device", "dtype_as_run", "attention")}
    scored_record = ScoredRecord(
        key=record.key,
        task=record.task.model_dump(),
        model=record.model.model_dump(),
        identity=dict(record.identity),
        provenance=ran,
        score=record.main_score,
    )
    if examples is None:
        gone, never = "its per-example file is gone or damaged", "no per-example results were kept"
        if reference:
            gone = "its record came without per-example results (`harness run --force` makes them)"
        return replace(scored_record, problem=gone if record.examples else never)
    try:
        return replace(scored_record, units=_read_units(record, examples, parts))
    except _NotTestableError as error:
        return replace(scored_record, problem=str(error))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:  # pyarrow's among them
        reason = f"{type(error).__name__}: {error}"
        return replace(scored_record, problem=f"its per-example file cannot be read ({reason})")


_ARRAYS = ("gold", "predicted", "texts", "influences", "names")
"""The fields of a stratum that are arrays of their own in the cached form."""


def _pack_scored_record(scored_record: ScoredRecord) -> bytes:
    about = asdict(scored_record)
    strata = about["units"]["strata"] if scored_record.units else ()
    arrays: dict[str, Any] = {f"{n}{at}": one.pop(n) for at, one in enumerate(strata) for n in _ARRAYS}
    sink = io.BytesIO()
    np.savez(sink, about=np.frombuffer(json.dumps(about).encode(), dtype=np.uint8), **arrays)
    return sink.getvalue()


def _unpack_scored_record(content: bytes) -> ScoredRecord:
    # Texts are fixed-width strings, as an array of objects would need pickle, which runs what it is given.
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


def _read_units(record: Record, path: Path, parts: Parts = ()) -> Units:
    """The units of a finished record."""
    rows = _read_examples(path)
    if "recipe" in record.identity:
        return _build_trained_units(record, rows, parts or tuple(collect_raw_metrics(record)))
    about = record.task
    cell_strata = [
        (cell, *_build_strata(about.type, about.metric, part)) for cell, part in rows.iter_subsets()
    ]
    if not cell_strata:
        raise _NotTestableError("the per-example file is empty")
    # Of pairs the examples give the metric of one similarity, not the best of all.
    is_best = (about.type, about.metric) == ("PairClassification", "max_ap")
    record_units = Units(
        metric="similarity_ap" if is_best else about.metric,
        unit=cell_strata[0][1],
        strata=tuple(
            replace(one, share=one.share / len(cell_strata), split=split, subset=subset)
            for (split, subset), _, strata in cell_strata
            for one in strata
        ),
        outputs=rows.outputs,
    )
    recorded = [part.get(record_units.metric) for parts in record.scores.values() for part in parts.values()]
    values = [float(one) for one in recorded if one is not None]
    _require_same(record_units, float(np.mean(values)) if len(values) == len(recorded) else record.main_score)
    return record_units


def _build_trained_units(record: Record, rows: _ExampleRows, parts: Parts) -> Units:
    record_units = Units(
        metric=", ".join(dict.fromkeys(metric for _, metric in parts)),
        unit=units.TRAINED,
        strata=tuple(_iter_trained_strata(rows, parts)),
        outputs=rows.outputs,
    )
    metrics = collect_raw_metrics(record)
    if not all(part in metrics for part in parts):
        raise _NotTestableError("its record lacks a metric that its number is made of")
    _require_same(record_units, float(np.mean([metrics[part] for part in parts])))
    return record_units


def _iter_trained_strata(rows: _ExampleRows, parts: Parts) -> Iterator[Stratum]:
    """The strata of a trained task: the rows of each development set, with a run for each seed."""
    sets = {split: part for (split, _), part in rows.iter_subsets()}
    for split in dict.fromkeys(split for split, _ in parts):
        if split not in sets:
            raise _NotTestableError(f"the per-example file has no {split}")
        runs = sets[split].split_replicates()
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


def _require_same(task_units: Units, expected: float | None) -> None:
    score = float(task_units.score_runs().mean())
    if expected is None or not abs(score - expected) <= NEAR:
        expected_text = "nothing" if expected is None else f"{100 * expected:.3f}"
        raise _NotTestableError(
            f"its examples give {task_units.metric} {100 * score:.3f}, its record has {expected_text}"
        )


# The intervals of scores over few examples


def measure_spreads(
    suite: Suite, records: Mapping[str, Record], stores: Sequence[Store], cache: Path
) -> dict[str, Spread]:
    """The intervals of the small columns of a suite whose scores have per-example results, by column.

    Args:
        suite: The suite.
        records: Finished records by task.
        stores: The results folders that have them.
        cache: The cache folder.
    """
    tasks = {column.name: column.tasks[0].name for column in suite.columns if len(column.tasks) == 1}
    return {
        name: replace(spread, half=measure_half_width(records[tasks[name]], stores, cache))
        for name, spread in list_small_columns(suite).items()
        if tasks.get(name) in records
    }


def measure_half_width(record: Record, stores: Sequence[Store], cache: Path) -> float | None:
    """Half of the 95 % interval of a score by the choice of its examples (`Units.estimate_half_width`).

    None where a recipe trained for the score, which has an interval of its own, or nothing tells it.
    """
    if "recipe" in record.identity:
        return None
    # A store finds the folder of an artifact by the digits at its end, whatever stands before them.
    folder = f"model-{record.model.artifact[:12]}"
    scored = ScoredRecord.find(stores, folder, record.task.name, record.key, parts=(), cache=cache)
    return scored.units.estimate_half_width() if scored and scored.units else None
