"""A driver on this machine whose clock is wrong: `python shifted_driver.py FOLDER TASKS SECONDS SHIFT`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

_now = time.time
_shift = float(sys.argv[4])
time.time = lambda: _now() + _shift  # before anything reads it

from harness.context import WorkerLimits  # noqa: E402
from harness.execute import Driver  # noqa: E402
from harness.executors.executor import Executor, Listener  # noqa: E402
from harness.executors.local import LocalExecutor  # noqa: E402
from harness.store import Store  # noqa: E402
from queued_jobs import plan  # noqa: E402


def opened(listener: Listener) -> Executor:
    """One worker in this process."""
    return LocalExecutor(("cpu",), cache=root / "cache", listener=listener, limits=WorkerLimits())


if __name__ == "__main__":
    root = Path(sys.argv[1])
    planned = plan(root, int(sys.argv[2]), seconds=float(sys.argv[3]))
    made = Driver(planned, store=Store(root / "results"), cache=root / "cache", open_executor=opened)
    results = made.run()
    print(sum(result.how == "done" for result in results), sum(result.how == "shared" for result in results))
    sys.exit(0 if {result.how for result in results} <= {"done", "shared", "cached"} else 1)
