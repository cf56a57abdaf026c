"""The display of a run's progress, by a clock that the test sets."""

from __future__ import annotations

import io
import itertools
import re
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from fakes import artifact, encoding, record, task
from harness.core.keys import Lineage, ParentPart
from harness.driver.execute import Result
from harness.driver.progress import Follower, _format_stage_lines, follow_events
from harness.executors.run_log import Node
from harness.jobs.context import Event
from harness.jobs.jobs import Job, JobKind, RecordLocation, Resources
from harness.jobs.recipe import RecipePlan
from harness.plan.plan import ConfiguredModel, Plan, PlannedScore
from harness.results.cost.duration import TimeRange

MODEL = ConfiguredModel(artifact=artifact(Path("tiny")), encoding=encoding())
DONE = record(task("RTE"), 0.5, seconds={"train": 3700})


def job(key: str, of: str = "RTE", kind: JobKind = "finetune") -> Job:
    place = RecordLocation(artifact="tiny", task=of, purpose="trial")
    return Job(key=key, kind=kind, label=f"{of}, run {key}", work=None, claim=key, place=place)  # type: ignore[arg-type]


class Watched:
    """A follower of fake runs, with the lines that it printed."""

    def __init__(
        self,
        *jobs: Job,
        known: tuple[str, ...] = (),
        terminal: bool = False,
        recipe: bool = True,
        time: TimeRange | None = None,
        subsets: tuple[str, ...] = ("default",),
    ) -> None:
        self.seconds = 0.0
        self.out = io.StringIO()
        how = RecipePlan(identity={}, jobs=jobs) if recipe else None
        cell = PlannedScore(
            subject=MODEL,
            task=replace(task("RTE"), subsets=subsets),
            seed=42,
            key="score",
            identity={},
            recipe_plan=how,
        )
        plan = Plan(cells=(cell,), jobs=jobs, keys={}, known=frozenset(known), time=time)
        console = Console(file=self.out, width=100, force_terminal=terminal)
        self.follower = Follower(plan, console=console, clock=lambda: self.seconds)
        self.cell = cell

    def begin(self, one: Job, steps: int, *, load: float = 0.0) -> None:
        self.follower.listeners.event(one, Event(kind="stage", text="training"))
        self.seconds += load
        self.follower.listeners.event(one, Event(kind="training", steps=steps))

    def step(self, one: Job, steps: int, *, after: float, loss: str = "") -> None:
        self.seconds += after
        self.follower.listeners.event(one, Event(kind="trained", text=loss, steps=steps))

    def end(self, one: Job, *, after: float = 0.0) -> None:
        self.seconds += after
        self.follower.listeners.trained(one, DONE)

    @property
    def left(self) -> float | None:
        found = self.follower.forecast.estimate_time_left()
        return None if found is None else found.seconds

    def lines(self) -> list[str]:
        return self.out.getvalue().splitlines()


def test_the_time_left_is_that_of_the_whole_grid() -> None:
    """Four runs of which one is known: two of RTE, and one of MNLI that takes ten times as long."""
    known, first, second, long = job("0"), job("1"), job("2"), job("3", "MNLI")
    seen = Watched(known, first, second, long, known=("0",))
    assert seen.left is None
    seen.begin(first, steps=100, load=4.0)
    seen.step(first, 5, after=9.0)
    seen.step(first, 20, after=8.0)
    assert seen.left is None  # rows of MNLI take as long as nobody knows
    seen.end(first, after=9.0)  # it stopped early
    assert seen.left is None
    seen.begin(long, steps=1000)
    seen.step(long, 50, after=25.0)
    assert seen.left is None  # the first steps compile
    seen.step(long, 50, after=15.0)
    assert seen.left == pytest.approx(270 + 30)
    seen.end(long, after=270.0)
    assert seen.left == pytest.approx(30)
    seen.begin(second, steps=100)
    seen.end(second, after=30.0)
    assert seen.left == 0.0


