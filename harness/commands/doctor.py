"""`harness doctor`: check this machine, and name the command that mends what it lacks.

This command imports torch (in harness.health.hardware), because only torch knows its devices.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from harness import paths
from harness.commands import options
from harness.health import Check, Places, check_hardware, check_places, check_software

SCHEMA = 1
"""Version of what --json prints (docs/json.md)."""

COLOURS = {"ok": "green", "warning": "yellow", "missing": "red"}


@click.command()
@options.data
@options.cache
@options.results
@click.option("--online", is_flag=True, help="Ask whether the hub can be reached, too.")
@options.as_json
def command(data: Path | None, cache: Path | None, results: Path | None, online: bool, as_json: bool) -> None:
    """Check this machine: versions, devices, folders, and what is missing.

    Ends with 1 if something is missing that a run needs, else with 0.
    """
    chosen = Places(
        data=paths.data_root(data), cache=paths.cache_folder(cache), results=paths.results_folder(results)
    )
    checks = [*check_software(chosen.cache), *check_hardware(), *check_places(chosen, online=online)]
    missing = any(check.state == "missing" for check in checks)
    if as_json:
        told = {"schema": SCHEMA, "ok": not missing, "checks": [check.to_json() for check in checks]}
        click.echo(json.dumps(told, indent=1, ensure_ascii=False))
    else:
        _print(checks)
    click.get_current_context().exit(1 if missing else 0)


def _print(checks: Sequence[Check]) -> None:
    width = max(len(check.name) for check in checks)
    for check in checks:
        state = click.style(f"{check.state:<7}", fg=COLOURS[check.state])
        click.echo(f"{state}  {check.name:<{width}}  {check.detail}")
        if check.fix:
            click.echo(f"{'':<7}  {'':<{width}}  → {check.fix}")
