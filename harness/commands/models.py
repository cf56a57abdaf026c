"""`harness models`: list, show, remove, export, average and publish trained models."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from harness.commands import options
from harness.core import files
from harness.core.encoding import Settings, is_bm25
from harness.core.errors import ModelError, UsageError, explain_unknown
from harness.core.keys import MODEL_FILE, Lineage, ModelDocument, ParentPart, format_swept_settings
from harness.core.provenance import forbid_network
from harness.core.terminal import create_console, create_table, print_table, shorten_names
from harness.core.types import Artifact
from harness.data.locate import format_size
from harness.data.training.loading import add_text_hashes, read_text_hashes
from harness.driver.protocol import prepare_protocol
from harness.driver.report.suite import format_lineage_lines
from harness.encoder import backbones
from harness.encoder.architecture import MODEL_TYPE
from harness.encoder.folder.description import (
    VOLATILE,
    FolderIdentity,
    compute_folder_identity,
    list_content_files,
)
from harness.encoder.folder.files import WHOLE, StoredTensor, read_json, read_object, read_safetensors
from harness.encoder.folder.modules_and_pooling import OWN, find_backbone_folder, list_modules, weight_files
from harness.plan import catalog
from harness.plan.models import ModelOptions, resolve_model
from harness.plan.request import Request
from harness.results.cost.compute import (
    TRAINED,
    BackboneCompute,
    find_published_compute,
    read_backbone_compute,
)
from harness.results.cost.duration import format_duration
from harness.results.cost.price import read_prices
from harness.results.notes import NOTES, ComputeNote, CountedPart, parse_amount
from harness.tools.exports import list_published_files, push_files, require_repository_name
from harness.tools.model_card import (
    README,
    ComputeCard,
    build_eval_files,
    build_model_card,
    collect_bills,
    collect_card_source,
    collect_protocol_bill,
    describe_lineage,
    format_fact_pairs,
)
from harness.training.model_store import PREDICTIONS, TRAINING, ModelStore, StoredModel, UnfinishedModel
from harness.training.training import LOG, read_log

_Model = StoredModel | UnfinishedModel

_SHOWN = 5
"""The number of lines of a log that are shown."""

_KEY = re.compile("[0-9a-f]{6,64}")


def _read_amount(text: str) -> float:
    amount = parse_amount(text)
    if amount is None:
        raise click.BadParameter(f"{text!r} is no number above 0. Type one such as 2.9e21 or 2.1T.")
    return amount


_prices = options.add_file_option("--prices", "TOML file with prices of devices of yours (docs/compute.md).")


@click.group("models")
def command() -> None:
    """List, show, export, average and publish trained models; the catalog's are in `harness list models`."""


@command.command("list")
@options.results
@options.cache
@options.as_json
def _list(results: Path | None, cache: Path | None, as_json: bool) -> int:
    """List the trained models of the results folder, and the trainings that have not finished."""
    models = _list_stored_models(ModelStore(files.resolve_results_folder(results)), cache)
    places = _describe_sweep_places(models)
    rows = [{**_build_model_row(model), "sweep": places.get(model.key, "")} for model in models]
    if as_json:
        click.echo(json.dumps({"schema": 1, "models": rows}, indent=1, ensure_ascii=False))
    elif not rows:
        click.echo("No trained models yet. `harness list recipes` shows the recipes that train one.")
    else:
        _print_table(rows)
    return 0


@command.command("show")
@click.argument("model")
@options.results
@options.cache
@options.as_json
def _show_model(model: str, results: Path | None, cache: Path | None, as_json: bool) -> int:
    """Show MODEL, a name or six or more digits of a key: what it was made of, and how its training went."""
    stored_model = _find_stored_model(model, ModelStore(files.resolve_results_folder(results)), cache)
    log = read_log(_log(stored_model))
    if as_json:
        document = stored_model.document if isinstance(stored_model, StoredModel) else None
        about = None if document is None else document.model_dump(mode="json", by_alias=True)
        content = {"schema": 1, **_build_model_row(stored_model), "document": about, "log": log}
        click.echo(json.dumps(content, indent=1, ensure_ascii=False))
        return 0
    for line in [*_describe_model(stored_model), *_describe_loss_curve(log)]:
        click.echo(line)
    if isinstance(stored_model, StoredModel) and not stored_model.problem:
        click.echo(f"To evaluate it: harness run --model {stored_model.folder} --suite SUITE")
    return 0


