from __future__ import annotations

import pytest

from harness.watch.report import chart


def rows(*points: tuple[int, float], **more: object) -> list[str]:
    return chart(points, **more).plain.splitlines()  # type: ignore[arg-type]


def test_dots_lie_where_the_scores_are() -> None:
    drawn = rows((0, 0.1), (50, 0.3), (100, 0.2), width=21, height=9)
    plot = [line[len("30.00 ┤") :] for line in drawn[:9]]
    dots = [(row, line.index("●")) for row, line in enumerate(plot) if "●" in line]
    assert dots == [(0, 10), (4, 20), (8, 0)]
    assert drawn[0].startswith("30.00 ┤")
    assert drawn[8].startswith("10.00 ┤")
    assert drawn[9] == f"      └{'─' * 21}"
    assert drawn[10].split() == ["0", "100", "step"]


def test_what_dropped_is_marked_even_where_dots_have_no_room() -> None:
    points = [(step, 0.5 - 0.1 * (step == 30)) for step in range(60)]
    text = "".join(rows(*points, flagged={30}, width=20, height=5))
    assert text.count("▼") == 1
    assert "●" not in text


def test_a_line_joins_neighbours() -> None:
    drawn = rows((0, 0.0), (9, 1.0), width=10, height=10)
    for row, line in enumerate(drawn[:10]):
        assert line[len("100.00 ┤") + 9 - row] != " "


def test_steps_of_many_sizes_get_a_logarithmic_axis() -> None:
    drawn = rows((1, 0.1), (10, 0.2), (100, 0.3), (1000, 0.4), width=31, height=4)
    assert drawn[-1].endswith("1,000 step, logarithmic")
    assert "logarithmic" not in rows((1000, 0.1), (2000, 0.2))[-1]


@pytest.mark.parametrize("points", [[(5, 0.5)], [(5, 0.5), (6, 0.5)], [(0, -0.2), (1, 0.1)]])
def test_one_point_equal_points_and_negative_ones_can_be_drawn(points: list[tuple[int, float]]) -> None:
    assert sum(line.count("●") for line in rows(*points)) == len(points)
