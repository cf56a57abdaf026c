"""Setting a baseline: measure what is missing, then pin the keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from harness import paths
from harness.errors import HarnessError, UsageError
from harness.failures import shortened
from harness.regress import baseline as baselines
from harness.regress.baseline import Baseline
from harness.regress.collect import Asked, ask, side
from harness.regress.same import paired, require_alike

if TYPE_CHECKING:
    from harness.regress.check import CarryOut
    from harness.request import Request


def set_baseline(
    name: str,
    request: Request,
    *,
    seeds: int,
    asked: Mapping[str, Any],
    again: bool,
    carry_out: CarryOut,
) -> Baseline:
    """Evaluate the models of a request and write their keys down under a name.

    Args:
        name: Of the baseline.
        request: The first of its models is the baseline, the others are repeats of it.
        seeds: With how many seeds what is drawn by chance is evaluated, or trained.
        asked: The options of the evaluation, by name.
        again: Whether a baseline of this name is replaced.
        carry_out: Called where records are missing.

    Raises:
        UsageError: The request cannot be carried out, or there is a baseline of this name.
        HarnessError: A score could not be had; nothing was pinned.
    """
    baselines.check_name(name)
    results = paths.results_folder(request.results)
    if not again and name in baselines.names(results):
        raise baselines.taken(name)
    runs, lost = [], dict[str, str]()
    every = [ask(replace(request, models=()), model, seeds) for model in request.models]
    _require_repeats(every)
    for one in every:
        if not side([one.run], one.opened, results).complete:
            lost |= _measured(one, carry_out)
        runs.append(one.run)
    if lost:
        reasons = "; ".join(f"{task}: {reason.rstrip('.')}" for task, reason in list(lost.items())[:3])
        raise HarnessError(
            f"The baseline {name} was not set: {len(lost)} tasks have no score ({shortened(list(lost))}).",
            hint=f"{reasons}. Choose others with --tasks, or mend this; what was measured is kept.",
        )
    made = Baseline(
        name=name,
        when=datetime.now(tz=UTC).isoformat(timespec="seconds"),
        suites=request.suites,
        seeds=seeds,
        asked=asked,
        runs=tuple(runs),
    )
    baselines.write(results, made, again=again)
    return made


def _require_repeats(every: Sequence[Asked]) -> None:
    """Refuse repeats that are the same model twice, or that are not evaluated alike.

    Raises:
        UsageError: With what differs.
    """
    first, *others = every
    for number, one in enumerate(others, start=2):
        if one.run.artifact in {other.run.artifact for other in every[: number - 1]}:
            raise UsageError(
                f"The model {one.run.source} stands twice: its weights are those of another one.",
                hint="Repeats are models of the same training with other seeds.",
            )
        pairs = {task: paired(one.identities[task], first.identities[task]) for task in first.identities}
        require_alike(pairs, (), first.run.source)


def _measured(one: Asked, carry_out: CarryOut) -> dict[str, str]:
    """Run what is missing of a model; why a task has no score all the same."""
    return {
        failed.cell.task.name: failed.failure.message if failed.failure else "not reached"
        for request in one.requests
        for failed in carry_out(request).failures
    }
