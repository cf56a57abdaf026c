"""The catalog of backbones, recipes, protocols and suites, and how a recipe has its models evaluated.

Each file in `harness/encoder/backbones/`, `finetune/recipes/`, `finetune/protocols/` or `suites/` is one
entry; other distributions add entries through the entry points `harness.backbones`, `harness.recipes`,
`harness.protocols` and `harness.suites`. The name of a recipe or suite is first looked up in the file of that
name, so that no other file is imported.
"""

from __future__ import annotations

import functools
import json
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from harness.core.arguments import Table, check_value, replace_settings, split_names
from harness.core.encoding import Encoding, EvaluationSettings, Settings
from harness.core.errors import UsageError, explain_unknown
from harness.core.files import Registry
from harness.core.keys import Lineage
from harness.core.types import SIDES, Column, Suite, SuiteEntry, SuiteOptions
from harness.encoder.backbones import read_family
from harness.encoder.folder.description import Description
from harness.encoder.folder.modules_and_pooling import list_module_folders
from harness.encoder.resolved_encoding import describe_rope_scaling, resolve_encoding
from harness.executors.executor import LOCAL, parse_executor
from harness.executors.local import default_devices
from harness.jobs.protocol import ProtocolEntry
from harness.jobs.recipe import ModelRecipe, RecipeEntry, TaskRecipe

SUITES = Registry(kind=SuiteEntry, package="suites", attribute="SUITE", group="harness.suites")
PROTOCOLS = Registry(
    kind=ProtocolEntry, package="finetune.protocols", attribute="PROTOCOL", group="harness.protocols"
)
RECIPES = Registry(kind=RecipeEntry, package="finetune.recipes", attribute="RECIPE", group="harness.recipes")


@functools.cache
def load_suite_entries() -> dict[str, SuiteEntry]:
    """Every suite by name."""
    return SUITES.load_entries()


@functools.cache
def load_recipe_entries() -> dict[str, RecipeEntry]:
    """Every recipe by name."""
    return RECIPES.load_entries()


def open_suite(text: str, options: SuiteOptions | None = None) -> Suite:
    """The suite called `name` or `name:argument`.

    Raises:
        UsageError: No suite has this name, or its argument is missing or wrong.
    """
    name, _, argument = text.partition(":")
    entry = SUITES.find_entry(name) or load_suite_entries().get(name)
    if entry is None:
        raise SUITES.add_failures(_explain_unknown_suite(text))
    if argument and not entry.argument:
        _refuse_tasks(entry, argument)
        raise UsageError(f"The suite {name!r} takes no argument.", hint=f"Type --suite {name}.")
    if not argument and not entry.alone:
        raise UsageError(
            f"The suite {name!r} needs an argument.", hint=f"Type --suite {name}:<{entry.argument}>."
        )
    try:
        # A refused argument may be tasks of the suite, which belong behind --tasks: that hint goes first.
        return entry.open(argument, options or SuiteOptions())
    except UsageError:
        _refuse_tasks(entry, argument)
        raise


def _refuse_tasks(entry: SuiteEntry, argument: str) -> None:
    """Say how tasks of a suite are chosen, where they are given as the suite's argument."""
    task_names = split_names(argument)
    if not task_names or not entry.alone or entry.offers():
        return
    columns = entry.open("", SuiteOptions()).columns
    if all(any(is_column(column, name) for column in columns) for name in task_names):
        raise UsageError(
            f"Tasks of the suite {entry.name} are not typed after a colon.",
            hint=f"Type --suite {entry.name} --tasks {shlex.quote(','.join(task_names))}.",
        )


