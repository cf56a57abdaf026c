"""The examples run as they are, from a folder of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of all examples, as a user has one: the model is tried once."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "printed"),
    [("first_model", "'pooling': 'mean'"), ("own_data", "after "), ("gate", "same 0.0")],
)
def test_an_example_runs_to_its_last_line(name: str, printed: str, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "harness").symlink_to(ROOT / "harness")
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    places = {"HARNESS_CACHE": str(cache), "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / f"{name}.py"],
        cwd=tmp_path,
        env=os.environ | places,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert printed in done.stdout.splitlines()[-1]
