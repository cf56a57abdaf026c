"""A fake Slurm on PATH, and a folder of results."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fake_slurm import FakeSlurm
from queued_jobs import wait

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def modules_for_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes find the harness of this tree, and the modules of tests."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'tests' / 'support'}")


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSlurm]:
    fake = FakeSlurm(tmp_path / "slurm")
    fake.install(slots=2, partitions=("cpu", "gpu"), gpus=4)
    monkeypatch.setenv("PATH", f"{fake.bin}:{os.environ['PATH']}")
    yield fake
    try:
        wait(lambda: not fake.processes())  # none is left behind; what was cancelled has a moment
    finally:
        fake.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run" / "results").mkdir(parents=True)
    return tmp_path / "run"
