"""A twentieth of `benchmarks/fuzz_inputs.py`, which says what a case must end in."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz_inputs import run_cases

BASES = ("mean", "dense", "decoder", "albert", "static")
"""The folders that are mutated here: each takes another way through the reader of folders."""


@pytest.mark.parametrize(("area", "count"), [("models", 60), ("data", 20), ("arguments", 20)])
def test_each_mutation_ends_in_a_sentence_or_a_result(
    area: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HARNESS_RESULTS", str(tmp_path / "results"))
    findings, fuzz = run_cases(tmp_path / "home", count, seed=20, only=area, bases=BASES)
    assert [f"case {one.case}: {one.words}: {one.kind}" for one in findings] == []
    assert fuzz.accepted > len(BASES)
