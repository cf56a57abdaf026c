"""`harness check`: pass or fail a candidate by its scores against a baseline."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import click
from click.core import ParameterSource

from harness.checks import policy as policies
from harness.checks.baselines import Reference
from harness.checks.outcome import CHECKS, Check, Question, check_files
from harness.checks.policy import Policy
from harness.checks.report import print_check, render_junit, render_markdown
from harness.commands import options
from harness.core import files
from harness.core.errors import StoreError, UsageError
from harness.core.terminal import create_console
from harness.driver.progress import run_with_progress
from harness.plan.catalog import find_suites
from harness.plan.request import Request


@click.command(
    "check",
    cls=options.HelpCommand,
    examples="""
harness check --candidate runs/2/last --baseline main
harness check --candidate runs/2/last --baseline runs/1/last --suite nanobeir --markdown check.md
harness check --explain
""",
    everyday="--candidate --baseline --suite --tasks --seeds --policy --margin --question --devices "
    "--results --all --json",
)
@options.option(
    "What",
    "--candidate",
    "candidates",
    multiple=True,
    metavar="MODEL",
    shell_complete=options.complete_models,
    help="Model to check, as after `harness run --model`. One at a time.",
)
@options.option(
    "What",
    "--baseline",
    default=None,
    metavar="NAME|FILE|MODEL",
    help="What it is compared with: the name or file of a baseline, or a model.",
)
@options.make_option(
    Request,
    "suites",
    required=False,
    help="Suite of tasks (default: those of the baseline). Repeat for several.",
)
@options.make_option(
    Request,
    "seeds",
    default=None,
    help="Number of seeds of trainings, probes and samples (default: as many as the baseline has, else 1).",
)
@options.option(
    "What",
    "--policy",
    "policy_file",
    type=click.Path(path_type=Path),
    default=None,
    help="TOML file with margins, levels and what must not regress (docs/check.md).",
)
@options.option(
    "What",
    "--question",
    type=click.Choice(get_args(Question)),
    default=None,
    help="port: are its outputs the same? retrain: is the recipe worse? replace: is another model worse? "
    "(default: replace)",
)
@options.option(
    "What",
    "--margin",
    metavar="POINTS|auto",
    default=None,
    help="Allowed loss of every mean and task, instead of the policy's; auto: chosen by the tool.",
)
@options.option(
    "What",
    "--fail-on-inconclusive",
    is_flag=True,
    help="Exit code 1 instead of 3 if the check is inconclusive.",
)
@options.option(
    "Output", "--explain", is_flag=True, help="Print the policy and what it means, and compare nothing."
)
@options.option("Output", "--all", "every", is_flag=True, help="Also list tasks that passed, and all rules.")
@options.option(
    "Output",
    "--junit",
    type=click.Path(path_type=Path),
    default=None,
    help="Write the check as JUnit XML to this file.",
)
@options.option(
    "Output",
    "--markdown",
    type=click.Path(path_type=Path),
    default=None,
    help="Write the check as Markdown for a pull request to this file.",
)
@options.option(
    "Output",
    "--summary/--no-summary",
    default=None,
    help="Append the Markdown to the step summary of GitHub Actions (default: if GITHUB_STEP_SUMMARY is "
    "set).",
)
@options.option(
    "Output",
    "--json-file",
    type=click.Path(path_type=Path),
    default=None,
    help="Write the check as JSON to this file.",
)
@options.project
@options.evaluation
@options.as_json
@click.pass_context
def command(
    context: click.Context,
    # Positional only: `context` is also the name of an option, which arrives in `given`.
    /,
    candidates: tuple[str, ...],
    baseline: str | None,
    suites: tuple[str, ...],
    project: str | None,
    seeds: int | None,
    policy_file: Path | None,
    question: Question | None,
    margin: str | None,
    fail_on_inconclusive: bool,
    explain: bool,
    every: bool,
    junit: Path | None,
    markdown: Path | None,
    summary: bool | None,
    json_file: Path | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Compare a candidate with a baseline, task by task, and say whether it is worse than is allowed.

    Missing scores are measured first. The exit code is 0 if the candidate passes, 1 if it regressed or a
    score is still missing, 3 if the check is inconclusive (a policy may change this).
    """
    policy = policies.Policy.read(policy_file) if policy_file is not None else policies.DEFAULT
    policy, given["allow"] = policy.accept_names(given["allow"])
    policy = policy if margin is None else policy.set_margins(margin)
    if fail_on_inconclusive:
        policy = policy.model_copy(update={"inconclusive": "fail"})
    if explain:
        return _explain(policy, as_json)
    # Reports that were not asked for share the key None, which is skipped below.
    reports = {json_file: _format_check_json, junit: render_junit, markdown: render_markdown}
    _clear([path for path in reports if path is not None])
    suites = options.insert_project(suites, project)
    result = _check(context, candidates, baseline, suites, seeds, policy, question, given)
    for path, text in reports.items():
        if path is not None:
            files.replace(path, text(result).encode())
    if summary is not False:
        _append_summary(result, wanted=bool(summary))
    if as_json:
        click.echo(_format_check_json(result))
    else:
        _print_check_report(result, given["results"], every=every)
    return result.exit_code


