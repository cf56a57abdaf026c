"""`harness train`: make models with a recipe, without evaluating them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import click
from rich.table import Table

from harness.commands import options
from harness.core.terminal import console, print_table
from harness.data.training.sets import LocatedTraining
from harness.driver import evaluation, progress
from harness.driver.evaluation import TrainedModel
from harness.driver.progress import duration_text
from harness.jobs.training_jobs import Train
from harness.plan.plan import ConfiguredModel
from harness.plan.recipe_request import sweep_of
from harness.plan.request import DEFAULTS, PreparedRun, Request
from harness.training.model_store import ModelStore


@click.command("train")
@options.models
@options.training
@options.seeds
@options.checkpoint_minutes
@options.sweep
@options.select
@click.option("--dry-run", is_flag=True, help="Print what would be trained and its cost; train nothing.")
@options.as_json
def command(
    models: tuple[str, ...],
    seeds: int,
    checkpoint_minutes: float,
    sweep: tuple[str, ...],
    select: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Make models with a recipe; a model that is there is not trained again.

    A training that was interrupted goes on where it stopped. `harness run` with the same options
    evaluates the models; so does `harness run --model FOLDER`.
    """
    how = {"seeds": seeds, "checkpoint_minutes": checkpoint_minutes, "select": select}
    request = Request.of_options(models, (), {**DEFAULTS, **given}, sweep=sweep_of(sweep), **how)
    with request.network():
        prepared = evaluation.prepare(request, training=True)
        if dry_run:
            return _show(prepared, as_json)
        made = progress.carry_out_training(prepared, console(stderr=True))
    if as_json:
        click.echo(json.dumps({"schema": 1, "models": [_made_json(one) for one in made]}, indent=1))
    else:
        for one in made:
            _print_made(one)
    return 0 if all(one.failure is None for one in made) else 1


def _print_made(one: TrainedModel) -> None:
    out, model = console(), one.model
    assert model.lineage is not None
    name = f"{model.artifact.name}, seed {model.lineage.seed}"
    if one.failure is not None:
        out.print(f"{name}: {one.failure.message}", style="red", highlight=False, soft_wrap=True)
        if one.failure.hint:
            out.print(f"  {one.failure.hint}", highlight=False, soft_wrap=True)
        return
    state = "was there" if one.was_there else "trained"
    out.print(f"{name}: {state}, {one.folder}", highlight=False, soft_wrap=True)
    then = f"  harness run --model {one.folder} --suite SUITE"
    out.print(then, highlight=False, soft_wrap=True, style="dim")


def _made_json(one: TrainedModel) -> dict[str, Any]:
    assert one.model.lineage is not None
    failure = one.failure
    return {
        "name": one.model.artifact.name,
        "key": one.model.artifact.key,
        "seed": one.model.lineage.seed,
        "folder": str(one.folder) if one.folder is not None else None,
        "state": "failed" if failure is not None else "there" if one.was_there else "trained",
        "error": None if failure is None else {"message": failure.message, "hint": failure.hint},
    }


def _show(prepared: PreparedRun, as_json: bool) -> int:
    lines = training_costs(prepared)
    if as_json:
        click.echo(json.dumps({"schema": 1, "trainings": [asdict(line) for line in lines]}, indent=1))
    else:
        print_trainings(lines)
    return 0


