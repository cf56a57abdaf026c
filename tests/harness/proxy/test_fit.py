from __future__ import annotations

import itertools
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.model_selection import LeaveOneGroupOut, cross_val_predict

from harness.core.errors import UsageError
from harness.core.types import SuiteOptions
from harness.plan import catalog
from harness.proxy.document import PROXIES, Proxy
from harness.proxy.fit import (
    PENALTIES,
    Products,
    ProxyRequest,
    choose_tasks,
    fit_penalty,
    fit_proxy,
    fit_ridge,
    fit_times,
    measure_errors,
    predict_families,
    split_families,
)
from harness.storage.imported import Imported
from proxies import put, suite
from suites.proxy import SUITE

# From an import to a proxy


COLUMNS = 8


def imported(folder: Path, seed: int = 7) -> Imported:
    """Forty models of twenty families: B and D follow what all tasks share, closely; A is dear."""
    draw = np.random.default_rng(seed)
    level = draw.uniform(0.3, 0.8, (40, 1))
    noise = np.where(np.isin(np.arange(COLUMNS), [1, 3]), 0.001, 0.08)
    scores = level + draw.normal(0, 1, (40, COLUMNS)) * noise
    seconds = np.outer(draw.uniform(0.5, 2, 40), [6000, *[60.0] * (COLUMNS - 1)])
    models = [f"org{row // 2}/model{row}" for row in range(40)]
    return put(folder, suite(COLUMNS), np.clip(scores, 0, 1), models=models, seconds=seconds)


def fit_made(source: Imported, **wish: Any) -> Proxy:
    return fit_proxy(source, suite(COLUMNS), ProxyRequest(suite="made", **wish))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Proxy:
    return fit_made(imported(tmp_path_factory.mktemp("import")), minutes=3.5)


