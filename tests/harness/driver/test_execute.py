from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from safetensors.numpy import load

from fakes import FakeEncoder, SlowEncoder, artifact, encoding, gated, task
from harness.core import files
from harness.core.encoding import Encoding
from harness.core.errors import DataError, ModelError, StoreError
from harness.core.types import Column, Suite, SuiteOptions, Task
from harness.data.locate import DataSettings
from harness.driver.execute import Driver, Listeners, Result
from harness.driver.report.run import Report
from harness.encoder import sanity
from harness.executors.executor import Executor, Finished, Listener
from harness.executors.local import LIBRARIES, LocalExecutor, Subprocess
from harness.jobs import context
from harness.jobs.context import Event, JobContext, WorkerLimits
from harness.jobs.jobs import Job
from harness.plan import catalog
from harness.plan.plan import ConfiguredModel, Plan
from harness.plan.request import PreparedRun, Request
from harness.results.scores import score_text
from harness.storage.record import Record
from harness.storage.remote_and_leases import Leases
from harness.storage.store import Store
from harness.storage.vectors import EmbeddingCache
from stored_records import iter_records
from worker_jobs import Greedy, LookThenAsk, Say

Encoders = dict[str, FakeEncoder]


@pytest.fixture
def encoders(monkeypatch: pytest.MonkeyPatch) -> Encoders:
    """Fake models by artifact key; loading one looks it up."""
    known: Encoders = {}

    def load(_desk: JobContext, model: object, _how: object) -> FakeEncoder:
        return known.setdefault(model.key, FakeEncoder(salt=model.key))  # type: ignore[attr-defined]

    monkeypatch.setattr(JobContext, "load_encoder", load)
    monkeypatch.setattr(sanity, "check_encoder", lambda *_, **__: gated())
    monkeypatch.setattr(sanity, "require_sane", lambda _: None)
    return known


def suite_of(*tasks: Task) -> Suite:
    return Suite(
        name="s", title="s", columns=tuple(Column(name=t.name, type=t.type, tasks=(t,)) for t in tasks)
    )


def plan(
    tmp_path: Path,
    *tasks: Task,
    keys: tuple[str, ...] = ("a" * 64,),
    how: Encoding | None = None,
    suites: Sequence[Suite] = (),
    **options: Any,
) -> Plan:
    subjects = [ConfiguredModel(artifact=artifact(tmp_path, key=k), encoding=how or encoding()) for k in keys]
    given = {"store": Store(tmp_path / "r"), "settings": DataSettings(cache=tmp_path / "cache"), **options}
    return Plan.make(subjects, suites or [suite_of(*tasks)], **given)


def run(tmp_path: Path, planned: Plan, **options: object) -> tuple[Driver, tuple[Result, ...]]:
    made = Driver(planned, store=Store(tmp_path / "r"), cache=tmp_path / "cache", **options)  # type: ignore[arg-type]
    return made, made.run()


def record_of(result: Result) -> Record:
    assert result.record is not None
    return result.record


def report_of(tmp_path: Path, planned: Plan, results: tuple[Result, ...], suites: Sequence[Suite]) -> Report:
    subjects = (planned.cells[0].subject,)
    prepared = PreparedRun(
        request=Request(models=(), suites=()), asked=(), subjects=subjects, suites=tuple(suites),
        plan=planned, store=Store(tmp_path / "r"), cache=tmp_path,
    )  # fmt: skip
    return Report(prepared=prepared, results=results, texts_encoded=0, tokens_encoded=0)


def test_a_run_encodes_scores_and_records(tmp_path: Path, encoders: Encoders) -> None:
    made, (result,) = run(tmp_path, plan(tmp_path, task()))
    assert result.how == "done"
    assert made.texts_encoded == 3  # both sides have one prompt and one tower: each text once
    encoder = encoders["a" * 64]
    expected, record = 2 * encoder.encode(["one", "two", "three"]).mean(), record_of(result)
    assert record.main_score == pytest.approx(float(expected))
    assert record.provenance["texts"] == 6
    assert record.provenance["texts_encoded"] == 3
    assert record.provenance["prompts_applied"] == {"query": "", "document": ""}
    assert record.examples is not None
    assert record.examples.rows == 1


