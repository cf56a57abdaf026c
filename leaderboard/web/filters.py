"""Filters over entries: what the forms above tables offer, and the sentences of those in force."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from leaderboard.data.queries import SIZES, Card, Entry
from leaderboard.web.page_state import State, Text, default_values

NO_CARD = Card()

EMPTY_IS_NONE = BeforeValidator(lambda value: None if value == "" else value)
"""Browsers send the name of an empty field without a value."""


FACTS: Mapping[str, Callable[[Entry, Card], Any]] = {
    "origin": lambda entry, card: entry.origin,
    "size": lambda entry, card: entry.size,
    "output": lambda entry, card: entry.output,
    "trust": lambda entry, card: entry.trust,
    "recipe": lambda entry, card: entry.recipe or "none",
    "backbone": lambda entry, card: entry.backbone,
    "organisation": lambda entry, card: entry.organisation,
    "most": lambda entry, card: entry.parameters and entry.parameters / 1e6,
    "tokens": lambda entry, card: entry.length and min(entry.length, 2**31 - 1),
    "dimensions": lambda entry, card: entry.dimension,
    "memory": lambda entry, card: card.memory,
    "open": lambda entry, card: entry.open_weights is True or entry.origin == "measured",
    "licence": lambda entry, card: sorted({card.licence, card.licence_group} - {""}),
    "language": lambda entry, card: sorted(card.languages),
    "instructions": lambda entry, card: card.instructions,
}
"""What the filters ask of an entry, by the names of their parameters; a browser asks the same."""

OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "most": operator.le,
    "dimensions": operator.le,
    "memory": operator.le,
    "tokens": operator.ge,
    "licence": operator.contains,
    "language": operator.contains,
}
"""How a fact relates to what is asked for; others are equal to it."""


def _passes_filter(name: str, fact: Any, asked: Any) -> bool:
    """Whether a fact is what a filter asks for: what is not known never is."""
    if fact is None:
        return False
    return OPERATORS[name](fact, asked) if name in OPERATORS else bool(fact == asked)


class EntryState(State):
    """Filters that every page with entries has."""

    q: Text = Field("", description="Part of a model's name; of several words each must be in it.")
    origin: Literal["", "measured", "imported", "reported"] = Field(
        "", description="Where numbers come from: measured by this harness, imported, or printed in a paper."
    )
    size: Literal["", "small", "base", "large", "xl", "xxl"] = Field(
        "", description="Size class by parameters: under 60 M, 200 M, 600 M, 2 B, and above."
    )
    output: Literal["", "vector", "multivector", "sparse", "cross-encoder", "label", "ranking"] = Field(
        "",
        description="What the model gives; a ranking is that of a lexical model, such as BM25, and a "
        "cross-encoder gives a score for a pair.",
    )
    recipe: Text = Field("", description="The recipe that made the model; `none` for finished models.")
    backbone: Text = Field("", description="The model that it was made of, by a recipe or by its makers.")
    tokens: Annotated[int | None, EMPTY_IS_NONE] = Field(
        None, ge=1, le=2**31 - 1, description="At least so many tokens of input, e.g. 8192."
    )
    most: Annotated[float | None, EMPTY_IS_NONE] = Field(
        None, gt=0, le=1e7, description="At most so many million parameters, e.g. 200."
    )
    dimensions: Annotated[int | None, EMPTY_IS_NONE] = Field(
        None, ge=1, le=2**31 - 1, description="At most so many dimensions of an embedding."
    )
    open: bool = Field(False, description="Only models with open weights.")
    organisation: Text = Field("", description="Only models of this organisation, e.g. BAAI.")
    trust: Literal["", "commit", "external", "none", "other"] = Field(
        "", description="How the revision of an imported model is known."
    )

    @cached_property
    def _bounds(self) -> dict[str, Any]:
        """What is asked of entries; lists ask it of tasks."""
        fields = {name: value for name, value in self if name in FACTS and value}
        return {name: value for name, value in fields.items() if not isinstance(value, list)}

    def should_keep(self, entry: Entry, card: Card = NO_CARD) -> bool:
        """Whether an entry passes."""
        name = entry.model.casefold()
        return all(word in name for word in self.q.casefold().split()) and all(
            _passes_filter(key, FACTS[key](entry, card), asked) for key, asked in self._bounds.items()
        )


SIZE_NAMES = {
    "small": "small, under 60 M", "base": "base, 60–200 M", "large": "large, 200–600 M", "xl": "0.6–2 B",
    "xxl": "2 B and above",
}  # fmt: skip
assert SIZE_NAMES.keys() == SIZES.keys()


@dataclass(frozen=True, kw_only=True)
class Control:
    """One control of a form (templates/_macros.html says what each kind takes)."""

    kind: Literal["search", "select", "check", "number", "line"]
    name: str
    label: str
    value: Any = ""
    options: Sequence[tuple[str, str]] = ()
    checked: bool = False
    placeholder: str = ""
    note: str = ""
    least: int | None = None
    most: int | None = None
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
    chips: Sequence[tuple[str, str]] = ()
    reset: str = ""


def build_form(
    state: State,
    path: str,
    controls: Sequence[Control],
    *,
    chips: Sequence[tuple[str, str]] = (),
    reset: str = "",
) -> FilterForm:
    """The form of a page; hidden fields keep the state that has no control, but not the page's number."""
    control_names = {"page", *(control.name for control in controls)}
    hidden = [(name, value) for name, value in state.list_query_pairs() if name not in control_names]
    reset = reset or (path if chips else "")
    return FilterForm(path=path, controls=controls, hidden=hidden, chips=chips, reset=reset)


