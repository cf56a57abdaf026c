"""Kill a run at random moments and hold what it ends with against a run left in peace.

    python benchmarks/kill_run.py --data ../shared/datasets

Both runs are of MiniLM on ten real tasks. The killed one is started again after every SIGKILL,
with the same command. Prints each kill and each difference; 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet

from harness.storage.record import RECORDS, Record
from harness.storage.store import Store

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


def command(folder: Path, data: Path, tasks: tuple[str, ...], *more: str) -> list[str]:
    """One `harness run`."""
    suites = [part for task in tasks for part in ("--suite", f"mteb:{task}")]
    places = ["--results", str(folder / "results"), "--cache", str(folder / "cache"), "--data", str(data)]
    return [sys.executable, "-m", "harness", "run", "--model", "minilm", "--offline", *places, *suites, *more]


def commands(folder: Path, data: Path) -> list[list[str]]:
    """The two commands of a whole run."""
    return [command(folder, data, TASKS), command(folder, data, NARROWED, *FULL)]


def to_the_end(folder: Path, data: Path) -> float:
    """Run both commands; returns the seconds they took."""
    began = time.monotonic()
    for one in commands(folder, data):
        subprocess.run(one, check=True, capture_output=True)
    return time.monotonic() - began


def killed(folder: Path, data: Path, after: float) -> str:
    """Run both commands and kill whichever is running after so many seconds; says how far it was."""
    ends = time.monotonic() + after
    for number, one in enumerate(commands(folder, data), 1):
        process = subprocess.Popen(one, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
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


def records(folder: Path) -> dict[str, Record]:
    """Records of a results folder by key; a half-written one raises."""
    store = Store(folder / "results")
    return {record.key: record for record in store.records()} if store.root.exists() else {}


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


def main() -> int:
    """Print kills, scores and faults; 1 if there is a fault."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the data root that holds mteb/")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    asked = parser.parse_args()
    moments = random.Random(asked.seed)
    with tempfile.TemporaryDirectory() as made:
        whole, broken = Path(made) / "whole", Path(made) / "broken"
        took = to_the_end(whole, asked.data)
        print(f"undisturbed: {took:.0f} s, {len(records(whole))} records", flush=True)
        done, start = 0, start_up()
        while done < asked.kills:
            told = killed(broken, asked.data, moments.uniform(0.2, 2 * (took / asked.kills + start)))
            print(told, flush=True)
            if not told.startswith("command"):
                break
            done += 1
        to_the_end(broken, asked.data)
        wrong = compare(whole, broken)
        print(json.dumps({"kills": done, "wrong": wrong}))
    return int(bool(wrong) or done < asked.kills)


if __name__ == "__main__":
    sys.exit(main())
