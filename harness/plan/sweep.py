"""The sweep of a request: the settings that are swept, its members, and the tasks that choose."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from harness.core.arguments import replace_settings, split_names
from harness.core.errors import UsageError
from harness.core.types import SEED, Column, SuiteOptions, Task
from harness.jobs.recipe import ModelRecipe, list_recipe_settings
from harness.plan import catalog
from harness.plan.catalog import find_setting_owners, list_stage_settings, parse_variant
from harness.plan.request import Request
from harness.plan.training_plan import Sweep


def resolve_sweep(stages: Sequence[str], changes: Mapping[str, Mapping[str, Any]], request: Request) -> Sweep:
    """The sweep of a request that names one.

    Args:
        stages: The recipes that make the model, one after the other.
        changes: The changed settings of each recipe.
        request: The request.

    Raises:
        UsageError: No recipe makes a model, or a setting, two values or a task that chooses is missing.
    """
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
    owners = find_setting_owners(
        spelling, list_stage_settings(["+".join(stages)]), request.recipe_chains, "--sweep", "=VALUE,VALUE"
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
    usual = catalog.find_recipe_entry(recipe).settings[parse_variant(recipe)]
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
    entry, variant = catalog.find_recipe_entry(recipe), parse_variant(recipe)
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
