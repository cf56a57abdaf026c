"""What executors cost: long jobs through Ray and in local processes, and many short jobs through either.

    export PYTHONPATH=tests/support:benchmarks
    python benchmarks/bench_executor.py overhead [--work layers] [--jobs 4] [--seconds 10] [--rounds 5]
        [--workers 2]
    python benchmarks/bench_executor.py rate [--jobs 10000] [--seconds 0.01] [--executor ray|local|slurm]

`overhead` runs the same jobs, each a fixed piece of work of about so many seconds on a core, in turn: in
local processes, in local processes beside a Ray cluster that has nothing to do, and by Ray. It compares the
time from the first job's begin to the last one's end with the first of the same round, and prints the median
ratio: what Ray costs by being there, and what it costs to run by it. `--work layers` is the arithmetic of
an encoder's layer by torch, `--work loop` a loop of Python. `rate` runs jobs that sleep, every second of
which leaves a record, and prints jobs a second and the memory of the driver; with `--executor slurm` through
the scheduler of the tests, and apart from that how long submitit itself takes to begin a function in a new
process.
"""

from __future__ import annotations

import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measuring import read_options  # which finds the modules of tests

from fake_slurm import FakeSlurm
from harness.driver.execute import Driver, Listeners
from harness.executors.executor import Executor, Listener, RaySettings, SlurmSettings
from harness.executors.local import LocalExecutor
from harness.executors.node import WorkerSettings
from harness.executors.ray import RayExecutor
from harness.executors.slurm_driver import SlurmExecutor
from harness.jobs.context import Event, JobContext, WorkerLimits
from harness.jobs.jobs import Job
from harness.plan.plan import Plan
from harness.storage.store import Store
from queued_jobs import plan

WAYS = ("local", "local beside an idle cluster", "ray")


@dataclass(frozen=True)
class Work:
    """A job that does so many steps on one core."""

    name: str
    steps: int

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        WORKS[self.name](1)  # its imports
        context.emit(Event(kind="stage", text=str(time.time())))
        WORKS[self.name](self.steps)
        context.emit(Event(kind="stage", text=str(time.time())))
        return {}


def loop(steps: int) -> None:
    """A loop of Python, a step of which takes about as long as one of `layers`."""
    total = 0
    for step in range(1_000_000 * steps):
        total += step * step


def layers(steps: int) -> None:
    """The feed-forward part of BERT-base's layer for 512 tokens."""
    import torch

    torch.set_num_threads(1)
    tokens, up, down = torch.ones(512, 768), torch.ones(768, 3072), torch.ones(3072, 768)
    for _ in range(steps):
        torch.relu(tokens @ up) @ down


WORKS = {"loop": loop, "layers": layers}


def steps_of(work: str, seconds: float) -> int:
    """The steps that take about so many seconds."""
    WORKS[work](1)
    began = time.perf_counter()
    WORKS[work](10)
    return round(10 * seconds / (time.perf_counter() - began))


def driver(
    root: Path, planned: Plan, kind: str, listeners: Listeners | None = None, workers: int = 2
) -> Driver:
    """A driver with so many workers of a core each."""
    store, limits = Store(root / "results"), WorkerLimits(threads=1)
    store.prepare(planned.artifacts)

    def opened(listener: Listener) -> Executor:
        if kind == "local":
            return LocalExecutor(
                (*["cpu"] * workers,), cache=root / "cache", listener=listener, limits=limits, libraries=()
            )
        worker = WorkerSettings(cache=root / "cache", folders=(store.root,), limits=limits, libraries=())
        if kind == "slurm":
            fake = FakeSlurm(root / "slurm")
            fake.install(slots=workers)
            os.environ["PATH"] = f"{fake.bin}:{os.environ['PATH']}"
            settings = SlurmSettings(workers=workers, cpus=1)
            return SlurmExecutor(settings, worker=worker, folder=store.root, listener=listener, kind="cpu")
        executor = RayExecutor(RaySettings(workers=workers), worker=worker, kind="cpu")
        return executor.prepare_jobs(listener, planned.jobs)

    return Driver(planned, store=store, cache=root / "cache", open_executor=opened, listeners=listeners)


