"""Markers: each series has a shape as well as a colour, for those who cannot tell colours apart."""

from __future__ import annotations

from markupsafe import Markup

from leaderboard.plots.svg import COLOURS, element, path

POLYGONS = (
    ((-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)),
    ((0.0, -1.35), (1.35, 0.0), (0.0, 1.35), (-1.35, 0.0)),
    ((0.0, -1.25), (1.25, 1.0), (-1.25, 1.0)),
    ((0.0, 1.25), (1.25, -1.0), (-1.25, -1.0)),
    ((-1.3, -0.45), (1.3, -0.45), (1.3, 0.45), (-1.3, 0.45)),
)
"""Square, diamond, triangle up, triangle down, bar; the first series has a circle."""


def marker(place: int, x: float, y: float, size: float) -> Markup:
    """The marker of the series at a place; beyond the last colour all are circles."""
    if not 0 < place < COLOURS:
        return element("circle", cx=x, cy=y, r=size)
    corners = [(x + size * right * 0.9, y + size * down * 0.9) for right, down in POLYGONS[place - 1]]
    return element("path", d=path(corners, closed=True))
