"""The plan of queued_jobs through Slurm: a driver to kill, and an executor for single jobs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.core.errors import HarnessError
from harness.driver.execute import Driver
from harness.executors.executor import Executor, Finished, Listener, SlurmSettings
from harness.executors.slurm import SlurmExecutor, SlurmTimes
from harness.jobs.context import Event
from harness.plan.plan import Plan
from harness.storage.store import Store
from queued_jobs import done, plan, worker_settings

QUICK = SlurmTimes(look=0.05, states=0.5, wave=0.2, refusal=5.0)


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


def main(folder: str, tasks: str, seconds: str) -> int:
    """Run the plan through Slurm, as a process that can be killed; gives its exit code."""
    root = Path(folder)
    try:
        return 0 if done(driver(root, plan(root, int(tasks), seconds=float(seconds))).run()) else 1
    except HarnessError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def executor(
    folder: Path, listener: Callable[[str, Event], None] | None = None, **options: Any
) -> SlurmExecutor:
    fields = {name: options.pop(name) for name in ("kind", "times", "worker") if name in options}
    given = {"partition": "cpu", "workers": 2, "cpus": 1, **options}
    usual: dict[str, Any] = {"worker": worker_settings(folder), "kind": "cpu", "times": QUICK}
    return SlurmExecutor(
        SlurmSettings(**given),
        folder=folder / "results",
        listener=listener or (lambda _key, _event: None),
        **{**usual, **fields},
    )


def ends(slurm: SlurmExecutor, count: int = 1, seconds: float = 30.0) -> list[Finished]:
    found: list[Finished] = []
    until = time.monotonic() + seconds
    while len(found) < count:
        assert time.monotonic() < until, "no job ends"
        found += slurm.poll(0.2)
    return found
