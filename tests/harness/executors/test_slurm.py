"""Workers of a Slurm cluster: settings, the queue, and runs through a scheduler that kills and preempts."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import queued_jobs
from fake_slurm import FakeSlurm
from harness.context import Event, JobContext
from harness.errors import StoreError, UsageError
from harness.execute import Driver
from harness.executors import queue as queues
from harness.executors.executor import Failure, Finished
from harness.executors.queue import Claim, JobQueue, WorkerLog, WorkerMessage
from harness.executors.slurm import SlurmExecutor, SlurmSettings
from harness.jobs import Job, Resources
from harness.store import Store
from queued_jobs import QUICK

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
    left = fake.processes()
    fake.close()
    assert not left, "a process was left behind"


@dataclass(frozen=True)
class Act:
    """Work for another process, which does as it is told."""

    do: str = ""
    file: Path = Path()

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        context.emit(Event(kind="note", text="here"))
        with (self.file / "begun").open("a") as file:
            file.write(f"{self.do}\n")
        if self.do == "wait":
            while not (self.file / "go").exists():
                time.sleep(0.05)
        if self.do == "fill":
            os.kill(os.getpid(), signal.SIGKILL)
        return {"said": self.do.encode(), "devices": json.dumps(context.devices).encode()}


def job(do: str = "", file: Path = Path(), **fields: Any) -> Job:
    return Job(
        **{"key": f"key-{do}", "kind": "encode", "label": f"job {do}", "work": Act(do, file), **fields}
    )


def wait(over: Callable[[], object], seconds: float = 30.0) -> None:
    ends = time.monotonic() + seconds
    while not over():
        assert time.monotonic() < ends, "it does not happen"
        time.sleep(0.05)


# Settings


def test_settings_are_typed_in_a_line() -> None:
    text = r"partition=gpu, gpus=2,memory=1.5,setup=module load cuda,sbatch.exclude=n1\,n2,sbatch.exclusive"
    assert SlurmSettings.parse(text) == SlurmSettings(
        partition="gpu",
        gpus=2,
        memory=1.5,
        setup="module load cuda",
        sbatch=(("exclude", "n1,n2"), ("exclusive", "")),
    )
    assert SlurmSettings.parse("") == SlurmSettings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("minute=60", "no setting 'minute'.\nDid you mean minutes? It has: partition=, account="),
        ("minutes=4", "minutes of slurm cannot be '4'.\nIt is a whole number, 5 or more."),
        ("gpus=one", "gpus of slurm cannot be 'one'."),
        ("memory=nan", "memory of slurm cannot be 'nan'.\nIt is a number, 0 or more."),
        ("cpus=2,cpus=3", "cpus of slurm is given twice."),
    ],
)
def test_settings_that_cannot_be_are_named(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        SlurmSettings.parse(text)
    assert message in str(caught.value)


# The queue


@pytest.fixture
def queue(tmp_path: Path) -> JobQueue:
    made = JobQueue(tmp_path / "queue")
    made.prepare()
    return made


A, B = (Claim(worker=name, life=f"life of {name}") for name in "ab")


def test_one_of_two_workers_has_a_job_and_its_end_is_the_first(queue: JobQueue) -> None:
    queue.add(job("x"), {"k": {"n": b"input"}})
    assert queue.take("key-x", A) == (job("x"), {"k": {"n": b"input"}})
    assert queue.take("key-x", B) is None
    queue.finish(Finished(key="key-x", output={"n": b"of b"}), B, 1.0)
    assert queue.done() == set()
    queue.finish(Finished(key="key-x", output={"n": b"of a"}), A, 1.0)
    assert queue.end_of("key-x") == Finished(key="key-x", output={"n": b"of a"})
    assert (queue.free(), queue.longest) == ([], 1.0)


def test_a_worker_that_was_given_up_changes_nothing_any_more(queue: JobQueue) -> None:
    queue.add(job("x"), {})
    assert queue.take("key-x", A)
    queue.remove("key-x")
    queue.add(job("x"), {})
    assert queue.take("key-x", B)
    queue.release("key-x", A)
    queue.finish(Finished(key="key-x"), A, 1.0)
    assert (queue.claims(), queue.done()) == ({"key-x": B}, set())


def test_a_worker_gives_back_what_it_held_in_its_former_life(queue: JobQueue) -> None:
    for name in ("x", "y", "z"):
        queue.add(job(name), {})
    queue.take("key-x", A)
    queue.take("key-y", B)
    queue.take("key-z", A)
    queue.finish(Finished(key="key-z"), A, 1.0)
    queue.release_former(replace(A, life="new"))
    assert queue.free() == ["key-x"]


def test_jobs_are_free_in_the_order_in_which_they_came(queue: JobQueue) -> None:
    for number, name in enumerate("cab"):
        queue.add(job(name), {})
        os.utime(queue.folder / "jobs" / f"key-{name}", (number, number))
    assert queue.free() == ["key-c", "key-a", "key-b"]


def test_a_job_of_a_module_that_is_not_here_fails_by_itself(queue: JobQueue) -> None:
    content = (
        pickle.dumps(job("x"))
        .replace(b"queued_jobs", b"no_such_mod")
        .replace(b"harness.jobs", b"harness.nojo")
    )
    (queue.folder / "jobs" / "key-x").write_bytes(content)
    failure = queue.take("key-x", A)
    assert isinstance(failure, Failure)
    assert failure.kind == "ModuleNotFoundError"


def test_messages_are_read_once_and_whole(queue: JobQueue) -> None:
    log, seen = queue.log("a"), queue.log("a")
    event = Event(kind="encoded", texts=3, seconds=0.5)
    log.add(WorkerMessage(kind="event", key="k", event=event))
    assert [message.event for message in seen.read()] == [event]
    with (queue.folder / "workers" / "a").open("a") as file:
        file.write('{"kind": "be')  # killed here; the next life goes on in the same file
    assert list(seen.read()) == []
    log.add(WorkerMessage(kind="start", text="host", life="2"))
    assert list(seen.read()) == [WorkerMessage(kind="start", text="host", life="2")]
    assert list(WorkerLog(queue.folder / "workers" / "nobody").read()) == []


def test_queues_in_which_nothing_changes_are_swept(tmp_path: Path) -> None:
    for name in ("old", "new"):
        JobQueue(tmp_path / name).prepare()
    for path in (tmp_path / "old", *(tmp_path / "old").rglob("*")):
        os.utime(path, (1, 1))
    queues.sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


# Runs


def serial(folder: Path, tasks: int) -> dict[str, Any]:
    """The records of the plan, run in this process."""
    planned = queued_jobs.plan(folder, tasks, seconds=0.0)
    Driver(planned, store=Store(folder / "results"), cache=folder / "cache").run()
    return queued_jobs.records(folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run" / "results").mkdir(parents=True)
    return tmp_path / "run"


def executor(
    folder: Path, listener: Callable[[str, Event], None] | None = None, **options: Any
) -> SlurmExecutor:
    fields = {name: options.pop(name) for name in ("kind", "cluster", "times", "worker") if name in options}
    given = {"partition": "cpu", "workers": 2, "cpus": 1, "idle": 1.0, **options}
    usual: dict[str, Any] = {"worker": queued_jobs.worker_settings(folder), "kind": "cpu", "times": QUICK}
    return SlurmExecutor(
        SlurmSettings(**given),
        folder=folder / "results",
        listener=listener or (lambda _key, _event: None),
        **{**usual, **fields},
    )


def ends(slurm: SlurmExecutor, count: int = 1, seconds: float = 30.0) -> list[Finished]:
    found: list[Finished] = []
    until = time.monotonic() + seconds
    while len(found) < count:
        assert time.monotonic() < until, "no job ends"
        found += slurm.poll(0.2)
    return found


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # submitit's debug log
def test_submitits_debug_executor_makes_the_records_of_a_serial_run(folder: Path, tmp_path: Path) -> None:
    planned = queued_jobs.plan(folder, 3)
    store = Store(folder / "results")
    made = Driver(
        planned,
        store=store,
        cache=folder / "cache",
        open_executor=lambda listener: executor(folder, listener, cluster="debug"),
    )
    assert queued_jobs.done(made.run())
    assert queued_jobs.records(folder) == serial(tmp_path / "serial", 3)
    assert made.texts_encoded == len(planned.jobs)
    assert not (folder / "results" / "queue").exists()


def test_a_run_asks_for_one_array_for_a_wave_and_little_of_the_scheduler(
    folder: Path, tmp_path: Path, slurm: FakeSlurm
) -> None:
    made = queued_jobs.driver(folder, queued_jobs.plan(folder, 12), workers=2)
    started = time.monotonic()
    assert queued_jobs.done(made.run())
    seconds = time.monotonic() - started
    assert queued_jobs.records(folder) == serial(tmp_path / "serial", 12)
    assert set(queued_jobs.begun(folder).values()) == {1}
    assert slurm.calls("sbatch") <= 2  # the first for the only job that can begin
    assert slurm.calls("sacct") <= 2 + seconds / QUICK.states
    assert slurm.calls("scancel") == 1
    assert slurm.tasks("PENDING", "RUNNING") == {}
    assert not (folder / "results" / "queue").exists()


def start_driver(folder: Path, tasks: int, seconds: float) -> subprocess.Popen[bytes]:
    code = f"import queued_jobs, sys; sys.exit(queued_jobs.main({str(folder)!r}, {tasks}, {seconds}))"
    return subprocess.Popen([sys.executable, "-c", code], start_new_session=True)


def disturb(slurm: FakeSlurm, folder: Path, chance: random.Random) -> bool:
    """Preempt or kill a worker at random, or its machine even while it starts; whether there was one."""
    running = [name for name, one in slurm.tasks("RUNNING").items() if one.get("step")]
    if not running:
        return False
    name = chance.choice(running)
    how = chance.choice(["preempt", "preempt everywhere", "lose", "kill"])
    spoke = any((folder / "results" / "queue").glob(f"*/workers/{name}"))
    if how == "lose" or not spoke:
        slurm.lose(name)
    elif how == "kill":
        os.kill(slurm.get(name)["step"], signal.SIGKILL)
    else:
        slurm.preempt(name, everywhere=how.endswith("everywhere"))
    return True


@pytest.mark.parametrize(
    "seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)]
)
def test_workers_are_preempted_and_killed_and_the_driver_dies_twice(
    folder: Path, tmp_path: Path, slurm: FakeSlurm, seed: int
) -> None:
    """Each disturbance costs one job at most; what has a record when a driver dies is never begun again.

    Outputs without a record are in the driver's memory, so that its death costs those that it had.
    """
    tasks, chance, disturbances = 40, random.Random(seed), 0
    scores = {cell.key for cell in queued_jobs.plan(tmp_path / "serial", tasks).cells}
    driver, kept = start_driver(folder, tasks, 0.1), []
    while (code := driver.poll()) is None:
        time.sleep(chance.uniform(0.2, 1.0))
        done = len(queued_jobs.ended(folder))
        if len(kept) < 2 and done > (10, 40)[len(kept)]:
            os.kill(driver.pid, signal.SIGKILL)
            driver.wait()
            begun = queued_jobs.begun(folder)
            kept.append({key: begun[key] for key in queued_jobs.records(folder)})
            driver = start_driver(folder, tasks, 0.1)
        elif disturbances < 10 and done > 5:
            disturbances += disturb(slurm, folder, chance)
    assert (code, len(kept)) == (0, 2)
    assert disturbances >= 5
    assert queued_jobs.records(folder) == serial(tmp_path / "serial", tasks)
    begun = queued_jobs.begun(folder)
    assert len(begun) == 2 * tasks + 1
    assert sum(begun[key] - 1 for key in scores) <= disturbances
    assert max(begun[key] for key in begun.keys() - scores) <= 3 + disturbances
    assert all(begun[key] == count for one in kept for key, count in one.items())
    wait(lambda: not slurm.processes())
    assert slurm.tasks("PENDING", "RUNNING") == {}
    assert not (folder / "results" / "queue").exists()