def makespan(given: Any, steps: int, way: str) -> float:
    """The seconds from the first job's begin to the last one's end."""
    times: list[float] = []
    listeners = Listeners(event=lambda _job, event: times.extend(stage_times(event)))
    many = tuple(
        Job(key=f"{number}", kind="encode", label=str(number), work=Work(given.work, steps))
        for number in range(given.jobs)
    )
    with tempfile.TemporaryDirectory() as root, idle_cluster() if way == WAYS[1] else nullcontext():
        kind = "ray" if way == "ray" else "local"
        driver(Path(root), Plan(cells=(), jobs=many, keys={}), kind, listeners, given.workers).run_trainings()
    return max(times) - min(times)


def stage_times(event: Event) -> list[float]:
    """The time that an event of a job's work says."""
    return [float(event.text)] if event.kind == "stage" else []


@contextmanager
def idle_cluster() -> Iterator[None]:
    """A cluster as the executor starts one, with a process of Ray for each core, and nothing to do."""
    executor = RayExecutor(RaySettings(), worker=WorkerSettings(cache=Path.cwd()))
    time.sleep(5.0)
    yield
    executor.close_executor()


def overhead(given: Any) -> None:
    """Print the times of all ways, and by how much the later ones take longer than the first."""
    steps = steps_of(given.work, given.seconds)
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(given.rounds):
        for way, times in found.items():
            times.append(makespan(given, steps, way))
            print(f"{way}: {given.jobs} jobs in {times[-1]:.1f} s", flush=True)
    print(f"{given.work}, {given.workers} workers, {given.jobs} jobs, medians of {given.rounds} rounds:")
    for way, times in found.items():
        ratio = statistics.median(time / first for time, first in zip(times, found["local"], strict=True))
        print(f"{way}: {statistics.median(times):.1f} s, {100 * (ratio - 1):+.1f} %")


def time_start(rounds: int) -> float:
    """The seconds from a call of submitit to the beginning of a function in a process of its own."""
    import submitit

    times = []
    with tempfile.TemporaryDirectory() as folder:
        executor = submitit.AutoExecutor(folder=folder, cluster="local")
        for _ in range(rounds):
            began = time.time()
            times.append(executor.submit(time.time).result() - began)
    return statistics.median(times)


def rate(given: Any) -> None:
    """Print jobs a second, without the start of the cluster, and the driver's memory."""
    if given.executor == "slurm":
        print(f"submitit by itself: {time_start(given.rounds):.2f} s to begin a function in a process")
    with tempfile.TemporaryDirectory() as root:
        planned = plan(Path(root), given.jobs // 2, seconds=given.seconds)
        times: list[float] = []
        listeners = Listeners(
            event=lambda _job, _event: times.append(time.monotonic()),
            result=lambda _result: times.append(time.monotonic()),
        )
        results = driver(Path(root), planned, given.executor, listeners).run()
    seconds = times[-1] - times[0]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    done = sum(result.how == "done" for result in results)
    print(
        f"{given.executor}: {len(planned.jobs)} jobs of {given.seconds} s, {done} of {len(results)} records,"
    )
    print(f"{len(planned.jobs) / seconds:.0f} jobs a second, driver {memory:.0f} MB")


def main() -> int:
    """Run a benchmark."""
    given = read_options(
        __doc__,
        {"what": {"choices": ("overhead", "rate")}},
        jobs={"type": int},
        seconds={"type": float},
        rounds=5,
        workers=2,
        work={"choices": WORKS, "default": "layers"},
        executor={"choices": ("local", "ray", "slurm"), "default": "ray"},
    )
    if given.what == "overhead":
        given.jobs, given.seconds = given.jobs or 4, given.seconds or 10.0
        overhead(given)
    else:
        given.jobs, given.seconds = given.jobs or 10_000, given.seconds or 0.01
        rate(given)
    return 0


if __name__ == "__main__":
    from bench_executor import main as run  # so that workers find its classes by the module's name

    sys.exit(run())
