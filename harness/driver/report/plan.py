"""The cost of a plan as tables: planned scores and trainings, their total, the sources of the estimate."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from harness.core.terminal import create_console, create_table, group_names, print_lines, print_table
from harness.core.types import Suite
from harness.driver.estimate import PlanCost
from harness.driver.report.suite import format_empty_columns
from harness.results.cost.compute import TrainingCost
from harness.results.cost.duration import TimeRange
from harness.results.cost.encoding import ScoreCost

WIDE = 110
"""The width from which a plan shows the keys of scores, which JSON has whole."""


def print_plan(cost: PlanCost, suites: Sequence[Suite], out: Console) -> None:
    """Print the cost of a plan as tables with their total, the sources of the estimate, and the notes.

    Args:
        cost: The cost of the plan.
        suites: The suites of the request, for their notes.
        out: The console.
    """
    with_runs = [line for line in cost.scores if line.runs is not None]
    encoded = [line for line in cost.scores if line.runs is None]
    for lines, names in (
        (encoded, ("texts ≈", "tokens ≈", "TFLOPs ≈")),
        (with_runs, ("runs", "steps ≤", "TFLOPs ≈")),
    ):
        if lines:
            print_table(_build_plan_table(lines, names, keys=out.width >= WIDE), out)
    if any(line.source for line in with_runs):
        note = "Times of runs are from twenty steps on this machine; one that stops early is shorter."
        print_lines([note], out, style="dim")
    notes = (note for suite in suites for note in (*suite.notes, *format_empty_columns(suite)))
    print_lines(dict.fromkeys(notes), out, style="dim")
    # Each note begins with its task.
    pairs = (note.partition(": ")[::2] for line in cost.scores for note in line.notes)
    tasks = group_names(pairs)
    print_lines((f"{', '.join(names)}: {note}" for note, names in tasks.items()), out, style="yellow")
    print_lines([_format_plan_total(cost)], out)


def _format_plan_total(cost: PlanCost) -> str:
    """How much there is to do, and in what time by what."""
    open_lines = [line for line in cost.scores if line.state == "to do"]
    states = Counter(line.state for line in cost.scores)
    text = f"{len(open_lines)} to do, {states['done']} done, {states['cannot run']} cannot run"
    parts: list[ScoreCost | TrainingCost] = [*open_lines]
    parts += [one for one in cost.trainings if one.state in ("to do", "to go on")]
    if not parts:
        return f"{text}."
    tokens = sum(line.tokens or 0 for line in open_lines)
    text += f"; about {tokens:,} tokens" if tokens else ""
    if cost.unknown == len(parts):
        return f"{text}; an unknown time."
    more = f", and {cost.unknown} of unknown time" if cost.unknown else ""
    sources = " and ".join(dict.fromkeys(part.source for part in parts if part.source))
    return f"{text}; about {cost.time.text} with start and checks{more}" + (
        f", by {sources}." if sources else "."
    )


def _build_plan_table(lines: Sequence[ScoreCost], numbers: Sequence[str], *, keys: bool) -> Table:
    names = ("model", "task", *(["key"] if keys else []), "state")
    table = create_table(*names, numbers=numbers, title="plan; nothing was run")
    table.add_column("time")
    for line in lines:
        key = [line.key[:12]] if keys else []
        state = f"{line.state}, trial" if line.purpose == "trial" else line.state
        counts = (line.texts, line.tokens) if line.runs is None else (line.runs, line.steps)
        table.add_row(
            line.model,
            line.task,
            *key,
            state,
            *("?" if count is None else f"{count:,}" for count in counts),
            "?" if line.flops is None else f"{line.flops / 1e12:,.1f}",
            _format_time(line.time, line.state),
        )
    return table


DONE = ("done", "there", "diverged", "to choose")
"""The states of scores and trainings that take no time."""


def _format_time(time: TimeRange | None, state: str) -> str:
    """The time that a score or a training still takes; a question mark where that is not known."""
    if state in DONE:
        return ""
    return "?" if time is None else time.text


def print_trainings(lines: Sequence[TrainingCost]) -> None:
    """Print planned trainings as a table, and what their recipes say of them."""
    names, title = ("model", "key", "from", "data", "seed", "state"), "trainings; nothing was run"
    table = create_table(*names, numbers=("steps", "texts"), title=title)
    table.add_column("time")
    for line in lines:
        done = f"{line.done:,} of " if line.done else ""
        table.add_row(
            line.model,
            line.key[:12],
            line.parent,
            ", ".join(line.data),
            str(line.seed),
            line.state,
            "?" if line.steps is None else f"{done}{line.steps:,}",
            "?" if line.texts is None else f"{line.texts:,}",
            _format_time(line.time_left, line.state),
        )
    out = create_console()
    print_table(table, out)
    open_lines = [line for line in lines if line.state not in DONE]
    if budgets := [line.operations for line in open_lines if line.operations is not None]:
        total = f"{math.fsum(budgets):.4g}"
        print_lines([f"{len(open_lines)} trainings to do, with budgets of {total} operations in all."], out)
    sources = dict.fromkeys(line.source for line in lines if line.source)
    print_lines((f"Times of trainings are by {source}." for source in sources), out, style="dim")
    print_lines(dict.fromkeys(note for line in lines for note in line.notes), out, style="dim")
