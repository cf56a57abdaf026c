"""`harness data score`: a data set for distillation, a teacher's scores of pairs and other documents."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import click

from harness.commands import options
from harness.core import files, paths
from harness.core.arguments import parse_allowances
from harness.core.encoding import Settings
from harness.core.terminal import create_console
from harness.data.folder import PARTIAL
from harness.data.locate import DataSettings
from harness.data.offline import forbid_network
from harness.data.scored_data import ScoredData
from harness.driver import progress
from harness.executors.local import choose_device
from harness.jobs.context import WorkerLimits
from harness.plan.evaluations import read_prompts
from harness.plan.models import ModelOptions
from harness.tools.teacher_scores import Scale, ScoringPlan, ScoringRequest, make_scored_data

SCHEMA = 1
"""The version of the --json output (docs/json.md)."""


@click.command("score")
@click.option(
    "--teacher",
    required=True,
    metavar="MODEL",
    help="Model whose scores are written: catalog name, org/name[@revision], or a folder.",
)
@click.option(
    "--train-data",
    required=True,
    metavar="DATA",
    help="Pairs of a query and its answer: a file, a folder in BEIR's layout, ORG/NAME:CONFIG, or "
    "code:FOLDER (docs/training-data.md).",
)
@click.option(
    "--corpus",
    default="",
    metavar="DOCUMENTS",
    help="Further documents to choose from: a corpus.jsonl, or a folder with one (default: the "
    "corpus of a folder in BEIR's layout, else the positives and negatives of all pairs).",
)
@click.option(
    "--output",
    required=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Folder to create.",
)
@click.option(
    "--candidates",
    default="bm25",
    metavar="MODEL",
    help="Ranker that chooses the other documents of a query: bm25, also with settings, or a model "
    "(default: bm25).",
)
@click.option(
    "--documents",
    type=int,
    default=32,
    help="Documents of each query, positives included (default: 32).",
)
@click.option(
    "--queries",
    type=click.IntRange(min=1),
    default=None,
    help="Queries, drawn by chance (default: all).",
)
@click.option(
    "--scale",
    type=click.Choice(get_args(Scale)),
    default="none",
    help="How scores are written: as the teacher gives them, or from 0 to 1 for each query (default: none).",
)
@options.add_options("max_length", "query_length", "dtype", "vectors", "similarity", "prompts", "prompt_file")
@options.add_options("seed", "cache", "data", "offline")
@options.device
@options.add_options("threads", "batch_tokens", "trust_remote_code", "allow")
@click.option("--dry-run", is_flag=True, help="Print what would be scored; load no model.")
@options.as_json
def command(output: Path, device: str, dry_run: bool, as_json: bool, **given: Any) -> int:
    """Make a data set for distillation: a teacher's scores of each query's answers and other documents.

    The folder is in PyLate's form, with the configurations train, queries and documents. The same
    command again finds it there; after an interruption it continues with the vectors in the cache.
    """
    output, cache = paths.resolve_home_path(output), paths.resolve_cache_folder(given["cache"])
    allow = parse_allowances(given["allow"])
    data = DataSettings(
        root=paths.resolve_data_root(given["data"]),
        offline=given["offline"],
        cache=cache,
        partial=PARTIAL in allow,
    )
    models = ModelOptions(
        offline=given["offline"],
        trust_remote_code=given["trust_remote_code"],
        cache=cache,
        allow=allow,
    )
    with forbid_network() if given["offline"] else contextlib.nullcontext():
        plan = ScoringPlan.build_scoring_plan(_build_scoring_request(given), data, models)
        scored_data = plan.find_scored_data(output)
        if dry_run:
            return _print_scoring_plan(plan, output, scored_data, as_json=as_json)
        if scored_data is None:
            # Before the models are loaded: hours of scoring would be lost where no folder can be made.
            files.require_writable(output.absolute().parent)
            scored_data = _run_scoring_plan(plan, output, choose_device(device), cache, given)
    if as_json:
        click.echo(json.dumps(_serialize_scored_data(scored_data, plan), indent=1, ensure_ascii=False))
    else:
        _print_made(scored_data, plan.request.documents)
    return 0


def _build_scoring_request(values: dict[str, Any]) -> ScoringRequest:
    how = ("max_length", "query_length", "dtype", "vectors", "similarity", "seed")
    settings = {name: values[name] for name in how}
    prompts = read_prompts(values["prompts"], values["prompt_file"])
    field_names = ("teacher", "candidates", "train_data", "corpus", "documents", "queries", "scale")
    return ScoringRequest(
        settings=Settings(prompts=prompts, **settings), **{name: values[name] for name in field_names}
    )


def _run_scoring_plan(
    plan: ScoringPlan, output: Path, device: str, cache: Path, values: dict[str, Any]
) -> ScoredData:
    limits = WorkerLimits(threads=values["threads"], batch_tokens=values["batch_tokens"])
    with progress.follow_events(create_console(stderr=True)) as listen:
        return make_scored_data(plan, output, device=device, cache=cache, limits=limits, listen=listen)


def _print_made(scored_data: ScoredData, documents: int) -> None:
    out, counts = create_console(), scored_data.facts["counts"]
    for note in scored_data.facts["notes"]:
        out.print(note, style="yellow", highlight=False, soft_wrap=True)
    low, high = scored_data.facts["range"]
    state = "was there" if scored_data.was_there else "made"
    lines = (
        f"{scored_data.folder}: {state}, key {scored_data.key[:12]}",
        f"  {counts['queries']:,} queries, {counts['documents']:,} documents, {counts['scores']:,} scores "
        f"of {scored_data.facts['teacher']['name']}, from {low:.4g} to {high:.4g}",
    )
    for line in (*lines, *_format_next_command(scored_data, documents)):
        out.print(line, highlight=False, soft_wrap=True)


def _format_next_command(scored_data: ScoredData, documents: int) -> Sequence[str]:
    """The training on the data, where each query has as many documents as were asked for."""
    # Queries with fewer documents than were asked for do not fit one value of `documents`.
    if scored_data.facts["counts"]["scores"] != documents * scored_data.facts["counts"]["queries"]:
        return ()
    arguments = f"--train-data {scored_data.folder} --set documents={documents}"
    return (f"  harness train --model BACKBONE --recipe colbert {arguments}",)


def _serialize_scored_data(scored_data: ScoredData, plan: ScoringPlan) -> dict[str, Any]:
    facts = ("teacher", "candidates", "data", "counts", "range", "constant", "left_out", "notes")
    return {
        "schema": SCHEMA,
        "folder": str(scored_data.folder),
        "key": scored_data.key,
        "state": "there" if scored_data.was_there else "made",
        "asked": plan.request.documents,
        **{name: scored_data.facts[name] for name in facts},
    }


def _print_scoring_plan(
    plan: ScoringPlan, output: Path, scored_data: ScoredData | None, *, as_json: bool
) -> int:
    """Print what would be done."""
    collection = plan.collection
    facts = {
        "schema": SCHEMA,
        "folder": str(output),
        "key": plan.key,
        "state": "to do" if scored_data is None else "there",
        "teacher": plan.teacher.artifact.name,
        "candidates": plan.candidates.artifact.name,
        "data": collection.name,
        "queries": len(plan.queries),
        "corpus": len(collection.documents),
        "asked": plan.request.documents,
        "scores": plan.pairs,
        "texts": len(plan.queries) + min(len(collection.documents), plan.pairs),
        "notes": list(collection.notes),
    }
    if as_json:
        click.echo(json.dumps(facts, indent=1, ensure_ascii=False))
        return 0
    for line in _describe_scoring_plan(facts):
        click.echo(line)
    return 0


def _describe_scoring_plan(facts: dict[str, Any]) -> Sequence[str]:
    return (
        f"{facts['folder']}: {facts['state']}, key {facts['key'][:12]}; nothing was run",
        f"  {facts['data']}: {facts['queries']:,} queries, {facts['corpus']:,} documents to choose from",
        f"  {facts['candidates']} ranks, {facts['teacher']} scores {facts['asked']} documents of each query: "
        f"{facts['scores']:,} scores, up to {facts['texts']:,} texts to encode",
        *(f"  {note}" for note in facts["notes"]),
    )