@command.command("remove")
@click.argument("model")
@click.option("--yes", is_flag=True, help="Do not ask.")
@options.results
@options.cache
def _remove(model: str, yes: bool, results: Path | None, cache: Path | None) -> int:
    """Remove MODEL, a name or six or more digits of a key, or the rest of an interrupted training.

    Its records stay. A run that trained a removed classifier trains it again when repeated. Asks for the
    model's name or key unless --yes is given.
    """
    store = ModelStore(files.resolve_results_folder(results))
    stored_model = _find_stored_model(model, store, cache)
    size = format_size(_count_model_bytes(stored_model.folder))
    if not yes and not _ask_removal(stored_model, size):
        click.echo("The name does not match: nothing was removed.", err=True)
        return 1
    store.remove(stored_model.key)
    click.echo(f"Removed {stored_model.name} ({stored_model.key[:12]}), {size}.")
    return 0


@command.command("export")
@click.argument("model")
@click.argument("folder", type=click.Path(path_type=Path))
@options.results
@options.cache
def _export(model: str, folder: Path, results: Path | None, cache: Path | None) -> int:
    """Copy MODEL, a name or six or more digits of a key, to FOLDER, without the log of its training.

    FOLDER must be new or empty. sentence-transformers loads the copy; for a classifier, transformers does.
    """
    stored_model = _find_whole_model(model, results, cache)
    _require_new_folder(folder)
    _copy(stored_model.folder, folder)
    click.echo(
        f"{folder}: {stored_model.name} ({stored_model.key[:12]}), "
        f"{format_size(_count_model_bytes(folder))}. {_describe_loading(folder)}"
    )
    return 0


@command.command("predictions")
@click.argument("models", nargs=-1, required=True)
@options.output_folder
@options.results
@options.cache
def _predictions(models: Sequence[str], output: Path, results: Path | None, cache: Path | None) -> int:
    """Copy the predictions of the classifiers MODELS to DIR, a file for each task and split.

    Files of GLUE's test splits have the format of GLUE's server; put them into one zip yourself.
    """
    store = ModelStore(files.resolve_results_folder(results))
    predictions: dict[str, Path] = {}
    for text in models:
        place = _find_stored_model(text, store, cache).folder / TRAINING / PREDICTIONS
        own_files = {path.name: path for path in sorted(place.glob("*"))}
        if not own_files:
            raise UsageError(f"{text} has no predictions.", hint="Those of --recipe finetune have some.")
        if both := predictions.keys() & own_files.keys():
            raise UsageError(f"Two of the models predict {min(both)}.", hint="Name one model for each task.")
        predictions |= own_files
    _require_new_folder(output)
    with _stage_folder(output) as staging:
        staging.mkdir(parents=True)
        for name, path in predictions.items():
            shutil.copyfile(path, staging / name)
    for name in predictions:
        click.echo(output / name)
    return 0


@command.command("average")
@click.argument("models", nargs=-1, required=True)
@options.output_folder
@options.results
@options.cache
@options.offline
def _average(
    models: Sequence[str], output: Path, results: Path | None, cache: Path | None, offline: bool | None
) -> int:
    """Write the mean of the weights of MODELS to DIR: a model like any other, with its lineage.

    MODELS are two or more checkpoints of one model, each as `harness run --model` takes it, such as the last
    ones of a pretraining.
    """
    with forbid_network() if offline else contextlib.nullcontext():
        places = ModelOptions(
            offline=bool(offline),
            cache=files.resolve_cache_folder(cache),
            results=files.resolve_results_folder(results),
        )
        if rankings := [text for text in models if is_bm25(text)]:
            raise UsageError(f"{rankings[0]} has no weights.", hint="Name checkpoints of one model.")
        artifacts = [resolve_model(text, Settings(), places).artifact for text in models]
        document = _average_models(artifacts, output, files.resolve_cache_folder(cache))
    click.echo(
        f"{output}: the mean of {len(models)} models ({document.key[:12]}), "
        f"{format_size(_count_model_bytes(output))}. {_describe_loading(output)}"
    )
    return 0


