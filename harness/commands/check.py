"""`harness check`: pass or fail a candidate by its scores against a baseline."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from harness import evaluation, files, paths, progress
from harness.checks import policy as policies
from harness.checks.baselines import Reference
from harness.checks.outcome import Check, check_files
from harness.checks.policy import Policy
from harness.checks.report import junit, markdown, print_check
from harness.commands import options
from harness.errors import StoreError, UsageError
from harness.progress import console
from harness.report import Report
from harness.request import Request


@click.command("check")
@click.option(
    "--candidate",
    "candidates",
    multiple=True,
    metavar="MODEL",
    help="Who is judged: a model as after `harness run --model`; one at a time.",
)
@click.option(
    "--baseline",
    default=None,
    metavar="NAME|FILE|MODEL",
    help="By whom: a baseline that was set, its file, a file of `harness baseline export`, or a model.",
)
@click.option(
    "--suite",
    "suites",
    multiple=True,
    metavar="SUITE",
    help="Suite, or suite:argument (default: those of the baseline). Repeat for several.",
)
@click.option(
    "--seeds",
    type=options.Number("seeds"),
    default=None,
    help="Seeds of what is drawn by chance: trainings of a recipe, probes, samples "
    "(default: as many as the baseline has, else 1).",
)
@click.option(
    "--policy",
    "policy_file",
    type=click.Path(path_type=Path),
    default=None,
    help="TOML file with margins, levels and what must not regress (docs/check.md).",
)
@click.option(
    "--allow-differences",
    "allowed",
    multiple=True,
    metavar="FIELD",
    help="What may differ between the evaluations, e.g. pooling, max_length or prompts, beside what the "
    "policy allows. Repeat for several.",
)
@click.option("--explain", is_flag=True, help="Print the policy and what it means; compare nothing.")
@click.option("--all", "every", is_flag=True, help="List equivalent tasks, too.")
@click.option(
    "--junit",
    type=click.Path(path_type=Path),
    default=None,
    help="Write the check as JUnit XML to this file.",
)
@click.option(
    "--markdown",
    type=click.Path(path_type=Path),
    default=None,
    help="Write the check as Markdown for a pull request to this file.",
)
@click.option(
    "--json-file", type=click.Path(path_type=Path), default=None, help="Write the check as JSON to this file."
)
@options.project
@options.evaluation
@options.as_json
@click.pass_context
def command(
    context: click.Context,
    /,
    candidates: tuple[str, ...],
    baseline: str | None,
    suites: tuple[str, ...],
    project: str | None,
    seeds: int | None,
    policy_file: Path | None,
    allowed: tuple[str, ...],
    explain: bool,
    every: bool,
    junit: Path | None,
    markdown: Path | None,
    json_file: Path | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Compare a candidate with a baseline, task by task, and say whether it is as good.

    Scores that are missing are measured first. Ends with 0 if the candidate passes, 1 if it
    regressed, 3 if neither can be said (the policy may ask for 0 or 1 instead).
    """
    policy = policies.Policy.read(policy_file) if policy_file is not None else policies.DEFAULT
    policy = replace(policy, allow_differences=(*policy.allow_differences, *allowed))
    if explain:
        return _explain(policy, as_json)
    reports = {json_file: _as_json, junit: _as_junit, markdown: _as_markdown}
    _clear([path for path in reports if path is not None])
    suites = options.with_project(suites, project)
    made = _check(context, candidates, baseline, suites, seeds, policy, given)
    for path, text in reports.items():
        if path is not None:
            files.replace(path, text(made).encode())
    if as_json:
        click.echo(_as_json(made))
    else:
        _print(made, given["results"], every=every)
    return made.exit_code


