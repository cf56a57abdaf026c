"""`harness run`: evaluate models on suites."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from harness.commands import options
from harness.errors import UsageError
from harness.recipe import RecipeOptions
from harness.terminal import console
from harness.types import SEED, Dtype, Settings, Similarity, SuiteOptions

if TYPE_CHECKING:
    from harness.api import Prepared, Report
    from harness.request import Request

DTYPES: dict[str, Dtype] = {
    "float32": "float32",
    "fp32": "float32",
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
    "float16": "float16",
    "fp16": "float16",
}
SIMILARITIES: tuple[Similarity, ...] = ("cosine", "dot", "euclidean", "manhattan")


@click.command("run")
@click.option(
    "--model",
    "models",
    multiple=True,
    required=True,
    metavar="MODEL",
    help="Catalog name, org/name[@revision], or a folder. Repeat for several.",
)
@click.option(
    "--suite",
    "suites",
    multiple=True,
    required=True,
    metavar="SUITE",
    help="Suite, or suite:argument (`harness list suites`). Repeat for several.",
)
@click.option(
    "--recipe",
    default="",
    metavar="RECIPE",
    help="How a model is trained for tasks with labels: a name, or name:variant (`harness list recipes`).",
)
@click.option("--tasks", default=None, help="Only these tasks of the suites, e.g. RTE,MRPC.")
@click.option(
    "--fresh-seeds",
    type=click.IntRange(min=0),
    default=None,
    help="Runs of a chosen cell with seeds of our own, whose mean is the score "
    "(default: 5, or 0 where the recipe has final seeds or chooses nothing).",
)
@click.option("--no-transfer", is_flag=True, help="Start no task from a model for MNLI.")
@click.option(
    "--mnli",
    type=click.Path(path_type=Path, exists=True),
    default=None,
    help="A model for MNLI, folder or weights, that tasks start from in place of the recipe's own.",
)
@click.option(
    "--pooling",
    default=None,
    help="Pooling of token vectors, e.g. mean or cls (default: the model's own, else mean).",
)
@click.option(
    "--normalize/--no-normalize", default=None, help="Scale vectors to length 1 (default: as the model does)."
)
@click.option(
    "--max-length",
    type=click.IntRange(min=1),
    default=None,
    help="Longest input in tokens (default: the model's own).",
)
@click.option(
    "--dtype", type=click.Choice(list(DTYPES)), default="float32", help="Precision of weights and products."
)
@click.option(
    "--similarity",
    type=click.Choice(SIMILARITIES),
    default=None,
    help="How vectors are compared (default: the model's own, else cosine).",
)
@click.option(
    "--prompt",
    "prompts",
    multiple=True,
    metavar="NAME=TEXT",
    help="Text put before inputs; NAME is query, document, a task or a type. Repeat for several.",
)
@click.option(
    "--prompts",
    "prompt_file",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    help="JSON or TOML file of prompts by name.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=SEED,
    help="Seed of samples and probes, and what fresh seeds are counted from (mteb's own is 42).",
)
@options.languages
@options.splits
@options.results
@options.cache
@options.data
@options.offline
@click.option(
    "--devices",
    default="",
    help="Devices, e.g. cuda:0,cuda:1; one process each if several (default: every GPU, else the CPU).",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    default=None,
    help="CPU threads of each process (default: torch's own choice).",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=None,
    help="Processes that train at once on each device (default: as many as memory and cores allow).",
)
@click.option(
    "--force",
    is_flag=True,
    help="Score again what is there already, from known vectors and runs, and put it in its place.",
)
@click.option("--fail-fast", is_flag=True, help="Stop at the first failed task.")
@click.option("--dry-run", is_flag=True, help="Print the plan and its cost; run nothing.")
@click.option("--no-gate", is_flag=True, help="Run a model that the sanity gate refuses; its records say so.")
@click.option(
    "--trust-remote-code", is_flag=True, help="Run code from the model's repository; needs a pinned commit."
)
@options.as_json
def command(
    models: tuple[str, ...], suites: tuple[str, ...], as_json: bool, dry_run: bool, **given: Any
) -> int:
    """Evaluate models on suites and record the scores; what is there is not done again."""
    from harness import api

    request = _request(models, suites, given)
    out = console(stderr=True)
    with api.network(request):
        prepared = api.prepare(request)
        if dry_run:
            return _show_plan(prepared, as_json)
        _announce(prepared, out, quiet=as_json)
        report = _follow(prepared, out, quiet=as_json)
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=1, ensure_ascii=False))
    else:
        from harness.report import print_report

        print_report(report, console())
    return report.exit_code


def _request(models: tuple[str, ...], suites: tuple[str, ...], given: dict[str, Any]) -> Request:
    from harness.request import Request

    settings = Settings(
        dtype=DTYPES[given["dtype"]],
        pooling=given["pooling"],
        normalize=given["normalize"],
        max_length=given["max_length"],
        similarity=given["similarity"],
        prompts=options.read_prompts(given["prompts"], given["prompt_file"]),
        seed=given["seed"],
    )
    same = (
        "results",
        "cache",
        "data",
        "offline",
        "threads",
        "workers",
        "force",
        "fail_fast",
        "trust_remote_code",
    )
    return Request(
        models=models,
        suites=suites,
        settings=settings,
        options=SuiteOptions(
            tasks=_tasks(given["tasks"]),
            languages=options.listed(given["languages"]),
            splits=options.listed(given["splits"]),
        ),
        recipe=given["recipe"],
        recipe_options=RecipeOptions(
            fresh_seeds=given["fresh_seeds"], transfer=not given["no_transfer"], source=given["mnli"]
        ),
        devices=options.listed(given["devices"]),
        gate=not given["no_gate"],
        **{name: given[name] for name in same},
    )


def _tasks(text: str | None) -> tuple[str, ...]:
    """The tasks asked for; a variable that is not set must not mean all of them."""
    found = options.listed(text or "")
    if text is not None and not found:
        raise UsageError("--tasks is empty.", hint="Name tasks, e.g. --tasks RTE,MRPC, or leave it out.")
    return found


def _follow(prepared: Prepared, out: Console, *, quiet: bool) -> Report:
    from harness import api
    from harness.progress import Follower

    jobs = [job for job in prepared.plan.jobs if job.key not in prepared.plan.known]
    runs = sum(job.kind == "train" for job in jobs)
    with Follower(len(prepared.plan.cells), console=out, runs=runs, quiet=quiet) as follower:
        return api.execute(prepared, follower.listeners)


def _announce(prepared: Prepared, out: Console, *, quiet: bool) -> None:
    """What cannot run and why, before anything is encoded."""
    from harness import treatments
    from harness.failures import impossible, print_failures
    from harness.identity import encoding_identity

    if quiet:
        return
    lost = impossible(prepared)
    if lost:
        out.print(f"{len(lost)} of {len(prepared.plan.cells)} tasks cannot run:", style="bold red")
        print_failures(lost, prepared, out)
    for text, one in zip(prepared.request.models, prepared.asked, strict=True):
        if text != one.artifact.source:
            told = f"{text} is the same model as {one.artifact.name}, and is run once."
            out.print(told, highlight=False, soft_wrap=True)
    for line in _said(prepared):
        out.print(line, highlight=False, soft_wrap=True)
    for one in prepared.subjects:
        how = treatments.how_text(encoding_identity(one.encoding))
        if prepared.recipe is not None and all(cell.laid for cell in prepared.plan.cells):
            how = f"{prepared.recipe.name}, {prepared.recipe.source}"
        out.print(
            f"{prepared.label(one)}: {how}; key {one.artifact.key[:12]}",
            highlight=False,
            style="dim",
            soft_wrap=True,
        )


def _said(prepared: Prepared) -> list[str]:
    """What recipes have to say of their tasks before they begin, each once."""
    tasks: dict[str, list[str]] = {}
    for cell in prepared.plan.open:
        for sentence in cell.laid.says if cell.laid else ():
            tasks.setdefault(sentence, []).append(cell.task.name)
    lines = [f"{', '.join(dict.fromkeys(names))}: {sentence}" for sentence, names in tasks.items()]
    runs = sum(job.kind == "train" for job in prepared.plan.jobs)
    if runs:
        known = len(prepared.plan.known)
        lines.append(f"{runs} runs, of which {known} are there")
    return lines


def _show_plan(prepared: Prepared, as_json: bool) -> int:
    from harness import cost
    from harness.failures import impossible, print_failures

    estimate = cost.estimate(prepared)
    if as_json:
        click.echo(json.dumps(cost.to_json(estimate), indent=1))
    else:
        cost.show(estimate, prepared.suites, console())
        print_failures(impossible(prepared), prepared, console())
    return 1 if prepared.plan.impossible else 0
