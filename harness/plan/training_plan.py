"""Models that a recipe makes: their keys, encodings and trainings, known before anything is trained."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.core.encoding import Encoding, Settings
from harness.core.errors import DataError, HarnessError, TrainingDataError, UsageError
from harness.core.keys import Lineage, ParentPart, SweepPart, format_swept_settings, serialize_canonical
from harness.core.terminal import shorten_names
from harness.core.types import Artifact, Task
from harness.data.locate import DataSettings
from harness.data.training.sets import (
    LocatedTraining,
    TrainingData,
    locate_training,
    locate_user_training,
    require_fetchable,
)
from harness.encoder.folder.description import describe
from harness.jobs.jobs import Job, Resources
from harness.jobs.recipe import GuidedRecipe, ModelRecipe, NamedDataRecipe, PlannedModel
from harness.jobs.training_jobs import Choose, Train
from harness.plan.models import ModelOptions, resolve_model
from harness.plan.plan import (
    ConfiguredModel,
    PlannedSweep,
    PlannedTraining,
    find_recorded_choice,
    plan_trials,
)
from harness.plan.request import Request
from harness.storage.remote_and_leases import Remote
from harness.storage.store import Store
from harness.training.model_store import ModelStore
from harness.training.training import TrainingSpec


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The values of settings; the mean of the main scores of some tasks chooses the best.

    Attributes:
        setting, values: As a `SweepPart` has them; the first of equals is chosen.
        recipes: The recipe with each of the values.
        tasks: The tasks that choose, by the names of their columns; without any each value is a model.
        note: A sentence on what is swept.
    """

    setting: str
    values: tuple[Any, ...]
    recipes: tuple[ModelRecipe, ...]
    tasks: Mapping[str, Task]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """A request for models that recipes make, and what it has come to.

    Attributes:
        typed: As the user gave it.
        seeds: A model is made with each.
        results: The results folder, in which trained models lie.
        data: The places for data sets.
        sweep: The sweep of settings; None for a single model of each backbone and seed.
        remote: The storage from which models are fetched that are not here.
    """

    typed: Request
    seeds: tuple[int, ...]
    results: Path
    data: DataSettings
    sweep: Sweep | None = None
    remote: Remote | None = None


def plan_models(
    backbones: Sequence[ConfiguredModel], stages: Sequence[ModelRecipe], request: TrainingRequest
) -> tuple[ConfiguredModel, ...]:
    """The models that recipes make, one after the other, of each backbone with each seed, trained or not.

    Args:
        backbones: The models to start from.
        stages: The recipes in their order; with a sweep its recipes take the place of the last.
        request: Seeds, data and places of the trainings.

    Returns:
        For each backbone a model for each seed; of a sweep without tasks that choose, one for each value.

    Raises:
        UsageError: A recipe cannot be used with a backbone or with the data.
        DataError: Data is missing, or cannot be read.
    """
    data_names = _assign_own_data(stages, request)
    # Not strict: `data_names` has one entry more, that of the last stage.
    earlier = [
        _prepare_recipe(stage, names, request) for stage, names in zip(stages[:-1], data_names, strict=False)
    ]
    lasts = request.sweep.recipes if request.sweep else stages[-1:]
    last = [_prepare_recipe(recipe, data_names[-1], request) for recipe in lasts]
    models = []
    for backbone in backbones:
        for seed in request.seeds:
            start = backbone
            for recipe, data in earlier:
                start = _plan_model(start, recipe, data, seed, request)
            if request.sweep is None:
                models.append(_plan_model(start, *last[0], seed, request))
                continue
            members = []
            for value, (recipe, data) in zip(request.sweep.values, last, strict=True):
                try:
                    members.append(_plan_model(start, recipe, data, seed, request))
                except HarnessError as error:
                    label = format_swept_settings(request.sweep.setting, value)
                    raise type(error)(f"{label}: {error.message}", hint=error.hint) from error
            _require_comparable(members, request.sweep)
            models += (
                [_plan_sweep_choice(members, request.sweep, request)] if request.sweep.tasks else members
            )
    return tuple(models)