def _explain_unknown_suite(text: str) -> UsageError:
    offered = [
        f"{e.name}:{o.name}" for e in load_suite_entries().values() for o in e.offers() if o.name == text
    ]
    if offered:
        return UsageError(f"No suite is called {text!r}.", hint=f"Did you mean {shlex.quote(offered[0])}?")
    if "," in text and {name.partition(":")[0] for name in split_names(text)} <= {*load_suite_entries()}:
        hint = f"Repeat the option: {' '.join(f'--suite {name}' for name in split_names(text))}."
        return UsageError(f"No suite is called {text!r}.", hint=hint)
    return explain_unknown("suite", text, load_suite_entries(), then="`harness list suites` shows all.")


def open_suites(names: Sequence[str], options: SuiteOptions | None = None) -> list[Suite]:
    """The suites of these names, in order, narrowed to the requested columns.

    Raises:
        UsageError: A name is that of no suite, or of no column.
    """
    suites = [open_suite(name, options) for name in names]
    task_names = options.tasks if options else ()
    every = [column for suite in suites for column in suite.columns]
    for name in task_names:
        if not any(is_column(column, name) for column in every):
            _refuse_single_task(name, names, [t for t in task_names if any(is_column(c, t) for c in every)])
            suite_names = " or ".join(names)
            columns = [column.name for column in every]
            types = [f"{_TYPE}{column.type}" for column in every]
            valid_names = [*dict.fromkeys(types)] if name.startswith(_TYPE) else columns
            then = f"Names of tasks are those of a suite's table; {_TYPE}STS are all of a type."
            raise explain_unknown(f"task of {suite_names}", name, valid_names, then=then)
    return [_select_columns(suite, task_names) for suite in suites] if task_names else suites


def _refuse_single_task(name: str, suite_names: Sequence[str], others: Sequence[str]) -> None:
    """Say how a task is named that a suite's family has, and none of the chosen suites."""
    for entry in map(SUITES.find_entry, (suite.partition(":")[0] for suite in suite_names)):
        if entry and any(offer.kind == "task" and offer.name == name for offer in entry.offers()):
            narrower = f" For {suite_names[0]} alone: --tasks {','.join(others)}." if others else ""
            raise UsageError(
                f"{name} is no task of {' or '.join(suite_names)}.",
                hint=f"It is a suite of its own: type --suite {entry.name}:{name}.{narrower}",
            )


def find_suites(tasks: Sequence[str]) -> tuple[str, ...]:
    """A suite for each task: the task alone, or else the first suite with a column of this name.

    Raises:
        UsageError: No suite has a task of this name, or it is a type.
    """
    suites: dict[str, None] = {}
    entries = load_suite_entries().values()
    offers = {o.name: f"{e.name}:{o.name}" for e in entries for o in e.offers() if o.kind == "task"}
    for name in tasks:
        if name.startswith(_TYPE):
            raise UsageError(f"{name} is of a suite, and none is named.", hint="Add e.g. --suite mteb.")
        suite_names = (
            entry.name
            for entry in entries
            if entry.alone and not entry.offers()
            if any(column.name == name for column in entry.open("", SuiteOptions()).columns)
        )
        suite = offers.get(name) or next(suite_names, "")
        if not suite:
            raise explain_unknown("task", name, offers, then="Or name its suite with --suite.")
        suites[suite] = None
    return tuple(suites)


_TYPE = "type:"
"""What a user types before a type of tasks."""


def is_column(column: Column, name: str) -> bool:
    """Whether a column has this name, or its only task has, or it is of the type in `type:STS`."""
    if name.startswith(_TYPE):
        return column.type.lower() == name.removeprefix(_TYPE).lower()
    return column.name == name or [task.name for task in column.tasks] == [name]


def _select_columns(suite: Suite, wanted: Sequence[str]) -> Suite:
    """The suite with tasks in the wanted columns only."""
    column_names = tuple(c.name for c in suite.columns if any(is_column(c, name) for name in wanted))
    # The other columns stay, without tasks, so that the suite still says what was left out.
    columns = tuple(c if c.name in column_names else replace(c, tasks=()) for c in suite.columns)
    return replace(suite, columns=columns, requested=column_names if len(column_names) < len(columns) else ())


