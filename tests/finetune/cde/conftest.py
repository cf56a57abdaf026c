"""Tiny trainings on contextual batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tiny
from contextual_pairs import pairs_file
from finetune.cde.plan import ContextualRecipe
from finetune.recipes import cde_batching
from harness.core.encoding import Encoding, Settings
from harness.core.types import Artifact
from harness.jobs.recipe import RecipeEntry
from harness.plan.models import ModelOptions, resolve_model
from harness.training.training import TrainingSpec
from small_trainings import spec_in


@pytest.fixture(scope="module")
def guide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.folder(tiny.families()["bert"], tmp_path_factory.mktemp("guide") / "guide", seed=3)


TINY: dict[str, Any] = {
    "batch_size": 8,
    "cluster_size": 8,
    "epochs": 2,
    "max_length": 16,
    "learning_rate": 1e-3,
    "warmup": 0.0,
    "precision": "float32",
    "dimensions": 8,
}


@pytest.fixture
def recipe(guide: Path, tmp_path: Path) -> Callable[..., ContextualRecipe]:
    """The recipe with small settings and its guide."""

    def opened(
        variant: str = "", entry: RecipeEntry = cde_batching.RECIPE, **settings: Any
    ) -> ContextualRecipe:
        full = replace(entry.settings[variant], **{**TINY, "guide": str(guide), **settings})
        made = entry.open(variant, full)
        assert isinstance(made, ContextualRecipe)
        if not made.guide:
            return made
        found = resolve_model(str(guide), Settings(), ModelOptions(offline=True))
        assert isinstance(found.encoding, Encoding)
        return made.attach_guide(found.artifact, found.encoding)

    return opened


@pytest.fixture
def make(
    recipe: Callable[..., ContextualRecipe], backbone: Artifact, tmp_path: Path
) -> Callable[..., TrainingSpec]:
    """A spec in a folder of its own; settings and fields of the spec may be given."""
    rows = pairs_file(tmp_path / "rows", 60)

    def spec(name: str = "run", settings: Mapping[str, Any] | None = None, **fields: Any) -> TrainingSpec:
        full = {"backbone": backbone, "data": (rows,), **fields}
        return spec_in(tmp_path, recipe(**(settings or {})), name, **full)

    return spec
