from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file

from finetune.glue.checkpoints import Checkpoints


def weights(value: float) -> dict[str, torch.Tensor]:
    return {"x": torch.full((2,), value)}


def kept(place: Checkpoints, *keys: str) -> list[str]:
    return [key for key in keys if place.find(key) is not None]


def test_only_the_best_so_far_stays(tmp_path: Path) -> None:
    place = Checkpoints(folder=tmp_path / "finetuned")
    place.offer("grid", "a", 0.5, weights(1))
    place.offer("grid", "b", 0.4, weights(2))
    assert kept(place, "a", "b") == ["a"]
    place.offer("grid", "c", 0.6, weights(3))
    assert kept(place, "a", "b", "c") == ["c"]
    found = place.find("c")
    assert found is not None
    assert load_file(found)["x"].tolist() == [3, 3]


def test_equals_are_all_kept_until_a_better_one_comes(tmp_path: Path) -> None:
    """The first of the grid is chosen, which may be the last to end."""
    place = Checkpoints(folder=tmp_path / "finetuned")
    for key in ("b", "a"):
        place.offer("grid", key, 0.5, weights(0))
    assert kept(place, "a", "b") == ["a", "b"]
    place.offer("grid", "c", 0.6, weights(0))
    assert kept(place, "a", "b", "c") == ["c"]


def test_grids_are_apart_and_one_can_be_begun_anew(tmp_path: Path) -> None:
    place = Checkpoints(folder=tmp_path / "finetuned")
    place.offer("one", "a", 0.9, weights(0))
    place.offer("two", "b", 0.1, weights(0))
    assert kept(place, "a", "b") == ["a", "b"]
    place.forget("one")
    place.offer("one", "c", 0.2, weights(0))
    assert kept(place, "c") == ["c"]