def test_a_damaged_shard_is_encoded_again_and_the_score_is_right(tmp_path: Path, encoders: Encoders) -> None:
    _, (first,) = run(tmp_path, plan(tmp_path, task()))
    (shard,) = (tmp_path / "cache").rglob("*.safetensors")
    shard.write_bytes(shard.read_bytes()[:-24] + bytes(24))
    made, (second,) = run(tmp_path, plan(tmp_path, task(), force=True), again=True)
    assert made.texts_encoded == 3
    assert record_of(second).main_score == record_of(first).main_score


class ClockedEncoder(FakeEncoder):
    """Six seconds pass on the clock with each vector."""

    clock = 0.0

    def encode(self, texts: Sequence[str], *, keeper: Any = None, **options: Any) -> Any:
        found = super().encode(texts, **options)
        for text, row in zip(texts, found, strict=True):
            ClockedEncoder.clock += 6
            keeper.add_vectors([text], row[None])
            if text == "broken":
                raise ModelError("no")
        return found


@pytest.mark.parametrize(("last", "kept"), [("seven", [3, 3, 1]), ("broken", [3, 3, 1])])
def test_vectors_are_kept_every_15_seconds(
    tmp_path: Path, encoders: Encoders, monkeypatch: pytest.MonkeyPatch, last: str, kept: list[int]
) -> None:
    encoders["a" * 64] = ClockedEncoder(salt="a" * 64)
    monkeypatch.setattr(context.time, "monotonic", lambda: ClockedEncoder.clock)
    heard: list[int] = []
    write = EmbeddingCache.write_shard

    def count(root: Path, identity: Mapping[str, object], content: bytes, *_: object) -> None:
        write(root, identity, content)
        heard.append(len(load(content)["keys"]))

    monkeypatch.setattr(EmbeddingCache, "write_shard", staticmethod(count))
    texts = ("one", "two", "three", "four", "five", "six", last)
    run(tmp_path, plan(tmp_path, task(texts=texts)))
    assert heard == kept


def test_again_encodes_nothing_and_changes_nothing(tmp_path: Path, encoders: Encoders) -> None:
    run(tmp_path, plan(tmp_path, task()))
    calls = len(encoders["a" * 64].calls)
    planned = plan(tmp_path, task())
    assert planned.jobs == ()
    made, (result,) = run(tmp_path, planned)
    assert (result.how, made.texts_encoded, len(encoders["a" * 64].calls)) == ("cached", 0, calls)


def test_vectors_are_dropped_once_a_model_has_all_its_scores(tmp_path: Path, encoders: Encoders) -> None:
    """Also where every score was there; a model with a failed score keeps them."""
    cache, keys = tmp_path / "cache", ("a" * 64, "b" * 64)
    made, _ = run(tmp_path, plan(tmp_path, task(), task("Other"), keys=keys), drop_vectors=True)
    assert made.vectors_dropped > 0
    assert list(cache.rglob("*.safetensors")) == []
    run(tmp_path, plan(tmp_path, task(), force=True), again=True)
    assert list(cache.rglob("*.safetensors")) != []
    made, (result,) = run(tmp_path, plan(tmp_path, task()), drop_vectors=True)
    assert result.how == "cached"
    assert made.vectors_dropped > 0
    made, _ = run(tmp_path, plan(tmp_path, task("New"), task("Bad", error="no")), drop_vectors=True)
    assert made.vectors_dropped == 0
    assert list(cache.rglob("*.safetensors")) != []


def test_scores_on_float16_do_not_depend_on_what_was_cached(tmp_path: Path, encoders: Encoders) -> None:
    half = encoding(vectors="float16")
    planned = [plan(tmp_path, task(), how=half, force=True) for _ in range(2)]
    found = [record_of(run(tmp_path, one, again=True)[1][0]) for one in planned]
    _, (result,) = run(tmp_path, plan(tmp_path, task()))
    whole = record_of(result)
    assert found[0].main_score == found[1].main_score != whole.main_score
    assert found[0].main_score == pytest.approx(whole.main_score, abs=1e-3)  # type: ignore[arg-type]
    assert found[0].key != whole.key


def test_a_run_removes_what_killed_ones_have_left_anywhere_in_the_cache(
    tmp_path: Path, encoders: Encoders
) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    name = f".a.json.{files.get_host_name()}-{dead.pid}-00000000.tmp"
    leftovers = [tmp_path / "cache" / part / name for part in (".", "verdicts", "vectors/a/b")]
    for path in leftovers:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    run(tmp_path, plan(tmp_path, task()))
    assert not any(path.exists() for path in leftovers)


