"""Every benchmark of benchmarks/gpu, tiny on a CPU: whether it runs with this tree, and what it writes."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpu.run import BUDGETS

ROOT = Path(__file__).parents[1]
CASES = {"ceilings": 9, "encode": 8, "training": 5, "attention": 4 * 6, "maxsim": 1}
"""The rows of each."""


def run(name: str, target: Path, *words: str) -> list[dict[str, Any]]:
    command = [sys.executable, ROOT / "benchmarks" / "gpu" / "run.py", name, "--device", "cpu", "--tiny"]
    done = subprocess.run([*command, "--out", target, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads((target / f"{name}.json").read_text())["rows"]
    return rows


def numbers(rows: list[dict[str, Any]]) -> Iterator[float]:
    return (value for row in rows for value in row.values() if isinstance(value, int | float))


def test_every_benchmark_is_tested() -> None:
    assert CASES.keys() == BUDGETS.keys()


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in ("encode", "training"))) for name in CASES],
)
def test_a_benchmark_ends_with_finite_positive_figures(name: str, tmp_path: Path) -> None:
    rows = run(name, tmp_path, "--budget", "200")
    assert len(rows) == CASES[name]
    assert all(math.isfinite(value) and value > 0 for value in numbers(rows))
    assert all(row.get("cosine", 1.0) > 0.9999 for row in rows), "vectors are those of the library"


def test_a_benchmark_without_time_stops_with_what_it_has(tmp_path: Path) -> None:
    assert len(run("ceilings", tmp_path, "--budget", "0.01")) == 1
