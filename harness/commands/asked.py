"""How a model is to be evaluated: the options that every command that evaluates has, and their request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.commands import options
from harness.errors import UsageError, unknown
from harness.recipe import RecipeOptions
from harness.types import SEED, Dtype, Settings, Similarity, SuiteOptions

if TYPE_CHECKING:
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
        type=click.Choice(SIMILARITIES),
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
    options.languages,
    options.splits,
    options.results,
    options.cache,
    options.data,
    options.offline,
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


def evaluation(command: options.F) -> options.F:
    """Give a command every option that says how a model is evaluated, in the order of `harness run`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def defaults() -> dict[str, Any]:
    """What the options are worth where nobody types them, by name."""
    command = click.Command("any", callback=lambda **_: None)
    for option in _OPTIONS:
        option(command)
    context = click.Context(command)
    return {str(one.name): one.get_default(context) for one in command.params}


def request(models: Sequence[str], suites: Sequence[str], given: Mapping[str, Any], **more: Any) -> Request:
    """What the options ask for.

    Args:
        models: As they were typed.
        suites: Likewise.
        given: The values of the options of `evaluation`, by name.
        **more: Further fields of the request.

    Raises:
        UsageError: An option's value cannot be used.
    """
    from harness.request import Request

    same = ("results", "cache", "data", "offline", "threads", "workers", "trust_remote_code")
    return Request(
        models=tuple(models),
        suites=tuple(suites),
        settings=_settings(given),
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
        **more,
    )


def _settings(given: Mapping[str, Any]) -> Settings:
    if given["dtype"] not in DTYPES:
        raise unknown("dtype", str(given["dtype"]), DTYPES, then="Type one of these after --dtype.")
    return Settings(
        dtype=DTYPES[given["dtype"]],
        pooling=given["pooling"],
        normalize=given["normalize"],
        max_length=given["max_length"],
        similarity=given["similarity"],
        prompts=options.read_prompts(given["prompts"], given["prompt_file"]),
        seed=given["seed"],
    )


def _tasks(text: str | None) -> tuple[str, ...]:
    """The tasks asked for; a variable that is not set must not mean all of them."""
    found = options.listed(text or "")
    if text is not None and not found:
        raise UsageError("--tasks is empty.", hint="Name tasks, e.g. --tasks RTE,MRPC, or leave it out.")
    return found