def test_another_task_reuses_vectors(tmp_path: Path, encoders: Encoders) -> None:
    run(tmp_path, plan(tmp_path, task()))
    made, _ = run(tmp_path, plan(tmp_path, task("Other", texts=("two", "four"))))
    assert made.texts_encoded == 1
    assert encoders["a" * 64].calls[-1] == ("", ("four",))


def test_query_and_document_prompts_are_encoded_apart(tmp_path: Path, encoders: Encoders) -> None:
    prompted = encoding(prompts=(("query", "q: "), ("document", "d: ")))
    made, (result,) = run(tmp_path, plan(tmp_path, task(), how=prompted))
    assert made.texts_encoded == 6
    encoder = encoders["a" * 64]
    assert [call[0] for call in encoder.calls] == ["q: ", "d: "]
    texts = ["one", "two", "three"]
    expected = encoder.encode(texts, prompt="q: ").mean() + encoder.encode(texts, prompt="d: ").mean()
    assert record_of(result).main_score == pytest.approx(float(expected))


def test_two_models_in_both_orders_score_as_alone(tmp_path: Path, encoders: Encoders) -> None:
    keys = ("a" * 64, "b" * 64)
    alone = {}
    for key in keys:
        _, (result,) = run(tmp_path / key, plan(tmp_path / key, task(), keys=(key,)))
        alone[key] = result.record.main_score if result.record else None
    assert alone["a" * 64] != alone["b" * 64]
    for order in (keys, keys[::-1]):
        place = tmp_path / order[0] / "both"
        _, results = run(place, plan(place, task(), keys=order))
        assert {r.cell.subject.artifact.key: r.record.main_score for r in results if r.record} == alone


def test_a_failed_task_is_recorded_the_rest_goes_on_and_it_is_tried_again(
    tmp_path: Path, encoders: Encoders
) -> None:
    tasks = (task("Bad", error="boom"), task("Good"))
    _, (bad, good) = run(tmp_path, plan(tmp_path, *tasks))
    assert (bad.how, good.how) == ("failed", "done")
    (recorded,) = iter_records(Store(tmp_path / "r"), failed=True)
    assert recorded.error is not None
    assert (recorded.error.kind, recorded.error.message) == ("RuntimeError", "boom")
    assert "in evaluate" in recorded.error.traceback
    again = plan(tmp_path, *tasks)
    assert [c.task.name for c in again.open] == ["Bad"]


def test_fail_fast_stops_at_the_first_failure(tmp_path: Path, encoders: Encoders) -> None:
    planned = plan(tmp_path, task("Bad", error="boom"), task("Good"))
    _, (bad, good) = run(tmp_path, planned, fail_fast=True)
    assert (bad.how, good.how) == ("failed", "stopped")


