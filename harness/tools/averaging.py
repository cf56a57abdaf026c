"""Averages of checkpoints: a model whose weights are the mean of those of several, with its lineage."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from harness.core import files
from harness.core.errors import ModelError, UsageError, shorten_names
from harness.core.lineage import FILE, Lineage, ModelDocument, ParentPart
from harness.core.types import Artifact
from harness.data.training.loading import add_text_hashes, read_text_hashes
from harness.encoder.folder.content import VOLATILE, WHOLE, compute_content_key, list_content_files
from harness.encoder.folder.files import read_json
from harness.encoder.folder.modules import weight_files
from harness.encoder.weights import StoredTensor, read_safetensors

RECIPE = "average"
"""The name in a lineage; it is no recipe that can be asked for, since nothing is trained."""


def average_models(models: Sequence[Artifact], output: Path, cache: Path) -> ModelDocument:
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
    if output.is_file() or (output.is_dir() and any(output.iterdir())):
        raise UsageError(f"{output} exists already.", hint="Name a folder that is new or empty.")
    # A sum in another order may have another last digit.
    models = sorted(models, key=lambda model: model.key)
    headers = [_read_headers(model) for model in models]
    _require_alike(models, headers)
    parents = tuple(ParentPart.of(model) for model in models)
    lineage = Lineage(recipe=RECIPE, settings={}, parents=parents, data=(), seed=0)
    staging = files.generate_temporary_path(output)
    try:
        _write_average(models[0].folder, headers, staging)
        content, weights = compute_content_key(staging, cache)
        document = ModelDocument(
            name=output.resolve().name, key=lineage.key, content=content, weights=weights, lineage=lineage
        )
        (staging / FILE).write_text(document.to_json(), encoding="utf-8")
        trained = [model.folder for model in models if model.trained]
        # Where those of one are not known, those of the average are not known either.
        if trained and all(read_text_hashes(folder) is not None for folder in trained):
            add_text_hashes((), staging, parents=trained)
        # rename() replaces an empty folder, and fails where another process has put something into it by now.
        staging.rename(output)
    except OSError as error:
        raise files.write_error(output, error) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return document


_Headers = dict[str, StoredTensor]
"""The tensors of all weight files of a model, each by its module's folder and its name."""


def _require_alike(models: Sequence[Artifact], headers: Sequence[_Headers]) -> None:
    """Refuse models that differ in more than the values of their weights."""
    contents = [
        {path.relative_to(model.folder).as_posix(): _read_content(path) for path in _list_files(model.folder)}
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


def _list_files(folder: Path) -> list[Path]:
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
    # The parts of a sharded checkpoint have the first model's names, so its index holds for them.
    parts = [path for path in weight_files(first) if path.name != WHOLE]
    for path in {*_list_files(first), *(path.with_name(f"{WHOLE}.index.json") for path in parts)}:
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


def _read_tensor(path: Path, name: str) -> torch.Tensor:
    with safe_open(path, "pt") as tensors:
        tensor: torch.Tensor = tensors.get_tensor(name)
    return tensor


def _compute_mean(name: str, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    if not tensors[0].is_floating_point():
        if any(not torch.equal(tensors[0], other) for other in tensors[1:]):
            raise UsageError(
                f"The models differ in {name}, which holds whole numbers and has no mean.",
                hint="Average checkpoints of one model, saved by one program.",
            )
        return tensors[0]
    total = tensors[0].double()
    for other in tensors[1:]:
        total += other
    return (total / len(tensors)).to(tensors[0].dtype)
