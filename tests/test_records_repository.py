"""The recipe of a git repository of records, tried in a scratch repository: the workflow's own steps."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from blocked import FEW
from harness.storage.record import RECORDS

ROOT = Path(__file__).parents[1]
WORKFLOW = yaml.safe_load((ROOT / "docs" / "ci" / "records.yml").read_text())
STEPS = {step["name"]: step for step in WORKFLOW["jobs"]["audit"]["steps"]}
REFERENCE = ROOT / "results" / "reference" / "records"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A clone with all records of the reference but one, as `main`."""
    folder = tmp_path / "clone"
    shutil.copytree(REFERENCE, folder / "results" / "records", ignore=shutil.ignore_patterns("STS13"))
    page = (ROOT / "docs" / "ci.md").read_text()
    ignored = page.partition("`.gitignore`")[2].split("```")[1]
    (folder / ".gitignore").write_text("".join(f"{line.strip()}\n" for line in ignored.split()))
    git(folder, "init", "--quiet", "--initial-branch", "main")
    commit(folder, "records")
    return folder


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    done = subprocess.run(["git", *who, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def commit(folder: Path, message: str) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", message)


def run(folder: Path, name: str, **environment: str) -> tuple[int, str]:
    """Run a step of the workflow as a runner would; its exit code and what it printed."""
    bin_ = folder.parent / "bin"
    bin_.mkdir(exist_ok=True)
    (bin_ / "harness").write_text(f"#!{sys.executable}\n{FEW}")
    (bin_ / "harness").chmod(0o755)
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    env = {
        **os.environ,
        "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": path,
        "HARNESS_CACHE": str(folder.parent / "cache"),
        "RUNNER_TEMP": str(folder.parent),
        **environment,
    }
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[name]["run"]]
    done = subprocess.run(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout


def propose(folder: Path, branch: str, task: str, edit: Any) -> None:
    """A pull request with the edited record of a task, merged as GitHub does for its checks."""
    (source,) = (REFERENCE / "minilm-6234ab890043" / task).glob("*.json")
    target = folder / "results" / "records" / source.relative_to(REFERENCE)
    git(folder, "switch", "--quiet", "--create", branch, "main")
    target.parent.mkdir(exist_ok=True)
    target.write_text(edit(source.read_text()))
    commit(folder, branch)
    git(folder, "switch", "--quiet", "--detach", "main")
    git(folder, "merge", "--quiet", "--no-ff", "--no-edit", branch)


def forge(text: str) -> str:
    """A better score under a digest that fits; the metrics below it are left."""
    record = RECORDS.parse(text, where="x")
    return record.model_copy(update={"main_score": 0.95}).to_json()


@pytest.mark.slow
def test_good_forged_and_damaged_pull_requests_end_as_they_should(repository: Path) -> None:
    refuse, audit = "Refuse everything but new records", "Audit"
    propose(repository, "forged", "STS13", forge)
    assert run(repository, refuse)[0] == 0
    code, out = run(repository, audit)
    assert code == 1, out
    assert "its main score is 0.95, but the mean over splits and subsets is 0.806" in out
    propose(repository, "damaged", "STS13", lambda text: text[:-200])
    code, out = run(repository, audit)
    assert code == 1, out
    assert "truncated" in out
    propose(repository, "other", "STS12", forge)  # it is there already
    code, out = run(repository, refuse)
    assert code == 1, out
    assert "M\tresults/records/minilm-6234ab890043/STS12/" in out
    propose(repository, "good", "STS13", str)
    assert run(repository, refuse)[0] == run(repository, audit)[0] == 0
    git(repository, "switch", "--quiet", "main")
    git(repository, "merge", "--quiet", "good")
    code, out = run(repository, "Write the site", SITE_URL="https://owner.example/name")
    assert code == 0, out
    site = repository.parent / "site"
    page = (site / "tasks" / "STS13.html").read_text()
    assert "minilm" in page
    assert "80.6" in page
    assert git(repository, "status", "--porcelain") == ""