def _resolve_guide(recipe: ModelRecipe, request: TrainingRequest) -> ModelRecipe:
    """A recipe with its guide attached, if it needs one."""
    if not isinstance(recipe, GuidedRecipe) or not recipe.guide:
        return recipe
    # The training has the gate check its guide, whatever the request accepts of other models.
    data = request.data
    options = ModelOptions(offline=data.offline, cache=data.cache, results=request.results, gate=True)
    try:
        guide = resolve_model(recipe.guide, Settings(), options)
    except HarnessError as error:
        also = f" {error.hint}" if error.hint else ""
        raise TrainingDataError(
            f"The guide of {recipe.name}: {error.message}",
            hint=f"Name one that is here, e.g. --set guide=minilm.{also}",
        ) from error
    if not isinstance(guide.encoding, Encoding):
        raise UsageError(
            f"{recipe.guide} gives no vectors, and the guide of {recipe.name} must.",
            hint="Name a finished embedding model: --set guide=MODEL.",
        )
    return recipe.attach_guide(guide.artifact, guide.encoding)


def _plan_sweep_choice(
    members: Sequence[ConfiguredModel], sweep: Sweep, request: TrainingRequest
) -> ConfiguredModel:
    """The model that a sweep chooses from its members, whether the choice is made yet or not."""
    first = members[0]
    assert first.lineage is not None
    assert first.training is not None
    trials = plan_trials(members, sweep.tasks, request.data)
    part = SweepPart(
        setting=sweep.setting,
        values=sweep.values,
        # The tasks of a sweep are part of the key of the chosen model, which must not depend on a member.
        tasks={
            name: {field: value for field, value in trial.identity.items() if field != "artifact"}
            for name, trial in trials[0].items()
        },
    )
    changes = {
        name: {key: value for key, value in getattr(first.lineage, name).items() if key not in part.names}
        for name in ("settings", "changed")
    }
    # A sentence that depends on the swept value does not hold for the chosen model, which is not known yet.
    of_all = [member.lineage.assumed for member in members if member.lineage is not None]
    assumed = tuple(sentence for sentence in first.lineage.assumed if all(sentence in one for one in of_all))
    lineage = first.lineage.model_copy(update={**changes, "assumed": assumed, "sweep": part})
    artifact, done = _locate_artifact(first.artifact.name, first.training.backbone.artifact, lineage, request)
    planned_sweep = PlannedSweep(part=part, members=tuple(members), trials=trials)
    encoding, sentence = first.encoding, first.evaluation
    if planned_sweep.decides_encoding and done:
        encoding, sentence = request.typed.evaluation_choice.configure_encoding(
            describe(artifact.folder), request.typed.settings, lineage, artifact.folder
        )
    elif planned_sweep.decides_encoding and (
        chosen := find_recorded_choice(planned_sweep, Store(request.results, request.remote))
    ):
        # Its folder is gone and every trial has its record: so may have the scores of the model.
        encoding, sentence = chosen.encoding, chosen.evaluation
    elif planned_sweep.decides_encoding:
        label = planned_sweep.format_member_value(first)
        sentence = f"{artifact.name} is evaluated as the member is that will be chosen, here as {label}"
    model = first.training.model
    choice = Choose(
        artifact=artifact,
        lineage=lineage,
        members=tuple(member.artifact for member in members),
        trials=tuple(
            {name: (trial.task.name, trial.key) for name, trial in found.items()} for found in trials
        ),
        results=request.results,
    )
    return replace(
        first,
        artifact=artifact,
        encoding=encoding,
        lineage=lineage,
        evaluation=sentence,
        training=PlannedTraining(
            model=replace(model, lineage=lineage, notes=(sweep.note, *model.notes)),
            backbone=first.training.backbone,
            job=Job(
                key=artifact.key,
                kind="select",
                label=artifact.name,
                claim=artifact.key,
                resources=Resources(needs_device=False),
                work=choice,
            ),
            done=done,
            sweep=planned_sweep,
        ),
    )


def _require_comparable(members: Sequence[ConfiguredModel], sweep: Sweep) -> None:
    """Refuse members that are one model, or that differ in more than the swept settings."""
    for (first, model), (second, copy) in itertools.combinations(zip(sweep.values, members, strict=True), 2):
        if model.artifact.key == copy.artifact.key:
            labels = " and ".join(format_swept_settings(sweep.setting, value) for value in (first, second))
            raise UsageError(f"{labels} make one model.", hint="Sweep other values, or another setting.")
    names = sweep.setting.split(", ")
    lineages = [member.lineage for member in members if member.lineage is not None]
    fixed = _drop_settings(lineages[0], names)
    if any(_drop_settings(one, names) != fixed for one in lineages):
        raise UsageError(
            f"Models that differ in {sweep.setting} are made of different data, models or instructions.",
            hint=f"Train them one by one: --set {names[0]}=VALUE.",
        )


