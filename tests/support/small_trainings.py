"""Small trainings: a spec in a folder of its own, and the weights that a training leaves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from safetensors.torch import load_file

from harness.core.types import Artifact
from harness.data.training.sets import LocatedTraining, TrainingData
from harness.training.training import TrainingSpec


def tiny_artifact(folder: Path) -> Artifact:
    return Artifact(name="tiny", source=str(folder), folder=folder, key="a" * 64, weights="b" * 64)


def located(folder: Path, columns: Mapping[str, list[Any]], score: str = "") -> LocatedTraining:
    """Rows in a Parquet file."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "rows.parquet"
    Dataset.from_dict(dict(columns)).to_parquet(str(file))
    texts = tuple(name for name in columns if name != score)
    rows = len(next(iter(columns.values())))
    data = TrainingData(content="c" * 64, columns=texts, score=score, rows=rows)
    return LocatedTraining(data=data, file=file, name="rows.parquet", rows=rows, own=True)


def spec_in(place: Path, recipe: Any, name: str = "run", **fields: Any) -> TrainingSpec:
    """A spec in a folder of its own; fields of the spec may be given."""
    (place / name).mkdir(exist_ok=True)
    full = {"seed": 7, "key": "k" * 64, "minutes": 0.001, "threads": 1, "cache": place / "cache", **fields}
    return TrainingSpec(recipe=recipe, folder=place / name, **full)


def weights_in(folder: Path) -> dict[str, torch.Tensor]:
    """The tensors of all modules of a model."""
    return {
        f"{path.parent.name if path.parent != folder else ''}/{name}": tensor
        for path in sorted(folder.rglob("*.safetensors"))
        for name, tensor in load_file(path).items()
    }


def trained(spec: TrainingSpec) -> dict[str, torch.Tensor]:
    """The weights after a training in this process."""
    spec.recipe.train(spec)
    return load_file(spec.output / "model.safetensors")


def largest_difference(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    return max(float((one[name].double() - other[name].double()).abs().max()) for name in one)
