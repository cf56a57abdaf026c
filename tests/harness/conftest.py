"""The command line, as tests of single subjects type it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.cli import invoke


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command with a results folder of the test: its exit code, its output and its errors."""

    def run(*words: object) -> tuple[int, str, str]:
        where = [] if "list" in words else ["--results", tmp_path / "results"]
        code = invoke([str(word) for word in (*words, *where)])
        return (code, *capsys.readouterr())

    return run
