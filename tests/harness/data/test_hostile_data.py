"""Data of strangers: refused in a line, with little memory, before it is evaluated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.cli import invoke
from harness.core.errors import DataError
from harness.data.folder import read_card
from harness.data.locate import list_readme_subsets
from harness.data.tables import iter_file_rows
from hostile import CARDS, DATA, PARQUET, obeyed
from sparing import spare


def _make(kind: str, folder: Path) -> Path:
    folder.mkdir()
    (folder / "harness.toml").write_text('[[task]]\ntype = "sts"\n')
    DATA[kind][0](folder, folder.parent / "trace")
    return folder


@pytest.mark.parametrize("kind", DATA)
def test_hostile_data_is_refused_in_a_line(kind: str, tmp_path: Path, capsys: Any) -> None:
    folder = _make(kind, tmp_path / "own")
    with spare():
        code = invoke(["data", "check", "--suite", f"local:{folder}"])
    out, err = capsys.readouterr()
    assert code in (1, 2)
    assert DATA[kind][1] in out + err
    assert len(out + err) < 2000
    assert "Traceback" not in err
    assert obeyed(out + err) == set()


@pytest.mark.parametrize("kind", PARQUET)
def test_a_hostile_parquet_file_is_refused(kind: str, tmp_path: Path) -> None:
    PARQUET[kind][0](tmp_path, tmp_path / "trace")
    rows = iter_file_rows(tmp_path / "pairs.parquet")
    with spare(), pytest.raises(DataError) as error:
        next(rows).get_text_field("text1")
    assert PARQUET[kind][1] in str(error.value)
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize("kind", CARDS)
def test_a_hostile_card_is_refused_or_harmless(kind: str, tmp_path: Path) -> None:
    CARDS[kind][0](tmp_path, tmp_path / "trace")
    if CARDS[kind][1]:
        with spare(), pytest.raises(DataError, match=r"README\.md") as error:
            read_card(tmp_path)
        assert len(str(error.value)) < 1000
    else:
        with spare():
            assert read_card(tmp_path)
            assert len(list_readme_subsets(tmp_path)) < 10
    assert not Path("/tmp/hostile-trace").exists()
