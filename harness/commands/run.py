"""`harness run`: evaluate models on suites; `--dry-run` shows the plan and what it will cost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from harness import evaluation, progress
from harness.commands import options
from harness.context import JobContext
from harness.plan import PlannedScore
from harness.progress import console, duration_text
from harness.recipe import Estimate
from harness.record import Record
from harness.report import impossible_results, left_out_lines, print_failures, print_table
from harness.request import PreparedRun, Request, check_devices
from harness.types import Size, Suite

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


@click.command("run")
@click.option(
    "--model",
    "models",
    multiple=True,
    required=True,
    metavar="MODEL",
    help="Catalog name, org/name[@revision], or a folder. Repeat for several.",
)
@options.suites
@options.evaluation
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
    force: bool,
    fail_fast: bool,
    dry_run: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Evaluate models on suites and record the scores; what is there is not done again."""
    request = Request.of_options(models, suites, given, force=force, fail_fast=fail_fast)
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
    estimate = _estimate(prepared)
    if as_json:
        click.echo(json.dumps(_to_json(estimate), indent=1))
    else:
        _show(estimate, prepared.suites, console())
        print_failures(impossible_results(prepared), prepared, console())
    return 1 if prepared.plan.impossible else 0


CHARACTERS_PER_TOKEN = 4.0
"""A rough figure for English; the output says that it is an estimate."""


@dataclass(frozen=True, kw_only=True)
class _Line:
    """The upper cost of a planned score, None where unknown; texts encoded before are not subtracted."""

    model: str
    task: str
    state: str
    texts: int | None
    tokens: int | None
    flops: float | None
    seconds: float | None
    runs: int | None = None
    steps: int | None = None
    notes: tuple[str, ...] = ()


def _estimate(prepared: PreparedRun) -> list[_Line]:
    """The cost of each planned score."""
    records = list(prepared.store.records())
    runs = _shared_out(prepared.plan.open, _runs(prepared))
    return [
        _line(cell, records) if cell.recipe_plan is None else _learnt(cell, runs.get(cell.key, []))
        for cell in prepared.plan.cells
    ]


def _runs(prepared: PreparedRun) -> dict[str, Estimate]:
    """The estimated cost of each missing run by key, from a few steps of it."""
    plan = prepared.plan
    jobs = [job for job in plan.jobs if job.kind == "train" and job.key not in plan.known]
    if not jobs or prepared.recipe is None:
        return {}
    request = prepared.request
    context = JobContext(
        device=check_devices(prepared.devices)[0],
        cache=prepared.cache,
        emit=lambda _event: None,
        threads=request.threads,
    )
    found = prepared.recipe.estimate(jobs, context)
    return {
        job.key: replace(one, notes=tuple(f"{job.place.task}: {note}" for note in one.notes))
        for job, one in zip(jobs, found, strict=True)
        if one is not None and job.place is not None
    }


def _shared_out(cells: Sequence[PlannedScore], runs: dict[str, Estimate]) -> dict[str, list[Estimate]]:
    """Each run once: with the score of its own task, else with the first score that needs it."""
    found: dict[str, list[Estimate]] = {}
    for own in (True, False):
        for cell in cells:
            for job in cell.recipe_plan.jobs if cell.recipe_plan else ():
                if job.key in runs and (not own or (job.place and job.place.task == cell.task.name)):
                    found.setdefault(cell.key, []).append(runs.pop(job.key))
    return found


def _learnt(cell: PlannedScore, mine: Sequence[Estimate]) -> _Line:
    """The cost of a score that a recipe trains for."""
    return _Line(
        model=cell.subject.artifact.name,
        task=cell.task.name,
        state="cannot run" if cell.problem else "to do" if cell.record is None else "done",
        texts=None,
        tokens=None,
        flops=sum(one.flops for one in mine),
        seconds=sum(one.seconds for one in mine),
        runs=len(mine),
        steps=sum(one.steps for one in mine),
        notes=tuple(dict.fromkeys([*_begins(cell, mine), *(note for one in mine for note in one.notes)])),
    )


