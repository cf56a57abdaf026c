"""Kill a run at random moments and compare what it ends with to a run left in peace.

    python benchmarks/kill_run.py --data ../shared/datasets [--kills 10] [--seed 0]
    python benchmarks/kill_run.py --data ../shared/datasets --glue [--recipe NAME] [--rows 48]

Both runs are of MiniLM on ten real tasks. The killed one is started again after every SIGKILL, with the same
command. With `--glue` they are of NeoBERT's grid for ablated models on small slices of MNLI, RTE and MRPC:
MNLI's runs, their best one as the start of the others, the choice of a cell, fresh seeds, the table; and the
run is killed once, when half of its training runs are there. Prints each kill, each score and each
difference; 1 if anything is lost, half written, done twice, or has another score.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet
from measuring import name_run, read_options, slice_glue

from harness.storage.record import RECORDS, Record
from harness.storage.store import Store
from stored_records import iter_records

TASKS = (
    "STSBenchmark",
    "STS12",
    "STS13",
    "SciFact",
    "Banking77Classification",
    "EmotionClassification",
    "TweetSentimentExtractionClassification",
    "PoemSentimentClassification",
)
NARROWED = ("SIB200Classification", "SIB200ClusteringS2S")
"""Tasks of which the data at hand has one language and one split."""

TOLERANCE = 1e-6
FULL = ["--languages", "eng", "--splits", "test"]


def commands(folder: Path, data: Path) -> list[list[str]]:
    """The two commands of a whole run."""
    parts = ((TASKS, []), (NARROWED, FULL))
    return [
        name_run(folder, *(word for task in tasks for word in ("--suite", f"mteb:{task}")), *more, data=data)
        for tasks, more in parts
    ]


def to_the_end(folder: Path, data: Path) -> float:
    """Run both commands; returns the seconds they took."""
    began = time.monotonic()
    for command in commands(folder, data):
        subprocess.run(command, check=True, capture_output=True)
    return time.monotonic() - began


def killed(folder: Path, data: Path, after: float) -> str:
    """Run both commands and kill whichever is running after so many seconds; says how far it was."""
    ends = time.monotonic() + after
    for number, command in enumerate(commands(folder, data), 1):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(timeout=max(0.0, ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            return f"command {number} killed after {after:.1f} s, {len(records(folder))} records there"
    return f"ended by itself before {after:.1f} s"


def start_up() -> float:
    """Seconds that a run takes before it can get anything done: a kill before that tests little."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import mteb, sentence_transformers"], check=True)
    return time.monotonic() - began


def records(folder: Path, purpose: str = "final") -> dict[str, Record]:
    """Records of a results folder by key; a half-written one raises."""
    store = Store(folder / "results")
    return (
        {record.key: record for record in iter_records(store, purpose=purpose)} if store.root.exists() else {}
    )


def half_files(folder: Path) -> list[str]:
    """Files of a finished folder that cannot be read whole, or should not be there."""
    found = []
    for path in sorted((folder / "results" / "records").rglob("*")):
        try:
            if path.suffix == ".json":
                RECORDS.parse(path.read_text(), where=str(path))
            elif path.suffix == ".parquet":
                pyarrow.parquet.read_table(path)
            elif path.is_file():
                found.append(f"{path.name} is neither a record nor its examples")
        except Exception as error:
            found.append(f"{path.name}: {error}")
    return found


def allowed(record: Record) -> float:
    """How far two main scores may lie apart: one prediction for a classification."""
    if record.task.type != "Classification" or record.examples is None:
        return TOLERANCE
    return 1 / record.examples.rows


def compare(whole: Path, broken: Path) -> list[str]:
    """What is wrong with the folder that was killed, empty if nothing is."""
    expected, found = records(whole), records(broken)
    wrong = half_files(broken)
    wrong += [f"lost: {expected[key].task.name}" for key in expected.keys() - found.keys()]
    wrong += [f"not in the other: {found[key].task.name}" for key in found.keys() - expected.keys()]
    for key in sorted(expected.keys() & found.keys(), key=lambda k: expected[k].task.name):
        one, other = expected[key], found[key]
        apart = abs((one.main_score or 0.0) - (other.main_score or 0.0))
        print(f"{one.task.name:42}{100 * (one.main_score or 0.0):8.2f}{apart:12.1e}")
        if one.status != "done" or other.status != "done" or apart > allowed(one):
            wrong.append(f"{one.task.name}: {one.main_score} and {other.main_score}, {other.status}")
    return wrong


def kill_often(made: Path, asked: Any) -> list[str]:
    """Kill a run on ten tasks again and again; what is wrong then."""
    moments = random.Random(asked.seed)
    whole, broken = made / "whole", made / "broken"
    took = to_the_end(whole, asked.data)
    print(f"undisturbed: {took:.0f} s, {len(records(whole))} records", flush=True)
    start = start_up()
    for _ in range(asked.kills):
        told = killed(broken, asked.data, moments.uniform(0.2, 2 * (took / asked.kills + start)))
        print(told, flush=True)
        if not told.startswith("command"):
            return [f"too few kills: it {told}"]
    to_the_end(broken, asked.data)
    return compare(whole, broken)


# A recipe of GLUE


def kill_glue(made: Path, asked: Any) -> list[str]:
    """Kill a run of a GLUE recipe once; what is wrong then."""
    whole, broken = made / "whole", made / "broken"
    data = slice_glue(asked.data, made / "data", train=asked.rows, dev=64)
    words = ("--suite", "glue", "--recipe", asked.recipe, "--tasks", "MNLI,RTE,MRPC")
    began = time.monotonic()
    print(subprocess.check_output(name_run(whole, *words, data=data), text=True))
    expected = records(whole, "trial")
    print(f"undisturbed: {len(expected)} runs, {time.monotonic() - began:.0f} s", flush=True)
    command = name_run(broken, *words, data=data)
    before = kill_at(command, broken, len(expected) // 2)
    print(f"killed with {len(before)} records there", flush=True)
    print(subprocess.check_output(command, text=True))
    wrong = compare(whole, broken)
    wrong += [f"repeated: {path.name}" for path, when in before.items() if path.stat().st_mtime_ns != when]
    found = records(broken, "trial")
    wrong += ["the runs have other keys"] if found.keys() != expected.keys() else []
    both = found.keys() & expected.keys()
    return wrong + [
        f"another score: {key}" for key in both if found[key].main_score != expected[key].main_score
    ]


def times_of_files(folder: Path) -> dict[Path, int]:
    """The files of records, with the time they were written."""
    return {path: path.stat().st_mtime_ns for path in (folder / "results" / "records").glob("*/*/*.json")}


def kill_at(command: list[str], folder: Path, after: int) -> dict[Path, int]:
    """Run a command until so many records are there, and kill it; what was there."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    while len(times_of_files(folder)) < after:
        if process.poll() is not None:
            raise RuntimeError(f"it ended by itself with {len(times_of_files(folder))} runs")
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return times_of_files(folder)


def main() -> int:
    """Print kills, scores and faults; 1 if there is a fault."""
    asked = read_options(
        __doc__, data=Path, kills=10, seed=0, glue=False, recipe="glue-neobert:ablation", rows=48
    )
    with tempfile.TemporaryDirectory() as made:
        wrong = (kill_glue if asked.glue else kill_often)(Path(made), asked)
    print(json.dumps({"wrong": wrong}))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
