"""The trade-off page: its plot, its tables, its form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from leaderboard.filters import Form, chips, controls, form
from leaderboard.grid import Grid, UntouchedMeans
from leaderboard.pages.pareto.across import Across, across_of
from leaderboard.pages.pareto.controls import own_controls
from leaderboard.pages.pareto.measures import MEASURES, Measure, Target, target, targets
from leaderboard.pages.pareto.points import Cloud, Dot, cloud, rows_shown
from leaderboard.pages.pareto.tables import frontier_table, points_table
from leaderboard.pages.suite.cells import untouched_note
from leaderboard.paging import Paging, paging
from leaderboard.plots.interactive import json_script, plot_data
from leaderboard.plots.scatter_plot import scatter
from leaderboard.queries import Queries
from leaderboard.reported.printed import Paper
from leaderboard.tables import Table

if TYPE_CHECKING:
    from leaderboard.views.pareto import ParetoState

PATH = "/pareto"


@dataclass(frozen=True, kw_only=True)
class ParetoPage:
    """What the template takes.

    Attributes:
        cloud: The points.
        tables: The frontier, and all points.
        lead: What is there, in a sentence.
        warnings: What must be read with it.
        empty: Why there is nothing to draw; empty if there is.
        left_out: What is not shown, in sentences.
        svg: The picture.
        script: Its data, for the picture that moves.
        library: The URL of the library that draws it.
        form: The form above it, with the filters in force.
        paging: Where in the points the second table is.
        data: For the JSON twin.
    """

    cloud: Cloud
    tables: Sequence[Table]
    lead: str
    warnings: Sequence[str]
    empty: str
    left_out: Sequence[str]
    svg: Markup
    script: Markup
    library: str
    form: Form
    paging: Paging
    data: Mapping[str, Any] = field(default_factory=dict)


def pareto_page(queries: Queries, grid: Grid, state: ParetoState, papers: Iterable[Paper]) -> ParetoPage:
    """The page of a grid in a state.

    Raises:
        NotFound: The state names a score that is none.
    """
    untouched = grid.untouched(rows_shown(grid, state))
    if untouched is None and state.y == "untouched":
        state = state.changed(y="tasks")
    measure, score = MEASURES[state.x], target(grid, state.y, untouched)
    across = across_of(queries, grid, state, measure, papers)
    found = cloud(grid, state, score, across.values, across.printed, across.axis)
    where = paging(len(found.dots), state, PATH)
    shown = found.dots[max(where.first - 1, 0) : where.last]
    tables = [
        frontier_table(found, measure, across.axis, score),
        points_table(found, shown, measure, across.axis, score),
    ]
    return ParetoPage(
        cloud=found,
        tables=tables if found.dots else [],
        lead=_lead(found, grid, across),
        warnings=[*_warnings(found, state, across), *_selection_warnings(found, state, untouched)],
        empty=_empty(found, across),
        left_out=_left_out(found, measure),
        svg=scatter(found.plot) if found.dots else Markup(),
        script=json_script(plot_data(found.plot)) if found.dots else Markup(),
        library=f"/static/plotly.min.js?v={version('plotly')}",
        form=form(
            state,
            PATH,
            [
                *own_controls(queries, grid, state, targets(grid, untouched), across.devices, across.device),
                *controls(state, grid.entries),
            ],
            chips=chips(state, PATH),
            reset=f"{PATH}?{_unfiltered(state)}",
        ),
        paging=where,
        data=_data(grid, state, found, across, score),
    )


def _unfiltered(state: ParetoState) -> str:
    own = set(type(state).model_fields) - {"suite", "x", "y", "price", "theme", "density"}
    defaults = {n: type(state).model_fields[n].get_default(call_default_factory=True) for n in own}
    return state.query(**defaults)


def _lead(found: Cloud, grid: Grid, across: Across) -> str:
    whole = sum(dot.whole for dot in found.dots)
    what = f"{'point' if across.printed else 'model'}{'' if whole == 1 else 's'}"
    if not found.dots:
        return f"{grid.listed.suite.title}: nothing to draw."
    return f"{grid.listed.suite.title}: {whole} {what}, {len(found.best)} on the frontier."


def _warnings(found: Cloud, state: ParetoState, across: Across) -> list[str]:
    recipes = {dot.entry.recipe for dot in found.dots if dot.entry.recipe}
    settings = {dot.entry.treatment.partition(";")[0] for dot in found.dots if dot.entry.origin == "reported"}
    notes = []
    if len(recipes) > 1:
        notes.append(
            f"These models were fine-tuned by {len(recipes)} recipes: a difference may be the recipe's. "
            "Choose one under More filters."
        )
    if settings:
        notes.append(
            "Points printed in papers were not measured here: score and training compute are as printed, "
            "means are made again from the printed numbers."
        )
    if len(settings) > 1:
        notes.append(f"They were fine-tuned in {len(settings)} ways: {'; '.join(sorted(settings))}.")
    if len(across.devices) > 1:
        rest = ", ".join(device for device in across.devices if device != across.device)
        notes.append(f"Only what ran on {across.device} is shown; other records ran on {rest}.")
    if state.device and state.device != across.device:
        notes.append(f"Nothing was measured on {state.device}.")
    return notes


def _selection_warnings(found: Cloud, state: ParetoState, untouched: UntouchedMeans | None) -> list[str]:
    """What is to be known where scores chose some of the models."""
    chosen = sum(dot.selected for dot in found.dots)
    if state.y == "untouched" and untouched is not None:
        return [untouched_note(untouched)]
    if not chosen:
        return []
    what = "a model was" if chosen == 1 else f"{chosen} models were"
    other = f" The mean over the {untouched.part.count} untouched tasks is free of that." if untouched else ""
    return [f"In this score, {what} chosen by scores that it is made of, which err upward.{other}"]


def _empty(found: Cloud, across: Across) -> str:
    if found.dots:
        return ""
    return across.why or "No model that passes these filters has both values."


def _left_out(found: Cloud, measure: Measure) -> list[str]:
    notes = []
    if found.without:
        notes.append(f"Left out, as nobody says their {measure.name}: {found.without} with this score.")
    if found.part:
        notes.append(f"Left out, as they have a part of the columns only: {found.part}.")
    return notes


def _data(grid: Grid, state: ParetoState, found: Cloud, across: Across, score: Target) -> dict[str, Any]:
    return {
        "suite": grid.listed.suite.name,
        "x": {"key": state.x, "label": across.axis.label, "scale": across.axis.kind},
        "y": {"key": state.y, "label": score.label},
        "view": grid.view or None,
        "device": across.device or None,
        "price": state.price,
        "points": len(found.dots),
        "frontier": [_plain(dot) for dot in found.best],
        "left_out": list(_left_out(found, MEASURES[state.x])),
        "why_empty": _empty(found, across) or None,
    }


def _plain(dot: Dot) -> dict[str, Any]:
    x = dot.x.isoformat() if isinstance(dot.x, date) else dot.x
    return {"model": dot.entry.model, "origin": dot.entry.origin, "x": x, "score": dot.score}