@command.command("card")
@click.argument("model")
@click.option(
    "--suite",
    "suites",
    multiple=True,
    help="Only the scores of this suite, with its means. Repeat for several.",
)
@click.option(
    "--settings",
    default="",
    metavar="TEXT",
    help="The settings whose scores are shown, where there are several: a part of their text in "
    "`harness show`, e.g. '128 tokens'.",
)
@options.add_file_option("--output", "The file to write (default: standard output).")
@options.results
@options.cache
def _write_card(
    model: str,
    suites: tuple[str, ...],
    settings: str,
    output: Path | None,
    results: Path | None,
    cache: Path | None,
) -> int:
    """Write a model card of MODEL: a trained model, a folder, or any model with scores.

    It has the scores as `model-index`, how the model was made, what was assumed, and the commands to
    repeat it.
    """
    folder, document, text = _locate_model(model, results, cache)
    source = collect_card_source(
        text, folder=folder, document=document, suites=suites, settings=settings, results=results
    )
    if folder is None and document is None and any(one.model.source == "local" for one in source.records):
        click.echo(
            "The card lacks what only the model's folder states, as licence and language: name the folder in "
            f"place of {model}.",
            err=True,
        )
    if not source.records:
        run = f"harness run --model {shlex.quote(model)} --suite mteb"
        click.echo(f"The card has no scores, as none is recorded: {run}", err=True)
    content = str(build_model_card(source))
    if output is None:
        click.echo(content, nl=False)
    else:
        files.replace(output, content.encode())
    return 0


@command.command("push")
@click.argument("model")
@click.argument("repository", metavar="ORG/NAME")
@click.option("--dry-run", is_flag=True, help="List the files and their sizes; send nothing.")
@click.option("--private", is_flag=True, help="Make a new repository private.")
@options.add_file_option(
    "--card", "A card that you have edited (default: that of `harness models card`).", exists=True
)
@options.results
@options.cache
def _push(
    model: str,
    repository: str,
    dry_run: bool,
    private: bool,
    card: Path | None,
    results: Path | None,
    cache: Path | None,
) -> int:
    """Send MODEL, a trained model or a folder, with its card to the hub as ORG/NAME.

    Only the model's own files are sent: no logs, checkpoints or training data. The token is that of
    `hf auth login` or HF_TOKEN.
    """
    require_repository_name(repository)
    folder, document, text = _locate_model(model, results, cache)
    if folder is None:
        raise UsageError(
            f"{model} is no model of the results folder and no folder.", hint="Name one of these."
        )
    source = collect_card_source(text, name=repository, folder=folder, document=document, results=results)
    content = card.read_bytes() if card else str(build_model_card(source)).encode()
    own_files = {**list_published_files(folder), README: content, **build_eval_files(source)}
    for name, part in own_files.items():
        click.echo(f"{name}\t{format_size(len(part) if isinstance(part, bytes) else part.stat().st_size)}")
    if dry_run:
        click.echo(f"{len(own_files)} files for {repository}; nothing was sent.")
    else:
        click.echo(push_files(repository, own_files, private=private))
    return 0


