"""Workers of a Slurm cluster: settings, the queue, and runs through a scheduler that kills and preempts."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fakes
import queued_jobs
from fake_slurm import FakeSlurm
from harness.core.errors import StoreError, UsageError
from harness.driver.execute import Driver
from harness.executors.executor import Finished, SlurmSettings
from harness.executors.slurm_driver import SlurmExecutor, _split_jobs
from harness.executors.slurm_worker import JobGroup
from harness.jobs.jobs import Job, Resources
from harness.storage.record import RECORDS
from harness.storage.store import Store
from queued_jobs import QUICK, Act, ActOnModel, Large, ends, executor, wait, worker_settings


def job(do: str = "", file: Path = Path(), **fields: Any) -> Job:
    return Job(
        **{
            "key": f"key-{do}",
            "kind": "encode",
            "label": f"job {do}",
            "work": Act(do=do, folder=file),
            **fields,
        }
    )


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
        ("idle=3", "idle of slurm was removed: a worker ends when its jobs are done."),
    ],
)
def test_settings_that_cannot_be_are_named(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        SlurmSettings.parse(text)
    assert message in str(caught.value)


# Runs


def serial(folder: Path, tasks: int) -> dict[str, Any]:
    """The records of the plan, run in this process."""
    planned = queued_jobs.plan(folder, tasks, seconds=0.0)
    Driver(planned, store=Store(folder / "results"), cache=folder / "cache").run()
    return queued_jobs.records(folder)


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
    assert slurm.calls("sbatch") <= 6  # the first for the only job that can begin
    assert slurm.calls("sacct") <= 2 + seconds / QUICK.states
    assert slurm.calls("scancel") <= 1
    wait(lambda: not slurm.tasks("PENDING", "RUNNING"))
    assert not (folder / "results" / "queue").exists()


def start_driver(folder: Path, tasks: int, seconds: float) -> subprocess.Popen[bytes]:
    heard = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # also below a shell's background job
    run = f"sys.exit(queued_jobs.main({str(folder)!r}, {tasks}, {seconds}))"
    code = f"import queued_jobs, signal, sys; {heard}; {run}"
    with (folder / "errors").open("a") as errors:
        return subprocess.Popen([sys.executable, "-c", code], stderr=errors)


def disturb(slurm: FakeSlurm, folder: Path, chance: random.Random) -> bool:
    """Preempt or kill a worker at random, or its machine even while it starts; whether there was one."""
    running = [name for name, one in slurm.tasks("RUNNING").items() if one.get("step")]
    if not running:
        return False
    name = chance.choice(running)
    how = chance.choice(["preempt", "preempt everywhere", "lose", "kill"])
    groups = [json.loads(path.read_bytes()) for path in folder.glob("results/queue/*/arrays/*")]
    group = next((tasks[name][0] for tasks in groups if name in tasks), "none")
    if how == "lose" or not any(folder.glob(f"results/queue/*/log/{group}")):
        slurm.lose(name)
    elif how == "kill":
        slurm.kill(name)
    else:
        slurm.preempt(name, everywhere=how.endswith("everywhere"))
    return True


@pytest.mark.slow
def test_workers_are_preempted_and_killed_and_the_driver_dies_twice(
    folder: Path, tmp_path: Path, slurm: FakeSlurm
) -> None:
    """Each disturbance costs one job at most; what has a record when a driver dies is never begun again.

    Outputs without a record are in the driver's memory, so that its death costs those that it had. More
    tasks, disturbances and seeds are in benchmarks/kill_cluster.py.
    """
    tasks, most = 24, 5
    chance, disturbances = random.Random(1), 0
    scores = {cell.key for cell in queued_jobs.plan(tmp_path / "serial", tasks).cells}
    driver, kept = start_driver(folder, tasks, 0.1), []
    while (code := driver.poll()) is None:
        time.sleep(chance.uniform(0.2, 1.0))
        done = len(queued_jobs.ended(folder))
        if len(kept) < 2 and done > (tasks / 4, tasks)[len(kept)]:
            os.kill(driver.pid, signal.SIGKILL)
            driver.wait()
            begun = queued_jobs.begun(folder)
            kept.append({key: begun[key] for key in queued_jobs.records(folder)})
            driver = start_driver(folder, tasks, 0.1)
        elif disturbances < most and done > 5:
            disturbances += disturb(slurm, folder, chance)
    assert (code, len(kept)) == (0, 2), (folder / "errors").read_text()
    assert disturbances >= most / 2
    assert queued_jobs.records(folder) == serial(tmp_path / "serial", tasks)
    begun = queued_jobs.begun(folder)
    assert len(begun) == 2 * tasks + 1
    assert sum(begun[key] - 1 for key in scores) <= disturbances
    assert max(begun[key] for key in begun.keys() - scores) <= 3 + disturbances
    assert all(begun[key] == count for one in kept for key, count in one.items())
    wait(lambda: not slurm.processes())
    wait(lambda: not slurm.tasks("PENDING", "RUNNING"))
    assert not (folder / "results" / "queue").exists()


def test_ctrl_c_leaves_nothing_in_the_scheduler(folder: Path, slurm: FakeSlurm) -> None:
    driver = start_driver(folder, 4, 20.0)
    wait(lambda: queued_jobs.begun(folder))
    driver.send_signal(signal.SIGINT)
    assert driver.wait(120) != 0
    assert all(task.get("cancelled") for task in slurm.tasks("PENDING", "RUNNING").values())
    wait(lambda: not slurm.processes())
    assert not (folder / "results" / "queue").exists()


def test_a_job_is_cancelled_and_a_close_leaves_nothing(folder: Path, slurm: FakeSlurm) -> None:
    heard: list[str] = []
    made = executor(folder, lambda key, event: heard.append(f"{key} {event.text}"))
    assert made.name == "slurm: partition cpu, 2 workers of 1 CPU"
    for name in ("wait", "other"):
        assert made.has_room(job(name, folder))
        made.submit(job(name, folder), {})
    (finished,) = ends(made)
    assert finished.output["said"] == b"other"
    wait(lambda: made.poll_jobs(0.1) == [] and "key-wait here" in heard)
    (node,) = made.nodes
    assert (node.workers, node.busy, node.state) == (1, 1, "alive")
    made.cancel_job("key-wait")
    wait(lambda: made.poll_jobs(0.1) == [] and not made.nodes)
    made.submit(job("wait", folder), {})
    wait(lambda: made.poll_jobs(0.1) == [] and heard.count("key-wait here") == 2)
    made.close_executor()
    assert slurm.tasks("PENDING", "RUNNING").keys() == {
        n for n in slurm.tasks("RUNNING") if slurm.get(n).get("cancelled")
    }
    wait(lambda: not slurm.processes())
    assert not (folder / "results" / "queue").exists()


def test_ends_that_the_driver_has_not_stored_wait_for_the_next(folder: Path, slurm: FakeSlurm) -> None:
    """Of two that ended none was stored: they outlive the close, and no job is run again."""
    made = executor(folder)
    for name in "ab":
        made.submit(job(name, folder), {})
    assert made.poll_jobs(0.0) == []
    wait(lambda: len([*folder.glob("results/queue/*/done/*")]) == 2)
    made.close_executor()
    wait(lambda: not slurm.processes())
    again = executor(folder)
    for name in "ab":
        again.submit(job(name, folder), {})
    said = sorted(finished.output["said"] for finished in ends(again, 2))
    again.close_executor()
    assert said == [b"a", b"b"]
    assert not (folder / "results" / "queue").exists()
    assert sorted((folder / "begun").read_text().split()) == ["a", "b"]


def test_an_end_of_which_a_killed_driver_has_stored_the_record_is_not_left(
    folder: Path, slurm: FakeSlurm
) -> None:
    planned = queued_jobs.plan(folder, 1, seconds=0.0)
    (score,) = [one for one in planned.jobs if one.place is not None]
    killed = executor(folder)
    killed.submit(score, {})
    (finished,) = ends(killed)
    record = RECORDS.parse(finished.output["record"].decode(), where="")
    assert score.place is not None
    Store(folder / "results").put(score.place.artifact, record, finished.output["examples"])
    killed._stored = []  # it is killed before it removes the end
    killed.close_executor()
    assert len([*folder.glob("results/queue/*/done/*")]) == 1
    after = executor(folder)
    after.submit(job("x", folder), {})
    ends(after)
    after.close_executor()
    assert not (folder / "results" / "queue").exists()


@pytest.mark.parametrize(
    ("written", "weights", "content", "stored"),
    [
        ("2026-01-02", "w", None, True),
        ("2026-01-01", "w", None, False),
        ("2026-01-02", "v", None, False),
        ("2026-01-02", "w", b"{", False),
    ],
)
def test_an_end_that_is_to_replace_a_record_is_kept(
    folder: Path, slurm: FakeSlurm, written: str, weights: str, content: bytes | None, stored: bool
) -> None:
    former, new = (
        one.model_copy(update={"model": one.model.model_copy(update={"weights": name})})
        for name, time in ((weights, written), ("w", "2026-01-02"))
        for one in [fakes.record(fakes.task(), 0.5, written=time)]
    )
    Store(folder / "results").put(f"x-{new.model.artifact[:12]}", former)
    end = Finished(key=new.key, output={"record": content or new.to_json().encode()})
    made = executor(folder)
    assert made._has_record(end) is stored
    made.close_executor()


def test_the_end_of_a_job_makes_no_removed_folder_again(folder: Path) -> None:
    group = JobGroup(
        name="g", folder=folder / "queue" / "gone", jobs={"k": b"no job"}, settings=worker_settings(folder),
        kind="cpu", gpus=0, minutes=5, warning=1,
    )  # fmt: skip
    group._finish(Finished(key="k"))
    assert not (folder / "queue").exists()


def test_the_jobs_of_a_model_share_a_task_and_arrays_have_a_limit(folder: Path, slurm: FakeSlurm) -> None:
    limits = json.loads((slurm.folder / "limits.json").read_text())
    (slurm.folder / "limits.json").write_text(json.dumps({**limits, "array": 3}))
    # A worker for each model: with fewer, a last model is shared out if two are free at once.
    made = executor(folder, workers=3)
    for model in "xyz":
        for name in "abcd":
            named = fakes.artifact(folder / model)
            act = ActOnModel(do=f"{model}{name}", folder=folder, artifact=replace(named, key=model * 64))
            made.submit(Job(key=model + name, kind="encode", label="", work=act), {})
    assert len(ends(made, 12)) == 12
    made.close_executor()
    assert len(slurm.tasks()) == 3
    assert slurm.calls("sbatch") == 2
    begun = (folder / "begun").read_text().split()
    assert all([one[1] for one in begun if one[0] == model] == [*"abcd"] for model in "xyz")
    wait(lambda: not slurm.processes())


def test_parts_are_of_one_model_and_about_as_long() -> None:
    def model(name: str, count: int) -> list[Job]:
        act = ActOnModel(artifact=replace(fakes.artifact(Path(name)), key=name * 64))
        times = [Resources(seconds=float(10 * at)) for at in range(count)]
        return [Job(key=f"{name}{at}", kind="encode", label="", work=act, resources=one)
                for at, one in enumerate(times)]  # fmt: skip

    parts = [[job.key for job in part] for part in _split_jobs([*model("x", 4), *model("y", 1)], 4)]
    assert parts == [["x3", "x1"], ["x2", "x0"], ["y0"]]


@pytest.mark.parametrize(
    ("how", "cause"), [("lose", "node"), ("kill_for_memory", "memory"), ("fill", "memory")]
)
def test_what_ends_a_job_from_outside_is_told(folder: Path, slurm: FakeSlurm, how: str, cause: str) -> None:
    made = executor(folder)
    do = "fill" if how == "fill" else "wait"
    made.submit(job(do, folder), {})
    if how != "fill":
        wait(lambda: made.poll_jobs(0.1) or (folder / "begun").exists())
        (name,) = slurm.tasks("RUNNING")
        getattr(slurm, how)(name)
    (finished,) = ends(made)
    made.close_executor()
    assert finished.failure is not None
    assert (finished.failure.cause, finished.failure.fault) == (cause, None)
    assert ("is gone" in finished.failure.message) == (how != "fill")
    wait(lambda: not slurm.processes())


@pytest.mark.slow
def test_a_preempted_worker_gives_its_job_back_and_comes_back(folder: Path, slurm: FakeSlurm) -> None:
    """Of the other job of its task the driver has the end, so that it is not begun again."""
    made = executor(folder, workers=1)
    for name in ("other", "wait"):
        made.submit(job(name, folder), {})
    ends(made)
    wait(lambda: made.poll_jobs(0.1) or (folder / "begun").read_text().endswith("wait\n"))
    (name,) = slurm.tasks("RUNNING")
    slurm.preempt(name)
    wait(lambda: made.poll_jobs(0.1) or slurm.get(name)["restarts"] == 1)
    (folder / "go").touch()
    (finished,) = ends(made)
    made.close_executor()
    assert finished.output["said"] == b"wait"
    assert (folder / "begun").read_text().split() == ["other", "wait", "wait"]
    assert not (folder / "results" / "queue").exists()
    assert slurm.calls("sbatch") == 1
    wait(lambda: not slurm.processes())


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "goes_on"), [("score", False), ("train", True)])
def test_what_had_the_whole_time_of_a_worker_is_not_begun_anew_for_ever(
    folder: Path, slurm: FakeSlurm, kind: str, goes_on: bool
) -> None:
    made = executor(folder, workers=1, minutes=5, times=replace(QUICK, warning=298))
    made.submit(job("wait", folder, kind=kind), {})
    wait(lambda: made.poll_jobs(0.1) or (folder / "begun").exists())
    time.sleep(2.0)  # its time, up to the warning
    slurm.preempt(*slurm.tasks("RUNNING"))
    if goes_on:  # a training goes on from its checkpoint
        wait(lambda: made.poll_jobs(0.1) or len((folder / "begun").read_text().split()) == 2)
        (folder / "go").touch()
    (finished,) = ends(made)
    made.close_executor()
    assert (finished.failure is None) == goes_on
    if finished.failure is not None:
        assert finished.failure.cause == "job"
        assert "job wait did not end in the 5 minutes of a worker" in finished.failure.message
        assert "minutes=" in (finished.failure.hint or "")
    wait(lambda: not slurm.processes())


@pytest.mark.parametrize(("devices", "given"), [(0, ["cuda:0"]), (3, ["cuda:0", "cuda:1", "cuda:2"])])
def test_a_worker_has_the_gpus_that_its_jobs_need(
    folder: Path, slurm: FakeSlurm, devices: int, given: list[str]
) -> None:
    made = executor(folder, kind="cuda", gpus=2)
    one = job("x", folder, resources=Resources(devices=devices))
    made.check_jobs([one])
    made.submit(one, {})
    (finished,) = ends(made)
    made.close_executor()
    assert json.loads(finished.output["devices"]) == given
    assert {task["gpus"] for task in slurm.tasks().values()} == {max(2, devices)}
    wait(lambda: not slurm.processes())


# What cannot work


@pytest.mark.parametrize(
    ("resources", "options", "message"),
    [
        (Resources(memory=3 * 10**9), {"memory": 2.0}, "job x needs 3.0 GB of memory, and a worker has 2."),
        (Resources(devices=2), {}, "job x needs 2 devices, and a worker without GPUs has one."),
        (Resources(devices=8), {"kind": "cuda"}, "Requested node configuration is not available"),
        (
            Resources(),
            {"partition": "nope"},
            "refuses to queue workers: invalid partition specified: nope",
        ),
    ],
)
def test_what_slurm_has_no_machine_for_is_named_before_anything_starts(
    folder: Path, slurm: FakeSlurm, resources: Resources, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        executor(folder, **options).check_jobs([job("x", folder, resources=resources)])
    assert message in caught.value.message
    assert slurm.tasks() == {}


def test_a_refusal_of_sbatch_is_one_error(folder: Path, slurm: FakeSlurm) -> None:
    made = executor(folder, partition="nope")
    made.submit(job("x", folder), {})
    with pytest.raises(UsageError, match="Invalid partition name specified"):
        made.poll_jobs(1.0)
    made.close_executor()
    assert not (folder / "results" / "queue").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"environment": {"Python": "3.9"}}, "instead of 3.9"),
        ({"folders": (Path("/no such folder"),)}, "does not see /no such folder"),
    ],
)
def test_the_refusal_of_a_worker_ends_the_run(
    folder: Path, slurm: FakeSlurm, options: dict[str, Any], message: str
) -> None:
    made = executor(folder, worker=queued_jobs.worker_settings(folder, **options))
    made.submit(job("x", folder), {})
    with pytest.raises(UsageError) as caught:
        ends(made)
    made.close_executor()
    assert message in caught.value.message
    assert "same installation" in str(caught.value)
    wait(lambda: not slurm.processes())


def try_again(made: SlurmExecutor, folder: Path) -> None:
    """Submit jobs that are lost once more, as the driver does."""
    for finished in (ends(made)[0] for _ in range(9)):
        made.submit(job(finished.key[-1], folder), {})


def test_workers_that_cannot_start_are_not_asked_for_without_end(folder: Path, slurm: FakeSlurm) -> None:
    made = executor(folder, setup="echo no such module >&2; exit 3")
    for name in "abc":
        made.submit(job(name, folder), {})
    with pytest.raises(UsageError) as caught:
        try_again(made, folder)
    made.close_executor()
    message = caught.value.message
    assert "Slurm workers end before they report anything; the last one's state is FAILED" in message
    assert "no such module" in message
    assert len(slurm.tasks()) <= 6


def test_a_worker_that_cannot_write_the_end_of_a_job_says_so(folder: Path, slurm: FakeSlurm) -> None:
    """Its files may be as large as a word of failure, not as the job's output."""
    made = executor(folder, setup="ulimit -f 8")
    made.submit(replace(job("x", folder), work=Large(2**20)), {})
    (finished,) = ends(made)
    made.close_executor()
    assert finished.failure is not None
    assert isinstance(finished.failure.fault, StoreError)
    assert "larger than this process may write" in finished.failure.message
    wait(lambda: not slurm.processes())


def test_a_queue_that_cannot_be_written_is_a_fault_of_the_store(folder: Path, slurm: FakeSlurm) -> None:
    (folder / "results" / "queue").write_text("a file")
    with pytest.raises(StoreError, match="a file stands where a folder should be"):
        executor(folder)


def test_without_a_scheduler_the_commands_are_named(
    folder: Path, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    (slurm.folder / "no accounting").touch()
    with pytest.raises(UsageError, match="accounting storage is disabled"):
        executor(folder)
    (slurm.bin / "sacct").unlink()
    with pytest.raises(UsageError, match="sacct not on the PATH"):
        executor(folder)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match="sbatch, srun, sacct, scancel, scontrol not on the PATH"):
        executor(folder)
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(UsageError, match="needs submitit"):
        executor(folder)
    assert not (folder / "results" / "queue").exists()