def test_a_model_the_gate_refuses_fails_its_tasks_and_no_other_model(
    tmp_path: Path, encoders: Encoders, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(encoder: FakeEncoder, *_: object, **__: object) -> SimpleNamespace:
        return gated(*["constant"] * encoder.salt.startswith("a"))

    def require(report: SimpleNamespace) -> None:
        if report.failures:
            raise ModelError("constant embeddings")

    monkeypatch.setattr(sanity, "check_encoder", refuse)
    monkeypatch.setattr(sanity, "require_sane", require)
    _, (a, b) = run(tmp_path, plan(tmp_path, task(), keys=("a" * 64, "b" * 64)))
    assert (a.how, b.how) == ("failed", "done")
    assert a.failure is not None
    assert a.failure.message == "constant embeddings"
    assert list(iter_records(Store(tmp_path / "r"), failed=True)) == []


def test_force_runs_again_and_takes_the_place(tmp_path: Path, encoders: Encoders) -> None:
    _, (first,) = run(tmp_path, plan(tmp_path, task()))
    _, (second,) = run(tmp_path, plan(tmp_path, task(), force=True), again=True)
    assert (first.how, second.how) == ("done", "done")
    assert record_of(second).provenance["texts_encoded"] == 0
    assert len(list(iter_records(Store(tmp_path / "r")))) == 1


@pytest.mark.parametrize("rows", [(), ("a", None), ("a", 3)])
def test_rows_that_are_no_text_are_named(
    tmp_path: Path, encoders: Encoders, rows: tuple[object, ...]
) -> None:
    _, (result,) = run(tmp_path, plan(tmp_path, task(texts=rows)))
    assert result.how == "failed"
    assert result.failure is not None
    assert isinstance(result.failure.fault, DataError)
    assert "number 2 of 2" in result.failure.message if rows else "empty" in result.failure.message


def test_a_store_that_cannot_be_written_stops_the_run(
    tmp_path: Path, encoders: Encoders, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise StoreError("disk full")

    monkeypatch.setattr(Store, "put", full)
    with pytest.raises(StoreError):
        run(tmp_path, plan(tmp_path, task()))
    assert list((tmp_path / "r" / "leases").iterdir()) == []


def test_work_that_another_process_holds_is_waited_for_and_shared(tmp_path: Path, encoders: Encoders) -> None:
    planned = plan(tmp_path, task())
    key = planned.cells[0].key
    _, (elsewhere,) = run(tmp_path / "other", plan(tmp_path / "other", task()))
    assert elsewhere.record is not None
    other = Leases(tmp_path / "r" / "leases")
    assert other.claim(key)

    def finish() -> None:
        time.sleep(1.0)
        Store(tmp_path / "r").put(planned.cells[0].subject.artifact.slug, elsewhere.record)  # type: ignore[arg-type]
        other.release_leases()

    thread = threading.Thread(target=finish)
    thread.start()
    made, (result,) = run(tmp_path, planned)
    thread.join()
    assert (result.how, made.texts_encoded) == ("shared", 0)


def test_events_tell_what_is_going_on(tmp_path: Path, encoders: Encoders) -> None:
    heard: list[tuple[str, str, int]] = []

    def event(job: Job, event: Event) -> None:
        heard.append((job.kind, event.kind, event.texts))

    run(tmp_path, plan(tmp_path, task()), listeners=Listeners(event=event))
    assert ("encode", "encoding", 3) in heard
    assert ("encode", "encoded", 3) in heard
    assert heard[0][:2] == ("resolve", "placed")


def test_ctrl_c_keeps_what_was_finished(tmp_path: Path, encoders: Encoders) -> None:
    def stop(result: Result) -> None:
        raise KeyboardInterrupt

    planned = plan(tmp_path, task("A"), task("B"))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, planned, listeners=Listeners(result=stop))
    again = plan(tmp_path, task("A"), task("B"))
    assert [c.task.name for c in again.open] == ["B"]
    assert list((tmp_path / "r" / "leases").iterdir()) == []


def job(do: str = "") -> Job:
    return Job(key=f"job-{do}", kind="encode", label="x", work=Say(do))


@pytest.fixture
def apart(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Subprocess, list[str]]]:
    """A worker in a process of its own, and what it said; it imports no libraries unless the test says so."""
    heard: list[str] = []
    worker = Subprocess(
        device="cpu",
        cache=tmp_path,
        listener=lambda key, event: heard.append(f"{key} {event.text}"),
        limits=WorkerLimits(),
        libraries=getattr(request, "param", ()),
    )
    yield worker, heard
    worker.close_worker()


def wait(worker: Subprocess) -> Finished:
    until = time.time() + 60
    while time.time() < until:
        finished = worker.poll_worker(0.2)
        if finished is not None:
            return finished
    raise TimeoutError


@pytest.mark.parametrize("apart", [LIBRARIES], indirect=True)
def test_a_worker_apart_runs_jobs_in_its_own_process(apart: tuple[Subprocess, list[str]]) -> None:
    worker, heard = apart
    worker.start(job(), {"k": {"n": b"input"}}, ("cpu",))
    pid, inputs = json.loads(wait(worker).output["pid"])
    assert pid != os.getpid()
    assert inputs == {"k": {"n": "input"}}
    assert heard == ["job- cpu"]
    assert worker.free


def test_a_worker_apart_passes_errors_on_and_survives_death(apart: tuple[Subprocess, list[str]]) -> None:
    worker, _ = apart
    worker.start(job("fail"), {}, ("cpu",))
    failure = wait(worker).failure
    assert failure is not None
    assert isinstance(failure.fault, DataError)
    assert (failure.message, failure.hint) == ("no", "do this")
    for how in ("die", "die while talking"):
        worker.start(job(how), {}, ("cpu",))
        failure = wait(worker).failure
        assert failure is not None
    assert failure.kind == "WorkerDied"
    worker.start(job(), {}, ("cpu",))
    assert wait(worker).failure is None


