"""`harness run`: evaluate models on suites; `--dry-run` shows the plan and what it will cost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from harness.commands import options
from harness.commands.train import print_trainings
from harness.core.terminal import console, print_table
from harness.core.types import Suite
from harness.driver import evaluation, progress
from harness.driver.estimate import PlanCost
from harness.driver.report.run import impossible_results, print_failures
from harness.driver.report.suite import left_out_lines
from harness.plan.recipe_request import sweep_of
from harness.plan.request import PreparedRun, Request
from harness.results.cost.encoding import ScoreCost
from harness.results.cost.training import TrainingCost

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


@click.command("run")
@options.models
@options.suites
@options.project
@options.evaluation
@options.seeds
@options.context_seeds
@options.checkpoint_minutes
@options.sweep
@options.select
@click.option(
    "--force",
    is_flag=True,
    help="Score again what is there already, from known vectors and runs, and put it in its place.",
)
@click.option("--fail-fast", is_flag=True, help="Stop at the first failed task.")
@click.option("--dry-run", is_flag=True, help="Print the plan and its cost; run nothing.")
@options.as_json
def command(
    models: tuple[str, ...],
    suites: tuple[str, ...],
    project: str | None,
    seeds: int,
    context_seeds: int,
    checkpoint_minutes: float,
    sweep: tuple[str, ...],
    select: tuple[str, ...],
    force: bool,
    fail_fast: bool,
    dry_run: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Evaluate models on suites and record the scores; what is there is not done again."""
    suites = options.with_project(suites, project)
    how = {"seeds": seeds, "checkpoint_minutes": checkpoint_minutes, "force": force, "fail_fast": fail_fast}
    how["context_seeds"] = context_seeds
    request = Request.of_options(models, suites, given, sweep=sweep_of(sweep), select=select, **how)
    with request.network():
        prepared = evaluation.prepare(request)
        evaluation.require_data(prepared)
        if dry_run:
            return _show_plan(prepared, as_json)
        report = progress.carry_out(prepared, console(stderr=True))
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=1, ensure_ascii=False))
    else:
        report.print(console())
    return report.exit_code


def _show_plan(prepared: PreparedRun, as_json: bool) -> int:
    cost, out = PlanCost.of(prepared), console()
    if as_json:
        click.echo(json.dumps(cost.to_json(), indent=1))
    else:
        if cost.trainings:
            print_trainings(cost.trainings)
        print_plan(cost, prepared.suites, out)
        if cost.disk is not None and cost.disk.is_large:
            text = cost.disk.text
            out.print(f"{text[:1].upper()}{text[1:]}.", highlight=False, soft_wrap=True)
        print_failures(impossible_results(prepared), prepared, out)
    return 1 if prepared.plan.impossible else 0


WIDE = 110
"""The width from which a plan shows the keys of scores, which JSON has whole."""


def print_plan(cost: PlanCost, suites: Sequence[Suite], out: Console) -> None:
    """Print the cost of a plan as tables with their total, what it is learnt from, and the notes."""
    with_runs = [line for line in cost.scores if line.runs is not None]
    encoded = [line for line in cost.scores if line.runs is None]
    for lines, names in (
        (encoded, ("texts ≈", "tokens ≈", "TFLOPs ≈", "time")),
        (with_runs, ("runs", "steps ≤", "TFLOPs ≈", "time")),
    ):
        if lines:
            print_table(_table(lines, names, keys=out.width >= WIDE), out)
    if with_runs:
        note = "Times of runs are from twenty steps on this machine; early stopping shortens them."
        out.print(note, style="dim", highlight=False, soft_wrap=True)
    for note in dict.fromkeys(note for suite in suites for note in (*suite.notes, *left_out_lines(suite))):
        out.print(note, style="dim", highlight=False, soft_wrap=True)
    for note in dict.fromkeys(note for line in cost.scores for note in line.notes):
        out.print(note, style="yellow", highlight=False, soft_wrap=True)
    out.print(_total_text(cost), highlight=False, soft_wrap=True)


def _total_text(cost: PlanCost) -> str:
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


def _table(lines: Sequence[ScoreCost], numbers: Sequence[str], *, keys: bool) -> Table:
    from rich.table import Table

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
