"""What is printed on terminals of any encoding, and where there is none."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from rich.color import ColorSystem
from rich.table import Table
from rich.text import Text

from harness.cli import invoke
from harness.core.terminal import clean_output, clean_text, create_console, prepare_output, print_table
from hostile import EVIL, obeyed

NAME = "n\udcffme"
"""A file's name with a byte that is not UTF-8, as Python has it."""


def write(encoding: str, show: Callable[[], object]) -> str:
    """What a terminal of an encoding shows."""
    written = io.BytesIO()
    with contextlib.redirect_stdout(io.TextIOWrapper(written, encoding=encoding, write_through=True)):
        show()
        return written.getvalue().decode(encoding)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_a_table_is_printed_where_its_signs_do_not_exist(encoding: str) -> None:
    table = Table(title="scores × 100")
    table.add_column("Δ")
    table.add_row("− 1.0 ± 2.0 …")
    text = write(encoding, lambda: print_table(table, create_console()))
    assert ("scores x 100" if encoding == "ascii" else "scores × 100") in text
    assert ("| - 1.0 +- 2.0 ..." if encoding == "ascii" else "- 1.0 ± 2.0") in text
    assert "\\u" not in text


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_json_keeps_its_meaning(encoding: str) -> None:
    """Also where an encoding has signs, but not these, and of a name that is in no encoding."""
    document = {"name": f"{NAME} × – 数 🎉", "quoted": '"\\'}

    def show() -> None:
        prepare_output()
        print(json.dumps(document, ensure_ascii=False))

    assert json.loads(write(encoding, show)) == document


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_command_ends_well_in_a_terminal_of_another_encoding(encoding: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "harness", "list", "models", "--results", str(tmp_path)]
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "LC_ALL": "C", "PYTHONUTF8": "0"}
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"minilm" in done.stdout


def test_an_empty_table_is_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table()
    table.add_column("name")
    print_table(table, create_console())
    assert capsys.readouterr().out == ""


def test_closed_streams_are_no_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m harness list models --results {tmp_path} >&- 2>&-"
    assert subprocess.run(["sh", "-c", command], check=False).returncode == 0


def test_a_reader_that_has_gone_is_no_error() -> None:
    for arguments in ("list tasks --json", "list suites", "check --explain"):
        command = f"set -o pipefail; {sys.executable} -m harness {arguments} | true"
        done = subprocess.run(["bash", "-c", command], check=False, capture_output=True)
        # As of a process that SIGPIPE ends; 1 would say that a candidate regressed.
        assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", NAME),
        ("list", "records", "--results", NAME),
        ("run", "--model", f"{NAME}/model", "--suite", "beir"),
        ("data", "check", NAME),
    ],
)
def test_a_name_that_is_not_utf8_is_named(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke([*arguments]) == 2
    assert capsys.readouterr().err.startswith("Error: 'n\\udcffme")


@pytest.mark.parametrize("name", ["HARNESS_RESULTS", "HARNESS_CACHE"])
def test_a_folder_of_a_variable_that_is_not_utf8_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, NAME)
    assert invoke(["cache", "size"] if name == "HARNESS_CACHE" else ["list", "records"]) == 2
    assert "is not UTF-8.\nRename the file" in capsys.readouterr().err


def test_json_that_is_cleaned_keeps_its_meaning() -> None:
    document = {EVIL: [EVIL, f"\\{EVIL}\\"]}
    assert json.loads(clean_text(json.dumps(document, ensure_ascii=False))) == document


def test_what_is_printed_by_any_means_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    with clean_output():
        print(EVIL)
        click.echo(EVIL, err=True)
        sys.stdout.writelines([EVIL])
        # pytest takes what loggers are told; without it the last handler has it.
        assert logging.lastResort is not None
        logging.lastResort.handle(logging.makeLogRecord({"msg": EVIL, "levelno": logging.WARNING}))
        create_console().print(EVIL, highlight=False, soft_wrap=True)
        create_console().print(Text(EVIL, style="red"))
        table = Table(title=EVIL)
        table.add_column(EVIL)
        table.add_row(f"{EVIL}\nOK")
        table.add_row(Text("x" * 100_000))
        print_table(table, create_console())
    out, err = capsys.readouterr()
    assert out.count("gnp.exe") == 7
    assert err.count("gnp.exe") == 2
    assert not obeyed(out + err)
    assert "\\nOK" in out
    assert len(out) < 20_000


def test_a_terminal_keeps_the_colours_of_the_program() -> None:
    written = io.StringIO()
    written.isatty = lambda: True  # type: ignore[method-assign]
    with contextlib.redirect_stdout(written), clean_output():
        console = create_console()
        console._color_system = ColorSystem.STANDARD
        console.print(Text.assemble((EVIL, "red"), "plain"), soft_wrap=True)
    assert written.getvalue().startswith("\x1b[31m\\u001b[31mred\\u001b]0;title")
    assert written.getvalue().count("\x1b") == 2, "one colour, and its end"


@pytest.mark.parametrize("name", [EVIL, f"{EVIL}=x", "x" * 100_000])
def test_an_error_is_cleaned_and_of_a_length_to_read(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["show", name], ["list", name], [name], ["run", "--suite", name], [f"--{name}"]):
        assert invoke(words) == 2
        out, err = capsys.readouterr()
        assert not obeyed(out + err)
        assert len(out + err) < 10_000
