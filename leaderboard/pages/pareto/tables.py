"""The tables of the trade-off page: the frontier, and all points."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from harness.scores import delta_text, score_text
from leaderboard.pages.pareto.measures import Measure, Target
from leaderboard.pages.pareto.points import Cloud, Dot
from leaderboard.plots.shapes import Axis
from leaderboard.tables import EMPTY, Cell, Column, Row, Table


def frontier_table(found: Cloud, measure: Measure, axis: Axis, score: Target) -> Table:
    """What nothing else beats on both axes, and what each step brings."""
    neighbours = [None, *found.best] if found.plot.better == "lower" else [*found.best[1:], None]
    rows = [
        Row(cells=[*_cells(dot, measure), _gain(dot, last)], key=dot.entry.slug)
        for dot, last in zip(found.best, neighbours, strict=False)
    ]
    return Table(
        name="frontier",
        caption="The frontier: nothing beats these on both axes",
        columns=[
            *_columns(axis, score, whole=True),
            Column(key="step", label="Gain", numeric=True, note=GAIN),
        ],
        rows=rows,
    )


def points_table(found: Cloud, shown: Sequence[Dot], measure: Measure, axis: Axis, score: Target) -> Table:
    """Some of the points, the best score first."""
    return Table(
        name="points",
        caption="All points, the best score first, incomplete ones last",
        columns=[*_columns(axis, score), Column(key="beaten", label="Beaten by", note=BEATEN)],
        rows=[
            Row(
                cells=[*_cells(dot, measure), *_there(dot, score), _beaten(found, dot)],
                key=dot.entry.slug,
                kind="" if dot.whole else "part",
            )
            for dot in shown
        ],
    )


GAIN = "How much higher its score is than that of its neighbour on the frontier which is better across."
BEATEN = "The best point of the frontier that is at least as good on both axes."


def _columns(axis: Axis, score: Target, *, whole: bool = False) -> list[Column]:
    return [
        Column(key="model", label="Model", sticky=True),
        Column(key="origin", label="Origin"),
        Column(key="x", label=axis.label, numeric=True),
        Column(key="score", label=f"{score.label[0].upper()}{score.label[1:]}", numeric=True),
        *([Column(key="there", label="Columns", numeric=True)] if score.wanted > 1 and not whole else []),
    ]


def _cells(dot: Dot, measure: Measure) -> list[Cell]:
    entry = dot.entry
    x = dot.x.isoformat() if isinstance(dot.x, date) else dot.x
    return [
        Cell(text=entry.model, value=entry.model, href=dot.href, note=entry.treatment),
        Cell(text=entry.origin, value=entry.origin, kind=entry.origin),
        Cell(text=measure.text(dot.x), value=x),
        Cell(text=_score(dot), value=dot.score, kind=_kind(dot), note=dot.note),
    ]


def _kind(dot: Dot) -> str:
    kinds = (("part", not dot.whole), ("selected", dot.selected))
    return " ".join(kind for kind, there in kinds if there)


def _there(dot: Dot, score: Target) -> list[Cell]:
    """How much of a mean is there."""
    return [Cell(text=f"{dot.there}/{score.wanted}", value=dot.there)] if score.wanted > 1 else []


def _score(dot: Dot) -> str:
    if dot.low != dot.low:
        return score_text(dot.score)
    return f"{score_text(dot.score)} ± {50 * (dot.high - dot.low):.2f}"


def _gain(dot: Dot, last: Dot | None) -> Cell:
    if last is None:
        return EMPTY
    return Cell(text=delta_text(dot.score - last.score), value=dot.score - last.score)


def _beaten(found: Cloud, dot: Dot) -> Cell:
    if dot in found.best:
        return Cell(text="on the frontier", value=None)
    better = found.beaten_by(dot)
    if better is None:
        return EMPTY
    gap = better.score - dot.score
    return Cell(text=f"{better.entry.model} ({delta_text(gap)})", value=better.entry.model, href=better.href)
