"""The intervals of scores over few examples, from the per-example files of their records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.core.types import Suite
from harness.results.record_units import ScoredRecord
from harness.results.scores import Spread, list_small_columns
from harness.storage.record import Record
from harness.storage.store import Store


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
