"""Options that several commands share: those of a request, made from its fields, and a few beside them."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING
from pathlib import Path
from typing import Any, TypeVar, get_args

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from harness.core import files
from harness.core.arguments import Argument, Group, collect_options, split_names
from harness.core.errors import UsageError
from harness.encoder import backbones
from harness.plan import catalog
from harness.plan.request import Request
from harness.plan.run_file import read_run
from harness.training.model_store import ModelStore

F = TypeVar("F", bound=Callable[..., Any])


class GroupedOption(click.Option):
    """An option in one of the groups of a `HelpCommand`."""

    def __init__(self, *arguments: Any, group: Group = "Rare", **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.group = group


def option(group: Group, *spelled: str, **attributes: Any) -> Callable[[F], F]:
    """A `click.option` in a group."""
    return click.option(*spelled, cls=GroupedOption, group=group, **attributes)


def _show_every_option(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted:
        context.meta[_HELP_ALL] = True
        click.echo(context.get_help())
        context.exit()


_HELP_ALL = "harness.help-all"
_HELP_OPTION = click.Option(
    ["--help-all"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_every_option,
    help="Show every option.",
)


class HelpCommand(click.Command):
    """A command whose help has examples, then its everyday options in groups; --help-all shows the others.

    Args:
        examples: Command lines, one a line.
        everyday: The options on the first screen, separated by blanks.
    """

    def __init__(self, *arguments: Any, examples: str, everyday: str, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.examples, self.everyday = examples.strip().splitlines(), everyday.split()

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The parameters, with both options of help."""
        return [*super().get_params(ctx), _HELP_OPTION]

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what the command does, and its examples."""
        super().format_help_text(ctx, formatter)
        with formatter.section("Examples"):
            formatter.write("".join(f"{'':{formatter.current_indent}}{line}\n" for line in self.examples))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by group: all, or the first sentence on each everyday one."""
        every = ctx.meta.get(_HELP_ALL, False)
        grouped = [one for one in self.params if isinstance(one, GroupedOption)]
        for group in get_args(Group):
            rows = [
                one.get_help_record(ctx) if every else _cut_record(one, one.get_help_record(ctx))
                for one in grouped
                if one.group == group and (every or one.opts[0] in self.everyday)
            ]
            if rows:
                with formatter.section(HEADINGS.get(group, group)):
                    formatter.write_dl([row for row in rows if row is not None])
        if not every:
            formatter.write(f"\nAll {len(grouped)} options: {ctx.command_path} --help-all\n")


HEADINGS = {"Encoding": "How it is encoded"}
"""The headings of groups that have another one than their name."""


def _cut_record(one: click.Option, record: tuple[str, str] | None) -> tuple[str, str] | None:
    """The names of an option with the first sentence of its help, and without the list of its choices."""
    if record is None:
        return None
    sentence = re.split(r"(?<!e\.g)\. (?=[A-Z])|; |  \[", record[1])[0].rstrip(".")
    return re.sub(r"\[.*\]$", str(one.name).upper(), record[0]), f"{sentence}."


class _Number(click.ParamType[Any]):
    """A number in the form of an argument, and refused with the same message as in Python."""

    name = "number"

    def __init__(self, argument: Argument) -> None:
        self._argument = argument

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The checked number."""
        # int first, as a float such as 3.0 is refused where a whole number is needed.
        for kind in (int, float):
            with contextlib.suppress(TypeError, ValueError):
                return self._argument.validate_value(kind(value))
        return self._argument.validate_value(value)


class Amount(click.FloatRange):
    """A finite number of seconds, minutes or days, up to a billion."""

    def __init__(self, *, above: float | None = None, least: float = 0) -> None:
        super().__init__(least if above is None else above, 1e9, min_open=above is not None)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The checked number."""
        number: float = super().convert(value, param, ctx)
        # It is neither below nor above a bound.
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


