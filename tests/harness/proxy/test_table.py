from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import spearmanr

import fakes
from harness.core.errors import UsageError
from harness.core.types import Column, Suite
from harness.proxy.table import (
    ScoreTable,
    _assign_families,
    read_column_scores,
    read_measured_scores,
)
from harness.results.type_tasks import rank_type_tasks
from harness.storage import imported
from harness.storage.store import Store
from proxies import put, suite

# Imports as tables


DRAW = np.random.default_rng(6)


def test_only_complete_models_count_and_each_once(tmp_path: Path) -> None:
    scores = DRAW.random((30, 4))
    scores[3, 2] = np.nan
    models = [f"org{row}/model" for row in range(30)]
    models[5] = models[4]
    models[7] = models[6]
    models[10], models[11] = "mteb/baseline-random", "baseline/human"
    entries: dict[int, dict[str, object]] = {
        4: {"trust": "external"},
        8: {"experiment": "long"},
        6: {"rows": 9},
    }
    source = put(tmp_path, suite(4), scores, models=models, entries=entries, flags={(9, "B"): "impossible"})
    found = ScoreTable.read_score_table(source, suite(4))
    assert len(found.models) == 23
    assert {"org3/model", "org8/model", "org9/model", "baseline/human"}.isdisjoint(found.models)
    rows = dict(zip(found.models, found.rows.tolist(), strict=True))
    assert (rows["org4/model"], rows["org6/model"]) == (5, 6)
    assert found.scores == pytest.approx(scores[found.rows])
    assert found.target == pytest.approx(scores[found.rows].mean(axis=1))


def test_a_column_of_several_tasks_counts_once(tmp_path: Path) -> None:
    of, scores = suite(3, inside=4), DRAW.random((25, 6))
    found = ScoreTable.read_score_table(put(tmp_path, of, scores), of)
    wanted = (found.scores[:, 0] + found.scores[:, 1] + found.scores[:, 2:].mean(axis=1)) / 3
    assert found.target == pytest.approx(wanted)


def test_a_family_reaches_over_models_without_scores(tmp_path: Path) -> None:
    scores = DRAW.random((30, 3))
    scores[0] = np.nan
    scores[0, 0] = 0.5
    names = [f"org{row}/model" for row in range(30)]
    parents = {names[1]: names[0], names[2]: names[1], names[0]: "away/root"}
    found = ScoreTable.read_score_table(
        put(tmp_path, suite(3), scores, models=names, parents=parents), suite(3)
    )
    by_name = dict(zip(found.models, found.families, strict=True))
    assert by_name[names[1]] == by_name[names[2]] == "away/root"
    assert len(set(found.groups.tolist())) == 28


def test_times_of_more_than_was_asked_for_do_not_count(tmp_path: Path) -> None:
    of, scores = suite(3), DRAW.random((25, 3))
    source = put(tmp_path, of, scores, seconds=np.full((25, 3), 7.0))
    assert np.nansum(ScoreTable.read_score_table(source, of).seconds) == 7 * 75
    wider = source.load_table("scores").to_pylist()
    extra = {**wider[0], "split": "train"}
    tables = {
        "entries": source.load_table("entries"),
        "files": source.load_table("files"),
        "scores": pa.Table.from_pylist([*wider, extra]),
    }
    with imported.Imported.lock(source.folder):
        again = imported.Imported.publish(source.folder, tables, {"counts": {}}, {"parser": 2})
    assert np.isnan(ScoreTable.read_score_table(again, of).seconds).sum() == 1


def test_too_little_to_fit_on_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="9 imported models of 9 families have every task of MADE"):
        ScoreTable.read_score_table(put(tmp_path / "few", suite(3), DRAW.random((9, 3))), suite(3))
    models = [f"org{row % 4}/model{row}" for row in range(40)]
    with pytest.raises(UsageError, match="40 imported models of 4 families"):
        ScoreTable.read_score_table(
            put(tmp_path / "alike", suite(3), DRAW.random((40, 3)), models=models), suite(3)
        )


# Families of models


def test_a_line_of_models_is_one_family_and_a_model_of_nothing_is_of_its_organisation() -> None:
    models = ["acme/base", "acme/other", "new/tuned", "new/again", "lone/one"]
    parents = {"new/tuned": "acme/base", "new/again": "new/tuned", "lone/one": "away/root"}
    assert _assign_families(models, parents) == ["acme", "acme", "acme", "acme", "away/root"]


def test_two_models_with_a_root_that_was_never_scored_are_one_family() -> None:
    parents = {"a/one": "away/root", "b/two": "away/root"}
    one, two, three = _assign_families(["a/one", "b/two", "away/sibling"], parents)
    assert one == two == "away/root"
    assert three == "away"


def test_a_circle_ends() -> None:
    parents = {"a/one": "b/two", "b/two": "a/one", "c/three": "b/two", "d/self": "d/self"}
    assert _assign_families(["a/one", "b/two", "c/three", "d/self"], parents) == ["a", "a", "a", "d"]


def test_the_task_that_follows_its_types_mean_is_that_of_the_scores(tmp_path: Path) -> None:
    of = suite(2, inside=3)
    shared, noise = DRAW.random((25, 1)), DRAW.random((25, 5))
    source = put(tmp_path, of, shared + np.array([0.1, 0.5, 1, 1, 1]) * noise)
    table = ScoreTable.read_score_table(source, of)
    names = [task.name for task in of.tasks]
    means = [
        table.scores[:, [names.index(task.name) for task in column.tasks]].mean(axis=1)
        for column in of.columns
    ]
    assert read_column_scores(source, of) == pytest.approx(np.stack(means, axis=1))
    for ranking in rank_type_tasks(of, partial(read_column_scores, source)):
        kept = [at for at, column in enumerate(of.columns) if column.type == ranking.type]
        scores = read_column_scores(source, of)[:, kept]
        for task in ranking.tasks:
            at = [of.columns[place].name for place in kept].index(task.task)
            assert task.mean is not None
            assert task.mean.value == pytest.approx(spearmanr(scores[:, at], scores.mean(axis=1)).statistic)


def test_measured_models_are_read_once_each(tmp_path: Path) -> None:
    tasks = [fakes.task(name) for name in "AB"]
    of = Suite(
        name="s", title="S", columns=tuple(Column(name=t.name, type=t.type, tasks=(t,)) for t in tasks)
    )
    for number in range(3):
        model = fakes.artifact(tmp_path, key=f"{number}" * 64, name=f"m{number}")
        for at, task in enumerate(tasks[: 2 - number // 2]):
            Store(tmp_path).put(model.slug, fakes.record(task, (number + at) / 10, model=model))
    scores = read_measured_scores(tmp_path, tmp_path / "cache", of)
    assert np.array_equal(sorted(scores.tolist()), [[0.0, 0.1], [0.1, 0.2], [0.2, np.nan]], equal_nan=True)
    assert read_measured_scores(tmp_path / "none", tmp_path / "cache", of).shape == (0, 2)
