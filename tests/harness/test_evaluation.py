from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from harness import evaluation as module
from harness.evaluation import _plan_workers
from harness.jobs import Job
from harness.workers import Failure, Finished


class FakeRecipe:
    """A recipe whose runs take what it is told."""

    def probe(self, jobs: Sequence[Job]) -> Job:
        return jobs[0]


class FakeWorker:
    """Answers at once with what `answer` says."""

    answer = Finished(key="memory", output={"memory": json.dumps({"peak_bytes": 10e9}).encode()})

    def __init__(self, **_options: object) -> None:
        self.closed = False

    def start(self, _job: Job, _inputs: object) -> None:
        pass

    def poll(self, _seconds: float) -> Finished:
        return self.answer

    def close(self) -> None:
        self.closed = True


def jobs(count: int) -> list[Job]:
    work: Any = SimpleNamespace()
    return [Job(key=str(n), kind="train", label="", work=work) for n in range(count)]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight cores and 64 GB; a GPU with 50 GB free."""
    monkeypatch.setattr(module, "cores", lambda: 8)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=64e9))
    monkeypatch.setattr(module, "_free", lambda _device: 50e9)
    monkeypatch.setattr(module, "Subprocess", FakeWorker)


def places(
    devices: tuple[str, ...], runs: int, *, weights: int = 90_000_000, **asked: int
) -> tuple[tuple[str, ...], int | None]:
    recipe: Any = FakeRecipe()
    found = _plan_workers(devices, jobs(runs), recipe, cache=Path("cache"), weights=weights, **asked)
    return found.devices, found.threads


@pytest.mark.usefixtures("machine")
def test_a_cpu_has_a_process_for_each_core() -> None:
    assert places(("cpu",), 20) == (("cpu",) * 8, 1)
    assert places(("cpu",), 3) == (("cpu",) * 3, 2)
    assert places(("cpu",), 1) == (("cpu",), None)
    assert places(("cpu",), 20, threads=4) == (("cpu",) * 2, 4)
    assert places(("cpu",), 20, asked=2) == (("cpu",) * 2, 4)


@pytest.mark.usefixtures("machine")
def test_memory_limits_them() -> None:
    """Two of a backbone of 4 GB: each takes six times that, and what a process takes."""
    assert places(("cpu",), 20, weights=4_000_000_000) == (("cpu",) * 2, 4)
    assert places(("cpu",), 20, weights=40_000_000_000) == (("cpu",), None)


@pytest.mark.usefixtures("machine")
def test_a_gpu_has_as_many_as_its_memory_holds() -> None:
    """0.9 of 50 GB, 10 GB for each."""
    assert places(("cuda:0",), 20) == (("cuda:0",) * 4, None)
    assert places(("cuda:0",), 2) == (("cuda:0",) * 2, None)
    assert places(("cuda:0", "cuda:1"), 20) == (("cuda:0",) * 4 + ("cuda:1",) * 4, None)


@pytest.mark.usefixtures("machine")
def test_a_gpu_on_which_the_probe_fails_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = Finished(key="memory", failure=Failure(kind="OutOfMemoryError", message="no"))
    monkeypatch.setattr(FakeWorker, "answer", failed)
    assert places(("cuda:0",), 20) == (("cuda:0",), None)


@pytest.mark.usefixtures("machine")
def test_without_runs_there_is_one_process_for_each_device() -> None:
    found = _plan_workers(("cuda:0", "cuda:1"), [], None, cache=Path("cache"), weights=1, threads=3)
    assert (found.devices, found.threads) == (("cuda:0", "cuda:1"), 3)
