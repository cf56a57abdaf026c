"""The resolved request: the models, suites and recipes that its names stand for, with their settings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from harness.core import files
from harness.core.arguments import replace_settings
from harness.core.encoding import BM25, Encoding, Settings, is_bm25
from harness.core.errors import UsageError
from harness.core.keys import is_per_machine
from harness.core.provenance import count_cores, describe_machine
from harness.core.terminal import shorten_names
from harness.core.types import SEED, Artifact, Suite, Task
from harness.data.folder import PARTIAL
from harness.data.locate import DataSettings
from harness.executors.local import check_devices, default_devices
from harness.jobs.recipe import KeepingRecipe, ModelRecipe, TaskRecipe, build_two_stage_error
from harness.plan import catalog
from harness.plan.catalog import (
    EvaluationChoice,
    check_prompts,
    find_setting_owners,
    list_stage_settings,
    parse_variant,
)
from harness.plan.models import ModelOptions, resolve_models
from harness.plan.plan import ConfiguredModel
from harness.plan.request import Request
from harness.plan.sweep import resolve_sweep
from harness.plan.training_plan import Sweep, TrainingRequest, plan_models
from harness.results.scores import NamedModel, distinguish_names
from harness.search import plaid
from harness.storage.remote_and_leases import Remote


@dataclass(frozen=True, kw_only=True)
class Recipes:
    """The recipes of a request.

    Attributes:
        task: The recipe for tasks with labels; None without one.
        stages: The recipes that make a model one after the other; none without one.
        sweep: The sweep of settings of the last stage.
    """

    task: TaskRecipe | None = None
    stages: tuple[ModelRecipe, ...] = ()
    sweep: Sweep | None = None

    @staticmethod
    def resolve_recipes(suites: Sequence[Suite], request: Request) -> Recipes:
        """The recipes that a request names, with its settings.

        Raises:
            UsageError: A recipe is missing, has nothing to do, or is refused its settings.
        """
        tasks = [task for suite in suites for task in suite.tasks]
        names = _group_recipes(request.recipe_chains)
        _require_use(names, tasks, suites, request)
        changes = _assign_changes(request)
        stages = names.get("model", "").split("+") if "model" in names else []
        task: Any = catalog.open_recipe(names["task"], changes[names["task"]]) if "task" in names else None
        opened: list[Any] = [catalog.open_recipe(stage, changes[stage]) for stage in stages]
        # With tasks that need vectors in the same run those settings are for them.
        if task is not None and all(one.output == "label" for one in tasks):
            _refuse_settings(request, task)
        _require_sweep(request)
        sweep = resolve_sweep(stages, changes, request) if request.sweep else None
        return Recipes(task=task, stages=tuple(opened), sweep=sweep)


def _require_sweep(request: Request) -> None:
    """Refuse options of a sweep without one."""
    if request.sample_seed is not None and request.samples is None:
        raise UsageError("--sample-seed is the seed of --samples.", hint="Type --samples N as well.")
    if not request.sweep and (request.select or request.samples):
        raise UsageError(
            "--select names the tasks that choose in a sweep, and --samples the number of its models.",
            hint="Type --sweep SETTING=VALUE,VALUE as well, or leave it out.",
        )


def _require_model_recipe(request: Request) -> None:
    """Refuse a request to train a model that names no recipe for one.

    Raises:
        UsageError: No such recipe is named; the message lists them.
    """
    names = _group_recipes(request.recipe_chains)
    if names.keys() != {"model"}:
        recipe_names = [
            name for name, entry in catalog.load_recipe_entries().items() if entry.kind == "model"
        ]
        reason = f"{names['task']} trains for tasks with labels" if "task" in names else "No recipe is named"
        raise UsageError(
            f"{reason}, and what is asked for is a model.",
            hint=f"Type --recipe with one of {', '.join(recipe_names)} (`harness list recipes`).",
        )


def collect_settings(request: Request) -> dict[str, Any]:
    """Every setting of the recipes of a request with its value, as `--set` takes them, but the swept ones.

    Raises:
        UsageError: A recipe or a setting does not exist, or a value has another form.
    """
    changes, complete = _assign_changes(request), dict[str, Any]()
    swept = {name.rpartition(".")[2] for name in request.sweep}
    for stage, changed in changes.items():
        before = catalog.find_recipe_entry(stage).settings[parse_variant(stage)]
        settings: Any = replace_settings(before, changed, of=stage)
        for setting in fields(settings):
            name = setting.name if len(changes) == 1 else f"{stage}.{setting.name}"
            value = getattr(settings, setting.name)
            # A setting that is both set and swept is refused.
            if setting.name in swept - changed.keys():
                continue
            # A value of a class of its own, such as a file that was read, is typed in another form.
            if type(value) in (bool, int, float, str, tuple):
                complete[name] = value
            elif value is None or isinstance(value, Path):
                complete[name] = "none" if value is None else str(value)
            elif setting.name in changed:
                complete[name] = changed[setting.name]
    return complete


def _group_recipes(names: Sequence[str]) -> dict[str, str]:
    """The names of recipes by their kind, "task" or "model"."""
    names_by_kind: dict[str, str] = {}
    for name in names:
        kind = catalog.find_recipe_kind(name)
        if kind in names_by_kind:
            what = "make models" if kind == "model" else "train for tasks with labels"
            raise UsageError(
                f"{names_by_kind[kind]} and {name} both {what}.",
                hint="Run one after the other, one --recipe each.",
            )
        names_by_kind[kind] = name
    return names_by_kind


def _require_use(
    names: Mapping[str, str], tasks: Sequence[Task], suites: Sequence[Suite], request: Request
) -> None:
    """Refuse recipes that no task needs, tasks that need another recipe, and options without their recipe."""
    labelled = [task.name for task in tasks if task.output == "label"]
    titles = ", ".join(suite.name for suite in suites)
    if labelled and "task" not in names:
        recipe_names = [name for name, entry in catalog.load_recipe_entries().items() if entry.kind == "task"]
        also = f" beside {names['model']}" if "model" in names else ""
        raise UsageError(
            f"A model must be trained for {shorten_names(labelled)}: which recipe{also}?",
            hint=f"Type --recipe with one of {', '.join(recipe_names)} (`harness list recipes`).",
        )
    if not names and request.recipe_settings:
        raise UsageError(
            "--set and --budget change settings of a recipe.", hint="Name one with --recipe, or leave it out."
        )
    if "task" in names and not labelled:
        raise UsageError(
            f"The recipe {names['task']} has nothing to train for: {titles or 'no suite'} has no task with "
            "labels.",
            hint="Type --suite glue, or leave out --recipe.",
        )
    if "task" in names and request.purpose == "trial":
        raise UsageError("A recipe's score is final: its runs are the trials.", hint="Leave out the purpose.")
    if "model" in names:
        if tasks and len(labelled) == len(tasks):
            raise UsageError(
                f"The recipe {names['model']} makes models that give vectors; {titles} has tasks with labels "
                "only.",
                hint="Leave it out, or name a suite of vectors, e.g. --suite mteb.",
            )
        return
    for option, value in (("--train-data", request.train_data), ("--seeds", request.seeds > 1)):
        if value:
            raise UsageError(
                f"{option} is for a recipe that makes a model.",
                hint="Name one with --recipe, e.g. simcse (`harness list recipes`), or leave it out.",
            )


def _refuse_settings(request: Request, recipe: TaskRecipe) -> None:
    """Refuse settings for finished models, which a recipe for tasks would silently ignore."""
    name = request.recipe_chains[0]
    for option in list_vector_options(request.settings):
        raise UsageError(
            f"{option} is for finished models; the recipe {name} says how one is trained.",
            hint=f"Leave out {option}.",
        )
    if request.settings.seed != SEED and not recipe.uses_seed:
        raise UsageError(
            f"--seed has no effect: the seeds of {recipe.name} are its own, and there are no fresh ones.",
            hint="Type --set fresh_seeds=N for fresh seeds, or leave out --seed.",
        )


_OPTIONS = {"prompts": "prompt"}
"""The options of settings that have another name on the command line."""


def list_vector_options(settings: Settings) -> list[str]:
    """The options that were given for how a model gives vectors."""
    # Baselines of earlier versions have stored float32, which was the default then: nobody asked for it.
    names = [f.name for f in fields(Settings) if getattr(settings, f.name) not in (f.default, "float32")]
    return [f"--{_OPTIONS.get(name, name).replace('_', '-')}" for name in names if name != "seed"]


def _assign_changes(request: Request) -> dict[str, dict[str, Any]]:
    """The changed settings of each recipe: of the one before a dot, or of each stage that has the setting."""
    stage_settings = list_stage_settings(request.recipe_chains)
    changes: dict[str, dict[str, Any]] = {name: {} for name in stage_settings}
    for spelling, value in request.recipe_settings.items():
        for owner, setting in find_setting_owners(
            spelling, stage_settings, request.recipe_chains, "--set", f"={value}"
        ):
            if setting in changes[owner]:
                raise UsageError(f"The setting {setting} is given twice.", hint="Leave one of them out.")
            changes[owner][setting] = value
    return changes


def merge_changes(before: Mapping[str, Any], request: Request) -> dict[str, Any]:
    """The changed settings of a request and those before it, without what the request changes or sweeps.

    Raises:
        UsageError: A setting is given twice on one side, or its recipe is not named.
    """
    if not request.recipe_chains:
        return {**before, **request.recipe_settings}
    changes = _assign_changes(replace(request, recipe_settings=before))
    models = [name for kind, name in _group_recipes(request.recipe_chains).items() if kind == "model"]
    for spelling in request.sweep if models else ():
        swept = find_setting_owners(
            spelling, list_stage_settings(models), request.recipe_chains, "--sweep", "=VALUE,VALUE"
        )
        for owner, setting in swept:
            changes[owner].pop(setting, None)
    return {
        f"{owner}.{setting}": value
        for owner, changed in _assign_changes(request).items()
        for setting, value in {**changes[owner], **changed}.items()
    }


_DEVICE = re.compile(r"cpu|mps|cuda(:\d+)?")
"""The spelling of a device."""


def _check_machine(request: Request) -> None:
    """Refuse misspelled devices, an unknown executor, devices of a cluster, and far more threads than cores.

    Raises:
        UsageError: One of them cannot be used.
    """
    # By spelling alone: a typing error is refused before torch is imported, which takes seconds.
    for name in request.devices:
        if not _DEVICE.fullmatch(name):
            raise UsageError(
                f"{name!r} is not a device.", hint="Type cpu, cuda, cuda:0, mps, or several with commas."
            )
    if request.cluster is None:
        if request.threads is not None and request.threads > 2 * (cores := count_cores()):
            raise UsageError(
                f"--threads is {request.threads}, more than twice the {cores} cores of this machine.",
                hint=f"Type {cores} or fewer: more threads than cores make each step slower.",
            )
    elif request.devices not in ((), ("cpu",), ("cuda",)):
        raise UsageError(
            f"--devices {','.join(request.devices)} with --executor {request.executor}: a cluster gives its "
            "workers devices.",
            hint="Type --devices cpu or --devices cuda, or leave it out.",
        )


def check_request(request: Request) -> None:
    """Refuse a request that would fail for any model, before there is a model.

    Raises:
        UsageError: An unknown suite, task, recipe, prompt or device, or no data root.
    """
    request = request.validate_fields()
    # From the cheap to the dear: spelling first, and last the devices, for which torch is imported.
    _check_machine(request)
    if request.settings.index:
        plaid.parse_plaid(request.settings.index)
    request.require_data_root()
    request.open_remote()
    suites = request.open_suites()
    Recipes.resolve_recipes(suites, request)
    check_prompts(request.settings.prompts or {}, suites)
    if request.devices and request.cluster is None:
        check_devices(request.devices)


@dataclass(frozen=True, kw_only=True)
class ResolvedRequest:
    """A resolved request.

    Attributes:
        asked: Each model of the request.
        trained: The models that a recipe makes of them, for each seed; none without such a recipe.
        recipe: The recipe for tasks with labels.
        stages: The recipes that make a model one after the other.
    """

    request: Request
    asked: tuple[ConfiguredModel, ...]
    trained: tuple[ConfiguredModel, ...]
    suites: tuple[Suite, ...]
    recipe: TaskRecipe | None
    stages: tuple[ModelRecipe, ...]
    results: Path
    cache: Path
    data: DataSettings

    @property
    def subjects(self) -> tuple[ConfiguredModel, ...]:
        """Every model that is evaluated, once."""
        labelled = any(task.output == "label" for suite in self.suites for task in suite.tasks)
        models = self.asked if labelled or not self.stages else ()
        every = tuple(dict.fromkeys((*models, *self.trained)))
        return _add_context_draws(every, self.request.context_seeds)

    def is_evaluated(self, model: ConfiguredModel, task: Task) -> bool:
        """Whether a model is evaluated on a task: those that a recipe made where the task needs vectors."""
        return not self.stages or (model.training is None) == (task.output == "label")

    @property
    def machine(self) -> dict[str, Any] | None:
        """The machine, where a task measures it; to know its devices, torch is imported.

        Raises:
            UsageError: The run is on other machines.
        """
        if not any(is_per_machine(task) for suite in self.suites for task in suite.tasks):
            return None
        if self.request.cluster is not None:
            raise UsageError(
                "A speed is of a machine, and --executor leaves open which one it is.",
                hint="Type the same command on the machine to be measured, without --executor.",
            )
        device = check_devices(self.request.devices or default_devices())[0]
        machine = describe_machine(device)
        return {**machine, "threads": self.request.threads or machine["threads"]}

    @staticmethod
    def resolve_request(
        request: Request,
        *,
        training: bool = False,
        remote: Remote | None = None,
        starts: tuple[ConfiguredModel, ...] = (),
        trials: ExitStack | None = None,
    ) -> ResolvedRequest:
        """Resolve the models, suites and recipes of a request.

        Args:
            request: As the user gave it.
            remote: The storage from which trained models are fetched that are not here.
            training: Whether models are trained and nothing is evaluated, so that no suite is needed.
            starts: Models, perhaps still to be trained, in the place of those that the request names.
            trials: At its end models that do not load are refused, and not here.

        Raises:
            UsageError: A name or a setting cannot be used.
        """
        request = request.validate_fields()
        _check_machine(request)
        if request.models and not (request.suites or training):
            raise UsageError(
                "A run needs a suite.",
                hint="Type --suite mteb, or --tasks STS12 --limit 100 for a quick look.",
            )
        if not request.models:
            raise UsageError(
                "A run needs at least one model and one suite.",
                hint="Type --model MODEL --suite mteb (`harness list models`, `harness list suites`).",
            )
        if request.lengths:
            raise UsageError("Several lengths are for `harness run`.", hint="Type --max-length.")
        cache = files.resolve_cache_folder(request.cache)
        results = files.resolve_results_folder(request.results)
        # Jobs on other machines do not start in this working directory.
        if request.cluster is not None:
            cache, results = cache.absolute(), results.absolute()
        data = DataSettings(
            root=request.require_data_root(),
            offline=request.offline,
            cache=cache,
            partial=PARTIAL in request.allow,
        )
        suites = request.open_suites()
        if training:
            _require_model_recipe(request)
        recipes = Recipes.resolve_recipes(suites, request)
        task = recipes.task
        _check_bm25(request, suites)
        trained = bool(recipes.stages)
        # Where a recipe trains for every task, no model is evaluated as it is.
        plain = trained or all(task.output == "label" for suite in suites for task in suite.tasks)
        models = starts or _resolve_models(request, cache, trials, recipe=plain, plain=trained)
        _check_late_interaction(models, suites, "+".join(request.recipe))
        staged = next((one.artifact.name for one in models if one.has_two_stages), None)
        if staged is not None and task is not None:
            raise build_two_stage_error(staged, task.name)
        check_prompts(request.settings.prompts or {}, suites)
        trained_models: tuple[ConfiguredModel, ...] = ()
        if recipes.stages:
            how = TrainingRequest(
                typed=request,
                seeds=tuple(range(request.settings.seed, request.settings.seed + request.seeds)),
                results=results,
                data=data,
                sweep=recipes.sweep,
                remote=remote,
            )
            # A model that a recipe has made goes on with its own seed.
            trained_models = tuple(
                model
                for one in starts
                if one.lineage is not None
                for model in plan_models([one], recipes.stages, replace(how, seeds=(one.lineage.seed,)))
            ) or plan_models(tuple(dict.fromkeys(models)), recipes.stages, how)
        lineages = [one.lineage for one in (*models, *trained_models) if one.lineage is not None]
        request.evaluation_choice.check_name(lineages)
        return ResolvedRequest(
            request=request,
            asked=models,
            trained=trained_models,
            suites=tuple(suites),
            recipe=task.attach_results(results) if isinstance(task, KeepingRecipe) else task,
            stages=recipes.stages,
            results=results,
            cache=cache,
            data=data,
        )


def _add_context_draws(models: Sequence[ConfiguredModel], count: int) -> tuple[ConfiguredModel, ...]:
    """The models, those whose vectors depend on drawn documents once for each of `count` draws.

    Raises:
        UsageError: Several draws are requested, and no model has context documents.
    """
    if count > 1 and not any(one.context for one in models):
        raise UsageError(
            "--context-seeds is for models whose vectors depend on context documents; this run has none.",
            hint="Leave it out.",
        )
    return tuple(own for one in models for own in _list_context_draws(one, count))


def _list_context_draws(model: ConfiguredModel, count: int) -> Sequence[ConfiguredModel]:
    """A model with each of several draws of context documents; the model alone where nothing is drawn."""
    encoding, draw = model.encoding, model.context
    if draw is None or not isinstance(encoding, Encoding):
        return [model]
    draws = [replace(draw, seed=draw.seed + number) for number in range(count)]
    return [replace(model, encoding=replace(encoding, context=draw)) for draw in draws]


def _check_bm25(request: Request, suites: Sequence[Suite]) -> None:
    """Refuse BM25 where it has nothing to rank, where it would be trained, and settings for vectors alone."""
    named = [t for t in request.models if is_bm25(t) or is_bm25(t.partition("=")[2])]
    if not named:
        return
    if request.recipe:
        raise UsageError(
            f"{named[0]} has no weights: no recipe trains it.", hint=f"Leave out --recipe, or {named[0]}."
        )
    if not any(task.retrieves for suite in suites for task in suite.tasks):
        titles = ", ".join(suite.name for suite in suites)
        raise UsageError(
            f"{named[0]} ranks documents, and {titles} has no retrieval task: each of its tasks needs a "
            "vector for each text.",
            hint="Name a suite with retrieval, e.g. --suite nanobeir, or leave it out.",
        )
    # With another model in the request such settings are meant for that one.
    vector_settings = [
        option for option in list_vector_options(request.settings) if option != "--document-text"
    ]
    if vector_settings and len(named) == len(request.models):
        raise UsageError(
            f"{vector_settings[0]} is for models that give vectors; {named[0]} ranks documents by their "
            "words.",
            hint=f"Leave it out. Settings of BM25 are typed with it, e.g. {BM25}:k1=0.9,b=0.4.",
        )


def _resolve_models(
    request: Request, cache: Path, trials: ExitStack | None, *, recipe: bool, plain: bool
) -> tuple[ConfiguredModel, ...]:
    """The models in the order of the request, each with a name that no other has.

    Of two identical models the first name is used, and names of folders are made distinct by their paths.
    With `recipe` no model is evaluated as it is; with `plain` the settings are not meant for these models.
    """
    options = ModelOptions(
        offline=request.offline,
        trust_remote_code=request.trust_remote_code,
        cache=cache,
        allow=request.allow,
        gate=request.gate,
        trained=recipe,
        results=files.resolve_results_folder(request.results),
        evaluation=EvaluationChoice() if plain else request.evaluation_choice,
    )
    settings = Settings() if plain else request.settings
    models = resolve_models(request.models, settings, options, trials)
    names = [request.names.get(text) for text in request.models]
    every = [
        replace(model, artifact=replace(model.artifact, name=name)) if name else model
        for model, name in zip(models, names, strict=True)
    ]
    # Reversed, as a later entry of a dict replaces an earlier one, and the first name is to stay.
    first = {(one.artifact.key, one.encoding): one for one in reversed(every)}
    return _distinguish_models([first[one.artifact.key, one.encoding] for one in every])


def _distinguish_models(models: Sequence[ConfiguredModel]) -> tuple[ConfiguredModel, ...]:
    """The models, each with a name of its own; `recorded` keeps the one that it had."""
    named = [_build_named_model(model.artifact) for model in models]
    labels = distinguish_names(named)
    return tuple(
        model
        if (name := labels[own.key, own.name]) == own.name
        else replace(model, artifact=replace(model.artifact, name=name, recorded=own.name))
        for model, own in zip(models, named, strict=True)
    )


def _build_named_model(artifact: Artifact) -> NamedModel:
    place = files.resolve_home_path(artifact.source)
    local = artifact.revision is None and place.exists()
    return NamedModel(
        name=artifact.name,
        key=artifact.key,
        folder=files.shorten_folder(place.resolve()) if local else "",
        revision=artifact.revision or "",
        shared=local,
    )


def _check_late_interaction(asked: Sequence[ConfiguredModel], suites: Sequence[Suite], recipe: str) -> None:
    """Refuse a multi-vector (ColBERT) model where it would be trained, or has nothing to search."""
    name = next((one.artifact.name for one in asked if one.interacts_late), None)
    if name is not None and recipe:
        raise UsageError(
            f"{name} gives a vector for each token: {recipe} does not train such a model.",
            hint="Give the backbone that it was made of, or leave out --recipe.",
        )
    tasks = [task for suite in suites for task in suite.tasks]
    if name and suites and not any(task.takes_token_vectors for task in tasks):
        titles = ", ".join(suite.name for suite in suites)
        raise UsageError(
            f"{name} gives a vector for each token, and {titles} has no retrieval task: each of its tasks "
            "needs a vector for each text.",
            hint="Name a suite with retrieval, e.g. --suite nanobeir, or leave it out.",
        )
