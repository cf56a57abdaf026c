"""A record with its units, cached.

A record as a check needs it, kept beside the cache so that it is taken apart once.

From a record and its per-example file to units.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from harness import files
from harness.checks import units
from harness.checks.units import ExampleRows, NotTestableError, Stratum, Units, read_examples
from harness.errors import StoreError
from harness.identity import digest
from harness.record import Record
from harness.scores import raw_metrics
from harness.store import Store

VERSION = 2
"""Raised whenever the same record would be taken apart in another way."""


@dataclass(frozen=True, kw_only=True)
class ScoredRecord:
    """A finished score.

    Attributes:
        key: Its EvaluationKey.
        task: Name, type and main metric.
        model: What the record says of the model.
        identity: What the score depends on.
        provenance: What happened to run it.
        score: The main score; None where a part of it is missing.
        units: What it is made of; None where that cannot be told.
        problem: Why not.
    """

    key: str
    task: Mapping[str, str]
    model: Mapping[str, Any]
    identity: Mapping[str, Any]
    provenance: Mapping[str, Any]
    score: float | None
    units: Units | None = None
    problem: str = ""


def read_scored_record(
    store: Store, artifact: str, task: str, key: str, *, parts: Parts, cache: Path
) -> ScoredRecord | None:
    """The record under `key` taken apart, None if there is none.

    Args:
        store: The results folder.
        artifact: The artifact's folder there (`Artifact.slug`).
        task: The task's name.
        key: The EvaluationKey.
        parts: What a trained task's number is made of.
        cache: Where the units are kept, by what the record's files look like.

    Raises:
        RecordError: The record is of a newer schema, or cannot be read.
    """
    path = store.path(artifact, task, key)
    stamps = [_stamp(path), _stamp(path.with_suffix(".examples.parquet"))]
    if not stamps[0]:
        return None
    name = digest({"version": VERSION, "key": key, "stamps": stamps, "parts": list(parts)})
    kept = cache / "units" / f"{name[:40]}.npz"
    try:
        return _unpacked(kept)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        pass
    record = store.get(artifact, task, key)
    if record is None or record.status != "done":
        return None
    found = _with_units(record, store.examples(record, artifact), parts)
    try:
        files.replace(kept, _packed(found))
    except StoreError:
        return found  # it only saves time
    return found


def _stamp(path: Path) -> list[int]:
    """What changes with a file, [] if there is none."""
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
        gone = "its per-example file is gone" if record.examples else "no per-example results were kept"
        return replace(found, problem=gone)
    from harness.checks.units import NotTestableError

    try:
        return replace(found, units=_units_of(record, examples, parts))
    except NotTestableError as error:
        return replace(found, problem=str(error))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:  # pyarrow's among them
        return replace(
            found, problem=f"its per-example file cannot be read ({type(error).__name__}: {error})"
        )


def _packed(found: ScoredRecord) -> bytes:
    about: dict[str, Any] = {
        name: getattr(found, name)
        for name in ("key", "task", "model", "identity", "provenance", "score", "problem")
    }
    arrays: dict[str, Any] = {}
    if found.units is not None:
        strata = [
            {"measures": s.measures, "share": s.share, "examples": s.examples} for s in found.units.strata
        ]
        about["units"] = {"metric": found.units.metric, "unit": found.units.unit, "strata": strata}
        for at, one in enumerate(found.units.strata):
            arrays |= {f"gold{at}": one.gold, f"predicted{at}": one.predicted}
    sink = io.BytesIO()
    np.savez(sink, about=np.frombuffer(json.dumps(about).encode(), dtype=np.uint8), **arrays)
    return sink.getvalue()


def _unpacked(path: Path) -> ScoredRecord:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        about = json.loads(arrays["about"].tobytes())
        whole = about.pop("units", None)
        if whole is None:
            return ScoredRecord(**about)
        strata = tuple(
            Stratum(
                measures=tuple(one["measures"]),
                share=one["share"],
                examples=one["examples"],
                gold=arrays[f"gold{at}"],
                predicted=arrays[f"predicted{at}"],
            )
            for at, one in enumerate(whole["strata"])
        )
        return ScoredRecord(**about, units=Units(metric=whole["metric"], unit=whole["unit"], strata=strata))


NEAR = 2e-5
"""Task code rounds some scores to five digits."""

Parts = Sequence[tuple[str, str]]
"""(split, metric): what a trained task's number is the mean of."""


def _units_of(record: Record, path: Path, parts: Parts = ()) -> Units:
    """The units of a finished record.

    Args:
        record: The record.
        path: Its per-example file.
        parts: What its number is made of, if a recipe trained for it; every raw metric if nothing.

    Raises:
        NotTestableError: Its score cannot be computed again from these examples.
    """
    rows = read_examples(path)
    if "recipe" in record.identity:
        return _of_trained(record, rows, parts or tuple(raw_metrics(record)))
    found = [units.units_of(record.task.type, record.task.metric, part) for _, part in rows.parts()]
    if not found:
        raise NotTestableError("the per-example file is empty")
    made = Units(
        metric=units.example_metric(record.task.type, record.task.metric),
        unit=found[0][0],
        strata=tuple(replace(s, share=s.share / len(found)) for _, strata in found for s in strata),
    )
    _same_score(made, record)
    return made


def _of_trained(record: Record, rows: ExampleRows, parts: Parts) -> Units:
    made = Units(
        metric=", ".join(dict.fromkeys(metric for _, metric in parts)),
        unit="examples",
        strata=tuple(_trained(rows, parts)),
    )
    found = raw_metrics(record)
    if not all(part in found for part in parts):
        raise NotTestableError("its record lacks a metric that its number is made of")
    _same(made, float(np.mean([found[part] for part in parts])))
    return made


def _trained(rows: ExampleRows, parts: Parts) -> Iterator[Stratum]:
    """The rows of each development set, a run for each seed."""
    sets = {split: part for (split, _), part in rows.parts()}
    for split in dict.fromkeys(split for split, _ in parts):
        if split not in sets:
            raise NotTestableError(f"the per-example file has no {split}")
        runs = sets[split].replicates()
        if len({run.digest for run in runs}) > 1:
            raise NotTestableError(f"its seeds were scored on different examples of {split}")
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


def _same_score(made: Units, record: Record) -> None:
    recorded = [subset.get(made.metric) for subsets in record.scores.values() for subset in subsets.values()]
    known = [float(one) for one in recorded if one is not None]
    _same(made, float(np.mean(known)) if len(known) == len(recorded) else record.main_score)


def _same(made: Units, expected: float | None) -> None:
    score = float(made.scores().mean())
    if expected is None or not abs(score - expected) <= NEAR:
        told = "nothing" if expected is None else f"{expected:.5f}"
        raise NotTestableError(f"its examples give {made.metric} {score:.5f}, its record has {told}")
