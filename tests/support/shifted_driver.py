"""A driver on this machine, FOLDER TASKS SECONDS, whose clock is wrong by TEST_CLOCK_SHIFT seconds.

It begins when TEST_DRIVERS drivers of the folder are there.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

_now = time.time
_shift = float(os.environ.get("TEST_CLOCK_SHIFT", "0"))
if _shift:
    time.time = lambda: _now() + _shift  # before anything reads it

from harness.driver.execute import Driver  # noqa: E402
from harness.storage.store import Store  # noqa: E402
from queued_jobs import plan  # noqa: E402


def main() -> int:
    """Run the plan with one worker here, and print how many scores were made here and elsewhere."""
    root = Path(sys.argv[1])
    planned = plan(root, int(sys.argv[2]), seconds=float(sys.argv[3]))
    (root / f"ready-{os.getpid()}").touch()
    while len([*root.glob("ready-*")]) < int(os.environ.get("TEST_DRIVERS", "1")):
        time.sleep(0.01)
    made = Driver(planned, store=Store(root / "results"), cache=root / "cache")
    found = [result.how for result in made.run()]
    print(found.count("done"), found.count("shared"))
    return 0 if {*found} <= {"done", "shared", "cached"} else 1


if __name__ == "__main__":
    sys.exit(main())
