"""The checkpoints of a training: which one it goes on from, and what it says of those that it cannot use."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.training.training import Checkpoints, _build_rank_environment
from small_trainings import spec_in, tiny_artifact


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    """Two whole checkpoints, of steps 1 and 2."""
    made = Checkpoints(tmp_path)
    for step in (1, 2):
        (made.prepare_checkpoint(step) / "state.pt").write_bytes(b"state")
        made.finish(step)
    return made


def spoil(checkpoints: Checkpoints, step: int) -> None:
    (checkpoints.locate_checkpoint(step) / "state.pt").write_bytes(b"stAte")


def test_a_whole_checkpoint_is_gone_on_from_without_a_word(checkpoints: Checkpoints) -> None:
    notes = list[str]()
    # A process that was killed while it wrote leaves one without a marker.
    (checkpoints.prepare_checkpoint(3) / "state.pt").write_bytes(b"st")
    assert checkpoints.find_last_checkpoint(notes.append) == checkpoints.locate_checkpoint(2)
    assert notes == []
    assert not checkpoints.locate_checkpoint(3).exists()


def test_a_damaged_checkpoint_is_named_with_the_one_in_its_place(checkpoints: Checkpoints) -> None:
    notes = list[str]()
    spoil(checkpoints, 2)
    assert checkpoints.find_last_checkpoint(notes.append) == checkpoints.locate_checkpoint(1)
    (note,) = notes
    assert note.startswith("step-00000002: damaged")
    assert note.endswith("The training goes on from step-00000001.")
    assert not checkpoints.locate_checkpoint(2).exists()


def test_where_all_are_damaged_the_training_begins_again(checkpoints: Checkpoints) -> None:
    notes = list[str]()
    for step in (1, 2):
        spoil(checkpoints, step)
    assert checkpoints.find_last_checkpoint(notes.append) is None
    assert notes[0].startswith("step-00000002 and step-00000001: damaged")
    assert notes[0].endswith("The training begins again.")


def test_a_gpu_is_the_only_one_of_its_process_and_all_cores_tokenize_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    seen = {}
    for device in ("cpu", "cuda:1"):
        spec = spec_in(tmp_path, None, backbone=tiny_artifact(tmp_path), data=(), devices=(device,))
        variables = _build_rank_environment(spec, 0, "")
        seen[device] = variables["CUDA_VISIBLE_DEVICES"], variables["TOKENIZERS_PARALLELISM"]
    assert seen == {"cpu": ("", "false"), "cuda:1": ("7", "true")}