def _check(
    context: click.Context,
    candidates: tuple[str, ...],
    baseline: str | None,
    suites: tuple[str, ...],
    seeds: int | None,
    policy: Policy,
    given: dict[str, Any],
) -> Check:
    from harness.checks.check import run_check

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
    standard = Reference.resolve(baseline, given["results"])
    other = standard.baseline
    if other is not None:
        given = _filled(context, given, other.asked)
        suites, seeds = suites or other.suites, seeds or other.seeds
    if not suites:
        raise UsageError(
            f"Which suite? {baseline} is no baseline that was set, so none is known.",
            hint="Type --suite, e.g. --suite nanobeir (`harness list suites`; `harness baseline list`).",
        )
    request = Request.of_options((), suites, given)
    with request.network():
        return run_check(candidate, standard, request, seeds=seeds or 1, policy=policy, carry_out=carry_out)


def carry_out(request: Request) -> Report:
    """The report of a request that is run for a user, with its progress on standard error."""
    return progress.carry_out(evaluation.prepare(request), console(stderr=True))


def _filled(context: click.Context, given: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """The typed options, with the baseline's in place of those that were not typed."""
    default = (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)
    left = {name for name in given if context.get_parameter_source(name) in default}
    if "prompt_file" not in left:
        left.discard("prompts")
    return {name: known[name] if name in known and name in left else given[name] for name in given}


def _explain(policy: Policy, as_json: bool) -> int:
    click.echo(json.dumps({"schema": 1, **policy.to_json()}, indent=1) if as_json else _explanation(policy))
    return 0


def _clear(paths: Sequence[Path]) -> None:
    """Remove the reports of an earlier check, so that none of them is taken for this check's."""
    for path in paths:
        try:
            files.writable(path.absolute().parent)
            path.unlink(missing_ok=True)
        except (StoreError, OSError) as error:
            raise UsageError(
                f"The report {path} cannot be written: {error}", hint="Name another file."
            ) from error


def _print(made: Check, results: Path | None, *, every: bool) -> None:
    print_check(made, console(), every=every)
    kept = check_files(paths.results_folder(results), made.id)
    click.echo(f"kept as {kept[0]}")


def _as_json(made: Check) -> str:
    return json.dumps(made.to_json(), indent=1, ensure_ascii=False)


def _as_junit(made: Check) -> str:
    return junit(made)


def _as_markdown(made: Check) -> str:
    return markdown(made)


MEANINGS: Mapping[str, str] = {
    "alpha": "chance of a false alarm that is accepted: half of it for the tasks, half for the means",
    "margin": 'points; differences of a task within it do not count. Or "measured": what the '
    "baseline's own runs differ by",
    "least_margin": "points; no measured margin is smaller",
    "mean_margin": "points; likewise of a suite's mean, or \"measured\". The check fails if the mean's "
    "interval lies below it",
    "max_drop": "points; a task has regressed if it fell by more than this",
    "must_not_regress": "tasks that fail the check if they regress; * and ? stand for any characters",
    "correction": "for the number of tasks: holm, benjamini-hochberg or none",
    "inconclusive": "what a check that decides nothing ends with: exit-3, fail (1) or pass (0)",
    "missing": "what a check ends with if a score is missing or nothing could be tested: exit-3 or fail (1)",
    "not_testable": "tasks without units to compare: inconclusive, or ignore them",
    "allow_differences": "fields of an evaluation that may differ, as pooling or encoding.max_length",
    "budget_minutes": "after which no further work is begun; 0 for no limit",
}
"""The meaning of each setting, in a line."""


def _explanation(policy: Policy) -> str:
    """The policy as TOML with the meaning of each setting above it, to save and change."""
    settings, _, tasks = _to_toml(policy).partition("\n\n")
    lines = []
    for line in settings.rstrip("\n").split("\n"):
        lines += [f"# {MEANINGS[line.partition(' ')[0]]}", line]
    return "\n".join(lines) + (f"\n\n{tasks.rstrip()}" if tasks else "")


def _to_toml(policy: Policy) -> str:
    """A policy in the form of a file that `read` takes."""
    lines = [f"{n} = {_toml(v)}" for n, v in policy.to_json().items() if n != "tasks"]
    for name, own in policy.tasks.items():
        lines += ["", f"[tasks.{_toml(name)}]"]
        lines += [f"{n} = {_toml(v)}" for n, v in asdict(own).items() if v is not None]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_toml, value))}]"
    return repr(value)
