from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from finetune.glue.jobs import _Checkpoints


@pytest.fixture
def place(tmp_path: Path) -> _Checkpoints:
    return _Checkpoints(folder=tmp_path / "finetuned")


def offer(place: _Checkpoints, key: str, watched: float, value: float = 0.0, group: str = "grid") -> None:
    place.offer(group, key, watched, {"x": torch.full((2,), value)})


def kept(place: _Checkpoints) -> list[str]:
    return sorted(path.stem for path in place.folder.glob("*/*.safetensors"))


def test_only_the_best_so_far_stays(place: _Checkpoints) -> None:
    offer(place, "a", 0.5)
    offer(place, "b", 0.4)
    assert kept(place) == ["a"]
    offer(place, "c", 0.6, value=3)
    assert kept(place) == ["c"]
    found = place.find("c", 0.6)
    assert found is not None
    assert load_file(found)["x"].tolist() == [3, 3]


def test_equals_are_all_kept_until_a_better_one_comes(place: _Checkpoints) -> None:
    """The first of the grid is chosen, which may be the last to end."""
    offer(place, "b", 0.5)
    offer(place, "a", 0.5)
    assert kept(place) == ["a", "b"]
    offer(place, "c", 0.6)
    assert kept(place) == ["c"]


def test_a_run_made_anew_takes_the_place_of_its_own_weights(place: _Checkpoints) -> None:
    """It may score otherwise, lower too: what lay there is another model's then."""
    offer(place, "a", 0.5, value=1)
    offer(place, "a", 0.4, value=2)
    assert place.find("a", 0.5) is None
    found = place.find("a", 0.4)
    assert found is not None
    assert load_file(found)["x"].tolist() == [2, 2]


def test_weights_are_those_of_what_they_scored(place: _Checkpoints) -> None:
    offer(place, "a", 0.5)
    assert place.find("a", 0.25) is None
    assert place.find("b", 0.5) is None


def test_grids_are_apart_and_one_can_be_begun_anew(place: _Checkpoints) -> None:
    offer(place, "a", 0.9, group="one")
    offer(place, "b", 0.1, group="two")
    assert kept(place) == ["a", "b"]
    place.forget("one")
    offer(place, "c", 0.2, group="one")
    assert place.find("c", 0.2) is not None
