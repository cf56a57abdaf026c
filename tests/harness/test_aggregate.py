from __future__ import annotations

from dataclasses import replace

import pytest

from fakes import task
from harness.report import _mean_text
from harness.scores import aggregate
from harness.types import Column, Suite


def column(name: str, kind: str, *tasks: str) -> Column:
    made = tuple(replace(task(t), type=kind) for t in tasks or (name,))
    return Column(name=name, type=kind, tasks=made)


SUITE = Suite(
    name="s",
    title="s",
    columns=(
        column("A", "STS"),
        column("B", "STS"),
        column("C", "Retrieval", "C1", "C2"),
        column("D", "Retrieval"),
    ),
)


def test_both_means_by_hand() -> None:
    """Tasks: A .1, B .2, C (.6 + .8) / 2 = .7 counted once, D .5; types: STS .15, Retrieval .6."""
    found = aggregate(SUITE, {"A": 0.1, "B": 0.2, "C1": 0.6, "C2": 0.8, "D": 0.5})
    assert found.columns["C"] == pytest.approx(0.7)
    assert found.over_tasks.value == pytest.approx((0.1 + 0.2 + 0.7 + 0.5) / 4)
    assert found.over_types.value == pytest.approx((0.15 + 0.6) / 2)
    assert (found.over_tasks.there, found.over_tasks.wanted, found.over_tasks.complete) == (4, 4, True)


def test_a_column_lacking_a_member_is_not_there_and_the_means_say_so() -> None:
    found = aggregate(SUITE, {"A": 0.1, "B": 0.2, "C1": 0.6, "D": 0.5})
    assert found.columns["C"] is None
    assert _mean_text(found.over_tasks) == "mean over tasks 26.67 (3 of 4)"
    assert _mean_text(found.over_types) == "mean over types 15.00 (1 of 2)"
    assert not found.over_types.complete


def test_nothing_there() -> None:
    found = aggregate(SUITE, {})
    assert _mean_text(found.over_tasks) == "mean over tasks – (0 of 4)"
    assert found.over_types.value is None


def test_a_task_of_two_columns_is_in_the_plan_once() -> None:
    twice = Suite(name="s", title="s", columns=(column("A", "STS"), column("X", "STS", "A", "B")))
    assert [t.name for t in twice.tasks] == ["A", "B"]


def test_the_means_of_a_published_row() -> None:
    """BERT-base in NeoBERT's Table 4, MTEB(eng, v1): its printed type means give 48.19 and 49.61.

    Each task of a type is given the type's mean here, which leaves both means as they are.
    """
    sizes = {
        "Classification": 12,
        "Clustering": 11,
        "PairClassification": 3,
        "Reranking": 4,
        "Retrieval": 15,
        "STS": 10,
        "Summarization": 1,
    }
    printed = (60.6, 37.0, 71.5, 48.9, 28.3, 69.9, 31.1)
    columns = [column(f"{kind}{n}", kind) for kind, size in sizes.items() for n in range(size)]
    means = dict(zip(sizes, printed, strict=True))
    found = aggregate(
        Suite(name="v1", title="v1", columns=tuple(columns)), {c.name: means[c.type] for c in columns}
    )
    assert found.over_tasks.value == pytest.approx(48.19, abs=0.005)
    assert found.over_types.value == pytest.approx(49.61, abs=0.005)
