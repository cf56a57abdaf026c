"""The examples run as they are, from a folder of their own."""

from __future__ import annotations

import os
import runpy
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
def test_an_example_runs_to_its_last_line(
    name: str,
    printed: str,
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "harness").symlink_to(ROOT / "harness")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HARNESS_CACHE", str(cache))
    # That of the processes which an example starts.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
    assert printed in capsys.readouterr().out.splitlines()[-1]
