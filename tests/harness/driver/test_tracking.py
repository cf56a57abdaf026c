"""Trackers: what is written once, after kills as well, what a failure of one costs, and what is refused."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tiny
from harness.cli import invoke
from harness.driver import tracking as module
from harness.driver.execute import Listeners
from harness.driver.tracking import Tracking
from harness.executors.node import merge_events
from harness.jobs.context import Event
from harness.jobs.jobs import Job
from harness.storage.trackers import LoggedValues, TrackedRun, Tracker
from tiny import WORDS

RUN = TrackedRun(id="0123456789ab", name="tiny", kind="train", config={"rate": 0.1})
NAMES = ("mlflow", "tensorboard", "trackio", "wandb")
INSTALLED = [name for name in NAMES if importlib.util.find_spec(name)]
NEEDED = "pip install mlflow-skinny sqlalchemy alembic tensorboard trackio wandb"
needs_trackers = pytest.mark.skipif(len(INSTALLED) < len(NAMES), reason=NEEDED)


class FakeTracker(Tracker):
    """Keeps what it is given, by the id of the run; fails where it is told to."""

    rows: dict[str, list[tuple[int, Mapping[str, float]]]]
    runs: dict[str, TrackedRun]
    ends: list[tuple[str, str]]
    other: type[FakeTracker]
    fails_at = -1

    def start_tracking(self) -> None:
        self.runs[self._run.id] = self._run

    def write_points(self, points: Sequence[LoggedValues]) -> None:
        if any(point.step == self.fails_at for point in points):
            raise OSError("No space left on device")
        self.rows.setdefault(self._run.id, []).extend((point.step, point.values) for point in points)

    def end_tracking(self, status: str) -> None:
        self.ends.append((self._run.id, status))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeTracker]:
    """In the place of W&B, which counts as installed, and an attribute `other` in that of MLflow."""
    made, other = (type(name, (FakeTracker,), {"rows": {}, "runs": {}, "ends": []}) for name in "fo")
    made.other = other
    fakes = {"wandb": made, "mlflow": other}
    monkeypatch.setattr(module, "open_tracker", lambda name, *rest: fakes[name](name, *rest))
    find = importlib.util.find_spec

    def find_spec(name: str, *rest: Any) -> Any:
        name = "json" if name == "wandb" else name
        return None if name in NAMES else find(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    return made


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A suite of two tasks."""
    folder = tmp_path / "own"
    folder.mkdir()
    for name, divisor in (("alike", 2), ("close", 3)):
        pairs = [
            {"text1": a, "text2": WORDS[i // divisor], "score": float(i % 5)} for i, a in enumerate(WORDS)
        ]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    tasks = (f'[[task]]\nname = "{n}"\ntype = "sts"\nfile = "{n}.jsonl"\n' for n in ("alike", "close"))
    (folder / "harness.toml").write_text("".join(tasks))
    return folder


def points(*steps: int) -> list[LoggedValues]:
    return [LoggedValues(order=step, step=step, values={"train/loss": 1 / step}) for step in steps]


def steps(fake: type[FakeTracker], key: str = RUN.id) -> list[int]:
    return [step for step, _ in fake.rows.get(key, [])]


def test_points_are_written_once_and_by_one_process_after_the_other(
    tmp_path: Path, fake: type[FakeTracker]
) -> None:
    with Tracking(["wandb"], tmp_path) as tracking:
        tracking.log_curve(RUN, points(1, 2, 3), live=True)
        tracking.log_curve(RUN, points(1, 2, 3, 4))
    assert steps(fake) == [1, 2, 3, 4]
    assert fake.ends == [(RUN.id, "FINISHED")]
    with contextlib.suppress(KeyboardInterrupt), Tracking(["wandb"], tmp_path) as tracking:
        tracking.log_curve(RUN, points(3, 4, 5), live=True)
        raise KeyboardInterrupt
    assert fake.ends[1:] == [(RUN.id, "KILLED")]
    assert steps(fake) == [1, 2, 3, 4, 5]
    fake.runs.clear()
    with Tracking(["wandb"], tmp_path) as tracking:
        tracking.log_curve(RUN, points(1, 5))
    assert fake.runs == {}, "a run with nothing new is not opened"


def test_a_tracker_that_can_go_back_takes_the_later_values(tmp_path: Path, fake: type[FakeTracker]) -> None:
    fake.rewinds = True
    with Tracking(["wandb"], tmp_path) as tracking:
        tracking.log_curve(RUN, points(1, 2, 3), live=True)
        tracking.log_curve(RUN, points(2, 3), live=True)
        tracking.log_curve(RUN, points(1, 2, 3, 4))
    assert steps(fake) == [1, 2, 3, 2, 3, 4]


def test_a_tracker_that_fails_is_warned_of_once_and_ends_nothing(
    tmp_path: Path, fake: type[FakeTracker], caplog: pytest.LogCaptureFixture
) -> None:
    fake.fails_at = 2
    with Tracking(["wandb", "mlflow"], tmp_path) as tracking:
        for step in (1, 2, 3):
            tracking.log_curve(RUN, points(step), live=True)
    assert (steps(fake), steps(fake.other)) == ([1], [1, 2, 3])
    (warning,) = caplog.messages
    assert warning == (
        "wandb gets nothing more of this run (OSError: No space left on device). The run goes on."
    )


def test_a_damaged_mark_ends_one_tracker(
    tmp_path: Path, fake: type[FakeTracker], caplog: pytest.LogCaptureFixture
) -> None:
    mark = tmp_path / "tracking" / "marks" / f"{RUN.id}.wandb.json"
    mark.parent.mkdir(parents=True)
    mark.write_text("")
    with Tracking(["wandb", "mlflow"], tmp_path) as tracking:
        tracking.log_curve(RUN, points(1), live=True)
    assert (steps(fake), steps(fake.other)) == ([], [1])
    (warning,) = caplog.messages
    assert "wandb gets nothing more of this run (JSONDecodeError" in warning


def test_lines_that_no_driver_has_heard_come_from_the_log(
    tmp_path: Path, fake: type[FakeTracker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those first, up to where the training goes on; a selection stands behind the loss of its step."""
    log = [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.4}, {"step": 2, "score": 0.7}]
    work: Any = SimpleNamespace(spec=SimpleNamespace(log=SimpleNamespace(path=tmp_path)))
    monkeypatch.setattr(module, "Train", SimpleNamespace)
    monkeypatch.setattr(module, "read_log", lambda _path: [*log, {"step": 3, "loss": 9.0}])
    monkeypatch.setattr(module, "_build_training_run", lambda _job: RUN)
    job = Job(key=RUN.id, kind="train", label="", work=work)
    heard: list[str] = []
    with Tracking(["wandb"], tmp_path) as tracking:
        listeners = tracking.extend_listeners(Listeners(event=lambda _job, event: heard.append(event.kind)))
        for event in (
            Event(kind="training", steps=4),
            Event(kind="trained", log=[{"step": 3, "loss": 0.3, "tokens": 20, "seconds": 0.5}]),
            Event(kind="trained", log=[{"step": 4, "loss": float("nan"), "set": "nli", "rate": 0.1}]),
            Event(kind="finished"),
        ):
            listeners.event(job, event)
    assert heard == ["training", "trained", "trained", "finished"]
    assert fake.rows[RUN.id] == [
        (1, {"train/loss": 0.5}),
        (2, {"train/loss": 0.4}),
        (2, {"selection/score": 0.7}),
        (3, {"train/loss": 0.3, "train/tokens_per_second": 40.0, "train/steps_per_second": 2.0}),
        (4, {"train/learning_rate": 0.1}),
    ]
    assert fake.ends == [(RUN.id, "FINISHED")]


def test_events_on_their_way_from_another_machine_keep_their_lines() -> None:
    events = [("a", Event(kind="trained", steps=1, log=[{"step": step}])) for step in (1, 2)]
    ((_, merged),) = merge_events(events)
    assert (merged.steps, [*merged.log]) == (2, [{"step": 1}, {"step": 2}])


def test_scores_and_the_curve_of_a_watch_are_written(
    tmp_path: Path, own: Path, fake: type[FakeTracker], capsys: pytest.CaptureFixture[str]
) -> None:
    for step in (1, 2):
        tiny.folder(tiny.families()["bert"], tmp_path / "run" / f"checkpoint-{step}", seed=step)
    asked = ["--suite", f"local:{own}", "--offline", "--results", tmp_path / "results"]
    asked += ["--track", "wandb", "--cache", tmp_path / "cache"]
    model = tmp_path / "run" / "checkpoint-1"
    assert invoke([*map(str, ["run", "--model", model, *asked, "--json"])]) == 0
    (suite,) = json.loads(capsys.readouterr().out)["suites"]
    ((key, run),) = fake.runs.items()
    assert key.startswith(suite["artifact"][:12])
    assert (run.kind, run.config["encoding.pooling"]) == ("score", "mean")
    ((step, values),) = fake.rows.pop(key)
    names = {f"{suite['suite']}/{name}": score for name, score in suite["columns"].items()}
    assert step == 0
    assert names.items() <= values.items()
    assert values[f"{suite['suite']}/mean"] == suite["mean_over_tasks"]["value"]
    # Again, from records: there is nothing new. A sample of the examples does not take its place.
    assert invoke([*map(str, ["run", "--model", model, *asked])]) == 0
    assert invoke([*map(str, ["run", "--model", model, *asked, "--limit", "5"])]) == 0
    assert fake.rows == {}
    watch = [*map(str, ["watch", tmp_path / "run", *asked, "--once", "--settle", "0"])]
    assert invoke(watch) == 0
    assert fake.ends[-1][1] == "FINISHED"
    (curve,) = fake.rows.values()
    assert [step for step, _ in curve] == [1, 2]
    assert curve[0][1].items() <= values.items()
    assert invoke(watch) == 0
    assert len(curve) == 2


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("tensorboard", "The tracker tensorboard is not installed.\nType: pip install tensorboard"),
        ("wandb,mlflow", "The tracker mlflow is not installed."),
        ("wandbb", "No tracker is called 'wandbb'.\nDid you mean wandb?"),
    ],
)
@pytest.mark.parametrize("command", ["run", "train", "watch"])
def test_what_is_not_installed_is_said_before_any_work(
    command: str, typed: str, message: str, fake: object, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also by a dry run, and of names in a file."""
    place = ["nowhere"] if command == "watch" else ["--model", "minilm", "--dry-run"]
    what = ["--recipe", "simcse"] if command == "train" else ["--suite", "stdlib"]
    assert invoke([command, *place, *what, "--track", typed]) == 2
    assert message in capsys.readouterr().err


def test_a_file_of_a_run_has_its_trackers(
    tmp_path: Path, fake: object, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["run", "--model", "minilm", "--suite", "stdlib", "--dry-run"]
    file = tmp_path / "run.toml"
    file.write_text('track = "wandb,mlflow"\n')
    assert invoke([*asked, "--config", str(file)]) == 2
    assert "mlflow is not installed" in capsys.readouterr().err
    file.write_text('track = ["wandb"]\n')
    assert invoke([*asked, "--config", str(file), "--save", str(tmp_path / "saved.toml")]) == 0
    assert 'track = ["wandb"]' in (tmp_path / "saved.toml").read_text()


def test_no_tracker_is_imported_unless_it_is_written_to() -> None:
    code = "import sys, harness.driver.evaluation, harness.watch.watch, harness.jobs.training_jobs\n"
    code += f"assert not {{*sys.modules}} & {set(NAMES)}"
    subprocess.run([sys.executable, "-c", code], check=True)


@needs_trackers
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_training_that_is_killed_twice_is_one_curve_in_its_trackers(tmp_path: Path, own: Path) -> None:
    """As their own readers see it, equal to the log of the training; its scores are there as well."""
    tiny.folder(tiny.families()["bert"], tmp_path / "tiny")
    rows = [{"anchor": f"{one} {other}", "positive": other} for one in WORDS for other in WORDS]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [sys.executable, "-m", "harness", "run", "--model", "tiny", "--suite", f"local:{own}"]
    command += ["--recipe", "simcse", "--train-data", "pairs.jsonl", "--offline", "--threads", "1"]
    for setting in ("batch_size=4", "epochs=40", "precision=float32", "max_length=8"):
        command += ["--set", setting]
    command += ["--track", "mlflow,tensorboard,trackio", "--track", "wandb", "--checkpoint-minutes", "0.03"]
    python = os.pathsep.join(sys.path)
    own_places = {"MLFLOW_TRACKING_URI": "sqlite:///mlflow.db", "WANDB_MODE": "offline"}
    own_places |= {"TRACKIO_DIR": str(tmp_path / "trackio")}
    environment = {**os.environ, **own_places, "PYTHONPATH": python, "HARNESS_CACHE": str(tmp_path / "cache")}
    results = tmp_path / "results"
    for count in (100, 100):
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
        marks: set[Path] = set()
        ends = time.monotonic() + 120
        written = sum(map(int, [path.read_text() for path in results.glob("tracking/marks/*tensorboard*")]))
        while process.poll() is None and time.monotonic() < ends:
            marks = {*results.glob("tracking/marks/*.tensorboard.json")}
            if any(int(path.read_text()) > written + count for path in marks):
                break
            time.sleep(0.1)
        assert process.poll() is None, "the training was over too early"
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "gets nothing more" not in done.stderr
    (log,) = results.glob("models/*/training/log.jsonl")
    want = [(line["step"], line["loss"]) for line in map(json.loads, log.read_text().splitlines())]
    read: dict[str, Any] = json.loads(
        subprocess.run(
            [sys.executable, "-c", READ, str(results)],
            cwd=tmp_path,
            env=environment,
            check=True,
            capture_output=True,
        ).stdout
    )
    assert [(step, pytest.approx(loss)) for step, loss in want] == [(s, v) for s, v in read["tensorboard"]]
    assert [[*pair] for pair in want] == read["mlflow"]
    # It writes twice a second, so that a kill loses what came after; nothing is there twice.
    steps = [step for step, _ in read["trackio"]]
    assert steps == sorted({*steps})
    assert (len(steps) > 200, steps[-1]) == (True, want[-1][0])
    assert {*map(tuple, read["trackio"])} <= {*want}
    assert read["scores"].keys() == {"alike", "close", "mean", "mean_over_types"}
    assert len([*results.glob("tracking/wandb/offline-run-*/*.wandb")]) >= 2


READ = """
import json, sys
from pathlib import Path
from mlflow import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from trackio.sqlite_storage import SQLiteStorage
(folder,) = Path(sys.argv[1]).glob("tracking/tensorboard/train/*")
board = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
client = MlflowClient()
runs = client.search_runs([client.get_experiment_by_name("encoder-harness").experiment_id])
(train,) = [run for run in runs if run.data.tags["harness.kind"] == "train"]
(score,) = [run for run in runs if run.data.tags["harness.kind"] == "score"]
print(json.dumps({
    "tensorboard": [(one.step, one.value) for one in board.Scalars("train/loss")],
    "mlflow": [(one.step, one.value) for one in client.get_metric_history(train.info.run_id, "train/loss")],
    "trackio": [
        (line["step"], line["train/loss"])
        for name in SQLiteStorage.get_runs("encoder-harness")
        for line in SQLiteStorage.get_logs("encoder-harness", name)
        if "train/loss" in line
    ],
    "scores": {name.rpartition("/")[2]: value for name, value in score.data.metrics.items()},
}))
"""
