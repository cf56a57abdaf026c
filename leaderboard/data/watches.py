"""Watches of pretraining runs: from the files of results folders into the index, and out of it."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.errors import HarnessError
from harness.watch.state import WATCHES, Watch
from leaderboard.data.checks import document_units
from leaderboard.data.entries import StoredDocument, Unit

log = logging.getLogger(__name__)

SOURCE = "watches"


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchSummary:
    """What lists show of a watch.

    `when` a checkpoint was evaluated last; `states` counts the checkpoints; `mean` is that of the last
    complete `step`, `best` of those measured alike; `changes` are the steps at which the level changed.
    """

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
    return document_units(SOURCE, [root / WATCHES.folder for root in roots], _read)


def _read(name: str, path: Path) -> list[StoredDocument]:
    """A watch for the index; nothing, and a word in the log, of a file that is none."""
    try:
        WATCHES.check_name(path.stem)
        watch = WATCHES.kind.read(path)
        document = json.dumps(watch.model_dump(mode="json", by_alias=True), allow_nan=False)
    except HarnessError as error:
        log.warning("%s It is left out.", error.message)
        return []
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        log.warning("%s is no watch: %s. It is left out.", path, " ".join(str(error).split())[:300])
        return []
    when = max((one.evaluated for one in watch.checkpoints), default="")
    return [StoredDocument(kind="watch", name=name, written=when, facts=_facts(watch), document=document)]


def _facts(watch: Watch) -> dict[str, Any]:
    curve = [(one.mean, one.step) for one in watch.curve if one.mean is not None]
    best, best_step = max(curve, default=(None, None))
    mean, step = curve[-1] if curve else (None, None)
    return {
        "source": watch.source,
        "suite": watch.suite,
        "states": Counter(one.state for one in watch.checkpoints),
        "step": step,
        "mean": mean,
        "best": best,
        "best_step": best_step,
        "changes": [change.step for change in watch.change_points],
    }


def watched(name: str, written: str, facts: Mapping[str, Any]) -> WatchSummary:
    """What lists show of a watch, as the index holds it."""
    return WatchSummary(name=name, when=written, **{**facts, "changes": tuple(facts["changes"])})


def opened(document: Any) -> Watch:
    """A watch as the index holds it."""
    return Watch.model_validate(document)
