"""`harness run`: evaluate models on suites."""

from __future__ import annotations

import json
from typing import Any

import click

from harness import cost, evaluation, progress
from harness.commands import options
from harness.progress import console
from harness.report import impossible, print_failures, print_report
from harness.request import Prepared, network, request_of_options


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
    request = request_of_options(models, suites, given, force=force, fail_fast=fail_fast)
    with network(request):
        prepared = evaluation.prepare(request)
        if dry_run:
            return _show_plan(prepared, as_json)
        report = progress.carry_out(prepared, console(stderr=True), quiet=as_json)
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=1, ensure_ascii=False))
    else:
        print_report(report, console())
    return report.exit_code


def _show_plan(prepared: Prepared, as_json: bool) -> int:
    estimate = cost.estimate(prepared)
    if as_json:
        click.echo(json.dumps(cost.to_json(estimate), indent=1))
    else:
        cost.show(estimate, prepared.suites, console())
        print_failures(impossible(prepared), prepared, console())
    return 1 if prepared.plan.impossible else 0
