"""Every kind of picture, and that hostile names stay texts in it."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from html_pages import of_class
from leaderboard.web.charts import (
    Axis,
    Bars,
    BarSeries,
    Better,
    Distribution,
    Kind,
    Line,
    LinePoint,
    Lines,
    Mark,
    Name,
    Point,
    Radar,
    RadarSeries,
    Scatter,
    Tone,
    Track,
    TrackPoint,
    bars,
    bins,
    distribution,
    figure,
    frontier,
    json_script,
    laid_out,
    lines,
    moment,
    place,
    plot_data,
    plotly_file,
    radar,
    safe,
    scatter,
    steps,
    thinned,
    tick_texts,
    ticks,
    track,
    written,
)
from leaderboard.web.charts import LinePlotSpot as Spot

# All kinds


SVG = "{http://www.w3.org/2000/svg}"
X, Y = Axis(label="Parameters", kind="log"), Axis(label="Mean")
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "a & b &amp; ]]> <!-- c",
    "it's {{ 7*7 }} {% x %} %s",
    "モデル/モデル",
    "x' onload='alert(1)",
)

plain = st.floats(-1e12, 1e12).map(lambda v: round(v, 6))
scores = st.integers(0, 8).map(float)


def parsed(svg: Markup) -> ElementTree.Element:
    return ElementTree.fromstring(str(svg))


def texts(root: ElementTree.Element, name: str = "text") -> list[str]:
    return ["".join(e.itertext()) for e in root.iter(SVG + name)]


def circles(root: ElementTree.Element) -> list[tuple[float, float]]:
    """The places of the first series' points, as drawn."""
    found = [c for g in of_class(root, "plot-point") for c in g.iter(SVG + "circle")]
    return [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in found]


def numbers(root: ElementTree.Element) -> Iterator[tuple[float, float]]:
    """Every place that is written anywhere."""
    for e in root.iter():
        for x, y in (("x", "y"), ("cx", "cy"), ("x1", "y1"), ("x2", "y2")):
            if x in e.attrib:
                yield float(e.attrib[x]), float(e.attrib[y])
        for x, y in re.findall(r"[ML](-?[\d.]+),(-?[\d.]+)", e.get("d", "")):
            yield float(x), float(y)


def inside(svg: Markup) -> bool:
    root = parsed(svg)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    return all(-0.01 <= x <= width + 0.01 and -0.01 <= y <= height + 0.01 for x, y in numbers(root))


def a_scatter(*points: Point, **more: Any) -> Scatter:
    return Scatter(**{"title": "Score against size", "x": X, "y": Y, "points": points, **more})


def every_plot(label: str, values: list[float | None]) -> list[Markup]:
    """One picture of each kind in which the label and the values stand."""
    axis = Axis(label=label)
    named = [
        Point(label=label, x=v, y=v, href="/m?a=1&b=2", series=f"{label}{i}") for i, v in enumerate(values)
    ]
    both = [RadarSeries(label=label, values=values, href="/m"), RadarSeries(label="b", values=values)]
    rows = [BarSeries(label=s.label, values=s.values, href=s.href) for s in both]
    names = [label] * len(values)
    curve = [LinePoint(x=i, y=v, note=label) for i, v in enumerate(values)]
    marks = [Mark(label=label, value=v, href="/m") for v in values[:6]]
    return [
        scatter(Scatter(title=label, desc=label, x=axis, y=axis, points=named)),
        bars(Bars(title=label, desc=label, axis=axis, categories=names, series=rows)),
        radar(Radar(title=label, desc=label, axes=names, series=both)),
        distribution(Distribution(title=label, desc=label, axis=axis, values=values, marks=marks)),
        lines(
            Lines(
                title=label,
                desc=label,
                x=axis,
                y=axis,
                lines=[Line(label=label, points=curve), Line(label="b", points=curve)],
            )
        ),
    ]


# ---------------------------------------------------------------- the frontier


def beaten(one: tuple[float, float], points: list[tuple[float, float]], better: Better) -> bool:
    def x(p: tuple[float, float]) -> float:
        return p[0] if better == "lower" else -p[0]

    return any(x(p) <= x(one) and p[1] >= one[1] and p != one for p in points)


