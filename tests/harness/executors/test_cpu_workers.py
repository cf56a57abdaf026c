"""CPU workers beside a device that is not there: they collect and score while it encodes."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fake_devices
from fakes import FakeEncoder, artifact, encoding, gated, task
from harness.core.types import Column, Size, Suite, Task
from harness.data.locate import DataSettings
from harness.driver import evaluation
from harness.driver.execute import Driver, Listeners, Result
from harness.encoder import sanity
from harness.executors import local
from harness.executors.executor import Listener
from harness.executors.local import CpuWorkers, LocalExecutor, Subprocess
from harness.jobs.context import Event, JobContext, WorkerLimits
from harness.jobs.jobs import Job, JobKind, Resources
from harness.plan.plan import ConfiguredModel, Plan
from harness.storage.record import Record
from harness.storage.store import Store
from worker_jobs import ReadEnvironment, Say


@pytest.fixture
def loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the fake models that were loaded; each encoding takes a fifth of a second."""
    monkeypatch.setenv(fake_devices.LOADS, str(tmp_path / "loads"))
    monkeypatch.setenv(fake_devices.SECONDS, "0.2")
    monkeypatch.setattr(JobContext, "load_encoder", fake_devices.load)
    monkeypatch.setattr(sanity, "check_encoder", lambda *_, **__: gated())
    monkeypatch.setattr(sanity, "require_sane", lambda _: None)
    monkeypatch.setattr(local, "_serve", fake_devices.serve)
    return tmp_path / "loads"


def plan(folder: Path, *tasks: Task, keys: tuple[str, ...] = ("a" * 64,), **how: Any) -> Plan:
    columns = tuple(Column(name=one.name, type=one.type, tasks=(one,)) for one in tasks)
    models = [ConfiguredModel(artifact=artifact(folder, key=key), encoding=encoding(**how)) for key in keys]
    suites = [Suite(name="s", title="s", columns=columns)]
    return Plan.make(models, suites, store=Store(folder / "r"), settings=DataSettings(cache=folder / "cache"))


def opening(folder: Path, *devices: str, cpu_workers: int = 2) -> Callable[[Listener], LocalExecutor]:
    def open_executor(listener: Listener) -> LocalExecutor:
        return LocalExecutor(
            devices,
            cache=folder / "cache",
            listener=listener,
            limits=WorkerLimits(),
            libraries=(),
            cpu_workers=CpuWorkers(count=cpu_workers, libraries=()),
        )

    return open_executor


def run(folder: Path, planned: Plan, *devices: str, cpu_workers: int = 2, **options: Any) -> Driver:
    driver = Driver(
        planned,
        store=Store(folder / "r"),
        cache=folder / "cache",
        open_executor=opening(folder, *devices, cpu_workers=cpu_workers),
        **options,
    )
    driver.run()
    return driver


def records(driver: Driver) -> list[Record]:
    """The records of a run in the order of its plan."""
    results = [driver.results[cell.key] for cell in driver.plan.cells]
    assert [result.failure for result in results] == [None] * len(results)
    return [result.record for result in results if result.record is not None]


def facts(record: Record) -> dict[str, Any]:
    """A record without what tells of time and memory."""
    content = record.model_dump()
    for name in ("started", "written", "seconds", "tokens_per_second", "peak_memory_bytes", "threads"):
        del content["provenance"][name]
    return content


