"""The tables of options in docs/command-line.md, made from the commands.

python benchmarks/option_tables.py writes them into the page; a test holds that they are as written.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from harness.cli import program
from harness.commands import options

PAGE = Path(__file__).parents[1] / "docs" / "command-line.md"
SHARED = "Further, every option [that says how a model is evaluated]"
"""The sentence in sections of commands whose options of an evaluation stand with `harness run`."""

_TABLE = re.compile(r"\| option \| meaning \|\n\| --- \| --- \|\n(?:\|.*\n)*")
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


def row(option: click.Option) -> str:
    """An option as a line of a table: its names, its help, its choices and its default."""
    names = "`, `".join([*option.opts, *option.secondary_opts])
    text = _PAGE_OF_DOCS.sub(r"[\1](\1)", option.help or "").rstrip(".").replace("|", "\\|")
    parts = [f"{text}."]
    if isinstance(option.type, click.Choice):
        parts.append(f"One of {', '.join(map(str, option.type.choices))}.")
    plain = isinstance(option.default, str | int | float) and not isinstance(option.default, bool)
    if plain and option.default != "" and "default" not in text:
        parts.append(f"Default: {option.default}.")
    return f"| `{names}` | {' '.join(parts)} |"


def with_tables(page: str) -> str:
    """The page with the table of each command as its options are now."""
    shared = {one.name for one in options.evaluation(click.Command("any", callback=print)).params}
    known = dict(commands(program, "harness"))
    head, *sections = re.split(r"(?m)^(?=## )", page)
    for number, section in enumerate(sections):
        name = section.partition("`")[2].partition("`")[0]
        if section.startswith("## `") and name in known:
            left_out = shared if SHARED in section else set()
            of_command = [one for one in known[name].params if isinstance(one, click.Option)]
            rows = [row(one) for one in of_command if one.name not in left_out]
            table = "".join(f"{line}\n" for line in ("| option | meaning |", "| --- | --- |", *rows))
            sections[number] = _TABLE.sub(lambda _, table=table: table, section, count=1)
    return "".join([head, *sections])


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
    sys.exit(0)
