"""The requests of a protocol: all that a paper's tables ask of one backbone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace

from harness.core.encoding import Settings
from harness.core.errors import UsageError, explain_unknown
from harness.jobs.protocol import ProtocolEntry, ProtocolStep
from harness.plan import catalog
from harness.plan.catalog import OWN, RECIPE, list_stage_settings
from harness.plan.request import Request
from harness.plan.resolved_request import list_vector_options


def expand_protocol(protocol: ProtocolEntry, base: Request, *, quick: bool = False) -> dict[str, Request]:
    """The requests of a protocol by the names of their steps, in order.

    Args:
        protocol: The protocol.
        base: Models, folders, devices and the like, which all steps share. Its `tasks` choose steps, and
            tasks of their suites; its recipe settings and training data go to the steps that take them.
        quick: Whether steps are those of a quick run, whose scores are trials.

    Returns:
        The steps to run; one without suites only makes the models that another step starts from.

    Raises:
        UsageError: The base request names what the protocol decides, or what no step has or takes.
    """
    if "budget" in base.sweep:
        raise UsageError(
            f"--protocol {protocol.name} takes a single budget.", hint="Type a command for each budget."
        )
    usual = Request(models=(), suites=())
    for option in ("suites", "recipe", "sweep", "samples", "sample_seed", "select", "context_seeds", "limit"):
        if getattr(base, option) != getattr(usual, option):
            typed = "suite" if option == "suites" else option.replace("_", "-")
            raise UsageError(
                f"--{typed} and --protocol {protocol.name} exclude each other.",
                hint="Leave one of them out; --tasks narrows a protocol, and --set changes a setting.",
            )
    _require_known_names(protocol.steps, base)
    steps = {step.name: step for step in protocol.steps if not (quick and step.slow)}
    requests = {name: _build_request(step, base, quick=quick) for name, step in steps.items()}
    evaluated = {name for name, request in requests.items() if request.suites}
    if not evaluated:
        raise UsageError(
            f"A quick run has none of {', '.join(base.options.tasks)}.",
            hint=" ".join(f"{step.name} is left out: {step.slow}." for step in protocol.steps if step.slow),
        )
    needed = evaluated | {steps[name].after for name in evaluated}
    requests = {name: request for name, request in requests.items() if name in needed}
    _require_used_options(requests, base)
    return requests


def _build_request(step: ProtocolStep, base: Request, *, quick: bool) -> Request:
    """The request of a step, with the suites and tasks that were asked for."""
    fields = {**step.request, **(step.quick if quick else {})}
    recipes, suites = fields.get("recipe", ()), fields.pop("suites")
    tasks, settings = fields.pop("tasks", ()), fields.pop("recipe_settings", {})
    if base.options.tasks and step.name not in base.options.tasks:
        tasks = base.options.tasks
        suites = tuple(suite for suite in suites if _find_suite_tasks(suite, tasks))
        tasks = tuple(task for task in tasks if any(_find_suite_tasks(suite, (task,)) for suite in suites))
    stages = _list_stages(recipes)
    # Settings of vectors and trials are not for recipes that train for tasks, whose scores are final.
    plain = bool(recipes) and not _makes_models(recipes)
    # The models of a chain of recipes are evaluated by its last one.
    lasts = [catalog.resolve_recipe_chain(name).rpartition("+")[2].partition(":")[0] for name in recipes]
    evaluated = any(base.evaluation in (OWN, RECIPE, *catalog.find_evaluations(name)) for name in lasts)
    request = replace(
        base,
        suites=suites,
        settings=Settings() if plain else base.settings,
        options=replace(base.options, tasks=tasks),
        purpose="trial" if quick and not plain else base.purpose,
        evaluation=base.evaluation if evaluated else RECIPE,
        seeds=base.seeds if recipes and not plain else 1,
        recipe_settings={
            **settings,
            **{name: value for name, value in base.recipe_settings.items() if _has_setting(stages, name)},
        },
        train_data=tuple(text for text in base.train_data if recipes and not plain and _is_for(stages, text)),
    )
    return request.replace_fields(fields, of=f"the step {step.name}")


def _makes_models(recipes: Sequence[str]) -> bool:
    return any(catalog.find_recipe_kind(name) == "model" for name in recipes)


def _find_suite_tasks(suite: str, names: Sequence[str]) -> list[str]:
    """The names of tasks or types that a suite has."""
    columns = catalog.open_suite(suite).columns
    return [name for name in names if any(catalog.is_column(column, name) for column in columns)]


def _list_stages(recipes: Sequence[str]) -> Mapping[str, frozenset[str]]:
    """The names of the settings of a step's recipes, by recipe."""
    return list_stage_settings([catalog.resolve_recipe_chain(name) for name in recipes])


