"""The downstream evaluation harness for text encoders.

`run` evaluates a model, `train` makes one, `check` compares a candidate with a baseline, and `follow`
evaluates the checkpoints of a training as they come, as the command line `harness` does; `records`, `scores`
and `compare` read what was measured; `register` lets transformers load models of the harness's own model
type. What authors of backbones, recipes and suites need is in `harness.plugins`. Both keep their names
whatever moves inside. Heavy libraries are imported only when needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.encoding import Settings
from harness.core.errors import HarnessError, UsageError
from harness.core.provenance import find_version
from harness.core.types import SuiteOptions

if TYPE_CHECKING:
    from harness.checks.outcome import Check, Question
    from harness.checks.policy import Policy
    from harness.driver.evaluation import TrainedModel
    from harness.driver.execute import Listeners
    from harness.driver.report.run import Report
    from harness.plan.model_objects import OwnEncoder, SavableModel
    from harness.plan.request import Request
    from harness.tools.comparison import compare_models as compare
    from harness.tools.measured import list_records as records
    from harness.tools.measured import list_scores as scores
    from harness.watch.watch import WatchOptions, follow, scan_source

_HOMES = {
    "Check": "harness.checks.outcome",
    "Listeners": "harness.driver.execute",
    "Policy": "harness.checks.policy",
    "Report": "harness.driver.report.run",
    "Request": "harness.plan.request",
    "TrainedModel": "harness.driver.evaluation",
    "WatchOptions": "harness.watch.watch",
    "compare": "harness.tools.comparison:compare_models",
    "follow": "harness.watch.watch",
    "records": "harness.tools.measured:list_records",
    "scan_source": "harness.watch.watch",
    "scores": "harness.tools.measured:list_scores",
}
"""The modules of names that are imported when they are first used, with the name there if it is another."""

__version__: str
"""The version as it was installed."""

__all__ = [
    "Check",
    "HarnessError",
    "Listeners",
    "Policy",
    "Report",
    "Request",
    "Settings",
    "SuiteOptions",
    "TrainedModel",
    "UsageError",
    "WatchOptions",
    "__version__",
    "check",
    "compare",
    "follow",
    "records",
    "register",
    "run",
    "scan_source",
    "scores",
    "train",
]


# PEP 562. An import above would load pydantic, numpy and rich with `import harness`.
def __getattr__(name: str) -> Any:
    if name == "__version__":
        return find_version()
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    return getattr(importlib.import_module(module), attribute or name)


def run(
    model: str | SavableModel | OwnEncoder | Sequence[str | SavableModel] | Mapping[str, str | SavableModel],
    suite: str | Sequence[str],
    *,
    name: str | None = None,
    settings: Settings | None = None,
    listeners: Listeners | None = None,
    **request: Any,
) -> Report:
    """Evaluate models on suites; scores with a record are not computed again.

    Args:
        model: A catalog name, `org/name[@revision]`, a folder or a trained model of `results`; or a
            SentenceTransformer or PyLate ColBERT in memory; or several, or a mapping of names for them to
            models. Such an object is not changed, and known by the content of what it saves. Or a single
            encoder of mteb's EncoderProtocol, which is measured again at each call.
        suite: A suite's name, or `name:argument`; or several.
        name: The model's name in records and tables; None for its own. An object has one only if its
            model card has a `model_id` or `model_name`; an encoder of mteb's protocol needs this one.
        settings: Pooling, dtype, maximum length, prompts and the like (`harness.Settings`).
        listeners: Called with events and results while it runs.
        **request: Any other field of `harness.plan.request.Request`, and any of its `settings`, its `options`
            (`tasks`, `languages`, `subsets`, `splits`).

    Returns:
        The report, with failed tasks, which do not raise.

    Raises:
        UsageError: The request cannot be carried out as given; nothing was run.
        StoreError: The results folder or the cache cannot be written.

    Example:
        >>> import harness
        >>> report = harness.run("minilm", "stdlib", results=Path("results"))  # doctest: +SKIP
        >>> [(r.task.name, r.main_score) for r in report.records]  # doctest: +SKIP
    """
    from harness.driver import evaluation

    return evaluation.run_evaluation(
        model, suite, name=name, settings=settings, listeners=listeners, **request
    )


def train(
    model: str | Sequence[str] | Mapping[str, str],
    recipe: str,
    *,
    listeners: Listeners | None = None,
    **request: Any,
) -> Sequence[TrainedModel]:
    """Make models with a recipe; a model that exists is not trained again.

    Args:
        model: The model to start from: a catalog name, `org/name[@revision]` or a folder; or several, or a
            mapping of names for them to models.
        recipe: A recipe that makes models, `name[:variant]`.
        listeners: Called with events while it trains.
        **request: Other fields of `harness.plan.request.Request`, such as `recipe_settings`, `train_data`,
            `seeds`, `results` and `offline`, and `seed`.

    Returns:
        Each model with its folder, or the reason why it was not made, which does not raise.

    Raises:
        UsageError: The request cannot be carried out as given; nothing was trained.
        StoreError: The results folder or the cache cannot be written.

    Example:
        >>> import harness
        >>> models = harness.train("minilm", "simcse", seeds=3)  # doctest: +SKIP
        >>> harness.run([str(model.folder) for model in models], "mteb")  # doctest: +SKIP
    """
    from harness.driver import evaluation

    return evaluation.train_models(model, recipe, listeners=listeners, **request)


def check(
    candidate: str | SavableModel,
    baseline: str | SavableModel,
    suite: str | Sequence[str] = (),
    *,
    name: str | None = None,
    seeds: int | None = None,
    policy: Policy | Path | str | None = None,
    question: Question | None = None,
    listeners: Listeners | None = None,
    **request: Any,
) -> Check:
    """The check of a candidate against a baseline; missing scores are measured first.

    Args:
        candidate: A catalog name, `org/name[@revision]`, a folder, a SentenceTransformer or PyLate ColBERT.
        baseline: The name of a baseline, its file, or a model.
        suite: A suite's name, or `name:argument`; or several. A baseline has its own.
        name: The candidate's name in records and tables; None for its own.
        seeds: The number of seeds for evaluation with random draws, or for training; a baseline has its own.
        policy: The requirements on the candidate, or a TOML file of them.
        question: "port", "retrain" or "replace"; None for "replace".
        listeners: Called with events and results while scores are measured.
        **request: Any other field that `harness.run` takes; the default is the baseline's value.

    Returns:
        The check, which is also saved in the results folder; a regression does not raise.

    Raises:
        UsageError: The request cannot be carried out, or the two were not evaluated alike.
        StoreError: The results folder cannot be written.

    Example:
        >>> import harness
        >>> check = harness.check("runs/last-night", "release")  # doctest: +SKIP
        >>> check.overall, [part.task for part in check.of("regressed")]  # doctest: +SKIP
    """
    from harness.checks import check

    return check.check_candidate(
        candidate,
        baseline,
        suite,
        name=name,
        seeds=seeds,
        policy=policy,
        question=question,
        listeners=listeners,
        **request,
    )


def register() -> None:
    """Let transformers load the model type "harness-encoder"; imports torch. Not needed for other models."""
    from harness.encoder.network import model

    model.register()
