"""A record as a check needs it, kept beside the cache so that it is taken apart once."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness import files
from harness.errors import StoreError
from harness.identity import digest
from harness.regress.units import Stratum, Units
from harness.store import Store

if TYPE_CHECKING:
    from harness.record import Record
    from harness.regress.reading import Parts

VERSION = 2
"""Raised whenever the same record would be taken apart in another way."""


@dataclass(frozen=True, kw_only=True)
class Scored:
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


def find(store: Store, artifact: str, task: str, key: str, *, parts: Parts, cache: Path) -> Scored | None:
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
    found = _taken_apart(record, store.examples(record, artifact), parts)
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


def _taken_apart(record: Record, examples: Path | None, parts: Parts) -> Scored:
    ran = {n: record.provenance.get(n) for n in ("packages", "device", "dtype_as_run", "attention")}
    found = Scored(
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
    from harness.regress.kinds import NotTestableError
    from harness.regress.reading import units

    try:
        return replace(found, units=units(record, examples, parts))
    except NotTestableError as error:
        return replace(found, problem=str(error))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:  # pyarrow's among them
        return replace(
            found, problem=f"its per-example file cannot be read ({type(error).__name__}: {error})"
        )


def _packed(found: Scored) -> bytes:
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


def _unpacked(path: Path) -> Scored:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        about = json.loads(arrays["about"].tobytes())
        whole = about.pop("units", None)
        if whole is None:
            return Scored(**about)
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
        return Scored(**about, units=Units(metric=whole["metric"], unit=whole["unit"], strata=strata))
