"""The plan of queued_jobs through Ray; `python ray_jobs.py FOLDER TASKS SECONDS ADDRESS` is a driver."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from harness.core.errors import HarnessError
from harness.driver.execute import Driver
from harness.executors.executor import Executor, Listener, RaySettings
from harness.executors.ray import RayExecutor
from harness.plan.plan import Plan
from harness.storage.store import Store
from queued_jobs import done, plan, worker_settings


def driver(folder: Path, planned: Plan, address: str = "", **settings: Any) -> Driver:
    """A driver of the plan through Ray, with other settings of its workers."""

    def opened(listener: Listener) -> Executor:
        store.prepare(planned.artifacts)
        executor = RayExecutor(
            RaySettings(address=address),
            worker=worker_settings(folder, **settings),
            kind="cpu",
        )
        return executor.prepare_jobs(listener, planned.jobs)

    store = Store(folder / "results")
    return Driver(planned, store=store, cache=folder / "cache", open_executor=opened)


if __name__ == "__main__":
    root, tasks, seconds, *address = sys.argv[1:]
    try:
        made = driver(Path(root), plan(Path(root), int(tasks), seconds=float(seconds)), *address)
        sys.exit(0 if done(made.run()) else 1)
    except HarnessError as error:
        sys.exit(str(error))