@command.command("compute")
@click.argument("model")
@click.option("--protocol", default="", metavar="NAME", help="Also the cost so far of a protocol.")
@_prices
@options.results
@options.cache
@options.offline
@options.as_json
def _show_compute(
    model: str,
    protocol: str,
    prices: Path | None,
    results: Path | None,
    cache: Path | None,
    offline: bool | None,
    as_json: bool,
) -> int:
    """Show the compute card of MODEL: parameters, operations, cost of its trainings, note on its pretraining.

    MODEL is any model that `harness run --model` takes, or a published size such as modernbert-base.
    """
    place, table = files.resolve_results_folder(results), read_prices(prices)
    name, compute, identity = _resolve_compute(model, place, cache, offline)
    bill, has_note = None, identity is not None and identity.weights in NOTES.list_names(place)
    if protocol:
        request = Request(models=(model,), suites=(), results=place, cache=cache, offline=bool(offline))
        with request.limit_network():
            prepared = prepare_protocol(catalog.find_protocol(protocol), request)
            bill = collect_protocol_bill(prepared, compute, table)
    card = ComputeCard(
        model=name, compute=compute, prices=table, protocol=bill,
        bills=collect_bills(identity.document if identity else None, compute, place, table),
        note=NOTES.find_document(place, identity.weights) if identity and has_note else None,
    )  # fmt: skip
    if as_json:
        click.echo(json.dumps({"schema": 1, **card.to_json()}, indent=1, ensure_ascii=False))
    else:
        click.echo("\n".join(card.iter_lines()))
    return 0


@command.command("note")
@click.argument("model")
@click.option(
    "--pretraining-tokens", "tokens", type=_read_amount, metavar="NUMBER",
    help="Tokens of its pretraining, e.g. 2.1T.",
)  # fmt: skip
@click.option(
    "--length", type=click.IntRange(1), help="Tokens of a sequence (default: its limit, 1024 at most)."
)
@click.option(
    "--flops", type=_read_amount, metavar="NUMBER", help="Operations of its pretraining, e.g. 2.9e21."
)
@click.option("--hours", type=_read_amount, metavar="NUMBER", help="Hours that its pretraining took.")
@click.option("--devices", type=click.IntRange(1), default=1, help="How many devices it ran on.")
@click.option("--device", default="", metavar="NAME", help='Their name, e.g. "A100 80GB".')
@click.option(
    "--masking", type=click.FloatRange(0, 1, min_open=True, max_open=True), help="Share of masked tokens."
)
@click.option("--force", is_flag=True, help="Store the note even if its numbers contradict each other.")
@_prices
@options.results
@options.cache
@options.offline
def _note(
    model: str,
    length: int | None,
    force: bool,
    prices: Path | None,
    results: Path | None,
    cache: Path | None,
    offline: bool | None,
    **stated: Any,
) -> int:
    """Store what you know about the pretraining of MODEL; an earlier note on the same weights is replaced.

    The note is in notes/ of the results folder, apart from measurements. Every page marks it as stated.
    """
    place = files.resolve_results_folder(results)
    name, compute, identity = _resolve_compute(model, place, cache, offline)
    if identity is None:
        raise UsageError(
            f"{model} has no weights here.", hint="Name a folder with weights, or a model of the hub."
        )
    if not any(stated[name] for name in ("tokens", "flops", "hours", "masking")):
        raise UsageError(
            "Nothing is stated.", hint="Type --pretraining-tokens, --flops, --hours or --masking."
        )
    length = length or min(compute.limit or TRAINED, TRAINED)
    counted = CountedPart(
        parameters=compute.parameters, without_embeddings=compute.without_embeddings,
        operations=compute.count_operations(compute.lengths[0]),
        token_flops=compute.compute_token_flops(length),
    )  # fmt: skip
    note = ComputeNote(
        model=name, weights=identity.weights, artifact=identity.key, length=length, counted=counted,
        when=datetime.now(UTC).isoformat(timespec="seconds"), **stated,
    )  # fmt: skip
    if (contradictions := [*note.list_contradictions(read_prices(prices))]) and not force:
        raise UsageError(
            f"These statements contradict one another: {' '.join(contradictions)}",
            hint="Correct one of them, or type --force to keep both.",
        )
    path = NOTES.write_document(place, note.weights, note)
    click.echo(f"{path}: stated of {name}. Remove the file to take it back.")
    return 0