def _has_setting(stages: Mapping[str, frozenset[str]], spelling: str) -> bool:
    """Whether one of some recipes has a setting, spelled `setting` or `recipe.setting`."""
    recipe, _, setting = spelling.rpartition(".")
    return any(
        setting in settings and recipe in ("", stage, *stage.split(":")) for stage, settings in stages.items()
    )


def _is_for(stages: Mapping[str, frozenset[str]], text: str) -> bool:
    """Whether own data, spelled `DATA` or `RECIPE=DATA`, is for one of some recipes."""
    owner, equals, _ = text.partition("=")
    named = equals and owner.partition(":")[0] in catalog.load_recipe_entries()
    return not named or any(owner in (stage, *stage.split(":")) for stage in stages)


def _require_known_names(steps: Collection[ProtocolStep], base: Request) -> None:
    """Refuse tasks, settings and evaluations that no step has, quick or not."""
    suites = dict.fromkeys(suite for step in steps for suite in step.request["suites"])
    names = [step.name for step in steps]
    for task in base.options.tasks:
        if task not in names and not any(_find_suite_tasks(suite, (task,)) for suite in suites):
            columns = {column.name for suite in suites for column in catalog.open_suite(suite).columns}
            then = "Names are those of steps, and of tasks of their suites."
            raise explain_unknown("task of this protocol", task, {*names, *columns}, then=then)
    stages = {
        name: settings
        for step in steps
        for name, settings in _list_stages(step.request.get("recipe", ())).items()
    }
    for setting in base.recipe_settings:
        if not _has_setting(stages, setting):
            every = sorted(set().union(*stages.values()))
            raise explain_unknown("setting of this protocol", setting, every, then="See docs/training.md.")
    recipes = {part for stage in stages for part in stage.split(":")}
    evaluations = {OWN, RECIPE}.union(*map(catalog.find_evaluations, recipes)) - {""}
    if base.evaluation not in evaluations:
        then = "The evaluations of recipes are in docs/training.md."
        raise explain_unknown("evaluation of this protocol", base.evaluation, evaluations, then=then)


def _require_used_options(requests: Mapping[str, Request], base: Request) -> None:
    """Refuse options that a step decides itself, that none takes, or that several would take as theirs."""
    typed_options = list_vector_options(base.settings)
    if typed_options and all(request.settings == Settings() for request in requests.values()):
        raise UsageError(
            f"{typed_options[0]} is for models that give vectors, and no step of this run has one.",
            hint=f"Leave out {typed_options[0]}.",
        )
    for name, request in requests.items():
        for setting in fields(base.settings):
            typed, value = (getattr(one.settings, setting.name) for one in (base, request))
            if request.settings != Settings() and typed not in (setting.default, value):
                option = f"--{setting.name.replace('_', '-')}"
                raise UsageError(
                    f"The step {name} has {option} {value}, and {typed} was asked for.",
                    hint=f"Leave out {option}, or name other steps with --tasks.",
                )
    recipes = [name for one in requests.values() if _makes_models(one.recipe) for name in one.recipe]
    if base.seeds > 1 and not recipes:
        raise UsageError(
            "--seeds is for recipes that make a model, and no step of this run has one.",
            hint="Leave it out; `harness recipes show NAME` says which seeds a recipe has itself.",
        )
    stages = [*dict.fromkeys(stage for name in recipes for stage in _list_stages((name,)))]
    for text in base.train_data:
        takers = [stage for stage in stages if _is_for({stage: frozenset()}, text)]
        if len(takers) != 1:
            which = f"no step of this run trains it: {text}" if not takers else f"several recipes take {text}"
            raise UsageError(
                f"--train-data is for one recipe, and {which}.",
                hint=f"Type --train-data RECIPE=DATA, with one of {', '.join(stages) or 'another protocol'}.",
            )
