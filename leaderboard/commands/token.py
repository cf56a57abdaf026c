"""`harness token`: who may push records to a site."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from harness.commands import options
from harness.core import paths
from harness.core.terminal import console, print_table
from leaderboard.web.tokens import Token, Tokens


@click.group("token")
def command() -> None:
    """Make, list and revoke the tokens with which records are pushed to a site."""


@command.command("create")
@click.argument("name")
@click.option(
    "--scope", type=click.Choice(["records:write"]), default="records:write", help="What the token allows."
)
@click.option(
    "--days",
    type=int,
    default=None,
    help="Days that the token holds (default: for ever).",
)
@options.results
@options.as_json
def create(name: str, scope: str, days: int | None, results: Path | None, as_json: bool) -> int:
    """Make a token and print its secret, which is shown this once."""
    token, secret = _tokens(results).create(name, scope=scope, days=days)
    if as_json:
        return _print_json(secret=secret, token=_public(token))
    until = f"until {token.expires:%Y-%m-%d %H:%M} UTC" if token.expires else "for ever"
    click.echo(f"The secret of {name!r}, which holds {until}. It cannot be shown again:", err=True)
    click.echo(secret)
    return 0


@command.command("list")
@options.results
@options.as_json
def show(results: Path | None, as_json: bool) -> int:
    """List the tokens: their names, what they allow, and whether they hold."""
    tokens = [_public(token) for token in _tokens(results).all()]
    if as_json:
        return _print_json(tokens=tokens)
    if tokens:
        _print_table(tokens)
    else:
        click.echo("No token yet: `harness token create NAME` makes one.")
    return 0


@command.command("revoke")
@click.argument("name")
@options.results
@options.as_json
def revoke(name: str, results: Path | None, as_json: bool) -> int:
    """End a token at once."""
    token = _tokens(results).revoke(name)
    if as_json:
        return _print_json(token=_public(token))
    click.echo(f"{name!r} (…{token.tail}) is revoked.")
    return 0


def _tokens(results: Path | None) -> Tokens:

    return Tokens(paths.results_folder(results))


def _public(token: Token) -> dict[str, Any]:
    """What may be seen of a token: not even the hash of its secret."""
    return {**token.model_dump(mode="json", exclude={"digest"}), "state": token.state(datetime.now(UTC))}


def _print_json(**content: Any) -> int:
    click.echo(json.dumps({"schema": 1, **content}, indent=1))
    return 0


def _print_table(tokens: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(title=f"{len(tokens)} token{'' if len(tokens) == 1 else 's'}")
    keys = {"ends with": "tail"}
    for name in ("name", "state", "scope", "ends with", "created", "expires", "revoked"):
        table.add_column(name)
    for token in tokens:
        values = [token[keys.get(str(column.header), str(column.header))] for column in table.columns]
        table.add_row(*((value or "–").removesuffix("Z") for value in values))
    print_table(table, console())
