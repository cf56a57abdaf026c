"""The recipes of a request: their settings, the settings that are swept, and the tasks that choose."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

from harness.core.arguments import replace_settings, split_names
from harness.core.encoding import Settings
from harness.core.errors import UsageError, explain_unknown
from harness.core.terminal import shorten_names
from harness.core.types import SEED, Column, Suite, SuiteOptions, Task
from harness.jobs.recipe import ModelRecipe, TaskRecipe, list_recipe_settings
from harness.plan import catalog
from harness.plan.request import Request
from harness.plan.training_plan import Sweep


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
        return Recipes(task=task, stages=tuple(opened), sweep=_sweep(stages, changes, request))


def require_model_recipe(request: Request) -> None:
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
        before = catalog.find_recipe_entry(stage).settings[_parse_variant(stage)]
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


def list_stage_settings(names: Sequence[str]) -> dict[str, frozenset[str]]:
    """The names of the settings of every recipe, those that follow each other one by one."""
    stages = [stage for name in names for stage in name.split("+")]
    return {
        stage: frozenset(
            f.name for f in fields(catalog.find_recipe_entry(stage).settings[_parse_variant(stage)])
        )
        for stage in stages
    }


def _parse_variant(name: str) -> str:
    return name.partition(":")[2]


def _assign_changes(request: Request) -> dict[str, dict[str, Any]]:
    """The changed settings of each recipe: of the one before a dot, or of each stage that has the setting."""
    stage_settings = list_stage_settings(request.recipe_chains)
    changes: dict[str, dict[str, Any]] = {name: {} for name in stage_settings}
    for spelling, value in request.recipe_settings.items():
        for owner, setting in _find_setting_owners(spelling, stage_settings, request, "--set", f"={value}"):
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
        swept = _find_setting_owners(
            spelling, list_stage_settings(models), request, "--sweep", "=VALUE,VALUE"
        )
        for owner, setting in swept:
            changes[owner].pop(setting, None)
    return {
        f"{owner}.{setting}": value
        for owner, changed in _assign_changes(request).items()
        for setting, value in {**changes[owner], **changed}.items()
    }


def _find_setting_owners(
    spelling: str,
    settings_by_recipe: Mapping[str, frozenset[str]],
    request: Request,
    option: str,
    value: str,
) -> list[tuple[str, str]]:
    """The recipes that a setting is for, with its name without a recipe before it."""
    recipe, dot, setting = spelling.rpartition(".")
    if dot:
        named = [name for name in settings_by_recipe if recipe in (name, *name.split(":"))]
        if not named:
            raise explain_unknown(
                "recipe of this request",
                recipe,
                [*settings_by_recipe],
                then=f"Type {option} {setting}{value}.",
            )
        return [(name, setting) for name in named]
    owners = [name for name, settings in settings_by_recipe.items() if spelling in settings]
    # Stages of one chain A+B may share a setting, which is then changed in all. Two recipes of other kinds
    # may not: it would be open which of them is meant.
    requested = [one for one in request.recipe_chains if not set(owners).isdisjoint(one.split("+"))]
    if len(requested) > 1:
        raise UsageError(
            f"{' and '.join(requested)} both have a setting {spelling!r}.",
            hint=f"Type {option} {owners[0].partition(':')[0]}.{spelling}{value}.",
        )
    if not owners and len(settings_by_recipe) > 1:
        every = sorted(set().union(*settings_by_recipe.values()))
        then = "See docs/training.md and docs/glue.md."
        raise explain_unknown("setting of these recipes", spelling, every, then=then)
    # A setting that no recipe has goes to the first one, which refuses it and lists the settings that it has.
    return [(name, spelling) for name in owners or [*settings_by_recipe][:1]]


def _sweep(stages: Sequence[str], changes: Mapping[str, Mapping[str, Any]], request: Request) -> Sweep | None:
    """The sweep of a request; None without one.

    Raises:
        UsageError: No recipe makes a model, or a setting, two values or a task that chooses is missing.
    """
    if request.sample_seed is not None and request.samples is None:
        raise UsageError("--sample-seed is the seed of --samples.", hint="Type --samples N as well.")
    if not request.sweep:
        if request.select or request.samples:
            raise UsageError(
                "--select names the tasks that choose in a sweep, and --samples the number of its models.",
                hint="Type --sweep SETTING=VALUE,VALUE as well, or leave it out.",
            )
        return None
    if not stages:
        raise UsageError(
            "--sweep is for a setting of a recipe that makes a model; recipes for tasks with labels have "
            "their own grids.",
            hint="Name one with --recipe, e.g. dpr (`harness list recipes`).",
        )
    values: dict[str, Sequence[Any]] = {}
    for spelling, typed_values in request.sweep.items():
        setting = _resolve_sweep_setting(spelling, stages, request)
        if setting in changes[stages[-1]]:
            raise UsageError(f"{setting} is swept and set.", hint="Leave one of them out.")
        if setting in values:
            raise UsageError(f"{setting} is swept twice.", hint="Name all of its values in one --sweep.")
        values[setting] = _parse_sweep_values(stages[-1], setting, typed_values)
    # Sorted, so that the order in which settings were typed makes no other sweep.
    values = dict(sorted(values.items()))
    members, note = _draw_members(values, request)
    recipes = [_open_member(stages[-1], changes[stages[-1]], member) for member in members]
    note += _describe_inert_settings(stages[-1], members, recipes)
    if request.select and "budget" in values:
        raise UsageError(
            "--select would choose among budgets, of which the largest is the best.",
            hint="Leave it out: each combination is then a model of its own.",
        )
    return Sweep(
        setting=", ".join(values),
        # The value of one setting stands alone, as it did before several could be swept.
        values=tuple(member if len(values) > 1 else next(iter(member.values())) for member in members),
        recipes=tuple(recipes),
        tasks=_resolve_selection(request),
        note=note,
    )


def _resolve_sweep_setting(spelling: str, stages: Sequence[str], request: Request) -> str:
    """The name of the setting that is swept, which must be one of the last recipe alone."""
    if spelling == "seed":
        raise UsageError(
            "No sweep chooses among seeds, which would be luck: seed is no setting of a recipe.",
            hint="Type --seeds N for N trainings, shown as their mean with its deviation.",
        )
    owners = _find_setting_owners(
        spelling, list_stage_settings(["+".join(stages)]), request, "--sweep", "=VALUE,VALUE"
    )
    if [name for name, _ in owners] != [stages[-1]]:
        setting, last = owners[0][1], stages[-1]
        raise UsageError(
            f"{setting} is a setting of {owners[0][0]}, and only the last of several trainings can be swept.",
            hint=f"Type --sweep {last}.{setting}=VALUE,VALUE; or sweep {owners[0][0]} alone, then give its "
            f"model's folder as --model with --recipe {'+'.join(stages[1:])}.",
        )
    return owners[0][1]


def _parse_sweep_values(recipe: str, setting: str, values: Any) -> Sequence[Any]:
    """The values of a setting in the setting's own type, two or more that differ."""
    if isinstance(values, str):
        values = split_names(values)
    if not isinstance(values, Sequence):
        raise UsageError(f"The values of {setting} are {values!r}, and must be a list.")
    usual = catalog.find_recipe_entry(recipe).settings[_parse_variant(recipe)]
    typed = "--budget VALUE,VALUE" if setting == "budget" else "--sweep {}=VALUE,VALUE"
    try:
        settings = [replace_settings(usual, {setting: one}, of=recipe, example=typed) for one in values]
    except UsageError as error:
        value = getattr(usual, setting, None)
        if not isinstance(value, tuple) or len(value) < 2 or not all(isinstance(one, str) for one in values):
            raise
        raise UsageError(
            f"A value of {setting} is {len(value)} numbers, and the commas of --sweep part single ones.",
            hint=f"Type --set {setting}={','.join(map(str, value))} for one value, or several in Python: "
            f'sweep={{"{setting}": [{value}, …]}}.',
        ) from error
    parsed = [getattr(one, setting) for one in settings]
    if len(parsed) < 2:
        phrase = f"The value {parsed[0]}" if parsed else "No value"
        raise UsageError(
            f"{phrase} is given for {setting}: a sweep has two or more.",
            hint=f"Type e.g. --sweep {setting}=VALUE,VALUE, or --set {setting}=VALUE without a sweep.",
        )
    twice = [value for number, value in enumerate(parsed) if value in parsed[:number]]
    if twice:
        value = f"{twice[0]:g}" if isinstance(twice[0], float) else twice[0]
        raise UsageError(f"The value {value} of {setting} is given twice.", hint="Leave one of them out.")
    return parsed