@pytest.fixture
def predictor(fitted: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(catalog, "open_suite", lambda *_: suite(COLUMNS))
    PROXIES.write_document(tmp_path, fitted.name, fitted)
    return SUITE.open(fitted.name, SuiteOptions(results=tmp_path)).predictor


def test_what_is_fitted_is_told(fitted: Proxy) -> None:
    assert fitted.name == "made-up-v1-3.5min"
    assert (fitted.target.title, fitted.target.columns, fitted.chosen) == ("MADE(up, v1)", 8, "greedy")
    assert (fitted.fitted.models, fitted.fitted.families, fitted.fitted.other_data) == (40, 20, 0)
    assert fitted.cost.minutes is not None
    assert fitted.cost.minutes <= 3.5
    assert fitted.cost.whole is not None
    assert fitted.cost.whole / fitted.cost.minutes == pytest.approx(107 / len(fitted.tasks))
    assert {task.task for task in fitted.tasks} & {"B", "D"}
    assert "A" not in {task.task for task in fitted.tasks}
    assert fitted.error.rmse < 0.05 < fitted.error.deviation
    assert fitted.error.rmse <= fitted.error.half_width
    assert fitted.error.kendall is not None
    assert fitted.error.kendall > 0.8


def test_a_prediction_is_the_formula_of_the_file(fitted: Proxy, predictor: Any) -> None:
    told = json.loads(fitted.to_json())
    scores = {task["task"]: 0.5 + 0.01 * at for at, task in enumerate(told["tasks"])}
    by_hand = told["intercept"] + sum(t["coefficient"] * scores[t["task"]] for t in told["tasks"])
    found = predictor.predict(scores)
    assert found is not None
    assert found.value == pytest.approx(by_hand)
    assert (found.high - found.value, found.value - found.low) == pytest.approx(
        (told["error"]["half_width"],) * 2
    )
    assert (found.target, found.level, found.families, found.outside) == ("MADE(up, v1)", 0.95, 20, ())


def test_a_missing_task_is_never_guessed(predictor: Any) -> None:
    scores = dict.fromkeys(predictor.tasks, 0.5)
    assert predictor.predict(scores) is not None
    for name in predictor.tasks:
        assert predictor.predict({key: value for key, value in scores.items() if key != name}) is None


def test_scores_that_no_fitted_model_has_are_named(predictor: Any) -> None:
    first = predictor.tasks[0]
    found = predictor.predict({**dict.fromkeys(predictor.tasks, 0.5), first: 0.0001})
    assert found is not None
    assert found.outside[0] == first
    every = predictor.predict(dict.fromkeys(predictor.tasks, 0.999))
    assert every is not None
    assert every.outside[-1] == "MADE(up, v1)"


def test_given_tasks_are_taken_whatever_they_cost(tmp_path: Path) -> None:
    found = fit_made(imported(tmp_path), tasks=("C", "A"), name="mine")
    assert [task.task for task in found.tasks] == ["A", "C"]
    assert (found.name, found.chosen, found.cost.budget) == ("mine", "given", None)


def test_minutes_can_be_those_of_a_named_model(tmp_path: Path) -> None:
    source = imported(tmp_path)
    names = source.load_table("files")["seconds"].to_pylist()
    found = fit_made(source, tasks=("B",), reference="org3/model7")
    seconds = names[7 * COLUMNS + 1]
    assert found.cost.minutes == pytest.approx(seconds / 60)
    assert (found.cost.reference, found.cost.nearest) == ("org3/model7", None)


def test_the_same_import_gives_the_same_proxy(fitted: Proxy, tmp_path: Path) -> None:
    again = fit_made(imported(tmp_path), minutes=3.5)
    assert (again.tasks, again.error, again.cost) == (fitted.tasks, fitted.error, fitted.cost)


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"minutes": 0.001}, "No task fits into 0.001 minutes: the cheapest"),
        ({"tasks": ("B", "Bee")}, "No task of the target is called 'Bee'"),
        ({"reference": "org3/model8"}, "No imported model with recorded times is called"),
    ],
)
def test_what_cannot_be_is_said(tmp_path: Path, wish: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        fit_made(imported(tmp_path), **wish)


def test_an_import_without_times_can_only_take_given_tasks(tmp_path: Path) -> None:
    draw = np.random.default_rng(8)
    scores = draw.random((30, 4))
    source = put(tmp_path, suite(4), scores, seconds=np.full((30, 4), np.nan))
    with pytest.raises(UsageError, match="has no times for"):
        fit_proxy(source, suite(4), ProxyRequest(suite="made"))
    found = fit_proxy(source, suite(4), ProxyRequest(suite="made", tasks=("A",)))
    assert (found.cost.minutes, found.cost.nearest) == (None, None)


def test_a_file_reads_as_what_was_written(fitted: Proxy, tmp_path: Path) -> None:
    path = PROXIES.write_document(tmp_path, fitted.name, fitted)
    assert path == tmp_path / "proxies" / "made-up-v1-3.5min.json"
    assert PROXIES.kind.read_document_file(path) == fitted
    assert Proxy.find(fitted.name, tmp_path) == Proxy.find(str(path), tmp_path) == path
    assert list(path.parent.iterdir()) == [path]


def test_a_name_that_is_not_there_has_its_nearest_told(fitted: Proxy, tmp_path: Path) -> None:
    PROXIES.write_document(tmp_path, fitted.name, fitted)
    with pytest.raises(UsageError, match=r"made-up-v1-3\.5min") as caught:
        Proxy.find("made-up-v1-3min", tmp_path)
    assert "No proxy in" in caught.value.message
    for text in ("../made-up-v1-3.5min", "away.json"):
        with pytest.raises(UsageError):
            Proxy.find(text, tmp_path)


# The choice of tasks


DRAW = np.random.default_rng(3)


def planted(models: int = 90) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Twelve tasks, of which 2, 5 and 7 make the target; families of three."""
    scores = DRAW.normal(0.5, 0.1, (models, 12))
    target = 0.5 * scores[:, 2] + 0.3 * scores[:, 5] + 0.2 * scores[:, 7] + 0.01
    return scores, target, np.arange(models) // 3


def test_the_planted_tasks_are_chosen_and_their_weights_recovered() -> None:
    scores, target, families = planted()
    minutes = np.ones(12)
    found = choose_tasks(scores, target, families, minutes, 3.0)
    assert set(found.tasks) == {2, 5, 7}
    line = fit_ridge(scores[:, list(found.tasks)], target, found.penalty)
    weights = dict(zip(found.tasks, line.coefficients, strict=True))
    assert [weights[at] for at in (2, 5, 7)] == pytest.approx([0.5, 0.3, 0.2], abs=0.02)
    assert line.intercept == pytest.approx(0.01, abs=0.02)


def test_a_dear_task_gives_way_to_its_cheap_copy() -> None:
    scores, target, families = planted()
    scores = np.column_stack([scores, scores[:, 2] + DRAW.normal(0, 0.001, len(scores))])
    minutes = np.ones(13)
    minutes[2] = 100
    found = choose_tasks(scores, target, families, minutes, 3.0)
    assert set(found.tasks) == {12, 5, 7}


def test_the_budget_holds_and_exchanges_find_the_best_pair() -> None:
    scores, target, families = planted()
    minutes = DRAW.uniform(0.5, 2, 12)
    found = choose_tasks(scores, target, families, minutes, 2.5)
    assert minutes[list(found.tasks)].sum() <= 2.5
    of = Products.compute_products(scores, target, split_families(families))
    pairs = [p for p in itertools.combinations(range(12), 2) if minutes[list(p)].sum() <= 2.5]
    best = min(of.compute_errors(pairs, penalty).min() for penalty in PENALTIES)
    assert found.error <= best + 1e-12


@pytest.mark.slow
def test_noise_is_told_as_noise() -> None:
    """A target that nothing predicts: the nested error is about its deviation."""
    draw = np.random.default_rng(4)
    scores, target, families = draw.random((80, 30)), draw.random(80), np.arange(80) // 2
    choose = partial(choose_tasks, minutes=np.ones(30), budget=8.0)
    predicted = predict_families(scores, target, families, choose)
    nested = measure_errors(target, predicted).rmse
    chosen_by = float(np.sqrt(choose(scores, target, families).error))
    assert nested > 0.97 * target.std()
    assert chosen_by < nested


def test_a_family_is_predicted_without_itself() -> None:
    scores, target, families = planted(60)
    seen: list[int] = []

    def choose(some: np.ndarray, of: np.ndarray, groups: np.ndarray) -> Any:
        seen.append(len(some))
        assert len(set(groups.tolist())) == 19
        return fit_penalty(some, of, groups, [0])

    told: list[tuple[int, int]] = []
    predict_families(scores, target, families, choose, lambda done, of: told.append((done, of)))
    assert seen == [57] * 20
    assert told == [(done, 20) for done in range(21)]


def half_width(residuals: np.ndarray) -> float:
    return measure_errors(np.zeros(len(residuals)), residuals).half_width


def test_the_half_width_covers_held_out_models() -> None:
    """Of fresh residuals at least 95 % in the mean over draws, as split-conformal bounds promise."""
    draw = np.random.default_rng(5)
    shares = []
    for _ in range(400):
        residuals = np.abs(draw.standard_t(3, 101))
        shares.append(np.mean(residuals[-1] <= half_width(residuals[:-1])))
    assert np.mean(shares) > 0.93
    assert half_width(np.array([3.0, 1.0, 2.0])) == 3.0


def test_a_constant_target_has_no_rank_correlation() -> None:
    found = measure_errors(np.ones(4), np.arange(4.0))
    assert (found.kendall, found.spearman) == (None, None)


# Ridge regression


def test_the_fit_is_scikit_learns_on_scaled_scores() -> None:
    draw = np.random.default_rng(1)
    scores = draw.random((40, 4)) * [1, 0.1, 3, 0.5]
    target = scores @ [0.3, 0.5, 0.1, 0.0] + draw.normal(0, 0.05, 40)
    scale = scores.std(axis=0)
    known = Ridge(alpha=3.0).fit(scores / scale, target)
    found = fit_ridge(scores, target, 3.0)
    assert found.coefficients == pytest.approx(known.coef_ / scale)
    assert found.predict(scores) == pytest.approx(known.predict(scores / scale))


def test_the_held_out_error_of_every_set_is_scikit_learns() -> None:
    draw = np.random.default_rng(2)
    scores, groups = draw.random((50, 6)), draw.integers(0, 7, 50)
    target = scores.mean(axis=1) + draw.normal(0, 0.02, 50)
    sets = [(0, 3), (5, 1), (2, 4)]
    found = Products.compute_products(scores, target, groups[None]).compute_errors(sets, 2.0)
    for places, error in zip(sets, found, strict=True):
        scaled = (scores / scores.std(axis=0))[:, places]
        predicted = cross_val_predict(Ridge(alpha=2.0), scaled, target, groups=groups, cv=LeaveOneGroupOut())
        assert error == pytest.approx(np.mean((predicted - target) ** 2), rel=1e-6)


def test_a_constant_task_does_no_harm() -> None:
    scores = np.column_stack([np.linspace(0, 1, 20), np.full(20, 0.5)])
    found = fit_ridge(scores, scores[:, 0], 1e-9)
    assert found.coefficients == pytest.approx([1, 0])


def test_several_partitions_give_the_mean_of_their_errors() -> None:
    draw = np.random.default_rng(3)
    scores, groups = draw.random((40, 5)), draw.integers(0, 4, (3, 40))
    target = scores.mean(axis=1)
    every = Products.compute_products(scores, target, groups).compute_errors([(0, 1), (2, 3)], 1.0)
    alone = [
        Products.compute_products(scores, target, one[None]).compute_errors([(0, 1), (2, 3)], 1.0)
        for one in groups
    ]
    assert every == pytest.approx(np.mean(alone, axis=0))


def test_folds_keep_families_whole_and_are_alike_in_size() -> None:
    families = np.repeat(np.arange(12), [9, 1, 4, 3, 3, 2, 2, 2, 1, 1, 1, 1])
    found = split_families(families, 4, 6)
    assert len({tuple(one) for one in found.tolist()}) > 1
    for one in found:
        assert all(len(set(one[families == family])) == 1 for family in range(12))
        assert sorted(np.bincount(one).tolist()) == [7, 7, 7, 9]
    assert (split_families(families, 4, 6) == found).all()
    assert set(split_families(np.array([0, 0, 1]), 5, 1).ravel().tolist()) == {0, 1}


# Times


def test_planted_effects_are_recovered_from_few_and_partly_wild_times() -> None:
    draw = np.random.default_rng(0)
    models, tasks = draw.normal(0, 2, 60), draw.normal(3, 1, 12)
    logs = models[:, None] + tasks + draw.normal(0, 0.05, (60, 12))
    seconds = np.exp(logs)
    seconds[draw.random((60, 12)) < 0.3] = np.nan
    seconds[draw.random((60, 12)) < 0.05] *= 1000  # a machine that slept
    found = fit_times(seconds)
    shift = np.median(found.tasks - tasks)
    assert np.abs(found.tasks - tasks - shift).max() < 0.1
    assert np.nanmax(np.abs(found.models + shift - models)) < 0.15
    assert found.spread < 0.1


def test_minutes_are_those_of_a_model_of_median_speed() -> None:
    seconds = np.outer([1.0, 2.0, 30.0], [60.0, 120.0, 600.0])
    found = fit_times(seconds)
    rows = np.array([0, 1, 2])
    assert found.estimate_minutes(rows) == pytest.approx([2, 4, 20])
    assert found.estimate_minutes(rows[2:]) == pytest.approx([30, 60, 300])
    assert found.find_nearest(rows) == 1


def test_a_task_without_times_costs_more_than_any_budget() -> None:
    seconds = np.ones((8, 6))
    seconds[:, 2] = np.nan
    minutes = fit_times(seconds).estimate_minutes(np.arange(8))
    assert np.isinf(minutes[2])
    assert np.isfinite(np.delete(minutes, 2)).all()


def test_who_ran_few_tasks_only_moves_nothing() -> None:
    seconds = np.outer(np.ones(8), np.arange(1.0, 9.0))
    before = fit_times(seconds).tasks
    more = np.vstack([seconds, np.full((3, 8), np.nan)])
    more[8:, 0] = 1e6
    after = fit_times(more)
    assert after.tasks == pytest.approx(before)
    assert np.isnan(after.models[8:]).all()
    assert after.find_nearest(np.arange(8, 11)) == -1
