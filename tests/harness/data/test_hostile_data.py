"""Data of strangers: refused in a line, with little memory, before it is evaluated."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import measured_child
from harness.cli import invoke
from harness.core.errors import DataError
from harness.data.folder import read_card
from harness.data.locate import list_readme_subsets
from harness.data.tables import iter_file_rows
from hostile import CARDS, DATA, PARQUET, obeyed

SECONDS, BYTES = 5, 500_000_000

pytestmark = pytest.mark.usefixtures("patience")


@pytest.fixture
def patience() -> Iterator[None]:
    """Ends a test that waits for a pipe to be written to."""

    def stop(*_: object) -> None:
        raise TimeoutError("it waits for ever")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(60)
    yield
    signal.alarm(0)


def _make(kind: str, folder: Path) -> Path:
    folder.mkdir()
    (folder / "harness.toml").write_text('[[task]]\ntype = "sts"\n')
    DATA[kind][0](folder, folder.parent / "trace")
    return folder


@pytest.mark.parametrize("kind", DATA)
def test_hostile_data_is_refused_in_a_line(kind: str, tmp_path: Path, capsys: Any) -> None:
    folder = _make(kind, tmp_path / "own")
    code, (out, err) = invoke(["data", "check", "--suite", f"local:{folder}"]), capsys.readouterr()
    assert code in (1, 2)
    assert DATA[kind][1] in out + err
    assert len(out + err) < 2000
    assert "Traceback" not in err
    assert obeyed(out + err) == set()


@pytest.mark.slow
@pytest.mark.parametrize("kind", DATA)
def test_hostile_data_takes_little(kind: str, tmp_path: Path) -> None:
    folder = _make(kind, tmp_path / "own")
    command = [sys.executable, "-m", "harness", "data", "check", "--suite", f"local:{folder}"]
    done = subprocess.run(
        [sys.executable, "-S", measured_child.__file__, *command], capture_output=True, check=True
    )
    used = json.loads(done.stdout)
    assert used["code"] in (1, 2), used["out"]
    assert used["seconds"] <= SECONDS
    assert used["bytes"] <= BYTES


@pytest.mark.parametrize("kind", PARQUET)
def test_a_hostile_parquet_file_is_refused(kind: str, tmp_path: Path) -> None:
    PARQUET[kind][0](tmp_path, tmp_path / "trace")
    rows = iter_file_rows(tmp_path / "pairs.parquet")
    with pytest.raises(DataError) as error:
        next(rows).get_text_field("text1")
    assert PARQUET[kind][1] in str(error.value)
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize("kind", CARDS)
def test_a_hostile_card_is_refused_or_harmless(kind: str, tmp_path: Path) -> None:
    CARDS[kind][0](tmp_path, tmp_path / "trace")
    if CARDS[kind][1]:
        with pytest.raises(DataError, match=r"README\.md") as error:
            read_card(tmp_path)
        assert len(str(error.value)) < 1000
    else:
        assert read_card(tmp_path)
        assert len(list_readme_subsets(tmp_path)) < 10
    assert not Path("/tmp/hostile-trace").exists()