def test_runs_beside_each_other_share_the_time() -> None:
    """Six runs of 100 s each, two at a time."""
    jobs = [job(str(number)) for number in range(6)]
    seen = Watched(*jobs)
    for one in jobs[:2]:
        seen.begin(one, steps=10)
    for after in (10.0, 40.0):
        seen.seconds += after
        for one in jobs[:2]:
            seen.step(one, int(after / 10), after=0.0)
    assert seen.left is not None
    assert 250 <= seen.left <= 300  # a little more, as the last one ends alone
    for one, after in zip(jobs[:2], (50.0, 0.0), strict=True):
        seen.end(one, after=after)
    assert seen.left is not None
    assert 200 <= seen.left <= 250


def test_what_the_plan_expects_is_left_before_anything_has_ended() -> None:
    """A check of 10 s, and an encoding of 60 s whose tokens then go twice as fast."""
    check = replace(job("1", kind="resolve"), resources=Resources(seconds=10.0))
    encode = replace(job("2", kind="encode"), resources=Resources(seconds=60.0))
    encode = replace(encode, inputs=("1",))
    seen = Watched(check, encode)
    assert seen.left == pytest.approx(70)
    tell = seen.follower.listeners.event
    tell(check, Event(kind="stage", text="loading tiny"))
    seen.seconds += 10.0
    tell(encode, Event(kind="encoding", texts=100, tokens=6_000))
    for seconds in (9.0, 1.0):
        seen.seconds += seconds
        tell(encode, Event(kind="encoded", texts=2, tokens=200))  # the longest texts go first
    assert seen.left == pytest.approx(28)


SPAN = re.compile(r"(\d+) (h|min|s)")
LENGTHS = {"h": 3600, "min": 60, "s": 1}