def join_single_tasks(suites: Sequence[Suite]) -> list[Suite]:
    """The suites with the single tasks of one family, as `mteb:STS12` and `mteb:STS13`, as one suite of them.

    It is for showing: its name is that of no suite, and its mean is over the tasks asked for.
    """
    # Single tasks are grouped by their family, a text; any other suite is alone under its number.
    groups: dict[str | int, list[Suite]] = {}
    for number, suite in enumerate(suites):
        family, _, argument = suite.name.partition(":")
        single = [column.name for column in suite.columns] == [argument]
        groups.setdefault(family if single else number, []).append(suite)
    return [_join_suites(str(family), found) for family, found in groups.items()]


def _join_suites(family: str, suites: Sequence[Suite]) -> Suite:
    columns = {column.name: column for suite in suites for column in suite.columns}
    if len(suites) == 1 or len(columns) == 1:
        return suites[0]
    return Suite(
        name=" + ".join(f"{family}:{name}" for name in columns),
        title=family,
        columns=tuple(columns.values()),
        notes=tuple(dict.fromkeys(note for suite in suites for note in suite.notes)),
        requested=tuple(columns),
    )


def find_recipe_entry(text: str) -> RecipeEntry:
    """The entry of the recipe called `name` or `name:variant`.

    Raises:
        UsageError: No recipe or variant has this name.
    """
    name, _, variant = text.partition(":")
    entry = RECIPES.find_entry(name) or load_recipe_entries().get(name)
    if entry is None:
        then = "`harness list recipes` shows all."
        raise RECIPES.add_failures(explain_unknown("recipe", name, load_recipe_entries(), then=then))
    if variant not in entry.settings:
        then = f"Without one it is the recipe's own default: --recipe {name}."
        raise explain_unknown(f"variant of {name}", variant, entry.variants, then=then)
    return entry


def find_evaluations(name: str) -> Mapping[str, EvaluationSettings]:
    """The evaluations of a recipe by name; none of one that is not here."""
    entry = RECIPES.find_entry(name) or load_recipe_entries().get(name)
    return {} if entry is None else entry.evaluations


def find_recipe_kind(text: str) -> Literal["model", "task"]:
    """Whether a recipe, or a chain of recipes `A+B`, makes a model or trains for a task.

    Raises:
        UsageError: No recipe has this name, or one of several makes no model.
    """
    stages = text.split("+")
    kinds = [find_recipe_entry(stage).kind for stage in stages]
    for stage, kind in zip(stages, kinds, strict=True):
        if kind == "task" and len(stages) > 1:
            raise UsageError(
                f"{stage} trains for tasks with labels: no recipe goes before or after it.",
                hint=f"Name it on its own: --recipe {stage}.",
            )
    return kinds[-1]


def resolve_recipe_chain(text: str) -> str:
    """The chain of recipes `A+B` that a recipe stands for; most stand for themselves.

    Raises:
        UsageError: No recipe or variant has this name.
    """
    stages: list[str] = []
    for stage in text.split("+"):
        chain = find_recipe_entry(stage).chains.get(stage.partition(":")[2])
        stages += [stage] if chain is None else [f"{stage.partition(':')[0]}:{variant}" for variant in chain]
    return "+".join(stages)


def open_recipe(text: str, changes: Mapping[str, Any] | None = None) -> TaskRecipe | ModelRecipe:
    """The recipe called `name` or `name:variant`, with changed settings.

    Raises:
        UsageError: No recipe, variant or setting has this name, or a value has another form.
    """
    entry, variant = find_recipe_entry(text), text.partition(":")[2]
    return entry.open(variant, replace_settings(entry.settings[variant], changes or {}, of=text))


def find_protocol(name: str) -> ProtocolEntry:
    """The protocol of a name.

    Raises:
        UsageError: There is none.
    """
    entries = PROTOCOLS.load_entries()
    if name not in entries:
        then = "`harness list protocols` shows all."
        raise PROTOCOLS.add_failures(explain_unknown("protocol", name, entries, then=then))
    return entries[name]