def _drop_settings(lineage: Lineage, names: Sequence[str]) -> tuple[Any, ...]:
    """What models are made of that differ in some settings alone."""
    settings = {name: value for name, value in lineage.settings.items() if name not in names}
    return settings, lineage.data, lineage.selected_on, lineage.parents


def _locate_artifact(
    name: str, backbone: Artifact, lineage: Lineage, request: TrainingRequest
) -> tuple[Artifact, bool]:
    """The model of a lineage, and whether it is trained already."""
    key, store = lineage.key, ModelStore(request.results, request.remote)
    artifact = Artifact(name=name, source=backbone.source, folder=Path(), key=key, weights="", trained=True)
    artifact = replace(artifact, folder=store.locate_model(artifact.slug), allow=backbone.allow)
    stored_model = store.fetch_model(key, artifact.slug, request.data.cache)
    if stored_model is None:
        return artifact, False
    folder, document = stored_model
    return replace(artifact, folder=folder, weights=document.weights), True


def _require_fetchable(recipe: ModelRecipe, data: Sequence[LocatedTraining]) -> None:
    try:
        for part in data:
            require_fetchable(part)
    except DataError as error:
        raise _explain_data_error(recipe, error) from error


def _explain_data_error(recipe: ModelRecipe, error: DataError) -> TrainingDataError:
    hint = (error.hint or "").replace("--recipe RECIPE", f"--recipe {recipe.name}")
    return TrainingDataError(error.message, hint=hint or None)


_Data = tuple[tuple[LocatedTraining, ...], tuple[LocatedTraining, ...]]
"""Training data, and that of the selection."""


def _prepare_recipe(
    recipe: ModelRecipe, own_names: Sequence[str], request: TrainingRequest
) -> tuple[ModelRecipe, _Data]:
    """A recipe with its guide and the user's data sets attached, and the places of its data."""
    if isinstance(recipe, NamedDataRecipe):
        recipe = recipe.attach_user_data(own_names)
    return _resolve_guide(recipe, request), _locate_recipe_data(recipe, own_names, request)


def _locate_recipe_data(recipe: ModelRecipe, own_names: Sequence[str], request: TrainingRequest) -> _Data:
    """The training data, the user's own where there is some, and that of the selection."""
    try:
        selection = tuple(locate_training(one, request.data) for one in recipe.selection)
        if isinstance(recipe, NamedDataRecipe):
            return _locate_data_parts(recipe, request.data), selection
        if own_names:
            data = tuple(locate_user_training(name, request.data) for name in own_names)
            _require_different(own_names, data)
            return data, selection
        return tuple(locate_training(one, request.data) for one in recipe.data), selection
    except DataError as error:
        raise _explain_data_error(recipe, error) from error


def _locate_data_parts(recipe: NamedDataRecipe, settings: DataSettings) -> tuple[LocatedTraining, ...]:
    """The data of all sets.

    Raises:
        DataError: Some of it is not on this machine, or not as it must be; the message names all of it.
    """
    parts: list[LocatedTraining] = []
    absent: dict[TrainingData, DataError] = {}
    for part in recipe.list_data_parts():
        if isinstance(part, str):
            parts.append(locate_user_training(part, settings))
            continue
        try:
            parts.append(locate_training(part, settings))
        except DataError as error:
            absent[part] = error
    if not absent:
        own_parts = [part for part in parts if part.own]
        _require_different([part for part in recipe.list_data_parts() if isinstance(part, str)], own_parts)
        return tuple(parts)
    first = next(iter(absent.values()))
    paths = [*dict.fromkeys(part.path for part in absent)]
    message = first.message
    if len(paths) > 1:
        message += f" In all, {len(paths)} data sets are not here or not whole: {shorten_names(paths)}."
    rest = recipe.filter_set_names(absent)
    other = f"Or train on the sets that are here: --set sets={','.join(rest)}" if rest else ""
    raise DataError(message, hint=" ".join(filter(None, (first.hint, other))))


def _require_different(names: Sequence[str], data: Sequence[LocatedTraining]) -> None:
    """Refuse the same rows under two names, which would be trained twice."""
    first: dict[str, str] = {}
    for name, part in zip(names, data, strict=True):
        other = first.setdefault(serialize_canonical(part.data.identity), name)
        if other != name:
            raise UsageError(
                f"--train-data {name} has the same rows as {other}.", hint="Leave one of them out."
            )


