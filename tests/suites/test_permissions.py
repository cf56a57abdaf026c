"""Folders and files that this user may not enter or read: left out and counted, or named; no traceback."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.cli import invoke

ROOT = Path(__file__).parents[2]
FUNCTION = (
    'def f{n}(x):\n    """Do the thing with number {n}."""\n    a = {n}\n    b = x\n    return a + b\n\n\n'
)
TEXTS = '{"text": "a", "label": 1}\n{"text": "b", "label": 2}\n{"text": "c", "label": 1}\n'
AS_NOBODY = """
import os, sys
from harness.catalog import open_suite
from harness.cli import invoke
plan = lambda suite: ["run", "--model", "minilm", "--dry-run", "--suite", suite,
                      "--cache", sys.argv[1] + "/cache", "--results", sys.argv[1] + "/results"]
allowed, *asked = sys.argv[2:]
assert invoke(plan(allowed)) == 0  # imports everything: nobody may not read this interpreter's library
os.chmod(sys.argv[1] + "/cache", 0o777)
if os.geteuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
codes = [invoke(plan(suite)) for suite in asked]
if not any(codes):
    print("notes:", *(note for suite in asked for note in open_suite(suite).notes))
sys.exit(max(codes))
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def public() -> Iterator[Path]:
    """A temporary folder that every user can enter, whose closed folders are opened at the end."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o755)
        yield place
        for path in sorted(place.rglob("*")):
            path.chmod(0o755)


@pytest.fixture
def as_nobody(public: Path) -> Run:
    """Plans a suite that may be read, then others as a user who owns nothing."""

    def run(*suites: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", AS_NOBODY, str(public), *suites]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)

    return run


def repository(place: Path) -> Path:
    place.mkdir()
    (place / "open.py").write_text("".join(FUNCTION.format(n=n) for n in range(12)))
    for name in ("secret", "listed"):
        (place / name).mkdir()
        (place / name / "hidden.py").write_text(FUNCTION.format(n=99))
    (place / "locked.py").write_text("x = 1\n")
    return place


def texts(place: Path) -> Path:
    place.mkdir(parents=True)
    (place / "harness.toml").write_text('[[task]]\ntype = "clustering"\n')
    (place / "texts.jsonl").write_text(TEXTS)
    return place


def close(path: Path, mode: int = 0) -> Path:
    path.chmod(mode)
    return path


def test_closed_folders_of_a_repository_are_left_out_and_counted(public: Path, as_nobody: Run) -> None:
    """Python 3.11 raises where it asks whether a file is there below a folder that may not be entered."""
    repo, fine = repository(public / "repo"), repository(public / "fine")
    close(repo / "secret")
    close(repo / "listed", 0o444)
    close(repo / "locked.py")
    done = as_nobody(f"code:{fine}", f"code:{repo}")
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout.partition("notes: ")[2]
    assert "1 of 2 files: cannot be read. " in said
    assert "The folder listed (and 1 more) may not be entered: left out. " in said


def test_a_closed_repository_is_named(public: Path, as_nobody: Run) -> None:
    repo, fine = repository(public / "repo"), repository(public / "fine")
    close(repo)
    done = as_nobody(f"code:{fine}", f"code:{repo}", f"code:{repo}/secret")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"Error: {repo}: Permission denied.",
        f"Error: {repo}/secret: Permission denied.",
    ]


@pytest.mark.parametrize(
    ("closed", "named"), [("in", "in/data"), ("in/data", "in/data/harness.toml"), ("in/data/texts.jsonl", "")]
)
def test_closed_data_of_ones_own_is_named(public: Path, as_nobody: Run, closed: str, named: str) -> None:
    fine, data = texts(public / "fine"), texts(public / "in" / "data")
    close(public / closed)
    done = as_nobody(f"local:{fine}", f"local:{data}")
    assert done.returncode == 1
    assert done.stderr == f"Error: {public / (named or closed)}: Permission denied.\n"


def test_closed_qrels_are_named(public: Path, as_nobody: Run) -> None:
    fine, data = texts(public / "fine"), public / "data"
    (data / "qrels").mkdir(parents=True)
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        (data / name).write_text("{}")
    close(data / "qrels")
    done = as_nobody(f"local:{fine}", f"local:{data}")
    assert done.returncode == 1
    assert done.stderr == f"Error: {data / 'qrels'}: Permission denied.\n"


def test_a_name_that_is_too_long_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "x" * 300 + ".jsonl"
    data = texts(tmp_path / "data")
    (data / "harness.toml").write_text(f'[[task]]\ntype = "clustering"\nfile = "{name}"\n')
    assert invoke(["run", "--model", "minilm", "--dry-run", "--suite", f"local:{data}"]) == 1
    assert capsys.readouterr().err == f"Error: {data / name}: File name too long.\n"


@pytest.mark.parametrize("suite", ["code", "local"])
def test_a_place_that_leads_nowhere_is_said(
    suite: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for place in (str(tmp_path / "loop"), "~no-such-user/data"):
        assert invoke(["run", "--model", "minilm", "--dry-run", "--suite", f"{suite}:{place}"]) == 2
        assert f"Error: {place} leads nowhere: " in capsys.readouterr().err


def test_a_file_that_vanishes_while_it_is_looked_for_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from suites import _code, _python

    repo = repository(tmp_path / "repo")
    found = _python.python_files(repo)
    (repo / "locked.py").unlink()
    monkeypatch.setattr(_python, "python_files", lambda root, **_: found)
    assert len(_code._content_tasks(repo, tmp_path / "cache").search.documents) == 13