@pytest.mark.parametrize("pace", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("terminal", [True, False])
def test_after_a_tenth_of_the_work_the_time_left_is_right_whatever_the_start_took(
    pace: float, terminal: bool
) -> None:
    """Twelve encodings, small ones first, `pace` times as long as the plan expects, after a slow start.

    The model's check takes six times the expected time, the first batch 30 s more, and each task 2 s.
    """
    expected = [3.0, 5.0, 5.0, 8.0, 20.0, 300.0, 10.0, 40.0, 90.0, 200.0, 30.0, 120.0]
    check = replace(job("check", kind="resolve"), resources=Resources(seconds=10.0))
    encodes = [
        replace(
            job(f"e{number}", f"task {number}", "encode"),
            claim=f"s{number}",
            inputs=("check",),
            resources=Resources(seconds=seconds),
        )
        for number, seconds in enumerate(expected)
    ]
    scores = [
        replace(one, key=one.claim or "", kind="score", inputs=(one.key,), resources=Resources(seconds=2.0))
        for one in encodes
    ]
    seen = Watched(check, *encodes, *scores, terminal=terminal)
    tell, shown = seen.follower.listeners.event, []
    work, whole = 0.0, sum(expected)

    def note() -> None:
        shown.append((work / whole, seen.seconds, seen.follower.forecast.describe_time_left()))

    tell(check, Event(kind="stage", text="loading tiny"))
    note()
    seen.seconds += 60.0
    for at, (encode, score, seconds) in enumerate(zip(encodes, scores, expected, strict=True)):
        tell(encode, Event(kind="stage", text="loading"))
        seen.seconds += 2.0
        tell(encode, Event(kind="encoding", text="query", tokens=300))
        seen.seconds += 0.1 + (0.0 if at else 30.0)
        tell(encode, Event(kind="encoded", tokens=200))
        note()
        tell(encode, Event(kind="encoded", tokens=100))
        tell(encode, Event(kind="encoding", text="document", tokens=round(seconds * 1000)))
        for _ in range(round(seconds)):
            seen.seconds += pace * 0.6
            note()
            seen.seconds += pace * 0.4
            work += 1.0
            tell(encode, Event(kind="encoded", tokens=1000))
            note()
        tell(score, Event(kind="stage", text="scoring"))
        seen.seconds += 0.5
        seen.follower.forecast.note_job_end(score.key)
        note()
    early = [text for share, _, text in shown if share < 0.1]
    assert early
    assert all(not text or " to " in text for text in early)
    late = [(seen.seconds - at, text) for share, at, text in shown if share >= 0.1 and seen.seconds - at > 10]
    assert len(late) > 100
    for left, text in late:
        told = sum(int(number) * LENGTHS[unit] for number, unit in SPAN.findall(text))
        assert " to " not in text
        assert 0.7 * left <= told <= 1.3 * left, (left, text)


def test_before_there_is_evidence_the_range_of_the_plan_is_shown() -> None:
    encode = replace(job("1", kind="encode"), resources=Resources(seconds=600.0))
    seen = Watched(encode, time=TimeRange.from_seconds(600.0, 3.0))
    assert seen.follower.forecast.describe_time_left() == "3.3 to 30 min"
    tell = seen.follower.listeners.event
    tell(encode, Event(kind="encoding", text="document", tokens=1000))
    for seconds in (40.0, 10.0):
        seen.seconds += seconds
        tell(encode, Event(kind="encoded", tokens=10))
    assert seen.follower.forecast.describe_time_left() == "3.3 to 30 min"
    seen.seconds += 90.0
    tell(encode, Event(kind="encoded", tokens=80))
    assert seen.follower.forecast.describe_time_left() == "3 to 27 min"
    tell(encode, Event(kind="encoded", tokens=90))
    assert " to " not in seen.follower.forecast.describe_time_left()


def test_a_range_that_the_run_has_disproved_is_not_shown() -> None:
    """An encoding that takes ten times as long as expected, before a tenth of it is done."""
    encode = replace(job("1", kind="encode"), resources=Resources(seconds=600.0))
    seen = Watched(encode, time=TimeRange.from_seconds(600.0, 3.0))
    seen.follower.listeners.event(encode, Event(kind="encoding", text="document", tokens=1000))
    for _ in range(5):
        seen.seconds += 60.0
        seen.follower.listeners.event(encode, Event(kind="encoded", tokens=10))
    left = seen.left
    assert left == pytest.approx(950 * 6)
    found = seen.follower.forecast.estimate_time_left()
    assert found is not None
    assert seen.follower.forecast.describe_time_left() == found.text
    waits = Watched(encode, time=TimeRange.from_seconds(600.0, 3.0))
    waits.follower.listeners.event(encode, Event(kind="stage", text="loading"))
    waits.seconds = 1801.0
    assert waits.follower.forecast.describe_time_left() == ""


@pytest.mark.parametrize("seconds", [None, 50.0])
def test_trainings_that_have_ended_tell_of_those_that_wait(seconds: float | None) -> None:
    """Ten trainings of 100 s, half of which the plan expected."""
    jobs = [replace(job(str(n), kind="train"), resources=Resources(seconds=seconds)) for n in range(10)]
    seen, shown = Watched(*jobs), []
    tell = seen.follower.listeners.event
    for one in jobs:
        tell(one, Event(kind="training", steps=10))
        for _ in range(10):
            seen.seconds += 10.0
            tell(one, Event(kind="trained", steps=1))
            if seen.seconds >= 120.0:
                shown.append((seen.seconds, seen.left))
        tell(one, Event(kind="finished", text="folder", steps=10, seconds=100.0))
    assert shown == [(at, pytest.approx(1000 - at, abs=25)) for at, _ in shown]


def test_what_a_training_encodes_first_says_nothing_of_its_steps() -> None:
    train = replace(job("1", kind="train"), resources=Resources(seconds=3600.0))
    seen = Watched(train, time=TimeRange.from_seconds(3600.0))
    tell = seen.follower.listeners.event
    for _ in range(10):
        tell(train, Event(kind="encoding", text="document", texts=100))
        for _ in range(10):
            seen.seconds += 1.0
            tell(train, Event(kind="encoded", texts=10))
            assert seen.follower.forecast.describe_time_left() == "35 to 100 min"
    tell(train, Event(kind="training", steps=100))
    for _ in range(20):
        seen.seconds += 36.0
        tell(train, Event(kind="trained", steps=1))
    assert seen.follower.forecast.describe_time_left() == "48 min 0 s"


@pytest.mark.parametrize(("subsets", "late"), [(("a", "b", "c", "d"), False), (("a",), True)])
def test_a_score_that_encodes_each_subset_says_nothing_of_the_whole_in_one(
    subsets: tuple[str, ...], late: bool
) -> None:
    score = replace(job("score", kind="score"), resources=Resources(seconds=400.0))
    seen = Watched(score, time=TimeRange.from_seconds(400.0), recipe=False, subsets=subsets)
    tell = seen.follower.listeners.event
    for _ in subsets:
        for side in ("query", "document"):
            tell(score, Event(kind="encoding", text=side, texts=10))
            for _ in range(10):
                seen.seconds += 1.0
                tell(score, Event(kind="encoded", texts=1, tokens=30))
            assert (" to " not in seen.follower.forecast.describe_time_left()) == (
                late and side == "document"
            )


@pytest.mark.parametrize("tokens", [0, 30_000])
def test_progress_is_counted_in_the_unit_of_its_announcement(tokens: int) -> None:
    one = job("1", kind="encode")
    seen = Watched(one)
    seen.follower.listeners.event(one, Event(kind="encoding", text="document", texts=100, tokens=tokens))
    for _ in range(4):
        seen.seconds += 10.0
        seen.follower.listeners.event(one, Event(kind="encoded", texts=10, tokens=3000))
    assert seen.left == pytest.approx(60)


def test_a_resumed_training_has_done_nothing_of_what_is_left() -> None:
    train = replace(job("1", kind="train"), resources=Resources(seconds=1000.0))
    seen = Watched(train, time=TimeRange.from_seconds(1000.0))
    tell = seen.follower.listeners.event
    tell(train, Event(kind="training", steps=1000))
    tell(train, Event(kind="trained", steps=900))
    for _ in range(9):
        seen.seconds += 10.0
        tell(train, Event(kind="trained", steps=1))
        assert " to " in seen.follower.forecast.describe_time_left()
    seen.seconds += 10.0
    tell(train, Event(kind="trained", steps=1))
    assert seen.follower.forecast.describe_time_left() == "15 min 0 s"


def test_a_forecast_that_took_a_second_is_kept_for_fifty_with_its_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = itertools.count()
    monkeypatch.setattr(time, "thread_time", lambda: float(next(seconds)))
    encode = replace(job("1", kind="encode"), resources=Resources(seconds=100.0))
    seen = Watched(encode, time=TimeRange.from_seconds(100.0))
    seen.follower.listeners.event(encode, Event(kind="encoding", text="document", tokens=1000))
    shown = [seen.follower.forecast.describe_time_left()]
    for _ in range(6):
        seen.seconds += 10.0
        seen.follower.listeners.event(encode, Event(kind="encoded", tokens=100))
        shown.append(seen.follower.forecast.describe_time_left())
    assert shown == [*["59 s to 2.8 min"] * 5, *["50 s", "50 s"]]


def test_the_end_of_work_is_near_without_words_on_it() -> None:
    encode = replace(job("1", kind="encode"), resources=Resources(seconds=0.4))
    for expected in (TimeRange.from_seconds(0.4), None):
        assert Watched(encode, time=expected).follower.forecast.describe_time_left() == ""


def test_lines_have_the_time_and_count_the_runs() -> None:
    runs = [job("1"), job("2"), job("3")]
    seen = Watched(*runs)
    seen.begin(runs[0], steps=1000)
    seen.step(runs[0], 10, after=30.0)
    seen.step(runs[0], 340, after=34.0, loss="loss 0.25")
    seen.end(runs[0], after=536.0)
    seen.follower.listeners.event(runs[1], Event(kind="failed", text="out of memory"))
    seen.follower.listeners.result(Result(cell=seen.cell, how="done", record=DONE))
    when = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d "
    assert all(re.match(when, line) for line in seen.lines())
    assert [re.sub(when, "", line) for line in seen.lines()] == [
        "  RTE, run 1: 10 of 1,000 steps",
        "  RTE, run 1: 350 of 1,000 steps, loss 0.25; about 5 min 23 s left",
        "  [1 of 3] RTE, run 1: 50.00  1 h 1 min; about 20 min 0 s left",
        "  [2 of 3] RTE, run 2: failed: out of memory; about 10 min 0 s left",
        "✓ RTE (tiny)  cosine_spearman 50.00  1 h 1 min",
    ]


def test_encoding_is_told_of_by_tokens_every_half_minute_or_tenth() -> None:
    one = job("1", "SciFact", "encode")
    seen = Watched(one)
    seen.follower.listeners.event(one, Event(kind="encoding", text="document", texts=5000, tokens=400_000))
    for seconds, tokens in ((20.0, 20_000), (20.0, 20_000), (2.0, 200_000), (3.0, 10_000), (30.0, 10_000)):
        seen.seconds += seconds
        seen.follower.listeners.event(one, Event(kind="encoded", texts=100, tokens=tokens))
    assert [re.sub(r"^\S+ \S+ +", "", line) for line in seen.lines()] == [
        "SciFact, run 1: 10 % of about 400,000 tokens, 1,000 tokens/s; about 2.2 to 9.8 min left",
        "SciFact, run 1: 62 % of about 400,000 tokens, 5,556 tokens/s; about 16 s left",
        "SciFact, run 1: 65 % of about 400,000 tokens, 3,467 tokens/s; about 32 s left",
    ]


def test_texts_without_announced_tokens_are_counted() -> None:
    one = job("1", "SciFact", "encode")
    seen = Watched(one)
    seen.follower.listeners.event(one, Event(kind="encoding", text="document", texts=5000))
    seen.seconds += 40.0
    seen.follower.listeners.event(one, Event(kind="encoded", texts=500, tokens=40_000))
    (line,) = seen.lines()
    assert line.endswith("SciFact, run 1: 500 of 5,000 texts, 1,000 tokens/s")


def test_names_are_whole_and_a_single_task_counts_nothing() -> None:
    long = job("1", "TweetTopicSingleClassification", "encode")
    seen = Watched(long, terminal=True, recipe=False)
    seen.follower.listeners.event(long, Event(kind="stage", text="loading TweetTopicSingleClassification"))
    seen.follower.listeners.event(long, Event(kind="encoding", text="document", texts=50, tokens=4_000))
    with seen.follower:
        seen.follower.refresh()
    shown = seen.out.getvalue()
    assert "TweetTopicSingleClassification, run 1: encoding documents" in " ".join(shown.split())
    assert "0/1" not in shown


def test_parts_of_an_encoding_have_bars_of_their_own_until_it_is_scored() -> None:
    *parts, score = (
        replace(job(key, "MSMARCO", kind), claim="score")
        for key, kind in (("1", "encode"), ("2", "encode"), ("3", "score"))
    )
    for ends in (False, True):
        seen = Watched(*parts, score, terminal=True, recipe=False)
        for part in parts:
            seen.follower.listeners.event(part, Event(kind="encoding", text="document", texts=50))
        seen.follower.listeners.event(parts[0], Event(kind="encoded", texts=20))
        if ends:
            seen.follower.listeners.event(score, Event(kind="placed"))
        with seen.follower:
            seen.follower.refresh()
        shown = seen.out.getvalue()
        assert {*re.findall(r"(\d+)/50", shown)} == (set() if ends else {"20", "0"})


def test_on_a_terminal_a_bar_counts_the_runs() -> None:
    runs = [job("1"), job("2")]
    seen = Watched(*runs, terminal=True)
    seen.begin(runs[0], steps=100)
    seen.step(runs[0], 10, after=18.0)
    seen.step(runs[0], 40, after=72.0)
    with seen.follower:
        seen.follower.refresh()
    shown = seen.out.getvalue()
    assert re.search(r"runs.*0/2.*4 min 30 s", shown)
    assert re.search(r"RTE, run 1.*50/100", shown)
    assert "tasks" not in shown
    assert not re.search(r"\d{4}-\d\d-\d\d", shown)


def test_the_nodes_of_a_cluster_are_counted_when_they_change() -> None:
    nodes = [Node(name="a", workers=4), Node(name="b", workers=4, busy=2), Node(name="", state="asked for")]
    seen, shown = Watched(job("1")), Watched(job("1"), terminal=True)
    for some in ((), nodes, nodes[:2], nodes[:2], nodes):
        seen.follower.listeners.nodes(some)
    counts = [line.split(" ", 2)[2] for line in seen.lines()]
    assert counts == [
        "2 nodes, 8 workers, 1 asked for",
        "2 nodes, 8 workers",
        "2 nodes, 8 workers, 1 asked for",
    ]
    with shown.follower:
        shown.follower.refresh()
        assert "node" not in shown.out.getvalue()
        shown.follower.listeners.nodes(nodes)
        shown.follower.refresh()
    assert "2 nodes, 8 workers, 1 asked for" in shown.out.getvalue()


def test_work_that_is_no_run_says_its_steps_and_each_minute_how_far_it_is() -> None:
    out, seconds = io.StringIO(), 0.0
    with follow_events(Console(file=out, width=100), lambda: seconds) as listen:
        listen(Event(kind="stage", text="loading tiny"))
        listen(Event(kind="encoding", text="query", texts=4000))
        listen(Event(kind="encoded", texts=1000, tokens=9000))
        seconds = 61.0
        listen(Event(kind="encoded", texts=500, tokens=9000))
        listen(Event(kind="encoded", texts=500, tokens=9000))
        listen(Event(kind="note", text="2 queries were cut"))
        listen(Event(kind="ranking", text="scoring", texts=3))
        listen(Event(kind="ranked", texts=3))
    lines = [re.sub(r"^\S+ \S+ ", "", line) for line in out.getvalue().splitlines()]
    assert lines == [
        "loading tiny",
        "encoding queries: 4,000 texts",
        "encoding queries: 1,500 of 4,000 texts",
        "2 queries were cut",
        "scoring: 3 texts",
    ]


def test_work_that_is_no_run_has_a_bar_on_a_terminal() -> None:
    out = io.StringIO()
    with follow_events(Console(file=out, width=100, force_terminal=True)) as listen:
        listen(Event(kind="encoding", text="document", texts=4))
        listen(Event(kind="encoded", texts=3, tokens=9))
    assert "encoding documents" in out.getvalue()


def test_notes_of_a_recipe_are_printed_once_and_those_of_another_too() -> None:
    """Two models of one recipe and one of another, whose notes read the same."""
    printed: set[str] = set()

    def tell(recipe: str, seed: int) -> list[str]:
        lineage = Lineage(
            recipe=recipe,
            settings={},
            parents=(ParentPart.of(MODEL.artifact),),
            data=(),
            seed=seed,
            assumed=("seed: as in a paper; other sources: 7",),
        )
        training: Any = SimpleNamespace(done=True, model=SimpleNamespace(notes=("more",)))
        return _format_stage_lines(replace(MODEL, lineage=lineage, training=training), printed)[1:]

    notes = ["  sources differ on or leave open: seed", "  more"]
    assert [tell("a", 1), tell("a", 2), tell("b", 1)] == [notes, [], notes]