@given(st.lists(st.tuples(scores, scores), max_size=25), st.sampled_from(["lower", "higher"]))
def test_frontier_is_what_no_other_point_beats(points: list[tuple[float, float]], better: Better) -> None:
    found = frontier(points, better)
    assert set(found) == {i for i, p in enumerate(points) if not beaten(p, points, better)}
    assert found == sorted(found, key=lambda i: (points[i][0], i))


def test_frontier_passes_over_what_is_no_number() -> None:
    assert frontier([(math.nan, 9), (1, math.nan), (2, 3)], "lower") == [2]


@given(
    st.lists(st.tuples(scores, scores), min_size=1, max_size=12),
    st.sampled_from(["lower", "higher"]),
    st.integers(0, 8),
)
def test_the_line_of_steps_is_the_best_within_reach(
    points: list[tuple[float, float]], better: Better, at: int
) -> None:
    edge = 9.0 if better == "lower" else -1.0
    line = steps(sorted({points[i] for i in frontier(points, better)}), better, edge=edge)
    reach = [y for x, y in points if (x <= at if better == "lower" else x >= at)]
    level = [max(b, d) for (a, b), (c, d) in pairwise(line) if min(a, c) <= at <= max(a, c)]
    assert max(level, default=None) == max(reach, default=None)
    assert all(a == c or b == d for (a, b), (c, d) in pairwise(line))


# ---------------------------------------------------------------- ticks and scales


@given(plain, plain, st.integers(3, 12))
def test_linear_ticks_cover_the_data_in_round_steps(a: float, b: float, most: int) -> None:
    low, high = min(a, b), max(a, b)
    if high - low <= 1e-6 * max(abs(low), abs(high), 1e-3):
        return
    found = ticks(low, high, "linear", most)
    step = found[1] - found[0]
    assert 2 <= len(found) <= most
    assert found[0] <= low + step * 1e-6
    assert found[-1] >= high - step * 1e-6
    mantissa = step / 10 ** math.floor(math.log10(step) + 1e-6)
    assert min(abs(mantissa - nice) for nice in (1, 2, 2.5, 5)) < 1e-3
    assert all(abs(t / step - round(t / step)) < 1e-3 for t in found)


@given(st.floats(-12, 24), st.floats(0.01, 20), st.integers(3, 12))
def test_log_ticks_cover_the_data_at_round_numbers(start: float, wide: float, most: int) -> None:
    low, high = 10**start, 10 ** (start + wide)
    found = ticks(low, high, "log", most)
    assert 2 <= len(found) <= most
    assert 0 < found[0] <= low * (1 + 1e-6)
    assert found[-1] >= high * (1 - 1e-6)
    if high >= 5 * low:
        assert all(f"{t:e}"[0] in "125" and float(f"{t:.0e}") == t for t in found)


@given(st.dates(date(1950, 1, 1), date(2100, 1, 1)), st.integers(3, 20000), st.integers(3, 12))
def test_date_ticks_cover_the_data(first: date, days: int, most: int) -> None:
    low, high = float(first.toordinal()), float(first.toordinal() + days)
    found = ticks(low, high, "date", most)
    assert 2 <= len(found) <= most
    assert found[0] <= low
    assert found[-1] >= high
    if days > 14 * most:
        assert all(date.fromordinal(int(t)).day == 1 for t in found)


def test_known_ticks() -> None:
    assert ticks(42.1, 71.9, "linear", 7) == [40, 50, 60, 70, 80]
    assert ticks(42.1, 71.9, "linear", 8) == [40, 45, 50, 55, 60, 65, 70, 75]
    assert ticks(1e18, 3e24, "log", 5) == [1e18, 1e20, 1e22, 1e24, 1e26]
    years = ticks(date(2019, 5, 2).toordinal(), date(2024, 8, 1).toordinal(), "date", 8)
    assert tick_texts(years, "date") == ["2019", "2020", "2021", "2022", "2023", "2024", "2025"]
    months = ticks(date(2024, 1, 20).toordinal(), date(2024, 5, 1).toordinal(), "date", 6)
    assert tick_texts(months, "date") == ["Jan 2024", "Feb 2024", "Mar 2024", "Apr 2024", "May 2024"]


@given(
    st.lists(st.floats(1e-9, 1e12), min_size=2, max_size=9, unique=True), st.sampled_from(["linear", "log"])
)
def test_a_scale_keeps_order_and_stays_between_its_ends(values: list[float], kind: Kind) -> None:
    scale = laid_out(values, kind, start=40, end=700)
    at = [scale.at(v) for v in sorted(values)]
    assert at == sorted(at)
    assert 40 - 1e-6 <= at[0] <= at[-1] <= 700 + 1e-6