class _Choice(click.Choice[str]):
    """A choice among the values of an argument, refused with the same message as in Python."""

    def __init__(self, argument: Argument) -> None:
        super().__init__(list(argument.choices))
        self._argument = argument

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The checked value."""
        checked: str = self._argument.validate_value(value)
        return checked


def complete_models(
    context: click.Context, _option: click.Parameter, incomplete: str
) -> list[str | CompletionItem]:
    """The models of the catalog and of the results folder; otherwise the shell completes a folder."""
    models = ModelStore(files.resolve_results_folder(context.params.get("results")))
    names = [*backbones.list_backbones(), *(folder.name for folder in models.list_model_folders())]
    return [name for name in names if name.startswith(incomplete)] or [CompletionItem(incomplete, "dir")]


def complete_suites(_context: click.Context, _option: click.Parameter, incomplete: str) -> list[str]:
    """The suites, and after a colon the arguments that are known."""
    entries = catalog.load_suite_entries()
    names = [name if entry.alone else f"{name}:" for name, entry in entries.items()]
    if ":" in incomplete:
        names = [f"{entry.name}:{offer.name}" for entry in entries.values() for offer in entry.offers()]
    return [name for name in names if name.startswith(incomplete)]


def _complete_recipes(_context: click.Context, _option: click.Parameter, incomplete: str) -> list[str]:
    entries = catalog.load_recipe_entries().values()
    names = [name for one in entries for name in (one.name, *(f"{one.name}:{v}" for v in one.variants))]
    return [name for name in names if name.startswith(incomplete)]


def _complete_tasks(context: click.Context, _option: click.Parameter, incomplete: str) -> list[str]:
    """The tasks of the typed suites, or else of all, after those that are typed."""
    typed, comma, last = incomplete.rpartition(",")
    if suites := context.params.get("suites") or context.params.get("suite"):
        suites = (suites,) if isinstance(suites, str) else suites
        names = [column.name for name in suites for column in catalog.open_suite(name).columns]
    else:
        names = [offer.name for entry in catalog.load_suite_entries().values() for offer in entry.offers()]
    return [f"{typed}{comma}{name}" for name in names if name.startswith(last)]


_COMPLETIONS = {
    "models": complete_models,
    "suites": complete_suites,
    "recipe": _complete_recipes,
    "tasks": _complete_tasks,
}
"""What completes the value of an option in a shell, by the name of its field."""


def make_option(kind: type, name: str, **changed: Any) -> Callable[[F], F]:
    """The click option of a field, spelled and explained as the field says.

    Args:
        kind: The dataclass.
        name: The name of the field.
        changed: Arguments of `click.option` that a command has otherwise.
    """
    argument = collect_options(kind)[name]
    option, dashed = argument.option, name.replace("_", "-")
    attributes: dict[str, Any] = {"help": option.help, "metavar": option.metavar, "envvar": option.envvar}
    attributes |= {"cls": GroupedOption, "group": option.group, "shell_complete": _COMPLETIONS.get(name)}
    spelled = option.typed or f"--{dashed}"
    if argument.kind is bool and argument.optional:
        spelled, attributes["default"] = f"--{dashed}/--no-{dashed}", None
    elif argument.kind is bool:
        attributes["is_flag"] = True
    elif argument.repeated:
        attributes |= {"multiple": True, "required": argument.default is MISSING}
    else:
        attributes["default"] = option.unset if argument.default == () else argument.default
        attributes["type"] = _resolve_option_type(argument)
        if attributes["type"] is None:
            attributes["metavar"] = option.metavar or dashed.upper()
    return click.option(spelled, argument.parameter, **attributes | changed)


def _resolve_option_type(argument: Argument) -> click.ParamType[Any] | None:
    """The type of the option of one value; None for a text."""
    if argument.choices:
        return _Choice(argument)
    if argument.kind in (int, float):
        return _Number(argument)
    return click.Path(path_type=Path) if argument.kind is Path else None


_BUDGET = "harness.budget"
"""The place of a budget in the context of a command, until the changed settings are read."""


def _keep_budget(context: click.Context, _option: click.Parameter, flops: str | None) -> None:
    """Keep a budget, or several.

    Raises:
        UsageError: One is no number; without any value it would be a training without a budget.
    """
    try:
        for budget in flops.split(",") if flops is not None else ():
            float(budget)
    except ValueError:
        raise UsageError(
            f"--budget {flops!r} is no number of operations, nor several with commas.",
            hint="Type e.g. --budget 1e15, or --budget 1e15,4e15.",
        ) from None
    context.meta[_BUDGET] = flops


def _add_budget(
    context: click.Context, _option: click.Parameter, changes: tuple[str, ...]
) -> tuple[str, ...]:
    """The changed settings with the budget among them.

    Raises:
        UsageError: There are two budgets.
    """
    flops = context.meta.get(_BUDGET)
    if flops is None or _has_several_budgets(context):
        return changes
    if any(one.partition("=")[0].strip() == "budget" for one in changes):
        raise UsageError("--budget and --set budget=… both give a budget.", hint="Leave one of them out.")
    return (*changes, f"budget={flops}")


def _has_several_budgets(context: click.Context) -> bool:
    """Whether a command that can sweep has several budgets."""
    sweeps = any(parameter.name == "sweep" for parameter in context.command.params)
    return sweeps and "," in (context.meta.get(_BUDGET) or "")


def _add_budgets(
    context: click.Context, _option: click.Parameter, sweeps: tuple[str, ...]
) -> tuple[str, ...]:
    """The sweeps, with one of the budgets if there are several."""
    return (*sweeps, f"budget={context.meta[_BUDGET]}") if _has_several_budgets(context) else sweeps


_FIELDS = {
    name: argument for name, argument in collect_options(Request).items() if argument.option.typed != ""
}
_OPTIONS: dict[str, Callable[[Any], Any]] = {
    **{name: make_option(Request, name) for name in _FIELDS},
    "recipe_settings": make_option(Request, "recipe_settings", callback=_add_budget),
    "sweep": make_option(Request, "sweep", callback=_add_budgets),
    "flops": option(
        "Training",
        "--budget",
        "flops",
        metavar="FLOPS",
        # click reads eager options first, so that the budget is known when --set adds it to its settings.
        is_eager=True,
        expose_value=False,
        callback=_keep_budget,
        help="Floating-point operations of a training, which set its number of steps (docs/training.md). "
        "Several, such as 1e15,4e15, make a model each.",
    ),
    "prompt_file": option(
        "Encoding",
        "--prompts",
        "prompt_file",
        type=click.Path(path_type=Path, dir_okay=False),
        default=None,
        help="JSON or TOML file of prompts by name.",
    ),
}
"""The options of a request by the names of their fields, and two that are no field's."""

