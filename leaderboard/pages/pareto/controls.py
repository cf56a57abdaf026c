"""The form of the trade-off page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from leaderboard.filters import Control
from leaderboard.grid import Grid
from leaderboard.pages.pareto.measures import MEASURES
from leaderboard.queries import Queries
from leaderboard.scopes import views

if TYPE_CHECKING:
    from leaderboard.views.pareto import ParetoState

SCALES = (("", "as usual"), ("log", "logarithmic"), ("linear", "linear"))
EACH = (("model", "each model"), ("entry", "each revision and treatment"))


def own_controls(
    queries: Queries,
    grid: Grid,
    state: ParetoState,
    scores: Mapping[str, str],
    devices: Sequence[str],
    device: str,
) -> list[Control]:
    """What stands before the filters: the axes; `scores` are those that can be asked for."""
    found = [
        _select("suite", "Suite", state.suite, _suites(queries, state)),
        _select("y", "Score", state.y, [(key, _first(name)) for key, name in scores.items()]),
        _select("x", "Against", state.x, _measures(grid)),
    ]
    if state.x == "cost":
        found.append(
            Control(kind="number", name="price", label="USD an hour", value=state.price, least=0, step="any")
        )
    if len(devices) > 1:
        found.append(_select("device", "Measured on", device, [(name, name) for name in devices]))
    names = views(grid.listed.suite)
    if len(names) > 1:
        found.append(
            _select("view", "Numbers", grid.view, [(name, f"as {name} prints") for name in names], more=True)
        )
    return [
        *found,
        Control(
            kind="check", name="part", label="Incomplete means too", checked=state.part,
            note="Means over some of the columns, hollow and never on the frontier.",
        ),
        _select("each", "A point for", state.each, EACH, more=True),
        *([] if state.x == "date" else [_select("scale", "Axis", state.scale, SCALES, more=True)]),
    ]  # fmt: skip


def _first(name: str) -> str:
    return f"{name[0].upper()}{name[1:]}"


def _suites(queries: Queries, state: ParetoState) -> list[tuple[str, str]]:
    known = queries.entries_of_suites
    return [
        (slug, one.suite.title)
        for slug, one in queries.suites.items()
        if slug in known or one.main or slug == state.suite
    ]


def _measures(grid: Grid) -> list[tuple[str, str]]:
    """What a score can be set against; where no entry has it, the choice says so and the page why."""
    measured = any(entry.origin == "measured" for entry in grid.entries)
    found: list[tuple[str, str]] = []
    for key, one in MEASURES.items():
        known = measured if one.of is None else any(one.of(entry) for entry in grid.entries)
        found.append((key, one.name if known or key == "flops" else f"{one.name} (not known)"))
    return found


def _select(
    name: str, label: str, value: str, options: Sequence[tuple[str, str]], *, more: bool = False
) -> Control:
    return Control(kind="select", name=name, label=label, value=value, options=options, more=more)
