from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.model_selection import LeaveOneGroupOut, cross_val_predict

from harness.proxy import fit


def test_the_fit_is_scikit_learns_on_scaled_scores() -> None:
    draw = np.random.default_rng(1)
    scores = draw.random((40, 4)) * [1, 0.1, 3, 0.5]
    target = scores @ [0.3, 0.5, 0.1, 0.0] + draw.normal(0, 0.05, 40)
    scale = scores.std(axis=0)
    known = Ridge(alpha=3.0).fit(scores / scale, target)
    found = fit._fit_ridge(scores, target, 3.0)
    assert found.coefficients == pytest.approx(known.coef_ / scale)
    assert found.predict(scores) == pytest.approx(known.predict(scores / scale))


def test_the_held_out_error_of_every_set_is_scikit_learns() -> None:
    draw = np.random.default_rng(2)
    scores, groups = draw.random((50, 6)), draw.integers(0, 7, 50)
    target = scores.mean(axis=1) + draw.normal(0, 0.02, 50)
    sets = [(0, 3), (5, 1), (2, 4)]
    found = fit._errors(fit._products(scores, target, groups[None]), sets, 2.0)
    for places, error in zip(sets, found, strict=True):
        scaled = (scores / scores.std(axis=0))[:, places]
        predicted = cross_val_predict(Ridge(alpha=2.0), scaled, target, groups=groups, cv=LeaveOneGroupOut())
        assert error == pytest.approx(np.mean((predicted - target) ** 2), rel=1e-6)


def test_a_constant_task_does_no_harm() -> None:
    scores = np.column_stack([np.linspace(0, 1, 20), np.full(20, 0.5)])
    found = fit._fit_ridge(scores, scores[:, 0], 1e-9)
    assert found.coefficients == pytest.approx([1, 0])


def test_several_partitions_give_the_mean_of_their_errors() -> None:
    draw = np.random.default_rng(3)
    scores, groups = draw.random((40, 5)), draw.integers(0, 4, (3, 40))
    target = scores.mean(axis=1)
    every = fit._errors(fit._products(scores, target, groups), [(0, 1), (2, 3)], 1.0)
    alone = [fit._errors(fit._products(scores, target, one[None]), [(0, 1), (2, 3)], 1.0) for one in groups]
    assert every == pytest.approx(np.mean(alone, axis=0))


def test_folds_keep_families_whole_and_are_alike_in_size() -> None:
    families = np.repeat(np.arange(12), [9, 1, 4, 3, 3, 2, 2, 2, 1, 1, 1, 1])
    found = fit._folds(families, 4, 6)
    assert len({tuple(one) for one in found.tolist()}) > 1
    for one in found:
        assert all(len(set(one[families == family])) == 1 for family in range(12))
        assert sorted(np.bincount(one).tolist()) == [7, 7, 7, 9]
    assert (fit._folds(families, 4, 6) == found).all()
    assert set(fit._folds(np.array([0, 0, 1]), 5, 1).ravel().tolist()) == {0, 1}
