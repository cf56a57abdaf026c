from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import numpy as np
import pytest

from fakes import FakeEncoder, FakeSource, SlowEncoder, gated, task
from harness.core.encoding import Settings
from harness.core.errors import HarnessError, UsageError
from harness.core.types import Column, Outcome, Suite, Task
from harness.driver import evaluation
from harness.encoder import sanity
from harness.jobs.context import JobContext
from harness.plan import catalog
from harness.plan.request import Request
from harness.storage.store import Store
from harness.watch.changes import detect_change_points
from harness.watch.state import WATCHES, Watch, WatchEntry, read_watch
from harness.watch.watch import EvaluatedCheckpoint, Scan, WatchListeners, WatchOptions, follow
from stored_records import iter_records


@dataclass(frozen=True)
class Queries(FakeSource):
    """Scores each text as a query, and means over them."""

    def evaluate(self, task: Task, encoder: Any, *, seed: int, data: Path | None) -> Outcome:
        scores = np.abs(encoder.encode(self.texts, role="query")).mean(axis=1).astype(float).tolist()
        count, mean = len(scores), float(np.mean(scores))
        rows: dict[str, list[Any]] = {"split": ["test"] * count, "subset": ["default"] * count}
        rows |= {"example_id": [*self.texts], "replicate": [0] * count, "metric": scores}
        rows |= {"prediction": [str(one) for one in scores], "gold": [""] * count}
        return Outcome(main_score=mean, scores={"test": {"default": {"main_score": mean}}}, examples=rows)


# Following


Write = Callable[..., Path]

