from __future__ import annotations

import numpy as np
import pytest

from harness.proxy.fit import _fit_times


def test_planted_effects_are_recovered_from_few_and_partly_wild_times() -> None:
    draw = np.random.default_rng(0)
    models, tasks = draw.normal(0, 2, 60), draw.normal(3, 1, 12)
    logs = models[:, None] + tasks + draw.normal(0, 0.05, (60, 12))
    seconds = np.exp(logs)
    seconds[draw.random((60, 12)) < 0.3] = np.nan
    seconds[draw.random((60, 12)) < 0.05] *= 1000  # a machine that slept
    found = _fit_times(seconds)
    shift = np.median(found.tasks - tasks)
    assert np.abs(found.tasks - tasks - shift).max() < 0.1
    assert np.nanmax(np.abs(found.models + shift - models)) < 0.15
    assert found.spread < 0.1


def test_minutes_are_those_of_a_model_of_median_speed() -> None:
    seconds = np.outer([1.0, 2.0, 30.0], [60.0, 120.0, 600.0])
    found = _fit_times(seconds)
    rows = np.array([0, 1, 2])
    assert found.minutes(rows) == pytest.approx([2, 4, 20])
    assert found.minutes(rows[2:]) == pytest.approx([30, 60, 300])
    assert found.nearest(rows) == 1


def test_a_task_without_times_costs_more_than_any_budget() -> None:
    seconds = np.ones((8, 6))
    seconds[:, 2] = np.nan
    minutes = _fit_times(seconds).minutes(np.arange(8))
    assert np.isinf(minutes[2])
    assert np.isfinite(np.delete(minutes, 2)).all()


def test_who_ran_few_tasks_only_moves_nothing() -> None:
    seconds = np.outer(np.ones(8), np.arange(1.0, 9.0))
    before = _fit_times(seconds).tasks
    more = np.vstack([seconds, np.full((3, 8), np.nan)])
    more[8:, 0] = 1e6
    after = _fit_times(more)
    assert after.tasks == pytest.approx(before)
    assert np.isnan(after.models[8:]).all()
    assert after.nearest(np.arange(8, 11)) == -1
