"""What executors cost: long jobs through Ray and in local processes, and many short jobs through either.

    export PYTHONPATH=tests/support:tests/benchmarks
    python tests/benchmarks/bench_executor.py overhead [--jobs 8] [--seconds 10] [--repeats 3] [--workers 2]
    python tests/benchmarks/bench_executor.py rate [--jobs 10000] [--seconds 0.01] [--executor ray]

`overhead` runs the same jobs, each a fixed piece of work of about so many seconds on a core, by workers
each way in turn, and compares the medians of the time from the first job's begin to the last one's end.
`rate` runs jobs that sleep, every second of which leaves a record, and prints jobs a second and the memory
of the driver.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.context import Event, JobContext, WorkerLimits
from harness.execute import Driver, Listeners
from harness.executors.executor import Executor, Listener
from harness.executors.local import LocalExecutor
from harness.executors.node import WorkerSettings
from harness.executors.ray import RayExecutor
from harness.executors.settings import RaySettings
from harness.jobs import Job
from harness.plan import Plan
from harness.store import Store
from queued_jobs import plan


@dataclass(frozen=True)
class Burn:
    """A job that counts."""

    steps: int

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        context.emit(Event(kind="stage", text=str(time.time())))
        count(self.steps)
        context.emit(Event(kind="stage", text=str(time.time())))
        return {}


def count(steps: int) -> int:
    """Work on one core."""
    total = 0
    for step in range(steps):
        total += step * step
    return total


def steps_of(seconds: float) -> int:
    """The steps that take about so many seconds."""
    began = time.perf_counter()
    count(2_000_000)
    return round(2_000_000 * seconds / (time.perf_counter() - began))


def driver(
    root: Path, planned: Plan, kind: str, listeners: Listeners | None = None, workers: int = 2
) -> Driver:
    """A driver with so many workers of a core each."""
    store, limits = Store(root / "results"), WorkerLimits(threads=1)
    store.prepare()

    def opened(listener: Listener) -> Executor:
        if kind == "local":
            return LocalExecutor(
                (*["cpu"] * workers,), cache=root / "cache", listener=listener, limits=limits, libraries=()
            )
        worker = WorkerSettings(cache=root / "cache", folders=(store.root,), limits=limits, libraries=())
        return RayExecutor(RaySettings(workers=workers), worker=worker, results=store.root, kind="cpu").begin(
            listener, planned.jobs
        )

    return Driver(planned, store=store, cache=root / "cache", open_executor=opened, listeners=listeners)


def makespan(jobs: int, steps: int, kind: str, workers: int) -> float:
    """The seconds from the first job's begin to the last one's end."""
    times: list[float] = []
    listeners = Listeners(event=lambda _job, event: times.append(float(event.text)))
    many = tuple(
        Job(key=f"{number}", kind="encode", label=str(number), work=Burn(steps)) for number in range(jobs)
    )
    with tempfile.TemporaryDirectory() as root:
        driver(Path(root), Plan(cells=(), jobs=many, keys={}), kind, listeners, workers).train()
    return max(times) - min(times)


def overhead(given: argparse.Namespace) -> None:
    """Print the times of both ways, and by how much Ray takes longer."""
    steps = steps_of(given.seconds)
    found: dict[str, list[float]] = {"local": [], "ray": []}
    for _ in range(given.repeats):
        for kind, times in found.items():
            times.append(makespan(given.jobs, steps, kind, given.workers))
            print(f"{kind}: {given.jobs} jobs in {times[-1]:.1f} s", flush=True)
    local, ray = (statistics.median(found[kind]) for kind in ("local", "ray"))
    print(f"median local {local:.1f} s, ray {ray:.1f} s: {100 * (ray / local - 1):+.1f} %")


def rate(given: argparse.Namespace) -> None:
    """Print jobs a second, without the start of the cluster, and the driver's memory."""
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
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("overhead", "rate"))
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2, help="of overhead")
    parser.add_argument("--executor", choices=("local", "ray"), default="ray")
    given = parser.parse_args()
    if given.what == "overhead":
        given.jobs, given.seconds = given.jobs or 8, given.seconds or 10.0
        overhead(given)
    else:
        given.jobs, given.seconds = given.jobs or 10_000, given.seconds or 0.01
        rate(given)
    return 0


if __name__ == "__main__":
    from bench_executor import main as run  # so that workers find its classes by the module's name

    sys.exit(run())
