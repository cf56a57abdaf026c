"""A few kills of `benchmarks/kill_commands.py`, which says what a killed command must end in."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from kill_commands import kill_kind, lay_inputs
from kill_protocols import compare_quick_runs

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    lay_inputs(folder)
    return folder


@pytest.mark.parametrize(
    ("kind", "kills", "devices"),
    # On one device the jobs run in the driver: of the others each start takes two more processes.
    [("plaid", 1, "cpu,cpu"), ("watch", 1, "cpu"), ("training", 1, "cpu"), ("stopped-run", 1, "cpu,cpu")],
)
def test_a_killed_or_stopped_command_ends_as_one_left_in_peace(
    kind: str, kills: int, devices: str, inputs: Path, tmp_path: Path
) -> None:
    random.seed(7)
    assert kill_kind(kind, inputs, tmp_path / kind, kills, devices=devices) == []


def test_a_killed_protocol_gives_the_rows_of_another(tmp_path: Path) -> None:
    compare_quick_runs("optibert", tmp_path, 1)
