"""A few kills of `benchmarks/kill_commands.py`, which says what a killed command must end in."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from fuzz_folders import lay_data, lay_models
from kill_commands import MODELS, kill_kind

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", ["plaid", "watch"])
def test_a_killed_command_ends_as_one_left_in_peace(kind: str, tmp_path: Path) -> None:
    random.seed(7)
    lay_models(tmp_path / "models", MODELS)
    lay_data(tmp_path / "data")
    assert kill_kind(kind, tmp_path, tmp_path / kind, kills=1) == []