pytestmark = pytest.mark.usefixtures("loads", "tasks")


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Models without torch; the names of the artifacts that were loaded."""
    found: list[str] = []

    def load(_desk: JobContext, model: Any, _how: object) -> FakeEncoder:
        found.append(model.name)
        return (SlowEncoder if "slow" in model.name else FakeEncoder)(salt=model.key)

    monkeypatch.setattr(JobContext, "load_encoder", load)
    monkeypatch.setattr(sanity, "check_encoder", lambda *_, **__: gated())
    monkeypatch.setattr(sanity, "require_sane", lambda _: None)
    return found


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    """What the suite "s" has."""
    of: list[Task] = [task("One"), task("Two", texts=("a", "b"))]

    def opened(*_: object) -> list[Suite]:
        return [
            Suite(name="s", title="s", columns=tuple(Column(name=t.name, type="STS", tasks=(t,)) for t in of))
        ]

    monkeypatch.setattr(catalog, "open_suites", opened)
    return of


def asked(tmp_path: Path, source: str = "", **fields: Any) -> WatchOptions:
    own = {"budget": fields.pop("budget", None), "settings": fields.pop("settings", Settings())}
    request = Request(models=(), suites=("s",), results=tmp_path / "results", devices=("cpu",), **own)
    given = {"every": 0.1, "settle": 0.0, "once": True, **fields}
    return WatchOptions(source=source or str(tmp_path / "run"), request=request, **given)


def watched(tmp_path: Path, **fields: Any) -> tuple[Watch, list[tuple[int, int, int]]]:
    """A watch to its end: what it gives, and (step, scored, known) of what it evaluated."""
    ended: list[tuple[int, int, int]] = []

    def note(done: EvaluatedCheckpoint, _watch: Watch) -> None:
        ended.append((done.entry.step, done.new, done.known))

    return follow(asked(tmp_path, **fields), WatchListeners(checkpoint=note)), ended


def test_every_checkpoint_is_evaluated_once(tmp_path: Path, write: Write, loads: list[str]) -> None:
    for name in ("checkpoint-1000", "checkpoint-200"):
        write(name)
    watch, ended = watched(tmp_path)
    assert ended == [(200, 2, 0), (1000, 2, 0)]
    first = watch.checkpoints[0]
    record = next(r for r in iter_records(Store(tmp_path / "results")) if r.model.artifact == first.artifact)
    assert (record.model.name, first.model) == ("run-checkpoint-200", "run-checkpoint-200")
    assert first.scores[record.task.name] == record.main_score
    assert first.records[record.task.name] == record.key
    assert first.mean == pytest.approx(sum(first.scores.values()) / 2)
    assert (first.state, first.there, first.wanted) == ("done", 2, 2)
    assert watched(tmp_path) == (watch, [])
    write("checkpoint-3000")
    assert watched(tmp_path)[1] == [(3000, 2, 0)]
    assert len(loads) == 3


def test_each_checkpoint_is_tested_against_the_one_before(
    tmp_path: Path, write: Write, tasks: list[Task]
) -> None:
    for at, texts in enumerate(("abcdefgh", "ijklmnop")):
        tasks[at] = replace(tasks[at], type="Retrieval", source=Queries(texts=tuple(texts)))
    for step, weights in ((1, 1), (2, 1), (3, 2), (4, 4)):
        write(f"step{step}", weights=weights)
    watch, _ = watched(tmp_path)
    assert watch.checkpoints[0].look is None
    before = watch.checkpoints[0]
    numbers = []
    for one in watch.checkpoints[1:]:
        assert one.look is not None, one.untested
        numbers.append((one.look.number, one.look.verdict == "same"))
        assert one.look.reference == before.step
        assert one.look.delta == pytest.approx((one.mean or 0) - (before.mean or 0))
        before = one if one.look.verdict != "lower" else before
    assert numbers == [(0, True), (1, False), (2, False)]
    assert watch.looks == 2
    write("step4", weights=5)
    again, _ = watched(tmp_path)
    assert again.checkpoints[3].look is not None
    assert (again.checkpoints[3].look.number, again.looks) == (3, 3), "its first look has spent its level"
    shutil.rmtree(tmp_path / "results" / "records")
    write("step5")
    (anew, ended) = watched(tmp_path)
    # Step 2 has the records of step 1; the curve comes before what is new.
    assert ended == [(1, 2, 0), (3, 2, 0), (4, 2, 0), (5, 2, 0)]
    assert [one.look for one in anew.checkpoints[:4]] == [one.look for one in again.checkpoints]
    assert (anew.checkpoints[4].look or before.look).number == anew.looks == 4


def test_a_state_from_before_looks_is_read(tmp_path: Path) -> None:
    old = {"schema": 2, "name": "w", "source": "/run", "suite": "s", "request": {}, "change_points": []}
    old["checkpoints"] = [{"step": 1, "name": "step1", "state": "done", "mean": 0.5}]
    path = tmp_path / "watches" / "w.json"
    path.parent.mkdir()
    path.write_text(json.dumps(old))
    watch = WATCHES.find_document(tmp_path, "w")
    assert (watch.looks, watch.checkpoints[0].look, watch.lower) == (0, None, ())


def test_a_watch_from_before_evaluations_goes_on_with_the_models_own_settings(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    prepare = evaluation.prepare
    monkeypatch.setattr(
        evaluation, "prepare", lambda request: (names.append(request.evaluation), prepare(request))[1]
    )
    write("checkpoint-1")
    watch, _ = watched(tmp_path)
    results = tmp_path / "results"
    old = {name: value for name, value in watch.request.items() if name != "evaluation"}
    WATCHES.write_document(results, watch.name, watch.model_copy(update={"request": old}))
    write("checkpoint-2", weights=2)
    watched(tmp_path)
    assert names == ["recipe", "own"]
    begun = asked(tmp_path)
    with pytest.raises(UsageError, match="evaluation was 'own', here 'other'"):
        follow(replace(begun, request=replace(begun.request, evaluation="other")))


def test_a_watch_that_lost_its_state_finds_the_records(
    tmp_path: Path, write: Write, loads: list[str]
) -> None:
    write("checkpoint-1")
    before, _ = watched(tmp_path)
    (tmp_path / "results" / "watches" / "run.json").unlink()
    after, ended = watched(tmp_path)
    assert ended == [(1, 0, 2)]
    assert after.checkpoints[0].scores == before.checkpoints[0].scores
    assert len(loads) == 1


def forget(tmp_path: Path, entry: WatchEntry, *, damage: bool = False) -> None:
    """Remove or damage the records of a checkpoint."""
    for name, key in entry.records.items():
        path = Store(tmp_path / "results").locate_record(f"x-{entry.artifact[:12]}", name, key)
        content = path.read_text()
        path.unlink()
        if damage:
            path.write_text(content.replace('"main_score"', '"main_scorf"', 1))


@pytest.mark.parametrize("damage", [False, True])
def test_lost_scores_are_measured_again(tmp_path: Path, write: Write, damage: bool) -> None:
    for step in (1, 2):
        write(f"step{step}")
    before, _ = watched(tmp_path)
    forget(tmp_path, before.checkpoints[0], damage=damage)
    assert [one.state for one in read_watch(tmp_path / "results", "run").checkpoints] == ["lost", "done"]
    after, ended = watched(tmp_path)
    assert ended == [(1, 2, 0)]
    assert [(one.state, one.mean) for one in after.checkpoints] == [
        ("done", o.mean) for o in before.checkpoints
    ]


def test_lost_scores_of_a_removed_checkpoint_are_told_and_the_rest_stays(
    tmp_path: Path, write: Write
) -> None:
    for step in (1, 2):
        write(f"step{step}")
    before, _ = watched(tmp_path)
    forget(tmp_path, before.checkpoints[0])
    shutil.rmtree(tmp_path / "run" / "step1")
    looks: list[Scan] = []
    after = follow(asked(tmp_path), WatchListeners(scan=looks.append))
    (lost,) = looks[0].lost
    assert lost.reason == (
        "scores of step 1 are gone: One, Two; its checkpoint is not there any more, so they cannot be "
        "measured again"
    )
    assert [(one.state, one.mean) for one in after.checkpoints] == [
        ("lost", None),
        ("done", before.checkpoints[1].mean),
    ]


def test_scores_that_are_lost_while_a_watch_goes_on_are_measured_again(tmp_path: Path, write: Write) -> None:
    write("step1")
    looks: list[Scan] = []
    ended: list[int] = []

    def looked(found: Scan) -> None:
        looks.append(found)
        if len(looks) == 2:
            forget(tmp_path, read_watch(tmp_path / "results", "run").checkpoints[0])
        if len(looks) == 5:
            write("step2")

    def note(done: EvaluatedCheckpoint, _watch: Watch) -> None:
        ended.append(done.entry.step)

    watch = follow(asked(tmp_path, once=False, until=2), WatchListeners(scan=looked, checkpoint=note))
    assert ended == [1, 1, 2]
    assert [one.state for one in watch.checkpoints] == ["done", "done"]


def test_a_file_that_does_not_tell_the_columns_gets_them_from_the_suite(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch, tasks: list[Task]
) -> None:
    """Both tasks are one column, as of CQADupstack."""

    def opened(*_: object) -> list[Suite]:
        return [Suite(name="s", title="s", columns=(Column(name="both", type="STS", tasks=tuple(tasks)),))]

    monkeypatch.setattr(catalog, "open_suites", opened)
    write("step1")
    before, _ = watched(tmp_path)
    one = before.checkpoints[0]
    assert (one.mean, one.there, one.wanted) == (pytest.approx(sum(one.scores.values()) / 2), 1, 1)
    old = before.dump_output() | {"schema": 2}
    del old["checkpoints"][0]["columns"]
    path = WATCHES.locate_document(tmp_path / "results", "run")
    path.write_text(json.dumps(old))
    assert read_watch(tmp_path / "results", "run").checkpoints[0].mean is None
    shutil.rmtree(tmp_path / "run" / "step1")
    assert watched(tmp_path) == (before, [])
    assert read_watch(tmp_path / "results", "run") == before


def test_the_state_is_whole_after_every_checkpoint(tmp_path: Path, write: Write, loads: list[str]) -> None:
    for step in (1, 2):
        write(f"step{step}")
    seen: list[list[int]] = []

    def note(_done: EvaluatedCheckpoint, watch: Watch) -> None:
        there = read_watch(tmp_path / "results", "run")
        seen.append([one.step for one in there.checkpoints])
        assert there == watch

    follow(asked(tmp_path), WatchListeners(checkpoint=note))
    assert seen == [[1], [1, 2]]


def test_what_is_half_written_is_waited_for_while_others_go_on(tmp_path: Path, write: Write) -> None:
    weights = write("step1") / "model.safetensors"
    write("step2")
    content = weights.read_bytes()
    weights.write_bytes(content[:-1])
    looks: list[Scan] = []
    ended: list[int] = []

    def looked(found: Scan) -> None:
        looks.append(found)
        if len(looks) == 3:
            weights.write_bytes(content)

    def note(done: EvaluatedCheckpoint, _watch: Watch) -> None:
        ended.append(done.entry.step)

    watch = follow(asked(tmp_path, once=False, until=2), WatchListeners(scan=looked, checkpoint=note))
    assert ended == [2, 1]
    assert all("safetensors" in found.waiting[0].reason for found in looks[:3])
    assert [one.state for one in watch.checkpoints] == ["done", "done"]


def test_one_that_stays_broken_is_told_and_never_fatal(tmp_path: Path, write: Write) -> None:
    (write("step1") / "config.json").unlink()
    watch, ended = watched(tmp_path)
    assert ended == []
    assert [(one.state, one.reason) for one in watch.checkpoints] == [("waiting", "it has no config.json.")]
    shutil.rmtree(tmp_path / "run" / "step1")
    assert watched(tmp_path)[0].checkpoints == ()


def test_until_ends_with_the_first_checkpoint_at_or_behind_it(tmp_path: Path, write: Write) -> None:
    for step in (1, 5, 9):
        write(f"step{step}")
    _, ended = watched(tmp_path, once=False, until=4)
    assert [step for step, *_ in ended] == [1, 5]


def test_equal_weights_are_told_and_not_scored_twice(tmp_path: Path, write: Write) -> None:
    for step in (1, 2):
        write(f"step{step}", weights=1)
    watch, ended = watched(tmp_path)
    assert ended == [(1, 2, 0), (2, 0, 2)]
    assert [one.same_as for one in watch.checkpoints] == [None, 1]


def test_other_weights_under_the_same_name_are_evaluated_anew(tmp_path: Path, write: Write) -> None:
    write("step1", weights=1)
    before, _ = watched(tmp_path)
    write("step1", weights=2)
    after, ended = watched(tmp_path)
    assert ended == [(1, 2, 0)]
    assert after.checkpoints[0].artifact != before.checkpoints[0].artifact


def test_a_checkpoint_that_changes_while_it_is_evaluated_is_waited_for(tmp_path: Path, write: Write) -> None:
    from harness.driver import evaluation

    write("step1", weights=1)
    changed: list[int] = []

    def carry_out(prepared: Any) -> Any:
        if not changed:
            write("step1", weights=2)
            changed.append(1)
        return evaluation.execute(prepared)

    states: list[str] = []

    def note(done: EvaluatedCheckpoint, _watch: Watch) -> None:
        states.append(done.entry.state)

    follow(asked(tmp_path), WatchListeners(checkpoint=note, carry_out=carry_out))
    assert states == ["waiting", "done"]


def test_a_checkpoint_that_training_removes_stays_on_the_curve(tmp_path: Path, write: Write) -> None:
    write("step1")
    write("step2")
    before, _ = watched(tmp_path)
    (tmp_path / "run" / "step1" / "model.safetensors").unlink()
    assert watched(tmp_path)[0] == before
    shutil.rmtree(tmp_path / "run" / "step1")
    assert watched(tmp_path)[0] == before


def test_a_failed_checkpoint_has_its_reason_and_the_watch_goes_on(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("step1")
    write("step2")
    plain = JobContext.load_encoder

    def load(context: JobContext, model: Any, how: Any) -> Any:
        if model.name == "run-step1":
            raise HarnessError("the gate refuses it")
        return plain(context, model, how)

    monkeypatch.setattr(JobContext, "load_encoder", load)
    watch, _ = watched(tmp_path)
    assert [one.state for one in watch.checkpoints] == ["failed", "done"]
    assert watch.checkpoints[0].reason == "One, Two: the gate refuses it"
    assert watch.checkpoints[0].mean is None
    monkeypatch.setattr(JobContext, "load_encoder", plain)
    again, ended = watched(tmp_path)
    assert ended == [(1, 2, 0)]
    assert [one.state for one in again.checkpoints] == ["done", "done"]


def test_a_task_that_fails_keeps_the_checkpoint_out_of_the_curve(
    tmp_path: Path, write: Write, tasks: list[Task]
) -> None:
    tasks[1] = task("Two", error="no such thing")
    write("step1")
    watch, _ = watched(tmp_path)
    (one,) = watch.checkpoints
    assert (one.state, one.mean, one.there, one.wanted) == ("failed", None, 1, 2)
    assert one.reason.startswith("Two: ")
    assert list(one.scores) == ["One"]
    assert watch.curve == ()


def test_a_budget_leaves_a_checkpoint_partial_and_it_is_gone_on_with(
    tmp_path: Path, write: Write, tasks: list[Task]
) -> None:
    tasks[1] = task("Two", texts=("c", "d"))
    write("slow1")
    (tmp_path / "run" / "slow1").rename(tmp_path / "run" / "slow-step1")
    watch, _ = watched(tmp_path, budget=0.1)
    (one,) = watch.checkpoints
    assert (one.state, one.mean, one.there, one.wanted) == ("partial", None, 0, 2)
    assert one.reason == "not reached within the budget: One, Two"
    watch, _ = watched(tmp_path, budget=0.1)  # what was encoded is known: One is scored, Two encoded
    (one,) = watch.checkpoints
    assert (one.state, one.mean, one.there) == ("partial", None, 1)
    assert watch.curve == ()
    watch, ended = watched(tmp_path, once=False, until=1, budget=0.1)
    assert ended[-1] == (1, 1, 1)
    assert watch.checkpoints[0].state == "done"


def test_what_is_new_goes_before_what_is_partial(tmp_path: Path, write: Write) -> None:
    write("slow-step1")
    watched(tmp_path, budget=0.1)
    write("slow-step2")
    _, ended = watched(tmp_path, budget=60.0)
    assert [step for step, *_ in ended] == [2, 1]


def test_another_suite_or_source_under_the_same_name_is_refused(tmp_path: Path, write: Write) -> None:
    write("step1")
    watched(tmp_path)
    with pytest.raises(UsageError, match="seed was 42, here 7") as refused:
        watched(tmp_path, settings=Settings(seed=7))
    assert "--name" in str(refused.value)
    one = asked(tmp_path)
    other = replace(one, request=replace(one.request, suites=("t",)))
    with pytest.raises(UsageError, match="suite was 's', here 't'"):
        follow(other)
    (tmp_path / "elsewhere" / "run").mkdir(parents=True)
    with pytest.raises(UsageError, match="source was"):
        watched(tmp_path, source=str(tmp_path / "elsewhere" / "run"))
    assert watched(tmp_path, settings=Settings(seed=7), name="seven")[1] == [(1, 2, 0)]


def test_a_second_process_at_the_same_watch_is_refused(tmp_path: Path, write: Write) -> None:
    write("step1")
    refused: list[str] = []

    def second() -> None:
        try:
            watched(tmp_path)
        except UsageError as error:
            refused.append(error.message)

    def note(*_: object) -> None:
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()

    follow(asked(tmp_path), WatchListeners(checkpoint=note))
    assert refused == [f"Another process watches run with the results in {tmp_path / 'results'}."]
    assert watched(tmp_path)[1] == []


def test_an_unknown_prompt_is_refused_before_anything(tmp_path: Path, write: Write) -> None:
    with pytest.raises(UsageError, match="qeury"):
        watched(tmp_path, settings=Settings(prompts={"qeury": "q"}))
    assert not (tmp_path / "results" / "watches").exists()


def test_ctrl_c_keeps_what_was_finished(tmp_path: Path, write: Write) -> None:
    write("step1")
    write("step2")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        follow(asked(tmp_path), WatchListeners(checkpoint=stop))
    assert watched(tmp_path)[1] == [(2, 2, 0)]


def test_other_data_begins_another_curve(tmp_path: Path, write: Write, tasks: list[Task]) -> None:
    write("step1")
    watched(tmp_path)
    tasks[0] = replace(tasks[0], data=replace(tasks[0].data, content="d" * 8))
    write("step2")
    watch, _ = watched(tmp_path)
    assert [one.step for one in watch.curve] == [2]
    assert all(one.mean is not None for one in watch.checkpoints)


def test_a_drop_is_flagged_at_its_step(tmp_path: Path) -> None:
    scores = [0.50, 0.501, 0.499, 0.50, 0.502, 0.498, 0.40, 0.50]
    entries = tuple(
        WatchEntry(step=100 * n, name=f"step{n}", state="done", mean=score)
        for n, score in enumerate(scores, 1)
    )
    watch = Watch(name="w", source="/run", suite="s", request={}, checkpoints=entries)
    (one,) = detect_change_points(watch)
    assert (one.step, one.last, one.kind) == (700, 700, "drop")
    assert one.size == pytest.approx(0.1, abs=0.003)
    assert one.p < 0.001


def test_a_repositorys_revisions_are_evaluated_as_commits(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots = {}
    for step in (1, 2):
        commit = str(step) * 40
        snapshots[commit] = (tmp_path / "hub" / commit).absolute()
        shutil.copytree(write(f"step{step}"), snapshots[commit])
    answers: list[list[str] | Exception] = [
        ["main", "step1"],
        ["main", "step1"],
        ConnectionError("down"),
        ["main", "step1", "step2"],
    ]

    def listed(_api: object, _repository: str) -> SimpleNamespace:
        now = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(now, Exception):
            raise now
        refs = [SimpleNamespace(name=name, target_commit=name[-1] * 40) for name in now]
        return SimpleNamespace(branches=refs, tags=[])

    def told(_api: object, _repository: str, revision: str) -> SimpleNamespace:
        return SimpleNamespace(sha=revision, siblings=())

    downloaded: list[tuple[str, str]] = []

    def download(repository: str, revision: str, **_: object) -> str:
        downloaded.append((repository, revision))
        return str(snapshots[revision])

    monkeypatch.setattr(huggingface_hub.HfApi, "list_repo_refs", listed)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", told)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    troubles: list[str] = []
    listeners = WatchListeners(error=lambda error: troubles.append(error.message))
    watch = follow(asked(tmp_path, "org/name", once=False, until=2), listeners)
    assert watch.name == "org--name"
    assert [(one.step, one.revision, one.model) for one in watch.checkpoints] == [
        (1, "1" * 40, "org/name"),
        (2, "2" * 40, "org/name"),
    ]
    assert downloaded == [("org/name", "1" * 40), ("org/name", "2" * 40)]
    assert troubles == ["No folder is at org/name, and the hub does not tell its revisions: down."]
