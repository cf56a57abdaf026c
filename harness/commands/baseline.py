"""`harness baseline`: named records that candidates are compared with."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from harness.checks.advice import SOURCES, explain_unseen_margins
from harness.checks.baselines import BASELINES, EXPORT, Baseline, Reference, export_baseline
from harness.commands import options
from harness.core import files
from harness.core.arguments import collect_options
from harness.core.encoding import Settings
from harness.core.errors import HarnessError, UsageError
from harness.core.terminal import create_console, print_table
from harness.core.types import SuiteOptions
from harness.driver.progress import run_with_progress
from harness.plan.catalog import RECIPE, find_suites, read_prompts
from harness.plan.request import Request

_PARTS = {**collect_options(SuiteOptions), **collect_options(Settings)}
KEPT = ("recipe", "changes", "train_data", "evaluation", *_PARTS)
"""The options that a baseline records, so that a candidate is evaluated in the same way."""


EXAMPLES = """\b
Examples:
  harness baseline set main --model runs/1/last --suite mteb
  harness check --candidate runs/2/last --baseline main
  harness baseline export main baselines/main.zip
"""


@click.group("baseline", epilog=EXAMPLES)
def command() -> None:
    """Set, list and show baselines: records that `harness check` compares candidates with."""


@command.command(
    "set",
    cls=options.HelpCommand,
    examples="""
harness baseline set main --model runs/1/last --suite mteb --tasks STS12,STS13
harness baseline set main --model runs/2/last --suite nanobeir --replace
""",
    everyday="--model --suite --tasks --seeds --replace --max-length --dtype --prompt --recipe --devices "
    "--results --json",
)
@click.argument("name")
@options.make_option(
    Request,
    "models",
    help="A name of the catalog, org/name[@revision] of the hub, or a folder. Repeat for models trained by "
    "the same recipe with other seeds: they show how much seeds change the scores.",
)
@options.make_option(
    Request,
    "suites",
    required=False,
    help="Suite of tasks. Repeat for several. Without it, the suite of each task in --tasks is found.",
)
@options.project
@options.make_option(Request, "seeds", help="Number of seeds of trainings, probes and samples.")
@options.option("Output", "--replace", "again", is_flag=True, help="Replace the baseline of this name.")
@options.option(
    "What",
    "--anchor",
    metavar="NAME",
    default=None,
    help="Earlier baseline that checks also compare with, so that small losses do not add up unseen (default "
    "with --replace: the first of the replaced ones). NAME itself: none.",
)
@options.evaluation
@options.as_json
def _set_baseline(
    name: str,
    models: tuple[str, ...],
    suites: tuple[str, ...],
    project: str | None,
    seeds: int,
    again: bool,
    anchor: str | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Measure the missing scores of a model, and set its records as the baseline NAME."""
    from harness.checks import check

    prompts = read_prompts(given["prompts"], given["prompt_file"]) or {}
    kept = {option: given[option] for option in KEPT}
    # The texts, and not the path of a file, which may have changed by the time a candidate is checked.
    kept["prompts"] = [f"{side}={text}" for side, text in prompts.items()]
    # JSON has no tuples: as lists they are equal to what is read from the baseline's file later.
    kept |= {option: list(given[option]) for option in ("recipe", "changes", "train_data")}
    request = Request.parse_options(models, suites, given)
    suites = options.insert_project(suites or find_suites(request.options.tasks), project)
    if not suites:
        raise UsageError("A baseline needs a suite.", hint="Name one with --suite, or tasks with --tasks.")
    request = replace(request, suites=suites)
    with request.limit_network():
        baseline = check.set_baseline(
            name,
            request,
            seeds=seeds,
            options=kept,
            again=again,
            anchor=anchor,
            carry_out=run_with_progress,
        )
    return _print_baseline(baseline, as_json, name)


@command.command("list")
@options.results
@options.as_json
def _list(results: Path | None, as_json: bool) -> int:
    """List the baselines that are set."""
    # A baseline that cannot be read must not hide the others.
    home = files.resolve_results_folder(results)
    baselines, broken = [], []
    for name in BASELINES.list_names(home):
        try:
            baselines.append(BASELINES.find_document(home, name))
        except HarnessError as error:
            broken.append(error.message)
    for message in broken:
        click.echo(f"Warning: {message}", err=True)
    if as_json:
        click.echo(json.dumps({"schema": 1, "baselines": [one.to_json() for one in baselines]}, indent=1))
    elif not baselines:
        click.echo("No baseline is set. `harness baseline set NAME --model MODEL --suite SUITE` sets one.")
    else:
        _print_baselines(baselines)
    return 0


