"""The display of a run's progress, by a clock that the test sets."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from fakes import artifact, encoding, record, task
from harness.driver.execute import Result
from harness.driver.progress import _Follower, follow_events
from harness.executors.run_log import Node
from harness.jobs.context import Event
from harness.jobs.jobs import Job, JobKind, Place
from harness.jobs.recipe import RecipePlan
from harness.plan.plan import ConfiguredModel, Plan, PlannedScore

MODEL = ConfiguredModel(artifact=artifact(Path("tiny")), encoding=encoding())
DONE = record(task("RTE"), 0.5, seconds={"train": 3700})


def job(key: str, of: str = "RTE", kind: JobKind = "finetune") -> Job:
    place = Place(artifact="tiny", task=of, purpose="trial")
    return Job(key=key, kind=kind, label=f"{of}, run {key}", work=None, claim=key, place=place)  # type: ignore[arg-type]


class Watched:
    """A follower of fake runs, with the lines that it printed."""

    def __init__(self, *jobs: Job, known: tuple[str, ...] = (), terminal: bool = False) -> None:
        self.seconds = 0.0
        self.out = io.StringIO()
        how = RecipePlan(identity={}, jobs=jobs)
        cell = PlannedScore(
            subject=MODEL, task=task("RTE"), seed=42, key="score", identity={}, recipe_plan=how
        )
        plan = Plan(cells=(cell,), jobs=jobs, keys={}, known=frozenset(known))
        console = Console(file=self.out, width=100, force_terminal=terminal)
        self.follower = _Follower(plan, console=console, clock=lambda: self.seconds)
        self.cell = cell

    def begin(self, one: Job, steps: int, *, load: float = 0.0) -> None:
        self.follower.listeners.event(one, Event(kind="stage", text="training"))
        self.seconds += load
        self.follower.listeners.event(one, Event(kind="training", steps=steps))

    def step(self, one: Job, steps: int, *, after: float) -> None:
        self.seconds += after
        self.follower.listeners.event(one, Event(kind="trained", steps=steps))

    def end(self, one: Job, *, after: float = 0.0) -> None:
        self.seconds += after
        self.follower.listeners.trained(one, DONE)

    @property
    def left(self) -> float | None:
        return self.follower._forecast.left()

    def lines(self) -> list[str]:
        return self.out.getvalue().splitlines()


def test_the_time_left_is_that_of_the_whole_grid() -> None:
    """Four runs of which one is known: two of RTE, and one of MNLI that takes ten times as long."""
    known, first, second, long = job("0"), job("1"), job("2"), job("3", "MNLI")
    seen = Watched(known, first, second, long, known=("0",))
    assert seen.left is None
    seen.begin(first, steps=100, load=4.0)
    assert seen.left is None  # no step yet
    seen.step(first, 25, after=10.0)
    assert seen.left == pytest.approx(30 + 2 * 44)  # each of the others as long as the first
    seen.end(first, after=16.0)  # it stopped early
    assert seen.left == pytest.approx(2 * 30)
    seen.begin(long, steps=1000)
    seen.step(long, 100, after=30.0)
    assert seen.left == pytest.approx(270 + 30)
    seen.end(long, after=270.0)
    assert seen.left == pytest.approx(30)
    seen.begin(second, steps=100)
    seen.end(second, after=30.0)
    assert seen.left == 0.0


def test_runs_beside_each_other_share_the_time() -> None:
    """Four runs of 100 s each, two at a time."""
    jobs = [job(str(number)) for number in range(4)]
    seen = Watched(*jobs)
    for one in jobs[:2]:
        seen.begin(one, steps=10)
    for one, after in zip(jobs[:2], (50.0, 0.0), strict=True):
        seen.step(one, 5, after=after)
    assert seen.left == pytest.approx(150)
    for one, after in zip(jobs[:2], (50.0, 0.0), strict=True):
        seen.end(one, after=after)
    assert seen.left == pytest.approx(100)
    seen.end(jobs[2])  # another process has made it meanwhile
    assert seen.left == pytest.approx(100)  # the last one, however many could run beside it


def test_lines_have_the_time_and_count_the_runs() -> None:
    runs = [job("1"), job("2"), job("3")]
    seen = Watched(*runs)
    seen.begin(runs[0], steps=1000)
    seen.step(runs[0], 10, after=30.0)
    assert seen.lines() == []
    seen.step(runs[0], 90, after=30.0)
    seen.end(runs[0], after=540.0)
    seen.follower.listeners.event(runs[1], Event(kind="failed", text="out of memory"))
    seen.follower.listeners.result(Result(cell=seen.cell, how="done", record=DONE))
    when = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d "
    assert all(re.match(when, line) for line in seen.lines())
    assert [re.sub(when, "", line) for line in seen.lines()] == [
        "  RTE, run 1: 100 of 1,000 steps; about 29 min 0 s left for all runs",
        "  [1 of 3] RTE, run 1: 50.00  1 h 1 min; about 20 min 0 s left for all runs",
        "  [2 of 3] RTE, run 2: failed: out of memory; about 10 min 0 s left for all runs",
        "✓ RTE (tiny)  cosine_spearman 50.00  1 h 1 min",
    ]


def test_encoding_is_told_of_once_a_minute() -> None:
    one = job("1", "SciFact", "encode")
    seen = Watched(one)
    seen.follower.listeners.event(one, Event(kind="encoding", text="document", texts=5000))
    for _ in range(10):
        seen.seconds += 20.0
        seen.follower.listeners.event(one, Event(kind="encoded", texts=100, tokens=20_000))
    assert [line.partition("   ")[2] for line in seen.lines()] == [
        "SciFact, run 1: 300 of 5,000 texts, 1,000 tokens/s",
        "SciFact, run 1: 600 of 5,000 texts, 1,000 tokens/s",
        "SciFact, run 1: 900 of 5,000 texts, 1,000 tokens/s",
    ]


def test_on_a_terminal_a_bar_counts_the_runs() -> None:
    runs = [job("1"), job("2")]
    seen = Watched(*runs, terminal=True)
    seen.begin(runs[0], steps=100)
    seen.step(runs[0], 50, after=90.0)
    with seen.follower:
        seen.follower._progress.refresh()
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
        shown.follower._progress.refresh()
        assert "node" not in shown.out.getvalue()
        shown.follower.listeners.nodes(nodes)
        shown.follower._progress.refresh()
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
        "encoding queries: 4,000",
        "encoding queries: 1,500 of 4,000",
        "2 queries were cut",
        "scoring: 3",
    ]


def test_work_that_is_no_run_has_a_bar_on_a_terminal() -> None:
    out = io.StringIO()
    with follow_events(Console(file=out, width=100, force_terminal=True)) as listen:
        listen(Event(kind="encoding", text="document", texts=4))
        listen(Event(kind="encoded", texts=3, tokens=9))
    assert "encoding documents" in out.getvalue()
