"""Progress of a run on a terminal: its announcement, its bars, and the consoles they are printed on.

Where standard error is not a terminal there are no bars, only one line for each finished task.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from harness import evaluation, results
from harness.context import Event
from harness.execute import Listeners, Result
from harness.identity import encoding_identity
from harness.jobs import Job
from harness.record import Record
from harness.report import Report, impossible_results, print_failures
from harness.request import PreparedRun
from harness.scores import score_text

if TYPE_CHECKING:
    from rich.progress import Task as Bar


MARKS = {"done": "✓", "shared": "✓", "failed": "✗"}


class _Rate(TextColumn):
    def __init__(self) -> None:
        super().__init__("")

    def render(self, task: Bar) -> Text:
        if not task.elapsed or not task.fields.get("tokens"):
            return Text("")
        return Text(f"{task.fields['tokens'] / task.elapsed:,.0f} tokens/s", style="dim")


class _Follower:
    """The progress display of a run: a context manager whose `listeners` the run calls."""

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
            _Rate(),
            TimeRemainingColumn(compact=True),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self._overall = self._progress.add_task("tasks", total=total)
        self.listeners = Listeners(event=self._event, result=self._result, trained=self._trained)

    def __enter__(self) -> _Follower:
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


WIDE = 200


def most_common(texts: Sequence[str]) -> str:
    """The most frequent text, the first of several.

    >>> most_common(["a", "b", "b"])
    'b'
    """
    return max(dict.fromkeys(texts), key=list(texts).count)


def console(*, stderr: bool = False) -> Console:
    """A console as wide as the terminal, or 200 columns for programs and files; brackets are no markup."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else WIDE
    return Console(file=stream, width=width, markup=False)


def carry_out(prepared: PreparedRun, out: Console, *, quiet: bool) -> Report:
    """Announce a run, execute it with progress bars, and return its report.

    Args:
        prepared: The run.
        out: The console for announcement and progress.
        quiet: Whether nothing is printed.
    """
    _announce(prepared, out, quiet=quiet)
    jobs = [job for job in prepared.plan.jobs if job.key not in prepared.plan.known]
    runs = sum(job.kind == "train" for job in jobs)
    with _Follower(len(prepared.plan.cells), console=out, runs=runs, quiet=quiet) as follower:
        return evaluation.execute(prepared, follower.listeners)


def _announce(prepared: PreparedRun, out: Console, *, quiet: bool) -> None:
    """Print the tasks that cannot run with their reasons, and the models with their encodings."""
    if quiet:
        return
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
        if prepared.recipe is not None and all(cell.recipe_plan for cell in prepared.plan.cells):
            how = f"{prepared.recipe.name}, {prepared.recipe.source}"
        out.print(
            f"{prepared.label(one)}: {how}; key {one.artifact.key[:12]}",
            highlight=False,
            style="dim",
            soft_wrap=True,
        )


def _said(prepared: PreparedRun) -> list[str]:
    """The recipes' notes on the open tasks, each once, and the number of training runs."""
    tasks: dict[str, list[str]] = {}
    for cell in prepared.plan.open:
        for sentence in cell.recipe_plan.notes if cell.recipe_plan else ():
            tasks.setdefault(sentence, []).append(cell.task.name)
    lines = [f"{', '.join(dict.fromkeys(names))}: {sentence}" for sentence, names in tasks.items()]
    runs = sum(job.kind == "train" for job in prepared.plan.jobs)
    if runs:
        known = len(prepared.plan.known)
        lines.append(f"{runs} runs, of which {known} are there")
    return lines
