"""Kill commands, or one of their processes, at random moments; the records are as of commands left in peace.

    PYTHONPATH=tests/support:benchmarks python benchmarks/kill_commands.py [--kills 100] [--only run,check]

Every command runs on tiny models with random weights, and is typed again after each SIGKILL. A third of the
kills hit a process that the command has started, which leaves the command to go on; half of them come within
milliseconds of a write. Prints a line for each kind of command; 1 if a record has another identity or score,
a process outlives its command, or the audit finds anything wrong or left.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from fuzz_folders import lay_data, lay_models
from measuring import read_options

from harness.storage.store import Store
from stored_records import iter_records

MODELS = ("bert", "mean", "modernbert", "colbert")
PLACES = ("--results", "{home}/results", "--cache", "{home}/cache", "--offline")
EVALUATION = ("--suite", "local:{data}/pairs", *PLACES)
ALIKE = ("--allow", "normalize,max_length")
PAIR = ("run", "--model", "{models}/bert", "--model", "{models}/mean")
TRAINING = ("--train-data", "{data}/training/triplets.jsonl", "--set", "batch_size=4", "--set", "epochs=4")

COMMANDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "run": ((*PAIR, *EVALUATION, "--suite", "local:{data}/beir", "--devices", "cpu,cpu"),),
    "plaid": (
        ("run", "--model", "{models}/colbert", "--suite", "local:{data}/beir", *PLACES, "--index", "plaid"),
    ),
    "training": (
        ("run", "--model", "{models}/bert", "--recipe", "unified-contrastive", *TRAINING, *EVALUATION),
    ),
    "cde": (
        (
            *("run", "--model", "{models}/bert", "--recipe", "cde-batching", "--set", "guide={models}/mean"),
            *TRAINING,
            *EVALUATION,
        ),
    ),
    "check": (
        (*PAIR[:3], *EVALUATION),
        ("check", "--candidate", "{models}/mean", "--baseline", "{models}/bert", *ALIKE, *EVALUATION),
    ),
    "watch": (("watch", "{home}/checkpoints", "--once", "--settle", "0", *EVALUATION),),
    "score": (
        (
            *(
                "data",
                "score",
                "--teacher",
                "{models}/mean",
                "--train-data",
                "{data}/training/triplets.jsonl",
            ),
            *("--output", "{home}/scored", "--cache", "{home}/cache", "--offline"),
        ),
    ),
}
"""By kind the commands, of which the last one is killed; any exit code but 0 of the others is a fault."""


class Trial:
    """A home with results and a cache of its own, in which a kind of command runs."""

    def __init__(self, kind: str, inputs: Path, home: Path) -> None:
        self.home = home
        words = {"models": inputs / "models", "data": inputs / "data", "home": home}
        self.commands = [[part.format(**words) for part in command] for command in COMMANDS[kind]]
        for step, model in ((100, "bert"), (200, "mean")):
            shutil.copytree(inputs / "models" / model, home / "checkpoints" / f"step-{step}")
        for command in self.commands[:-1]:
            assert self.start(command).wait() == 0, command

    def start(self, command: list[str]) -> subprocess.Popen[bytes]:
        """Start a command in a session of its own."""
        # Its name in the environment tells which processes belong to it.
        environment = {**os.environ, "HARNESS_KILLED": str(self.home)}
        typed = [sys.executable, "-m", "harness", *command]
        with (self.home / "log.txt").open("ab") as log:
            return subprocess.Popen(typed, stdout=log, stderr=log, env=environment, start_new_session=True)

    def run(self) -> tuple[int, float]:
        """Run the command to its end; returns its exit code and seconds."""
        began = time.monotonic()
        return self.start(self.commands[-1]).wait(), time.monotonic() - began

    def kill(self, moment: float, *, at_write: bool, child: bool) -> str:
        """Start the command and kill it, or a process that it has started; returns what was hit."""
        process = self.start(self.commands[-1])
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(moment)
        before = self.list_files()
        while at_write and process.poll() is None and self.list_files() == before:
            time.sleep(0.002)
        hit = "nothing"
        if process.poll() is None:
            children = [
                one
                for one in psutil.Process(process.pid).children(recursive=True)
                # Python's own process that looks after what others share has no work of ours.
                if child and not any("resource_tracker" in word for word in one.cmdline())
            ]
            victim = random.choice(children) if children else psutil.Process(process.pid)
            victim.kill()
            hit = "child" if children else "driver"
        process.wait()
        return hit

    def list_files(self) -> dict[str, int]:
        """The files that the command has written, each with the time of that."""
        written = {}
        for path in self.home.rglob("*"):
            with contextlib.suppress(FileNotFoundError):
                written[str(path)] = path.stat().st_mtime_ns
        del written[str(self.home / "log.txt")]
        return written

    def list_scores(self) -> dict[str, Any]:
        """The identity and the scores of every record, and the content of what is no record."""
        records = {
            record.key: (record.identity, record.scores, record.main_score, record.status)
            for purpose in ("final", "trial")
            for record in iter_records(Store(self.home / "results"), purpose=purpose)
        }
        scored = sorted((self.home / "scored").rglob("*.parquet"))
        return {**records, **{str(path.relative_to(self.home)): path.read_bytes() for path in scored}}

    def find_faults(self) -> Iterator[str]:
        """What is left or wrong after the last run."""
        for process in psutil.process_iter(["environ"]):
            if (process.info["environ"] or {}).get("HARNESS_KILLED") == str(self.home):
                yield f"the process {process.pid} is left: {' '.join(process.cmdline())[:200]}"
        places = ["--results", self.home / "results", "--cache", self.home / "cache", "--json"]
        (self.home / "results").mkdir(exist_ok=True)
        typed = [sys.executable, "-m", "harness", "audit", *map(str, places)]
        found = json.loads(subprocess.run(typed, capture_output=True, check=False).stdout)
        yield from (f"{fault['file']}: {fault['reason']}" for fault in found["faults"])


def kill_kind(kind: str, inputs: Path, home: Path, kills: int) -> list[str]:
    """Kill a kind of command so many times; returns the faults."""
    whole = Trial(kind, inputs, home / "whole")
    code, seconds = whole.run()
    expected, faults, hits = whole.list_scores(), [*whole.find_faults()], list[str]()
    # A check may end with 1 or 3, which are verdicts.
    faults += [] if code != 2 and expected else [f"left in peace it ends with {code}, {len(expected)} scores"]
    while len(hits) - hits.count("nothing") < kills and not faults:
        trial = Trial(kind, inputs, home / f"killed-{len(hits)}")
        for _ in range(random.randint(1, 3)):
            at_write, child = random.random() < 0.5, random.random() < 0.35
            hits.append(trial.kill(random.uniform(0.2, 0.95) * seconds, at_write=at_write, child=child))
        ended = trial.run()[0]
        faults += [] if ended == code else [f"it ends with {ended}"]
        faults += [] if trial.list_scores() == expected else ["its scores are others"]
        faults += trial.find_faults()
        faults = [f"{kind} in {trial.home}: {fault}" for fault in faults]
        if not faults:
            shutil.rmtree(trial.home)
    counts = ", ".join(f"{hits.count(what)} {what}" for what in ("driver", "child", "nothing"))
    print(f"{kind}: {counts} killed, {len(expected)} scores, {seconds:.1f} s alone, "
          f"{len(faults)} faults", *faults, sep="\n  ", flush=True)  # fmt: skip
    return faults


def main() -> int:
    options = read_options(__doc__, kills=100, seed=0, only=",".join(COMMANDS))
    random.seed(options.seed)
    kinds = options.only.split(",")
    inputs = Path(tempfile.mkdtemp(prefix="kill-"))
    lay_models(inputs / "models", MODELS)
    lay_data(inputs / "data")
    faults = [
        fault
        for at, kind in enumerate(kinds)
        for fault in kill_kind(kind, inputs, inputs / kind, (options.kills + at) // len(kinds))
    ]
    if not faults:
        shutil.rmtree(inputs)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
