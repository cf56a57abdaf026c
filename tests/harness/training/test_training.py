"""The process group of a training: its devices and cores."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.training.training import _build_rank_environment
from small_trainings import spec_in, tiny_artifact


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