def _draw_members(values: Mapping[str, Sequence[Any]], request: Request) -> tuple[list[dict[str, Any]], str]:
    """The swept settings of each member, all combinations or some drawn ones, and a sentence on that."""
    count, samples = math.prod(map(len, values.values())), request.samples
    what = f"{'combinations' if len(values) > 1 else 'values'} of {', '.join(values)}"
    if count >= 2**63:
        raise UsageError(
            f"The sweep has {count:,} {what}, more than can be drawn from.", hint="Sweep fewer values."
        )
    numbers: Sequence[int] = range(count)
    note = f"sweep: all {count:,} {what}"
    if samples is not None:
        if samples > count:
            raise UsageError(
                f"--samples is {samples:,}, and the sweep has {count:,} {what}.", hint="Leave out --samples."
            )
        seed = SEED if request.sample_seed is None else request.sample_seed
        # Drawn members keep their order among all, so that their sweep has one key whatever the seed was.
        numbers = sorted(random.Random(seed).sample(numbers, samples))
        note = f"sweep: {samples:,} of {count:,} {what}, drawn with seed {seed}"
    return [_pick_combination(values, number) for number in numbers], note


def _pick_combination(values: Mapping[str, Sequence[Any]], number: int) -> dict[str, Any]:
    """The combination of this number among all of them, the last setting changing first."""
    places: dict[str, int] = {}
    for name in reversed([*values]):
        number, places[name] = divmod(number, len(values[name]))
    return {name: values[name][places[name]] for name in values}