_NEXT = {"recipe_settings": "flops", "train_data": "tasks", "prompts": "prompt_file"}
"""By option, the one that follows it in the help, where the order of the fields is another."""


def add_options(*names: str) -> Callable[[F], F]:
    """Give a command options of a request by the names of their fields, in this order."""

    def extend_command(command: F) -> F:
        # click lists options in the reverse of the order in which their decorators are applied.
        for name in reversed(names):
            command = _OPTIONS[name](command)
        return command

    return extend_command


def _list_evaluation_options() -> list[str]:
    """The names of the options that every command that evaluates has, in the order of the help."""
    common = [name for name, argument in _FIELDS.items() if not argument.option.alone]
    return list(dict.fromkeys(n for name in common for n in (name, _NEXT.get(name, name))))


evaluation = add_options(*_list_evaluation_options())
"""Gives a command every option of an evaluation, in the order of `harness run`."""

training = add_options(
    "recipe",
    "recipe_settings",
    "flops",
    "train_data",
    "seed",
    "results",
    "cache",
    "data",
    "remote",
    "offline",
    "devices",
    "executor",
    "threads",
    "track",
    "allow",
)
"""Gives a command every option of a training that an evaluation has as well."""

results, cache, data, offline = (add_options(name) for name in ("results", "cache", "data", "offline"))


def _choose_cache(_context: click.Context, _option: click.Parameter, cache: Path | None) -> None:
    """Make a folder the cache of this process and of the workers that it starts."""
    if cache is not None:
        os.environ["HARNESS_CACHE"] = str(cache)