@pytest.mark.parametrize("value", [0.0, 53.2, -4.0, 1e18])
def test_one_value_lies_within_its_scale(value: float) -> None:
    scale = laid_out([value], "linear", start=0, end=100)
    assert 10 < scale.at(value) < 90


def test_numbers_are_written_for_people() -> None:
    assert [written(v, digits=3) for v in (110e6, 0.0005, -0.0, 1e15)] == ["110M", "5e-4", "0", "1e15"]
    assert tick_texts([0, 2500, 10000], "linear") == ["0", "2.5k", "10k"]
    assert written(date(2024, 12, 19).toordinal(), "date") == "2024-12-19"


# ---------------------------------------------------------------- pictures


def test_a_small_scatter_by_hand() -> None:
    plot = a_scatter(
        Point(label="small", x=1e7, y=40, href="/models/small"),
        Point(label="large", x=1e9, y=80, href="/models/large"),
        Point(label="worse", x=1e9, y=60),
    )
    root = parsed(scatter(plot))
    grid = of_class(root, "plot-grid")[0]
    left, right = (f({float(e.attrib["x1"]) for e in grid}) for f in (min, max))
    top, bottom = (f({float(e.attrib["y1"]) for e in grid}) for f in (min, max))
    names = ["worse", "small", "large"]  # what is on the frontier is drawn on top
    assert [t.split(":")[0] for t in texts(root, "title")[1:]] == names
    assert circles(root) == [
        (right, (top + bottom) / 2),
        (left, bottom),
        (right, top),
    ]
    assert [e.attrib["href"] for e in root.iter(SVG + "a")] == ["/models/small", "/models/large"]
    (line,) = of_class(root, "plot-frontier")
    corners = re.findall(r"[\d.]+,[\d.]+", line.attrib["d"])
    assert [tuple(map(float, c.split(","))) for c in corners][:3] == [
        (left, bottom),
        (right, bottom),
        (right, top),
    ]
    assert {"small", "large"} <= set(texts(root))
    assert "worse" not in texts(root)
    assert "On the frontier: small (40), large (80)." in texts(root, "desc")[0]


@given(st.lists(st.tuples(st.floats(1e3, 1e12), st.floats(-100, 100)), min_size=2, max_size=12, unique=True))
def test_points_keep_their_order_and_stay_in_the_picture(values: list[tuple[float, float]]) -> None:
    svg = scatter(a_scatter(*(Point(label="p", x=x, y=y) for x, y in values), better=None))
    drawn = circles(parsed(svg))
    assert inside(svg)
    for (x, y), (right, down) in zip(values, drawn, strict=True):
        assert all(right <= r + 0.02 for (a, _), (r, _) in zip(values, drawn, strict=True) if x < a)
        assert all(down >= d - 0.02 for (_, b), (_, d) in zip(values, drawn, strict=True) if y < b)


def test_what_has_no_place_on_a_log_axis_is_left_out_and_said() -> None:
    points = [Point(label=f"p{i}", x=x, y=50 + i) for i, x in enumerate((0, -3, 1e8, None, math.inf))]
    root = parsed(scatter(a_scatter(*points, Point(label="no score", x=1e8, y=math.nan))))
    assert len(circles(root)) == 1
    assert "4 of 6 left out, with no value above 0 (the axis is logarithmic) for “Parameters”." in texts(root)
    assert "1 of 6 left out, with no value for “Mean”." in texts(root)
    assert all(point["label"] == ["p2"] for point in plot_data(a_scatter(*points))["series"])


@pytest.mark.parametrize("width", [360, 720])
@pytest.mark.parametrize(
    "values",
    [
        [50.0] * 4,
        [1.0, None, 3.0],
        [math.nan, 2.0, math.inf],
        [0.0, 0.0, 0.0],
        [-5.0, 4.0, 1e9],
        [0.0, 5e-324, 1e-310],
    ],
)
def test_odd_values_give_a_picture(values: list[float | None], width: float) -> None:
    for svg in every_plot("m", values):
        assert inside(svg)
        assert not re.search(r"nan|inf\b|None", svg)
        assert "Nothing to draw" not in svg
    narrow = scatter(a_scatter(*(Point(label="p" * 80, x=v, y=v) for v in values)), width=width)
    assert inside(narrow)