def read_prompts(pairs: Sequence[str], file: Path | None) -> dict[str, str] | None:
    """Prompts from NAME=TEXT pairs over those of a JSON or TOML file; None if there are none.

    Raises:
        UsageError: A pair has no "=", or the file is not a table of strings.
    """
    prompts = _read_prompt_file(file) if file else {}
    for pair in pairs:
        name, equals, text = str(pair).partition("=")
        if not equals:
            raise UsageError(f"--prompt {pair!r} has no '='.", hint='Type --prompt query="search_query: ".')
        prompts[name] = text
    return prompts or None


def _read_prompt_file(file: Path) -> dict[str, str]:
    try:
        text = Path(file).read_text(encoding="utf-8")
        content = tomllib.loads(text) if Path(file).suffix == ".toml" else json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"The prompts in {file} cannot be read: {error}.") from error
    if not isinstance(content, dict):
        raise UsageError(f"{file} is not a table of prompt names and texts.")
    prompts: dict[str, str] = check_value("prompts", content, Table)
    return prompts


def require_sides(prompts: Mapping[str, str] | None) -> None:
    """Refuse prompts for anything but queries and documents, for commands that have no task.

    Raises:
        UsageError: A prompt has another name.
    """
    for name in prompts or {}:
        if name not in SIDES:
            raise explain_unknown("side", name, SIDES, then='Type e.g. --prompt query="search_query: ".')


def check_prompts(prompts: Mapping[str, str], suites: Sequence[Suite]) -> None:
    """Refuse prompts for no known side, task or type (with or without a side): they would be ignored."""
    if not prompts:
        return
    offered = [o for entry in load_suite_entries().values() for o in entry.offers() if o.kind == "task"]
    tasks = {c.name for suite in suites for c in suite.columns} | {o.name for o in offered}
    # A column may have another name than its task, or several tasks: a prompt may have either name.
    tasks |= {task.name for suite in suites for task in suite.tasks}
    types = {t.type for suite in suites for t in suite.tasks} | {o.facts["type"] for o in offered}
    for name in prompts:
        base_name = name.removesuffix("-query").removesuffix("-document")
        if name not in SIDES and base_name not in tasks | types:
            valid_names = [*SIDES, *types, *tasks]
            then = "A prompt is for query, document, a type or a task (`harness list tasks`)."
            raise explain_unknown("side, type or task", name, valid_names, then=then)


OWN, RECIPE = "own", "recipe"
"""The choices that every model has: its own settings, and those of its recipe where there are any."""


