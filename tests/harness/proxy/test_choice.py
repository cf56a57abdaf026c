from __future__ import annotations

import itertools

import numpy as np
import pytest

from harness.proxy import fit

DRAW = np.random.default_rng(3)


def planted(models: int = 90) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Twelve tasks, of which 2, 5 and 7 make the target; families of three."""
    scores = DRAW.normal(0.5, 0.1, (models, 12))
    target = 0.5 * scores[:, 2] + 0.3 * scores[:, 5] + 0.2 * scores[:, 7] + 0.01
    return scores, target, np.arange(models) // 3


def test_the_planted_tasks_are_chosen_and_their_weights_recovered() -> None:
    scores, target, families = planted()
    minutes = np.ones(12)
    found = fit._choose(scores, target, families, minutes, 3.0)
    assert set(found.tasks) == {2, 5, 7}
    line = fit._fit_ridge(scores[:, list(found.tasks)], target, found.penalty)
    weights = dict(zip(found.tasks, line.coefficients, strict=True))
    assert [weights[at] for at in (2, 5, 7)] == pytest.approx([0.5, 0.3, 0.2], abs=0.02)
    assert line.intercept == pytest.approx(0.01, abs=0.02)


def test_a_dear_task_gives_way_to_its_cheap_copy() -> None:
    scores, target, families = planted()
    scores = np.column_stack([scores, scores[:, 2] + DRAW.normal(0, 0.001, len(scores))])
    minutes = np.ones(13)
    minutes[2] = 100
    found = fit._choose(scores, target, families, minutes, 3.0)
    assert set(found.tasks) == {12, 5, 7}


def test_the_budget_holds_and_exchanges_find_the_best_pair() -> None:
    scores, target, families = planted()
    minutes = DRAW.uniform(0.5, 2, 12)
    found = fit._choose(scores, target, families, minutes, 2.5)
    assert minutes[list(found.tasks)].sum() <= 2.5
    of = fit._products(scores, target, fit._folds(families))
    pairs = [p for p in itertools.combinations(range(12), 2) if minutes[list(p)].sum() <= 2.5]
    best = min(fit._errors(of, pairs, penalty).min() for penalty in fit.PENALTIES)
    assert found.error <= best + 1e-12


def test_noise_is_told_as_noise() -> None:
    """A target that nothing predicts: the nested error is about its deviation."""
    draw = np.random.default_rng(4)
    scores, target, families = draw.random((80, 30)), draw.random(80), np.arange(80) // 2
    minutes = np.ones(30)

    def choose(some: np.ndarray, of: np.ndarray, groups: np.ndarray) -> fit._Choice:
        return fit._choose(some, of, groups, minutes, 8.0)

    predicted = fit._held_out(scores, target, families, choose)
    nested = fit._judged(target, predicted).rmse
    chosen_by = float(np.sqrt(choose(scores, target, families).error))
    assert nested > 0.97 * target.std()
    assert chosen_by < nested


def test_a_family_is_predicted_without_itself() -> None:
    scores, target, families = planted(60)
    seen: list[int] = []

    def choose(some: np.ndarray, of: np.ndarray, groups: np.ndarray) -> fit._Choice:
        seen.append(len(some))
        assert len(set(groups.tolist())) == 19
        return fit._given(some, of, groups, [0])

    told: list[tuple[int, int]] = []
    fit._held_out(scores, target, families, choose, lambda done, of: told.append((done, of)))
    assert seen == [57] * 20
    assert told == [(done, 20) for done in range(21)]


def test_the_half_width_covers_held_out_models() -> None:
    """Of fresh residuals at least 95 % in the mean over draws, as split-conformal bounds promise."""
    draw = np.random.default_rng(5)
    shares = []
    for _ in range(400):
        residuals = np.abs(draw.standard_t(3, 101))
        shares.append(np.mean(residuals[-1] <= fit._half_width(residuals[:-1])))
    assert np.mean(shares) > 0.93
    assert fit._half_width(np.array([3.0, 1.0, 2.0])) == 3.0


def test_a_constant_target_has_no_rank_correlation() -> None:
    found = fit._judged(np.ones(4), np.arange(4.0))
    assert (found.kendall, found.spearman) == (None, None)
