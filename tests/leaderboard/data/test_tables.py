"""Rows of Python's values, and records read by several processes, as they are by one."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

import pytest

from leaderboard.data import tables
from leaderboard.data.queries import Queries
from leaderboard.data.snapshot import SiteIndex, open_index
from site_data import fill_trained, small_settings, suites


def open_small(folder: Path, name: str) -> SiteIndex:
    with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=suites()):
        return open_index(replace(small_settings(folder), snapshots=folder / name))


def read_tables(index: SiteIndex) -> dict[str, object]:
    """All rows, and all texts."""
    queries = Queries(index, index.version)
    rows = {
        name: queries._fetch_rows(f"SELECT * FROM {name} ORDER BY ALL")
        for name in ("entries", "results", "scores", "averages", "documents")
    }
    texts = [row.id for row in queries.find_results() if queries.entries[row.entry].origin == "measured"]
    return {**rows, "texts": queries.load_result_documents(texts)}


ROWS = """
import sys
from leaderboard.data.tables import Tables

tables = Tables()
kinds = {"text": "VARCHAR", "share": "DOUBLE", "id": "BIGINT", "reason": "UTINYINT", "flag": "BOOLEAN"}
rows = [("", 0.5, 2**52 + 1, 0, True), (None,) * 5, ("\u00e9\U0001f600", -1e-9, -1, 255, False)]
for name, some in {"several": rows, "none": []}.items():
    tables.create(name, kinds, some)
    assert tables.connection.execute(f"FROM {name}").fetchall() == some
tables.create("bounds", kinds, [("\\0\\ud800", float("nan"), 2**63, -(2**40), None)])
assert tables.connection.execute("FROM bounds").fetchall() == [("\ufffd?", None, None, None, None)]
assert "pandas" not in sys.modules
"""


def test_rows_come_back_as_they_were_and_without_pandas() -> None:
    subprocess.run([sys.executable, "-c", ROWS], check=True, timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("ends", [False, True], ids=["read", "ended"])
def test_several_processes_read_what_one_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, ends: bool
) -> None:
    fill_trained(tmp_path)
    damaged = next((tmp_path / "results" / "records").glob("*/*/*.json"))
    damaged.write_text(damaged.read_text()[:-9])
    alone = open_small(tmp_path, "alone")
    alone.refresh()
    monkeypatch.setattr(tables, "MANY", 1)
    monkeypatch.setattr(tables, "CHUNK", 2)
    monkeypatch.setattr(tables, "count_cores", lambda: 2)
    if ends:
        ended = partial(ProcessPoolExecutor, initializer=os._exit, initargs=(1,))
        monkeypatch.setattr(tables, "ProcessPoolExecutor", lambda *given, **_: ended(*given))
    shared = open_small(tmp_path, "shared")
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        shared.refresh()
    assert read_tables(shared) == read_tables(alone)
    # A process says it once of a file, and this one has.
    assert any(damaged.name in message for message in caplog.messages) != ends
    assert any("read by one process" in message for message in caplog.messages) == ends
