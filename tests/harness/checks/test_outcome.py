"""Checks on disk: what was written is read, what cannot be read is left out."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from check_data import small_check
from harness.checks.outcome import CHECKS, SCHEMA, Check


def all_checks(results: Path) -> list[Check]:
    return [CHECKS.kind.read_document_file(path) for path in sorted((results / "checks").glob("*.json"))]


def test_it_reads_what_it_wrote(tmp_path: Path) -> None:
    one = small_check()
    path = one.write(tmp_path)
    assert path.parent == tmp_path / "checks"
    assert all_checks(tmp_path) == [one]
    assert CHECKS.kind.parse(path.read_text(), where="x") == one


def test_the_same_check_stands_once(tmp_path: Path) -> None:
    first = small_check().write(tmp_path)
    assert replace(small_check(), when="2027-01-01T00:00:00+00:00").write(tmp_path) == first
    assert all_checks(tmp_path) == [small_check()]


def test_no_folder_has_no_checks(tmp_path: Path) -> None:
    assert all_checks(tmp_path) == []


def test_a_value_that_is_no_number_is_never_written(tmp_path: Path) -> None:
    one = small_check()
    broken = replace(one, tasks=(replace(one.tasks[0], delta=math.nan), *one.tasks[1:]))
    with pytest.raises(ValueError, match="JSON"):
        broken.write(tmp_path)
    assert all_checks(tmp_path) == []


def test_a_former_check_that_cannot_be_written_again_does_not_stand_in_the_way(tmp_path: Path) -> None:
    former = small_check().write(tmp_path)
    former.write_text(former.read_text().replace('"policy": {', '"policy": {"x": NaN, ', 1))
    again = replace(small_check(), when="2027-01-01T00:00:00+00:00").write(tmp_path)
    assert again != former
    assert CHECKS.kind.read_document_file(again).id == small_check().id


FORMER = {
    "schema": 1,
    "id": "0123456789ab",
    "when": "2026-01-02T03:04:05+00:00",
    "candidate": {"name": "c", "source": "runs/c", "artifacts": ["c" * 64], "revision": None, "baseline": ""},
    "baseline": {"name": "b", "source": "b", "artifacts": ["b" * 64], "revision": None, "baseline": "last"},
    "suites": ["mteb"],
    "recipe": "",
    "policy": {"alpha": 0.05, "max_drop": 0.0, "correction": "holm"},
    "overall": "equivalent",
    "because": ["The mean of mteb is equivalent."],
    "exit_code": 0,
    "warnings": [],
    "seconds": 0.1,
}
"""A check as version 1 wrote it, without its lines."""

LINE = {
    "candidate": 0.5, "baseline": 0.5, "delta": -0.01, "low": -0.02, "high": 0.01, "margin": 0.01,
}  # fmt: skip


@pytest.mark.parametrize(
    ("former", "changed", "verdict", "p"),
    [
        ("equivalent", {}, "passed", None),
        ("equivalent", {"delta": 0.0, "low": 0.0, "high": 0.0}, "same", None),
        ("regressed", {}, "regressed", 0.01),
        ("improved", {}, "improved", None),
        ("inconclusive", {}, "inconclusive", None),
        ("missing", {"delta": None, "low": None, "high": None}, "missing", None),
    ],
)
def test_a_check_of_the_first_version_is_read(
    former: str, changed: dict[str, float | None], verdict: str, p: float | None
) -> None:
    """Within the margin on both sides became no loss beyond it; its p-values were of other questions."""
    task = {
        **LINE, **changed, "task": "T", "type": "STS", "suites": ["mteb"], "metric": "m", "verdict": former,
        "reason": "", "must_not_regress": True, "p_regressed": 0.01, "p_improved": 0.99, "max_drop": 0.0,
        "unit": "pairs", "units": 7, "runs": [1, 1], "noise": None, "to_settle": "", "candidate_keys": [],
        "baseline_keys": [],
    }  # fmt: skip
    mean = {**LINE, "suite": "mteb", "verdict": "equivalent", "there": 1, "wanted": 1, "predicted": {}}
    found = CHECKS.kind.parse(json.dumps({**FORMER, "tasks": [task], "means": [mean]}), where="x")
    (one,), (whole,) = found.tasks, found.means
    assert (one.verdict, one.p, one.low) == (verdict, p, task["low"])
    assert (one.margin, one.margin_source, one.detectable, one.collapsed) == (0.01, "policy", None, False)
    assert (found.overall, whole.verdict, found.policy["correction"]) == ("passed", "passed", "holm")
    assert found.to_json()["schema"] == SCHEMA
