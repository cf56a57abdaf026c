"""`harness token`: the secret is printed once, misuse is one message."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from harness.core.errors import HarnessError
from leaderboard.commands import token as commands
from leaderboard.web.tokens import Tokens


def harness(results: Path, *arguments: str) -> int:
    code: int = commands.command.main([*arguments, "--results", str(results)], standalone_mode=False)
    return code


def test_the_secret_is_printed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert harness(tmp_path, "create", "ci", "--days", "7") == 0
    said = capsys.readouterr()
    secret = said.out.strip()
    assert "cannot be shown again" in said.err
    found = Tokens(tmp_path).find(secret)
    assert found is not None
    assert found.name == "ci"
    for arguments in (("list",), ("list", "--json"), ("revoke", "ci"), ("revoke", "ci", "--json"), ("list",)):
        assert harness(tmp_path, *arguments) == 0
        shown = capsys.readouterr().out
        assert "ci" in shown
        assert secret not in shown
        assert found.digest not in shown
    assert "revoked" in shown


def test_json_of_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    harness(tmp_path, "list", "--json")
    assert json.loads(capsys.readouterr().out) == {"schema": 1, "tokens": []}
    harness(tmp_path, "create", "ci", "--json")
    created = json.loads(capsys.readouterr().out)
    found = Tokens(tmp_path).find(created["secret"])
    assert found is not None
    assert created["token"]["name"] == found.name
    assert created["token"]["state"] == "live"
    harness(tmp_path, "list", "--json")
    assert json.loads(capsys.readouterr().out)["tokens"] == [created["token"]]


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "a b"),
        ("create", "ci", "--days", "0"),
        ("create", "ci", "--scope", "x"),
        ("create",),
        ("revoke", "x"),
    ],
)
def test_misuse(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with pytest.raises((HarnessError, click.ClickException)) as caught:
        harness(tmp_path, *arguments)
    assert getattr(caught.value, "exit_code", None) == 2


def test_an_empty_list_says_what_to_type(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert harness(tmp_path, "list") == 0
    assert "harness token create" in capsys.readouterr().out
