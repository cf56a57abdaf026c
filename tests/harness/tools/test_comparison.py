"""Ablation chains: each model against the one before it, against Student's paired interval by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes import artifact, lineage, record, task
from harness.cli import invoke
from harness.core.errors import UsageError
from harness.storage.record import RECORDS, build_record_output
from harness.storage.store import Store
from harness.tools.comparison import compare_chain

NAMES = ("base", "wide", "deep", "last")
TASKS = ("First", "Second")


def put_scores(results: Path, name: str, task_name: str, values: np.ndarray) -> None:
    """A record with a score for each of its queries, (queries,)."""
    model = artifact(Path(name), key=f"{NAMES.index(name) + 1}" * 64, name=name)
    examples = {
        "split": ["test"] * len(values),
        "subset": ["default"] * len(values),
        # Queries of one name would be the same texts in both tasks.
        "example_id": [f"{task_name}-{n}" for n in range(len(values))],
        "replicate": [0] * len(values),
        "prediction": [f'[["d{n}", 0.{n + 1}], ["e", 0.01]]' for n in range(len(values))],
        "gold": [f"d{n}" for n in range(len(values))],
        "metric": values.tolist(),
    }
    score = float(values.mean())
    of = replace(task(task_name), type="Retrieval", metric="ndcg_at_10")
    output = build_record_output(record(of, score, model=model), examples, {})
    parsed = RECORDS.parse(output["record"].decode(), where="made")
    Store(results).put(model.slug, parsed, output["examples"])


@pytest.fixture
def scores(tmp_path: Path) -> dict[tuple[str, str], np.ndarray]:
    """Four models on 150 queries of two tasks: the second gains, the third does not, the last loses."""
    rng, scores = np.random.default_rng(5), {}
    for task_name in TASKS:
        base = rng.uniform(0.3, 0.6, 150)
        for name, gain in zip(NAMES, (0, 0.05, 0.05, 0.02), strict=True):
            scores[name, task_name] = base + gain + rng.normal(0, 0.06, 150)
            put_scores(tmp_path, name, task_name, scores[name, task_name])
    return scores


def test_each_step_has_the_paired_interval_of_the_mean_of_tasks(
    scores: dict[tuple[str, str], np.ndarray], tmp_path: Path
) -> None:
    steps = compare_chain(NAMES, results=tmp_path, cache=tmp_path / "cache")
    assert [step["model"] for step in steps] == [*NAMES[1:]]
    for at, step in enumerate(steps, 1):
        assert step["tasks"] == 2
        assert step["mean"] == pytest.approx(np.mean([scores[NAMES[at], name].mean() for name in TASKS]))
        for key, other in (("before", at - 1), ("first", 0)):
            gaps = [scores[NAMES[at], name] - scores[NAMES[other], name] for name in TASKS]
            delta = np.mean([gap.mean() for gap in gaps])
            half = 1.96 * np.sqrt(sum(gap.var(ddof=1) / len(gap) for gap in gaps)) / len(TASKS)
            assert step[key]["delta"] == pytest.approx(delta)
            ends = step[key]["test"]["low"], step[key]["test"]["high"]
            assert ends == pytest.approx((delta - half, delta + half), abs=0.02 * half)
    assert [step["before"]["test"]["p"] < 0.05 for step in steps] == [True, False, True]
    assert all(step["first"]["test"]["p"] < 0.05 for step in steps)
    # The sum of the steps is the difference to the first.
    assert sum(step["before"]["delta"] for step in steps) == pytest.approx(steps[-1]["first"]["delta"])


@pytest.mark.usefixtures("scores")
def test_the_command_prints_a_chain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = ["--results", str(tmp_path), "--cache", str(tmp_path / "cache")]
    assert invoke(["compare", *NAMES, *places, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert document["first"] == "base"
    assert document["steps"] == compare_chain(NAMES, results=tmp_path, cache=tmp_path / "cache")
    assert invoke(["compare", *NAMES, *places]) == 0
    assert "mean over 2 tasks that all have" in capsys.readouterr().out


def test_only_what_all_have_counts_and_what_lacks_examples_has_no_interval(
    scores: dict[tuple[str, str], np.ndarray], tmp_path: Path
) -> None:
    put_scores(tmp_path, "last", "Third", np.full(150, 0.9))
    for name in NAMES:
        model = artifact(Path(name), key=f"{NAMES.index(name) + 1}" * 64, name=name)
        Store(tmp_path).put(model.slug, record(task("Bare"), 0.5, model=model))
    steps = compare_chain(NAMES, results=tmp_path, cache=tmp_path / "cache")
    assert [step["tasks"] for step in steps] == [3] * 3
    assert [step["before"]["test"] for step in steps] == [None] * 3
    tested = compare_chain(NAMES, tasks=TASKS, results=tmp_path, cache=tmp_path / "cache")
    assert all(step["before"]["test"] for step in tested)


@pytest.mark.usefixtures("scores")
def test_a_task_of_two_splits_counts_once_and_a_speed_not_at_all(tmp_path: Path) -> None:
    for number, name in enumerate(NAMES):
        model = artifact(Path(name), key=f"{number + 1}" * 64, name=name)
        of = replace(task("Two"), splits=("dev", "test"))
        parts = {"dev": 0.1 * number, "test": 0.9}
        cells = {split: {"default": {"main_score": score}} for split, score in parts.items()}
        both = record(of, 0.45 + 0.05 * number, model=model).model_copy(update={"scores": cells})
        speed = record(replace(task("Speed"), metric="tokens_per_second"), 4000.0, model=model)
        for one in both, speed:
            Store(tmp_path).put(model.slug, one)
    options = {"results": tmp_path, "cache": tmp_path / "cache"}
    steps = compare_chain(NAMES, **options)
    known = compare_chain(NAMES, tasks=TASKS, **options)
    for number, (step, other) in enumerate(zip(steps, known, strict=True), 1):
        assert step["tasks"] == 3
        assert step["mean"] == pytest.approx((2 * other["mean"] + (0.1 * number + 0.9) / 2) / 3)
        assert step["first"]["delta"] == pytest.approx((2 * other["first"]["delta"] + 0.05 * number) / 3)


def test_a_score_that_chose_a_model_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, name in enumerate(NAMES):
        made = lineage(selected_on=("One",) if name == "wide" else (), seed=number)
        model = artifact(Path(name), key=made.key, name=name)
        for of in "One", "Other":
            one = record(task(of), number / 10, model=model)
            Store(tmp_path).put(model.slug, one.model_copy(update={"lineage": made}))
    places = ["--results", str(tmp_path), "--cache", str(tmp_path / "cache")]
    steps = compare_chain(NAMES, results=tmp_path, cache=tmp_path / "cache")
    assert [step["selected"] for step in steps] == [["One"], ["One"], []]
    assert invoke(["compare", *NAMES, *places]) == 0
    assert "Scores that chose a model err upward: One." in capsys.readouterr().out


def test_a_model_whose_pairs_are_under_other_settings_is_no_chain(tmp_path: Path) -> None:
    """Under other seeds: A and B share one, B and C another, A and C are what is left over."""
    for name, seeds in (("base", (1,)), ("wide", (1, 2)), ("deep", (2,))):
        model = artifact(Path(name), key=f"{NAMES.index(name) + 1}" * 64, name=name)
        for seed in seeds:
            Store(tmp_path).put(model.slug, record(task("One"), seed / 10, model=model, seed=seed))
    with pytest.raises(UsageError, match="The models have several scores of a task"):
        compare_chain(NAMES[:3], results=tmp_path, cache=tmp_path / "cache")


@pytest.mark.usefixtures("scores")
def test_what_is_no_chain_is_refused(tmp_path: Path) -> None:
    options = {"results": tmp_path, "cache": tmp_path / "cache"}
    with pytest.raises(UsageError, match="A model is in the chain twice"):
        compare_chain(["base", "wide", "base"], **options)
    put_scores(tmp_path, "last", "Other", np.full(150, 0.9))
    for path in tmp_path.glob("records/*444444/First"), tmp_path.glob("records/*444444/Second"):
        for folder in path:
            for file in folder.iterdir():
                file.unlink()
    with pytest.raises(UsageError, match="The models have no score in common"):
        compare_chain(NAMES, **options)
