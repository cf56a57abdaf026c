"""`harness run`: evaluate models on suites; `--dry-run` shows the plan and what it will cost."""

from __future__ import annotations

import json
from typing import Any

import click

from harness.commands import options
from harness.core.sources import describe_ours
from harness.core.terminal import create_console
from harness.driver import evaluation, progress
from harness.driver.estimate import PlanCost
from harness.driver.report.plan import print_plan, print_trainings
from harness.driver.report.run import list_impossible_results, print_failures
from harness.jobs.recipe import SourcedRecipe
from harness.plan.request import PreparedRun, Request


@click.command("run")
@options.add_options("models", "suites")
@options.project
@options.evaluation
@options.add_options("seeds", "context_seeds", "checkpoint_minutes", "sweep", "select", "force", "fail_fast")
@click.option("--dry-run", is_flag=True, help="Print the plan and its cost; run nothing.")
@options.as_json
def command(
    models: tuple[str, ...],
    suites: tuple[str, ...],
    project: str | None,
    dry_run: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Evaluate models on suites and record the scores; what is there is not done again."""
    suites = options.insert_project(suites, project)
    request = Request.parse_options(models, suites, given)
    with request.limit_network():
        prepared = evaluation.prepare(request)
        # Also before a dry run: where the data of the only task is missing, there is nothing to plan.
        evaluation.require_data(prepared)
        if dry_run:
            return _show_plan(prepared, as_json)
        report = progress.follow_run(prepared, create_console(stderr=True))
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=1, ensure_ascii=False))
    else:
        report.print(create_console())
    return report.exit_code


def _show_plan(prepared: PreparedRun, as_json: bool) -> int:
    cost, out = PlanCost.estimate_plan(prepared), create_console()
    if as_json:
        click.echo(json.dumps(cost.to_json(), indent=1))
    else:
        if cost.trainings:
            print_trainings(cost.trainings)
        print_plan(cost, prepared.suites, out)
        if isinstance(prepared.recipe, SourcedRecipe):
            for note in describe_ours(prepared.recipe.list_sourced_settings(), prepared.recipe.name):
                out.print(note, style="dim", highlight=False, soft_wrap=True)
        if cost.disk is not None and cost.disk.is_large:
            text = cost.disk.text
            out.print(f"{text[:1].upper()}{text[1:]}.", highlight=False, soft_wrap=True)
        print_failures(list_impossible_results(prepared), prepared, out)
    return 1 if prepared.plan.impossible else 0
