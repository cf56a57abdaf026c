"""Pictures of what is followed over time or steps: where points lie, and what is left out."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from leaderboard.plots.shapes import Axis, Tone, Track, TrackPoint
from leaderboard.plots.track_plot import moment, track

PLOT = Track(
    title="t <1>",
    x=Axis(label="step"),
    y=Axis(label="score"),
    points=[TrackPoint(label=f"p{x}", x=x, y=y) for x, y in ((0, 0), (10, 100), (5, 50))],
    tones=[Tone(label="one", place=0), Tone(label="other", place=1, colour="tone-bad")],
)


def drawn(plot: Track, width: float = 720) -> ElementTree.Element:
    return ElementTree.fromstring(track(plot, width=width))


def of(svg: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    return [element for element in svg.iter() if kind in element.get("class", "").split()]


def circles(svg: ElementTree.Element) -> list[tuple[float, float]]:
    return [(float(e[0].get("cx", "")), float(e[0].get("cy", ""))) for e in of(svg, "plot-point")]


def test_points_lie_in_proportion_and_in_order() -> None:
    (x0, y0), (x1, y1), (x2, y2) = circles(drawn(PLOT))
    assert x0 < x1 < x2
    assert y0 > y1 > y2
    assert (x1 - x0, y0 - y1) == pytest.approx(((x2 - x0) / 2, (y0 - y2) / 2), abs=0.02)


def test_a_line_leads_past_outlines() -> None:
    points = [*PLOT.points, TrackPoint(label="apart", x=7, y=0, hollow=True)]
    svg = drawn(replace(PLOT, points=points, joined=True))
    assert (of(svg, "plot-line")[0][0].get("d") or "").count("L") == 2
    assert len(of(svg, "plot-hollow")) == 1
    assert of(drawn(PLOT), "plot-line") == []


def test_an_interval_reaches_from_low_to_high() -> None:
    points = [*PLOT.points, TrackPoint(label="i", x=2, y=50, low=0, high=100)]
    svg = drawn(replace(PLOT, points=points))
    (whisker,) = of(svg, "plot-interval")
    ends = [float(part.partition(",")[2]) for part in (whisker.get("d") or "")[1:].split("L")]
    ys = [y for _, y in circles(svg)]
    assert ends == pytest.approx([max(ys), min(ys)], abs=0.02)


def test_the_band_widens_the_axis() -> None:
    svg = drawn(replace(PLOT, band=(-200, 200), band_label="the margin"))
    (band,) = of(svg, "plot-margin")
    ys = [y for _, y in circles(svg)]
    top, height = float(band.get("y", "")), float(band.get("height", ""))
    assert top < min(ys)
    assert top + height > max(ys)
    assert "The band is the margin." in (svg.findtext("{*}desc") or "")


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), 1e200])
def test_what_has_no_place_is_counted(value: float | None) -> None:
    points = [*PLOT.points, TrackPoint(label="x", x=value, y=1), TrackPoint(label="y", x=1, y=value)]
    svg = drawn(replace(PLOT, points=points))
    assert len(circles(svg)) == 3
    assert "2 of 5 have no value and are left out." in (svg.findtext("{*}desc") or "")


def test_nothing_says_why() -> None:
    assert "Nothing to draw" in "".join(drawn(replace(PLOT, points=[])).itertext())


def test_words_at_marks_do_not_cover_one_another() -> None:
    svg = drawn(replace(PLOT, marks=[(5, "first"), (5.1, "second"), (9.9, "last")]))
    assert len(of(svg, "plot-mark")) == 3
    words = [e.text for e in of(svg, "plot-note")]
    assert words == ["first", "last"]
    assert "second: step 5.1" in [e.text for e in svg.iter() if e.tag.endswith("title")]


def test_groups_are_told_by_shape_and_colour() -> None:
    points = [PLOT.points[0], replace(PLOT.points[1], tone=1)]
    svg = drawn(replace(PLOT, points=points))
    assert {e[0].tag.rpartition("}")[2] for e in of(svg, "plot-point")} == {"circle", "path"}
    assert [e.text for e in of(svg, "plot-legend")[0].iter() if e.text] == ["one", "other"]


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
    assert len(circles(svg)) == 1
    assert "2026-01-02" in "".join(svg.itertext())