@pytest.mark.parametrize(("fits", "tried"), [(16, "64 32 16"), (8, "64 32 16"), (64, "64")])
def test_a_job_that_runs_out_of_memory_is_tried_again_with_smaller_batches(
    tmp_path: Path, fits: int, tried: str
) -> None:
    job = Job(key="k", kind="encode", label="x", work=Greedy(tmp_path / "log", fits))
    notes: list[str] = []

    def opened(listener: Listener) -> Executor:
        limits = WorkerLimits()
        return LocalExecutor(
            ("cpu", "cpu"), cache=tmp_path / "cache", listener=listener, limits=limits, libraries=()
        )

    made = Driver(
        Plan(cells=(), jobs=(job,), keys={}),
        store=Store(tmp_path / "r"),
        cache=tmp_path / "cache",
        open_executor=opened,
        listeners=Listeners(event=lambda _job, event: notes.append(event.text)),
    )
    failures = made.run_trainings()
    assert (tmp_path / "log").read_text().split() == tried.split()
    assert [failure.kind for failure in failures.values()] == ["WorkerDied"] * (fits == 8)
    assert len([note for note in notes if "batches of half the size" in note]) == len(tried.split()) - 1


def test_a_part_that_fails_leaves_no_work_to_the_others(tmp_path: Path) -> None:
    """They share the claim of the score that needs them all."""
    works = {
        "first": Say("fail"),
        "second": Greedy(tmp_path / "log", 64),
        "score": Greedy(tmp_path / "log", 64),
    }
    jobs = tuple(
        Job(
            key=key,
            kind="score" if key == "score" else "encode",
            label=key,
            work=work,
            inputs=("first", "second") if key == "score" else (),
            claim="score",
        )
        for key, work in works.items()
    )
    made = Driver(Plan(cells=(), jobs=jobs, keys={}), store=Store(tmp_path / "r"), cache=tmp_path / "cache")
    assert [*made.run_trainings()] == ["first"]
    assert not (tmp_path / "log").exists()


def test_a_worker_apart_knows_what_it_encoded_while_scoring(apart: tuple[Subprocess, list[str]]) -> None:
    """The driver writes vectors in its own time: here never."""
    worker, _ = apart
    worker.start(Job(key="k", kind="score", label="x", work=LookThenAsk(artifact(Path("m")))), {}, ("cpu",))
    finished = wait(worker)
    assert finished.failure is None
    expected = float(FakeEncoder().encode(["one", "two", "one"]).sum())
    assert json.loads(finished.output["total"]) == [pytest.approx(expected), 2]


def test_tasks_of_one_name_in_two_suites_keep_their_own_scores(tmp_path: Path, encoders: Encoders) -> None:
    one = task("Find", texts=("a",))
    other = replace(task("Find", texts=("b",)), data=replace(one.data, content="d" * 8))
    suites = (suite_of(one), suite_of(other))
    planned = plan(tmp_path, suites=suites)
    report = report_of(tmp_path, planned, run(tmp_path, planned)[1], suites)
    vectors = FakeEncoder(salt="a" * 64)
    found = [report.compute_aggregates(planned.cells[0].subject, suite).columns["Find"] for suite in suites]
    assert found == [pytest.approx(2 * float(vectors.encode([text]).mean())) for text in ("a", "b")]


