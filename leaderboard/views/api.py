"""The API: every address that gives data, with its parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from leaderboard.page import Page, PageRoute
from leaderboard.state import State
from leaderboard.tables import Cell, Column, Row, Table

if TYPE_CHECKING:
    from leaderboard.site import Site


def view(site: Site, state: State) -> Page:
    """Every page with its parameters."""
    return Page(
        title="API",
        template="api.html",
        lead="Every page is data as well: the same address with an ending. OpenAPI describes it to machines.",
        tables=[
            Table(
                name="parameters",
                caption="Pages and their parameters",
                columns=[
                    Column(key="path", label="Page"),
                    Column(key="name", label="Parameter", sticky=True),
                    Column(key="default", label="Default"),
                    Column(key="means", label="What it does"),
                ],
                rows=[row for route in site.pages if route.twins for row in _rows(route)],
            )
        ],
    )


def _rows(route: PageRoute) -> Iterator[Row]:
    yield _row(route.path, "", "", route.summary)
    for name, field in route.state.model_fields.items():
        if name not in State.model_fields:
            default = field.get_default(call_default_factory=True)
            yield _row("", name, "" if default in (None, "", []) else str(default), field.description or "")


def _row(*texts: str) -> Row:
    return Row(cells=[Cell(text=text, value=text or None) for text in texts])


PAGE = PageRoute(
    path="/api",
    state=State,
    view=view,
    summary="Every page with its parameters.",
    every=lambda site: ["/api"],
    twins=False,
)
