from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import tiny

Write = Callable[..., Path]


@pytest.fixture(scope="session")
def _model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.folder(tiny.families()["bert"], tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def write(_model: Path, tmp_path: Path) -> Write:
    """Writes a checkpoint into the run's folder: a tiny BERT with weights of its own."""

    def written(name: str, *, weights: float | None = None, under: str = "") -> Path:
        target = tmp_path / "run" / name / under
        shutil.copytree(_model, target, dirs_exist_ok=True)
        tensors = load_file(target / "model.safetensors")
        first = sorted(tensors)[0]
        mark = sum(map(ord, name)) if weights is None else weights
        tensors[first] = tensors[first] + np.asarray(mark, tensors[first].dtype)
        save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
        return target

    (tmp_path / "run").mkdir()
    return written
