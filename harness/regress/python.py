"""The Python call: `harness.check(...)` does what `harness check` does, and returns it."""

from __future__ import annotations

from collections.abc import Sequence
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
from harness.request import Request, request_of_options


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
    """Hold a candidate against a baseline; `harness.check` documents the arguments."""
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
    return replace(request_of_options((), suites, baseline.asked), results=None)
