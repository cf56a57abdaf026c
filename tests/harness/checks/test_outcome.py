"""Checks on disk: what was written is read, what cannot be read is left out."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from check_data import small_check
from harness.checks import check
from harness.checks.outcome import CHECKS, SCHEMA
from harness.errors import RecordError


def test_it_reads_what_it_wrote(tmp_path: Path) -> None:
    one = small_check()
    path = check._keep_check(tmp_path, one)
    assert path.parent == tmp_path / "checks"
    assert [CHECKS.kind.read(path) for path in sorted((tmp_path / "checks").glob("*.json"))] == [one]
    assert CHECKS.kind.parse(path.read_text(), where="x") == one


def test_the_same_check_stands_once(tmp_path: Path) -> None:
    first = check._keep_check(tmp_path, small_check())
    assert check._keep_check(tmp_path, replace(small_check(), when="2027-01-01T00:00:00+00:00")) == first
    assert [CHECKS.kind.read(path) for path in sorted((tmp_path / "checks").glob("*.json"))] == [
        small_check()
    ]


def test_no_folder_has_no_checks(tmp_path: Path) -> None:
    assert [CHECKS.kind.read(path) for path in sorted((tmp_path / "checks").glob("*.json"))] == []


def test_a_value_that_is_no_number_is_never_written(tmp_path: Path) -> None:
    one = small_check()
    broken = replace(one, tasks=(replace(one.tasks[0], delta=math.nan), *one.tasks[1:]))
    with pytest.raises(ValueError, match="JSON"):
        check._keep_check(tmp_path, broken)
    assert [CHECKS.kind.read(path) for path in sorted((tmp_path / "checks").glob("*.json"))] == []


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "3", "null", "{}", '{"schema": 1}', f'{{"schema": {SCHEMA + 1}}}', "\0"]
)
def test_a_file_that_is_no_check_is_named(content: str, tmp_path: Path) -> None:
    check._keep_check(tmp_path, small_check())
    (tmp_path / "checks" / "0-broken.json").write_text(content)
    with pytest.raises(RecordError, match=r"0-broken\.json"):
        CHECKS.kind.read(tmp_path / "checks" / "0-broken.json")


def test_one_of_a_newer_version_is_refused() -> None:
    raw = {**small_check().to_json(), "schema": SCHEMA + 1}
    with pytest.raises(RecordError, match="written by a newer version"):
        CHECKS.kind.parse(json.dumps(raw), where="x")


def test_a_former_check_that_cannot_be_written_again_does_not_stand_in_the_way(tmp_path: Path) -> None:
    former = check._keep_check(tmp_path, small_check())
    former.write_text(former.read_text().replace('"policy": {', '"policy": {"x": NaN, ', 1))
    again = check._keep_check(tmp_path, replace(small_check(), when="2027-01-01T00:00:00+00:00"))
    assert again != former
    assert CHECKS.kind.read(again).id == small_check().id
