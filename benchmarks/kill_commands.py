"""Kill commands, or one of their processes, at random moments; the records are as of commands left in peace.

    PYTHONPATH=tests/support:benchmarks python benchmarks/kill_commands.py [--kills 100] [--only run,check]

Every command runs on tiny models with random weights, and is typed again after each SIGKILL. Many of
the kills hit a process that the command has started, which leaves the command to go on; half of them come
within milliseconds of a write. In the `stopped` kinds a command that holds a lease of `--term` seconds is
stopped (SIGSTOP), for several terms, while another one takes over and ends; then it goes on. Prints a line
for each kind of command; 1 if a record or a trained weight differs, finished work is done again, a log lacks
a step, a process outlives its command, or the audit finds anything wrong or left.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
from click.testing import CliRunner
from fuzz_folders import lay_data, lay_models
from measuring import read_options

import glue_data
from harness.cli import invoke
from harness.commands.audit import command as audit
from harness.storage.remote_and_leases import LEASE, Leases
from harness.storage.store import Store
from harness.training.training import read_log
from stored_records import iter_records

PLACES = ("--results", "{home}/results", "--cache", "{home}/cache", "--offline")
PAIRS, BEIR = ("--suite", "local:{data}/pairs"), ("--suite", "local:{data}/beir")
BERT, TEACHER = ("--model", "{models}/bert"), "{models}/mean"
WORKERS = ("--devices", "{devices}")
"""With one device the jobs run in the driver, which leaves no child to kill."""
ROWS = ("--train-data", "{data}/training/triplets.jsonl")
# Short steps, a checkpoint after nearly each.
STEPS = (*ROWS, "--set", "batch_size=4", "--set", "max_steps=12", "--checkpoint-minutes", "0.001")
TRAINING = ("run", *BERT, "--recipe", "unified-contrastive", *STEPS, "--set", "precision=float32", *PLACES)

COMMANDS: dict[str, tuple[str, ...]] = {
    "run": ("run", *BERT, "--model", TEACHER, *PAIRS, *BEIR, *PLACES, *WORKERS),
    "grid": (
        *("run", *BERT, "--recipe", "glue-neobert:ablation", "--suite", "glue", "--tasks", "MNLI,RTE"),
        *("--data", "{data}/root", "--set", "fresh_seeds=1", *PLACES),
    ),
    "sweep": (*TRAINING, *BEIR, "--sweep", "learning_rate=1e-4,1e-3", "--select", "local:{data}/pairs"),
    "plaid": ("run", "--model", "{models}/colbert", *BEIR, *PLACES, *WORKERS, "--index", "plaid"),
    "training": (*TRAINING, *PAIRS),
    "cde": ("run", *BERT, "--recipe", "cde-batching", "--set", f"guide={TEACHER}", *STEPS, *PLACES, *PAIRS),
    "check": (
        *("check", "--candidate", TEACHER, "--baseline", BERT[1], "--allow", "normalize,max_length"),
        *(*PAIRS, *PLACES, *WORKERS),
    ),
    "watch": ("watch", "{home}/checkpoints", "--once", "--settle", "0", *PAIRS, *PLACES, *WORKERS),
    "score": ("data", "score", "--teacher", TEACHER, *ROWS, "--output", "{home}/scored", *PLACES[2:]),
}
COMMANDS |= {f"stopped-{kind}": COMMANDS[kind] for kind in ("run", "training")}
"""By kind the command that is killed, or stopped."""

SHORTEN = (
    "import sys; from harness.storage.remote_and_leases import Leases; from harness.cli import main; "
    "Leases.__init__.__kwdefaults__['term'] = float(sys.argv.pop(1)); main()"
)
"""The command line with leases of another term, which all who share a folder must have alike."""


def lay_inputs(folder: Path) -> None:
    """Lay the models and the data of all kinds."""
    lay_models(folder / "models", ("bert", "mean", "colbert"))
    lay_data(folder / "data")
    glue_data.data_root(folder / "data" / "root", train=16, dev=8)


class Trial:
    """A home with results and a cache of its own, in which a kind of command runs."""

    def __init__(
        self, kind: str, inputs: Path, home: Path, term: float, devices: str, *, alone: str = ""
    ) -> None:
        self.home, self._term, self._rewritten, self._codes = home, term, False, set[int]()
        words = {"models": inputs / "models", "data": inputs / "data", "home": home}
        self._command, self._here = (
            [word.format(**words, devices=names) for word in COMMANDS[kind]] for names in (devices, alone)
        )
        self._is_here = bool(alone)
        for step, model in ((100, "bert"), (200, "mean")):
            shutil.copytree(inputs / "models" / model, home / "checkpoints" / f"step-{step}")

    def start(self) -> subprocess.Popen[bytes]:
        """Start the command in a session of its own."""
        # Its name in the environment tells which processes belong to it.
        environment = {**os.environ, "HARNESS_KILLED": str(self.home)}
        program = ["-c", SHORTEN, str(self._term)] if self._term else ["-m", "harness"]
        with (self.home / "log.txt").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *program, *self._command],
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def run(self) -> float:
        """Run the command to its end; returns the seconds."""
        began = time.monotonic()
        self._codes.add(self._run_here() if self._is_here else self.start().wait())
        return time.monotonic() - began

    def _run_here(self) -> int:
        """Run the command in this process, which has the libraries already."""
        # The defaults of `Leases` are changed here as in the processes that are started.
        with mock.patch.dict(Leases.__init__.__kwdefaults__, {"term": self._term} if self._term else {}):
            return invoke(self._here)

    def _wait(self, process: subprocess.Popen[bytes], moment: float | str) -> None:
        """Wait so many seconds, or until the command has written a file of this pattern."""
        if isinstance(moment, str):
            while process.poll() is None and not any(self.home.glob(moment)):
                time.sleep(0.01)
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(moment)

    def kill(self, moment: float | str, *, child: bool) -> str:
        """Start the command and kill it, or a process that it has started; returns what was hit."""
        process = self.start()
        self._wait(process, moment)
        before, at_write = self.list_files(), random.random() < 0.5
        while at_write and process.poll() is None and self.list_files() == before:
            time.sleep(0.002)
        hit = "nothing"
        with contextlib.suppress(psutil.NoSuchProcess):
            driver = psutil.Process(process.pid)
            victim = random.choice((child and _list_children(driver)) or [driver])
            # One that has ended waits here for its parent, and cannot be killed any more.
            if victim.status() != psutil.STATUS_ZOMBIE:
                victim.kill()
                hit = "driver" if victim == driver else "child"
        code = process.wait()
        return f"{hit}, then {code}" if hit == "child" else hit

    def stop(self, moment: float | str, *, child: bool) -> str:
        """Stop a command that holds a lease, or all its processes, while another takes over; what was hit."""
        process = self.start()
        self._wait(process, moment)
        while process.poll() is None:
            driver = psutil.Process(process.pid)
            stopped = [driver, *(_list_children(driver) if child else [])]
            _send_signal(stopped, signal.SIGSTOP)
            if any((self.home / "results" / "leases").glob(f"*{LEASE}")):
                break
            _send_signal(stopped, signal.SIGCONT)
            time.sleep(0.01)
        else:
            return "nothing"
        time.sleep(max(0.0, 3.4 * self._term - self.run()))
        before = self.list_files("results/records")
        _send_signal(stopped, signal.SIGCONT)
        self._codes.add(process.wait())
        self._rewritten = self.list_files("results/records") != before
        return "all" if child else "driver"

    def list_files(self, under: str = ".") -> dict[str, int]:
        """The files that the command has written, each with the time of that."""
        written = {}
        for path in (self.home / under).rglob("*"):
            with contextlib.suppress(FileNotFoundError):
                written[str(path)] = 0 if path.is_dir() else path.stat().st_mtime_ns
        written.pop(str(self.home / "log.txt"), None)
        return written

    def list_scores(self) -> dict[str, Any]:
        """Every record, the steps in the log of each training, and the content of what is no record."""
        logs = sorted((self.home / "results" / "models").glob("*/training/log.jsonl"))
        scored = sorted((self.home / "scored").rglob("*.parquet"))
        return {
            **read_records(self.home),
            **{path.parts[-3]: [line["step"] for line in read_log(path)] for path in logs},
            **{str(path.relative_to(self.home)): path.read_bytes().hex() for path in scored},
        }

    def find_faults(self) -> Iterator[str]:
        """What is left or wrong after the last run."""
        processes = [
            process
            for process in psutil.process_iter(["environ"])
            if (process.info["environ"] or {}).get("HARNESS_KILLED") == str(self.home)
        ]
        # On a busy machine the workers of a killed driver may need a minute to end.
        for process in psutil.wait_procs(processes, timeout=120)[1]:
            yield f"the process {process.pid} is left: {' '.join(process.cmdline())[:200]}"
        places = ["--results", self.home / "results", "--cache", self.home / "cache", "--json"]
        (self.home / "results").mkdir(exist_ok=True)
        audited = CliRunner().invoke(audit, [*map(str, places)], standalone_mode=False)
        found = json.loads(audited.stdout)
        yield from (f"{fault['file']}: {fault['reason']}" for fault in found["faults"])

    def find_differences(self, whole: Trial) -> Iterator[str]:
        """What another trial, whose command was left in peace, has otherwise."""
        if self._codes != whole._codes:
            yield f"it ended with {self._codes}"
        if self._rewritten:
            yield "the stopped command wrote records again"
        if (distance := measure_distance(self.list_scores(), whole.list_scores())) > 1e-6:
            yield f"its scores are others by {distance}"
        # What has lost its lease while it was stopped ends the work that it had begun.
        if not self._term:
            again = count_finished(self.home) - count_finished(whole.home)
            yield from (f"done {count} times too often: {job}" for job, count in again.items())


def _list_children(driver: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        # Python's own process that looks after what others share has no work of ours.
        children = driver.children(recursive=True)
        return [
            child for child in children if not any("resource_tracker" in word for word in child.cmdline())
        ]
    return []


def _send_signal(processes: list[psutil.Process], number: int) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def read_records(home: Path) -> dict[str, Any]:
    """Every record without what changes with each run, by key."""
    return {
        record.key: {
            **record.model_dump(mode="json", exclude={"provenance", "run", "examples"}),
            "rows": record.examples.rows if record.examples else 0,
        }
        for purpose in ("final", "trial")
        for record in iter_records(Store(home / "results"), purpose=purpose)
    }


def measure_distance(ours: Any, theirs: Any) -> float:
    """By how much the numbers of two records differ at most; infinite where anything else does.

    Texts that are encoded again after a kill are in batches with others, which moves the last digit.
    """
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        if ours.get("micro_batch") != theirs.get("micro_batch"):
            # A killed process is taken for a lack of memory: its run is repeated in smaller passes, which
            # draw dropout otherwise, and says so.
            return 0.0
        return max((measure_distance(ours[name], theirs[name]) for name in ours), default=0.0)
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return max((measure_distance(*pair) for pair in zip(ours, theirs, strict=True)), default=0.0)
    if isinstance(ours, float) and isinstance(theirs, float):
        return abs(ours - theirs)
    return 0.0 if ours == theirs else float("inf")


def count_finished(home: Path) -> Counter[str]:
    """How often each job that leaves something behind has ended well, over all runs of a driver.

    What a job without a record gives (facts of a model, counts, a choice) is lost with its driver.
    """
    finished: Counter[str] = Counter()
    for log in (home / "results" / "runs").glob("*/jobs.jsonl"):
        jobs = json.loads((log.parent / "run.json").read_text())["jobs"]
        for line in log.read_text().splitlines():
            # A line that a kill cut off, and the digest behind each, are not looked at.
            with contextlib.suppress(ValueError):
                event, _ = json.JSONDecoder().raw_decode(line)
                job = jobs[event["job"]]
                if event["event"] == "done" and job["kind"] in ("train", "finetune", "score", "rank"):
                    finished[f"{job['kind']} {job['key'][:12]}"] += 1
    return finished


def kill_kind(
    kind: str, inputs: Path, home: Path, kills: int, term: float = 2.0, devices: str = "cpu,cpu",
    *, moment: str = "",
) -> list[str]:  # fmt: skip
    """Kill or stop a kind of command so many times; returns the faults.

    Args:
        kind: One of `COMMANDS`.
        inputs: The folder of `lay_inputs`.
        home: Where the commands write.
        kills: How often.
        term: Seconds of a lease of what is stopped.
        devices: Those of a command that is killed or stopped.
        moment: A pattern of files: a kill comes once there is one, and not after a random time, and commands
            that are left in peace run in this process on one device, without the seconds of a start.
    """
    stops, alone = kind.startswith("stopped"), "cpu" if moment else ""
    whole = Trial(kind, inputs, home / "whole", term * stops, devices, alone=alone)
    seconds, hits = whole.run(), list[str]()
    faults = [*whole.find_faults()] if whole.list_scores() else ["left in peace it gives no scores"]
    while (left := kills - len(hits) + hits.count("nothing")) > 0 and not faults:
        trial = Trial(kind, inputs, home / f"killed-{len(hits)}", term * stops, devices, alone=alone)
        # The first start comes while the second checkpoint is being written.
        weights = Path("step-200", "model.safetensors")
        os.truncate(trial.home / "checkpoints" / weights, 10_000)
        for _ in range(1 if stops else min(left, random.randint(3, 5))):
            when, child = moment or random.uniform(0.2, 0.95) * seconds, random.random() < 0.75
            hits.append(trial.stop(when, child=child) if stops else trial.kill(when, child=child))
            shutil.copyfile(inputs / "models" / "mean" / weights.name, trial.home / "checkpoints" / weights)
            if hits[-1].endswith(("nothing", " 0")):  # it has ended well
                break
        trial.run()
        faults = [f"{kind} in {trial.home}: {fault}"
                  for fault in (*trial.find_differences(whole), *trial.find_faults())]  # fmt: skip
        print(f"{kind} until now: {'; '.join(hits)}", flush=True)
        if not faults:
            shutil.rmtree(trial.home)
    counts = "; ".join(f"{count} {what}" for what, count in sorted(Counter(hits).items()))
    print(f"{kind}: hit {counts}; {len(whole.list_scores())} scores, {seconds:.1f} s alone, "
          f"{len(faults)} faults", *faults, sep="\n  ", flush=True)  # fmt: skip
    return faults


def main() -> int:
    options = read_options(__doc__, kills=100, seed=0, only=",".join(COMMANDS), term=2.0)
    random.seed(options.seed)
    kinds = options.only.split(",")
    inputs = Path(tempfile.mkdtemp(prefix="kill-"))
    lay_inputs(inputs)
    faults = [
        fault
        for at, kind in enumerate(kinds)
        for fault in kill_kind(kind, inputs, inputs / kind, (options.kills + at) // len(kinds), options.term)
    ]
    if not faults:
        shutil.rmtree(inputs)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
