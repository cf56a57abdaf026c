"""Pages of a long table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

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
