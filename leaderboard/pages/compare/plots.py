"""Pictures of a comparison."""

from __future__ import annotations

from markupsafe import Markup

from leaderboard.grid import Floats
from leaderboard.pages.compare.common import Common
from leaderboard.plots.bar_plot import bars
from leaderboard.plots.radar_plot import LEAST, radar
from leaderboard.plots.shapes import Axis, Bars, BarSeries, Radar, RadarSeries
from leaderboard.state import address

FEW = 20
"""Columns of a suite of one type that are drawn one by one, at most."""


def parts(common: Common) -> list[tuple[str, Floats]]:
    """What is drawn: the types' means, or single columns where there is one type."""
    if len(common.grid.by_type) > 1 or not 0 < len(common.columns) <= FEW:
        return [(kind, one.values) for kind, one in common.types.items()]
    names = [column.name for column in common.grid.listed.suite.columns]
    return [(names[at], common.mean([at])) for at in common.columns]


def has_radar(common: Common) -> bool:
    """Whether there are enough axes for outlines."""
    return len(common.types) >= LEAST


def picture(common: Common, kind: str) -> Markup:
    """Bars, or outlines where `kind` is "radar" and there are enough axes."""
    shown = parts(common)
    names = [name for name, _ in shown]
    values = [100 * some for _, some in shown]
    of = [[float(some[row]) for some in values] for row in range(len(common.entries))]
    links = [address(f"/models/{entry.model_slug}") for entry in common.entries]
    title = f"{common.grid.listed.suite.title}: means over what all have, × 100"
    rows = list(zip(common.labels, of, links, strict=True))
    if kind == "radar" and has_radar(common):
        series = [RadarSeries(label=label, values=some, href=href) for label, some, href in rows]
        return radar(Radar(title=title, axes=names, series=series), width=620)
    groups = [BarSeries(label=label, values=some, href=href) for label, some, href in rows]
    return bars(Bars(title=title, axis=Axis(label="mean score × 100"), categories=names, series=groups))
