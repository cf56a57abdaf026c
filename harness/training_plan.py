"""Models that a recipe makes: their keys, encodings and trainings, known before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.data.locate import DataSettings
from harness.data.training import LocatedTraining, locate_training, own_training
from harness.encoder.model_settings import resolve_encoding
from harness.errors import DataError, UsageError
from harness.jobs import Job, Train
from harness.lineage import ParentPart
from harness.model_store import ModelStore
from harness.plan import ConfiguredModel, PlannedTraining
from harness.recipe import ModelRecipe, PlannedModel, RecipeChain
from harness.training import TrainingSpec
from harness.types import Artifact, Settings


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """The part of a request that concerns the training of models.

    Attributes:
        settings: With which the trained models are evaluated.
        seeds: A model is made with each.
        train_data: The user's own data in place of the recipe's; empty for the latter.
        results: The results folder, in which trained models lie.
        data: The places for data sets.
        threads: CPU threads of a process.
        minutes: The time between two checkpoints.
    """

    settings: Settings
    seeds: tuple[int, ...]
    train_data: str
    results: Path
    data: DataSettings
    threads: int | None
    minutes: float


def planned_models(
    backbones: Sequence[ConfiguredModel], recipe: ModelRecipe, request: TrainingRequest
) -> tuple[ConfiguredModel, ...]:
    """The models that a recipe makes of each backbone with each seed, trained already or not.

    Raises:
        UsageError: The recipe cannot be used with a backbone or with the data.
        DataError: There is no data, or it cannot be read.
    """
    data, selection = _located(recipe, request)
    return tuple(
        _planned(one, recipe, (data, selection), seed, request) for one in backbones for seed in request.seeds
    )


def _located(
    recipe: ModelRecipe, request: TrainingRequest
) -> tuple[tuple[LocatedTraining, ...], tuple[LocatedTraining, ...]]:
    """The training data, and that of the selection."""
    try:
        selection = tuple(locate_training(one, request.data) for one in recipe.selection)
        if request.train_data:
            return (own_training(request.train_data, request.data),), selection
        return tuple(locate_training(one, request.data) for one in recipe.data), selection
    except DataError as error:
        hint = (error.hint or "").replace("--recipe RECIPE", f"--recipe {recipe.name}")
        raise UsageError(error.message, hint=hint or None) from error


def _planned(
    one: ConfiguredModel,
    recipe: ModelRecipe,
    located: tuple[tuple[LocatedTraining, ...], tuple[LocatedTraining, ...]],
    seed: int,
    request: TrainingRequest,
) -> ConfiguredModel:
    if isinstance(recipe, RecipeChain):
        _refuse_own_data(recipe, request)
        one = _planned(one, recipe.first, _located(recipe.first, request), seed, request)
        return _planned(one, recipe.last, located, seed, request)
    backbone = one.artifact
    if backbone.trust_remote_code:
        raise UsageError(
            f"{backbone.name} runs code of its own, and no recipe trains that.",
            hint="Leave out --trust-remote-code, where the harness or transformers has its network.",
        )
    data, selection = located
    try:
        readable = replace(backbone, folder=one.on_disk.artifact.folder)
        model = recipe.plan(readable, (*data, *selection), seed=seed)
    except DataError as error:
        raise UsageError(error.message, hint=error.hint) from error
    if one.lineage is not None:
        parents = (ParentPart.of(backbone, one.lineage), *model.lineage.parents[1:])
        model = replace(model, lineage=model.lineage.model_copy(update={"parents": parents}))
    key, store = model.lineage.key, ModelStore(request.results)
    artifact = Artifact(
        name=f"{backbone.name}-{recipe.name}",
        source=backbone.source,
        folder=Path(),
        key=key,
        weights="",
        trained=True,
    )
    artifact = replace(artifact, folder=store.folder(artifact.slug))
    there = store.find(key, request.data.cache)
    if there is not None:
        folder, document = there
        artifact = replace(artifact, folder=folder, weights=document.weights)
    spec = TrainingSpec(
        recipe=recipe,
        backbone=backbone,
        data=data,
        selection=selection,
        seed=seed,
        key=key,
        folder=store.work(key),
        cache=request.data.cache,
        offline=request.data.offline,
        threads=request.threads,
        minutes=request.minutes,
    )
    description = replace(model.description, folder=artifact.folder)
    return ConfiguredModel(
        artifact=artifact,
        encoding=resolve_encoding(description, request.settings),
        lineage=model.lineage,
        training=PlannedTraining(
            model=model,
            backbone=one,
            job=_job(artifact, model, spec, request.results),
            done=there is not None,
        ),
    )


def _refuse_own_data(recipe: RecipeChain, request: TrainingRequest) -> None:
    """Refuse a user's own data where it is not said which of several trainings it is for."""
    if request.train_data:
        raise UsageError(
            f"--train-data is the data of one training, and {recipe.name} has several.",
            hint=f"Make a model with --recipe {recipe.first.name}, then give its folder as --model with "
            f"--recipe {recipe.last.name}; it is the same model.",
        )


def _job(artifact: Artifact, model: PlannedModel, spec: TrainingSpec, results: Path) -> Job:
    return Job(
        key=artifact.key,
        kind="train",
        label=artifact.name,
        claim=artifact.key,
        devices=1,
        work=Train(
            spec=spec,
            artifact=artifact,
            lineage=model.lineage,
            description=model.description,
            steps=model.steps,
            texts=model.texts,
            results=results,
        ),
    )
