"""The log of a run and its state as another process reads it, by a clock that the test sets."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from harness.core.documents import append_digest
from harness.core.errors import NewerSchemaError
from harness.driver.run_status import Cost, RunStatus, read_runs
from harness.executors.executor import Failure
from harness.executors.run_log import KEEP, Node, RunLog, format_device_uses
from harness.jobs.context import Event
from harness.jobs.jobs import Job, JobKind, RecordLocation
from harness.results.audit import audit


def job(key: str, kind: JobKind = "finetune", *, task: str = "RTE", inputs: tuple[str, ...] = ()) -> Job:
    place = RecordLocation(artifact="tiny", task=task) if kind in ("finetune", "score") else None
    return Job(key=key, kind=kind, label=f"{task}, {key}", work=None, inputs=inputs, place=place)  # type: ignore[arg-type]


RUNS = tuple(job(f"run {number}") for number in range(4))
CHOICE = job("choice", "select", inputs=tuple(one.key for one in RUNS))
SCORE = job("score", "score", inputs=("choice",))
JOBS = (*RUNS, CHOICE, SCORE)


class Logged:
    """A run whose clock the test sets, and its state as it is read."""

    def __init__(self, results: Path, jobs: tuple[Job, ...] = JOBS, **told: Any) -> None:
        self.now = 0.0
        self.runs = results / "runs"
        self.log = RunLog(self.runs, jobs=jobs, clock=lambda: self.now, every=3600.0, **told)

    def start(self, one: Job, device: str = "cuda:0", *, at: float, node: str = "a") -> None:
        self.now = at
        self.log.note_submission(one)
        self.log.note_event(one, Event(kind="placed", text=node, devices=(device,)))

    def end(self, one: Job, how: Any = "done", failure: Failure | None = None, *, at: float) -> None:
        self.now = at
        why = {} if failure is None else {"cause": failure.reason, "hint": failure.hint}
        self.log.note_job_end(one, how, **why)

    def read(self) -> RunStatus:
        self.log._write_heartbeat()
        (run,) = read_runs(self.runs)
        return run

    def change(self, file: str, **facts: Any) -> None:
        path = self.log.folder / file
        content = {**json.loads(path.read_text()), **facts}
        path.write_text(append_digest({name: value for name, value in content.items() if name != "digest"}))


@pytest.fixture
def logged(tmp_path: Path) -> Logged:
    return Logged(tmp_path, known=("run 0",), executor="ray at head:6379", command="harness run --suite glue")


def test_a_run_says_what_runs_where_and_what_waits_for_what(logged: Logged) -> None:
    logged.start(RUNS[1], at=10.0)
    logged.log.note_event(RUNS[1], Event(kind="training", steps=200))
    logged.log.note_event(RUNS[1], Event(kind="trained", steps=50))
    logged.log.note_foreign_claim(RUNS[3])
    logged.log.update_nodes(
        [Node(name="a", devices=("cuda:0", "cuda:1"), busy=1), Node(name="b", state="lost")]
    )
    logged.now = 70.0
    run = logged.read()
    assert (run.state, run.executor, run.command) == (
        "running",
        "ray at head:6379",
        "harness run --suite glue",
    )
    assert run.counts == {
        "finetune": {"known": 1, "running": 1, "waiting": 2},
        "select": {"waiting": 1},
        "score": {"waiting": 1},
    }
    (under_way,) = run.running
    assert (under_way.label, under_way.node, under_way.devices) == ("RTE, run 1", "a", ("cuda:0",))
    assert (under_way.seconds, under_way.done, under_way.total, under_way.unit) == (60.0, 50, 200, "steps")
    assert [(wait.reason, wait.counts, wait.behind) for wait in run.waits] == [
        ("worker", {"finetune": 1}, {}),
        ("elsewhere", {"finetune": 1}, {}),
        ("jobs", {"select": 1, "score": 1}, {"finetune": 3}),
    ]
    assert [node.state for node in run.nodes] == ["alive", "lost"]
    assert run.left is not None
    assert run.left.seconds > 180.0  # of the run under way, by its steps, and of as many again for the others
    for one in RUNS[1:]:
        logged.end(one, at=80.0)
    logged.start(CHOICE, at=80.0)
    assert [(wait.counts, wait.label) for wait in logged.read().waits] == [({"score": 1}, "RTE, choice")]


def test_causes_are_kept_and_lost_work_costs_apart(logged: Logged) -> None:
    """Two runs share a device for half of an hour; one of them is lost, and one of another device fails."""
    logged.start(RUNS[1], at=0.0)
    logged.start(RUNS[2], at=1800.0)
    logged.start(RUNS[3], "cuda:1", at=1800.0)
    logged.now = 3600.0
    logged.log.note_job_loss(RUNS[2], "the node vanished")
    logged.end(RUNS[1], at=3600.0)
    full = Failure(kind="OutOfMemoryError", message="CUDA out of memory\n" + 900 * "x")
    logged.end(RUNS[3], "retried", full, at=5400.0)
    logged.start(RUNS[3], "cpu", at=5400.0)
    logged.end(RUNS[3], "failed", Failure(kind="DataError", message="No row.", hint="Add one."), at=7200.0)
    for one in (CHOICE, SCORE):
        logged.log.note_job_end(one, "skipped")
    run = logged.read()
    told = [(one.how, one.cause[:36], one.hint, one.labels) for one in run.troubles]
    assert told == [
        ("failed", "No row.", "Add one.", ("RTE, run 3",)),
        ("lost", "the node vanished", "", ("RTE, run 2",)),
        ("retried", "OutOfMemoryError: CUDA out of memory", "", ("RTE, run 3",)),
    ]
    assert len(run.troubles[2].cause) == 400
    assert run.cost == Cost(device_hours=0.75, cpu_hours=0.5, lost_device_hours=1.25)
    assert run.counts["finetune"] == {"known": 1, "done": 1, "waiting": 1, "failed": 1}
    assert (run.counts["select"], run.counts["score"]) == ({"skipped": 1}, {"skipped": 1})


def test_a_job_that_goes_on_elsewhere_keeps_its_cost_and_one_taken_back_is_no_trouble(
    logged: Logged,
) -> None:
    """A score spends half of an hour on a CPU worker, and as long on a device."""
    logged.start(SCORE, "cpu", at=0.0)
    logged.log.note_submission(RUNS[1])
    logged.end(RUNS[1], "retried", at=10.0)
    logged.now = 1800.0
    logged.log.note_event(SCORE, Event(kind="placed", text="a", devices=("cuda:0",)))
    logged.end(SCORE, at=3600.0)
    run = logged.read()
    assert (run.cost, run.troubles) == (Cost(device_hours=0.5, cpu_hours=0.5), ())
    assert (run.counts["score"], run.counts["finetune"]) == ({"done": 1}, {"known": 1, "waiting": 3})


def test_the_use_of_a_device_is_told_and_counted_once_where_jobs_share_it(logged: Logged) -> None:
    """Of 100 seconds a device trains 30: two jobs do so from 10 to 30 and from 20 to 40."""
    for one in RUNS[1:3]:
        logged.start(one, at=5.0)
    logged.start(RUNS[3], "cuda:1", at=5.0)
    for one, moment in zip(RUNS[1:3], (30.0, 40.0), strict=True):
        logged.now = moment
        logged.log.note_event(one, Event(kind="trained", steps=1, seconds=20.0))
    logged.now = 100.0
    run = logged.read()
    assert {use.device: use.seconds for use in run.uses} == {"cuda:0": 30, "cuda:1": 0}
    assert format_device_uses(run.uses, run.seconds) == "cuda:0 30 %, cuda:1 0 %"


@pytest.mark.parametrize(
    ("host", "pid", "age", "state"),
    [
        ("here", "own", 0, "running"),
        ("here", "dead", 0, "dead"),
        ("here", "own", 900, "dead"),  # the number is another process's by now
        ("elsewhere", "dead", 5, "running"),  # the number means nothing here
        ("elsewhere", "own", 300, "dead"),
    ],
)
def test_a_driver_is_dead_when_its_heartbeat_stops(
    logged: Logged, host: str, pid: str, age: float, state: str
) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    logged.log._write_heartbeat()
    facts = {**({"pid": gone.pid} if pid == "dead" else {}), **({"host": host} if host != "here" else {})}
    logged.change("run.json", started="2031-01-01T00:00:00+00:00", **facts)  # a clock that is years ahead
    beat = logged.log.folder / "status.json"
    os.utime(beat, (time.time() - age,) * 2)
    assert [run.state for run in read_runs(logged.runs)] == [state]


def refuse(*_: Any, **__: Any) -> None:
    raise PermissionError


@pytest.mark.parametrize(("beats", "state"), [(True, "running"), (False, "dead")])
def test_who_may_not_write_watches_the_heartbeat(
    logged: Logged, monkeypatch: pytest.MonkeyPatch, beats: bool, state: str
) -> None:
    logged.change("run.json", host="elsewhere")
    monkeypatch.setattr(Path, "touch", refuse)
    waited: list[float] = []

    def pause(seconds: float) -> None:
        waited.append(seconds)
        if beats:
            logged.log._write_heartbeat()

    (run,) = read_runs(logged.runs, pause=pause)
    assert (run.state, run.age, len(waited)) == (state, None, 1)
    logged.log.close_run_log("stopped")
    assert [one.state for one in read_runs(logged.runs, pause=pause)] == ["stopped"]
    assert len(waited) == 1


def test_half_lines_are_left_out_and_a_full_disk_stops_nothing(
    logged: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    logged.start(RUNS[1], at=0.0)

    def half(file: int, content: bytes) -> int:
        write(file, content[: len(content) // 2])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        logged.end(RUNS[1], at=50.0)
    logged.start(RUNS[2], at=60.0)
    lines = (logged.log.folder / "jobs.jsonl").read_bytes()
    (logged.log.folder / "jobs.jsonl").write_bytes(lines + b'{"at": 70.0, "jo')
    assert [one.label for one in logged.read().running] == ["RTE, run 1", "RTE, run 2"]


def test_a_newer_log_is_refused(logged: Logged) -> None:
    logged.change("run.json", schema=99)
    with pytest.raises(NewerSchemaError, match="newer version"):
        read_runs(logged.runs)


def test_the_heartbeat_goes_on_while_the_driver_is_busy(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "runs", jobs=JOBS, every=0.02)
    beat = log.folder / "status.json"
    first = json.loads(beat.read_text())["beat"]
    until = time.monotonic() + 60
    while json.loads(beat.read_text())["beat"] < first + 3 and time.monotonic() < until:
        time.sleep(0.02)
    log.close_run_log("finished")
    last = json.loads(beat.read_text())
    assert (last["beat"] > first + 3, last["ended"]) == (True, "finished")
    assert audit(tmp_path, tmp_path / "cache").clean


def test_the_last_ended_runs_are_kept_and_what_lives(tmp_path: Path) -> None:
    alive = Logged(tmp_path).log.folder
    alive = alive.rename(alive.with_name(f"0-{alive.name}"))  # the oldest one
    for number in range(KEEP + 3):
        log = RunLog(tmp_path / "runs", jobs=(), every=3600.0)
        log.close_run_log("finished")
        log.folder.rename(log.folder.with_name(f"1-{number:03}"))
    RunLog(tmp_path / "runs", jobs=(), every=3600.0).close_run_log("finished")
    names = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert names[:2] == [alive.name, "1-004"]
    assert len(names) == KEEP + 1


def test_ten_thousand_short_jobs_are_logged_in_no_time(tmp_path: Path) -> None:
    jobs = tuple(
        job(str(number), inputs=(str(number - 1),) if number % 10 else ()) for number in range(10_000)
    )
    logged = Logged(tmp_path, jobs)
    begun = time.process_time()
    for one in jobs:
        logged.start(one, at=logged.now + 0.01)
        logged.log.note_event(one, Event(kind="stage", text="scoring"))
        logged.end(one, at=logged.now + 0.01)
    assert (time.process_time() - begun) / len(jobs) < 0.5e-3
    assert logged.read().counts == {"finetune": {"done": 10_000}}
