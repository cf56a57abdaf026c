"""Trade-offs: scores against what they cost, with the frontier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from leaderboard.filters import EntryState
from leaderboard.page import Page, PageRoute, missing
from leaderboard.pages.pareto.page import pareto_page
from leaderboard.scopes import views
from leaderboard.state import Text

if TYPE_CHECKING:
    from leaderboard.site import Site


def _nothing(value: Any) -> Any:
    """A field of a form that was left empty."""
    return None if value == "" else value


Price = Annotated[
    Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None, BeforeValidator(_nothing)
]


class ParetoState(EntryState):
    """What the page of trade-offs can be asked."""

    suite: Text = Field("mteb", description="The suite that the scores are of.")
    x: Literal["parameters", "dimension", "tokens", "date", "flops", "throughput", "cost"] = Field(
        "parameters", description="What stands across."
    )
    y: Text = Field(
        "tasks",
        description="What stands upwards: tasks or types (means), untouched (the mean over tasks that "
        "chose no model shown), type:NAME, or task:NAME.",
    )
    part: bool = Field(
        False, description="Also means over some of the columns: hollow, never on the frontier."
    )
    price: Price = Field(None, description="US dollars for an hour of the machine, for x=cost.")
    device: Text = Field("", description="Only what ran on this device, for x=throughput and x=cost.")
    scale: Literal["", "log", "linear"] = Field(
        "", description="The axis of x; else logarithmic, but for dates and dimensions."
    )
    each: Literal["model", "entry"] = Field(
        "model", description="One point for each model, or for each revision and treatment."
    )
    view: Text = Field("", description="The paper's convention that makes a task's number.")
    rows: Literal["25", "50", "100", "250", "all"] = Field("50", description="Rows of the table of points.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of those rows.")


def view(site: Site, state: ParetoState) -> Page:
    """The page of trade-offs."""
    queries = site.queries
    if state.suite not in queries.suites:
        raise missing("suite", state.suite, queries.suites, then="The page /suites lists all.")
    listed = queries.suites[state.suite]
    known = views(listed.suite)
    if state.view and state.view not in known:
        raise missing("view", state.view, known, then="The suite's page offers those there are.")
    grid = queries.grid(listed, state.view or known[0])
    found = pareto_page(queries, grid, state, site.papers.values())
    return Page(
        title="Trade-offs",
        template="pareto.html",
        lead=found.lead,
        tables=found.tables,
        data=found.data,
        context=found,
        notes=found.warnings,
        plots=bool(found.cloud.dots),
    )


PAGE = PageRoute(
    path="/pareto",
    state=ParetoState,
    view=view,
    summary="Scores against size, dimension, length, date, compute, speed or cost, with the frontier.",
    every=lambda site: ["/pareto"],
)
