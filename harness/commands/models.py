"""`harness models`: list, show, remove and export the models that recipes have trained."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from harness.commands import options
from harness.core import files, paths
from harness.core.errors import UsageError, shortened, unknown
from harness.core.terminal import console, print_table
from harness.data.locate import human_size
from harness.driver.report.suite import lineage_lines
from harness.encoder.family import MODEL_TYPE
from harness.encoder.folder.files import read_object
from harness.encoder.folder.modules import OWN, all_modules, backbone_folder
from harness.results.cost.duration import duration_text
from harness.training.model_store import TRAINING, ModelStore, StoredModel, UnfinishedModel
from harness.training.training import LOG, read_log

_Model = StoredModel | UnfinishedModel

_SHOWN = 5
"""The number of lines of a log that are shown."""

_KEY = re.compile("[0-9a-f]{6,64}")


@click.group("models")
def command() -> None:
    """List, show, remove and export trained models; the catalog's are in `harness list models`."""


@command.command("list")
@options.results
@options.cache
@options.as_json
def _list(results: Path | None, cache: Path | None, as_json: bool) -> int:
    """List the trained models of the results folder, and the trainings that are not at their end."""
    rows = [_row(model) for model in _models(ModelStore(paths.results_folder(results)), cache)]
    if as_json:
        click.echo(json.dumps({"schema": 1, "models": rows}, indent=1, ensure_ascii=False))
    elif not rows:
        click.echo("There is no trained model. `harness list recipes` shows what trains one.")
    else:
        _print_table(rows)
    return 0


@command.command("show")
@click.argument("model")
@options.results
@options.cache
@options.as_json
def _show(model: str, results: Path | None, cache: Path | None, as_json: bool) -> int:
    """Show MODEL, a name or six or more digits of a key: what it was made of, and how its training went."""
    found = _named(model, ModelStore(paths.results_folder(results)), cache)
    log = read_log(_log(found))
    if as_json:
        document = found.document if isinstance(found, StoredModel) else None
        about = None if document is None else document.model_dump(mode="json", by_alias=True)
        content = {"schema": 1, **_row(found), "document": about, "log": log}
        click.echo(json.dumps(content, indent=1, ensure_ascii=False))
        return 0
    for line in [*_facts(found), *_curve(log)]:
        click.echo(line)
    if isinstance(found, StoredModel) and not found.problem:
        click.echo(f"To evaluate it: harness run --model {found.folder} --suite SUITE")
    return 0


@command.command("remove")
@click.argument("model")
@click.option("--yes", is_flag=True, help="Do not ask.")
@options.results
@options.cache
def _remove(model: str, yes: bool, results: Path | None, cache: Path | None) -> int:
    """Remove MODEL, a name or six or more digits of a key, or what a training has left of it.

    Its records stay. Asks for the model's name or key unless --yes is given.
    """
    store = ModelStore(paths.results_folder(results))
    found = _named(model, store, cache)
    size = human_size(_bytes(found.folder))
    if not yes and not _agreed(found, size):
        click.echo("That is another name: nothing is removed.", err=True)
        return 1
    store.remove(found.key)
    click.echo(f"Removed {found.name} ({found.key[:12]}), {size}.")
    return 0


@command.command("export")
@click.argument("model")
@click.argument("folder", type=click.Path(path_type=Path))
@options.results
@options.cache
def _export(model: str, folder: Path, results: Path | None, cache: Path | None) -> int:
    """Copy MODEL, a name or six or more digits of a key, to FOLDER, without the log of its training.

    FOLDER is new or empty. sentence-transformers loads what lies there then.
    """
    found = _named(model, ModelStore(paths.results_folder(results)), cache)
    if isinstance(found, UnfinishedModel):
        raise UsageError(f"The training of {found.name} has not finished.", hint="Type its command again.")
    if found.problem:
        raise UsageError(f"{found.folder} is damaged: {found.problem}.", hint="Train the model again.")
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise UsageError(f"{folder} is there already.", hint="Name a folder that is new or empty.")
    _copy(found.folder, folder)
    click.echo(f"{folder}: {found.name} ({found.key[:12]}), {human_size(_bytes(folder))}. {_loading(folder)}")
    return 0


def _models(store: ModelStore, cache: Path | None) -> list[_Model]:
    return [*store.finished(paths.cache_folder(cache)), *store.unfinished()]


def _named(text: str, store: ModelStore, cache: Path | None) -> _Model:
    """The model with a name, or with a key that begins so.

    Raises:
        UsageError: There is none, or several.
    """
    models = _models(store, cache)
    found = [one for one in models if text in (one.name, one.folder.name)]
    if not found and _KEY.fullmatch(text):
        found = [one for one in models if one.key.startswith(text) or text.startswith(one.key)]
    if not found:
        names = {one.name for one in models}
        raise unknown("trained model", text, names, then="`harness models list` shows them, with their keys.")
    if len(found) > 1:
        keys = [f"{one.key[:12]} ({_recipe(one)}, seed {_seed(one)})" for one in found]
        raise UsageError(
            f"{len(found)} trained models are called {text}.", hint=f"Give the key: {shortened(keys)}."
        )
    return found[0]


def _recipe(model: _Model) -> str:
    if isinstance(model, UnfinishedModel):
        return model.recipe
    return "" if model.document is None else model.document.lineage.text


def _seed(model: _Model) -> int | None:
    if isinstance(model, UnfinishedModel):
        return model.seed
    return None if model.document is None else model.document.lineage.seed