@pytest.mark.parametrize("values", [[], [None, math.nan, None]])
def test_an_empty_picture_says_why(values: list[float | None]) -> None:
    for svg in every_plot("m", values):
        assert "Nothing to draw" in " ".join(texts(parsed(svg)))


@pytest.mark.parametrize("label", HOSTILE)
def test_every_text_is_escaped(label: str) -> None:
    for svg in every_plot(label, [1.0, 2.0, 3.0]):
        root = parsed(svg)
        assert root[0].text == label
        assert (root[1].text or "").startswith(label)
        assert not {e.tag.removeprefix(SVG) for e in root.iter()} & {"script", "img", "style"}
        assert not [k for e in root.iter() for k in e.attrib if k.startswith("on") or k == "style"]
        assert any(label in t for t in texts(root, "title")[1:])


def test_letters_that_xml_cannot_hold_are_replaced() -> None:
    for svg in every_plot("a\x00b\x1bc\ud800\n", [1.0, 2.0, 3.0]):
        assert parsed(svg)[0].text == "a\ufffdb\ufffdc\ufffd "
        assert svg.encode()


@pytest.mark.parametrize(
    "href",
    [
        "javascript:alert(1)",
        " JavaScript:alert(1)",
        "java\tscript:x",
        "data:text/html,x",
        "\x01javascript:x",
        "vbscript:x",
        "//[x",
    ],
)
def test_an_address_that_runs_code_is_no_link(href: str) -> None:
    plot = a_scatter(Point(label="a", x=1, y=1, href=href))
    assert not [*parsed(scatter(plot)).iter(SVG + "a")]
    assert plot_data(plot)["series"][0]["href"] == [""]


def test_addresses_of_this_site_stay() -> None:
    assert [safe(a) for a in ("/models/a?b=c#d", "../m", "https://x.org/")] == [
        "/models/a?b=c#d",
        "../m",
        "https://x.org/",
    ]


def test_pictures_are_the_same_each_time() -> None:
    assert every_plot("m", [3.0, 1.0, None, 7.5]) == every_plot("m", [3.0, 1.0, None, 7.5])


def test_a_picture_with_links_is_no_image_to_assistive_technology() -> None:
    assert parsed(scatter(a_scatter(Point(label="a", x=1, y=1)))).get("role") == "img"
    linked = parsed(scatter(a_scatter(Point(label="a", x=1, y=1, href="/a"))))
    assert (linked.get("role"), linked.get("aria-label")) == ("group", "Score against size")


def test_among_many_points_the_keyboard_reaches_the_named_ones() -> None:
    many = [Point(label=f"p{i}", x=i + 1, y=-i, href=f"/{i}", emphasised=i == 7) for i in range(50)]
    reached = [
        e.attrib["href"]
        for e in parsed(scatter(a_scatter(*many))).iter(SVG + "a")
        if "tabindex" not in e.attrib
    ]
    assert reached == ["/0", "/7"]


@given(st.lists(st.tuples(st.floats(0, 400), st.floats(0, 300)), max_size=30))
def test_no_two_names_overlap(points: list[tuple[float, float]]) -> None:
    names = [Name(text=f"model number {i}", x=x, y=y, must=i % 2 == 0) for i, (x, y) in enumerate(points)]
    found = [p.box for p in place(names, inside=(0, 0, 400, 300), hard=[(100, 100, 200, 200)], soft=[])]
    for i, (a, b, c, d) in enumerate(found):
        assert a >= 0 and b >= 0 and c <= 400 and d <= 300  # noqa: PT018
        others = [*found[:i], (100, 100, 200, 200)]
        assert not any(a < g and c > e and b < h and d > f for e, f, g, h in others)


def test_intervals_are_drawn_from_end_to_end() -> None:
    point = Point(label="a", x=1e8, y=50, y_low=40, y_high=60)
    root = parsed(scatter(a_scatter(point)))
    (line,) = of_class(root, "plot-interval")
    (_, low), (_, high) = re.findall(r"([\d.]+),([\d.]+)", line.attrib["d"])
    ((_, middle),) = circles(root)
    assert float(low) > middle > float(high)
    assert "Mean 50 [40, 60]" in texts(root, "title")[1]