@dataclass(frozen=True, kw_only=True)
class EvaluationChoice:
    """The evaluation that a user chooses for models that recipes trained.

    Attributes:
        name: "own", "recipe", or the name of another evaluation of the recipe.
        executor, devices: The places of the jobs, which may not run a recipe's precision.
    """

    name: str = OWN
    executor: str = LOCAL
    devices: tuple[str, ...] = ()

    def configure_encoding(
        self, description: Description, settings: Settings, lineage: Lineage | None, folder: Path
    ) -> tuple[Encoding, str]:
        """The encoding of a model, and a sentence on its recipe's evaluation or the scaling of its positions.

        Args:
            description: The model.
            settings: As the user asked for them, which win over those of the recipe.
            lineage: That of a trained model, which names its recipe.
            folder: The folder with its files, or with those of the backbone that is to be trained.

        Raises:
            UsageError: A setting does not fit the model.
        """
        encoding, about = self._apply_evaluation(description, settings, lineage, folder)
        scaled = describe_rope_scaling(description, settings, encoding)
        return encoding, "\n".join(filter(None, (about, scaled)))

    def _apply_evaluation(
        self, description: Description, settings: Settings, lineage: Lineage | None, folder: Path
    ) -> tuple[Encoding, str]:
        """The encoding of a model, and a sentence on the recipe's evaluation; empty if there is none."""
        evaluation = None if lineage is None else self._find_evaluation(lineage.recipe, lineage.variant)
        if lineage is None or evaluation is None:
            return resolve_encoding(description, settings), ""
        evaluation = evaluation.limit_settings(settings, description.position_limit)
        about = f"evaluation of {lineage.name}: "
        if self.name == OWN:
            about += f"the model's own settings (--evaluation recipe: {evaluation.text})"
            return resolve_encoding(description, settings), about
        reason = self._find_float32_reason(evaluation, folder)
        if reason is not None:
            evaluation = replace(evaluation, dtype=None)
            about += f"float32, as {reason}; "
        chosen = f" as in {self.name}" if self.name in find_evaluations(lineage.recipe) else ""
        about += f"{evaluation.text}{chosen} (--evaluation own: the model's own settings)"
        return resolve_encoding(description, settings, evaluation), about

    def check_name(self, lineages: Sequence[Lineage]) -> None:
        """Refuse a name that no recipe of the models of a run has.

        Raises:
            UsageError: None has it, or no recipe trained one of the models.
        """
        if self.name in (OWN, RECIPE):
            return
        if not lineages:
            raise UsageError(
                f"--evaluation {self.name} is for models that a recipe trained, and none of these is one.",
                hint="Leave it out. --max-length, --dtype, --prompt and --normalize are for any model.",
            )
        recipes = [*dict.fromkeys(lineage.recipe for lineage in lineages)]
        names = {name for recipe in recipes for name in find_evaluations(recipe) if name}
        if self.name not in names:
            then = "The evaluations of recipes are in docs/training.md."
            joined = " and ".join(recipes)
            raise explain_unknown(f"evaluation of {joined}", self.name, {OWN, RECIPE, *names}, then=then)

    def _find_evaluation(self, recipe: str, variant: str) -> EvaluationSettings | None:
        """The chosen evaluation of a recipe, or else that of the recipe; None where it has none."""
        evaluations = find_evaluations(recipe)
        return evaluations.get(self.name, evaluations.get(variant, evaluations.get("")))

    def _find_float32_reason(self, evaluation: EvaluationSettings, folder: Path) -> str | None:
        """The reason why a recipe's precision is not run, by the model or a device; None if it is."""
        if evaluation.dtype in (None, "float32"):
            return None
        if evaluation.dtype == "float16":
            # The devices of other machines are known only where a user names them.
            devices = self.devices or (() if parse_executor(self.executor) else default_devices())
            if "cpu" in devices:
                return "a CPU has no float16"
        families = (read_family(place) for place in list_module_folders(folder))
        return next((family.float32_only for family in families if family and family.float32_only), None)


def list_stage_settings(names: Sequence[str]) -> dict[str, frozenset[str]]:
    """The names of the settings of every recipe, those that follow each other one by one."""
    stages = [stage for name in names for stage in name.split("+")]
    return {
        stage: frozenset(f.name for f in fields(find_recipe_entry(stage).settings[parse_variant(stage)]))
        for stage in stages
    }


def parse_variant(name: str) -> str:
    """The variant of a recipe's name; empty without one."""
    return name.partition(":")[2]


def find_setting_owners(
    spelling: str,
    settings_by_recipe: Mapping[str, frozenset[str]],
    chains: Sequence[str],
    option: str,
    value: str,
) -> list[tuple[str, str]]:
    """The recipes that a setting is for, with its name without a recipe before it.

    Args:
        spelling: The setting as typed, perhaps behind its recipe and a dot.
        settings_by_recipe: The settings of each recipe.
        chains: The recipes of the request.
        option: The option, for messages.
        value: What stands behind the setting in an example.

    Raises:
        UsageError: No recipe, or more than one, is meant.
    """
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
    requested = [one for one in chains if not set(owners).isdisjoint(one.split("+"))]
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