def _resolve_compute(
    model: str, results: Path, cache: Path | None, offline: bool | None
) -> tuple[str, BackboneCompute, FolderIdentity | None]:
    """The name of a model, what its backbone computes, and its identity; None for one without weights."""
    if is_bm25(model):
        raise UsageError("bm25 has no network to count.", hint="Name a model with weights.")
    cache = files.resolve_cache_folder(cache)
    folder, name = _locate_model(model, results, cache)[0], ""
    if folder is None:
        if published := find_published_compute(model):
            return model, published, None
        with forbid_network() if offline else contextlib.nullcontext():
            places = ModelOptions(offline=bool(offline), cache=cache, results=results)
            artifact = resolve_model(model, Settings(), places).artifact
        name, folder = artifact.name, artifact.folder
    identity = compute_folder_identity(folder, cache)
    name = identity.document.name if identity.document else name or folder.name
    return name, read_backbone_compute(folder), identity


def _locate_model(
    model: str, results: Path | None, cache: Path | None
) -> tuple[Path | None, ModelDocument | None, str]:
    """The folder and the document of a model, if they are here, and the text that finds its records."""
    store = ModelStore(files.resolve_results_folder(results))
    if _match_models(model, _list_stored_models(store, cache)):
        stored_model = _find_whole_model(model, results, cache)
        return stored_model.folder, stored_model.document, stored_model.key
    folder = files.resolve_home_path(model)
    if not folder.is_dir():
        return None, None, model
    document = compute_folder_identity(folder, files.resolve_cache_folder(cache)).document
    return folder, document, str(folder.resolve())


def _find_whole_model(text: str, results: Path | None, cache: Path | None) -> StoredModel:
    """The finished model with a name or key (`_find_stored_model`) that can be copied."""
    stored_model = _find_stored_model(text, ModelStore(files.resolve_results_folder(results)), cache)
    if isinstance(stored_model, UnfinishedModel):
        raise UsageError(
            f"The training of {stored_model.name} has not finished.", hint="Type its command again."
        )
    if stored_model.problem:
        raise UsageError(
            f"{stored_model.folder} is damaged: {stored_model.problem}.", hint="Train the model again."
        )
    return stored_model


def _list_stored_models(store: ModelStore, cache: Path | None) -> list[_Model]:
    return [*store.list_stored_models(files.resolve_cache_folder(cache)), *store.list_unfinished_models()]


def _describe_sweep_places(models: Sequence[_Model]) -> dict[str, str]:
    """By key, which models a sweep chose, and which are its members, with their swept settings."""
    places: dict[str, str] = {}
    for model in models:
        document = model.document if isinstance(model, StoredModel) else None
        if document is None or (sweep := document.lineage.sweep) is None:
            continue
        places[model.key] = "chosen"
        for member in sweep.curve:
            swept = format_swept_settings(sweep.setting, member.value)
            places.setdefault(member.artifact, f"member of {model.key[:12]}: {swept}")
    return places


def _find_stored_model(text: str, store: ModelStore, cache: Path | None) -> _Model:
    """The model with a name, or with a key that begins so.

    Raises:
        UsageError: There is none, or several.
    """
    models = _list_stored_models(store, cache)
    matches = _match_models(text, models)
    if not matches and files.resolve_home_path(text).is_dir():
        raise UsageError(
            f"{text} is a folder already, and no trained model of the results folder.",
            hint="`harness models list` shows those.",
        )
    if not matches and (entry := backbones.find_catalog_model(text)) and entry.locate:
        raise UsageError(
            f"{text} is a model of the catalog, and not one that was trained here.",
            hint=f"Its folder is {entry.locate()}. `harness show {text}` has its scores.",
        )
    if not matches:
        names = {one.name for one in models}
        then = "`harness list recipes` shows the recipes that train one."
        if names:
            then = "`harness models list` shows them, with their keys."
        raise explain_unknown("trained model", text, names, then=then)
    # The model that a sweep chose has the name of its members.
    places = _describe_sweep_places(matches)
    matches = [one for one in matches if not places.get(one.key, "").startswith("member")]
    if len(matches) > 1:
        keys = [f"{one.key[:12]} ({_format_model_recipe(one)}, seed {_seed(one)})" for one in matches]
        raise UsageError(
            f"{len(matches)} trained models are called {text}.", hint=f"Give the key: {shorten_names(keys)}."
        )
    return matches[0]


