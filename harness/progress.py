"""Progress on a terminal: tasks done, and the texts being encoded with rate and time left.

Where standard error is not a terminal nothing moves: one line for each finished task is all.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from harness.desk import Event
from harness.execute import Listeners, Result
from harness.jobs import Job
from harness.record import Record
from harness.report_text import score_text

if TYPE_CHECKING:
    from rich.progress import Task as Bar

MARKS = {"done": "✓", "shared": "✓", "failed": "✗"}


class Rate(TextColumn):
    """Texts and tokens a second."""

    def __init__(self) -> None:
        super().__init__("")

    def render(self, task: Bar) -> Text:
        """The rate since the bar began."""
        if not task.elapsed or not task.fields.get("tokens"):
            return Text("")
        return Text(f"{task.fields['tokens'] / task.elapsed:,.0f} tokens/s", style="dim")


class Follower:
    """Shows a run while it goes on; use it as a context and hand `listeners` to the run."""

    def __init__(self, total: int, *, console: Console, runs: int = 0, quiet: bool = False) -> None:
        self._console = console
        self._wanted, self._runs = runs, 0
        self._quiet = quiet
        self._settled = 0
        self._bars: dict[str, TaskID] = {}
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            Rate(),
            TimeRemainingColumn(compact=True),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self._overall = self._progress.add_task("tasks", total=total)
        self.listeners = Listeners(event=self._event, result=self._result, trained=self._trained)

    def __enter__(self) -> Follower:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def _event(self, job: Job, event: Event) -> None:
        if event.kind == "stage":
            self._progress.update(self._overall, description=event.text)
        elif event.kind == "encoding":
            self._drop(job.claim or job.key)
            name = f"  encoding {event.text or 'text'}s"
            self._bars[job.claim or job.key] = self._progress.add_task(name, total=event.texts, tokens=0)
        elif event.kind == "encoded" and (job.claim or job.key) in self._bars:
            bar = self._bars[job.claim or job.key]
            tokens = self._progress.tasks[self._progress.task_ids.index(bar)].fields["tokens"] + event.tokens
            self._progress.update(bar, advance=event.texts, tokens=tokens)
        elif event.kind == "training":
            self._drop(job.key)
            self._bars[job.key] = self._progress.add_task(f"  {job.label}", total=event.steps, tokens=0)
        elif event.kind == "trained" and job.key in self._bars:
            self._progress.update(self._bars[job.key], advance=event.steps)
        elif event.kind == "note" and not self._quiet:
            self._console.print(f"{job.label}: {event.text}", style="yellow")

    def _trained(self, job: Job, record: Record) -> None:
        """A run on the way to a score."""
        self._drop(job.key)
        self._runs += 1
        if self._quiet:
            return
        score = "diverged" if record.training.get("diverged") else score_text(record.main_score)
        seconds = sum(record.provenance.get("seconds", {}).values())
        done = f"[{self._runs} of {self._wanted}]"
        self._console.print(
            f"  {done} {job.label}: {score}  {seconds:.1f} s",
            highlight=False,
            style="dim",
            markup=False,
            soft_wrap=True,
        )

    def _result(self, result: Result) -> None:
        self._drop(result.cell.key)
        self._settled += 1
        self._progress.update(self._overall, completed=self._settled)
        if self._quiet or result.how not in MARKS:
            return
        record = result.record
        score = score_text(record.main_score if record is not None else None)
        seconds = sum(record.provenance.get("seconds", {}).values()) if record is not None else 0.0
        name = f"{result.cell.task.name} ({result.cell.subject.artifact.name})"
        said = (
            f"{result.cell.task.metric} {score}  {seconds:.1f} s"
            if result.how in ("done", "shared")
            else "failed"
        )
        self._console.print(f"{MARKS[result.how]} {name}  {said}", highlight=False)

    def _drop(self, claim: str) -> None:
        bar = self._bars.pop(claim, None)
        if bar is not None:
            self._progress.remove_task(bar)
