"""A check on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from harness.regress.report import words
from harness.report_text import score_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from harness.regress.outcome import Check, TaskOutcome, Verdict

STYLES = {
    "regressed": "bold red",
    "missing": "red",
    "inconclusive": "yellow",
    "not testable": "dim",
    "improved": "green",
    "equivalent": "green",
}
"""The colour of each verdict."""

NARROW = 120
"""Columns below which a table has only what decides."""

SHOWN = 6
"""How many names a line shows unless every task was asked for."""


def print_check(check: Check, console: Console, *, every: bool) -> None:
    """Print a check: the verdict, the means, the tasks that matter, and the exit code.

    Args:
        check: What was found.
        console: Where to. Names are printed as they are: nothing in them is markup.
        every: Also show each task that is equivalent, and name all that are only listed.
    """
    from rich.text import Text

    def say(line: str, style: str = "") -> None:
        console.print(Text(line, style=style), soft_wrap=True)

    first, *others = check.because or ("nothing was said of why.",)
    verdict = (f"{check.overall}", STYLES[check.overall])
    console.print(Text.assemble(verdict, f": {words.sides_text(check)}. {first}"), soft_wrap=True)
    told = others if every else others[:SHOWN]
    more = [f"and {len(others) - len(told):,} more"] if len(told) < len(others) else []
    for line in (*told, *more, *_means(check), words.counts_text(check)):
        say(line)
    _print_table(check, console, every=every)
    for line in _listed(check, "missing", every=every):
        say(line, STYLES["missing"])
    for line in _listed(check, "not testable", every=every):
        say(line)
    for warning in check.warnings:
        say(f"warning: {warning}", "yellow")
    say(words.exit_text(check))


def _means(check: Check) -> Iterator[str]:
    for mean in check.means:
        yield f"{mean.suite}: {words.mean_text(mean)}: {mean.verdict}"
        if mean.predicted:
            yield f"{mean.suite}: {words.predicted_text(mean)}"


def _print_table(check: Check, console: Console, *, every: bool) -> None:
    """The tasks with a difference; those that are equivalent are counted in a line."""
    from rich.text import Text

    rows = words.tabled(check)
    shown = [task for task in rows if every or task.verdict != "equivalent"]
    if shown:
        console.print(_table(shown, narrow=console.width < NARROW))
        console.print(Text(words.bounds_text(check), style="dim"), soft_wrap=True)
    if len(shown) < len(rows):
        left_out = len(rows) - len(shown)
        console.print(Text(f"equivalent, not shown: {left_out:,} of {len(check.tasks):,} tasks"))


def _table(tasks: Sequence[TaskOutcome], *, narrow: bool) -> Table:
    from rich.table import Table
    from rich.text import Text

    told = not narrow and any(words.why(task) for task in tasks)
    table = Table(title=Text("candidate − baseline, scores × 100"), title_justify="left")
    for name in ("task",) if narrow else ("task", "metric"):
        table.add_column(Text(name), overflow="fold")
    for name in ("delta", "p") if narrow else ("n", "seeds", "baseline", "candidate", "delta", "p"):
        table.add_column(Text(name), justify="right", no_wrap=True)
    margins = not narrow and len({task.margin for task in tasks}) > 1
    if margins:
        table.add_column(Text("margin"), justify="right", no_wrap=True)
    table.add_column(Text("verdict"))
    if told:
        table.add_column(Text("why"), overflow="fold", style="dim")
    for task in tasks:
        verdict = Text(words.verdict_text(task), style=STYLES[task.verdict])
        cells = [Text(cell) for cell in _cells(task, narrow=narrow)]
        cells += [Text(words.margin_text(task))] if margins else []
        table.add_row(*cells, verdict, *([Text(words.why(task))] if told else []))
    return table


def _cells(task: TaskOutcome, *, narrow: bool) -> tuple[str, ...]:
    if narrow:
        return (task.task, words.delta_text(task), words.p_text(task))
    counted = (words.units_text(task), words.seeds_text(task))
    scores = (score_text(task.baseline), score_text(task.candidate), words.delta_text(task))
    return (task.task, task.metric, *counted, *scores, words.p_text(task))


def _listed(check: Check, verdict: Verdict, *, every: bool) -> Iterator[str]:
    """A line for each reason, with the tasks it holds for."""
    for reason, tasks in words.reasons(check.of(verdict)).items():
        yield f"{verdict}: {_names(tasks, every=every)}: {reason}"


def _names(tasks: Sequence[str], *, every: bool) -> str:
    shown = tasks if every else tasks[:SHOWN]
    more = f" and {len(tasks) - len(shown):,} more" if len(shown) < len(tasks) else ""
    return ", ".join(shown) + more