@pytest.mark.slow
def test_a_device_encodes_while_cpu_workers_score(
    tmp_path: Path, loads: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks take five seconds to encode and as long to score; their records are those of a plain run."""
    tasks, quick = (
        [task(f"Task{number}", texts=(f"text {number}",), seconds=seconds) for number in range(10)]
        for seconds in (0.5, 0.0)
    )
    monkeypatch.setenv(fake_devices.SECONDS, "0.5")
    monkeypatch.setenv(fake_devices.RECORDS, str(tmp_path / "busy" / "r" / "records"))
    under_way: list[str] = []
    beside: list[str] = []

    def note_event(job: Job, event: Event) -> None:
        if event.kind == "encoding":
            under_way.append(job.label)
        if event.kind == "encoded":
            under_way.remove(job.label)

    def note_result(_: Result) -> None:
        beside.extend(under_way)

    busy = run(
        tmp_path / "busy",
        plan(tmp_path / "busy", *tasks),
        "cuda:0",
        listeners=Listeners(event=note_event, result=note_result),
    )
    assert len(beside) >= 5, "scores that ended while another task was encoded"
    (use,) = busy.uses
    assert use.device == "cuda:0"
    assert 5.0 <= use.seconds <= busy.seconds
    assert len(loads.read_text().split()) == 1
    monkeypatch.setenv(fake_devices.SECONDS, "0.0")
    monkeypatch.delenv(fake_devices.RECORDS)
    plain = run(tmp_path / "plain", plan(tmp_path / "plain", *quick), "cuda:0", cpu_workers=0)
    assert [facts(one) for one in records(busy)] == [facts(one) for one in records(plain)]


def test_a_score_that_needs_further_vectors_gets_them_from_the_device(tmp_path: Path, loads: Path) -> None:
    planned = plan(tmp_path, task("Later", later=("four",)), task("Other", texts=("five",)))
    later, other = records(run(tmp_path, planned, "cuda:0"))
    rows = FakeEncoder(salt="a" * 64)
    mean = float(rows.encode(("one", "two", "three")).mean())
    assert later.main_score == pytest.approx(2 * mean + float(rows.encode(("four",)).mean()))
    assert later.provenance["texts_encoded"] == 4
    assert other.main_score == pytest.approx(2 * float(rows.encode(("five",)).mean()))
    assert len(loads.read_text().split()) == 1


def test_a_score_is_stored_while_the_device_encodes(
    tmp_path: Path, loads: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a run that is killed has lost no score that was finished."""
    monkeypatch.setenv(fake_devices.SECONDS, "1.0")
    order: list[str] = []
    listeners = Listeners(
        event=lambda _, event: order.append(event.kind), result=lambda _: order.append("result")
    )
    planned = plan(tmp_path, task("First"), task("Second", texts=("four",)))
    run(tmp_path, planned, "cuda:0", listeners=listeners)
    assert order.index("result") < len(order) - order[::-1].index("encoded")


def test_a_killed_cpu_worker_is_replaced_and_its_score_is_tried_again(tmp_path: Path, loads: Path) -> None:
    notes: list[str] = []
    planned = plan(tmp_path, task("Killed", alive=tmp_path / "alive"), task("Other"))
    listeners = Listeners(event=lambda _, event: notes.append(event.text))
    assert len(records(run(tmp_path, planned, "cuda:0", listeners=listeners))) == 2
    (note,) = (note for note in notes if "ended with code -9" in note)
    assert "batches" not in note


def test_a_model_is_loaded_once_though_another_could_be_checked(tmp_path: Path, loads: Path) -> None:
    """While the texts of a model's tasks are collected, the device waits for them."""
    keys = ("a" * 64, "b" * 64)
    tasks = [task(f"Task{number}", texts=(f"text {number}",)) for number in range(4)]
    assert len(records(run(tmp_path, plan(tmp_path, *tasks, keys=keys), "cuda:0"))) == 8
    assert loads.read_text().split() == [*keys]


def test_no_device_is_given_away_while_encodings_wait_behind_scores(tmp_path: Path) -> None:
    """And no more texts are collected than it encodes soon."""
    executor = opening(tmp_path, "cuda:0", cpu_workers=1)(lambda _key, _event: None)

    def build(kind: JobKind, key: str = "") -> Job:
        resources = Resources(begins_on_cpu=kind != "resolve")
        return Job(key=f"{kind}-{key}", kind=kind, label="x", work=ReadEnvironment(), resources=resources)

    assert executor.has_room(build("resolve"))
    for key in "ab":
        assert executor.has_room(build("score"))
        executor.submit(build("score", key), {})
    assert not executor.has_room(build("score"))
    for key in "abcd":
        assert executor.has_room(build("encode"))
        executor.submit(build("encode", key), {})
        assert not executor.has_room(build("resolve"))
    assert not executor.has_room(build("encode"))
    executor.close_executor()


def test_texts_with_vectors_need_no_device(tmp_path: Path, loads: Path) -> None:
    run(tmp_path, plan(tmp_path, task()), "cuda:0")
    events: list[tuple[str, tuple[str, ...]]] = []

    def note_event(job: Job, event: Event) -> None:
        if event.kind == "placed":
            events.append((job.kind, event.devices))

    again = run(tmp_path, plan(tmp_path, task("Again")), "cuda:0", listeners=Listeners(event=note_event))
    assert again.texts_encoded == 0
    assert events == [("resolve", ("cuda:0",)), ("score", ())]


def test_an_encoding_whose_texts_are_collected_has_not_begun_and_can_be_cancelled(
    tmp_path: Path, loads: Path
) -> None:
    """So does a driver whose budget is used up."""
    events: list[str] = []
    executor = opening(tmp_path, "cuda:0")(lambda _, event: events.append(event.kind))
    (encode,) = (job for job in plan(tmp_path, task()).jobs if job.kind == "encode")
    executor.submit(encode, {})
    executor.cancel_job(encode.key)
    assert (executor.poll_jobs(0.1), events, loads.exists()) == ([], [], False)
    executor.submit(encode, {})
    while not (ended := executor.poll_jobs(0.1)):
        assert executor.has_room(encode)
    executor.close_executor()
    assert [one.key for one in ended] == [encode.key]
    assert events[:2] == ["stage", "placed"]


@pytest.mark.parametrize(("characters", "begins"), [(1_000, ["score"]), (10**9, ["encode", "score"])])
def test_texts_that_are_too_many_to_be_sent_are_collected_where_the_model_is(
    tmp_path: Path, loads: Path, characters: int, begins: list[str]
) -> None:
    """Though all have vectors: only then an encoding could end where there is no model."""
    large = replace(task("Large"), size=Size(texts=3, characters=characters))
    run(tmp_path, plan(tmp_path, task()), "cuda:0")
    placed: list[str] = []

    def note_event(job: Job, event: Event) -> None:
        if event.kind == "placed" and job.kind != "resolve":
            placed.append(job.kind)

    records(run(tmp_path, plan(tmp_path, large), "cuda:0", listeners=Listeners(event=note_event)))
    assert placed == begins


def test_a_cpu_worker_has_its_threads_and_sees_no_gpu(tmp_path: Path) -> None:
    executor = opening(tmp_path, "cuda:0", cpu_workers=1)(lambda _key, _event: None)
    work, resources = ReadEnvironment(), Resources(begins_on_cpu=True)
    executor.submit(Job(key="k", kind="score", label="x", work=work, resources=resources), {})
    while not (ended := executor.poll_jobs(0.1)):
        pass
    executor.close_executor()
    assert ended[0].output == {"OMP_NUM_THREADS": b"1", "CUDA_VISIBLE_DEVICES": b""}


SCRIPT = """
import os
from pathlib import Path
from harness.executors.local import Subprocess
from harness.jobs.context import WorkerLimits
with open("threads", "a") as file:
    file.write(os.environ.get("OMP_NUM_THREADS", "none") + "\\n")
if __name__ == "__main__":
    limits = WorkerLimits(threads=3)
    options = {"device": "cpu", "cache": Path(), "listener": print, "limits": limits, "libraries": ("torch",)}
    worker = Subprocess(**options, has_device=False)
    from worker_jobs import ReadEnvironment
    from harness.jobs.jobs import Job
    worker.start(Job(key="k", kind="score", label="x", work=ReadEnvironment()), {}, ())
    while not (finished := worker.poll_worker(0.1)):
        pass
    worker.close_worker()
    assert finished.output["OMP_NUM_THREADS"] == b"3"
    assert os.environ.get("OMP_NUM_THREADS") is None
"""


def test_a_script_that_a_cpu_worker_imports_has_its_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may import torch at its top, which reads them once."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    (tmp_path / "script.py").write_text(SCRIPT)
    subprocess.run([sys.executable, "script.py"], cwd=tmp_path, timeout=120, check=True)
    assert (tmp_path / "threads").read_text().split() == ["none", "3"]


def test_busy_cpu_workers_are_ended_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    executor = opening(tmp_path, "cuda:0", cpu_workers=3)(lambda _key, event: notes.append(event.text))
    for key in "abc":
        resources = Resources(begins_on_cpu=True)
        executor.submit(Job(key=key, kind="score", label="x", work=Say("stay"), resources=resources), {})
    for worker in executor._cpu_workers:
        worker._patience = 1.0
    while notes.count("nothing ends it") < 3:
        executor.poll_jobs(0.1)
    all_at_once, close = threading.Barrier(4), Subprocess.close_worker

    def close_worker(worker: Subprocess) -> None:
        all_at_once.wait(60)
        close(worker)

    monkeypatch.setattr(Subprocess, "close_worker", close_worker)
    executor.close_executor()
    assert not any(worker._process.is_alive() for worker in executor._cpu_workers)


@pytest.mark.parametrize("devices", [("cuda:0", "cuda:1"), ("cpu", "cpu")])
def test_a_large_corpus_is_encoded_by_all_devices(
    tmp_path: Path, loads: Path, monkeypatch: pytest.MonkeyPatch, devices: tuple[str, ...]
) -> None:
    """Each has half of the texts; the record is that of a run on one device."""
    monkeypatch.setattr(evaluation, "PART_TEXTS", 5)
    texts = tuple(f"text {number}" for number in range(10))
    large = replace(task("Large", texts=texts), size=Size(texts=10))
    counts: dict[str, int] = {}

    def note_event(job: Job, event: Event) -> None:
        if event.kind == "encoded":
            counts[job.label] = counts.get(job.label, 0) + event.texts

    # Two sides of ten texts each, whose vectors differ.
    how = {"prompts": (("query", "q: "), ("document", "d: "))}
    planned = plan(tmp_path / "one", large, **how)
    (alone,) = records(run(tmp_path / "one", planned, devices[0], cpu_workers=0))
    planned = evaluation._split_encodings(plan(tmp_path, large, task("Small"), **how), len(devices))
    whole, _ = records(
        run(
            tmp_path,
            planned,
            *devices,
            cpu_workers=2 * (devices[0] != "cpu"),
            listeners=Listeners(event=note_event),
        )
    )
    assert counts == {"Large (tiny), part 1 of 2": 10, "Large (tiny), part 2 of 2": 10, "Small (tiny)": 6}
    same = ("key", "scores", "main_score", "examples")
    assert [getattr(whole, name) for name in same] == [getattr(alone, name) for name in same]
    for name in ("texts", "texts_encoded", "tokens_encoded"):
        assert whole.provenance[name] == alone.provenance[name]
