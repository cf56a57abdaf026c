"""A plan of many small jobs without models, which note each time that they run, and a driver to kill."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fakes import artifact, encoding, task
from harness.core.errors import HarnessError
from harness.core.types import Artifact, Column, Outcome, Suite
from harness.data.locate import DataSettings
from harness.driver.execute import Driver, Result
from harness.executors.executor import Executor, Finished, Listener
from harness.executors.node import WorkerSettings
from harness.executors.slurm_driver import SlurmExecutor, SlurmSettings, SlurmTimes
from harness.jobs.context import Event, JobContext, WorkerLimits
from harness.jobs.jobs import ScoreJob
from harness.plan.plan import ConfiguredModel, Plan
from harness.storage.store import Store
from harness.training.training import TrainingSpec, run_training
from stored_records import iter_records

QUICK = SlurmTimes(look=0.05, states=0.5, wave=0.2, refusal=5.0)


@dataclass(frozen=True, kw_only=True)
class Counted:
    """The work of a job of a real plan, without a model: its result follows from the job and its inputs."""

    work: Any
    key: str
    log: Path
    seconds: float

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        _note(self.log, f"begin {self.key}")
        context.emit(Event(kind="encoded", texts=1, tokens=2))
        time.sleep(self.seconds)
        seen = sorted((key, *made) for key, made in context.inputs.items())
        score = int(hashlib.sha256(f"{self.key} {seen}".encode()).hexdigest()[:4], 16) / 0xFFFF
        _note(self.log, f"end {self.key}")
        if not isinstance(self.work, ScoreJob):
            return {"facts": str(score).encode()}
        lines = {"split": ["test"], "subset": ["default"], "example_id": ["a"], "replicate": [0]}
        examples = {**lines, "prediction": ["p"], "gold": ["g"], "metric": [score]}
        scores = {"test": {"default": {"main_score": score}}}
        outcome = Outcome(main_score=score, scores=scores, examples=examples)
        return self.work.build_output(outcome, self.work.artifact, {}, {})


def _note(log: Path, text: str) -> None:
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, f"{text}\n".encode())
    os.close(handle)


def begun(folder: Path) -> Counter[str]:
    """How often each job was begun."""
    return Counter(line.split()[1] for line in _lines(folder) if line.startswith("begin"))


def ended(folder: Path) -> Counter[str]:
    """How often each job was run to its end."""
    return Counter(line.split()[1] for line in _lines(folder) if line.startswith("end"))


def _lines(folder: Path) -> list[str]:
    path = folder / "log"
    return path.read_text().splitlines() if path.exists() else []


def plan(folder: Path, tasks: int, *, seconds: float = 0.02) -> Plan:
    """A plan of a model and some tasks: to resolve it, to encode and to score each."""
    every = [replace(task(f"T{one}", texts=(str(one),)), data=_data(one)) for one in range(tasks)]
    suite = Suite(
        name="s", title="s", columns=tuple(Column(name=t.name, type=t.type, tasks=(t,)) for t in every)
    )
    subject = ConfiguredModel(artifact=artifact(folder / "model"), encoding=encoding())
    settings = DataSettings(cache=folder / "cache")
    made = Plan.make([subject], [suite], store=Store(folder / "results"), settings=settings)
    jobs = [
        replace(job, work=Counted(work=job.work, key=job.key, log=folder / "log", seconds=seconds))
        for job in made.jobs
    ]
    return replace(made, jobs=tuple(jobs))


def _data(one: int) -> Any:
    return replace(task().data, content=f"{one:08}")


def worker_settings(folder: Path, **changes: Any) -> WorkerSettings:
    """Settings of workers without torch, which see the folder."""
    given: dict[str, Any] = {"cache": folder / "cache", "folders": (folder / "results",), "libraries": ()}
    return WorkerSettings(**{**given, "limits": WorkerLimits(), **changes})


def driver(folder: Path, planned: Plan, **options: Any) -> Driver:
    """A driver of the plan through Slurm."""
    settings = SlurmSettings(**{"partition": "cpu", "workers": 3, "cpus": 1, **options})

    def opened(listener: Listener) -> Executor:
        return SlurmExecutor(
            settings,
            worker=worker_settings(folder),
            folder=folder / "results",
            listener=listener,
            kind="cpu",
            times=QUICK,
        )

    return Driver(planned, store=Store(folder / "results"), cache=folder / "cache", open_executor=opened)


def records(folder: Path) -> dict[str, Any]:
    """What the store has, by key, without what changes with each run."""
    found = {}
    for record in iter_records(Store(folder / "results")):
        found[record.key] = record.model_copy(update={"provenance": {}}).to_json()
    return found


def done(results: tuple[Result, ...]) -> bool:
    return {result.how for result in results} <= {"done", "cached"}


def main(folder: str, tasks: str, seconds: str) -> int:
    """Run the plan through Slurm, as a process that can be killed; gives its exit code."""
    root = Path(folder)
    try:
        return 0 if done(driver(root, plan(root, int(tasks), seconds=float(seconds))).run()) else 1
    except HarnessError as error:
        print(error, file=sys.stderr)
        return error.exit_code


# Single jobs


@dataclass(frozen=True)
class Act:
    """Work for another process, which does as it is told."""

    do: str = ""
    folder: Path = Path()

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        context.emit(Event(kind="note", text="here"))
        with (self.folder / "begun").open("a") as file:
            file.write(f"{self.do}\n")
        if self.do == "wait":
            while not (self.folder / "go").exists():
                time.sleep(0.05)
        if self.do == "fill":
            os.kill(os.getpid(), signal.SIGKILL)
        return {"said": self.do.encode(), "devices": json.dumps(context.devices).encode()}


@dataclass(frozen=True)
class ActOnModel(Act):
    """The same with a model."""

    artifact: Artifact | None = None


@dataclass(frozen=True)
class Large:
    """Work with a large output."""

    bytes: int

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        return {"n": os.urandom(self.bytes)}


@dataclass(frozen=True, kw_only=True)
class Training:
    """Work that trains a tiny model, in a process group of its own."""

    spec: TrainingSpec

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        return {"code": str(run_training(self.spec, lambda _message: None).code).encode()}


def executor(
    folder: Path, listener: Callable[[str, Event], None] | None = None, **options: Any
) -> SlurmExecutor:
    fields = {name: options.pop(name) for name in ("kind", "cluster", "times", "worker") if name in options}
    given = {"partition": "cpu", "workers": 2, "cpus": 1, **options}
    usual: dict[str, Any] = {"worker": worker_settings(folder), "kind": "cpu", "times": QUICK}
    return SlurmExecutor(
        SlurmSettings(**given),
        folder=folder / "results",
        listener=listener or (lambda _key, _event: None),
        **{**usual, **fields},
    )


def ends(slurm: SlurmExecutor, count: int = 1, seconds: float = 120.0) -> list[Finished]:
    found: list[Finished] = []
    until = time.monotonic() + seconds
    while len(found) < count:
        assert time.monotonic() < until, "no job ends"
        found += slurm.poll_jobs(0.2)
    return found


def wait(over: Callable[[], object], seconds: float = 120.0) -> None:
    ends = time.monotonic() + seconds
    while not over():
        assert time.monotonic() < ends, "it does not happen"
        time.sleep(0.05)
