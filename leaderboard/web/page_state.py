"""The state of a page, which its address holds whole, the form that asks for it, and paging."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Annotated, Any, Literal, Self, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from harness.core.errors import find_similar_names

T = TypeVar("T")
Text = Annotated[str, StringConstraints(max_length=200)]
Texts = Annotated[list[Text], Field(max_length=200)]
PageAddress = Annotated[str, StringConstraints(max_length=512, pattern=r"^/([^/\\]|$)")]
"""The path and query of a page of this site; // and /\\ would begin the address of another host."""


LOOKS = ("theme", "embed")
"""The parameters that change no number."""

Kind = Literal["search", "select", "check", "number", "line"]

Options: TypeAlias = "Mapping[str, tuple[str, Sequence[tuple[str, str]]]]"
"""By parameter the label of a choice, and the values with their names."""


@dataclass(frozen=True, kw_only=True)
class Control:
    """One control of a form (templates/_macros.html says what each kind takes)."""

    kind: Kind
    name: str
    label: str
    value: Any = ""
    options: Sequence[tuple[str, str]] = ()
    placeholder: str = ""
    note: str = ""
    least: int | None = None
    step: str = ""


@dataclass(frozen=True, kw_only=True)
class FilterForm:
    """The form above a table, and the filters in force.

    Attributes:
        path: The page's own path.
        controls: What can be asked.
        hidden: What else of the state the form keeps.
        chips: The filters in force, each with the URL without it.
        reset: The URL of the page without any filter; empty if none is in force.
    """

    path: str
    controls: Sequence[Control]
    hidden: Sequence[tuple[str, str]]
    chips: Sequence[tuple[str, str]]
    reset: str


class State(BaseModel):
    """The parameters of a page: every page has those here. Unknown ones are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    theme: Literal["auto", "light", "dark"] = Field("auto", description="Colours.")
    embed: bool = Field(False, description="The first table alone, which other sites may show in a frame.")

    def build_query(self, **changes: Any) -> str:
        """The query string of this state with some changes; what is at its default is left out."""
        return urlencode(self.list_query_pairs(**changes))

    def list_query_pairs(self, **changes: Any) -> list[tuple[str, str]]:
        """Names and values of this state with some changes, as they stand in a query."""
        pairs = []
        for name, value in self.collect_changes(**changes).items():
            values = value if isinstance(value, list | tuple) else [value]
            pairs += [(name, str(int(v) if isinstance(v, bool) else v)) for v in values]
        return pairs

    def collect_changes(self, **changes: Any) -> dict[str, Any]:
        """The values of this state with some changes, as plain ones, that are not at their defaults."""
        defaults = default_values(type(self))
        return {n: v for n, v in {**self._plain, **changes}.items() if v != defaults[n]}

    @cached_property
    def _plain(self) -> dict[str, Any]:
        return self.model_dump(mode="json")

    @property
    def first_page(self) -> dict[str, int]:
        """The change that leads to the first page of a long table; none without pages."""
        return {"page": 1} if "page" in type(self).model_fields else {}

    def show_all_rows(self) -> Self:
        """This state with every row of its tables, unless it names some rows or a page of them."""
        fields = type(self).model_fields
        if "rows" not in fields or self.model_fields_set & {"rows", "page"}:
            return self
        return self.apply_changes(rows="all")

    def apply_changes(self, **changes: Any) -> Self:
        """This state with some changes, as if the query had named them."""
        # Validated again, which model_copy does not do; and the set of named fields stays right.
        named = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self).model_validate({**named, **changes})

    def build_filter_query(self) -> str:
        """The query string of this state without the theme, and without the place in a long table."""
        pairs = self.list_query_pairs()
        return urlencode([(name, value) for name, value in pairs if name not in (*LOOKS, "rows", "page")])

    def ask(self, kind: Kind, name: str, label: str, **more: Any) -> Control:
        """A control for a parameter, with what was asked for; `more` are other fields of it."""
        return Control(kind=kind, name=name, label=label, **{"value": self._plain[name], **more})

    def ask_name(self, label: str, placeholder: str = "part of a name") -> Control:
        """The field for a part of something's name, which is the parameter `q`."""
        return self.ask("search", "q", label, placeholder=placeholder)

    def offer(
        self, options: Options, *, values: Mapping[str, str] = {}, always: Collection[str] = ()
    ) -> list[Control]:
        """The choices that a reader has; those of one value are not offered.

        Args:
            options: What can be asked for.
            values: What is chosen now where the state does not name it, by parameter.
            always: Parameters that are offered even with one value.
        """
        return [
            self.ask("select", name, label, options=some, value=values.get(name, self._plain[name]))
            for name, (label, some) in options.items()
            if len(some) > 1 or name in always
        ]

    def build_form(
        self,
        path: str,
        controls: Sequence[Control],
        *,
        chips: Mapping[str, str] = {},
        values: Mapping[str, str] = {},
        reset: str = "",
    ) -> FilterForm:
        """The form of a page; hidden fields keep the state that has no control, but not the page's number.

        Args:
            path: The page's own path.
            controls: What can be asked.
            chips: Texts of the filters in force, as for `list_chips`.
            values: What stands in these texts, by parameter.
            reset: The URL of the page without any filter; empty for `path` where one is in force.
        """
        names = {"page", *(control.name for control in controls)}
        hidden = [(name, value) for name, value in self.list_query_pairs() if name not in names]
        links = self.list_chips(path, chips, values)
        reset = reset or (path if links else "")
        return FilterForm(path=path, controls=controls, hidden=hidden, chips=links, reset=reset)

    def list_chips(
        self, path: str, texts: Mapping[str, str], values: Mapping[str, str] = {}
    ) -> list[tuple[str, str]]:
        """The filters in force, each with the URL without it.

        Args:
            path: The page's own path.
            texts: The parameters that filter, each with a text that its value stands in.
            values: What stands there instead, by parameter.
        """
        defaults, changes = default_values(type(self)), self.collect_changes()
        return [
            (
                text.format(values.get(name, getattr(self, name))),
                f"{path}?{self.build_query(**{name: defaults[name]}, **self.first_page)}",
            )
            for name, text in texts.items()
            if name in changes
        ]


