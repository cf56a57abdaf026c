"""What a user asks of a run, and what of it cannot be carried out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from harness import catalog
from harness.errors import UsageError, unknown
from harness.failures import shortened
from harness.recipe import Recipe, RecipeOptions
from harness.types import SIDES, Purpose, Settings, Suite, SuiteOptions


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to run: models, suites, settings and places, as they are asked for.

    `models`, `suites` and `recipe` are spelled as on the command line; `devices` are torch device
    names, one worker process each if there are several. `gate` off lets a model run that the sanity
    gate refuses; its records say so. After `budget` seconds no new job is started: the tasks that
    were not reached are "stopped", and the same request goes on with them. `names` are what models
    are to be called in records and tables, by their spelling.
    """

    models: tuple[str, ...]
    suites: tuple[str, ...]
    settings: Settings = field(default_factory=Settings)
    options: SuiteOptions = field(default_factory=SuiteOptions)
    recipe: str = ""
    recipe_options: RecipeOptions = field(default_factory=RecipeOptions)
    results: Path | None = None
    cache: Path | None = None
    data: Path | None = None
    offline: bool = False
    devices: tuple[str, ...] = ()
    threads: int | None = None
    workers: int | None = None
    force: bool = False
    fail_fast: bool = False
    trust_remote_code: bool = False
    gate: bool = True
    purpose: Purpose = "final"
    budget: float | None = None
    names: Mapping[str, str] = field(default_factory=dict)


def recipe_for(suites: Sequence[Suite], request: Request) -> Recipe | None:
    """The recipe that trains for those tasks that need one, None where none does.

    Raises:
        UsageError: It is missing, or there is nothing to train for, or a setting is asked for that
            the recipe itself makes.
    """
    learnt = [task.name for suite in suites for task in suite.tasks if task.output == "label"]
    if not learnt:
        if request.recipe_options != RecipeOptions():
            raise UsageError(
                "--fresh-seeds, --no-transfer and --mnli hold for tasks that a recipe trains for.",
                hint="Type --suite glue, or leave them out.",
            )
        if request.recipe:
            names = ", ".join(suite.name for suite in suites)
            raise UsageError(
                f"The recipe {request.recipe} has nothing to train for: {names} has no task with labels.",
                hint="Type --suite glue, or leave out --recipe.",
            )
        return None
    if not request.recipe:
        raise UsageError(
            f"A model must be trained for {shortened(learnt)}: which recipe?",
            hint=f"Type --recipe with one of {', '.join(catalog.recipes())} (`harness list recipes`).",
        )
    _refuse_options(request)
    if len(learnt) == sum(len(suite.tasks) for suite in suites):
        _refuse_settings(request)
    return catalog.open_recipe(request.recipe, replace(request.recipe_options, seed=request.settings.seed))


def _refuse_options(request: Request) -> None:
    """Refuse what contradicts itself."""
    options = request.recipe_options
    if request.purpose == "trial":
        raise UsageError("A recipe's score is final: its runs are the trials.", hint="Leave out the purpose.")
    if options.source is not None and not options.transfer:
        raise UsageError("--mnli and --no-transfer contradict each other.", hint="Leave one of them out.")
    if options.source is not None and not options.source.exists():
        raise UsageError(f"There is no {options.source}.", hint="--mnli takes a model folder, or weights.")


def _refuse_settings(request: Request) -> None:
    """Refuse what holds for finished models only, and would be left out without a word."""
    for one in fields(Settings):
        if one.name != "seed" and getattr(request.settings, one.name) != one.default:
            option = one.name.replace("_", "-")
            raise UsageError(
                f"--{option} holds for finished models; the recipe {request.recipe} says how one is trained.",
                hint=f"Leave out --{option}.",
            )


def check_prompts(prompts: Mapping[str, str], suites: Sequence[Suite]) -> None:
    """Refuse a prompt for something that does not exist: it would be left out without a word.

    Names are `query`, `document`, a task or a type of task, the last two also with a side
    (`STS12-query`). Tasks that are known but not part of the run are in order.

    Raises:
        UsageError: A name is none of these.
    """
    if not prompts:
        return
    offered = [o for entry in catalog.suites().values() for o in entry.offers() if o.kind == "task"]
    tasks = {c.name for suite in suites for c in suite.columns} | {o.name for o in offered}
    tasks |= {task.name for suite in suites for task in suite.tasks}
    types = {t.type for suite in suites for t in suite.tasks} | {o.facts["type"] for o in offered}
    for name in prompts:
        whole = name.removesuffix("-query").removesuffix("-document")
        if name not in SIDES and whole not in tasks | types:
            known = [*SIDES, *types, *tasks]
            then = "A prompt is for query, document, a type or a task (`harness list tasks`)."
            raise unknown("side, type or task", name, known, then=then)


def existing(root: Path | None) -> Path | None:
    """The data root, if there is one to be used.

    Raises:
        UsageError: It is no folder.
    """
    if root is not None and not os.path.isdir(root):
        raise UsageError(
            f"The data root {root} is not a folder.",
            hint=f"`harness data pull --suite NAME --data {root}` makes one.",
        )
    return root
