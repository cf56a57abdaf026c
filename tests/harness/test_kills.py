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
    ("kind", "devices", "moment"),
    # On one device the jobs run in the driver: of the others each start takes two more processes.
    [
        ("plaid", "cpu,cpu", "cache/vectors/**/*.safetensors"),
        ("watch", "cpu", "results/records/*/*/*.json"),
        ("training", "cpu", "results/models/.training-*/checkpoints/step-*"),
        ("stopped-run", "cpu,cpu", "results/leases/*"),
    ],
)
def test_a_killed_or_stopped_command_ends_as_one_left_in_peace(
    kind: str, devices: str, moment: str, inputs: Path, tmp_path: Path
) -> None:
    random.seed(7)
    assert kill_kind(kind, inputs, tmp_path / kind, 1, devices=devices, moment=moment) == []


def test_a_killed_protocol_gives_the_rows_of_another(tmp_path: Path) -> None:
    compare_quick_runs("optibert", tmp_path, 1, here=True)
