"""The cost of a plan as tables: planned scores and trainings, their total, the sources of the estimate."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from harness.core.terminal import create_console, print_table
from harness.core.types import Suite
from harness.driver.estimate import PlanCost
from harness.driver.report.suite import format_empty_columns
from harness.results.cost.encoding import ScoreCost
from harness.results.cost.training import TrainingCost

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
        (encoded, ("texts ≈", "tokens ≈", "TFLOPs ≈", "time")),
        (with_runs, ("runs", "steps ≤", "TFLOPs ≈", "time")),
    ):
        if lines:
            print_table(_build_plan_table(lines, names, keys=out.width >= WIDE), out)
    if any(line.source for line in with_runs):
        note = "Times of runs are from twenty steps on this machine; one that stops early is shorter."
        out.print(note, style="dim", highlight=False, soft_wrap=True)
    for note in dict.fromkeys(
        note for suite in suites for note in (*suite.notes, *format_empty_columns(suite))
    ):
        out.print(note, style="dim", highlight=False, soft_wrap=True)
    for note in dict.fromkeys(note for line in cost.scores for note in line.notes):
        out.print(note, style="yellow", highlight=False, soft_wrap=True)
    out.print(_format_plan_total(cost), highlight=False, soft_wrap=True)


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
    table = Table(title="plan; nothing was run")
    for name in ("model", "task", *(["key"] if keys else []), "state"):
        table.add_column(name)
    for name in numbers:
        table.add_column(name, justify="left" if name == "time" else "right")
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
            _time_text(line),
        )
    return table


def _time_text(line: ScoreCost) -> str:
    if line.state == "done":
        return ""
    return "?" if line.time is None else line.time.text


DONE = ("there", "diverged", "to choose")
"""The states of trainings that take no time."""


def _format_time_left(line: TrainingCost) -> str:
    """The time that a training still takes; a question mark where that is not known."""
    if line.time_left is None:
        return "?"
    return "" if line.state in DONE else line.time_left.text


def print_trainings(lines: Sequence[TrainingCost]) -> None:
    """Print planned trainings as a table, and what their recipes say of them."""
    table = Table(title="trainings; nothing was run")
    for name in ("model", "key", "from", "data", "seed", "state"):
        table.add_column(name)
    for name in ("steps", "texts"):
        table.add_column(name, justify="right")
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
            _format_time_left(line),
        )
    out = create_console()
    print_table(table, out)
    open_lines = [line for line in lines if line.state not in DONE]
    if budgets := [line.operations for line in open_lines if line.operations is not None]:
        text = (
            f"{len(open_lines)} trainings to do, with budgets of {math.fsum(budgets):.4g} operations in all."
        )
        out.print(text, highlight=False, soft_wrap=True)
    for source in dict.fromkeys(line.source for line in lines if line.source):
        out.print(f"Times of trainings are by {source}.", style="dim", highlight=False, soft_wrap=True)
    for note in dict.fromkeys(note for line in lines for note in line.notes):
        out.print(note, style="dim", highlight=False, soft_wrap=True)