def _plan_model(
    start: ConfiguredModel,
    recipe: ModelRecipe,
    located: _Data,
    seed: int,
    request: TrainingRequest,
) -> ConfiguredModel:
    backbone = start.artifact
    if backbone.trust_remote_code:
        raise UsageError(
            f"{backbone.name} runs code of its own, which no recipe can train.",
            hint="Leave out --trust-remote-code if the harness or transformers implements the model.",
        )
    data, selection = located
    try:
        # A backbone that is not trained yet has no files: the model that it starts from has its form.
        readable = replace(backbone, folder=start.on_disk.artifact.folder)
        before = start.training.model.description if start.training and not start.training.done else None
        before = before and replace(before, folder=readable.folder)
        model = recipe.plan(readable, (*data, *selection), seed=seed, planned=before)
    except DataError as error:
        raise TrainingDataError(error.message, hint=error.hint) from error
    # The recipe read the files of another model: the parent is the one that will have been trained from them.
    if start.lineage is not None:
        parents = (ParentPart.of(backbone, start.lineage), *model.lineage.parents[1:])
        model = replace(model, lineage=model.lineage.model_copy(update={"parents": parents}))
    artifact, done = _locate_artifact(f"{backbone.name}-{recipe.name}", backbone, model.lineage, request)
    key = artifact.key
    if not done:
        _require_fetchable(recipe, (*data, *selection))
    spec = TrainingSpec(
        recipe=recipe,
        backbone=backbone,
        data=data,
        selection=selection,
        seed=seed,
        key=key,
        folder=ModelStore(request.results).locate_training_folder(key),
        cache=request.data.cache,
        offline=request.data.offline,
        threads=request.typed.threads,
        minutes=request.typed.checkpoint_minutes,
    )
    description = replace(model.description, folder=artifact.folder)
    if done:
        # A model that is there has the prompts that it was saved with; the library may add empty ones.
        saved, planned = (
            {name: text for name, text in prompts.items() if text}
            for prompts in (describe(artifact.folder).prompts, description.prompts)
        )
        description = description if saved == planned else replace(description, prompts=saved)
    encoding, sentence = request.typed.evaluation_choice.configure_encoding(
        description, request.typed.settings, model.lineage, readable.folder
    )
    return ConfiguredModel(
        artifact=artifact,
        encoding=encoding,
        lineage=model.lineage,
        evaluation=sentence,
        training=PlannedTraining(
            model=model,
            backbone=start,
            job=_build_train_job(artifact, model, spec, request.results),
            done=done,
            diverged="" if done else ModelStore(request.results).read_divergence(key),
        ),
    )


def _assign_own_data(stages: Sequence[ModelRecipe], request: TrainingRequest) -> list[tuple[str, ...]]:
    """The names of the user's own data for each training.

    Raises:
        UsageError: It is not said which of several trainings a data set is for, or one is named twice.
    """
    names_by_stage: list[list[str]] = [[] for _ in stages]
    for text in request.typed.train_data:
        owner, equals, name = text.partition("=")
        numbers = [at for at, stage in enumerate(stages) if owner in (stage.name, *stage.name.split(":"))]
        # A path may have an "=" in it: only the name of a recipe before it says which training is meant.
        if not (equals and numbers):
            numbers, name = [*range(len(stages))], text
        if len(numbers) > 1:
            raise _explain_ambiguous_data(stages, name)
        if name in names_by_stage[numbers[0]]:
            raise UsageError(f"--train-data {name} is given twice.", hint="Leave one of them out.")
        names_by_stage[numbers[0]].append(name)
    return [tuple(names) for names in names_by_stage]


def _explain_ambiguous_data(stages: Sequence[ModelRecipe], data: str) -> UsageError:
    first, *others = [stage.name for stage in stages]
    name = "+".join([first, *others])
    return UsageError(
        f"--train-data is the data of one training, and {name} has several.",
        hint=f"Type --train-data {first}={data}, or {' or '.join(others)} before the =.",
    )


def _build_train_job(artifact: Artifact, model: PlannedModel, spec: TrainingSpec, results: Path) -> Job:
    return Job(
        key=artifact.key,
        kind="train",
        label=artifact.name,
        claim=artifact.key,
        resources=Resources(devices=1),
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