def ask_name(state: Any, label: str, placeholder: str = "part of a name") -> Control:
    """The field for a part of something's name, which is the parameter `q`."""
    return Control(kind="search", name="q", label=label, value=state.q, placeholder=placeholder)


Options: TypeAlias = "Mapping[str, tuple[str, Sequence[tuple[str, str]]]]"
"""By parameter the label of a choice, and the values with their names."""


def offer(
    state: State,
    options: Options,
    *,
    values: Mapping[str, str] = {},
    always: Collection[str] = (),
) -> list[Control]:
    """The choices that a reader has; those of one value are not offered.

    Args:
        state: What was asked for.
        options: What can be asked for.
        values: What is chosen now where the state does not name it, by parameter.
        always: Parameters that are offered even with one value.
    """
    return [
        Control(kind="select", name=name, label=label, options=some,
                value=values.get(name, getattr(state, name)))
        for name, (label, some) in options.items() if len(some) > 1 or name in always
    ]  # fmt: skip


TRUST = ("commit", "external", "none", "other")
ZERO = (("", "any share"), ("most", "over 50 %"), ("all", "100 %"))
EACH = (("model", "each model"), ("revision", "each revision and treatment"))
REVISIONS = (("any", "all scores"), ("pinned", "only on the suite’s data revisions"))


def build_entry_controls(state: EntryState, entries: Iterable[Entry]) -> list[Control]:
    """The form of `state`; choices that no entry has are not offered."""
    # Entries may be an iterator, and are read several times.
    seen = list(entries)
    recipes = _build_choice_options({entry.recipe for entry in seen if entry.recipe})
    sizes = {entry.size for entry in seen}
    options = {
        "origin": _build_choice_options({entry.origin for entry in seen}),
        "size": [(name, label) for name, label in SIZE_NAMES.items() if name in sizes],
        "output": _build_choice_options({entry.output for entry in seen}),
        "recipe": [("none", "none: finished models"), *recipes] if recipes else [],
        "backbone": _build_choice_options({e.backbone for e in seen if e.lineage} | {state.backbone} - {""}),
        "trust": _build_choice_options({entry.trust for entry in seen} & set(TRUST)),
    }
    selects: Options = {
        name: ("Revision" if name == "trust" else name.capitalize(), [("", "any"), *some])
        for name, some in options.items()
        if len(some) > (0 if name == "backbone" else 1)
    }
    most, number = f"{state.most:g}" if state.most else "", partial(Control, kind="number")
    return [
        ask_name(state, "Model"),
        *offer(state, selects),
        number(name="most", label="Parameters in millions, at most", value=most, least=0),
        number(name="tokens", label="Tokens, at least", value=state.tokens, least=1, step="1"),
        number(name="dimensions", label="Dimensions, at most", value=state.dimensions, least=1, step="1"),
        Control(kind="check", name="open", label="Open weights", checked=state.open),
    ]


def _build_choice_options(values: Iterable[str]) -> list[tuple[str, str]]:
    return [(value, value) for value in sorted(values)]


CHIPS: Mapping[str, str] = {
    "q": "name has “{}”", "origin": "{}", "size": "size {}", "output": "output {}", "recipe": "recipe {}",
    "backbone": "made of {}", "tokens": "at least {} tokens", "open": "open weights",
    "organisation": "by {}", "dimensions": "at most {} dimensions", "most": "at most {:g} M parameters",
    "trust": "revision: {}",
}  # fmt: skip


def build_filter_chips(
    state: State, path: str, texts: Mapping[str, str] = CHIPS, values: Mapping[str, str] = {}
) -> list[tuple[str, str]]:
    """The filters in force, each with the URL without it.

    Args:
        state: What was asked for.
        path: The page's own path.
        texts: The parameters that filter, each with a text that its value stands in.
        values: What stands there instead, by parameter.
    """
    defaults, changes = default_values(type(state)), state.collect_changes()
    return [
        (text.format(values.get(name, getattr(state, name))),
         f"{path}?{state.build_query(**{name: defaults[name]}, **state.first_page)}")
        for name, text in texts.items() if name in changes
    ]  # fmt: skip
