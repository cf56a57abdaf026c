"""Pictures of a comparison."""

from __future__ import annotations

from markupsafe import Markup

from leaderboard.compare_common import Common
from leaderboard.plots import Axis, Bars, BarSeries, Radar, RadarSeries, bars, radar
from leaderboard.plots.radar_plot import LEAST
from leaderboard.state import address

FEW = 20
"""Columns of a suite of one type that are drawn one by one, at most."""


def parts(common: Common) -> list[tuple[str, list[int]]]:
    """What is drawn: types with the columns that all have, or those columns where there is one type."""
    if len(common.by_type) > 1 or len(common.columns) > FEW:
        return list(common.by_type.items())
    return [(common.grid.listed.suite.columns[at].name, [at]) for at in common.columns]


def has_radar(common: Common) -> bool:
    """Whether there are enough axes for outlines."""
    return len(common.by_type) >= LEAST


def picture(common: Common, kind: str) -> Markup:
    """Bars, or outlines where `kind` is "radar" and there are enough axes."""
    shown = parts(common)
    names = [name for name, _ in shown]
    values = [100 * common.mean(at) for _, at in shown]
    of = [[float(some[row]) for some in values] for row in range(len(common.entries))]
    links = [address(f"/models/{entry.model_slug}") for entry in common.entries]
    title = f"{common.grid.listed.suite.title}: means over what all have, × 100"
    rows = list(zip(common.labels, of, links, strict=True))
    if kind == "radar" and has_radar(common):
        series = [RadarSeries(label=label, values=some, href=href) for label, some, href in rows]
        return radar(Radar(title=title, axes=names, series=series), width=620)
    groups = [BarSeries(label=label, values=some, href=href) for label, some, href in rows]
    return bars(Bars(title=title, axis=Axis(label="mean score × 100"), categories=names, series=groups))