def _match_models(text: str, models: Sequence[_Model]) -> list[_Model]:
    matches = [one for one in models if text in (one.name, one.folder.name)]
    if matches or not _KEY.fullmatch(text):
        return matches
    # Of an unfinished training perhaps only the first 12 digits are known, and more of them were typed.
    return [one for one in models if one.key.startswith(text) or text.startswith(one.key)]


def _format_model_recipe(model: _Model) -> str:
    if isinstance(model, UnfinishedModel):
        return model.recipe
    return "" if model.document is None else model.document.lineage.text


def _seed(model: _Model) -> int | None:
    if isinstance(model, UnfinishedModel):
        return model.seed
    return None if model.document is None else model.document.lineage.seed


def _describe_model_state(model: _Model) -> str:
    if isinstance(model, UnfinishedModel):
        state = "diverged" if model.diverged else "unfinished"
        return f"{state}, step {model.done}" + (f" of {model.steps}" if model.steps else "")
    return "damaged" if model.problem else "whole"


def _build_model_row(model: _Model) -> dict[str, Any]:
    written = max((path.stat().st_mtime for path in _list_model_files(model.folder)), default=0.0)
    return {
        "name": model.name,
        "recipe": _format_model_recipe(model),
        "seed": _seed(model),
        "key": model.key,
        "bytes": _count_model_bytes(model.folder),
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(written)),
        "state": _describe_model_state(model).partition(",")[0],
        "step": model.done if isinstance(model, UnfinishedModel) else None,
        "steps": model.steps if isinstance(model, UnfinishedModel) else None,
        "problem": model.problem if isinstance(model, StoredModel) else "",
        "folder": str(model.folder),
    }


def _print_table(rows: Sequence[dict[str, Any]]) -> None:
    table = create_table("name", "recipe", "seed", "key", "size", "written", "state", "sweep")
    for row in rows:
        seed = "" if row["seed"] is None else str(row["seed"])
        state = row["state"]
        if row["step"] is not None:
            state += f", step {row['step']}" + (f" of {row['steps']}" if row["steps"] else "")
        size, written = format_size(row["bytes"]), row["written"][:16].replace("T", " ")
        table.add_row(row["name"], row["recipe"], seed, row["key"][:12], size, written, state, row["sweep"])
    print_table(table, create_console())


def _describe_model(model: _Model) -> list[str]:
    row, state = _build_model_row(model), _describe_model_state(model)
    problem = f": {row['problem']}" if row["problem"] else ""
    lines = [
        f"{model.name} ({model.key[:12]}), {format_size(row['bytes'])}, {state}{problem}",
        f"  folder: {model.folder}",
    ]
    if isinstance(model, UnfinishedModel) or model.document is None:
        recipe = _format_model_recipe(model)
        return [*lines, f"  recipe: {recipe}, seed {_seed(model)}"] if recipe else lines
    lineage = model.document.lineage
    facts = {**describe_lineage(lineage), "training": _format_training(model.document.training)}
    swept = [f"  {line}" for line in format_lineage_lines(lineage)] if lineage.sweep else []
    choices = [f"    {sentence}" for sentence in lineage.assumed]
    lines += [f"  {name}: {text}" for name, text in facts.items() if text]
    head = "  choices, our own first, then those on which sources differ:"
    return [*lines, *swept, *([head, *choices] if choices else [])]


def _format_training(facts: Mapping[str, Any]) -> str:
    """The circumstances of a training in a line; `--json` has all of them."""
    device, rows = facts["device"]["name"], facts.get("micro_batch")
    return ", ".join(
        [
            f"{facts['steps']:,} steps in {format_duration(facts['seconds'])}",
            f"{facts['tokens']:,} tokens",
            f"on {', '.join(facts['devices'])} ({device})",
            *([f"{rows} rows in a pass"] if rows else []),
            *facts["notes"],
        ]
    )


def _describe_loss_curve(log: Sequence[dict[str, Any]]) -> list[str]:
    """The loss at both ends of a log, and its last lines."""
    losses = [(line["step"], line["loss"]) for line in log if isinstance(line.get("loss"), int | float)]
    if not losses:
        return []
    (first, begin), (last, end) = losses[0], losses[-1]
    lines = [f"  {format_fact_pairs(line)}" for line in map(_round_log_line, log[-_SHOWN:])]
    return [
        f"Loss: {begin:.4f} at step {first}, {end:.4f} at step {last}. The last lines of its log:",
        *lines,
    ]


