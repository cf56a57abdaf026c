"""A tiny backbone to train."""

from __future__ import annotations

import pytest

import tiny
from harness.core.types import Artifact
from small_trainings import tiny_artifact


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return tiny_artifact(tiny.folder(tiny.families()["bert"], tmp_path_factory.mktemp("backbone") / "tiny"))
