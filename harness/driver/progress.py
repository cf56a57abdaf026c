"""Progress of a run on a terminal: its announcement, its bars, and the consoles they are printed on.

Where standard error is not a terminal there are no bars, but a line with its time for each score and run.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Task as Bar
from rich.table import Column
from rich.text import Text

from harness.core.identity import encoding_identity
from harness.driver import evaluation
from harness.driver.evaluation import DiskNeed, TrainedModel
from harness.driver.execute import Listeners, Result
from harness.driver.forecast import Work, full_pace_left
from harness.driver.report.run import Report, impossible_results, print_failures
from harness.executors.run_log import Node, nodes_text
from harness.jobs.context import Event
from harness.jobs.jobs import Job
from harness.plan.plan import ConfiguredModel, Plan, PlannedTraining
from harness.plan.request import PreparedRun
from harness.results import results
from harness.results.scores import score_text
from harness.storage.record import Record

MARKS = {"done": "✓", "shared": "✓", "failed": "✗"}


QUIET = 60.0
"""Seconds after which a line says how far running work is, where there are no bars."""


def duration_text(seconds: float) -> str:
    """A duration in words.

    >>> duration_text(7.2), duration_text(192), duration_text(7300)
    ('7 s', '3 min 12 s', '2 h 1 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


@dataclass(kw_only=True)
class _Run:
    """A training run of the plan: its task, its times, and how many of its steps are done.

    It has `begun` when its job has, and is `loaded` at its first step.
    """

    task: str
    begun: float | None = None
    loaded: float | None = None
    ended: float | None = None
    steps: int = 0
    done: int = 0

    def whole(self, now: float) -> float | None:
        """The seconds from its beginning to its end, by its steps so far; None before the first ones."""
        if self.begun is None or self.loaded is None or not self.done:
            return None
        return self.loaded - self.begun + (now - self.loaded) * self.steps / self.done


class _Forecast:
    """The time that the training runs of a plan still take, by those that ended or began.

    A run that has not begun lasts as those of its task, or else as all others. Runs beside each other go on
    at the pace at which the work went on so far.
    """

    def __init__(self, jobs: Sequence[Job], clock: Callable[[], float]) -> None:
        self._clock = clock
        self._runs = {job.key: _Run(task=job.place.task if job.place else "") for job in jobs}

    @property
    def wanted(self) -> int:
        """The number of runs."""
        return len(self._runs)

    @property
    def ended(self) -> int:
        """The number of runs that have ended."""
        return sum(run.ended is not None for run in self._runs.values())

    def hear(self, job: Job, event: Event) -> None:
        """Note the beginning of a run, and its steps."""
        run = self._runs.get(job.key)
        if run is None:
            return
        run.begun = self._clock() if run.begun is None else run.begun
        if event.kind == "training":
            run.loaded, run.steps = self._clock(), event.steps
        run.done += event.steps if event.kind == "trained" else 0

    def end(self, job: Job) -> None:
        """Note the end of a run."""
        run = self._runs[job.key]
        run.ended = self._clock()
        run.begun = run.ended if run.begun is None else run.begun

    def left(self) -> float | None:
        """The seconds until all runs have ended; None before the first steps of the first one."""
        now = self._clock()
        work = [
            Work(key=key, groups=(run.task, None), begun=run.begun, ended=run.ended, whole=run.whole(now))
            for key, run in self._runs.items()
        ]
        return full_pace_left(work, now)


class _Rate(TextColumn):
    def __init__(self) -> None:
        super().__init__("")

    def render(self, task: Bar) -> Text:
        if not task.elapsed or not task.fields.get("tokens"):
            return Text("")
        return Text(f"{task.fields['tokens'] / task.elapsed:,.0f} tokens/s", style="dim")


class _Left(TimeRemainingColumn):
    """The time left: of all runs by their forecast, of other work by its own pace."""

    def render(self, task: Bar) -> Text:
        if "forecast" not in task.fields:
            return super().render(task)
        left = task.fields["forecast"].left()
        return Text("" if left is None else duration_text(left), style="progress.remaining")


@contextlib.contextmanager
def follow_events(console: Console, clock: Callable[[], float] = time.monotonic) -> Iterator[_Listen]:
    """A display of work that is no run: a bar for its present step, or a line for each step.

    Gives a function that takes the events of the work.
    """
    with _bars(console, clock) as bars:
        last = clock()

        def say(line: str, style: str = "") -> None:
            nonlocal last
            last = clock()
            console.print(_stamp(console) + line, style=style, highlight=False, markup=False, soft_wrap=True)

        def begin(name: str, total: int | None) -> None:
            for known in bars.task_ids:
                bars.remove_task(known)
            bars.add_task(name, total=total, tokens=0)
            if not console.is_terminal:
                say(f"{name}: {total:,}" if total else name)

        def advance(count: int, tokens: int) -> None:
            for bar in bars.tasks:
                bars.update(bar.id, advance=count, tokens=bar.fields["tokens"] + tokens)
                if not console.is_terminal and clock() - last >= QUIET:
                    say(f"{bar.description}: {bar.completed:,.0f} of {bar.total or 0:,.0f}")

        def listen(event: Event) -> None:
            match event.kind:
                case "stage":
                    begin(event.text, None)
                case "encoding":
                    begin(f"encoding {_SIDES[event.text]}", event.texts)
                case "ranking":
                    begin(event.text, event.texts)
                case "encoded" | "ranked":
                    advance(event.texts, event.tokens)
                case "note":
                    say(event.text, "yellow")

        yield listen


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


def _bars(console: Console, clock: Callable[[], float]) -> _Bars:
    """Bars with their names, counts, tokens a second and time left; none where there is no terminal."""
    room = max(16, console.width - 60)
    return _Bars(
        TextColumn(
            "{task.description}",
            markup=False,
            table_column=Column(max_width=room, no_wrap=True, overflow="ellipsis"),
        ),
        BarColumn(bar_width=min(30, room // 2)),
        MofNCompleteColumn(),
        _Rate(),
        _Left(compact=True),
        console=console,
        transient=True,
        disable=not console.is_terminal,
        get_time=clock,
    )


def _stamp(console: Console) -> str:
    """The time at the beginning of a line, where there are no bars."""
    return "" if console.is_terminal else time.strftime("%Y-%m-%d %H:%M:%S ")


class _Follower:
    """The progress display of a run: a context manager whose `listeners` the run calls.

    On a terminal, bars count training runs, tasks, and the texts and steps of running work. Elsewhere each
    line begins with the time, and running work of which nothing was said for a minute has a line, too.
    """

    def __init__(self, plan: Plan, *, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._last = clock()
        self._settled, self._wanted = 0, len(plan.cells)
        self._bars: dict[str, TaskID] = {}
        runs = [job for job in plan.jobs if job.kind == "finetune" and job.key not in plan.known]
        self._forecast = _Forecast(runs, clock)
        self._progress = _bars(console, clock)
        self._runs = self._progress.add_task(
            "runs", total=len(runs), visible=bool(runs), forecast=self._forecast
        )
        encoded = any(cell.recipe_plan is None for cell in plan.cells)
        self._tasks = self._progress.add_task("tasks", total=self._wanted, visible=encoded or not runs)
        self.listeners = Listeners(
            event=self._event, result=self._result, trained=self._trained, nodes=self._show_nodes
        )

    def __enter__(self) -> _Follower:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def _event(self, job: Job, event: Event) -> None:
        self._forecast.hear(job, event)
        match event.kind:
            case "stage":
                bar = self._runs if job.kind == "finetune" else self._tasks
                self._progress.update(bar, description="runs" if job.kind == "finetune" else event.text)
            case "encoding":
                self._add(job, f"  encoding {_SIDES[event.text]}", event.texts)
            case "ranking":
                self._add(job, f"  {event.text}", event.texts)
            case "training":
                self._add(job, f"  {job.label}", event.steps)
            case "encoded" | "ranked":
                self._advance(job, event.texts, event.tokens)
            case "trained":
                self._advance(job, event.steps, event.tokens)
            case "finished" if job.kind == "select":
                self._print(f"✓ chose {job.label}: {event.text}")
            case "finished":
                self._drop(job)
                steps = f"{event.steps:,} steps, {duration_text(event.seconds)}"
                self._print(f"✓ trained {job.label}  {steps}; {event.text}")
            case "note":
                self._print(f"{job.label}: {event.text}", style="yellow")
            case "failed" if job.kind == "train":
                self._drop(job)
                self._print(f"✗ {job.label} was not trained: {event.text}")
            case "failed":
                self._end_run(job, "failed: " + event.text)

    def _add(self, job: Job, name: str, total: int) -> None:
        self._drop(job)
        self._bars[job.claim or job.key] = self._progress.add_task(name, total=total, tokens=0)

    def _advance(self, job: Job, count: int, tokens: int = 0) -> None:
        bar = self._bars.get(job.claim or job.key)
        if bar is None:
            return
        shown = self._progress.tasks[self._progress.task_ids.index(bar)]
        self._progress.update(bar, advance=count, tokens=shown.fields["tokens"] + tokens)
        if not self._console.is_terminal and self._clock() - self._last >= QUIET:
            self._print(_status_text(job, shown) + self._left_text())

    def _trained(self, job: Job, record: Record) -> None:
        if job.kind == "score":
            self._drop(job)
            what = f"{record.task.metric} {score_text(record.main_score)}  {_seconds_text(record)}"
            self._print(f"  {job.label}: {what}", style="dim")
            return
        score = "diverged" if record.training.get("diverged") else score_text(record.main_score)
        self._end_run(job, f"{score}  {_seconds_text(record)}")

    def _end_run(self, job: Job, outcome: str) -> None:
        self._drop(job)
        self._forecast.end(job)
        self._progress.update(self._runs, completed=self._forecast.ended)
        count = f"[{self._forecast.ended} of {self._forecast.wanted}]"
        self._print(f"  {count} {job.label}: {outcome}{self._left_text()}", style="dim")

    def _left_text(self) -> str:
        """The time that all runs still take, where no bar shows it."""
        left = None if self._console.is_terminal else self._forecast.left()
        return f"; about {duration_text(left)} left for all runs" if left else ""

    def _result(self, result: Result) -> None:
        self._settled += 1
        self._progress.update(self._tasks, completed=self._settled)
        self._remove(result.cell.key)
        if result.how not in MARKS:
            return
        cell, record = result.cell, result.record
        outcome = "failed"
        if record is not None and result.how != "failed":
            outcome = f"{cell.task.metric} {score_text(record.main_score)}  {_seconds_text(record)}"
        count = f"[{self._settled} of {self._wanted}] " if self._wanted > 1 else ""
        name = f"{cell.task.name} ({cell.subject.artifact.name})"
        self._print(f"{MARKS[result.how]} {count}{name}  {outcome}")

    def _show_nodes(self, nodes: Sequence[Node]) -> None:
        """Show how many nodes and workers a cluster has; where there are no bars, when that changes."""
        text = nodes_text(nodes)
        if text and text != self._progress.nodes and not self._console.is_terminal:
            self._print(text)
        self._progress.nodes = text

    def _drop(self, job: Job) -> None:
        self._remove(job.claim or job.key)

    def _remove(self, claim: str) -> None:
        bar = self._bars.pop(claim, None)
        if bar is not None:
            self._progress.remove_task(bar)

    def _print(self, line: str, style: str = "") -> None:
        self._last = self._clock()
        self._console.print(
            _stamp(self._console) + line, style=style, highlight=False, markup=False, soft_wrap=True
        )


def _status_text(job: Job, bar: Bar) -> str:
    """How far running work is."""
    what = "steps" if job.kind in ("train", "finetune") else "texts"
    rate = bar.fields["tokens"] / bar.elapsed if bar.elapsed else 0
    pace = f", {rate:,.0f} tokens/s" if rate else ""
    part = bar.description.strip()
    if job.kind == "train" and part != job.label:  # what comes before the first step
        return f"  {job.label}: {part}, {bar.completed:,.0f} of {bar.total or 0:,.0f}{pace}"
    return f"  {job.label}: {bar.completed:,.0f} of {bar.total or 0:,.0f} {what}{pace}"


def _seconds_text(record: Record) -> str:
    """The time that a record took: with tenths below a minute."""
    seconds = sum(record.provenance.get("seconds", {}).values())
    return f"{seconds:.1f} s" if seconds < 60 else duration_text(seconds)


def most_common(texts: Sequence[str]) -> str:
    """The most frequent text, the first of several.

    >>> most_common(["a", "b", "b"])
    'b'
    """
    return max(dict.fromkeys(texts), key=list(texts).count)


def carry_out(prepared: PreparedRun, out: Console) -> Report:
    """Announce a run, execute it with its progress on `out`, and return its report."""
    _announce(prepared, out)
    with _Follower(prepared.plan, console=out) as follower:
        return evaluation.execute(prepared, follower.listeners)


def carry_out_training(prepared: PreparedRun, out: Console) -> Sequence[TrainedModel]:
    """Announce a training, execute it with its progress on `out`, and return its models."""
    _announce(prepared, out)
    with _Follower(prepared.plan, console=out) as follower:
        return evaluation.carry_out_training(prepared, follower.listeners)


def _announce(prepared: PreparedRun, out: Console) -> None:
    """Print the tasks that cannot run with their reasons, and the models with their encodings."""
    lost = impossible_results(prepared)
    if lost:
        out.print(f"{len(lost)} of {len(prepared.plan.cells)} tasks cannot run:", style="bold red")
        print_failures(lost, prepared, out)
    for text, one in zip(prepared.request.models, prepared.asked, strict=True):
        if text != one.artifact.source:
            told = f"{text} is the same model as {one.artifact.name}, and is run once."
            out.print(told, highlight=False, soft_wrap=True)
    for line in _said(prepared):
        out.print(line, highlight=False, soft_wrap=True)
    for one in prepared.subjects:
        how = results.EncodingCondition.text_of(encoding_identity(one.encoding))
        if prepared.recipe is not None and one.training is None and not _is_encoded(one, prepared):
            how = f"{prepared.recipe.name}, {prepared.recipe.source}"
        for line in (f"{prepared.label(one)}: {how}; key {one.artifact.key[:12]}", *_training_lines(one)):
            out.print(line, highlight=False, style="dim", soft_wrap=True)


def _is_encoded(one: ConfiguredModel, prepared: PreparedRun) -> bool:
    """Whether a model is evaluated as it is, and not only fine-tuned."""
    return any(cell.subject == one and cell.recipe_plan is None for cell in prepared.plan.cells)


def _training_lines(one: ConfiguredModel) -> list[str]:
    """How a model is made, one training after the other, and the notes on that."""
    return [line for stage in one.stages for line in _stage_lines(stage)]


def _stage_lines(one: ConfiguredModel) -> list[str]:
    assert one.training is not None
    assert one.lineage is not None
    lineage, model = one.lineage, one.training.model
    notes = [*model.notes, *(f"assumed: {sentence}" for sentence in lineage.assumed)]
    about = f"  {lineage.text}, seed {lineage.seed}, from {lineage.parents[0].name}; {lineage.source}"
    return [f"{about}; {_state_text(one.training, one.artifact.folder)}", *(f"  {note}" for note in notes)]


def _state_text(training: PlannedTraining, folder: Path) -> str:
    """Whether a model is there, or how it is made first."""
    if training.done:
        return f"is there: {folder}"
    if training.sweep is None:
        return f"is trained first, {_steps_text([training])}"
    members = [member.training for member in training.sweep.members if member.training is not None]
    done, diverged = sum(one.done for one in members), sum(bool(one.diverged) for one in members)
    open_ = [one for one in members if not (one.done or one.diverged)]
    left = f", by {_steps_text(open_)} each" if open_ else ""
    return (
        f"is chosen first by the mean of {', '.join(training.sweep.part.tasks)}; "
        f"{done} of {len(members)} models are trained{left}{f', {diverged} diverged' if diverged else ''}"
    )


def _steps_text(trainings: Sequence[PlannedTraining]) -> str:
    steps = {training.model.steps for training in trainings}
    known = sorted(count for count in steps if count is not None)
    if len(known) < len(steps):
        return "? steps"
    return f"{known[0]:,} steps" if len(known) == 1 else f"{known[0]:,} to {known[-1]:,} steps"


def _said(prepared: PreparedRun) -> list[str]:
    """The recipes' notes on the open tasks, each once, and the number of training runs."""
    tasks: dict[str, list[str]] = {}
    for cell in prepared.plan.open:
        for sentence in cell.recipe_plan.notes if cell.recipe_plan else ():
            tasks.setdefault(sentence, []).append(cell.task.name)
    lines = [f"{', '.join(dict.fromkeys(names))}: {sentence}" for sentence, names in tasks.items()]
    if prepared.recipe is not None and prepared.stages:
        made = "+".join(stage.name for stage in prepared.stages)
        lines.append(f"tasks with labels: {prepared.recipe.name}; all other tasks: {made}")
    former = sum(cell.former is not None for cell in prepared.plan.cells)
    if former:
        lines.append(
            f"{former} recorded scores are of other weights of these models, or of weights that are gone: "
            "each is measured again, unless training gives the same weights"
        )
    runs = sum(job.kind == "finetune" for job in prepared.plan.jobs)
    if runs:
        known = len(prepared.plan.known)
        lines.append(f"{runs} runs, of which {known} are there")
    need = DiskNeed.of(prepared)
    return [*lines, need.text] if need is not None and need.is_large else lines
