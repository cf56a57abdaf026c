"""Student's t against SciPy's."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest
import scipy.stats

from harness import stats

FREEDOMS = (1, 1.5, 2, 3, 9, 9.7, 30, 199, 1378, 20_000, 3e5)


@pytest.mark.parametrize("freedom", FREEDOMS)
@pytest.mark.parametrize("t", [-12.0, -8.0, -3.1, -2.015, -1.0, -0.1, -0.01, 0.0, 0.01, 0.5, 1.7, 6.0])
def test_probabilities_are_those_of_scipy(t: float, freedom: float) -> None:
    assert stats.student_cdf(t, freedom) == pytest.approx(scipy.stats.t.cdf(t, freedom), rel=1e-8, abs=1e-16)


@pytest.mark.parametrize("freedom", FREEDOMS)
@pytest.mark.parametrize("share", [1e-6, 1e-3, 0.0025, 0.05, 0.3, 0.5, 0.8, 0.95, 0.999, 1 - 1e-6])
def test_quantiles_are_those_of_scipy(share: float, freedom: float) -> None:
    assert stats.student_quantile(share, freedom) == pytest.approx(
        scipy.stats.t.ppf(share, freedom), rel=1e-8, abs=1e-8
    )


def test_many_degrees_of_freedom_are_the_normal_distribution() -> None:
    assert stats.student_cdf(-1.96, 1e12) == pytest.approx(NormalDist().cdf(-1.96))
    assert stats.student_quantile(0.975, stats.LARGE) == pytest.approx(
        scipy.stats.t.ppf(0.975, 1e7), rel=1e-6
    )


@pytest.mark.parametrize("freedom", [1, 4.5, 1e9])
def test_ends_and_middle(freedom: float) -> None:
    assert stats.student_cdf(-math.inf, freedom) == 0
    assert stats.student_cdf(math.inf, freedom) == 1
    assert stats.student_cdf(0.0, freedom) == 0.5
    assert stats.student_quantile(0.5, freedom) == pytest.approx(0, abs=1e-8)


@pytest.mark.parametrize("freedom", [1, 2.5, 40])
def test_a_quantile_is_where_its_share_lies(freedom: float) -> None:
    for share in (0.01, 0.2, 0.9, 0.99):
        assert stats.student_cdf(stats.student_quantile(share, freedom), freedom) == pytest.approx(
            share, rel=1e-9
        )
