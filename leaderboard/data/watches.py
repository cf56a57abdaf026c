"""Watches of pretraining runs: from the files of results folders into the index, and out of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from harness.watch.state import WATCHES
from leaderboard.data.checks import document_units
from leaderboard.data.entries import StoredDocument, Unit


class WatchSummary(BaseModel):
    """What lists show of a watch.

    `when` a checkpoint was evaluated last; `states` counts the checkpoints; `mean` is that of the last
    complete `step`, `best` of those measured alike; `changes` are the steps at which the level changed.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    when: str
    source: str
    suite: str
    states: Mapping[str, int]
    step: int | None
    mean: float | None
    best: float | None
    best_step: int | None
    changes: tuple[int, ...]


def units(roots: Sequence[Path]) -> Iterator[Unit]:
    """One unit for each watch of some results folders."""
    return document_units("watch", "watches", [root / WATCHES.folder for root in roots], _read)


def _read(name: str, path: Path) -> StoredDocument:
    WATCHES.check_name(path.stem)
    watch = WATCHES.kind.read(path)
    document = json.dumps(watch.model_dump(mode="json", by_alias=True), allow_nan=False)
    curve = [(one.mean, one.step) for one in watch.curve if one.mean is not None]
    best, best_step = max(curve, default=(None, None))
    mean, step = curve[-1] if curve else (None, None)
    summary = WatchSummary(
        name=name,
        when=max((one.evaluated for one in watch.checkpoints), default=""),
        source=watch.source,
        suite=watch.suite,
        states=Counter(one.state for one in watch.checkpoints),
        step=step,
        mean=mean,
        best=best,
        best_step=best_step,
        changes=tuple(change.step for change in watch.change_points),
    )
    facts = summary.model_dump(mode="json")
    return StoredDocument(kind="watch", name=name, written=summary.when, facts=facts, document=document)
