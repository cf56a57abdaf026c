"""The documents tell the truth: every command and option, every field, no dead link."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from harness.cli import COMMANDS, program
from harness.commands import options
from harness.record import EXAMPLE_COLUMNS, Record

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "results" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SETTINGS = (
    "HARNESS_RESULTS",
    "HARNESS_CACHE",
    "HARNESS_DATA",
    "HARNESS_DATABASE_URL",
    "HARNESS_PAGES_A_MINUTE",
    "HARNESS_POSTS_A_MINUTE",
    "HARNESS_TOKEN",
)


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            yield from commands(found, f"{name} {inner}")
    else:
        yield name, command


EVERY = list(commands(program, "harness"))
EVALUATION = {p.name for p in options.evaluation(click.Command("any", callback=print)).params}
"""The options that the section of `harness run` documents for every command that has them."""


@pytest.mark.parametrize(("name", "command"), EVERY, ids=[name for name, _ in EVERY])
def test_every_option_is_documented(name: str, command: click.Command) -> None:
    page = (ROOT / "docs" / "command-line.md").read_text()
    section = page.partition(f"\n## `{name}`\n")[2].partition("\n## ")[0]
    assert section, f"docs/command-line.md has no section for `{name}`"
    shared = EVALUATION if "Further, every option [that says how a model is evaluated]" in section else set()
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.name not in shared:
            assert parameter.help, f"{name} {parameter.opts[0]} has no help"
            assert f"`{'`, `'.join([*parameter.opts, *parameter.secondary_opts])}`" in section
            assert parameter.help.rstrip(".") in section, parameter.opts


def test_no_option_is_documented_that_is_not_there() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text()
    there = {o for _, c in EVERY for p in c.params for o in [*p.opts, *p.secondary_opts]}
    assert set(re.findall(r"^\| `(--[a-z-]+)`", page, re.MULTILINE)) <= there


def test_every_setting_of_the_environment_is_documented() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text()
    used = {
        name
        for package in ("harness", "leaderboard")
        for path in (ROOT / package).rglob("*.py")
        for name in re.findall(r"\bHARNESS_[A-Z_]+\b", path.read_text())
    }
    assert used == set(SETTINGS)
    assert all(f"`{name}`" in page for name in used)


def test_the_record_is_documented() -> None:
    page = (ROOT / "results" / "README.md").read_text()
    fields = [f.alias or name for name, f in Record.model_fields.items()]
    assert [name for name in (*fields, *EXAMPLE_COLUMNS) if f"`{name}`" not in page] == []


def test_every_command_is_in_the_json_page() -> None:
    page = (ROOT / "docs" / "json.md").read_text()
    assert [name for name in COMMANDS if f"`harness {name}" not in page] == []


@pytest.mark.parametrize("page", PAGES, ids=[p.name for p in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target
