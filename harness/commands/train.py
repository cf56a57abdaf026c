"""`harness train`: make models with a recipe, without evaluating them."""

from __future__ import annotations

import json
from typing import Any

import click

from harness.commands import options
from harness.core.terminal import create_console, print_lines
from harness.driver import evaluation, progress
from harness.driver.estimate import PlanCost
from harness.driver.evaluation import TrainedModel
from harness.driver.report.plan import print_trainings
from harness.plan.request import PreparedRun, Request


@click.command(
    "train",
    cls=options.HelpCommand,
    examples="""
harness train --model answerdotai/ModernBERT-base --recipe simcse --dry-run
harness train --model minilm --recipe simcse --train-data pairs.jsonl --set max_steps=500
""",
    everyday="--model --recipe --set --train-data --budget --sweep --select --seed --seeds --devices "
    "--results --dry-run",
)
@options.add_options("models")
@options.training
@options.add_options("seeds", "checkpoint_minutes", "sweep", "samples", "sample_seed", "select")
@options.option(
    "Output", "--dry-run", is_flag=True, help="Print what would be trained and its cost, and train nothing."
)
@options.as_json
def command(models: tuple[str, ...], dry_run: bool, as_json: bool, **given: Any) -> int:
    """Train models with a recipe; existing models are reused.

    An interrupted training resumes. `harness run` with the same options evaluates the models; so does
    `harness run --model FOLDER`.
    """
    request = Request.parse_options(models, (), given)
    with request.limit_network():
        prepared = evaluation.prepare(request, training=True)
        if dry_run:
            return _print_training_plan(prepared, as_json)
        trained_models = progress.follow_training(prepared, create_console(stderr=True))
    if as_json:
        rows = [_serialize_trained_model(one) for one in trained_models]
        click.echo(json.dumps({"schema": 1, "models": rows}, indent=1))
    else:
        for trained_model in trained_models:
            _print_made(trained_model)
    return 0 if all(one.failure is None for one in trained_models) else 1


def _print_made(trained_model: TrainedModel) -> None:
    model = trained_model.model
    assert model.lineage is not None
    name = f"{model.artifact.name}, seed {model.lineage.seed}"
    if trained_model.failure is not None:
        print_lines([f"{name}: {trained_model.failure.message}"], style="red")
        if trained_model.failure.hint:
            print_lines([f"  {trained_model.failure.hint}"])
        return
    state = "was there" if trained_model.was_there else "trained"
    print_lines([f"{name}: {state}, {trained_model.folder}"])
    print_lines([f"  harness run --model {trained_model.folder} --suite SUITE"], style="dim")


def _serialize_trained_model(trained_model: TrainedModel) -> dict[str, Any]:
    assert trained_model.model.lineage is not None
    failure = trained_model.failure
    state = "there" if trained_model.was_there else "trained"
    return {
        "name": trained_model.model.artifact.name,
        "key": trained_model.model.artifact.key,
        "seed": trained_model.model.lineage.seed,
        "folder": str(trained_model.folder) if trained_model.folder is not None else None,
        "state": state if failure is None else "failed",
        "error": None if failure is None else {"message": failure.message, "hint": failure.hint},
    }


def _print_training_plan(prepared: PreparedRun, as_json: bool) -> int:
    cost = PlanCost.estimate_plan(prepared)
    if as_json:
        # A training has no plan of scores, and no vectors on the disk.
        facts = {name: value for name, value in cost.to_json().items() if name not in ("plan", "disk")}
        click.echo(json.dumps(facts, indent=1))
    else:
        print_trainings(cost.trainings)
        if cost.time.seconds and not cost.unknown:
            create_console().print(f"About {cost.time.text} with start and checks.", highlight=False)
    return 0