def _round_log_line(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line of a log as it is shown; `--json` has every digit."""
    texts = {name: f"{value:.4g}" for name, value in line.items() if isinstance(value, float)}
    memory = line.get("memory")
    return {**line, **texts, **({"memory": format_size(memory)} if memory is not None else {})}


def _log(model: _Model) -> Path:
    return model.folder / (LOG if isinstance(model, UnfinishedModel) else f"{TRAINING}/{LOG}")


def _ask_removal(model: _Model, size: str) -> bool:
    """Whether the user types the model's name, or six or more digits of its key."""
    try:
        # click raises Abort, a RuntimeError, at the end of stdin, and Python another where it is closed.
        typed = click.prompt(f"To remove {model.name} ({model.key[:12]}, {size}), type its name or key")
    except RuntimeError as error:
        raise UsageError("No terminal to ask in.", hint="Pass --yes to remove the model.") from error
    return typed == model.name or (bool(_KEY.fullmatch(typed)) and model.key.startswith(typed))


def _list_model_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _count_model_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in _list_model_files(folder))


def _copy(model: Path, folder: Path) -> None:
    """Copy a model without the circumstances of its training."""
    with _stage_folder(folder) as staging:
        for path in _list_model_files(model):
            place = staging / path.relative_to(model)
            if not place.is_relative_to(staging / TRAINING):
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, place)


def _require_new_folder(folder: Path) -> None:
    # Nothing is overwritten: a model onto another one would mix the files of both.
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise UsageError(f"{folder} exists already.", hint="Name a folder that is new or empty.")


@contextlib.contextmanager
def _stage_folder(folder: Path) -> Iterator[Path]:
    """A folder that gets its name when it is whole."""
    staging = files.generate_temporary_path(folder)
    try:
        yield staging
        # rename() replaces an empty folder, and fails where another process has put something into it by now.
        staging.rename(folder)
    except OSError as error:
        raise files.write_error(folder, error) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _describe_loading(folder: Path) -> str:
    """What loads an exported model."""
    kinds = {module.kind for module in list_modules(folder)}
    config = read_object(find_backbone_folder(folder) / "config.json")
    if str(config.get("architectures")).endswith("ForSequenceClassification']"):
        return "AutoModelForSequenceClassification of transformers loads it."
    is_harness_model = config.get("model_type") == MODEL_TYPE
    if is_harness_model or kinds & set(OWN):
        return "sentence-transformers loads it where encoder-harness is installed."
    return "sentence-transformers loads it."


# Averages of checkpoints: a model whose weights are the mean of those of several, with its lineage


RECIPE = "average"
"""The name in a lineage; it is no recipe that can be asked for, since nothing is trained."""


def _average_models(models: Sequence[Artifact], output: Path, cache: Path) -> ModelDocument:
    """Write the model whose weights are the mean of those of `models`, by one rename.

    Each tensor is averaged in float64 and written in its own dtype; tensors of whole numbers must be equal.
    The order of the models does not count.

    Args:
        models: Two models or more of one architecture and tokenizer, with their weights as safetensors.
        output: A folder that is new or empty; its name is the model's.
        cache: Where hashes of files are cached.

    Raises:
        UsageError: The models differ in more than their weights, or one is given twice.
        ModelError: A model has no weights as safetensors.
        StoreError: The folder cannot be written.
    """
    if len({model.key for model in models}) < max(2, len(models)):
        raise UsageError("An average needs two or more different models.", hint="Name each model once.")
    _require_new_folder(output)
    # A sum in another order may have another last digit.
    models = sorted(models, key=lambda model: model.key)
    headers = [_read_headers(model) for model in models]
    _require_alike(models, headers)
    parents = tuple(ParentPart.of(model) for model in models)
    lineage = Lineage(recipe=RECIPE, settings={}, parents=parents, data=(), seed=0)
    with _stage_folder(output) as staging:
        _write_average(models[0].folder, headers, staging)
        content, weights, _ = compute_folder_identity(staging, cache)
        document = ModelDocument(
            name=output.resolve().name, key=lineage.key, content=content, weights=weights, lineage=lineage
        )
        (staging / MODEL_FILE).write_text(document.to_json(), encoding="utf-8")
        trained = [model.folder for model in models if model.trained]
        # Where those of one are not known, those of the average are not known either.
        if trained and all(read_text_hashes(folder) is not None for folder in trained):
            add_text_hashes((), staging, parents=trained)
    return document


