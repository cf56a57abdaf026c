"""Charts: what each figure holds."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import date
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from html_pages import draw_figure
from leaderboard.web.charts import (
    NAMES,
    Axis,
    Bars,
    BarSeries,
    Better,
    Chart,
    Curve,
    Distribution,
    Heat,
    Lines,
    Point,
    Scatter,
    Track,
    build_chart,
    compute_frontier,
    convert_axis_value,
    select_frontier_points,
)

X, Y = Axis(label="Parameters", kind="log"), Axis(label="Mean")
HOSTILE = "<script>alert(1)</script> </title> \"' & %{x} {{ 7*7 }}\nb"


def a_scatter(*points: Point, **more: Any) -> Scatter:
    return Scatter(**{"x": X, "y": Y, "points": points, **more})


def traces(found: Chart) -> list[dict[str, Any]]:
    """The traces that a legend names."""
    return [trace for trace in found.figure["data"] if trace.get("showlegend", True)]


def every_chart(label: str, values: list[Any]) -> list[Chart]:
    """A chart of each kind in which the label and the values stand."""
    axis = Axis(label=label)
    points = [Point(label=label, x=v, y=v, low=v, high=v, href="/m?a=1", series=label) for v in values]
    rows = [BarSeries(label=label, values=values), BarSeries(label="b", values=values)]
    line = Curve(label=label, points=points)
    track = Track(
        x=axis, y=axis, points=points, tones={label: "bad"}, band=(-1, 1), joined=True, marks=[(3, label)]
    )
    plots = [
        a_scatter(*points, x=axis, y=axis),
        Bars(axis=axis, categories=[f"{label}{i}" for i in range(len(values))], series=rows),
        Distribution(axis=axis, values=values, marks=points[:6]),
        Lines(x=axis, y=axis, lines=[line, line], marks=[(3, label)]),
        track,
        Heat(
            x=axis,
            y=axis,
            across=[*range(1 + len(values))],
            up=[1],
            values=[[1, *values]],
            counts=[[1] * (1 + len(values))],
        ),
    ]
    return [build_chart("c", label, plot) for plot in plots]  # type: ignore[arg-type]


def test_the_frontier_is_a_line_of_steps_to_the_last_point() -> None:
    points = [Point(label=str(x), x=x, y=y) for x, y in ((1, 10), (2, 9), (3, 30), (9, 20))]
    (_, line) = build_chart("c", "t", a_scatter(*points)).figure["data"]
    assert (line["x"], line["y"], line["line"]["shape"]) == ([1, 3, 9], [10, 30, 30], "hv")
    (_, line) = build_chart("c", "t", a_scatter(*points, better="higher")).figure["data"]
    assert (line["x"], line["y"], line["line"]["shape"]) == ([1, 3, 9], [30, 30, 20], "vh")
    assert len(build_chart("c", "t", a_scatter(*points, better=None)).figure["data"]) == 1


def test_of_many_points_the_highest_and_the_frontier_are_drawn() -> None:
    points = [Point(label=f"p{at}", x=1000 - at, y=at % 10 + at / 1000) for at in range(1000)]
    every = Scatter(x=Axis(label="x"), y=Axis(label="y"), points=points, most=len(points))
    chart = build_chart("c", "c", replace(every, most=20))
    drawn = {row.cells[0].text for row in chart.table.rows}
    highest = sorted(points, key=lambda point: -float(point.y or 0))[:20]
    assert drawn == {p.label for p in highest} | {p.label for p in select_frontier_points(every, points)}
    assert chart.notes == [f"The {len(drawn)} highest and those of the frontier are drawn, of 1,000."]
    assert build_chart("c", "c", every).notes == []
    assert chart.figure["data"][-1] == build_chart("c", "c", every).figure["data"][-1]  # the line


def test_points_with_their_groups_intervals_and_links() -> None:
    points = [
        Point(
            label="org/a", x=1e7, y=50, low=49, high=52, href="/models/a", series="imported", note="a note"
        ),
        Point(label="b", x=2e8, y=60, series="measured", hollow=True),
        Point(label="c", x=date(2026, 1, 1), y=60, series="measured"),
        Point(label="d", x=0, y=60, series="measured"),
        Point(label="e", x=3e8, y=math.nan, series="measured"),
    ]
    found = build_chart("c", "t", a_scatter(*points, series=("measured", "imported")))
    measured, imported, line = found.figure["data"]
    assert [measured["name"], imported["name"], line["name"]] == ["measured", "imported", "frontier"]
    colours = [trace["meta"]["colour"] for trace in (measured, imported, line)]
    assert colours == ["series-1", "series-2", "ink"]
    assert (imported["x"], imported["y"], imported["customdata"]) == ([1e7], [50], ["/models/a"])
    assert (imported["error_y"]["array"], imported["error_y"]["arrayminus"]) == ([2], [1])
    assert imported["hovertext"][0].split("<br>") == [
        "<b>org/a</b>", "Mean 50 [49, 52]", "Parameters 10M", "imported", "a note",
    ]  # fmt: skip
    assert measured["x"] == [2e8], "no date, no 0 on a logarithmic axis, no missing score"
    assert measured["marker"]["symbol"] == ["circle-open"]
    assert not measured["error_y"]["visible"]
    assert line["x"] == [1e7, 2e8], "the hollow point is beside the frontier"
    assert line["y"] == [50, 50]
    assert found.figure["layout"]["xaxis"]["type"] == "log"
    assert found.notes == ["3 of 5 have no value, or none above 0, and are left out."]
    assert [[cell.text for cell in row.cells] for row in found.table.rows] == [
        ["b", "measured", "200M", "60", "", ""], ["org/a", "imported", "10M", "50", "49", "52"],
    ]  # fmt: skip
    assert found.table.rows[1].cells[0].href == "/models/a"


def test_names_come_in_the_order_of_their_worth() -> None:
    points = [Point(label=f"org/m{i}", x=i + 1, y=i % 7, emphasised=i == 3) for i in range(100)]
    named = build_chart("c", "t", a_scatter(*points)).figure["layout"]["meta"]["names"]
    best = {f"m{i}" for i in range(0, 7)}
    assert len(named) == NAMES
    assert named[0] == {"x": 4, "y": 3, "text": "m3"}
    assert {name["text"] for name in named[:7]} == best
    assert [name["y"] for name in named[7:]] == sorted((name["y"] for name in named[7:]), reverse=True)
    found = build_chart("c", "t", a_scatter(Point(label="o/" + "x" * 50, x=1, y=1)))
    assert [len(name["text"]) for name in found.figure["layout"]["meta"]["names"]] == [27]


def test_lines_are_broken_where_a_value_is_missing_and_have_areas() -> None:
    places = [(3, 5, None, None), (1, 2, 1, 3), (2, None, None, None), (4, 6, 5, 7), (math.nan, 1, 0, 2)]
    points = [Point(x=x, y=y, low=low, high=high) for x, y, low, high in places]
    found = build_chart(
        "c", "t", Lines(x=X, y=Y, lines=[Curve(label="a", points=points)], marks=[(100, "here")])
    )
    area, line = found.figure["data"]
    assert (line["x"], line["y"], line["connectgaps"]) == ([1, 2, 3, 4], [2, None, 5, 6], False)
    assert (area["x"], area["y"]) == ([1, 1, None, 4, 4], [3, 1, None, 7, 5])
    (shape,) = found.figure["layout"]["shapes"]
    (word,) = found.figure["layout"]["annotations"]
    assert (shape["x0"], shape["x1"], word["x"], word["text"]) == (100, 100, 2, "here"), "log10 for words"


def test_a_track_has_a_trace_for_each_group_and_a_line_past_what_is_not_comparable() -> None:
    points = [
        Point(label="a", x="2026-01-02T12:00:00+02:00", y=1, low=0, high=2, series="good"),
        Point(label="b", x="2026-01-01", y=2, series="bad", hollow=True),
        *(Point(label="c", x=text, y=2, series="bad") for text in ("", "soon", "0001-01-01", "2026-13-01")),
    ]
    axis = Axis(label="time", kind="date")
    plot = Track(x=axis, y=Y, points=points, tones={"bad": "bad", "good": "", "none": "warn"}, band=(-1, 1),
                 band_label="the margin", joined=True)  # fmt: skip
    found = build_chart("c", "t", plot)
    line, bad, good = found.figure["data"]
    assert (line["x"], line["mode"]) == (["2026-01-02 10:00:00"], "lines")
    assert (bad["x"], bad["marker"]["symbol"]) == (["2026-01-01"], ["circle-open"])
    assert good["x"] == ["2026-01-02 10:00:00"]
    assert (good["meta"]["colour"], bad["meta"]["colour"]) == ("series-2", "bad")
    (band,) = found.figure["layout"]["shapes"]
    assert (band["type"], band["y0"], band["y1"]) == ("rect", -1, 1)
    assert found.notes == ["The band is the margin.", "4 of 6 have no value and are left out."]


def test_bars_are_in_groups_from_the_top() -> None:
    rows = [BarSeries(label="a", values=[70.126, None], href="/a"), BarSeries(label="b", values=[1, 2])]
    found = build_chart("c", "t", Bars(axis=Y, categories=["x", "y"], series=rows))
    first, second = found.figure["data"]
    assert (first["y"], first["x"], first["text"]) == (["x", "y"], [70.126, None], ["70.13", ""])
    assert first["hovertext"][0] == "<b>a</b><br>x: 70.13"
    assert (first["customdata"], second["customdata"]) == (["/a", "/a"], ["", ""])
    assert found.figure["layout"]["yaxis"]["autorange"] == "reversed"
    texts = [[cell.text for cell in row.cells] for row in found.table.rows]
    assert texts == [["x", "70.13", "1"], ["y", "", "2"]]


@given(st.lists(st.floats(-1e6, 1e6) | st.none() | st.just(math.nan), min_size=1, max_size=60))
def test_a_distribution_counts_every_value(values: list[float | None]) -> None:
    found = build_chart(
        "c", "t", Distribution(axis=Y, values=values, marks=[Point(label="m", x=values[0], y=None)])
    )
    known = [v for v in values if v is not None and v == v]
    assert sum(row.cells[2].value for row in found.table.rows) == len(known)  # type: ignore[misc]
    if known:
        assert found.figure["data"][0]["y"] == [row.cells[2].value for row in found.table.rows]
        assert [trace["x"] for trace in found.figure["data"][1:]] == [[values[0]]] * (values[0] in known)


@pytest.mark.parametrize("values", [[], [None, math.nan, math.inf, 1e200], [0, 0, 0], [1e-30, -3, 7e9]])
def test_figures_are_plain_and_drawn(values: list[Any]) -> None:
    for found in every_chart(HOSTILE, values):
        text = json.dumps(found.figure, allow_nan=False)
        assert "<script" not in text
        if found.figure["data"]:
            root = ElementTree.fromstring(f"<p>{draw_figure(found.figure)}</p>")
            assert not {at.tag for at in root.iter()} & {"script", "style"}
        assert all(len(row.cells) == len(found.table.columns) for row in found.table.rows)
        for trace in traces(found):
            assert len(trace["x"]) == len(trace["y"]) == len(trace.get("hovertext", trace["x"]))


def test_numbers_that_an_axis_can_hold() -> None:
    assert [convert_axis_value(v, "log") for v in (0, -1, 5, math.inf)] == [None, None, 5, None]
    assert [convert_axis_value(v, "date") for v in (date(2026, 1, 2), 5, None)] == ["2026-01-02", None, None]
    assert convert_axis_value(date(2026, 1, 2)) is None


# The frontier against its definition


scores = st.integers(0, 8).map(float)


def beaten(one: tuple[float, float], points: list[tuple[float, float]], better: Better) -> bool:
    sign = 1 if better == "lower" else -1
    return any(sign * x <= sign * one[0] and y >= one[1] and (x, y) != one for x, y in points)


@given(st.lists(st.tuples(scores, scores), max_size=25), st.sampled_from(["lower", "higher"]))
def test_frontier_is_what_no_other_point_beats(points: list[tuple[float, float]], better: Better) -> None:
    found = compute_frontier(points, better)
    assert set(found) == {i for i, p in enumerate(points) if not beaten(p, points, better)}
    assert found == sorted(found, key=lambda i: (points[i][0], i))
    assert compute_frontier([(math.nan, 9), (1, math.nan), (2, 3)], "lower") == [2]


def test_a_narrow_logarithmic_axis_has_ticks_within_it() -> None:
    plot = Scatter(
        x=Axis(label="Parameters", kind="log"),
        y=Axis(label="score"),
        points=[Point(label=str(x), x=x, y=1.0) for x in (222e6, 237e6, 294e6)],
    )
    axis = build_chart("narrow", "narrow", plot).figure["layout"]["xaxis"]
    assert list(zip(axis["tickvals"], axis["ticktext"], strict=True)) == [
        (240e6, "240M"), (260e6, "260M"), (280e6, "280M"),
    ]  # fmt: skip