site_results = click.option(
    "--results",
    multiple=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="A results folder to show (default: HARNESS_RESULTS, else ./results). Repeat for several.",
)
"""Of commands that open the site."""

process_cache = make_option(Request, "cache", expose_value=False, callback=_choose_cache)
"""Of the same commands, whose pages look for the cache themselves."""

as_json = option("Output", "--json", "as_json", is_flag=True, help="Print JSON for machines (docs/json.md).")
run_file = option(
    "Output",
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="TOML file with the settings of a run. Typed options override it (docs/command-line.md).",
)
project = option(
    "What",
    "--project",
    default=None,
    metavar="NAME",
    help="Name of the project of a code:FOLDER suite (default: by its metadata).",
)
device = click.option(
    "--devices",
    "device",
    default="",
    metavar="DEVICE",
    help="One device, e.g. cuda:0 (default: a GPU, else the CPU).",
)


output_folder = click.option(
    "--output", required=True, metavar="DIR", type=click.Path(path_type=Path), help="Folder to create."
)


def add_file_option(name: str, text: str, *, exists: bool = False) -> Callable[[F], F]:
    """The option of a file, which may have to exist, with this help."""
    kind = click.Path(path_type=Path, exists=exists, dir_okay=False)
    return click.option(name, metavar="FILE", type=kind, help=text)


def select_tasks(text: str) -> Callable[[F], F]:
    """The option that names recorded tasks, with this help: with commas, repeated, or both."""
    return click.option(
        "--task",
        "--tasks",
        "tasks",
        multiple=True,
        # A comma alone stays, and is no task: it does not stand for all.
        callback=lambda _context, _option, typed: [
            name for names in typed for name in split_names(names) or (names,)
        ],
        help=text,
    )


def build_request(
    models: tuple[str, ...], suites: tuple[str, ...], given: Mapping[str, Any], config: Path | None
) -> Request:
    """The request of a command, whose options go before the settings of a file.

    Args:
        models: As the user typed them.
        suites: As the user typed them.
        given: Options of an evaluation by the names of their parameters.
        config: The file; None without one.
    """
    if config is None:
        return Request.parse_options(models, suites, given)
    context = click.get_current_context()
    unset = (None, ParameterSource.DEFAULT)
    typed = {name: value for name, value in given.items() if context.get_parameter_source(name) not in unset}
    names = {argument.parameter: name for name, argument in _FIELDS.items()} | {"prompt_file": "prompts"}
    fields = {names[name] for name in typed}
    # Suites that were typed may have the name of a project by now.
    fields |= {name for name, value in (("models", models), ("suites", suites)) if value}
    # A budget is no parameter: it stands among the changed settings, and several among the sweeps.
    budgets = {name: given[name] for name in ("changes", "sweep") if given.get(name)}
    fields |= {names[name] for name in budgets}
    return read_run(config, Request.parse_options(models, suites, typed | budgets), fields)


def insert_project(suites: tuple[str, ...], name: str | None) -> tuple[str, ...]:
    """The suites with the name of a project in the one that is `code:FOLDER`.

    Raises:
        UsageError: There is a name, and not one such suite.
    """
    if name is None:
        return suites
    if not name.strip():
        raise UsageError("--project is empty.", hint="Name the project, or leave it out.")
    code_suites = [suite for suite in suites if suite.startswith("code:")]
    # A folder may have an "=" in its name; otherwise it stands behind a name: code:NAME=FOLDER.
    if any("=" in suite and not os.path.isdir(suite.removeprefix("code:")) for suite in code_suites):
        raise UsageError(
            f"--project and {code_suites[0]} both name a project.", hint="Leave one of them out."
        )
    count = len(code_suites)
    if count != 1:
        raise UsageError(
            f"--project is for one suite code:FOLDER; there are {count}.",
            hint="Type --suite code:NAME=FOLDER for each of several.",
        )
    return tuple(
        suite.replace("code:", f"code:{name}=", 1) if suite.startswith("code:") else suite for suite in suites
    )
