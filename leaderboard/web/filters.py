"""Filters over entries: what the forms above tables offer, and the sentences of those in force."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from leaderboard.data.queries import SIZES, Entry
from leaderboard.web.parameters import State, Text


class EntryState(State):
    """Filters that every page with entries has."""

    q: Text = Field("", description="Part of a model's name; of several words each must be in it.")
    origin: Literal["", "measured", "imported", "reported"] = Field(
        "", description="Where numbers come from: measured by this harness, imported, or printed in a paper."
    )
    size: Literal["", "small", "base", "large", "xl", "xxl"] = Field(
        "", description="Size class by parameters: under 60 M, 200 M, 600 M, 2 B, and above."
    )
    output: Literal["", "vector", "multivector", "label", "ranking"] = Field(
        "", description="What the model gives; a ranking is that of a lexical model, such as BM25."
    )
    recipe: Text = Field("", description="The recipe that made the model; `none` for finished models.")
    backbone: Text = Field("", description="The model that it was made of, by a recipe or by its makers.")
    tokens: Annotated[int | None, BeforeValidator(lambda value: None if value == "" else value)] = Field(
        None, ge=1, le=2**31 - 1, description="At least so many tokens of input."
    )
    most: Annotated[float | None, BeforeValidator(lambda value: None if value == "" else value)] = Field(
        None, gt=0, le=1e7, description="At most so many million parameters."
    )
    open: bool = Field(False, description="Only models with open weights.")
    trust: Literal["", "commit", "external", "none", "other"] = Field(
        "", description="How the revision of an imported model is known."
    )

    def keeps(self, entry: Entry) -> bool:
        """Whether an entry passes."""
        return all(
            (
                all(word in entry.model.casefold() for word in self.q.casefold().split()),
                self.most is None or (entry.parameters is not None and entry.parameters <= self.most * 1e6),
                self.origin in ("", entry.origin),
                self.size in ("", entry.size),
                self.output in ("", entry.output),
                self.recipe in ("", entry.recipe or "none"),
                self.backbone in ("", entry.backbone),
                self.tokens is None or (entry.max_tokens or 0) >= self.tokens,
                not self.open or entry.open_weights is True or entry.origin == "measured",
                self.trust in ("", entry.trust),
            )
        )


SIZE_NAMES = {
    "small": "small, under 60 M",
    "base": "base, 60–200 M",
    "large": "large, 200–600 M",
    "xl": "0.6–2 B",
    "xxl": "2 B and above",
}
assert SIZE_NAMES.keys() == SIZES.keys()


@dataclass(frozen=True, kw_only=True)
class Control:
    """One control of a form (templates/_filters.html says what each kind takes)."""

    kind: Literal["search", "select", "check", "number"]
    name: str
    label: str
    value: Any = ""
    options: Sequence[tuple[str, str]] = ()
    checked: bool = False
    placeholder: str = ""
    note: str = ""
    more: bool = False
    least: int | None = None
    most: int | None = None
    step: str = ""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """A column picker: groups of (key, label, shown, shown where nothing is picked)."""

    name: str
    groups: Sequence[tuple[str, Sequence[tuple[str, str, bool, bool]]]]


@dataclass(frozen=True, kw_only=True)
class Form:
    """The form above a table, and the filters in force.

    Attributes:
        path: The page's own path.
        controls: What can be asked.
        hidden: What else of the state the form keeps.
        chips: The filters in force, each with the URL without it.
        columns: The column picker, None for none.
        reset: The page without any filter; empty where there is none in force.
    """

    path: str
    controls: Sequence[Control]
    hidden: Sequence[tuple[str, str]]
    chips: Sequence[tuple[str, str]] = ()
    columns: Choices | None = None
    reset: str = ""


def form(
    state: State,
    path: str,
    controls: Sequence[Control],
    *,
    chips: Sequence[tuple[str, str]] = (),
    columns: Choices | None = None,
    reset: str = "",
) -> Form:
    """The form of a page; it keeps whatever of the state it has no control for, but for the page's number."""
    own = {"page", *(control.name for control in controls), *([columns.name] if columns else [])}
    return Form(
        path=path,
        controls=controls,
        hidden=[(name, value) for name, value in state.pairs() if name not in own],
        chips=chips,
        columns=columns,
        reset=reset or (path if chips else ""),
    )


def controls(state: EntryState, entries: Iterable[Entry]) -> list[Control]:
    """The form of `state`; choices that no entry has are not offered."""
    seen = list(entries)
    recipes = sorted({entry.recipe for entry in seen if entry.recipe})
    backbones = sorted({entry.backbone for entry in seen if entry.lineage} | {state.backbone} - {""})
    found = [
        Control(kind="search", name="q", label="Model", value=state.q, placeholder="part of a name"),
        _select(state, "origin", "Origin", [(o, o) for o in sorted({e.origin for e in seen})]),
        _select(
            state,
            "size",
            "Size",
            [(n, says) for n, says in SIZE_NAMES.items() if n in {e.size for e in seen}],
        ),
        _select(state, "output", "Output", [(o, o) for o in sorted({e.output for e in seen})], more=True),
        _select(
            state,
            "recipe",
            "Recipe",
            [("none", "none: finished models"), *((r, r) for r in recipes)] if recipes else [],
            more=True,
        ),
        _select(state, "backbone", "Backbone", [(b, b) for b in backbones], more=True),
        Control(
            kind="number",
            name="most",
            label="Parameters in millions, at most",
            value=f"{state.most:g}" if state.most else "",
            least=0,
            more=True,
        ),
        Control(
            kind="number",
            name="tokens",
            label="Tokens, at least",
            value=state.tokens,
            least=1,
            step="1",
            more=True,
        ),
        _select(
            state,
            "trust",
            "Revision",
            [(t, t) for t in sorted({e.trust for e in seen if e.trust in TRUST})],
            more=True,
        ),
        Control(kind="check", name="open", label="Open weights", checked=state.open, more=True),
    ]
    least = {"backbone": 1}
    return [c for c in found if c.kind != "select" or len(c.options) > least.get(c.name, 2)]


TRUST = ("commit", "external", "none", "other")


def chips(state: EntryState, path: str) -> list[tuple[str, str]]:
    """The filters in force, each with the URL without it."""
    labels = {
        "q": "name has “{}”", "origin": "{}", "size": "size {}", "output": "output {}", "recipe": "recipe {}",
        "backbone": "made of {}", "tokens": "at least {} tokens", "open": "open weights",
        "most": "at most {:g} M parameters", "trust": "revision: {}",
    }  # fmt: skip
    found = []
    for name, label in labels.items():
        default = type(state).model_fields[name].get_default()
        value = getattr(state, name)
        if value != default:
            found.append((label.format(value), f"{path}?{state.query(**{name: default, 'page': 1})}"))
    return found


def _select(
    state: EntryState, name: str, label: str, options: Sequence[tuple[str, str]], *, more: bool = False
) -> Control:
    value = getattr(state, name)
    return Control(
        kind="select", name=name, label=label, value=value, options=[("", "any"), *options], more=more
    )
