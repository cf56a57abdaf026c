"""Measured tasks from a request to their records: identity, conditions, the lock of a device."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tiny
from harness import run
from harness.cli import invoke
from harness.core import provenance
from harness.core.types import (
    Artifact,
    Column,
    Data,
    Dtype,
    MeasuredModel,
    Outcome,
    Suite,
    SuiteEntry,
    SuiteOptions,
    Task,
)
from harness.jobs.jobs import hold_device
from harness.plan import catalog
from leaderboard.data.records import RecordReader, iter_record_units
from leaderboard.data.suites import load_site_suites


@dataclass(frozen=True, kw_only=True)
class FakeMeasured:
    """Counts its parameters a second; a model called "long" is too short for it."""

    per_machine: bool = True
    scoring: str = "fake speed 1"

    def find_model_problem(self, task: Task, artifact: Artifact, dtype: Dtype) -> str:
        return (
            f"{artifact.name} has 4 positions, and {task.name} needs 8." if artifact.name == "short" else ""
        )

    def estimate_tokens(self, task: Task) -> int:
        return 1_000_000

    def measure_model(self, task: Task, model: MeasuredModel, *, seed: int, data: Path | None) -> Outcome:
        model.announce(2)
        model.count(2)
        (model.work / "rounds").write_text("kept until the record is there")
        cell = {"main_score": float(model.load().parameters), "mfu": 0.021, "rounds": [1.0, 2.0]}
        return Outcome(
            main_score=cell["main_score"],
            scores={"ours": {"fixed": cell}},
            notes=("the device was busy",),
            facts={"ceiling": 1e12},
        )


def open_suite(_argument: str, _options: SuiteOptions) -> Suite:
    task = Task(
        name="Speed",
        type="Efficiency",
        metric="tokens_per_second",
        splits=("ours",),
        subsets=("fixed",),
        data=Data(content="speed 1"),
        source=FakeMeasured(),
        output="measured",
        roles=(),
    )
    columns = (Column(name="Speed", type="Efficiency", tasks=(task,), shown_only="tokens a second"),)
    return Suite(name="speed", title="Speed", columns=columns)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    entry = SuiteEntry(name="speed", summary="speed", open=open_suite, measured=True)
    monkeypatch.setattr(catalog, "load_suite_entries", lambda: {"speed": entry})
    return tiny.folder(tiny.families()["bert"], tmp_path / "model")


Typed = Callable[..., str]


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Typed:
    """What a command prints, with results and cache of its own."""

    def call(*words: str) -> str:
        places = ("--results", str(tmp_path / "results"), "--cache", str(tmp_path / "cache"))
        invoke([*words, *places])
        done = capsys.readouterr()
        return done.out + done.err * ("--json" not in words)

    return call


def test_a_measured_task_is_of_its_machine(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: Typed
) -> None:
    places: dict[str, Any] = {"results": tmp_path / "results", "cache": tmp_path / "cache"}
    planned = json.loads(typed("run", "--model", str(folder), "--suite", "speed", "--dry-run", "--json"))
    assert planned["plan"][0]["tokens"] == 1_000_000
    assert planned["plan"][0]["seconds"] > 0
    assert planned["disk"] is None
    report = run(str(folder), "speed", **places)
    (record,) = report.records
    assert record.identity["machine"]["cpu"] == provenance.read_cpu_model()
    assert record.provenance["measured"] == {"ceiling": 1e12}
    assert not [*(tmp_path / "cache" / "measured").iterdir()]
    shown = typed("show", str(folder), "--suite", "speed")
    assert f"{record.main_score:,.0f}" in shown
    assert "no mean" in shown
    # A share beside it is as measured as well.
    assert " 0.021 " in typed("show", str(folder), "--suite", "speed", "--metric", "mfu")
    assert "Speed: the device was busy" in repr(report.notes)
    # Another machine has a record of its own, which stands under other settings.
    monkeypatch.setattr(provenance, "read_cpu_model", lambda: "Another Processor")
    (other,) = run(str(folder), "speed", **places).records
    assert other.key != record.key
    suites = json.loads(typed("show", str(folder), "--suite", "speed", "--json"))["suites"]
    machines = [one["settings"]["machine"]["cpu"] for one in suites]
    assert sorted(machines) == sorted(["Another Processor", record.identity["machine"]["cpu"]])
    assert "on Another Processor" in typed("show", str(folder))
    (again,) = run(str(folder), "speed", **places).records
    assert again == other
    units = iter_record_units([places["results"]], RecordReader.for_suites([]))
    first, second = sorted(entry.treatment for unit in units for entry in unit.read())
    assert "on Another Processor" in f"{first} {second}"
    assert first != second


def test_a_model_that_cannot_be_measured_is_refused_before_the_run(folder: Path, typed: Typed) -> None:
    shown = typed("run", "--model", f"short={folder}", "--suite", "speed", "--dry-run")
    assert "short has 4 positions, and Speed needs 8." in shown
    refused = typed("run", "--model", str(folder), "--suite", "speed", "--executor", "ray")
    assert "--executor leaves open which one it is" in refused


@pytest.mark.usefixtures("folder")
def test_the_site_lists_no_table_of_measured_numbers(tmp_path: Path) -> None:
    assert catalog.open_suite("speed").columns
    assert "speed" not in load_site_suites(tmp_path)


def test_a_second_measurement_waits_for_the_device() -> None:
    notes: list[str] = []
    ended: list[float] = []

    def measure() -> None:
        with hold_device("fake:0", notes.append):
            ended.append(time.monotonic())

    with hold_device("fake:0", notes.append):
        second = threading.Thread(target=measure)
        second.start()
        while not notes:
            time.sleep(0.01)
        released = time.monotonic()
    second.join()
    assert ended[0] >= released
    assert notes == ["another measurement uses fake:0: this one waits until it has ended"]