def describe_errors(kind: type[State], errors: Iterable[Mapping[str, Any]]) -> list[str]:
    """What pydantic finds wrong with a query, in sentences: an unknown parameter with the nearest ones."""
    sentences = []
    for error in errors:
        place = [str(part) for part in error["loc"]]
        if error["type"] == "extra_forbidden" and place:
            word = f" {place[0].casefold().removesuffix('s')}"
            # A form's label is no parameter's name, but a word of what it is.
            close = find_similar_names(place[0], kind.model_fields) or [
                name for name, field in kind.model_fields.items()
                if len(word) > 3 and word in (field.description or "").casefold()
            ][:3]  # fmt: skip
            hint = f" Did you mean {' or '.join(close)}?" if close else ""
            sentences.append(f"There is no parameter {place[0]!r}.{hint}")
        elif error["type"] in ("int_parsing", "float_parsing") and place[0] in kind.model_fields:
            about = kind.model_fields[place[0]].description
            sentences.append(f"{place[0]}: write a number alone, not {error['input']!r}. {about}")
        else:
            sentences.append(f"{'.'.join(place)}: {error['msg']}.")
    return sentences


@cache
def default_values(kind: type[State]) -> dict[str, Any]:
    """The values of a state where the query names nothing."""
    fields = kind.model_fields.items()
    return {name: field.get_default(call_default_factory=True) for name, field in fields}


def build_address(path: str, query: Mapping[str, Any] | str | None = None) -> str:
    """A path of this site, safe in a link.

    >>> build_address("/suites/{}", None), build_address("/tasks/a b", {"q": "x&y"})
    ('/suites/%7B%7D', '/tasks/a%20b?q=x%26y')
    """
    safe = quote(path, safe="/-_.~")
    text = query if isinstance(query, str) else urlencode(query or {}, doseq=True)
    return f"{safe}?{text}" if text else safe


SIZES = ("25", "50", "100", "250", "all")


@dataclass(frozen=True, kw_only=True)
class Paging:
    """Where in a table a page is; rows count from 1, and `first` is 0 in an empty table.

    `pages` and `sizes` are (label, URL, current); a label without URL is a gap.
    """

    first: int
    last: int
    total: int
    prev: str
    next: str
    pages: Sequence[tuple[str, str, bool]]
    sizes: Sequence[tuple[str, str, bool]]

    def cut(self, rows: Sequence[T]) -> Sequence[T]:
        """Those of all rows that are on the page."""
        return rows[max(0, self.first - 1) : self.last]


def build_paging(total: int, state: Any, path: str) -> Paging:
    """The page of `total` rows that a state with `rows` and `page` names; one behind the last is the last.

    Args:
        total: Rows of the whole table.
        state: The state of the page; `rows` and `page` say which rows are shown.
        path: The page's own path, for links.
    """
    size = total if state.rows == "all" else int(state.rows)
    count = max(1, -(-total // size)) if size else 1
    page = min(state.page, count)

    def link(number: int) -> str:
        return f"{path}?{state.build_query(page=number)}"

    near = _list_near_pages(page, count)
    return Paging(
        first=min(total, (page - 1) * size + 1), last=min(total, page * size), total=total,
        prev=link(page - 1) if page > 1 else "", next=link(page + 1) if page < count else "",
        pages=[(str(n), link(n), n == page) if n else ("…", "", False) for n in near],
        sizes=[(n, f"{path}?{state.build_query(rows=n, page=1)}", n == state.rows) for n in SIZES],
    )  # fmt: skip


def _list_near_pages(page: int, count: int) -> list[int]:
    """The first, the last, and the pages around this one; 0 for a gap.

    >>> _list_near_pages(5, 9)
    [1, 0, 4, 5, 6, 0, 9]
    """
    numbers: list[int] = []
    for n in sorted({1, count, *(n for n in (page - 1, page, page + 1) if 1 <= n <= count)}):
        if numbers and n - numbers[-1] > 1:
            numbers.append(0)
        numbers.append(n)
    return numbers
