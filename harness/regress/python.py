"""The Python call: `harness.check(...)` does what `harness check` does, and returns it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness import api
from harness.errors import UsageError
from harness.execute import Listeners
from harness.opened import network
from harness.regress import check as checking
from harness.regress import policy as policies
from harness.regress.baseline import Baseline
from harness.regress.outcome import Check
from harness.regress.policy import Policy
from harness.regress.standard import standard_of
from harness.request import Request


def check(
    candidate: str,
    baseline: str,
    suite: str | Sequence[str] = (),
    *,
    seeds: int | None = None,
    policy: Policy | Path | str | None = None,
    listeners: Listeners | None = None,
    **request: Any,
) -> Check:
    """Hold a candidate against a baseline; scores that are missing are measured first.

    Args:
        candidate: A catalog name, `org/name[@revision]` or a folder.
        baseline: The name of a baseline, its file, or a model.
        suite: A suite's name, or `name:argument`; or several. A baseline has its own.
        seeds: With how many seeds what is drawn by chance is evaluated, or trained; a baseline has
            its own number.
        policy: What is asked of the candidate, or a TOML file of it.
        listeners: Called with events and results while scores are measured.
        **request: Any other field that `harness.run` takes; what is not named is as in the baseline.

    Returns:
        The check, which also lies in the results folder; a regression does not raise.

    Raises:
        UsageError: The request cannot be carried out, or the two were not evaluated alike.
        StoreError: The results folder cannot be written.

    Example:
        >>> import harness
        >>> found = harness.check("runs/last-night", "release")  # doctest: +SKIP
        >>> found.overall, [one.task for one in found.of("regressed")]  # doctest: +SKIP
    """
    standard = standard_of(baseline, request.get("results"))
    set_one = standard.baseline
    suites = (suite,) if isinstance(suite, str) else tuple(suite)
    if set_one is not None:
        suites, seeds = suites or set_one.suites, seeds or set_one.seeds
    if not suites:
        raise UsageError(
            f"{baseline} is no baseline that was set: which suite?", hint='Say suite="nanobeir".'
        )
    asked = api.changed(_request(suites, set_one), request, of="harness.check")
    if isinstance(policy, Path | str):
        policy = policies.read(Path(policy))
    with network(asked):
        return checking.check(
            candidate,
            standard,
            asked,
            seeds=seeds or 1,
            policy=policy or policies.DEFAULT,
            carry_out=lambda one: api.execute(api.prepare(one), listeners),
        )


def _request(suites: tuple[str, ...], baseline: Baseline | None) -> Request:
    """What a baseline was asked for, or nothing in particular."""
    if baseline is None:
        return Request(models=(), suites=suites)
    from harness.commands import asked

    given: Mapping[str, Any] = {**asked.defaults(), **baseline.asked}
    mnli = Path(given["mnli"]) if given["mnli"] else None
    return replace(asked.request((), suites, {**given, "mnli": mnli}), results=None)
