"""The downstream evaluation harness for text encoders.

`run` evaluates a model, `train` makes one, `check` compares a candidate with a baseline, as the command line
`harness` does, and `register` lets transformers load models of the harness's own model type. Heavy libraries
are imported only when one of them is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.encoding import Settings
from harness.provenance import __version__

if TYPE_CHECKING:
    from harness.checks.outcome import Check
    from harness.checks.policy import Policy
    from harness.evaluation import TrainedModel
    from harness.execute import Listeners
    from harness.report import Report

__all__ = ["Settings", "__version__", "check", "register", "run", "train"]


def run(
    model: str | Sequence[str],
    suite: str | Sequence[str],
    *,
    settings: Settings | None = None,
    listeners: Listeners | None = None,
    **request: Any,
) -> Report:
    """Evaluate models on suites; scores with a record are not computed again.

    Args:
        model: A catalog name, `org/name[@revision]`, a folder or a trained model of `results`; or several.
        suite: A suite's name, or `name:argument`; or several.
        settings: Pooling, dtype, maximum length, prompts and the like (`harness.Settings`).
        listeners: Called with events and results while it runs.
        **request: Any other field of `harness.request.Request`, and any of its `settings`, its `options`
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
    from harness import evaluation

    return evaluation.run(model, suite, settings=settings, listeners=listeners, **request)


def train(
    model: str | Sequence[str], recipe: str, *, listeners: Listeners | None = None, **request: Any
) -> Sequence[TrainedModel]:
    """Make models with a recipe; one that is there is not trained again.

    Args:
        model: The model to start from: a catalog name, `org/name[@revision]` or a folder; or several.
        recipe: A recipe that makes models, `name[:variant]`.
        listeners: Called with events while it trains.
        **request: Other fields of `harness.request.Request`, such as `recipe_settings`, `train_data`,
            `seeds`, `results` and `offline`, and `seed`.

    Returns:
        Each model with its folder, or the reason why it was not made, which does not raise.

    Raises:
        UsageError: The request cannot be carried out as given; nothing was trained.
        StoreError: The results folder or the cache cannot be written.

    Example:
        >>> import harness
        >>> made = harness.train("minilm", "simcse", seeds=3)  # doctest: +SKIP
        >>> harness.run([str(one.folder) for one in made], "mteb")  # doctest: +SKIP
    """
    from harness import evaluation

    return evaluation.train(model, recipe, listeners=listeners, **request)


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
    """The check of a candidate against a baseline; missing scores are measured first.

    Args:
        candidate: A catalog name, `org/name[@revision]` or a folder.
        baseline: The name of a baseline, its file, or a model.
        suite: A suite's name, or `name:argument`; or several. A baseline has its own.
        seeds: The number of seeds for evaluation with random draws, or for training; a baseline has its own.
        policy: The requirements on the candidate, or a TOML file of them.
        listeners: Called with events and results while scores are measured.
        **request: Any other field that `harness.run` takes; the default is the baseline's value.

    Returns:
        The check, which is also saved in the results folder; a regression does not raise.

    Raises:
        UsageError: The request cannot be carried out, or the two were not evaluated alike.
        StoreError: The results folder cannot be written.

    Example:
        >>> import harness
        >>> found = harness.check("runs/last-night", "release")  # doctest: +SKIP
        >>> found.overall, [one.task for one in found.of("regressed")]  # doctest: +SKIP
    """
    from harness.checks import check

    return check.check(candidate, baseline, suite, seeds=seeds, policy=policy, listeners=listeners, **request)


def register() -> None:
    """Let transformers load the model type "harness-encoder"; imports torch. Not needed for other models."""
    from harness.encoder.network import model

    model.register()
