"""Every benchmark of benchmarks/gpu, tiny on a CPU: whether it runs with this tree, and what it writes."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpu.run import BUDGETS

ROOT = Path(__file__).parents[1]
CASES = {"ceilings": 9, "encode": 8, "training": 5, "attention": 4 * 7, "maxsim": 1}
"""The rows of each."""


def run(target: Path, *words: str) -> None:
    command = [sys.executable, ROOT / "benchmarks" / "gpu" / "run.py", "--device", "cpu", "--tiny"]
    done = subprocess.run([*command, "--out", target, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def check(target: Path, name: str) -> None:
    """All cases are there, with finite, positive figures, and vectors that are those of the library."""
    rows: list[dict[str, Any]] = json.loads((target / f"{name}.json").read_text())["rows"]
    assert len(rows) == CASES[name]
    figures = [value for row in rows for value in row.values() if isinstance(value, int | float)]
    assert all(math.isfinite(value) and value > 0 for value in figures)
    assert all(row.get("cosine", 1.0) > 0.9999 for row in rows)


SHORT = ("ceilings", "attention", "maxsim")


@pytest.mark.parametrize("name", SHORT)
def test_a_benchmark_runs_alone(name: str, tmp_path: Path) -> None:
    run(tmp_path, name, "--budget", "200")
    check(tmp_path, name)


@pytest.mark.slow
def test_several_run_in_one_call(tmp_path: Path) -> None:
    assert CASES.keys() == BUDGETS.keys()
    others = CASES.keys() - {*SHORT}
    run(tmp_path, *others, "--budget", "200")
    for name in others:
        check(tmp_path, name)


def test_a_benchmark_without_time_stops_with_what_it_has(tmp_path: Path) -> None:
    run(tmp_path, "ceilings", "--budget", "0.01")
    assert 1 <= len(json.loads((tmp_path / "ceilings.json").read_text())["rows"]) < CASES["ceilings"]


def test_an_unknown_name_is_an_error_that_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="There is no encoding: choose of tests, ceilings, encode,"):
        run(tmp_path, "encoding")
