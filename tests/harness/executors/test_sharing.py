"""Drivers of one machine: two with clocks apart that share a results folder, and what none imports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.storage.store import Store
from queued_jobs import ended
from stored_records import iter_records

SUPPORT = Path(__file__).parents[2] / "support"


def driver(folder: Path, shift: int, *, tasks: int = 40, seconds: float = 0.05) -> subprocess.Popen[str]:
    """A driver whose clock is so many seconds late or early."""
    words = [str(SUPPORT / "shifted_driver.py"), str(folder), str(tasks), str(seconds)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(SUPPORT), str(Path.cwd())))}
    env |= {"TEST_CLOCK_SHIFT": str(shift), "TEST_DRIVERS": "2"}
    return subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True, env=env)


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
def test_two_drivers_with_clocks_ten_minutes_apart_share_the_work(tmp_path: Path, killed: bool) -> None:
    """Each job with a record is done once; where one driver is killed, the other one does the rest."""
    tmp_path.joinpath("results").mkdir()
    early, late = driver(tmp_path, 300), driver(tmp_path, -300)
    if killed:
        began = time.monotonic()
        while sum(ended(tmp_path).values()) < 20 and time.monotonic() - began < 60:
            time.sleep(0.05)
        early.send_signal(signal.SIGKILL)
        early.wait()
    told, _ = late.communicate(timeout=120)
    others, _ = early.communicate(timeout=120)
    assert late.returncode == 0
    keys = [record.key for record in iter_records(Store(tmp_path / "results"))]
    assert len(keys) == len(set(keys)) == 40
    assert all(ended(tmp_path)[key] == 1 or killed for key in keys)
    if not killed:
        counts = [int(text.split()[0]) for text in (told, others)]
        assert sum(counts) == 40
        assert min(counts) > 0


def test_a_run_on_this_machine_imports_no_scheduler(tmp_path: Path) -> None:
    code = (
        "import runpy, sys, harness.commands.run, harness.driver.evaluation\n"
        f"sys.argv = ['driver', {str(tmp_path)!r}, '2', '0']\n"
        f"runpy.run_path({str(SUPPORT / 'shifted_driver.py')!r}, run_name='driver')['main']()\n"
        "print(sorted({'ray', 'submitit', 'boto3'} & sys.modules.keys()))"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(SUPPORT), str(Path.cwd())))}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert found.stdout.splitlines() == ["2 0", "[]"]
