"""The state of a page: all of it stands in its URL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Annotated, Any, Literal, Protocol, Self
from urllib.parse import quote, urlencode

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from harness.errors import nearest

Text = Annotated[str, StringConstraints(max_length=200)]
Texts = Annotated[list[Text], Field(max_length=200)]


class State(BaseModel):
    """What every page knows: how it looks. Unknown parameters are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    theme: Literal["auto", "light", "dark"] = Field("auto", description="Colours.")
    density: Literal["comfortable", "dense"] = Field("comfortable", description="Height of rows.")

    @cached_property
    def _own(self) -> dict[str, Any]:
        """The values of this state as plain ones."""
        return self.model_dump(mode="json")

    def query(self, **changes: Any) -> str:
        """The query string of this state with some changes; what is at its default is left out."""
        return urlencode(self.pairs(**changes))

    def pairs(self, **changes: Any) -> list[tuple[str, str]]:
        """Names and values of this state with some changes, as they stand in a query."""
        defaults = _defaults(type(self))
        found: list[tuple[str, str]] = []
        for name, value in {**self._own, **changes}.items():
            if value == defaults[name]:
                continue
            many = value if isinstance(value, list | tuple) else [value]
            found += [(name, _text(one)) for one in many]
        return found

    def whole(self) -> Self:
        """This state with every row of its tables, unless it names some rows or a page of them."""
        fields = type(self).model_fields
        if "rows" not in fields or self.model_fields_set & {"rows", "page"}:
            return self
        return self.changed(rows="all")

    def changed(self, **changes: Any) -> Self:
        """This state with some changes, as if the query had named them."""
        named = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self).model_validate({**named, **changes})

    def shows(self) -> str:
        """The query string of what this state shows: without how it looks, and where in the rows it is."""
        return urlencode([(name, value) for name, value in self.pairs() if name not in (*LOOKS, *WHERE)])

    def said(self) -> dict[str, Any]:
        """The parameters that are not at their defaults, but for how the page looks, as plain values."""
        defaults = _defaults(type(self))
        return {n: v for n, v in self._own.items() if n not in LOOKS and v != defaults[n]}


LOOKS = ("theme", "density")
"""Parameters that change how a page looks, and nothing of what it holds."""

WHERE = ("rows", "page")
"""Parameters that say where in a long table a page is."""


def refusals(kind: type[State], errors: Iterable[Mapping[str, Any]]) -> list[str]:
    """What is wrong with a query, in sentences: an unknown parameter with those that are near to it.

    Args:
        kind: The state of the page.
        errors: What pydantic says is wrong.
    """
    found = []
    for error in errors:
        where = [str(part) for part in error["loc"]]
        if error["type"] == "extra_forbidden" and where:
            close = nearest(where[0], kind.model_fields)
            hint = f" Did you mean {' or '.join(close)}?" if close else ""
            found.append(f"There is no parameter {where[0]!r}.{hint}")
        else:
            found.append(f"{'.'.join(where)}: {error['msg']}.")
    return found


@cache
def _defaults(kind: type[State]) -> dict[str, Any]:
    fields = kind.model_fields.items()
    return {name: field.get_default(call_default_factory=True) for name, field in fields}


def _text(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def address(path: str, query: Mapping[str, Any] | str | None = None) -> str:
    """A path of this site, safe in a link.

    >>> address("/suites/{}", None), address("/tasks/a b", {"q": "x&y"})
    ('/suites/%7B%7D', '/tasks/a%20b?q=x%26y')
    """
    safe = quote(path, safe="/-_.~")
    text = query if isinstance(query, str) else urlencode(query or {}, doseq=True)
    return f"{safe}?{text}" if text else safe


SIZES = ("25", "50", "100", "250", "all")


class Paged(Protocol):
    """A state that knows its page."""

    @property
    def rows(self) -> Any:
        """Rows on a page, or "all"."""
        ...

    @property
    def page(self) -> int:
        """Which page, from 1."""
        ...

    def query(self, **changes: Any) -> str:
        """The query string of the state with some changes."""
        ...


@dataclass(frozen=True, kw_only=True)
class Paging:
    """Where in a table a page is; rows count from 1, and `first` is 0 where there are none.

    `pages` and `sizes` are (label, URL, current); a label without URL is a gap.
    """

    first: int
    last: int
    total: int
    prev: str
    next: str
    pages: Sequence[tuple[str, str, bool]]
    sizes: Sequence[tuple[str, str, bool]]


def paging(total: int, state: Paged, path: str) -> Paging:
    """The page of `total` rows that a state asks for; one behind the last is the last."""
    size = total if state.rows == "all" else int(state.rows)
    count = max(1, -(-total // size)) if size else 1
    page = min(state.page, count)

    def link(number: int) -> str:
        return f"{path}?{state.query(page=number)}"

    return Paging(
        first=min(total, (page - 1) * size + 1),
        last=min(total, page * size),
        total=total,
        prev=link(page - 1) if page > 1 else "",
        next=link(page + 1) if page < count else "",
        pages=[(str(n), link(n), n == page) if n else ("…", "", False) for n in _near(page, count)],
        sizes=[(n, f"{path}?{state.query(rows=n, page=1)}", n == state.rows) for n in SIZES],
    )


def _near(page: int, count: int) -> list[int]:
    """The first, the last, and the pages around this one; 0 for a gap.

    >>> _near(5, 9)
    [1, 0, 4, 5, 6, 0, 9]
    """
    wanted = sorted({1, count, *(n for n in (page - 1, page, page + 1) if 1 <= n <= count)})
    found: list[int] = []
    for n in wanted:
        if found and n - found[-1] > 1:
            found.append(0)
        found.append(n)
    return found