_Headers = dict[str, StoredTensor]
"""The tensors of all weight files of a model, each by its module's folder and its name."""


def _require_alike(models: Sequence[Artifact], headers: Sequence[_Headers]) -> None:
    """Refuse models that differ in more than the values of their weights."""
    contents = [
        {
            path.relative_to(model.folder).as_posix(): _read_content(path)
            for path in _list_unchanged_files(model.folder)
        }
        for model in models
    ]
    forms = [{name: (one.dtype, one.shape) for name, one in tensors.items()} for tensors in headers]
    for what, (first, *others) in {"": contents, "the shape or dtype of ": forms}.items():
        for model, other in zip(models[1:], others, strict=True):
            differing = sorted(name for name in {*first, *other} if first.get(name) != other.get(name))
            if differing:
                raise UsageError(
                    f"{model.name} and {models[0].name} differ in {what}{shorten_names(differing)}.",
                    hint="Average checkpoints of one model, saved by one program.",
                )


def _list_unchanged_files(folder: Path) -> list[Path]:
    """What decides the vectors beside the weights."""
    weights = {*weight_files(folder)}
    return [path for path in list_content_files(folder) if path not in weights]


def _read_content(path: Path) -> Any:
    content = read_json(path) if path.suffix == ".json" else path.read_bytes()
    if not isinstance(content, dict):
        return content
    return {name: value for name, value in content.items() if name not in VOLATILE}


def _read_headers(model: Artifact) -> _Headers:
    headers: _Headers = {}
    for path in weight_files(model.folder):
        if path.suffix != ".safetensors":
            raise ModelError(
                f"The weights of {model.name} are not safetensors: {path.name}.",
                hint="Save the model with safe_serialization=True.",
            )
        place = path.parent.relative_to(model.folder)
        headers |= {(place / name).as_posix(): tensor for name, tensor in read_safetensors(path)[0].items()}
    return headers


def _write_average(first: Path, headers: Sequence[_Headers], folder: Path) -> None:
    from safetensors.torch import save_file

    # The parts of a sharded checkpoint have the first model's names, so its index holds for them.
    parts = [path for path in weight_files(first) if path.name != WHOLE]
    indexes = {path.with_name(f"{WHOLE}.index.json") for path in parts}
    for path in {*_list_unchanged_files(first), *indexes}:
        target = folder / path.relative_to(first)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    for path in weight_files(first):
        place, target = path.parent.relative_to(first), folder / path.relative_to(first)
        names = {name: (place / name).as_posix() for name in read_safetensors(path)[0]}
        average = {
            name: _compute_mean(name, [_read_tensor(tensors[key].path, name) for tensors in headers])
            for name, key in names.items()
        }
        target.parent.mkdir(parents=True, exist_ok=True)
        save_file(average, target, metadata={"format": "pt"})


def _read_tensor(path: Path, name: str) -> Any:
    from safetensors import safe_open

    with safe_open(path, "pt") as tensors:
        return tensors.get_tensor(name)


def _compute_mean(name: str, tensors: Sequence[Any]) -> Any:
    if not tensors[0].is_floating_point():
        if any(not tensors[0].equal(other) for other in tensors[1:]):
            raise UsageError(
                f"The models differ in {name}, which holds whole numbers and has no mean.",
                hint="Average checkpoints of one model, saved by one program.",
            )
        return tensors[0]
    total = tensors[0].double()
    for other in tensors[1:]:
        total += other
    return (total / len(tensors)).to(tensors[0].dtype)
