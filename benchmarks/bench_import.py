"""Importing mteb's results repository beside reading its files: wall time, memory, and the bars.

    python benchmarks/bench_import.py --path RESULTS

`--path` is a checkout of the repository, or the results that were unpacked from one. Three things
are timed in turns, each as it stands in a program that has just begun to work: one process that
reads every file with json.load, an import into an empty results folder with the site's index made,
and a refresh of both with nothing new. Memory is the peak of all processes of an import together,
from a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from measuring import in_turns, read_options, report_missed

IMPORT = 1.5
"""How many times the reading of all files an import may take, or AT_LEAST seconds if that is more."""

AT_LEAST = 40.0

REFRESH = 0.15
"""The share of what an import may take that a refresh with nothing new may."""

MEMORY = 600.0
"""The MB that all processes of an import may have together."""


def load_all(root: Path) -> int:
    """Every file through json.load, one after the other; returns how many there are."""
    count = 0
    for folder, _, names in os.walk(root):
        for name in names:
            if name.endswith(".json"):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    json.load(file)
                count += 1
    return count


def program(path: Path, results: Path) -> list[str]:
    """The command line of an import."""
    code = "import sys; from leaderboard.commands.import_ import command; command(sys.argv[1:])"
    return [sys.executable, "-c", code, "mteb-results", str(path), "--results", str(results), "--json"]


def beside(results: Path) -> dict[str, str]:
    """An environment whose cache, and so the site's index, lies in the results folder."""
    return {**os.environ, "HARNESS_CACHE": str(results / "cache")}


def whole(path: Path, results: Path | None = None) -> int:
    """An import in a process of its own; returns how many files there are."""
    with tempfile.TemporaryDirectory() as empty:
        home = results or Path(empty)
        command = program(path, home)
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=beside(home))
    told = json.loads(done.stdout)
    assert told["changed"] is (results is None), told
    return int(told["read"] + told["unchanged"])


def peak(path: Path) -> float:
    """The most memory in MB that the processes of an import have together, what they share counted once."""
    with tempfile.TemporaryDirectory() as empty:
        home = Path(empty)
        started = psutil.Popen(program(path, home), stdout=subprocess.DEVNULL, env=beside(home))
        most = 0.0
        while started.poll() is None:
            most = max(most, sum(map(_memory, [started, *_children(started)])))
            time.sleep(0.02)
    return most / 2**20


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []


def _memory(process: psutil.Process) -> float:
    try:
        return float(process.memory_full_info().pss)
    except psutil.Error:
        return 0.0


def main() -> int:
    """Print the table; 1 if a bar is missed."""
    asked = read_options(__doc__, path=Path, repeats=3)
    path = asked.path.resolve()
    with tempfile.TemporaryDirectory() as kept:
        own = Path(kept)
        subprocess.run(program(path, own), stdout=subprocess.DEVNULL, check=True, env=beside(own))
        runs = {
            "json.load of all files": lambda: load_all(path),
            "import": lambda: whole(path),
            "refresh, nothing new": lambda: whole(path, Path(kept)),
        }
        seconds, counted = in_turns(runs, asked.repeats)
    base = seconds["json.load of all files"]
    bar = max(IMPORT * base, AT_LEAST)
    bars = {"import": bar, "refresh, nothing new": REFRESH * bar}
    print(f"{next(iter(counted.values()))} files, {len(os.sched_getaffinity(0))} cores, ", end="")
    print(f"median of {asked.repeats}\n\n{'':26}{'seconds':>9}{'share':>8}{'bar':>9}")
    for name, taken in seconds.items():
        may = f"{bars[name]:9.2f}" if name in bars else ""
        print(f"{name:26}{taken:9.2f}{taken / base:8.2f}{may}", flush=True)
    memory = peak(path)
    print(f"{'peak MB of an import':26}{memory:9.0f}{'':8}{MEMORY:9.0f}")
    missed = [name for name, bar in bars.items() if seconds[name] > bar]
    missed += ["memory"] if memory > MEMORY else []
    print(json.dumps({"seconds": seconds, "peak_mb": memory}))
    return report_missed(missed)


if __name__ == "__main__":
    sys.exit(main())
