"""`harness run`: evaluate models on suites; `--dry-run` shows the plan and what it will cost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from harness.commands import options
from harness.core import files
from harness.core.errors import UsageError
from harness.core.sources import describe_assumptions, describe_notes, explain_sources
from harness.core.terminal import create_console, print_lines
from harness.driver import evaluation, progress
from harness.driver.estimate import PlanCost
from harness.driver.protocol import PreparedProtocol, prepare_protocol
from harness.driver.report.plan import print_plan, print_trainings
from harness.driver.report.protocol import ProtocolReport, print_protocol_plan, show_protocol
from harness.driver.report.run import list_impossible_results, print_failures
from harness.jobs.recipe import SourcedRecipe
from harness.plan.catalog import find_protocol, find_suites
from harness.plan.request import PreparedRun, Request
from harness.plan.run_file import format_run


@click.command(
    "run",
    cls=options.HelpCommand,
    examples="""
harness run --model minilm --tasks STS12,Banking77Classification.v2 --limit 100
harness run --model runs/1/last --suite beir --tasks SciFact,NFCorpus --dtype bf16
harness run --model answerdotai/ModernBERT-base --recipe glue-quick --suite glue --dry-run
""",
    everyday="--model --suite --tasks --limit --max-length --dtype --data --recipe --set --devices "
    "--results --dry-run",
)
@options.make_option(Request, "models", required=False)
@options.make_option(
    Request,
    "suites",
    required=False,
    help="Suite of tasks, e.g. mteb, beir or local:FOLDER (`harness list suites`). Repeat for several. "
    "Without it, the suite of each task in --tasks is found.",
)
@options.option(
    "What",
    "--protocol",
    default="",
    metavar="NAME",
    help="All runs behind a paper's tables, instead of --suite and --recipe (`harness list protocols`, "
    "docs/protocols.md). --tasks then selects steps of the protocol, or tasks.",
)
@options.option(
    "What",
    "--quick",
    is_flag=True,
    help="With --protocol: few tasks and few steps, for a try. Its tables are marked.",
)
@options.add_options("limit", "lengths")
@options.project
@options.evaluation
@options.add_options("seeds", "context_seeds", "checkpoint_minutes", "force", "fail_fast")
@options.add_options("sweep", "samples", "sample_seed", "select")
@options.run_file
@options.option(
    "Output",
    "--save",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write all settings of the run, with defaults, to a TOML file for --config.",
)
@options.option("Output", "--dry-run", is_flag=True, help="Print the plan and its cost, and run nothing.")
@options.as_json
def command(
    models: tuple[str, ...],
    suites: tuple[str, ...],
    protocol: str,
    quick: bool,
    project: str | None,
    config: Path | None,
    save: Path | None,
    dry_run: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Evaluate models on suites and record the scores; existing scores are reused."""
    if quick and not protocol:
        raise UsageError("--quick is for a protocol.", hint="Name one with --protocol, or leave it out.")
    if save is not None and protocol:
        raise UsageError("A file of settings holds one run, not a protocol.", hint="Leave out --save.")
    request = options.build_request(models, suites, given, config)
    if protocol and request.lengths:
        raise UsageError("A protocol has lengths of its own.", hint="Leave out --lengths, or --protocol.")
    if not request.suites and request.options.tasks and not protocol:
        request = replace(request, suites=find_suites(request.options.tasks))
    request = replace(request, suites=options.insert_project(request.suites, project))
    with request.limit_network():
        if protocol:
            joined = prepare_protocol(find_protocol(protocol), request, quick=quick)
            return _run_protocol(joined, dry_run, as_json)
        prepared = evaluation.prepare(request)
        prepared, fault = evaluation.avoid_hub(prepared)
        if fault:
            click.echo(f"{fault}. The run goes on as with --offline.", err=True)
        # Also before a dry run: where the data of the only task is missing, there is nothing to plan.
        evaluation.require_data(prepared)
        if save is not None:
            files.replace(save, format_run(request).encode())
        if dry_run:
            return _show_plan(prepared, as_json)
        report = progress.follow_run(prepared, create_console(stderr=True))
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=1, ensure_ascii=False))
    else:
        report.print(create_console())
    return report.exit_code


def _run_protocol(prepared: PreparedProtocol, dry_run: bool, as_json: bool) -> int:
    if not (dry_run and as_json):
        print_protocol_plan(prepared, create_console(stderr=not dry_run))
    if dry_run:
        return _show_plan(prepared.joined, as_json, prepared.to_json()) or bool(prepared.open_gaps)
    run = progress.follow_run(prepared.joined, create_console(stderr=True))
    report = ProtocolReport.build_report(prepared, run.results, run.serialize_effort())
    return show_protocol(report, as_json)


def _show_plan(prepared: PreparedRun, as_json: bool, about: Mapping[str, Any] = MappingProxyType({})) -> int:
    cost, out = PlanCost.estimate_plan(prepared), create_console()
    if as_json:
        content = {**about, **cost.to_json(), "evaluations": prepared.evaluations}
        click.echo(json.dumps(content, indent=1))
    else:
        if cost.trainings:
            print_trainings(cost.trainings)
        print_lines((*progress.list_repeated_models(prepared), *prepared.evaluations), out)
        print_plan(cost, prepared.suites, out)
        if isinstance(prepared.recipe, SourcedRecipe):
            typed = prepared.recipe.name.partition(",")[0]  # modified settings stand behind it
            notes = describe_assumptions(describe_notes(prepared.recipe.list_sourced_settings()))
            print_lines([*notes, explain_sources(typed)], out, style="dim")
        if cost.disk is not None and cost.disk.is_large:
            text = cost.disk.text
            print_lines([f"{text[:1].upper()}{text[1:]}."], out)
        print_failures(list_impossible_results(prepared), prepared, out)
    return int(any(line.state == "cannot run" for line in cost.scores))
