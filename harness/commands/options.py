"""Options that several commands share, and those of an evaluation, spelled and explained once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from harness.core.arguments import VECTORS, checked
from harness.core.encoding import ContextChoice
from harness.core.errors import UsageError
from harness.core.types import DTYPES, SEED, DocumentText, Similarity
from harness.executors.executor import LOCAL
from harness.search.plaid import KEEP_GIGABYTES

F = TypeVar("F", bound=Callable[..., Any])


class Number(click.ParamType[Any]):
    """A number in the form of the argument of that name in Python, and refused with the same message."""

    name = "number"

    def __init__(self, argument: str) -> None:
        self._argument = argument

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The checked number."""
        for kind in (int, float):
            with contextlib.suppress(TypeError, ValueError):
                return checked(self._argument, kind(value))
        return checked(self._argument, value)


class _Choice(click.Choice[str]):
    """A choice among the values of the argument of that name in Python, refused with the same message."""

    def __init__(self, argument: str, choices: Sequence[str]) -> None:
        super().__init__(choices)
        self._argument = argument

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The checked value."""
        found: str = checked(self._argument, value)
        return found


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
remote = click.option(
    "--remote",
    envvar="HARNESS_REMOTE",
    default=None,
    metavar="URL",
    help="Object storage that machines without a shared disk share, e.g. s3://bucket/folder: records, "
    "vectors and trained models are fetched from there and sent there (docs/cluster.md).",
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

project = click.option(
    "--name",
    "project",
    default=None,
    metavar="NAME",
    help="Name of the project of a code:FOLDER suite in its tasks (default: by its metadata).",
)

_BUDGET = "harness.budget"
"""The place of a budget in the context of a command, until the changed settings are read."""


def _keep_budget(context: click.Context, _option: click.Parameter, flops: float | None) -> None:
    context.meta[_BUDGET] = flops


def _with_budget(
    context: click.Context, _option: click.Parameter, changes: tuple[str, ...]
) -> tuple[str, ...]:
    """The changed settings with the budget among them.

    Raises:
        UsageError: There are two budgets.
    """
    flops = context.meta.get(_BUDGET)
    if flops is None:
        return changes
    if any(one.partition("=")[0].strip() == "budget" for one in changes):
        raise UsageError("--budget and --set budget=… both give a budget.", hint="Leave one of them out.")
    return (*changes, f"budget={flops!r}")


_OPTIONS = (
    recipe := click.option(
        "--recipe",
        multiple=True,
        metavar="RECIPE",
        help="How a model is trained: a name, or name:variant (`harness list recipes`). Repeat for one that "
        "makes a model and one for tasks with labels.",
    ),
    changes := click.option(
        "--set",
        "changes",
        multiple=True,
        metavar="SETTING=VALUE",
        callback=_with_budget,
        help="A setting of the recipe (docs/training.md, docs/glue.md). Repeat for several.",
    ),
    budget := click.option(
        "--budget",
        "flops",
        type=float,
        metavar="FLOPS",
        is_eager=True,
        expose_value=False,
        callback=_keep_budget,
        help="The floating-point operations of a training, which choose its steps, as --set budget=FLOPS "
        "(docs/training.md).",
    ),
    train_data := click.option(
        "--train-data",
        multiple=True,
        metavar="DATA",
        help="Train on this in place of the recipe's data: org/name, a file of pairs or triplets (JSONL, "
        "CSV, Parquet), a folder in BEIR's layout or of a teacher's scores, or code:FOLDER "
        "(docs/training-data.md). Repeat to train on several; of recipes A+B type A=DATA and B=DATA, of a "
        "mix NAME=DATA for a set in place of another, or one more.",
    ),
    click.option(
        "--tasks",
        default=None,
        help="Only these tasks of the suites, e.g. RTE,MRPC; type:STS for all of a type.",
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
    max_length := click.option(
        "--max-length",
        type=Number("max_length"),
        default=None,
        help="Longest input in tokens, of multi-vector (ColBERT) models the longest document (default: "
        "the model's own).",
    ),
    query_length := click.option(
        "--query-length",
        type=Number("query_length"),
        default=None,
        help="Longest query in tokens, of multi-vector (ColBERT) models (default: the model's own, or "
        "that of a BEIR task).",
    ),
    dtype := click.option(
        "--dtype",
        type=_Choice("dtype", list(DTYPES)),
        default="float32",
        help="Precision of weights and products.",
    ),
    vectors := click.option(
        "--vectors",
        type=_Choice("vectors", list(VECTORS)),
        default=None,
        help="Precision in which vectors are kept and compared (default: float32, and float16 where each "
        "token has a vector).",
    ),
    click.option(
        "--document-text",
        type=_Choice("document_text", get_args(DocumentText)),
        default=None,
        help="Text of a document in retrieval tasks (default: as the suite has it).",
    ),
    similarity := click.option(
        "--similarity",
        type=_Choice("similarity", get_args(Similarity)),
        default=None,
        help="How vectors are compared (default: the model's own, else cosine; maxsim where each token has "
        "one).",
    ),
    click.option(
        "--index",
        default=None,
        metavar="INDEX",
        help="Search of multi-vector (ColBERT) models: auto (the default: exact, and plaid for large "
        "tasks), exact, plaid[:SETTING=VALUE,...] or pylate-script (docs/retrieval.md).",
    ),
    click.option(
        "--context",
        type=_Choice("context", get_args(ContextChoice)),
        default=None,
        help="Context documents of a two-stage model: drawn from the task's own texts, once each or with "
        "replacement, or none (default: as the model was saved).",
    ),
    prompt := click.option(
        "--prompt",
        "prompts",
        multiple=True,
        metavar="NAME=TEXT",
        help="Text put before inputs; NAME is query, document, a task or a type. Repeat for several.",
    ),
    prompts := click.option(
        "--prompts",
        "prompt_file",
        type=click.Path(path_type=Path, dir_okay=False),
        default=None,
        help="JSON or TOML file of prompts by name.",
    ),
    seed := click.option(
        "--seed",
        type=Number("seed"),
        default=SEED,
        help="Seed of samples, probes and trainings; further seeds are counted from it (mteb's own is 42).",
    ),
    languages,
    subsets,
    splits,
    results,
    cache,
    data,
    remote,
    offline,
    devices := click.option(
        "--devices",
        default="",
        help="Devices, e.g. cuda:0,cuda:1; one process each if several (default: every GPU, else the CPU).",
    ),
    executor := click.option(
        "--executor",
        default=LOCAL,
        metavar="EXECUTOR",
        help="Where jobs run: local (this machine), ray[:ADDRESS] or slurm[:SETTING=VALUE,...] "
        "(docs/cluster.md).",
    ),
    threads := click.option(
        "--threads",
        type=Number("threads"),
        default=None,
        help="CPU threads of each process (default: torch's own choice).",
    ),
    batch_tokens := click.option(
        "--batch-tokens",
        type=Number("batch_tokens"),
        default=None,
        help="Padded tokens that are encoded at once on each device, which bounds memory; a longer text runs "
        "alone (default: 65536).",
    ),
    click.option(
        "--workers",
        type=Number("workers"),
        default=None,
        help="Processes that train at once on each device (default: as many as memory and cores allow).",
    ),
    click.option(
        "--drop-vectors",
        is_flag=True,
        help="Remove a model's cached vectors once it has all scores of the run.",
    ),
    click.option(
        "--keep-vectors",
        type=Number("keep_vectors"),
        default=KEEP_GIGABYTES,
        metavar="GIGABYTES",
        help="Keep a corpus' vectors of tokens up to this size; those of a larger one go into its index as "
        "they are encoded (default: 64).",
    ),
    click.option(
        "--no-gate", is_flag=True, help="Run a model that the sanity gate refuses; its records say so."
    ),
    trust_remote_code := click.option(
        "--trust-remote-code",
        is_flag=True,
        help="Run code from the model's repository; needs a pinned commit.",
    ),
    allow_extra := click.option(
        "--allow-extra",
        default="",
        metavar="NAMES",
        help="Tensors that may have no place in the model and are then left out, e.g. probe.*,bias.",
    ),
)


device = click.option(
    "--device", default="", metavar="DEVICE", help="Device, e.g. cuda:0 (default: a GPU, else the CPU)."
)
models = click.option(
    "--model",
    "models",
    multiple=True,
    required=True,
    metavar="MODEL",
    help="Catalog name, org/name[@revision], a folder, or a trained model of the results folder. "
    "Repeat for several.",
)
checkpoint_minutes = click.option(
    "--checkpoint-minutes",
    type=Number("checkpoint_minutes"),
    default=10.0,
    help="Minutes between two checkpoints of a training, from which it goes on after a kill.",
)
seeds = click.option(
    "--seeds",
    type=Number("seeds"),
    default=1,
    help="Models that a recipe makes, with as many seeds; tables show their mean and deviation.",
)


context_seeds = click.option(
    "--context-seeds",
    type=Number("context_seeds"),
    default=1,
    help="Draws of the context documents of a two-stage model, one evaluation each; tables show their mean "
    "and deviation.",
)
sweep = click.option(
    "--sweep",
    multiple=True,
    metavar="SETTING=VALUES",
    help="Train with each of these values of a setting of the recipe, e.g. learning_rate=1e-5,3e-5,1e-4; the "
    "best by --select is the model.",
)
select = click.option(
    "--select",
    multiple=True,
    metavar="SUITE:TASKS",
    help="Tasks whose mean score chooses in a sweep, e.g. beir:NFCorpus,SciFact; they are marked as no test "
    "of the model. Repeat for several suites.",
)


def with_project(suites: tuple[str, ...], name: str | None) -> tuple[str, ...]:
    """The suites with the name of a project in the one that is `code:FOLDER`.

    Raises:
        UsageError: There is a name, and not one such suite.
    """
    if name is None:
        return suites
    if not name.strip():
        raise UsageError("--name is empty.", hint="Name the project, or leave it out.")
    own = [suite for suite in suites if suite.startswith("code:")]
    if any("=" in suite and not os.path.isdir(suite.removeprefix("code:")) for suite in own):
        raise UsageError(f"--name and {own[0]} both name a project.", hint="Leave one of them out.")
    count = len(own)
    if count != 1:
        raise UsageError(
            f"--name is for one suite code:FOLDER; there are {count}.",
            hint="Type --suite code:NAME=FOLDER for each of several.",
        )
    return tuple(
        suite.replace("code:", f"code:{name}=", 1) if suite.startswith("code:") else suite for suite in suites
    )


def training(command: F) -> F:
    """Give a command every option of a training that an evaluation has as well."""
    how = (recipe, changes, budget, train_data, seed)
    where = (results, cache, data, remote, offline, devices, executor, threads)
    for option in reversed((*how, *where, allow_extra)):
        command = option(command)
    return command


def evaluation(command: F) -> F:
    """Give a command every option of an evaluation, in the order of `harness run`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
