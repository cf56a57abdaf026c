"""docs/commands.md, docs/recipes.md, and the table of arguments in docs/python.md.

python benchmarks/option_tables.py writes them; tests hold that they are as written.
"""

from __future__ import annotations

import inspect
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import click

from harness.checks.policy import Policy
from harness.cli import program
from harness.commands import options
from harness.core.arguments import Group, collect_options
from harness.jobs.recipe import list_recipe_settings
from harness.plan import catalog
from harness.plan.request import Request

DOCS = Path(__file__).parents[1] / "docs"
COMMANDS_PAGE, PYTHON_PAGE, RECIPES_PAGE = DOCS / "commands.md", DOCS / "python.md", DOCS / "recipes.md"
SHARED = "Further, every option [of an evaluation](#harness-run), from `--recipe` to `--allow`."
"""What stands with commands whose options of an evaluation stand with `harness run`."""

SHARED_SETTINGS = {
    "model": "What recipes that train an embedding model share",
    "task": "What recipes that fine-tune for tasks share",
}
"""The headings of settings that many recipes have, by the kind of the recipes."""

_ARGUMENTS = re.compile(r"\| argument \| must be \| meaning \|\n\| --- \| --- \| --- \|\n(?:\|.*\n)*")
_REPEAT = re.compile(r" Repeat [^.]*\.")
"""A sentence on the command line alone: in Python an argument is a list or a mapping."""

_PAGE_OF_DOCS = re.compile(r"\bdocs/([\w-]+\.md)")


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Every command below one, by the words that are typed."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            yield from commands(found, f"{name} {inner}")
    else:
        yield name, command


def list_rows(options_of_command: list[click.Option]) -> list[str]:
    """The lines of a table; options in groups stand under the names of their groups, as in the help."""
    groups: dict[str, list[str]] = {}
    for one in options_of_command:
        groups.setdefault(getattr(one, "group", ""), []).append(row(one))
    if "" in groups:
        return [line for lines in groups.values() for line in lines]
    return [
        line
        for name in get_args(Group)
        for line in (
            [f"| **{options.HEADINGS.get(name, name)}** | |", *groups[name]] if name in groups else ()
        )
    ]


def row(option: click.Option) -> str:
    """An option as a line of a table: its names, its help, its choices and its default."""
    names = "`, `".join([*option.opts, *option.secondary_opts])
    parts = [_in_markdown(option.help or "")]
    if isinstance(option.type, click.Choice):
        parts.append(f"One of {', '.join(map(str, option.type.choices))}.")
    return f"| `{names}` | {' '.join([*parts, *_default_sentence(option.default, parts[0])])} |"


def _in_markdown(text: str) -> str:
    """A help as a sentence in a cell of a table, with links to pages."""
    linked = _PAGE_OF_DOCS.sub(r"[\1](\1)", text).rstrip(".").replace("|", "\\|")
    return f"{linked}."


def _default_sentence(value: object, text: str) -> list[str]:
    """The sentence on a default; none where it goes without saying, or the help has it."""
    plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return [f"Default: {value}."] if plain and value != "" and "default" not in text else []


def with_arguments(page: str) -> str:
    """The page with the table of the arguments of `harness.run`, as the fields of a request are now."""
    lines = ["| argument | must be | meaning |", "| --- | --- | --- |"]
    for name, argument in collect_options(Request).items():
        if name not in ("models", "suites"):
            text = _in_markdown(_REPEAT.sub("", argument.option.help))
            if (argument.option.typed or "").startswith("--no-"):  # its help is that of the other value
                text = f"With False: {text[:1].lower()}{text[1:]}"
            meaning = " ".join([text, *_default_sentence(argument.default, text)])
            lines.append(f"| `{name}` | {argument.wanted} | {meaning} |")
    return _ARGUMENTS.sub(lambda _: "".join(f"{line}\n" for line in lines), page, count=1)