@pytest.mark.parametrize(
    ("names", "asked"), [(("mteb:One", "mteb:Two"), ()), (("mteb",), ("One", "Two"))], ids=["suites", "tasks"]
)
def test_tasks_that_are_asked_for_by_name_have_one_table_with_a_mean_of_their_own(
    tmp_path: Path,
    encoders: Encoders,
    names: tuple[str, ...],
    asked: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each as a suite, or out of a suite of three; nowhere is it the suite's mean."""
    every = [task(name) for name in ("One", "Two", "Three")]
    suites = [replace(suite_of(one), name=f"mteb:{one.name}") for one in every[:2]]
    if asked:
        whole = replace(suite_of(*every), name="mteb", title="MTEB")
        monkeypatch.setattr(catalog, "open_suite", lambda *_: whole)
        suites = catalog.open_suites(names, SuiteOptions(tasks=asked))
    assert [suite.name for suite in suites] == list(names)
    planned = plan(tmp_path, suites=suites)
    _, results = run(tmp_path, planned)
    report = report_of(tmp_path, planned, results, suites)
    (shown,) = report.to_json()["suites"]
    scores = [result.record.main_score for result in results if result.record]
    assert shown["mean_over_requested"] == {"value": pytest.approx(sum(scores) / 2), "there": 2, "wanted": 2}
    assert shown["mean_over_tasks"]["wanted"] == (3 if asked else 2)
    out = io.StringIO()
    report.print(Console(file=out, width=200))
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    assert lines[0] == f"{'2 of the 3 tasks of MTEB' if asked else '2 tasks of mteb'}, scores × 100"
    assert f"mean over the 2 tasks asked for {score_text(sum(scores) / 2)} (2 of 2)" in lines
    assert ("not the mean of MTEB: not to be ranked beside it" in lines) == bool(asked)
    assert not any("mean over t" in line and "the 2" not in line for line in lines)


def test_a_trial_is_done_again_as_final(tmp_path: Path, encoders: Encoders) -> None:
    hows = []
    for purpose in ("trial", "final", "trial"):
        _, (result,) = run(tmp_path, plan(tmp_path, task(), purpose=purpose))
        hows.append((result.how, result.record and result.record.purpose))
    assert hows == [("done", "trial"), ("done", "final"), ("cached", "final")]


def test_the_rate_counts_the_time_spent_encoding_while_scoring(tmp_path: Path, encoders: Encoders) -> None:
    """Nine tokens in an encoding of 0.2 s: 45 a second at most, whichever job encoded them."""

    encoders["a" * 64] = SlowEncoder()
    _, (result,) = run(tmp_path, plan(tmp_path, task()))
    assert 0 < record_of(result).provenance["tokens_per_second"] <= 45
    assert record_of(result).provenance["seconds"]["encode"] >= 0.2


def test_after_the_budget_no_job_is_started_and_the_next_run_goes_on(
    tmp_path: Path, encoders: Encoders
) -> None:
    """Each of two runs ends one encoding after its budget; what was encoded is known in the next."""
    encoders["a" * 64] = SlowEncoder()
    tasks = task("One", texts=("a",)), task("Two", texts=("b",))
    hows = []
    for budget in (0.1, 0.1, None):
        _, results = run(tmp_path, plan(tmp_path, *tasks), budget=budget)
        hows.append([result.how for result in results])
    assert hows == [["stopped", "stopped"], ["done", "stopped"], ["cached", "done"]]
    assert list((tmp_path / "r" / "leases").iterdir()) == []


def test_a_budget_that_suffices_changes_nothing(tmp_path: Path, encoders: Encoders) -> None:
    _, results = run(tmp_path, plan(tmp_path, task("A"), task("B")), budget=60.0)
    assert [result.how for result in results] == ["done", "done"]


def test_plan_leaves_out_what_cannot_run(tmp_path: Path) -> None:
    lost = replace(task("Lost"), data=replace(task().data, path="org/name", revision="r", content=""))
    planned = plan(tmp_path, lost, task(), settings=DataSettings(offline=True, cache=tmp_path))
    assert [c.task.name for c in planned.impossible] == ["Lost"]
    assert [c.task.name for c in planned.open] == ["Fake"]
    assert "harness data pull" in str(planned.impossible[0].problem)


def test_notes_are_told_once_with_their_tasks(tmp_path: Path, encoders: Encoders) -> None:
    """One model's note on a task does not hide another's."""
    planned = plan(tmp_path, task("One"), task("Two"), keys=("a" * 64, "b" * 64))
    _, results = run(tmp_path, planned)
    own = {("a", "One"): ["of a"], ("a", "Two"): ["of a"], ("b", "One"): ["of b"], ("b", "Two"): []}

    def noted(result: Result) -> Result:
        notes = ["everywhere", *own[result.cell.subject.artifact.key[0], result.cell.task.name]]
        changed = {**record_of(result).provenance, "notes": notes}
        return replace(result, record=record_of(result).model_copy(update={"provenance": changed}))

    report = Report(
        prepared=None,  # type: ignore[arg-type]
        results=tuple(map(noted, results)),
        texts_encoded=0,
        tokens_encoded=0,
    )
    assert report.notes == ("everywhere", "One, Two: of a", "One: of b")