def _check(
    context: click.Context,
    candidates: tuple[str, ...],
    baseline: str | None,
    suites: tuple[str, ...],
    seeds: int | None,
    policy: Policy,
    question: Question | None,
    values: dict[str, Any],
) -> Check:
    from harness.checks import check

    if len(candidates) > 1:
        raise UsageError(
            f"There are {len(candidates)} candidates.",
            hint="Check one after the other: one --candidate each.",
        )
    candidate = "".join(candidates)
    if not candidate or not baseline:
        lacking = "--baseline" if candidate else "--candidate"
        raise UsageError(
            f"A check needs {lacking}.",
            hint="Type harness check --candidate MODEL --baseline NAME (`harness baseline list`).",
        )
    reference = Reference.resolve(baseline, values["results"], values["cache"])
    stored_baseline = reference.baseline
    if stored_baseline is not None:
        values = _fill_options(context, values, stored_baseline.options)
        suites, seeds = suites or stored_baseline.suites, seeds or stored_baseline.seeds
    request = Request.parse_options((), suites, values)
    suites = suites or find_suites(request.options.tasks)
    if not suites:
        raise UsageError(
            f"Which suite? {baseline} is a model and not a baseline, which would name its suites.",
            hint="Type --suite, e.g. --suite nanobeir (`harness list suites`; `harness baseline list`).",
        )
    request = replace(request, suites=suites)

    with request.limit_network():
        return check.run_check(
            candidate,
            reference,
            request,
            seeds=seeds or 1,
            policy=policy,
            question=question,
            carry_out=run_with_progress,
            announce=lambda sentence: click.echo(f"warning: {sentence}", err=True),
        )


def _fill_options(
    context: click.Context, typed: Mapping[str, Any], stored: Mapping[str, Any]
) -> dict[str, Any]:
    """The typed options, with the baseline's in place of those that were not typed."""
    # A value from a variable of the environment counts as typed.
    default = (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)
    left = {name for name in typed if context.get_parameter_source(name) in default}
    # A file of prompts replaces all prompts of the baseline, and is not mixed with them.
    if "prompt_file" not in left:
        left.discard("prompts")
    return {name: stored[name] if name in stored and name in left else typed[name] for name in typed}


def _explain(policy: Policy, as_json: bool) -> int:
    click.echo(json.dumps({"schema": 2, **policy.to_json()}, indent=1) if as_json else policy.to_toml())
    return 0


def _clear(paths: Sequence[Path]) -> None:
    """Remove the reports of an earlier check, so that none of them is taken for this check's."""
    for path in paths:
        try:
            files.require_writable(path.absolute().parent)
            path.unlink(missing_ok=True)
        except (StoreError, OSError) as error:
            raise UsageError(
                f"The report {path} cannot be written: {getattr(error, 'message', error)}",
                hint="Name another file.",
            ) from error


def _append_summary(check: Check, *, wanted: bool) -> None:
    """Append the Markdown to the step summary, if one is set; a failure is only a warning."""
    path = os.environ.get("GITHUB_STEP_SUMMARY", "")
    if not path and not wanted:
        return
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(render_markdown(check))
    except OSError as error:
        why = error.strerror if path else "GITHUB_STEP_SUMMARY is not set"
        click.echo(f"warning: The step summary was not written: {why}.", err=True)


def _print_check_report(check: Check, results: Path | None, *, every: bool) -> None:
    print_check(check, create_console(), every=every, results=results)
    kept = check_files(files.resolve_results_folder(results), check.id)
    click.echo(f"the whole check: {kept[0]}")


def _format_check_json(check: Check) -> str:
    return CHECKS.kind.serialize_document(check).rstrip()
