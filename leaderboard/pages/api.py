"""The API: every address that gives data, with its parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from leaderboard.web.page import Page, PageRoute
from leaderboard.web.parameters import State
from leaderboard.web.tables import Cell, Column, Row, Table

if TYPE_CHECKING:
    from leaderboard.web.site import Site


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
                    Column(key="values", label="Takes"),
                    Column(key="default", label="Default"),
                    Column(key="means", label="What it does"),
                ],
                rows=[
                    *_everywhere(),
                    *(row for route in site.pages if route.formats for row in _rows(route)),
                ],
            )
        ],
    )


def _everywhere() -> Iterator[Row]:
    """What every page takes: it changes how a page looks, not what it says."""
    yield _row("every page", "", "", "", "How it looks.")
    for name, field in State.model_fields.items():
        yield _row("", name, values_of(field), _default(field), field.description or "")


def _rows(route: PageRoute) -> Iterator[Row]:
    yield _row(route.path, "", "", "", route.summary)
    for name, field in route.state.model_fields.items():
        if name not in State.model_fields:
            yield _row("", name, values_of(field), _default(field), field.description or "")


def _row(*texts: str) -> Row:
    plain = [text.replace("`", "") for text in texts]
    return Row(cells=[Cell(text=text, value=text or None) for text in plain])


def _default(field: FieldInfo) -> str:
    """A default as it would stand in an address."""
    value = field.get_default(call_default_factory=True)
    if isinstance(value, bool):
        return str(int(value))
    return "" if value in (None, "", []) else str(value)


def values_of(field: FieldInfo) -> str:
    """What a parameter takes, in words."""
    kind = field.annotation
    if get_origin(kind) is Literal:
        return ", ".join(str(value) for value in get_args(kind) if value != "")
    if kind is bool:
        return "0, 1"
    if get_origin(kind) is list:
        return "text, again and again for several"
    return "text" if kind is str else _number(kind, field.metadata)


def _number(kind: Any, bounds: list[Any]) -> str:
    what = "a whole number" if "int" in str(kind) else "a number"
    said = {name: getattr(one, name) for one in bounds for name in ("ge", "gt", "le") if hasattr(one, name)}
    above = f" above {said['gt']:,g}" if "gt" in said else ""
    least = f" from {said['ge']:,}" if "ge" in said else ""
    return f"{what}{least}{above}" + (f" to {said['le']:,.0f}" if "le" in said else "")


PAGE = PageRoute(
    path="/api",
    state=State,
    view=view,
    summary="Every page with its parameters.",
    all_paths=lambda site: ["/api"],
    formats=(),
)

PAGES = (PAGE,)
