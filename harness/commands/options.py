"""Options that several commands share, and those of an evaluation, spelled and explained once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from harness.types import DTYPES, SEED, Similarity

F = TypeVar("F", bound=Callable[..., Any])

results = click.option(
    "--results",
    type=click.Path(path_type=Path),
    envvar="HARNESS_RESULTS",
    default=None,
    help="Results folder (default: ./results).",
)
cache = click.option(
    "--cache",
    type=click.Path(path_type=Path),
    envvar="HARNESS_CACHE",
    default=None,
    help="Cache of embeddings and prepared data (default: the user's cache folder).",
)
data = click.option(
    "--data",
    type=click.Path(path_type=Path),
    envvar="HARNESS_DATA",
    default=None,
    help="Data root in hub layout, ORG/NAME below it; used before the hub.",
)
languages = click.option(
    "--languages", default="", help="Only these languages of multilingual tasks, e.g. eng or eng-Latn,deu."
)
subsets = click.option(
    "--subsets", default="", help="Only these subsets of tasks, by the data set's own names, e.g. en-en."
)
splits = click.option("--splits", default="", help="Only these splits, e.g. test.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines (docs/json.md).")
suites = click.option(
    "--suite",
    "suites",
    multiple=True,
    required=True,
    metavar="SUITE",
    help="Suite, or suite:argument (`harness list suites`). Repeat for several.",
)
offline = click.option(
    "--offline", is_flag=True, help="Forbid the network; tasks without data at hand are named at once."
)

_OPTIONS = (
    click.option(
        "--recipe",
        default="",
        metavar="RECIPE",
        help="How a model is trained for tasks with labels: a name, or name:variant "
        "(`harness list recipes`).",
    ),
    click.option("--tasks", default=None, help="Only these tasks of the suites, e.g. RTE,MRPC."),
    click.option(
        "--fresh-seeds",
        type=click.IntRange(min=0),
        default=None,
        help="Runs of a chosen cell with seeds of our own, whose mean is the score "
        "(default: 5, or 0 where the recipe has final seeds or chooses nothing).",
    ),
    click.option("--no-transfer", is_flag=True, help="Start no task from a model for MNLI."),
    click.option(
        "--mnli",
        type=click.Path(path_type=Path, exists=True),
        default=None,
        help="A model for MNLI, folder or weights, that tasks start from in place of the recipe's own.",
    ),
    click.option(
        "--pooling",
        default=None,
        help="Pooling of token vectors, e.g. mean or cls (default: the model's own, else mean).",
    ),
    click.option(
        "--normalize/--no-normalize",
        default=None,
        help="Scale vectors to length 1 (default: as the model does).",
    ),
    click.option(
        "--max-length",
        type=click.IntRange(min=1),
        default=None,
        help="Longest input in tokens (default: the model's own).",
    ),
    click.option(
        "--dtype",
        type=click.Choice(list(DTYPES)),
        default="float32",
        help="Precision of weights and products.",
    ),
    click.option(
        "--similarity",
        type=click.Choice(get_args(Similarity)),
        default=None,
        help="How vectors are compared (default: the model's own, else cosine).",
    ),
    click.option(
        "--prompt",
        "prompts",
        multiple=True,
        metavar="NAME=TEXT",
        help="Text put before inputs; NAME is query, document, a task or a type. Repeat for several.",
    ),
    click.option(
        "--prompts",
        "prompt_file",
        type=click.Path(path_type=Path, dir_okay=False),
        default=None,
        help="JSON or TOML file of prompts by name.",
    ),
    click.option(
        "--seed",
        type=click.IntRange(0, 2**32 - 1),
        default=SEED,
        help="Seed of samples and probes, and what fresh seeds are counted from (mteb's own is 42).",
    ),
    languages,
    subsets,
    splits,
    results,
    cache,
    data,
    offline,
    click.option(
        "--devices",
        default="",
        help="Devices, e.g. cuda:0,cuda:1; one process each if several (default: every GPU, else the CPU).",
    ),
    click.option(
        "--threads",
        type=click.IntRange(min=1),
        default=None,
        help="CPU threads of each process (default: torch's own choice).",
    ),
    click.option(
        "--workers",
        type=click.IntRange(min=1),
        default=None,
        help="Processes that train at once on each device (default: as many as memory and cores allow).",
    ),
    click.option(
        "--no-gate", is_flag=True, help="Run a model that the sanity gate refuses; its records say so."
    ),
    click.option(
        "--trust-remote-code",
        is_flag=True,
        help="Run code from the model's repository; needs a pinned commit.",
    ),
)


def evaluation(command: F) -> F:
    """Give a command every option of an evaluation, in the order of `harness run`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
