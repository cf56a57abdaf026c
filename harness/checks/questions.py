"""The models of a check, and the question that they may ask: is it a port, a retraining, or another model?"""

from __future__ import annotations

from dataclasses import replace

from harness.checks.baselines import Baseline, BaselineModel
from harness.checks.sides import CheckRequest
from harness.core.errors import HarnessError
from harness.plan.plan import ConfiguredModel
from harness.plan.request import Request
from harness.plan.resolved_request import ResolvedRequest


def resolve_baseline_model(
    baseline: Baseline, candidate: CheckRequest, own: Request
) -> ConfiguredModel | None:
    """The model of a baseline; None where it is not to be had, has changed, or is one of several.

    Args:
        baseline: The baseline.
        candidate: The request for the candidate.
        own: A request with the options of the baseline.
    """
    runs = {run.artifact: run for run in baseline.runs}
    if len(runs) > 1:
        return None
    (run,) = runs.values()
    # By the options of the baseline: the candidate's would make of it what is compared with it.
    typed = candidate.requests[0]
    request = replace(typed, settings=own.settings, evaluation=own.evaluation)
    try:
        (model,) = ResolvedRequest.resolve_request(_build_model_request(request, run)).asked
    except (HarnessError, OSError):
        return None
    return model if model.artifact.key == run.artifact else None


def _build_model_request(request: Request, run: BaselineModel) -> Request:
    pinned = f"{run.source}@{run.revision}" if run.revision and "@" not in run.source else run.source
    return replace(request, models=(pinned,), recipe=(), recipe_settings={})


def suggest_question(candidate: ConfiguredModel, baseline: ConfiguredModel) -> str:
    """A sentence on the question that two models may ask rather than which is better; empty for none.

    It decides nothing: a few more steps of a training look like a port, and are none.

    Args:
        candidate: The candidate, of a recipe what it makes first.
        baseline: The baseline's model, likewise.
    """
    mine, theirs = candidate.lineage, baseline.lineage
    if mine is not None and theirs is not None and mine.key != theirs.key:
        parents = [[parent.artifact for parent in one.parents] for one in (mine, theirs)]
        if mine.recipe == theirs.recipe and parents[0] == parents[1]:
            return (
                f"Both models were made of {mine.parents[0].name} by {mine.recipe}: --question retrain asks "
                "whether the recipe is worse, and not this one training."
            )
    if candidate.artifact.weights and candidate.artifact.weights == baseline.artifact.weights:
        return "Both models have the same weights: --question port asks whether their outputs are the same."
    return ""
