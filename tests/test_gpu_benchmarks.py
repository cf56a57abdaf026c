"""Every benchmark of benchmarks/gpu, tiny on a CPU: whether it runs with this tree, and what it writes."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpu.run import BUDGETS, main

ROOT = Path(__file__).parents[1]
CASES = {"ceilings": 9, "encode": 8, "training": 5, "attention": 4 * 7, "maxsim": 1}
"""The rows of each."""


TINY = ("--device", "cpu", "--tiny")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs it in this process."""
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_DISABLE_PROGRESS_BARS"):
        monkeypatch.setenv(name, "1")

    def run_tiny(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["run.py", *TINY, "--out", str(tmp_path), *words])
        return main()

    return run_tiny


def check(target: Path, name: str) -> None:
    """All cases are there, with finite, positive figures, and vectors that are those of the library."""
    rows: list[dict[str, Any]] = json.loads((target / f"{name}.json").read_text())["rows"]
    assert len(rows) == CASES[name]
    figures = [value for row in rows for value in row.values() if isinstance(value, int | float)]
    assert all(math.isfinite(value) and value > 0 for value in figures)
    assert all(row.get("cosine", 1.0) > 0.9999 for row in rows)


ALONE = ("ceilings", "encode", "attention")


@pytest.mark.slow
@pytest.mark.parametrize("name", ALONE)
def test_a_benchmark_runs_alone(name: str, tmp_path: Path, run: Callable[..., int]) -> None:
    assert run(name, "--budget", "200") == 0
    check(tmp_path, name)


@pytest.mark.slow
def test_several_run_in_one_call(tmp_path: Path) -> None:
    assert CASES.keys() == BUDGETS.keys()
    others = CASES.keys() - {*ALONE}
    command = [sys.executable, ROOT / "benchmarks" / "gpu" / "run.py", *TINY, "--out", tmp_path, *others]
    done = subprocess.run([*command, "--budget", "200"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in others:
        check(tmp_path, name)


def test_a_benchmark_without_time_stops_with_what_it_has(tmp_path: Path, run: Callable[..., int]) -> None:
    assert run("ceilings", "--budget", "0.01") == 0
    assert 1 <= len(json.loads((tmp_path / "ceilings.json").read_text())["rows"]) < CASES["ceilings"]


def test_an_unknown_name_is_an_error_that_names_those_there_are(run: Callable[..., int]) -> None:
    with pytest.raises(SystemExit, match="There is no encoding: choose of tests, ceilings, encode,"):
        run("encoding")
