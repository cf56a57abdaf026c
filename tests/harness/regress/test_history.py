"""Checks on disk: what was written is read, what cannot be read is left out."""

from __future__ import annotations

import json
import logging
import math
from dataclasses import replace
from pathlib import Path

import pytest

from check_data import small_check
from harness.checks import outcome
from harness.checks.outcome import SCHEMA, from_json
from harness.errors import RecordError


def test_it_reads_what_it_wrote(tmp_path: Path) -> None:
    one = small_check()
    path = outcome.keep(tmp_path, one)
    assert path.parent == tmp_path / "checks"
    assert list(outcome._checks(tmp_path)) == [one]
    assert from_json(json.loads(path.read_text()), where="x") == one


def test_the_oldest_is_first(tmp_path: Path) -> None:
    days = ["2026-03-01T00:00:00+00:00", "2025-12-31T23:59:59+00:00", "2026-03-01T00:00:01+00:00"]
    for number, day in enumerate(days):
        outcome.keep(tmp_path, replace(small_check(), id=f"{number:012}", when=day))
    assert [one.when for one in outcome._checks(tmp_path)] == sorted(days)


def test_the_same_check_stands_once(tmp_path: Path) -> None:
    first = outcome.keep(tmp_path, small_check())
    assert outcome.keep(tmp_path, replace(small_check(), when="2027-01-01T00:00:00+00:00")) == first
    assert list(outcome._checks(tmp_path)) == [small_check()]


def test_no_folder_has_no_checks(tmp_path: Path) -> None:
    assert list(outcome._checks(tmp_path)) == []


def test_a_value_that_is_no_number_is_never_written(tmp_path: Path) -> None:
    one = small_check()
    broken = replace(one, tasks=(replace(one.tasks[0], delta=math.nan), *one.tasks[1:]))
    with pytest.raises(ValueError, match="JSON"):
        outcome.keep(tmp_path, broken)
    assert list(outcome._checks(tmp_path)) == []


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "3", "null", "{}", '{"schema": 1}', f'{{"schema": {SCHEMA + 1}}}', "\0"]
)
def test_a_file_that_is_no_check_is_warned_of_and_left_out(
    content: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = small_check()
    outcome.keep(tmp_path, one)
    (tmp_path / "checks" / "0-broken.json").write_text(content)
    with caplog.at_level(logging.WARNING):
        assert list(outcome._checks(tmp_path)) == [one]
    assert "0-broken.json" in caplog.text


def test_one_of_a_newer_version_is_refused() -> None:
    raw = {**small_check().to_json(), "schema": SCHEMA + 1}
    with pytest.raises(RecordError, match="written by a newer version"):
        from_json(raw, where="x")
