"""From a record and its per-example file to units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from harness.conventions import raw
from harness.record import Record
from harness.regress import kinds
from harness.regress.kinds import NotTestableError
from harness.regress.rows import Rows, read
from harness.regress.units import Stratum, Units

NEAR = 2e-5
"""Task code rounds some scores to five digits."""

Parts = Sequence[tuple[str, str]]
"""(split, metric): what a trained task's number is the mean of."""


def units(record: Record, path: Path, parts: Parts = ()) -> Units:
    """The units of a finished record.

    Args:
        record: The record.
        path: Its per-example file.
        parts: What its number is made of, if a recipe trained for it; every raw metric if nothing.

    Raises:
        NotTestableError: Its score cannot be computed again from these examples.
    """
    rows = read(path)
    if "recipe" in record.identity:
        return _of_trained(record, rows, parts or tuple(raw(record)))
    found = [kinds.units_of(record.task.type, record.task.metric, part) for _, part in rows.parts()]
    if not found:
        raise NotTestableError("the per-example file is empty")
    made = Units(
        metric=kinds.measured(record.task.type, record.task.metric),
        unit=found[0][0],
        strata=tuple(replace(s, share=s.share / len(found)) for _, strata in found for s in strata),
    )
    _same_score(made, record)
    return made


def _of_trained(record: Record, rows: Rows, parts: Parts) -> Units:
    made = Units(
        metric=", ".join(dict.fromkeys(metric for _, metric in parts)),
        unit="examples",
        strata=tuple(_trained(rows, parts)),
    )
    found = raw(record)
    if not all(part in found for part in parts):
        raise NotTestableError("its record lacks a metric that its number is made of")
    _same(made, float(np.mean([found[part] for part in parts])))
    return made


def _trained(rows: Rows, parts: Parts) -> Iterator[Stratum]:
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
            gold=kinds.NOTHING if exact else gold,
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
