"""What stands across on the trade-off page: where its values come from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from leaderboard.grid import Grid
from leaderboard.pages.pareto.measures import Measure
from leaderboard.pages.pareto.points import Place
from leaderboard.pages.pareto.printed import PrintedPoint, printed_points
from leaderboard.pages.pareto.work import Works, works
from leaderboard.plots.shapes import Axis, Kind
from leaderboard.queries import Queries
from leaderboard.reported.printed import Paper

if TYPE_CHECKING:
    from leaderboard.views.pareto import ParetoState

LINEAR = ("dimension",)
"""Measures whose axis is linear unless asked for."""


@dataclass(frozen=True, kw_only=True)
class Across:
    """What stands across: values by row, points of papers, the axis, devices, why there is nothing."""

    values: Mapping[int, Place] = field(default_factory=dict)
    printed: Sequence[PrintedPoint] = ()
    axis: Axis
    devices: Sequence[str] = ()
    device: str = ""
    why: str = ""


def across_of(
    queries: Queries, grid: Grid, state: ParetoState, measure: Measure, papers: Iterable[Paper]
) -> Across:
    """What stands across in a state."""
    kind = state.scale or ("linear" if state.x in LINEAR else "log")
    if state.x == "flops":
        printed = printed_points(papers, grid.listed.typed, state.y)
        why = "" if printed else measure.why
        return Across(printed=printed, axis=Axis(label=measure.label, kind=kind), why=why)
    if measure.of is None:
        return _worked(works(queries, grid), state, measure, kind)
    found = {row: value for row, entry in enumerate(grid.entries) if (value := measure.of(entry))}
    axis = Axis(label=measure.label, kind="date" if state.x == "date" else kind)
    return Across(values=found, axis=axis, why="" if found else measure.why)


def _worked(known: Works, state: ParetoState, measure: Measure, kind: Kind) -> Across:
    """Of speed and cost: only one device at a time can be compared."""
    devices = known.devices()
    device = state.device if state.device in devices else next(iter(devices), "")
    per = f" at ${state.price:g} an hour" if state.x == "cost" and state.price else ""
    axis = Axis(label=f"{measure.label}{per}, on {device}" if device else measure.label, kind=kind)
    found: Mapping[int, float] = {}
    why = measure.why
    if state.x == "throughput":
        found = known.throughput(device)
    elif state.price:
        found = known.cost(device, state.price)
    elif devices:
        why = "Give the price of an hour of the machine: a cost is that times the hours that were measured."
    return Across(values=found, axis=axis, devices=devices, device=device, why="" if found else why)
