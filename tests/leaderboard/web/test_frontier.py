"""The frontier of points against its definition."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from leaderboard.web.frontier import Better, frontier

scores = st.integers(0, 8).map(float)


def beaten(one: tuple[float, float], points: list[tuple[float, float]], better: Better) -> bool:
    sign = 1 if better == "lower" else -1
    return any(sign * x <= sign * one[0] and y >= one[1] and (x, y) != one for x, y in points)


@given(st.lists(st.tuples(scores, scores), max_size=25), st.sampled_from(["lower", "higher"]))
def test_frontier_is_what_no_other_point_beats(points: list[tuple[float, float]], better: Better) -> None:
    found = frontier(points, better)
    assert set(found) == {i for i, p in enumerate(points) if not beaten(p, points, better)}
    assert found == sorted(found, key=lambda i: (points[i][0], i))
    assert frontier([(math.nan, 9), (1, math.nan), (2, 3)], "lower") == [2]
