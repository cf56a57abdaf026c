"""Plots as SVG text, and what their interactive twins in the browser need."""

from leaderboard.plots.bar_plot import bars
from leaderboard.plots.distribution_plot import distribution
from leaderboard.plots.interactive import figure, json_script, plot_data, plotly_file
from leaderboard.plots.line_plot import lines
from leaderboard.plots.pareto import frontier
from leaderboard.plots.radar_plot import radar
from leaderboard.plots.scatter_plot import scatter
from leaderboard.plots.shapes import (
    Axis,
    Bars,
    BarSeries,
    Better,
    Distribution,
    Line,
    LinePoint,
    Lines,
    Mark,
    Point,
    Radar,
    RadarSeries,
    Scatter,
    Tone,
    Track,
    TrackPoint,
)
from leaderboard.plots.track_plot import moment, track

__all__ = [
    "Axis",
    "BarSeries",
    "Bars",
    "Better",
    "Distribution",
    "Line",
    "LinePoint",
    "Lines",
    "Mark",
    "Point",
    "Radar",
    "RadarSeries",
    "Scatter",
    "Tone",
    "Track",
    "TrackPoint",
    "bars",
    "distribution",
    "figure",
    "frontier",
    "json_script",
    "lines",
    "moment",
    "plot_data",
    "plotly_file",
    "radar",
    "scatter",
    "track",
]