def _describe_inert_settings(
    recipe: str, members: Sequence[Mapping[str, Any]], recipes: Sequence[ModelRecipe]
) -> str:
    """What stands behind the sentence on a sweep where members differ in settings without effect alone."""
    entry, variant = catalog.find_recipe_entry(recipe), _parse_variant(recipe)
    active: dict[str, set[str]] = {}
    for member, opened in zip(members, recipes, strict=True):
        inert = {row.name for row in list_recipe_settings(entry, variant, opened) if row.inert} & {*member}
        rest = {name: value for name, value in member.items() if name not in inert}
        active.setdefault(str(rest), set()).update(inert)
    extra, names = len(members) - len(active), sorted(set().union(*active.values()))
    return f"; {', '.join(names)} has no effect: {extra} like another" if extra else ""


def _open_member(recipe: str, changes: Mapping[str, Any], member: Mapping[str, Any]) -> ModelRecipe:
    """The recipe with the settings of a member; an error names them."""
    try:
        return cast(ModelRecipe, catalog.open_recipe(recipe, {**changes, **member}))
    except UsageError as error:
        hint = error.hint or ""
        for setting in member:
            # The error speaks of --set, which was not typed.
            hint = hint.replace(f"--set {setting}=", f"--sweep {setting}=VALUE,")
        label = ", ".join(f"{setting}={value}" for setting, value in member.items())
        raise UsageError(f"{label}: {error.message}", hint=hint) from error


def _resolve_selection(request: Request) -> dict[str, Task]:
    """The tasks of --select by name; a task that its column shows in part has the column's name.

    Raises:
        UsageError: A suite or task does not exist, a column is a mean of tasks, or a task has labels.
    """
    selection: dict[str, Task] = {}
    for text in request.select:
        for name, tasks in _split_selection(text, request.folders):
            parts = catalog.open_suite(name, request.folders).parts
            suite = catalog.open_suites([name], replace(request.folders, tasks=tasks))[0]
            if request.settings.document_text is not None:
                suite = suite.with_documents(request.settings.document_text)
            for column in suite.columns:
                for task in _require_single_task(column):
                    label = column.name if column.name in parts else task.name
                    if selection.setdefault(label, task) != task:
                        raise UsageError(f"--select names two tasks {label}.", hint="Name one of them.")
    return selection


def _split_selection(text: str, options: SuiteOptions) -> list[tuple[str, tuple[str, ...]]]:
    """The suites that `suite`, `suite:argument` or `suite:tasks` stands for, each with names of its tasks."""
    name, _, rest = text.partition(":")
    entry, parts = catalog.load_suite_entries().get(name), split_names(rest)
    if entry is None or not rest:
        return [(text, ())]
    try:
        # What stands behind the colon is the suite's argument if the suite takes it, else names of its tasks.
        catalog.open_suite(text, options)
    except UsageError:
        if entry.alone and not entry.offers():
            return [(name, parts)]
        if {offer.name for offer in entry.offers()}.issuperset(parts):
            return [(f"{name}:{part}", ()) for part in parts]
    return [(text, ())]


def _require_single_task(column: Column) -> tuple[Task, ...]:
    """The task of a column that chooses; none where the column was not asked for."""
    if len(column.tasks) > 1:
        raise UsageError(
            f"{column.name} is the mean of {len(column.tasks)} tasks, and cannot choose.",
            hint=f"Name tasks of it, e.g. --select mteb:{column.tasks[0].name}.",
        )
    for task in column.tasks:
        if task.output == "label":
            raise UsageError(
                f"{task.name} needs a model trained for it, and cannot choose models that give vectors.",
                hint="Name a task of vectors, e.g. --select mteb:STSBenchmark.",
            )
    return column.tasks