def build_commands_page() -> str:
    """The help of every command, with the table of its options."""
    shared = {one.name for one in options.evaluation(click.Command("any", callback=print)).params}
    lines = [
        "# Commands",
        "",
        "Made from the commands: `harness COMMAND --help-all` prints the same. How models and suites are",
        "named, and how a run is set, is in [The command line](command-line.md).",
    ]
    for name, command in commands(program, "harness"):
        arguments = [one for one in command.params if isinstance(one, click.Argument)]
        typed = [name, *(one.make_metavar(click.Context(command)) for one in arguments)]
        paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
        lines += ["", f"## `{name}`", *(f"\n{_in_markdown(text)}" for text in paragraphs)]
        if arguments:
            lines += ["", f"    {' '.join(typed)}"]
        own = [one for one in command.params if isinstance(one, click.Option)]
        if name != "harness run" and shared <= {one.name for one in own}:
            own = [one for one in own if one.name not in shared]
            lines += ["", SHARED]
        if own:
            lines += ["", "| option | meaning |", "| --- | --- |", *list_rows(own)]
    lines += ["", "## Policy of a check", "", "| setting | default | meaning |", "| --- | --- | --- |"]
    for name, setting in Policy.model_fields.items():
        # JSON of these is TOML as well.
        lines.append(f"| `{name}` | `{json.dumps(setting.default)}` | {setting.description} |")
    return "\n".join(lines) + "\n"


def build_recipes_page() -> str:
    """A table of settings for each recipe, with the values of its variants where they differ."""
    recipes = {
        name: (entry, {variant: _list_values(entry, variant) for variant in entry.settings})
        for name, entry in catalog.load_recipe_entries().items()
    }
    # What many recipes of a kind have is explained once.
    counts = Counter(
        (catalog.find_recipe_kind(name), row, own[""][row][1])
        for name, (_, own) in recipes.items()
        for row in own[""]
    )
    shared = {key for key, count in counts.items() if count > 3 and key[2]}
    lines = [
        "# Settings of the recipes",
        "",
        "Made from the recipes. `harness recipes show NAME` has the source of each value, and what other",
        "sources say; `--set SETTING=VALUE` changes settings of a training. A setting without a meaning in",
        "a recipe's table is explained in the first two tables. [Training](training.md) and [GLUE](glue.md)",
        "show the recipes at work.",
    ]
    for kind, title in SHARED_SETTINGS.items():
        lines += ["", f"## {title}", "", "| setting | meaning |", "| --- | --- |"]
        lines += [f"| `{setting}` | {text} |" for other, setting, text in sorted(shared) if other == kind]
    for name, (entry, own) in recipes.items():
        lines += [
            f"\n## {name}\n\n{entry.summary}.\n",
            "| setting | value | meaning |",
            "| --- | --- | --- |",
        ]
        for setting, (value, meaning) in own[""].items():
            others = {variant: values[setting][0] for variant, values in own.items() if setting in values}
            differing = [f"{other} in `:{variant}`" for variant, other in others.items() if other != value]
            text = "" if (catalog.find_recipe_kind(name), setting, meaning) in shared else meaning
            lines.append(f"| `{setting}` | {'; '.join([value, *differing])} | {text} |")
    return "\n".join(lines) + "\n"


def _list_values(entry: Any, variant: str) -> dict[str, tuple[str, str]]:
    name = f"{entry.name}:{variant}".rstrip(":")
    rows = list_recipe_settings(entry, variant, catalog.open_recipe(name), None)
    return {row.name: (_format_value(row.value), _in_markdown(row.meaning).lstrip(".")) for row in rows}


def _format_value(value: Any) -> str:
    match value:
        case None | "" | () | []:
            return "none"
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case Mapping():
            return f"{len(value)} values"
        case tuple() | list():
            return ", ".join(map(_format_value, value)) if len(value) < 8 else f"{len(value)} values"
    return str(value).replace("|", "\\|")


if __name__ == "__main__":
    COMMANDS_PAGE.write_text(build_commands_page())
    RECIPES_PAGE.write_text(build_recipes_page())
    PYTHON_PAGE.write_text(with_arguments(PYTHON_PAGE.read_text()))
