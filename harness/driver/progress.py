"""Progress of a run on a terminal: its announcement, its bars, and the consoles they are printed on.

Where standard error is not a terminal there are no bars, but a line with its time for each score and run.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Task as Bar
from rich.table import Column
from rich.text import Text

from harness.core.keys import build_encoding_identity
from harness.core.sources import describe_assumptions
from harness.core.terminal import create_console, group_names, print_lines
from harness.core.types import OWN_UNITS
from harness.driver import evaluation
from harness.driver.estimate import estimate_disk_need
from harness.driver.evaluation import TrainedModel
from harness.driver.execute import Listeners, Result
from harness.driver.report.run import Report, list_impossible_results, print_failures
from harness.encoder.resolved_encoding import describe_encoding
from harness.executors.run_log import Node, format_node_counts
from harness.jobs.context import Event
from harness.jobs.jobs import Job, JobKind
from harness.plan.plan import ConfiguredModel, Plan, PlannedTraining
from harness.plan.request import PreparedRun, Request
from harness.results.cost.duration import APART, TimeRange, Work, format_duration, time_left
from harness.results.scores import score_text
from harness.storage.record import Record

MARKS = {"done": "✓", "shared": "✓", "failed": "✗"}


QUIET = 30.0
"""Seconds after which a line says how far running work is, where there are no bars."""

PATIENCE = 0.2
"""Seconds taken off the time for which a forecast is kept: a cheap one is computed at every drawing."""

PART, PAUSE = 0.1, 5.0
"""The share of a piece of work after which a line is due, too, and the least seconds between two lines."""


EVIDENCE = 0.1
"""The share of the work from which on its own pace says what is left."""


@dataclass(kw_only=True)
class _JobTimes:
    """When a job began and ended, and the progress of its present step: its first and its last parts."""

    begun: float | None = None
    ended: float | None = None
    unit: str = "steps"
    total: int = 0
    done: int = 0
    first: int = 0
    first_at: float = 0.0
    last: int = 0
    last_at: float = 0.0

    def note_progress(self, count: int, now: float) -> None:
        """Note that so many more are done."""
        if not self.done:
            self.first, self.first_at = count, now
        self.done, self.last, self.last_at = self.done + count, count, now

    def estimate_total_seconds(self, now: float) -> float | None:
        """The seconds from its beginning to its end, by its pace so far; None before there is one.

        The first part is left out: it compiles, allocates memory, and waits for data.
        """
        counted = self.done - self.first
        if self.begun is None or counted <= 0:
            return None
        # The next part is not there yet: a pace at which it would be is too fast.
        pace = max(
            (self.last_at - self.first_at) / counted, (now - self.first_at) / (counted + max(1, self.last))
        )
        # An announced number of tokens may be too low.
        left = max(0.0, (self.total - self.done) * pace - (now - self.last_at))
        return now - self.begun + left

    @property
    def share(self) -> float:
        """How much of it is done without its first part, which may be that of an earlier run."""
        if self.ended is not None:
            return 1.0
        return min(1.0, (self.done - self.first) / max(1, self.total - self.first)) if self.done else 0.0


class Forecast:
    """The time that the jobs of a plan still take, by what was expected of them and how they go on."""

    def __init__(self, plan: Plan, clock: Callable[[], float]) -> None:
        self._clock, self._expected = clock, plan.time
        self._jobs = {job.key: job for job in plan.jobs if job.key not in plan.known}
        self._times = {key: _JobTimes() for key in self._jobs}
        self._of_claim: dict[str, list[str]] = {}
        for key, job in self._jobs.items():
            for name in {key, job.claim or key}:
                self._of_claim.setdefault(name, []).append(key)
        encoded = {job.claim for job in self._jobs.values() if job.kind == "encode"}
        # The load of a model, and the scoring of vectors, say nothing of how fast a model works.
        self._evidence = [
            key
            for key, job in self._jobs.items()
            if job.resources.needs_device
            and job.kind not in ("resolve", "select")
            and (job.kind != "score" or job.claim not in encoded)
        ]
        once = {
            score.key
            for score in (*plan.cells, *plan.trials)
            if len(score.task.cells) == 1 and not score.is_indexed
        }
        # One of several encodings, or one before a training, says nothing of how far the job is.
        self._in_parts = {
            key
            for key, job in self._jobs.items()
            if job.kind == "train" or (job.kind == "score" and job.claim not in encoded and key not in once)
        }
        self._left: TimeRange | None = None
        self._share = 0.0
        self._next = -math.inf

    def count(self, kind: JobKind, *, ended: bool = False) -> int:
        """The number of jobs of a kind, or of those that have ended."""
        some = [self._times[key] for key, job in self._jobs.items() if job.kind == kind]
        return sum(one.ended is not None for one in some) if ended else len(some)

    def note_job_event(self, job: Job, event: Event) -> None:
        """Note how far a job is; when it begins, its inputs have ended."""
        times = self._times.get(job.key)
        if times is None:
            return
        if times.begun is None:
            times.begun = self._clock()
            for key in job.inputs:
                self.note_job_end(key)
        if event.kind in ("encoding", "encoded") and job.key in self._in_parts:
            return
        if event.kind in ("encoding", "training"):
            times.unit = next((unit for unit in ("steps", "tokens") if getattr(event, unit)), "texts")
            # Queries are few, and their texts are short: how far they are says nothing of the whole.
            times.total = getattr(event, times.unit) if event.text != "query" else 0
            times.done = 0
        elif event.kind in ("encoded", "trained") and times.total:
            times.note_progress(getattr(event, times.unit), self._clock())

    def note_job_end(self, key: str) -> None:
        """Note the end of a job, and of those of its claim."""
        for name in self._of_claim.get(key, ()):
            times = self._times[name]
            if times.ended is None:
                times.ended = self._clock()
                times.begun = times.ended if times.begun is None else times.begun

    def _measure_share(self) -> float:
        """How much of the work of models is done: by expected seconds, and by number where none are known."""
        done: dict[bool, list[float]] = {}
        for key in self._evidence:
            seconds = self._jobs[key].resources.seconds
            sums, size = done.setdefault(bool(seconds), [0.0, 0.0]), seconds or 1.0
            sums[0] += size * self._times[key].share
            sums[1] += size
        return min((part / whole for part, whole in done.values()), default=1.0)

    def describe_time_left(self) -> str:
        """The time left in words: a range before a tenth of the work is done; empty if not known."""
        left = self.estimate_time_left()
        if left is None or left.seconds < 1:
            return ""
        share = self._share
        if share >= EVIDENCE:
            return format_duration(left.seconds)
        if self._expected is None:
            return left.text
        begun = [times.begun for times in self._times.values() if times.begun is not None]
        spent = self._clock() - min(begun, default=self._clock())
        # What the run has disproved says nothing.
        if spent + left.seconds > self._expected.high:
            return left.text if share else ""
        return self._expected.split_time(1 / (1 - share)).text

    def estimate_time_left(self) -> TimeRange | None:
        """The time until all jobs have ended; None while too little is known.

        Of a large plan it is computed less often than it is drawn.
        """
        now, began = self._clock(), time.thread_time()
        if now < self._next:
            return self._left
        work = [
            Work(
                key=key,
                groups=_list_groups(job),
                inputs=job.inputs,
                begun=times.begun,
                ended=times.ended,
                whole=times.estimate_total_seconds(now),
                expected=job.resources.seconds,
            )
            for (key, job), times in zip(self._jobs.items(), self._times.values(), strict=True)
            # A choice takes a moment, whatever other work takes.
            if job.kind != "select" and job.resources.needs_device
        ]
        work = _drop_start(work, {*self._evidence})
        self._left, self._share = time_left(work, now), self._measure_share()
        # 20,000 jobs take 0.4 s: no more than a fiftieth of the time goes into this.
        self._next = now + max(0.0, 50 * (time.thread_time() - began) - PATIENCE)
        return self._left


def _drop_start(work: Sequence[Work], evidence: Collection[str]) -> list[Work]:
    """Work whose first piece, with the start of a worker in it, tells nothing once a larger one does."""
    begun = [one for one in work if one.begun is not None and one.expected and one.key in evidence]
    first = min(begun, key=lambda one: one.begun or 0.0, default=None)
    sizes = [one.size for one in begun if one is not first and (one.ended is not None or one.whole)]
    if first is None or max(sizes, default=0.0) < first.size:
        return [*work]
    return [replace(one, typical=False) if one is first else one for one in work]


def _list_groups(job: Job) -> tuple[Hashable, ...]:
    """The jobs whose durations tell of that of a job, the most alike first."""
    alike = (job.kind, job.place.task if job.place else "")
    if job.kind == "finetune":
        # GLUE's tasks differ by a factor of 150 in their rows.
        return (alike,)
    if job.kind in APART and job.resources.seconds:
        return (alike, job.kind)
    return (alike, job.kind, None)


class _Rate(TextColumn):
    """The loss of a training, and the tokens a second of work."""

    def render(self, task: Bar) -> Text:
        return Text(", ".join(_format_pace_parts(task)), style="dim")


def _format_pace_parts(bar: Bar) -> list[str]:
    tokens, loss = bar.fields.get("tokens"), bar.fields.get("loss")
    rate = [f"{tokens / bar.elapsed:,.0f} tokens/s"] if bar.elapsed and tokens else []
    return [loss, *rate] if loss else rate


class _Count(TextColumn):
    """How many tasks or runs are done, and of other work which part; nothing of work without parts."""

    def render(self, task: Bar) -> Text:
        if not task.total:
            return Text("")
        count_text = f"{task.completed:,.0f}/{task.total:,.0f}"
        return Text(f"{task.percentage:.0f} %" if task.fields.get("unit") == "tokens" else count_text)


class _Left(TimeRemainingColumn):
    """The time left: of all jobs by their forecast, of other work by its own pace."""

    def render(self, task: Bar) -> Text:
        if "forecast" not in task.fields:
            return super().render(task)
        return Text(task.fields["forecast"].describe_time_left(), style="progress.remaining")


@contextlib.contextmanager
def follow_events(console: Console, clock: Callable[[], float] = time.monotonic) -> Iterator[_Listen]:
    """A display of work that is no run: a bar for its present step, or a line for each step.

    Gives a function that takes the events of the work.
    """
    with _create_bars(console, clock) as bars:
        last = clock()

        def say(line: str, style: str = "") -> None:
            nonlocal last
            last = clock()
            print_lines([_format_timestamp(console) + line], console, style=style)

        def start_bar(name: str, total: int | None, unit: str = "") -> None:
            for task_id in bars.task_ids:
                bars.remove_task(task_id)
            bars.add_task(name, total=total, tokens=0, unit=unit)
            if not console.is_terminal:
                say(f"{name}: {total:,} {unit}".rstrip() if total else name)

        def update_bars(count: int, tokens: int) -> None:
            for bar in bars.tasks:
                of_tokens = bar.fields["unit"] == "tokens"
                # The total is an estimate where tokens are counted.
                done = min(bar.total or 0, bar.completed + (tokens if of_tokens else count))
                bars.update(bar.id, completed=done, tokens=bar.fields["tokens"] + tokens)
                if not console.is_terminal and clock() - last >= QUIET:
                    say(f"{bar.description}: {_format_bar_progress(bar)}")

        def show_event(event: Event) -> None:
            match event.kind:
                case "stage":
                    start_bar(event.text, None)
                case "encoding":
                    unit = "tokens" if event.tokens else "texts"
                    start_bar(f"encoding {_SIDES[event.text]}", event.tokens or event.texts, unit)
                case "ranking":
                    start_bar(event.text, event.texts, "texts")
                case "encoded" | "ranked":
                    update_bars(event.texts, event.tokens)
                case "note":
                    say(event.text, "yellow")

        yield show_event


_SIDES = {"query": "queries", "document": "documents", "": "texts"}

_Listen = Callable[[Event], None]


class _Bars(Progress):
    """Bars below a line on the nodes of a cluster, where there are any."""

    nodes = ""

    def get_renderables(self) -> Iterator[RenderableType]:
        """The line and the bars."""
        if self.nodes:
            yield Text(self.nodes, style="dim", no_wrap=True, overflow="ellipsis")
        yield from super().get_renderables()


def _create_bars(console: Console, clock: Callable[[], float]) -> _Bars:
    """Bars with their names, counts, tokens a second and time left; none where there is no terminal."""
    return _Bars(
        TextColumn("{task.description}", markup=False, table_column=Column(overflow="fold")),
        BarColumn(bar_width=max(4, min(30, (console.width - 60) // 2))),
        _Count(""),
        _Rate(""),
        _Left(compact=True),
        console=console,
        transient=True,
        disable=not console.is_terminal,
        get_time=clock,
    )


def _format_timestamp(console: Console) -> str:
    """The time at the beginning of a line, where there are no bars."""
    return "" if console.is_terminal else time.strftime("%Y-%m-%d %H:%M:%S ")


class Follower:
    """The progress display of a run: a context manager whose `listeners` the run calls.

    On a terminal, bars count training runs, tasks, and the texts and steps of running work. Elsewhere each
    line begins with the time, and running work has a line of its own from time to time.
    """

    def __init__(self, plan: Plan, *, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._last = clock()
        self._settled, self._wanted = 0, len(plan.cells)
        self._labels = {job.key: job.label for job in plan.jobs if job.kind == "score"}
        # By claim and key: parts of an encoding have bars of their own.
        self._bars: dict[tuple[str, str], TaskID] = {}
        self._told: dict[str, float] = {}
        self.forecast = Forecast(plan, clock)
        self._progress = _create_bars(console, clock)
        runs = self.forecast.count("finetune")
        self._runs = self._progress.add_task("runs", total=runs, visible=bool(runs), forecast=self.forecast)
        encoded = any(cell.recipe_plan is None for cell in plan.cells)
        self._tasks = self._progress.add_task(
            "tasks",
            total=self._wanted if self._wanted > 1 else None,
            visible=encoded or not runs,
            forecast=self.forecast,
        )
        self.listeners = Listeners(
            event=self._show_event,
            result=self._show_result,
            trained=self._show_trial_record,
            nodes=self._show_nodes,
        )

    def __enter__(self) -> Follower:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def refresh(self) -> None:
        """Draw the bars now."""
        self._progress.refresh()

    def _show_event(self, job: Job, event: Event) -> None:
        self.forecast.note_job_event(job, event)
        match event.kind:
            case "placed":
                self._drop(job)
            case "stage":
                bar = self._runs if job.kind == "finetune" else self._tasks
                self._progress.update(bar, description="runs" if job.kind == "finetune" else event.text)
            case "encoding":
                unit = "tokens" if event.tokens else "texts"
                name = f"  {job.label}: encoding {_SIDES[event.text]}"
                self._add(job, name, event.tokens or event.texts, unit)
            case "ranking":
                self._add(job, f"  {event.text}", event.texts, "texts")
            case "training":
                self._add(job, f"  {job.label}", event.steps, "steps")
            case "encoded" | "ranked":
                self._update_bar(job, event, event.texts)
            case "trained":
                self._update_bar(job, event, event.steps)
            case "finished" if job.kind == "select":
                self._print_line(f"✓ chose {job.label}: {event.text}")
            case "finished":
                self._drop(job)
                self.forecast.note_job_end(job.key)
                steps = f"{event.steps:,} steps, {format_duration(event.seconds)}"
                self._print_line(f"✓ trained {job.label}  {steps}; {event.text}")
            case "note":
                self._print_line(f"{job.label}: {event.text}", style="yellow")
            case "failed" if job.kind == "train":
                self._drop(job)
                self.forecast.note_job_end(job.key)
                self._print_line(f"✗ {job.label} was not trained: {event.text}")
            case "failed":
                self._end_run(job, "failed: " + event.text)

    def _add(self, job: Job, name: str, total: int, unit: str) -> None:
        self._drop(job)
        bar = self._progress.add_task(name, total=total, tokens=0, unit=unit, loss="")
        self._bars[job.claim or job.key, job.key], self._told[job.key] = bar, 0.0

    def _update_bar(self, job: Job, event: Event, count: int) -> None:
        bar = self._bars.get((job.claim or job.key, job.key))
        if bar is None:
            return
        shown = self._progress.tasks[self._progress.task_ids.index(bar)]
        tokens, total = shown.fields["tokens"] + event.tokens, shown.total or 0
        done = min(total, tokens) if shown.fields["unit"] == "tokens" else shown.completed + count
        loss = event.text or shown.fields["loss"]
        self._progress.update(bar, completed=done, tokens=tokens, loss=loss)
        if self._console.is_terminal:
            return
        quiet, part = self._clock() - self._last, done / total if total else 0.0
        if quiet >= QUIET or (quiet >= PAUSE and part - self._told.get(job.key, 0.0) >= PART):
            self._told[job.key] = part
            self._print_line(_format_job_status(job, shown) + self._format_time_left())

    def _show_trial_record(self, job: Job, record: Record) -> None:
        if job.kind == "score":
            self._drop(job)
            what = f"{_format_main_score(record)}  {_format_record_seconds(record)}"
            self._print_line(f"  {job.label}: {what}", style="dim")
            return
        score = "diverged" if record.training.get("diverged") else score_text(record.main_score)
        self._end_run(job, f"{score}  {_format_record_seconds(record)}")

    def _end_run(self, job: Job, outcome: str) -> None:
        self._drop(job)
        self.forecast.note_job_end(job.key)
        ended, total_runs = self.forecast.count("finetune", ended=True), self.forecast.count("finetune")
        self._progress.update(self._runs, completed=ended)
        self._print_line(
            f"  [{ended} of {total_runs}] {job.label}: {outcome}{self._format_time_left()}", style="dim"
        )

    def _format_time_left(self) -> str:
        """The time that all jobs still take, where no bar shows it."""
        left = "" if self._console.is_terminal else self.forecast.describe_time_left()
        return f"; about {left} left" if left else ""

    def _show_result(self, result: Result) -> None:
        self._settled += 1
        self._progress.update(self._tasks, completed=self._settled)
        self._remove(result.cell.key)
        self.forecast.note_job_end(result.cell.key)
        if result.how not in MARKS:
            return
        cell, record = result.cell, result.record
        outcome = "failed"
        if record is not None and result.how != "failed":
            outcome = f"{_format_main_score(record)}  {_format_record_seconds(record)}"
        count = f"[{self._settled} of {self._wanted}] " if self._wanted > 1 else ""
        name = self._labels.get(cell.key, f"{cell.task.name} ({cell.subject.artifact.name})")
        self._print_line(f"{MARKS[result.how]} {count}{name}  {outcome}")

    def _show_nodes(self, nodes: Sequence[Node]) -> None:
        """Show how many nodes and workers a cluster has; where there are no bars, when that changes."""
        text = format_node_counts(nodes)
        if text and text != self._progress.nodes and not self._console.is_terminal:
            self._print_line(text)
        self._progress.nodes = text

    def _drop(self, job: Job) -> None:
        """Remove the bar of a job, and where it scores those of its encoding."""
        self._remove(job.claim or job.key, job.key if job.kind == "encode" else "")

    def _remove(self, claim: str, key: str = "") -> None:
        for name in [name for name in self._bars if name[0] == claim and key in ("", name[1])]:
            self._progress.remove_task(self._bars.pop(name))

    def _print_line(self, line: str, style: str = "") -> None:
        self._last = self._clock()
        print_lines([_format_timestamp(self._console) + line], self._console, style=style)


def _format_job_status(job: Job, bar: Bar) -> str:
    """How far running work is."""
    part = bar.description.strip()
    # The name of what precedes the first step.
    before = f"{part}, " if job.kind == "train" and part != job.label else ""
    pace = "".join(f", {one}" for one in _format_pace_parts(bar))
    return f"  {job.label}: {before}{_format_bar_progress(bar)}{pace}"


def _format_bar_progress(bar: Bar) -> str:
    """How much of its texts, steps or tokens work has done."""
    if bar.fields["unit"] == "tokens":
        return f"{bar.percentage:.0f} % of about {bar.total or 0:,.0f} tokens"
    return f"{bar.completed:,.0f} of {bar.total or 0:,.0f} {bar.fields['unit']}".rstrip()


def _format_main_score(record: Record) -> str:
    """The metric with its number, and of several that were measured which it is."""
    metric, measured = record.task.metric, record.task.metric in OWN_UNITS
    cells = [f"{split}, {subset}" for split, subsets in record.scores.items() for subset in subsets]
    which = f" ({cells[0]})" if measured and len(cells) > 1 else ""
    return f"{metric} {score_text(record.main_score, measured=measured)}{which}"


def _format_record_seconds(record: Record) -> str:
    """The time that a record took: with tenths below a minute."""
    seconds = sum(record.provenance.get("seconds", {}).values())
    return f"{seconds:.1f} s" if seconds < 60 else format_duration(seconds)


def find_most_common(texts: Sequence[str]) -> str:
    """The most frequent text, the first of several.

    >>> find_most_common(["a", "b", "b"])
    'b'
    """
    return max(dict.fromkeys(texts), key=list(texts).count)


_Outcome = TypeVar("_Outcome")


def follow_run(prepared: PreparedRun, out: Console, printed_notes: set[str] | None = None) -> Report:
    """Announce a run, execute it with its progress on `out`, and return its report.

    `printed_notes` has the notes on trainings that were printed before, and gets those of this run.
    """
    printed_notes = set() if printed_notes is None else printed_notes
    prepared = evaluation.make_choices(
        prepared, lambda choices: _follow(evaluation.run_trainings, choices, out, printed_notes)
    )
    return _follow(evaluation.execute, prepared, out, printed_notes)


def run_with_progress(request: Request) -> Mapping[str, str]:
    """Run a request with its progress on standard error; returns why tasks have no score, by task."""
    prepared, fault = evaluation.prepare_whole(request)
    if fault:
        print_lines([f"{fault}. The run goes on as with --offline."], create_console(stderr=True))
    return follow_run(prepared, create_console(stderr=True)).lacking


def follow_training(prepared: PreparedRun, out: Console) -> Sequence[TrainedModel]:
    """Announce a training, execute it with its progress on `out`, and return its models."""
    return _follow(evaluation.execute_training, prepared, out, set())


def _follow(
    work: Callable[[PreparedRun, Listeners], _Outcome],
    prepared: PreparedRun,
    out: Console,
    printed_notes: set[str],
) -> _Outcome:
    """Announce a part of a run and work on it with its progress on `out`."""
    _print_announcement(prepared, out, printed_notes)
    with Follower(prepared.plan, console=out) as follower:
        return work(prepared, follower.listeners)


def list_repeated_models(prepared: PreparedRun) -> list[str]:
    """A sentence for each model that was named twice."""
    return [
        f"{text} is the same model as {model.artifact.name}, and is run once."
        for place, (text, model) in enumerate(zip(prepared.request.models, prepared.asked, strict=True))
        if model in prepared.asked[:place]
    ]


def _print_announcement(prepared: PreparedRun, out: Console, printed_notes: set[str]) -> None:
    """Print the tasks that cannot run with their reasons, and the models with their encodings."""
    lost = list_impossible_results(prepared)
    if lost:
        out.print(f"{len(lost)} of {len(prepared.plan.cells)} tasks cannot run:", style="bold red")
        print_failures(lost, prepared, out)
    print_lines((*list_repeated_models(prepared), *_list_plan_notes(prepared), *prepared.evaluations), out)
    for model in prepared.subjects:
        how = describe_encoding(build_encoding_identity(model.encoding))
        is_encoded = any(cell.subject == model and cell.recipe_plan is None for cell in prepared.plan.cells)
        if prepared.recipe is not None and model.training is None and not is_encoded:
            how = f"{prepared.recipe.name}, {prepared.recipe.source}"
        label = f"{prepared.format_model_label(model)}: {how}; key {model.artifact.key[:12]}"
        stages = (line for stage in model.stages for line in _format_stage_lines(stage, printed_notes))
        print_lines((label, *stages), out, style="dim")


def _format_stage_lines(stage: ConfiguredModel, printed_notes: set[str]) -> list[str]:
    """How a training makes a model, and the notes on that which were not told before."""
    assert stage.training is not None
    assert stage.lineage is not None
    lineage, planned = stage.lineage, stage.training.model
    notes = [*describe_assumptions(lineage.assumed), *planned.notes]
    about = f"  {lineage.text}, seed {lineage.seed}, from {lineage.parents[0].name}; {lineage.source}"
    # Two recipes may have the same note.
    keyed = {f"{lineage.recipe}:{lineage.variant}: {note}": f"  {note}" for note in notes}
    fresh = [line for key, line in keyed.items() if key not in printed_notes]
    printed_notes.update(keyed)
    return [f"{about}; {_format_training_state(stage.training, stage.artifact.folder)}", *fresh]


def _format_training_state(training: PlannedTraining, folder: Path) -> str:
    """Whether a model is there, or how it is made first."""
    if training.done:
        return f"is there: {folder}"
    if training.sweep is None:
        return f"to be trained: {_format_steps([training])}"
    members = [member.training for member in training.sweep.members if member.training is not None]
    done, diverged = sum(one.done for one in members), sum(bool(one.diverged) for one in members)
    open_ = [one for one in members if not (one.done or one.diverged)]
    left = f", by {_format_steps(open_)} each" if open_ else ""
    return (
        f"is chosen first by the mean of {', '.join(training.sweep.part.tasks)}; "
        f"{done} of {len(members)} models are trained{left}{f', {diverged} diverged' if diverged else ''}"
    )


def _format_steps(trainings: Sequence[PlannedTraining]) -> str:
    steps = {training.model.steps for training in trainings}
    step_counts = sorted(count for count in steps if count is not None)
    if len(step_counts) < len(steps):
        return "? steps"
    if len(step_counts) == 1:
        return f"{step_counts[0]:,} steps"
    return f"{step_counts[0]:,} to {step_counts[-1]:,} steps"


def _list_plan_notes(prepared: PreparedRun) -> list[str]:
    """The recipes' notes on the open tasks, each once, and the number of training runs."""
    planned = [(cell.task.name, cell.recipe_plan) for cell in prepared.plan.open if cell.recipe_plan]
    tasks = group_names((name, note) for name, plan in planned for note in plan.notes)
    lines = [f"{', '.join(names)}: {note}" for note, names in tasks.items()]
    if prepared.recipe is not None and prepared.stages:
        recipe_names = "+".join(stage.name for stage in prepared.stages)
        lines.append(f"tasks with labels: {prepared.recipe.name}; all other tasks: {recipe_names}")
    former = sum(cell.former is not None for cell in prepared.plan.cells)
    if former:
        lines.append(
            f"{former} recorded scores are of other weights of these models, or of weights that are gone: "
            "each is measured again, unless training gives the same weights"
        )
    runs = sum(job.kind == "finetune" for job in prepared.plan.jobs)
    if runs:
        finished_count = len(prepared.plan.known)
        lines.append(f"{runs} runs, {finished_count} of them already done")
    need = estimate_disk_need(prepared) if prepared.plan.jobs else None
    return [*lines, need.text] if need is not None and need.is_large else lines