def test_bars_are_as_long_as_their_values() -> None:
    series = [BarSeries(label="a", values=[10, -20]), BarSeries(label="b", values=[40, None])]
    root = parsed(bars(Bars(title="t", axis=Y, categories=["x", "y"], series=series)))
    shown = [(float(e.attrib["x"]), float(e.attrib["width"])) for e in of_class(root, "plot-bar")]
    zero = shown[0][0]
    assert shown[1][0] == zero
    assert shown[2][0] + shown[2][1] == pytest.approx(zero, abs=0.02)
    unit = shown[0][1] / 10
    assert [w / unit for _, w in shown] == pytest.approx([10, 40, 20], rel=1e-3)
    assert [e.text for e in of_class(root, "plot-value")] == ["10.00", "40.00", "−20.00", "–"]


def test_a_series_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="one value for each category"):
        bars(Bars(title="t", axis=Y, categories=["x"], series=[BarSeries(label="a", values=[1, 2])]))
    with pytest.raises(ValueError, match="one value for each axis"):
        radar(Radar(title="t", axes=["x"], series=[RadarSeries(label="a", values=[])]))
    with pytest.raises(ValueError, match="above its centre"):
        radar(
            Radar(title="t", axes=["x"] * 3, series=[RadarSeries(label="a", values=[1, 2, 3])], low=9, high=1)
        )


def test_a_radar_by_hand() -> None:
    series = [RadarSeries(label="a", values=[100, 0, 50, None])]
    root = parsed(radar(Radar(title="t", axes=["n", "e", "s", "w"], series=series, low=0, high=100)))
    dots = [c for g in of_class(root, "series-1") for c in g.iter(SVG + "circle") if c.get("r") == "3.6"]
    (x0, y0), (x1, y1), (x2, y2) = ((float(c.attrib["cx"]), float(c.attrib["cy"])) for c in dots)
    assert x0 == x1 == x2
    assert y2 - y1 == pytest.approx((y1 - y0) / 2)
    assert "Centre 0, rim 100." in texts(root)
    assert "1 missing: the outline is broken there." in texts(root)


def test_two_axes_are_no_radar() -> None:
    svg = radar(Radar(title="t", axes=["x", "y"], series=[RadarSeries(label="a", values=[1, 2])]))
    assert "a radar needs three axes" in " ".join(texts(parsed(svg)))


@given(st.lists(st.floats(-1e6, 1e6).map(lambda v: round(v, 3)), min_size=1, max_size=60))
def test_each_score_falls_into_one_bin(values: list[float]) -> None:
    edges, counts = bins(values)
    assert sum(counts) == len(values)
    for i, count in enumerate(counts):
        last = i == len(counts) - 1
        ends = (edges[i], edges[i + 1])
        assert count == sum(ends[0] <= v < ends[1] or (last and v == ends[1]) for v in values)


def test_a_distribution_names_its_quartiles_and_marks() -> None:
    marks = [Mark(label="m", value=3, href="/m"), Mark(label="gone", value=None)]
    root = parsed(distribution(Distribution(title="t", axis=Y, values=[1, 2, 3, 4, 5, None], marks=marks)))
    said = texts(root)
    assert "Quartiles 2 and 4; median 3; 5 scores." in said
    assert {"m · 3", "gone: no value.", "1 of 6 left out, without a value."} <= set(said)
    box, median = of_class(root, "plot-quartiles")[0], of_class(root, "plot-median")[0]
    middle = float(box.attrib["x"]) + float(box.attrib["width"]) / 2
    assert float(re.findall(r"M([\d.]+)", median.attrib["d"])[0]) == pytest.approx(middle, abs=0.02)
    assert f"M{middle:g}," in of_class(root, "plot-stem")[0].attrib["d"]


def test_a_curve_breaks_where_a_value_is_missing() -> None:
    points = [
        LinePoint(x=x, y=y, low=y and y - 1, high=y and y + 1) for x, y in enumerate([1, 2, None, 4, 5])
    ]
    root = parsed(lines(Lines(title="t", x=Axis(label="Step"), y=Y, lines=[Line(label="a", points=points)])))
    (joined,) = of_class(root, "plot-line")
    assert [p.attrib["d"].count(",") for p in joined] == [2, 2]
    assert len(of_class(root, "plot-band")) == 2
    assert "1 of 5 points left out, with no value for “Mean”." in texts(root)


