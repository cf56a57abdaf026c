"""The benchmarks of a GPU, each with a limit of its own, and the tests of tests/gpu before them.

    python benchmarks/gpu/run.py                     all of it, 10 minutes at most
    python benchmarks/gpu/run.py encode --budget 60  one alone
    python benchmarks/gpu/run.py --device cpu --tiny whether all of it runs, in a minute

A benchmark begins no other case when its budget is over, and writes each figure into OUT/NAME.json as soon
as it is there, so that one that is killed leaves what it has. It needs no data and no network.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "benchmarks")]

from measuring import format_table, read_options  # noqa: E402

BUDGETS = {"ceilings": 20, "encode": 140, "training": 140, "attention": 40, "maxsim": 40}
"""Seconds of each benchmark, after which it begins no other case."""

PARTS = ("tests", *BUDGETS)

TESTS, GRACE = 90, 15
"""Seconds of tests/gpu, and those that the last case of a benchmark has beyond its budget."""


def main() -> int:
    """Run what is asked for; 1 if a part fails or, on a GPU, a bar is missed."""
    given = read_options(
        __doc__,
        {"names": {"nargs": "*", "metavar": "NAME", "help": f"of {', '.join(PARTS)}"}},
        device="cuda",
        tiny=False,
        budget={"type": float, "help": "seconds of each benchmark"},
        out=Path("build/gpu"),
    )
    if unknown := {*given.names} - {*PARTS}:
        sys.exit(f"There is no {', '.join(sorted(unknown))}: choose of {', '.join(PARTS)}.")
    given.out.mkdir(parents=True, exist_ok=True)
    os.environ |= dict.fromkeys(("HF_HUB_OFFLINE", "HF_DATASETS_DISABLE_PROGRESS_BARS"), "1")
    if len(given.names) == 1 and given.names != ["tests"]:
        return run_benchmark(given.names[0], given)
    usual = PARTS if given.device.startswith("cuda") else BUDGETS
    codes = [run_process(name, given) for name in given.names or usual]
    return int(any(codes))


def run_process(name: str, given: Any) -> int:
    """Run a part in a process of its own, killed when it takes too long; gives its exit code."""
    limit = TESTS if name == "tests" else (given.budget or BUDGETS[name]) + GRACE
    command = [sys.executable, __file__, name, "--device", given.device, "--out", str(given.out)]
    command += ["--tiny"] * given.tiny
    if name != "tests":
        command += [f"--budget={given.budget or BUDGETS[name]}"]
    else:
        marks = "gpu" if given.device.startswith("cuda") else "slow"
        workers = ["-n", str(min(4, os.cpu_count() or 1))]
        command = [sys.executable, "-m", "pytest", "tests/gpu", "-q", "-m", marks, *workers]
    began = time.monotonic()
    print(f"\n== {name}", flush=True)
    paths = [str(ROOT), str(ROOT / "tests" / "support"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    try:
        code = subprocess.run(command, cwd=ROOT, env=environment, timeout=limit, check=False).returncode
    except subprocess.TimeoutExpired:
        code = 124
    print(f"== {name}: code {code} after {time.monotonic() - began:.0f} s", flush=True)
    return code


def run_benchmark(name: str, given: Any) -> int:
    """Run a benchmark in this process; 1 if a bar is missed."""
    import torch
    from gpu.session import Session

    budget = given.budget or BUDGETS[name]
    session = Session(
        device=given.device,
        tiny=given.tiny,
        folder=given.out / "models",
        deadline=time.monotonic() + budget,
    )
    title = torch.cuda.get_device_name() if session.on_gpu else platform.processor() or "CPU"
    packages = ("torch", "transformers", "sentence-transformers")
    report = {
        "benchmark": name,
        "device": title,
        "cores": len(os.sched_getaffinity(0)),
        "tiny": given.tiny,
        "versions": {package: version(package) for package in packages},
    }
    benchmark = importlib.import_module(f"gpu.{name}")
    rows: list[dict[str, Any]] = []
    for row in benchmark.iter_rows(session):
        rows.append(row)
        (given.out / f"{name}.json").write_text(json.dumps({**report, "rows": rows}, indent=1))
        if time.monotonic() > session.deadline:
            print(f"no time left after {len(rows)} rows")
            break
    print(f"{title}, {report['cores']} cores, {report['versions']}")
    print(format_rows(rows))
    if not session.on_gpu or given.tiny or not hasattr(benchmark, "find_missed"):
        return 0
    missed = [line for row in rows for line in benchmark.find_missed(row)]
    print("\n".join(f"missed: {line}" for line in missed) or "no bar is missed")
    return int(bool(missed))


def format_rows(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table of all figures; a column for each name."""
    heads = list(dict.fromkeys(name for row in rows for name in row))
    return format_table(heads, [[format_figure(row.get(head, "")) for head in heads] for row in rows])


def format_figure(value: Any) -> str:
    """A number with three digits or more.

    >>> format_figure(0.43712), format_figure(749_123.4), format_figure("varlen")
    ('0.437', '749,123', 'varlen')
    """
    if not isinstance(value, float):
        return str(value)
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


if __name__ == "__main__":
    sys.exit(main())
