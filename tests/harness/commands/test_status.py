"""`harness status` on logs of runs that are under way, dead, ended, or not there."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.commands import status
from harness.executors.run_log import Node, RunLog
from harness.jobs.context import Event
from harness.jobs.jobs import Job, Resources

Asked = Callable[..., tuple[int, str, str]]

MODEL = "organisation/encoder-base"
TRAINING = Job(key="t", kind="train", label="encoder-simcse", work=None, resources=Resources(devices=2))  # type: ignore[arg-type]
RUNS = tuple(
    Job(key=f"r{n}", kind="finetune", label=f"RTE ({MODEL}), seed {n}", work=None)  # type: ignore[arg-type]
    for n in range(3)
)
ENCODE, SCORE = (
    Job(key=kind, kind=kind, label=f"SciFact ({MODEL})", work=None, inputs=("t",))  # type: ignore[arg-type]
    for kind in ("encode", "score")
)


def run(results: Path, now: list[float]) -> RunLog:
    """A run of 20 minutes: a training goes on, a run is done, one failed, a node is lost."""
    log = RunLog(
        results / "runs",
        jobs=(TRAINING, *RUNS, ENCODE, SCORE),
        executor="ray at head:6379",
        command="harness run --model x --suite y",
        clock=lambda: now[0],
        every=3600.0,
    )
    log.note_submission(TRAINING)
    log.note_event(TRAINING, Event(kind="placed", text="gpu-1", devices=("cuda:0", "cuda:1")))
    for one in RUNS[:2]:
        log.note_submission(one)
        log.note_event(one, Event(kind="placed", text="gpu-2", devices=("cuda:0",)))
    log.update_nodes(
        [Node(name="gpu-1", workers=2, busy=2), Node(name="gpu-2", state="lost", reason="no heartbeat")]
    )
    log.note_event(TRAINING, Event(kind="training", steps=1000))
    now[0] = 600.0
    log.note_job_end(RUNS[0], "done")
    log.note_job_end(RUNS[1], "failed", cause="No such file.", hint="Type harness data.")
    log.note_submission(RUNS[2])
    log.note_event(RUNS[2], Event(kind="placed", text="gpu-2", devices=("cuda:0",)))
    now[0] = 1200.0
    log.note_event(TRAINING, Event(kind="trained", steps=250, seconds=600.0))
    log.note_job_loss(RUNS[2], "gpu-2 vanished")
    log._write_heartbeat()
    return log


@pytest.fixture
def results(tmp_path: Path) -> Path:
    (tmp_path / "results").mkdir()
    return tmp_path / "results"


def test_a_run_is_told_of_at_a_glance(results: Path, command: Asked) -> None:
    log = run(results, [0.0])
    code, out, _ = command("status")
    words = " ".join(out.replace("│", " ").split())
    assert code == 0
    for part in (
        "RUNNING for 20 min, about ",
        "harness run --model x --suite y",
        "1 of 6 jobs done, 1 under way, 3 waiting, 1 failed",
        "FAILED RTE, seed 1 No such file. Type harness data.",
        "LOST with its node, made again RTE, seed 2 gpu-2 vanished",
        "nodes 1 node, 2 workers, 1 lost gpu-2 lost: no heartbeat gpu-1 2 of 2 workers busy",
        "waiting 1 run for a free worker 1 encoding, 1 score for 1 training (encoder-simcse)",
        "devices encoding or training: gpu-1 cuda:0 50 %, gpu-1 cuda:1 50 %, gpu-2 cuda:0 0 % of the time",
        "cost 0.83 device-hours, 0.17 more lost",
        "training encoder-simcse gpu-1 cuda:0,cuda:1 20 min 25 %",
    ):
        assert part in words
    log.close_run_log("stopped")
    assert "1 of 6 jobs done, 1 was under way, 3 waiting" in command("status", "--all")[1]
    out = command("status")[1]
    assert "No run is under way" in out
    assert "STOPPED after 20 min" in out


def test_machines_get_the_same_as_json(results: Path, command: Asked) -> None:
    log = run(results, [0.0])
    _, out, _ = command("status", "--json")
    document = json.loads(out)
    (told,) = document["runs"]
    assert (document["schema"], told["state"], told["counts"]["score"]) == (1, "running", {"waiting": 1})
    assert told["left"]["low"] <= told["left"]["seconds"] <= told["left"]["high"]
    assert [one["name"] for one in told["nodes"]] == ["gpu-1", "gpu-2"]
    assert told["uses"][0] == {"node": "gpu-1", "device": "cuda:0", "seconds": 600.0}
    log.close_run_log("finished")
    RunLog(results / "runs", jobs=(), every=3600.0).close_run_log("finished")
    assert len(json.loads(command("status", "--json")[1])["runs"]) == 1
    assert len(json.loads(command("status", "--json", "--all")[1])["runs"]) == 2


def test_it_helps_where_there_is_nothing(results: Path, command: Asked) -> None:
    code, out, _ = command("status")
    assert (code, "No run is under way" in out, "harness run --model" in out) == (0, True, True)
    results.rmdir()
    code, out, _ = command("status")  # a run that has just been typed makes the folder in a moment
    assert (code, "which is not there" in out) == (0, True)


def test_it_looks_again_until_it_is_interrupted(
    results: Path, command: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    code, out, _ = command("status", "--watch", 5, "--json")
    assert (code, looks) == (0, [5.0, 5.0, 5.0])
    assert [json.loads(line)["runs"] for line in out.splitlines()] == [[], [], []]


def test_many_running_jobs_are_cut_short(results: Path, command: Asked) -> None:
    jobs = [
        Job(key=str(n), kind="score", label=f"Task{n} ({MODEL})", work=None)  # type: ignore[arg-type]
        for n in range(status.ROWS + 5)
    ]
    log = RunLog(results / "runs", jobs=jobs, every=3600.0)
    for one in jobs:
        log.note_submission(one)
        log.note_event(one, Event(kind="placed", text="node", devices=("cpu",)))
    log._write_heartbeat()
    assert "and 5 more (--all)" in command("status")[1]
    assert f"score Task{len(jobs) - 1}" in command("status", "--all")[1]
