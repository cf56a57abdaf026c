"""The files whose functions a run executes: a score, the same score again, and a training with a score.

    python benchmarks/touched_files.py --model FOLDER --data ../shared/datasets

Every process of a run counts that is not killed, also those that it starts. Code at the top of a module
counts only where it calls a function.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from measuring import ROOT, read_options

PROFILER = """
import atexit, os, sys, threading
root, out, seen, end = {root!r}, {out!r}, set(), os._exit
def note(frame, event, _):
    code = frame.f_code
    # A module and the body of a class are no functions, nor is a comprehension at the top of a module.
    if event == "call" and code.co_flags & 1 and not code.co_qualname.startswith("<"):
        seen.add(code.co_filename)
def write():
    with open(f"{{out}}/{{os.getpid()}}", "w") as file:
        file.write("\\n".join(path for path in seen if path.startswith(root)))
os._exit = lambda code: (write(), end(code))
atexit.register(write)
sys.setprofile(note)
threading.setprofile(note)
"""
"""Imported by every process before anything else."""

RUNS = {"score": (), "again": (), "training": ("--recipe", "simcse", "--set", "max_steps=2")}
"""The further options of each run of STSBenchmark."""


def list_touched_files(folder: Path, options: list[str]) -> list[str]:
    """The files whose functions a command of `harness run` executes, in all of its processes."""
    folder.mkdir()
    out = folder / "seen"
    out.mkdir()
    packages = [f"{ROOT / name}/" for name in ("harness", "finetune", "suites", "leaderboard")]
    (folder / "sitecustomize.py").write_text(PROFILER.format(root=tuple(packages), out=str(out)))
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{ROOT}"}
    subprocess.run([sys.executable, "-m", "harness", "run", *options], env=environment, cwd=ROOT, check=True)
    return sorted({line for path in out.iterdir() for line in path.read_text().splitlines()})


if __name__ == "__main__":
    given = read_options(__doc__, model=str, data=Path)
    with tempfile.TemporaryDirectory() as name:
        where = Path(name)
        shared = [
            "--model",
            str(Path(given.model).resolve()),
            "--suite",
            "mteb",
            "--tasks",
            "STSBenchmark",
            "--offline",
        ]
        shared += [
            "--data",
            str(given.data.resolve()),
            "--results",
            f"{where}/results",
            "--cache",
            f"{where}/cache",
        ]
        counts = {run: list_touched_files(where / run, [*shared, *more]) for run, more in RUNS.items()}
    print(*(path.removeprefix(f"{ROOT}/") for path in counts["score"]), sep="\n")
    print(", ".join(f"{run}: {len(files)} files" for run, files in counts.items()))
