from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import pytest

from harness.results.scores import Mean
from suites.glue import TASKS, VIEWS

SPELLED = {"SST": "SST-2", "STS": "STS-B"}

RAW = {
    "MNLI": {("validation_matched", "accuracy"): 0.8, ("validation_mismatched", "accuracy"): 0.9},
    "MRPC": {("validation", "accuracy"): 0.7, ("validation", "f1"): 0.8},
    "QQP": {("validation", "accuracy"): 0.5, ("validation", "f1"): 0.25},
    "STS-B": {("validation", "pearson"): 0.6, ("validation", "spearman"): 0.4},
    "CoLA": {("validation", "mcc"): 0.3},
    **{name: {("validation", "accuracy"): 0.9} for name in ("SST-2", "QNLI", "RTE")},
}


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        ("neobert", {"MNLI": 0.85, "MRPC": 0.75, "QQP": 0.375, "STS-B": 0.5, "CoLA": 0.3}),
        ("optibert", {"MNLI": 0.85, "MRPC": 0.75, "QQP": 0.375, "STS-B": 0.5, "CoLA": 0.3}),
        ("modernbert", {"MNLI": 0.8, "MRPC": 0.7, "QQP": 0.5, "STS-B": 0.4, "CoLA": 0.3}),
        ("mosaicbert", {"MNLI": 0.8, "MRPC": 0.7, "QQP": 0.5, "STS-B": 0.4, "CoLA": 0.3}),
    ],
)
def test_numbers_by_hand(view: str, expected: dict[str, float]) -> None:
    numbers = {name: VIEWS[view].compute_task_number(name, RAW[name]) for name in TASKS}
    assert {name: numbers[name] for name in expected} == pytest.approx(expected)
    assert numbers["RTE"] == 0.9
    found = Mean.compute_mean("tasks", list(numbers.values()))
    assert found.value == pytest.approx((sum(expected.values()) + 3 * 0.9) / 8)
    assert found.complete


def test_what_is_not_there_is_not_made_up() -> None:
    matched = {("validation_matched", "accuracy"): 0.8}
    assert VIEWS["neobert"].compute_task_number("MNLI", matched) is None
    assert VIEWS["mosaicbert"].compute_task_number("MNLI", matched) == 0.8
    found = Mean.compute_mean("tasks", [None, 0.5, 0.25])
    assert (found.value, found.there, found.wanted, found.complete) == (0.375, 2, 3, False)
    assert Mean.compute_mean("tasks", []).value is None


COPIED = {"BERT": (82.1, 81.55), "DeBERTaV3": (91.4, 91.338), "NomicBERT_2048": (84.0, 84.125)}
"""Rows that NeoBERT took from other papers with an average that their numbers do not have."""


@pytest.mark.shared
@pytest.mark.parametrize(
    ("paper", "table", "rows", "known"),
    [("neobert", "3", 12, COPIED), ("optibert", "3", 6, {}), ("mosaicbert", "S3", 10, {})],
)
def test_the_mean_is_the_printed_one(
    shared: Path, paper: str, table: str, rows: int, known: dict[str, tuple[float, float]]
) -> None:
    """Every row of a paper's table of GLUE, within what rounding leaves open."""
    found: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    with (shared.parent / "reported" / f"{paper}.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["table"] == table and row["suite"] == "GLUE dev":
                key = (row["model"], row["size_class"], row["recipe_or_setting"])
                task = SPELLED.get(row["task_or_metric"], row["task_or_metric"])
                found[key][task] = float(row["value"])
    assert len(found) == rows
    wrong = {}
    for key, values in found.items():
        printed = values.pop("Avg.")
        made = Mean.compute_mean("tasks", [values.get(name) for name in TASKS])
        assert made.value is not None
        assert made.complete
        if abs(made.value - printed) > 0.06:
            wrong[key[0]] = (printed, round(made.value, 3))
    assert wrong == known