def _state(model: _Model) -> str:
    if isinstance(model, UnfinishedModel):
        state = "diverged" if model.diverged else "unfinished"
        return f"{state}, step {model.done}" + (f" of {model.steps}" if model.steps else "")
    return "damaged" if model.problem else "whole"


def _row(model: _Model) -> dict[str, Any]:
    written = max((path.stat().st_mtime for path in _files(model.folder)), default=0.0)
    return {
        "name": model.name,
        "recipe": _recipe(model),
        "seed": _seed(model),
        "key": model.key,
        "bytes": _bytes(model.folder),
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(written)),
        "state": _state(model).partition(",")[0],
        "step": model.done if isinstance(model, UnfinishedModel) else None,
        "steps": model.steps if isinstance(model, UnfinishedModel) else None,
        "problem": model.problem if isinstance(model, StoredModel) else "",
        "folder": str(model.folder),
    }


def _print_table(rows: Sequence[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table()
    for column in ("name", "recipe", "seed", "key", "size", "written", "state"):
        table.add_column(column)
    for row in rows:
        seed = "" if row["seed"] is None else str(row["seed"])
        state = row["state"]
        if row["step"] is not None:
            state += f", step {row['step']}" + (f" of {row['steps']}" if row["steps"] else "")
        size, written = human_size(row["bytes"]), row["written"][:16].replace("T", " ")
        table.add_row(row["name"], row["recipe"], seed, row["key"][:12], size, written, state)
    print_table(table, console())


def _facts(model: _Model) -> list[str]:
    row = _row(model)
    problem = f": {row['problem']}" if row["problem"] else ""
    lines = [
        f"{model.name} ({model.key[:12]}), {human_size(row['bytes'])}, {_state(model)}{problem}",
        f"  folder: {model.folder}",
    ]
    if isinstance(model, UnfinishedModel) or model.document is None:
        return [*lines, f"  recipe: {_recipe(model)}, seed {_seed(model)}"] if _recipe(model) else lines
    lineage = model.document.lineage
    facts = {
        "recipe": f"{lineage.text}, seed {lineage.seed}",
        "source": lineage.source,
        "settings": _pairs(lineage.settings),
        "made of": ", ".join(f"{one.text} ({one.artifact[:12]})" for one in lineage.parents),
        "data": "; ".join(map(_pairs, lineage.data)),
        "selected on": ", ".join(lineage.all_selected_on),
        "training": _training_text(model.document.training),
    }
    assumed = [f"  assumed: {sentence}" for sentence in lineage.assumed]
    swept = [f"  {line}" for line in lineage_lines(lineage)] if lineage.sweep else []
    return [*lines, *(f"  {name}: {text}" for name, text in facts.items() if text), *swept, *assumed]


def _training_text(facts: Mapping[str, Any]) -> str:
    """The circumstances of a training in a line; `--json` has all of them."""
    device, rows = facts["device"]["name"], facts.get("micro_batch")
    return ", ".join(
        [
            f"{facts['steps']:,} steps in {duration_text(facts['seconds'])}",
            f"{facts['tokens']:,} tokens",
            f"on {', '.join(facts['devices'])} ({device})",
            *([f"{rows} rows in a pass"] if rows else []),
            *facts["notes"],
        ]
    )


def _pairs(content: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_value_text(value)}" for name, value in content.items())


def _value_text(value: Any) -> str:
    if isinstance(value, list):
        return f"({', '.join(map(str, value))})"
    return "none" if value in (None, "") else str(value)


def _curve(log: Sequence[dict[str, Any]]) -> list[str]:
    """The loss at both ends of a log, and its last lines."""
    losses = [(line["step"], line["loss"]) for line in log if isinstance(line.get("loss"), int | float)]
    if not losses:
        return []
    (first, begin), (last, end) = losses[0], losses[-1]
    lines = [f"  {_pairs(line)}" for line in map(_rounded, log[-_SHOWN:])]
    return [
        f"Loss: {begin:.4f} at step {first}, {end:.4f} at step {last}. The last lines of its log:",
        *lines,
    ]


def _rounded(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line of a log as it is shown; `--json` has every digit."""
    texts = {name: f"{value:.4g}" for name, value in line.items() if isinstance(value, float)}
    memory = line.get("memory")
    return {**line, **texts, **({"memory": human_size(memory)} if memory is not None else {})}


def _log(model: _Model) -> Path:
    return model.folder / (LOG if isinstance(model, UnfinishedModel) else f"{TRAINING}/{LOG}")


def _agreed(model: _Model, size: str) -> bool:
    """Whether the user types the model's name, or six or more digits of its key."""
    try:
        typed = click.prompt(f"To remove {model.name} ({model.key[:12]}, {size}), type its name or key")
    except click.Abort as error:
        raise UsageError("No terminal to ask in.", hint="Pass --yes to remove the model.") from error
    return typed == model.name or (bool(_KEY.fullmatch(typed)) and model.key.startswith(typed))


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in _files(folder))


def _copy(model: Path, folder: Path) -> None:
    """Copy a model without the circumstances of its training; the folder appears when it is whole."""
    staged = folder.with_name(f".{folder.name}.{files.host()}-{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        for path in _files(model):
            place = staged / path.relative_to(model)
            if not place.is_relative_to(staged / TRAINING):
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, place)
        staged.rename(folder)
    except OSError as error:
        raise files.write_error(folder, error) from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _loading(folder: Path) -> str:
    """What loads an exported model."""
    kinds = {kind for kind, _ in all_modules(folder)}
    own = read_object(backbone_folder(folder) / "config.json").get("model_type") == MODEL_TYPE
    if own or kinds & set(OWN):
        return "sentence-transformers loads it where encoder-harness is installed."
    return "sentence-transformers loads it."
