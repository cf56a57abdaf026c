"""One checkpoint evaluated on the suite of a watch, and what is kept of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from harness.errors import HarnessError, StoreError
from harness.failures import shortened
from harness.identity import digest
from harness.watch.looking import Ready
from harness.watch.sources import Source
from harness.watch.state import Entry

if TYPE_CHECKING:
    from harness.api import Prepared, Report
    from harness.request import Request

TREATMENT = (
    *("task", "data", "splits", "subsets", "scoring", "encoding", "prompts", "seed"),
    *("recipe", "protocol", "view", "kind", "final_seeds", "fresh_seeds"),
)
"""What of an identity checkpoints of one curve must share."""


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """What became of a checkpoint: what is kept of it, and how many tasks were scored now."""

    entry: Entry
    new: int = 0
    known: int = 0


def evaluate(
    one: Ready, source: Source, request: Request, carry_out: Callable[[Prepared], Report]
) -> Evaluated:
    """Evaluate a checkpoint; what goes wrong with it alone is in the outcome.

    Args:
        one: What is to be evaluated.
        source: Where it is from.
        request: How, without a model.
        carry_out: Carries out what was prepared: `harness.api.execute`, or the same with progress.

    Raises:
        StoreError: The results folder or the cache cannot be written.
    """
    from harness import api
    from harness.opened import network

    began = time.monotonic()
    label, spelled = source.label(one.checkpoint), one.checkpoint.model
    asked = replace(request, models=(spelled,), names={spelled: label} if label else {})
    try:
        with network(asked):
            report = carry_out(api.prepare(asked))
    except StoreError:
        raise
    except (HarnessError, OSError) as error:
        return Evaluated(entry=_entry(one, began, state="failed", reason=_line(str(error))))
    outcome = _outcome(report)
    if source.stamp(one.checkpoint) not in (one.stamp, ""):  # "": removed meanwhile, not rewritten
        outcome = {"state": "waiting", "reason": "it changed while it was evaluated"}
    hows = [result.how for result in report.results]
    entry = _entry(one, began, **outcome)
    return Evaluated(entry=entry, new=hows.count("done"), known=hows.count("cached") + hows.count("shared"))


def _entry(one: Ready, began: float, **outcome: Any) -> Entry:
    before = one.former.seconds if one.former is not None else 0.0
    folder = one.checkpoint.folder
    return Entry(
        step=one.checkpoint.step,
        name=one.checkpoint.name,
        folder=None if folder is None else str(folder),
        revision=one.checkpoint.commit or None,
        stamp=one.stamp,
        evaluated=datetime.now(UTC).isoformat(timespec="milliseconds"),
        seconds=round(before + time.monotonic() - began, 3),
        **outcome,
    )


def _outcome(report: Report) -> dict[str, Any]:
    """What a report says of its one model on its one suite."""
    (one,), (suite,) = report.prepared.subjects, report.prepared.suites
    asked = [column.name for column in suite.columns if column.tasks]
    numbers = report.aggregates(one, suite).columns
    there = [value for name in asked if (value := numbers[name]) is not None]
    state, reason = _state(report, len(asked) - len(there))
    return {
        "state": state,
        "reason": reason,
        "model": one.artifact.name,
        "artifact": one.artifact.key,
        "scores": {r.task.name: r.main_score for r in report.records if r.main_score is not None},
        "records": {r.task.name: r.key for r in report.records},
        "mean": sum(there) / len(there) if state == "done" else None,
        "there": len(there),
        "wanted": len(asked),
        "treatment": digest([_treatment(cell.identity) for cell in report.prepared.plan.cells]),
    }


def _state(report: Report, lacking: int) -> tuple[str, str]:
    """How a checkpoint stands, and why it is not done."""
    failed = [r for r in report.results if r.how in ("failed", "impossible")]
    stopped = [r.cell.task.name for r in report.results if r.how == "stopped"]
    if stopped:
        return "partial", f"not reached within the budget: {shortened(stopped)}"
    if failed:
        said = failed[0].failure.message if failed[0].failure is not None else "failed"
        return "failed", _line(f"{shortened([r.cell.task.name for r in failed])}: {said}")
    return ("failed", f"{lacking} of its tasks have no score") if lacking else ("done", "")


def _treatment(identity: Mapping[str, Any]) -> dict[str, Any]:
    return {name: identity[name] for name in TREATMENT if name in identity}


def _line(text: str) -> str:
    return " ".join(text.split())[:500]
