"""The chain of a baseline: losses that each new baseline forgets are seen against the anchor of all.

A baseline that replaces another keeps the keys of the first one. A candidate is red if a mean surely fell by
more than the budget of the chain since then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.checks.baselines import BASELINES, Anchor, Baseline, BaselineModel
from harness.checks.decide import evaluate_chain
from harness.checks.outcome import Chain, Power
from harness.checks.policy import Policy
from harness.checks.sides import CheckRequest, CheckSide, Comparison
from harness.core.errors import RecordError, UsageError, shorten_names
from harness.results.differences import require_alike


def find_anchor(
    results: Path, name: str, runs: Sequence[BaselineModel], anchor: str | None = None
) -> Anchor | None:
    """The anchor of a new baseline; None if it begins a chain.

    Args:
        results: The results folder.
        name: The name of the new baseline; of an older one of this name the chain goes on.
        runs: The models of the new baseline.
        anchor: The name of the baseline to be the anchor; the new one's own name begins a chain.

    Raises:
        UsageError: No baseline has the name of the anchor.
    """
    if anchor == name:
        return None
    former: Baseline | None = None
    # A baseline that cannot be read is replaced, too.
    with contextlib.suppress(RecordError):
        former = BASELINES.find_document(results, name) if name in BASELINES.list_names(results) else None
    chain = former.anchor if former is not None else None
    if anchor is not None:
        named = BASELINES.find_document(results, anchor)
        chain = chain if chain is not None and chain.runs == named.runs else None
        first = Anchor(name=anchor, when=named.when, runs=named.runs)
    elif former is None or former.artifacts == tuple(dict.fromkeys(run.artifact for run in runs)):
        return chain
    else:
        first = Anchor(name=name, when=former.when, runs=former.runs)
    return first if chain is None else replace(chain, baselines=chain.baselines + 1)


def compare_with_anchor(
    anchor: Anchor, request: CheckRequest, candidate: CheckSide, home: Path, policy: Policy, power: Power
) -> tuple[Chain | None, list[str]]:
    """The candidate against an anchor, and sentences on what cannot be compared.

    Args:
        anchor: The anchor of the baseline.
        request: The request for the candidate.
        candidate: The candidate's records.
        home: The results folder of the anchor's records.
        policy: Levels and the budget.
        power: The margins of the check.
    """
    resolved, label = request.opened, f"the anchor {anchor.name} of {anchor.when[:10]}"
    try:
        side = CheckSide.read_side(anchor.runs, resolved, home)
    except RecordError as error:
        return None, [f"What was lost since {label} is not seen: {error.message}"]
    gone = [task for task, count in side.missing.items() if count]
    sentences = []
    if gone:
        sentences = [
            f"Of {label} {len(gone)} of {len(side.missing)} tasks have no records: what was lost on them "
            f"since then is not seen ({shorten_names(gone)})."
        ]
    theirs = {task: tuple(one.identity for one in ones) for task, ones in side.scored.items()}
    try:
        sentences += require_alike(
            request.identities, theirs, policy.allow_differences, label, own_prompts=True
        )
    except UsageError as error:
        return None, [*sentences, f"What was lost since {label} is not seen: {error.message}"]
    sides = Comparison(candidate=candidate, baseline=side, failures={})
    means = evaluate_chain(sides, resolved.suites, policy, power, anchor.baselines)
    chain = Chain(anchor=anchor.name, when=anchor.when, baselines=anchor.baselines, means=means)
    return (chain if means else None), sentences
