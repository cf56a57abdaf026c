"""Ray: settings, what is refused before anything starts, and runs on three nodes of this machine."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

import ray_jobs
from harness.core.errors import UsageError
from harness.driver.execute import Driver
from harness.executors.executor import Executor, RaySettings, parse_executor
from harness.executors.local import LocalExecutor
from harness.executors.node import Shape, collect_environment
from harness.executors.ray import RayExecutor
from harness.jobs.context import WorkerLimits
from harness.jobs.jobs import Resources
from harness.storage.store import Store
from queued_jobs import begun, done, ended, plan, records, wait, worker_settings
from ray_nodes import RayNodes

SUPPORT = Path(ray_jobs.__file__).parent


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rya", "Did you mean ray?"),
        ("local:8", "Did you mean local?"),
        ("ray:auto,worker=2", "Did you mean workers?"),
        ("ray:auto,workers=0", "a whole number, 1 or more"),
        ("ray:auto,workers=2,workers=3", "given twice"),
        ("ray:auto,workers", "cannot be ''"),
    ],
)
def test_a_wrong_executor_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_executor(text)
    assert words in str(caught.value)


def test_settings_of_ray() -> None:
    assert parse_executor("local") is None
    assert parse_executor("ray") == RaySettings()
    assert parse_executor("ray:workers=4") == RaySettings(workers=4)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:1", "No Ray cluster answers at 127.0.0.1:1"),
        ("somewhere", "is not the address of a Ray cluster"),
        ("ray://head:10001", "must run on a node of the cluster"),
    ],
)
def test_an_address_that_is_none_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, words: str
) -> None:
    monkeypatch.setattr("ray.init", None)  # which would wait for minutes
    with pytest.raises(UsageError) as caught:
        RayExecutor(RaySettings(address=address), worker=worker_settings(tmp_path))
    assert words in str(caught.value)


def test_without_ray_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"encoder-harness\[ray\]"):
        RayExecutor(RaySettings(), worker=worker_settings(tmp_path))


def test_the_room_of_a_shape() -> None:
    half = Shape(0.5, 2, 4 * 2**30)
    assert half.count_in({"GPU": 2, "CPU": 16, "memory": 64 * 2**30}) == 4
    assert half.count_in({"GPU": 2, "CPU": 5, "memory": 64 * 2**30}) == 2
    assert half.count_in({"CPU": 16, "memory": 64 * 2**30}) == 0


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayNodes]:
    """Three nodes with two cores each; their workers find the modules of tests."""
    os.environ["PYTHONPATH"] = os.pathsep.join((str(SUPPORT), str(Path.cwd())))
    with RayNodes(Path(f"/tmp/r{os.getpid()}"), cpus=2) as made:
        yield made
    del os.environ["PYTHONPATH"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "resources", "words"),
    [
        ({"environment": {**collect_environment(), "torch": "1.0"}}, {}, "torch 2"),
        ({"folders": (Path("/not/there"),)}, {}, "does not see /not/there"),
        ({}, {"memory": 2**50}, "no node of the cluster has that"),
        ({}, {"devices": 3}, "no node of the cluster has that"),
        ({"limits": WorkerLimits(remote="nothing://there")}, {}, "No worker starts on the cluster"),
    ],
)
def test_what_no_node_can_do_is_refused(
    tmp_path: Path, nodes: RayNodes, settings: dict[str, Any], resources: dict[str, int], words: str
) -> None:
    planned = plan(tmp_path, 2)
    jobs = tuple(replace(job, resources=Resources(**resources)) for job in planned.jobs)
    with pytest.raises(UsageError) as caught:
        ray_jobs.driver(tmp_path, replace(planned, jobs=jobs), nodes.address, **settings).run()
    assert words in str(caught.value)
    assert not begun(tmp_path)


def serial(folder: Path, tasks: int) -> dict[str, Any]:
    """The records of a run in this process."""
    planned = plan(folder, tasks, seconds=0)

    def opened(listener: Any) -> Executor:
        settings = worker_settings(folder)
        return LocalExecutor(("cpu",), cache=settings.cache, listener=listener, limits=settings.limits)

    Driver(planned, store=Store(folder / "results"), cache=folder / "cache", open_executor=opened).run()
    return records(folder)


@pytest.mark.slow
def test_jobs_of_every_shape_take_turns(tmp_path: Path, nodes: RayNodes) -> None:
    """Jobs that have two devices to themselves, two amounts of memory, and jobs of a moment, on six cores."""
    takes = [
        Resources(memory=2**30),
        Resources(devices=2, memory=2**30),
        Resources(memory=3 * 2**30),
        Resources(needs_device=False),
    ]
    planned = plan(tmp_path / "run", 20, seconds=0.05)
    jobs = [replace(job, resources=takes[number % 4]) for number, job in enumerate(planned.jobs)]
    (tmp_path / "run").mkdir()
    made = ray_jobs.driver(tmp_path / "run", replace(planned, jobs=tuple(jobs)), nodes.address)
    assert done(made.run())
    assert set(ended(tmp_path / "run").values()) == {1}
    assert records(tmp_path / "run") == serial(tmp_path / "whole", 20)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_nodes_and_drivers_are_killed_and_nothing_is_lost(tmp_path: Path, nodes: RayNodes) -> None:
    """Two nodes and two drivers; the records are those of a serial run, and no process is left.

    Ten nodes are killed by benchmarks/kill_cluster.py.
    """
    whole, broken, tasks = tmp_path / "whole", tmp_path / "broken", 40
    command = [sys.executable, ray_jobs.__file__, str(broken), str(tasks), "1.2", nodes.address]
    chance = random.Random(0)
    broken.mkdir()
    driver = subprocess.Popen(command)
    for what in ("node", "driver", "node", "driver"):
        time.sleep(chance.uniform(2, 4))
        assert driver.poll() is None
        if what == "node":
            nodes.kill(chance)
            nodes.add()
        else:
            driver.send_signal(signal.SIGKILL)
            driver.wait()
            driver = subprocess.Popen(command)
    assert driver.wait(200) == 0
    assert records(broken) == serial(whole, tasks)

    def left() -> list[str]:
        return [line for line in nodes.left() if "ray_jobs" in line or "spawn" in line]

    with contextlib.suppress(AssertionError):  # what is left says more
        wait(lambda: not left(), 90)
    assert left() == []


@pytest.mark.slow
def test_a_cluster_of_this_machine_that_dies_ends_the_run(tmp_path: Path) -> None:
    command = [sys.executable, ray_jobs.__file__, str(tmp_path), "20", "3"]
    os.environ["PYTHONPATH"] = os.pathsep.join((str(SUPPORT), str(Path.cwd())))
    with (tmp_path / "said").open("w") as said:
        driver = subprocess.Popen(command, stderr=said, stdout=said)
    wait(lambda: begun(tmp_path), 180)
    (raylet,) = [one for one in psutil.Process(driver.pid).children() if one.name() == "raylet"]
    raylet.kill()
    assert driver.wait(60) == 1
    assert "The Ray cluster is gone" in (tmp_path / "said").read_text()
