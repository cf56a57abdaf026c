"""Figures as SVG: where marks stand, by hand, and that nothing is covered."""

from __future__ import annotations

import re
from itertools import combinations, pairwise
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest

from html_pages import draw_figure
from leaderboard.web.charts import (
    Axis,
    Bars,
    BarSeries,
    Curve,
    Distribution,
    Heat,
    Lines,
    Point,
    Scatter,
    Track,
    build_chart,
)
from leaderboard.web.drawing import FRAME, LETTER, NARROW

Y = Axis(label="Mean")


def drawn(plot: Any) -> Element:
    return ElementTree.fromstring(f"<p>{draw_figure(build_chart('c', 't', plot).figure)}</p>")


def markers(root: Element) -> list[tuple[float, float]]:
    """The places of points: across in percent, upwards in pixels."""
    return [
        (float(svg.attrib["x"].rstrip("%")), float(svg.attrib["y"]))
        for svg in root.iter("svg")
        if "x" in svg.attrib and svg.find("path") is not None
    ]


def test_points_stand_where_their_values_are() -> None:
    """By hand: 5 % of the range stay free at both ends, so 0 to 10 is drawn from -0.5 to 10.5."""
    points = [Point(label="a", x=0, y=0), Point(label="b", x=10, y=100), Point(label="c", x=5, y=50)]
    places = sorted(markers(drawn(Scatter(x=Axis(label="n"), y=Y, points=points, better=None))))
    height = 460 - FRAME
    ends = [(100 * 0.5 / 11, height * 10.5 / 11), (50, height / 2), (100 * 10.5 / 11, height * 0.5 / 11)]
    assert places == [pytest.approx(end, abs=0.06) for end in ends]


def test_a_logarithmic_axis_has_equal_steps_and_round_ticks() -> None:
    points = [Point(label=str(x), x=x, y=1) for x in (1e6, 1e7, 1e8)]
    root = drawn(Scatter(x=Axis(label="Parameters", kind="log"), y=Y, points=points, better=None))
    first, second, third = sorted(x for x, _ in markers(root))
    assert second - first == pytest.approx(third - second, abs=0.02)
    assert {"1M", "10M", "100M"} <= {text.text for text in root.iter("text")}


@pytest.mark.parametrize(
    ("dates", "ticks"),
    [
        (("2021-01-01", "2025-01-01"), {"2022", "2023", "2024"}),
        (("2025-01-01", "2025-06-01"), {"Feb 2025", "Mar 2025"}),
        (("2025-01-01", "2025-01-09"), {"02 Jan", "04 Jan"}),
        (("2025-01-01 10:00:00", "2025-01-01 16:00:00"), {"01 Jan 12:00"}),
    ],
)
def test_an_axis_of_dates_has_ticks_that_people_read(dates: tuple[str, str], ticks: set[str]) -> None:
    points = [Point(label=day, x=day, y=1) for day in dates]
    root = drawn(Scatter(x=Axis(label="Released", kind="date"), y=Y, points=points, better="lower"))
    assert ticks <= {text.text for text in root.iter("text")}
    assert len(markers(root)) == 2


def test_names_cover_neither_each_other_nor_leave_the_plot() -> None:
    points = [Point(label=f"org/model-{n}", x=1e8 * (1 + n % 7), y=50 + n * 0.4) for n in range(40)]
    root = drawn(Scatter(x=Axis(label="n", kind="log"), y=Y, points=points))
    boxes = []
    for text in root.iter("text"):
        if text.get("class") == "name":
            left = float(text.attrib["x"].rstrip("%")) / 100 * NARROW + float(text.attrib["dx"])
            boxes.append((left, left + LETTER * len(text.text or ""), float(text.attrib["y"])))
    assert len(boxes) > 3
    assert all(left >= -1 and right <= NARROW + 1 for left, right, _ in boxes)
    for a, b in combinations(boxes, 2):
        assert a[1] <= b[0] + 1 or b[1] <= a[0] + 1 or abs(a[2] - b[2]) >= 13


def test_links_hover_and_intervals_are_there() -> None:
    points = [Point(label="<b>&", x=1, y=2, low=1, high=3, href="/models/a?b=1&c=2", hollow=True)]
    root = drawn(Track(x=Axis(label="step"), y=Y, points=points, tones={"": ""}, band=(0, 1)))
    (link,) = root.iter("a")
    assert link.attrib == {"href": "/models/a?b=1&c=2", "tabindex": "-1"}
    assert (link.findtext(".//title") or "").splitlines()[0] == "<b>&"
    (bar,) = [line for line in root.iter("line") if line.get("class") == "bar"]
    assert float(bar.attrib["y1"]) < float(bar.attrib["y2"])
    assert [path.get("class") for path in root.iter("path")][-1] == "point open"
    assert len([rect for rect in root.iter("rect") if rect.get("class") == "band"]) == 1


def test_a_line_is_broken_where_a_value_is_missing() -> None:
    values = [1.0, 2.0, None, 4.0, 5.0]
    points = [Point(x=at, y=value, low=value, high=value) for at, value in enumerate(values)]
    root = drawn(Lines(x=Axis(label="step"), y=Y, lines=[Curve(label="run", points=points)]))
    (line,) = [path.attrib["d"] for path in root.iter("path") if path.get("class") == "line"]
    assert re.findall("[ML]", line) == ["M", "L", "M", "L"]
    assert len(markers(root)) == 4


def test_bars_are_as_long_as_their_values() -> None:
    series = [BarSeries(label="a", values=[50, 100, None])]
    root = drawn(Bars(axis=Y, categories=["x", "y", "z"], series=series))
    widths = [rect.attrib["width"] for rect in root.iter("rect")]
    half, full = (float(width.rstrip("%")) for width in widths if "%" in width)
    assert full == pytest.approx(2 * half, abs=0.02)
    assert {"x", "y", "z", "50", "100"} <= {text.text for text in root.iter("text")}


def test_cells_fill_the_plane_and_are_fuller_the_higher() -> None:
    heat = Heat(
        x=Y, y=Y, across=(10, 20, 30), up=(5, 6), values=[[1.0, None], [2.0, 3.0]], counts=[[1, 0], [4, 2]]
    )
    root = drawn(heat)
    cells = [rect.attrib for rect in root.iter("rect")]
    places = [(cell["x"], cell["width"], float(cell["y"])) for cell in cells]
    assert places == [(x, "50.00%", y) for y in (46.0, 0.0) for x in ("0.00%", "50.00%")]
    fills = [float(cell.get("fill-opacity", "nan")) for cell in cells]
    assert fills == pytest.approx([0.05, float("nan"), 0.275, 0.5], abs=0.006, nan_ok=True)
    texts = [text.text for text in root.iter("text")]
    assert texts.count("none") == 1
    # Edges stand between the cells, and a value of a bin in its middle.
    words = {text.text: text.attrib for text in root.iter("text")}
    assert (words["10"]["x"], words["30"]["x"]) == ("0.00%", "100.00%")
    assert float(words["5"]["y"]) - 4 == 46 * 1.5


def test_columns_stand_side_by_side() -> None:
    root = drawn(Distribution(axis=Y, values=[1, 1, 1, 2, 3, 4, 5]))
    columns = list(root.iter("rect"))
    ends = [(float(c.attrib["x"].rstrip("%")), float(c.attrib["width"].rstrip("%"))) for c in columns]
    assert all(a[0] + a[1] <= b[0] + 0.01 for a, b in pairwise(ends))
    heights = [float(c.attrib["height"]) for c in columns]
    assert heights[0] == max(heights) == pytest.approx(3 * min(h for h in heights if h), abs=0.5)