@given(st.lists(st.none() | st.floats(-9, 9), min_size=700, max_size=900), st.randoms())
def test_a_long_curve_keeps_its_shape(values: list[float | None], rng: Any) -> None:
    rng.shuffle(values)
    spots = [Spot(point=LinePoint(x=i, y=y), x=i, y=y, low=None, high=None) for i, y in enumerate(values)]
    kept = thinned(spots, most=300)
    assert kept == sorted(kept, key=lambda s: s.x)
    there = [v for v in values if v is not None]
    shown = [s.y for s in kept if s.y is not None]
    assert (min(there, default=0), max(there, default=0)) == (min(shown, default=0), max(shown, default=0))
    assert (kept[0], kept[-1]) == (spots[0], spots[-1])


# ---------------------------------------------------------------- the interactive layer


def test_the_data_of_a_plot_is_what_its_picture_shows() -> None:
    plot = a_scatter(
        Point(label="a", x=1e7, y=40, series="measured", href="/a", y_low=39, y_high=41),
        Point(label="b", x=1e9, y=80, series="imported"),
        Point(label="c", x=1e9, y=60, series="imported", emphasised=True),
        Point(label="gone", x=None, y=60, series="reported"),
    )
    found = plot_data(plot)
    assert [(s["name"], s["colour"], s["label"]) for s in found["series"]] == [
        ("measured", 1, ["a"]),
        ("imported", 2, ["b", "c"]),
    ]
    assert found["frontier"] == {"x": [1e7, 1e9, 1e9], "y": [40, 40, 80]}
    assert found["series"][0]["low"] == [39]
    assert found["series"][1]["best"] == [True, False]
    assert found["x"] == {"label": "Parameters", "kind": "log"}


def test_dates_travel_as_dates() -> None:
    points = [Point(label="a", x=date(2019, 2, 1), y=40), Point(label="b", x=date(2024, 12, 19), y=60)]
    found = plot_data(a_scatter(*points, x=Axis(label="Release", kind="date")))
    assert found["series"][0]["x"] == ["2019-02-01", "2024-12-19"]
    assert found["frontier"]["x"][0] == "2019-02-01"


@pytest.mark.parametrize("label", [*HOSTILE, "</SCRIPT ><script>", "\u2028<!--<script>"])
def test_data_in_a_page_is_data(label: str) -> None:
    found = str(json_script({"a": [label]}))
    start, end = '<script type="application/json" class="plot-data">', "</script>"
    assert found.startswith(start)
    assert found.endswith(end)
    inner = found[len(start) : -len(end)]
    assert not set(inner) & set("<>&\u2028\u2029")
    assert json.loads(inner) == {"a": [label]}


def test_data_without_a_form_in_json_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_script({"a": math.nan})


def test_a_figure_holds_the_picture_and_its_data() -> None:
    plot = a_scatter(Point(label="<b>", x=1e8, y=50, href="/b"))
    root = ElementTree.fromstring(str(figure(plot, caption="a < b")))
    assert (root.get("class"), root.get("data-plot")) == ("plot", "scatter")
    assert [e.tag for e in root] == ["figcaption", SVG + "svg", "script"]
    assert json.loads(root[2].text or "") == json.loads(json.dumps(plot_data(plot)))
    assert root[0].text == "a < b"


