"""The whole of a GLUE recipe on small slices of real data, killed once on the way.

    python benchmarks/kill_glue.py --data ../shared/datasets

MiniLM under NeoBERT's grid for ablated models: MNLI's runs, their best one as the start of RTE and
MRPC, the choice of a cell, fresh seeds, the table. The same command is run undisturbed, and killed
in the middle and started again. Prints the tables; 1 if a finished run was repeated, or if a key or a
score differs.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq
from kill_run import compare

from harness.storage.store import Store

TASKS = "MNLI,RTE,MRPC"


def sliced(data: Path, target: Path, *, train: int, dev: int) -> Path:
    """A data root with the first rows of every split."""
    source, place = data / "nyu-mll" / "glue", target / "nyu-mll" / "glue"
    for path in sorted(source.rglob("*.parquet")):
        made = place / path.relative_to(source)
        made.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pq.read_table(path).slice(0, train if path.stem == "train" else dev), made)
    shutil.copy(source / "README.md", place / "README.md")
    return target


def command(folder: Path, data: Path, recipe: str) -> list[str]:
    """One `harness run`."""
    places = ["--results", str(folder / "results"), "--cache", str(folder / "cache"), "--data", str(data)]
    asked = ["--model", "minilm", "--suite", "glue", "--recipe", recipe, "--tasks", TASKS, "--offline"]
    return [sys.executable, "-m", "harness", "run", *asked, *places]


def runs(folder: Path) -> dict[Path, int]:
    """The files of finished runs, with the time they were written."""
    return {path: path.stat().st_mtime_ns for path in (folder / "results" / "records").glob("*/*/*.json")}


def killed(one: list[str], folder: Path, after: int) -> dict[Path, int]:
    """Run a command until so many runs are there, and kill it; what was there."""
    process = subprocess.Popen(
        one, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    while len(runs(folder)) < after:
        if process.poll() is not None:
            raise RuntimeError(f"it ended by itself with {len(runs(folder))} runs")
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return runs(folder)


def main() -> int:
    """Print both tables and what is wrong; 1 if anything is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--recipe", default="glue-neobert:ablation")
    parser.add_argument("--rows", type=int, default=48)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        whole, broken = Path(made) / "whole", Path(made) / "broken"
        data = sliced(asked.data, Path(made) / "data", train=asked.rows, dev=64)
        began = time.monotonic()
        print(
            subprocess.run(
                command(whole, data, asked.recipe), check=True, capture_output=True, text=True
            ).stdout
        )
        count = len(list(Store(whole / "results").records(purpose="trial")))
        print(f"undisturbed: {count} runs, {time.monotonic() - began:.0f} s", flush=True)
        before = killed(command(broken, data, asked.recipe), broken, count // 2)
        print(f"killed with {len(before)} records there", flush=True)
        again = subprocess.run(
            command(broken, data, asked.recipe), check=True, capture_output=True, text=True
        )
        print(again.stdout)
        wrong = compare(whole, broken)
        wrong += [
            f"repeated: {path.name}" for path, time in before.items() if path.stat().st_mtime_ns != time
        ]
        ours, theirs = (
            {r.key: r.main_score for r in Store(f / "results").records(purpose="trial")}
            for f in (broken, whole)
        )
        if ours.keys() != theirs.keys():
            wrong.append("the runs have other keys")
        differ = [key for key in ours.keys() & theirs.keys() if ours[key] != theirs[key]]
        print(f"{len(ours)} runs, {len(differ)} with another score; {len(wrong)} wrong: {wrong}")
    return int(bool(wrong or differ))


if __name__ == "__main__":
    sys.exit(main())