@dataclass(frozen=True, kw_only=True)
class TrainingCost:
    """A planned training and its expected cost, None where unknown.

    Attributes:
        model, key, folder: The model's name, its ArtifactKey, and the folder where it will lie.
        recipe, seed: What it is made with.
        parent: The model that it starts from.
        state: "there", "to do", "to go on" with a training that was interrupted, "diverged", or "to
            choose" in a sweep.
        steps, texts: Optimizer steps, and texts that are encoded.
        done: The steps that an interrupted training has in its checkpoint or log.
        seconds: By trainings of the same model on this machine.
        data: The names of the training data.
        notes: What the recipe says of it, and what it assumes.
    """

    model: str
    key: str
    folder: str
    recipe: str
    seed: int
    parent: str
    state: str
    steps: int | None
    texts: int | None
    done: int
    seconds: float | None
    data: tuple[str, ...]
    notes: tuple[str, ...]

    @staticmethod
    def of(one: ConfiguredModel, prepared: PreparedRun) -> TrainingCost:
        """The cost of the training of a model."""
        assert one.training is not None
        assert one.lineage is not None
        store, plan = ModelStore(prepared.store.root), one.training.model
        work = one.training.job.work
        begun = {found.key: found.done for found in store.unfinished()}
        state = "there" if one.training.done else "to go on" if one.artifact.key in begun else "to do"
        state = "diverged" if one.training.diverged else state
        return TrainingCost(
            model=prepared.label(one),
            key=one.artifact.key,
            folder=str(one.artifact.folder),
            recipe=one.lineage.text,
            seed=one.lineage.seed,
            parent=one.training.backbone.artifact.name,
            state=state,
            steps=plan.steps,
            texts=plan.texts,
            done=begun.get(one.artifact.key, 0),
            seconds=0.0 if state in ("there", "diverged") else _seconds(one, store),
            data=tuple(map(_data_text, _data(work))),
            notes=(*plan.notes, *(f"assumed: {sentence}" for sentence in one.lineage.assumed)),
        )


def training_costs(prepared: PreparedRun) -> list[TrainingCost]:
    """The planned trainings of a run, the members of a sweep among them."""
    found = []
    for one in prepared.plan.trainings:
        assert one.training is not None
        if one.training.sweep is None or one.training.done:
            found.append(TrainingCost.of(one, prepared))
            continue
        label = one.training.sweep.label
        members = one.training.sweep.members
        found += [replace(TrainingCost.of(member, prepared), model=label(member)) for member in members]
        choice = TrainingCost.of(one, prepared)
        found.append(replace(choice, state="to choose", steps=0, texts=0, seconds=0.0))
    return found


def _data(work: object) -> tuple[LocatedTraining, ...]:
    return work.spec.data if isinstance(work, Train) else ()


def _data_text(data: LocatedTraining) -> str:
    return f"{data.name} ({data.rows:,} rows)" if data.rows else data.name


def _seconds(one: ConfiguredModel, store: ModelStore) -> float | None:
    """The expected time, by the texts a second of finished trainings of the same backbone and recipe."""
    assert one.training is not None
    assert one.lineage is not None
    texts = one.training.model.texts
    for stored in store.finished():
        if (document := stored.document) is None:
            continue
        theirs, past = document.lineage, document.training
        same = (theirs.recipe, theirs.parents) == (one.lineage.recipe, one.lineage.parents)
        if same and texts and past.get("texts") and past.get("seconds"):
            return float(past["seconds"]) / float(past["texts"]) * texts
    return None


def print_trainings(lines: Sequence[TrainingCost]) -> None:
    """Print planned trainings as a table, and what their recipes say of them."""
    table = Table(title="trainings; nothing was run")
    for name in ("model", "key", "from", "data", "seed", "state"):
        table.add_column(name)
    for name in ("steps", "texts", "time ≈"):
        table.add_column(name, justify="right")
    for line in lines:
        done = f"{line.done:,} of " if line.done else ""
        table.add_row(
            line.model,
            line.key[:12],
            line.parent,
            ", ".join(line.data),
            str(line.seed),
            line.state,
            "?" if line.steps is None else f"{done}{line.steps:,}",
            "?" if line.texts is None else f"{line.texts:,}",
            "?" if line.seconds is None else duration_text(line.seconds),
        )
    out = console()
    print_table(table, out)
    for note in dict.fromkeys(note for line in lines for note in line.notes):
        out.print(note, style="dim", highlight=False, soft_wrap=True)