def test_the_library_is_found_without_importing_it() -> None:
    code = (
        "import sys; from leaderboard.plots import plotly_file; path = plotly_file();"
        "assert 'plotly' not in sys.modules and 'torch' not in sys.modules; print(path)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(plotly_file())
    assert plotly_file().name == "plotly.min.js"
    assert b"plotly.js v" in plotly_file().read_bytes()[:200]


def test_a_missing_library_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    absent: Callable[[str], None] = lambda name: None  # noqa: E731
    monkeypatch.setattr("leaderboard.web.charts.find_spec", absent)
    with pytest.raises(FileNotFoundError, match="plotly is not installed"):
        plotly_file()


# Pictures of what is followed over time or steps: where points lie, and what is left out


PLOT = Track(
    title="t <1>",
    x=Axis(label="step"),
    y=Axis(label="score"),
    points=[TrackPoint(label=f"p{x}", x=x, y=y) for x, y in ((0, 0), (10, 100), (5, 50))],
    tones=[Tone(label="one", place=0), Tone(label="other", place=1, colour="tone-bad")],
)


def drawn(plot: Track, width: float = 720) -> ElementTree.Element:
    return ElementTree.fromstring(track(plot, width=width))


def track_circles(svg: ElementTree.Element) -> list[tuple[float, float]]:
    return [(float(e[0].get("cx", "")), float(e[0].get("cy", ""))) for e in of_class(svg, "plot-point")]


def test_points_lie_in_proportion_and_in_order() -> None:
    (x0, y0), (x1, y1), (x2, y2) = track_circles(drawn(PLOT))
    assert x0 < x1 < x2
    assert y0 > y1 > y2
    assert (x1 - x0, y0 - y1) == pytest.approx(((x2 - x0) / 2, (y0 - y2) / 2), abs=0.02)


def test_a_line_leads_past_outlines() -> None:
    points = [*PLOT.points, TrackPoint(label="apart", x=7, y=0, hollow=True)]
    svg = drawn(replace(PLOT, points=points, joined=True))
    assert (of_class(svg, "plot-line")[0][0].get("d") or "").count("L") == 2
    assert len(of_class(svg, "plot-hollow")) == 1
    assert of_class(drawn(PLOT), "plot-line") == []


def test_an_interval_reaches_from_low_to_high() -> None:
    points = [*PLOT.points, TrackPoint(label="i", x=2, y=50, low=0, high=100)]
    svg = drawn(replace(PLOT, points=points))
    (whisker,) = of_class(svg, "plot-interval")
    ends = [float(part.partition(",")[2]) for part in (whisker.get("d") or "")[1:].split("L")]
    ys = [y for _, y in track_circles(svg)]
    assert ends == pytest.approx([max(ys), min(ys)], abs=0.02)


def test_the_band_widens_the_axis() -> None:
    svg = drawn(replace(PLOT, band=(-200, 200), band_label="the margin"))
    (band,) = of_class(svg, "plot-margin")
    ys = [y for _, y in track_circles(svg)]
    top, height = float(band.get("y", "")), float(band.get("height", ""))
    assert top < min(ys)
    assert top + height > max(ys)
    assert "The band is the margin." in (svg.findtext("{*}desc") or "")


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), 1e200])
def test_what_has_no_place_is_counted(value: float | None) -> None:
    points = [*PLOT.points, TrackPoint(label="x", x=value, y=1), TrackPoint(label="y", x=1, y=value)]
    svg = drawn(replace(PLOT, points=points))
    assert len(track_circles(svg)) == 3
    assert "2 of 5 have no value and are left out." in (svg.findtext("{*}desc") or "")


def test_nothing_says_why() -> None:
    assert "Nothing to draw" in "".join(drawn(replace(PLOT, points=[])).itertext())


def test_words_at_marks_do_not_cover_one_another() -> None:
    svg = drawn(replace(PLOT, marks=[(5, "first"), (5.1, "second"), (9.9, "last")]))
    assert len(of_class(svg, "plot-mark")) == 3
    words = [e.text for e in of_class(svg, "plot-note")]
    assert words == ["first", "last"]
    assert "second: step 5.1" in [e.text for e in svg.iter() if e.tag.endswith("title")]


def test_groups_are_told_by_shape_and_colour() -> None:
    points = [PLOT.points[0], replace(PLOT.points[1], tone=1)]
    svg = drawn(replace(PLOT, points=points))
    assert {e[0].tag.rpartition("}")[2] for e in of_class(svg, "plot-point")} == {"circle", "path"}
    assert [e.text for e in of_class(svg, "plot-legend")[0].iter() if e.text] == ["one", "other"]


def test_times_are_days_in_utc() -> None:
    noon, east = moment("2026-01-02T12:00:00+00:00"), moment("2026-01-02T14:00:00+02:00")
    assert noon is not None
    assert noon == east == moment("2026-01-02T12:00:00")
    assert noon % 1 == 0.5
    for text in ("", "soon", "0001-01-01", "9999-12-31T23:59:59-12:00", "2026-13-01"):
        assert moment(text) is None


def test_a_single_day_is_drawn() -> None:
    at = moment("2026-01-02T12:00:00")
    svg = drawn(replace(PLOT, x=Axis(label="time", kind="date"), points=[TrackPoint(label="a", x=at, y=1)]))
    assert len(track_circles(svg)) == 1
    assert "2026-01-02" in "".join(svg.itertext())
