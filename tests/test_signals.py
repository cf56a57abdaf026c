"""SIGTERM ends every command in a moment, as Ctrl-C does: code 130, no traceback, nothing half written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tiny
from site_data import fill

AT_WORK = """
import importlib, sys, time
from pathlib import Path
from harness.cli import main

module, name = sys.argv[1].split(":")
module = importlib.import_module(module)
at_work = getattr(module, name)


def sleep(*given, **options):
    Path("at work").touch()
    exec("time.sleep(60)")  # an interrupt in an exec is one that Python remembers
    return at_work(*given, **options)


setattr(module, name, sleep)
main(sys.argv[2:])
"""
"""A command of which one function, named first, takes a minute."""

COMMANDS = {
    "run --model tiny --suite local:own": "harness.encoder.sanity:check_encoder",
    "import mteb-results published --results new": "leaderboard.data.mteb_import:scan",
    "watch checkpoints --suite local:own": "harness.commands.watch:follow",
    "proxy fit --target nanobeir --minutes 1": "harness.proxy.fit:fit_proxy",
    "audit": "harness.commands.audit:audit",
    "data check own": "harness.commands.data:open_suites",
    "serve --port 0": "leaderboard.web.site:open_site",
    "serve --static site": "leaderboard.web.site:write_site",
    "export /suites/nanobeir": "leaderboard.web.site:open_site",
    "status": "harness.commands.status:read_runs",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder, published scores, a suite of one's own, a model, and a checkpoint of it."""
    tmp_path = tmp_path_factory.mktemp("folder")
    fill(tmp_path)
    for name in ("tiny", "checkpoints/step-100"):
        tiny.folder(tiny.families()["bert"], tmp_path / name)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "harness.toml").write_text('[[task]]\nname = "similar"\ntype = "sts"\n')
    rows = [
        {"text1": a, "text2": b, "score": len(a)} for a, b in zip(tiny.WORDS, tiny.WORDS[1:], strict=False)
    ]
    (tmp_path / "own" / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    published = tmp_path / "published" / "results" / "org__model" / ("a" * 40)
    published.mkdir(parents=True)
    (published / "model_meta.json").write_text('{"name": "org/model"}')
    return tmp_path


def files_in(folder: Path) -> dict[str, bytes]:
    """The files of results, by name; logs of runs come and go."""
    found = (path for name in ("results", "new", "site") for path in (folder / name).rglob("*"))
    kept = (path for path in found if path.is_file() and "runs" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in kept}


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_sigterm_ends_every_command_in_a_moment(command: str, folder: Path) -> None:
    before = files_in(folder)
    (folder / "at work").unlink(missing_ok=True)
    words = [sys.executable, "-c", AT_WORK, COMMANDS[command], *command.split()]
    own = {"PYTHONPATH": str(Path.cwd()), "HARNESS_CACHE": str(folder / "cache")}
    process = subprocess.Popen(
        words,
        cwd=folder,
        env={**os.environ, **own},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    ends = time.monotonic() + 120
    while not (folder / "at work").exists() and process.poll() is None and time.monotonic() < ends:
        time.sleep(0.05)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert time.monotonic() - began < 20
    # A server has finished nothing, and goes on from nowhere.
    assert ("The leaderboard has stopped." if command == "serve --port 0" else "Interrupted.") in said
    assert "Traceback" not in said
    assert files_in(folder) == before