def _begins(cell: PlannedScore, mine: Sequence[Estimate]) -> list[str]:
    """The plan's own notes on a score with runs to make, such as which model is trained first."""
    notes = cell.recipe_plan.notes if cell.recipe_plan and mine else ()
    return [f"{cell.task.name}: {note}" for note in notes]


def _to_json(lines: list[_Line]) -> dict[str, Any]:
    """The estimate as plain values (docs/json.md)."""
    from dataclasses import asdict

    return {"schema": 1, "plan": [asdict(line) for line in lines]}


def _show(lines: list[_Line], suites: Sequence[Suite], console: Console) -> None:
    """Print the estimate as tables with their totals, and the notes on suites and runs."""
    learnt = [line for line in lines if line.runs is not None]
    for some, names in (
        ([line for line in lines if line.runs is None], ("texts ≤", "tokens ≈", "TFLOPs ≈", "time ≈")),
        (learnt, ("runs", "steps ≤", "TFLOPs ≈", "time ≤")),
    ):
        if some:
            print_table(_table(some, names), console)
    if learnt:
        told = "Times of runs are from twenty steps on this machine, in one process; early stopping and"
        console.print(f"{told} several at once shorten them.", style="dim", highlight=False, soft_wrap=True)
    for note in dict.fromkeys(note for suite in suites for note in (*suite.notes, *left_out_lines(suite))):
        console.print(note, style="dim", highlight=False, soft_wrap=True)
    for note in dict.fromkeys(note for line in learnt for note in line.notes):
        console.print(note, style="yellow", highlight=False, soft_wrap=True)
    to_do = [line for line in lines if line.state == "to do"]
    known = [line.seconds for line in to_do if line.seconds is not None]
    more = "" if len(known) == len(to_do) else f", and {len(to_do) - len(known)} of unknown time"
    console.print(
        f"{len(to_do)} to do, {sum(line.state == 'done' for line in lines)} done, "
        f"{sum(line.state == 'cannot run' for line in lines)} cannot run; "
        f"about {duration_text(sum(known))}{more}.",
        highlight=False,
    )


def _table(lines: Sequence[_Line], numbers: Sequence[str]) -> Table:
    from rich.table import Table

    table = Table(title="plan; nothing was run", title_justify="left")
    for name in ("model", "task", "state"):
        table.add_column(name)
    for name in numbers:
        table.add_column(name, justify="right")
    for line in lines:
        table.add_row(line.model, line.task, line.state, *_numbers(line))
    return table


def _line(cell: PlannedScore, records: Iterable[Record]) -> _Line:
    size = cell.task.size if cell.problem is None else Size()
    tokens = None
    if size.texts is not None and size.characters is not None:
        longest = size.texts * cell.subject.encoding.max_length
        tokens = min(round(size.characters / CHARACTERS_PER_TOKEN) + 2 * size.texts, longest)
    same = [r for r in records if r.model.artifact == cell.subject.artifact.key]
    rates = [r.provenance["tokens_per_second"] for r in same if r.provenance.get("tokens_per_second")]
    parameters = next((r.model.parameters for r in same if r.model.parameters), None)
    state = "cannot run" if cell.problem else "to do" if cell.record is None else "done"
    return _Line(
        model=cell.subject.artifact.name,
        task=cell.task.name,
        state=state,
        texts=size.texts,
        tokens=tokens,
        flops=2.0 * parameters * tokens if parameters and tokens else None,
        seconds=tokens / (sum(rates) / len(rates)) if tokens and rates else None,
    )


def _numbers(line: _Line) -> list[str]:
    counts = (line.texts, line.tokens) if line.runs is None else (line.runs, line.steps)
    return [
        *("?" if count is None else f"{count:,}" for count in counts),
        "?" if line.flops is None else f"{line.flops / 1e12:,.1f}",
        "?" if line.seconds is None else duration_text(line.seconds),
    ]
