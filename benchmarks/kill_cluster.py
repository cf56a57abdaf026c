"""A run on three Ray nodes whose nodes and driver are killed at random, against the same run on one machine.

    export PYTHONPATH=tests/support
    python benchmarks/kill_cluster.py --data ../shared/datasets [--kills 10] [--drivers 2] [--seed 0]

MiniLM is fine-tuned on GLUE tasks under a grid (small slices of real data), trained with simcse, and that
model evaluated on ten tasks. Every node runs on this machine, with ports and a temporary folder of its own.
Between two kills are 15 to 35 seconds (`--every`); what is made is kept with `--keep FOLDER`. Prints each
kill; 1 if a record differs from the serial run's, if a finished job was done again, or if a process is left
behind.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kill_commands import count_finished, measure_distance, read_records
from measuring import name_run, read_options, slice_glue  # which finds the modules of tests

from ray_nodes import RayNodes

LABELLED = "RTE,MRPC"
TASKS = (
    "STS12",
    "STS13",
    "STSBenchmark",
    "Banking77Classification",
    "EmotionClassification",
    "PoemSentimentClassification",
    "TweetSentimentExtractionClassification",
    "StdlibCodeSearch",
    "StdlibDocstringClassification",
    "StdlibDocstringClustering",
)


def command(folder: Path, data: Path, *more: str) -> list[str]:
    """One `harness run`."""
    suites = [f"mteb:{name}" for name in TASKS if not name.startswith("Stdlib")]
    recipes = ["--recipe", "glue-neobert:ablation", "--recipe", "simcse", "--set", "simcse.max_steps=30"]
    recipes += ["--set", "simcse.batch_size=16"]
    given = [word for suite in ("glue", *suites, "stdlib") for word in ("--suite", suite)]
    given += ["--tasks", ",".join((*LABELLED.split(","), *TASKS)), "--threads", "1"]
    return name_run(folder, "--checkpoint-minutes", "0.1", *recipes, *given, *more, data=data)


def killed(one: list[str], folder: Path, nodes: RayNodes, given: Any) -> int:
    """Run a command to its end, killing nodes and drivers; the exit code."""
    chance = random.Random(given.seed)
    kills = ["node"] * given.kills + ["driver"] * given.drivers
    chance.shuffle(kills)
    began = time.monotonic()
    log = (folder / "output").open("ab")
    driver = subprocess.Popen(one, stdout=log, stderr=log)
    due = time.monotonic() + chance.uniform(*given.every)
    while driver.poll() is None:
        time.sleep(0.2)
        if kills and time.monotonic() > due:
            what = kills.pop()
            if what == "node":
                nodes.kill(chance)
                nodes.add()
            else:
                driver.send_signal(signal.SIGKILL)
                driver.wait()
                driver = subprocess.Popen(one, stdout=log, stderr=log)
            print(f"{time.monotonic() - began:4.0f} s: killed a {what}", flush=True)
            due = time.monotonic() + chance.uniform(*given.every)
    print(
        f"{time.monotonic() - began:4.0f} s: ended with {driver.returncode}; {len(kills)} kills not reached"
    )
    return driver.returncode


def differing(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """What differs between the records of two runs."""
    keys = [f"only one run has {key[:12]}" for key in ours.keys() ^ theirs.keys()]
    far = {key: measure_distance(ours[key], theirs[key]) for key in ours.keys() & theirs.keys()}
    print(f"{len(far)} records, numbers apart by {max(far.values(), default=0.0):.1e} at most")
    keys += [f"{theirs[key]['task']['name']} {key[:12]}: {far[key]:.1e}" for key in far if far[key] > 1e-7]
    return keys


def main() -> int:
    """Print the kills and what is wrong; 1 if anything is."""
    every = {"type": float, "nargs": 2, "default": (15.0, 35.0)}
    given = read_options(
        __doc__, data=Path, kills=10, drivers=2, every=every, rows=48, seed=0, keep={"type": Path}
    )
    made = given.keep or Path(tempfile.mkdtemp())
    serial, broken = made / "serial", made / "broken"
    broken.mkdir(parents=True, exist_ok=True)
    data = made / "data"
    if not data.exists():
        shutil.copytree(given.data, data, ignore=shutil.ignore_patterns("glue", "local", "pairs"))
        slice_glue(given.data, data, train=given.rows, dev=64)
    if not (serial / "whole").exists():
        began = time.monotonic()
        done = subprocess.run(command(serial, data), capture_output=True, text=True)
        print(f"serial: ended with {done.returncode} after {time.monotonic() - began:.0f} s", flush=True)
        if done.returncode:
            print(done.stdout[-3000:], done.stderr[-3000:])
            return 1
        (serial / "whole").touch()
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp") as short, RayNodes(Path(short)) as nodes:
        code = killed(command(broken, data, "--executor", f"ray:{nodes.address}"), broken, nodes, given)
        time.sleep(15)
        left = nodes.left()
    wrong = [f"it ended with {code}"] * bool(code)
    wrong += differing(read_records(broken), read_records(serial))
    wrong += [f"done {count} times: {job}" for job, count in count_finished(broken).items() if count > 1]
    wrong += [f"left behind: {line}" for line in left]
    print(f"{len(read_records(serial))} records; {len(wrong)} wrong")
    print("\n".join(wrong))
    if not given.keep:
        shutil.rmtree(made)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
