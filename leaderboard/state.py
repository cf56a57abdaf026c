"""The state of a page: all of it stands in its URL."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, cached_property
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlencode

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Text = Annotated[str, StringConstraints(max_length=200)]
Texts = Annotated[list[Text], Field(max_length=200)]


class State(BaseModel):
    """What every page knows: how it looks. Unknown parameters are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore")

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
