"""The script that makes the committed reference records replaces them whole or not at all."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "results" / "make_reference.sh"
HARNESS = """#!/bin/sh
echo "$*" >>calls
case "$*" in *"$FAILS"*) exit 1 ;; esac
while [ "$1" != --results ]; do shift; done
mkdir -p "$2/records/minilm/task"
touch "$2/records/minilm/task/new.json" "$2/records/minilm/task/new.examples.parquet"
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with one old record, a data root and a program that only writes a record."""
    place = tmp_path / "checkout"
    (place / "results" / "reference" / "records").mkdir(parents=True)
    (place / "results" / "reference" / "records" / "old.json").touch()
    (tmp_path / "data" / "mteb").mkdir(parents=True)
    shutil.copy(SCRIPT, place / "results")
    (place / "harness").write_text(HARNESS)
    (place / "harness").chmod(0o755)
    return place


def make(checkout: Path, data: str, fails: str = "nothing") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "HARNESS": "./harness", "HARNESS_DATA": data, "FAILS": fails}
    command = ["sh", str(checkout / "results" / "make_reference.sh")]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def records(checkout: Path) -> set[str]:
    return {path.name for path in (checkout / "results").rglob("*") if path.suffix in (".json", ".parquet")}


def test_without_a_data_root_nothing_is_touched(checkout: Path) -> None:
    done = make(checkout, "nowhere")
    assert done.returncode == 1
    assert done.stderr == "nowhere holds no data sets of mteb: set HARNESS_DATA to a data root that does\n"
    assert records(checkout) == {"old.json"}
    assert not (checkout / "calls").exists()


@pytest.mark.parametrize("fails", ["stdlib", "SciFact", "SIB200"])
def test_a_run_that_fails_leaves_the_old_records(checkout: Path, fails: str) -> None:
    assert make(checkout, "../data", fails).returncode == 1
    assert records(checkout) == {"old.json"}


def test_the_new_records_take_the_place_of_the_old_ones_without_their_examples(checkout: Path) -> None:
    for _ in range(2):
        done = make(checkout, "../data")
        assert (done.returncode, done.stderr) == (0, "")
        assert records(checkout) == {"new.json"}
    assert sorted(path.name for path in (checkout / "results").iterdir()) == [
        "make_reference.sh",
        "reference",
    ]