@command.command("show")
@click.argument("name")
@options.results
@options.as_json
def _show_baseline(name: str, results: Path | None, as_json: bool) -> int:
    """Show the baseline NAME, or of a file: models, how they were evaluated, and the keys of the records."""
    reference = Reference.resolve(name, results) if name.endswith((EXPORT, ".json")) else None
    baseline = reference and reference.baseline
    baseline = baseline or BASELINES.find_document(files.resolve_results_folder(results), name)
    return _print_baseline(baseline, as_json, name)


@command.command("export")
@click.argument("name")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@options.results
@options.as_json
def _export(name: str, file: Path | None, results: Path | None, as_json: bool) -> int:
    """Write the baseline NAME with all its records as one FILE, for machines that have none of them.

    `harness check --baseline FILE` takes it. Without FILE it is NAME.zip.
    """
    facts = export_baseline(files.resolve_results_folder(results), name, file or Path(f"{name}.zip"))
    if as_json:
        click.echo(json.dumps({"schema": 1, "baseline": name, **facts}, indent=1))
    else:
        click.echo(
            f"{facts['file']}: {facts['records']} records, {facts['bytes'] / 1e6:.1f} MB, "
            f"SHA-256 {facts['sha256'][:12]}"
        )
        click.echo(f"Next: harness check --candidate MODEL --baseline {facts['file']}")
    return 0


def _print_baselines(baselines: list[Baseline]) -> None:
    from rich.table import Table

    table = Table()
    for column in ("baseline", "model", "suites", "runs", "seeds", "tasks", "set"):
        table.add_column(column)
    for baseline in baselines:
        counts = (str(len(baseline.runs)), str(baseline.seeds), str(len(baseline.runs[0].keys)))
        table.add_row(
            baseline.name, baseline.runs[0].model, ", ".join(baseline.suites), *counts, baseline.when[:16]
        )
    print_table(table, create_console())


def _print_power(baseline: Baseline) -> None:
    """Print what a check against a baseline can see, of its means and of each task."""
    if baseline.power is None:
        return
    for suite, mean in baseline.power.means.items():
        seen = f", sees a loss of {100 * mean.detectable:.2f}" if mean.detectable is not None else ""
        click.echo(f"{suite}: margin {100 * mean.margin:.2f} ({SOURCES[mean.source]}){seen}")
    for unseen in explain_unseen_margins(baseline.power.means):
        click.echo(f"warning: {unseen}", err=True)
    from rich.table import Table

    table = Table(title="in points, what a check can see under the default policy")
    for column in ("task", "loss seen in 80 % of checks", "margin"):
        table.add_column(column, justify="left" if column == "task" else "right")
    for task, line in baseline.power.tasks.items():
        seen = "–" if line.detectable is None else f"{100 * line.detectable:.2f}"
        table.add_row(task, seen, f"{100 * line.margin:.2f}")
    print_table(table, create_console())


def _print_baseline(baseline: Baseline, as_json: bool, typed: str) -> int:
    if as_json:
        click.echo(BASELINES.kind.serialize_document(baseline), nl=False)
        return 0
    click.echo(
        f"{baseline.name}: set {baseline.when} on {', '.join(baseline.suites)}, seeds: {baseline.seeds}"
    )
    # What an option is when it was not typed says nothing about the baseline.
    untyped: tuple[Any, ...] = (None, "", [], RECIPE)
    chosen = [
        f"{option.replace('_', '-')} {value}"
        for option, value in baseline.options.items()
        # A seed of 0 is equal to False, and was typed.
        if value is not False and value not in untyped
    ]
    click.echo("  " + (", ".join(chosen) or "settings: the model's own"))
    for run in baseline.runs:
        revision = f" at {run.revision[:12]}" if run.revision else ""
        count = f"{len(run.keys)} task{'' if len(run.keys) == 1 else 's'}"
        click.echo(f"  {run.model}{revision}, artifact {run.artifact[:12]}, {count}:")
        for task, keys in run.keys.items():
            click.echo(f"    {task}: {', '.join(key[:12] for key in keys)}")
    if baseline.anchor is not None:
        anchor = baseline.anchor
        click.echo(f"  anchor: {anchor.name} of {anchor.when[:16]}, {anchor.baselines} before")
    _print_power(baseline)
    command = ["harness", "check", "--candidate", "MODEL", "--baseline", typed, *_list_typed_places()]
    click.echo(f"Next: {shlex.join(command)}")
    return 0


def _list_typed_places() -> list[str]:
    """The typed options of this machine, which no baseline keeps and the check needs again."""
    context, words = click.get_current_context(), list[str]()
    for name in ("results", "cache", "data", "offline"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            value = context.params[name]
            words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    return words
