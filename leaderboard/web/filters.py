"""Filters over entries: what the forms above tables offer, and the sentences of those in force."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from leaderboard.data.queries import SIZES, Card, Entry
from leaderboard.web.page_state import Control, Options, State, Text

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
    **dict.fromkeys(FACTS, operator.eq),
    "most": operator.le,
    "dimensions": operator.le,
    "memory": operator.le,
    "tokens": operator.ge,
    "licence": operator.contains,
    "language": operator.contains,
}
"""How a fact relates to what is asked for."""


SIZE_NAMES = {
    "small": "small, under 60 M", "base": "base, 60–200 M", "large": "large, 200–600 M", "xl": "0.6–2 B",
    "xxl": "2 B and above",
}  # fmt: skip
assert SIZE_NAMES.keys() == SIZES.keys()

TRUST = {"commit", "external", "none", "other"}


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
        return {n: value for n, value in self if n in FACTS and value and not isinstance(value, list)}

    def should_keep(self, entry: Entry, card: Card = NO_CARD) -> bool:
        """Whether an entry passes: what is not known never does."""
        name = entry.model.casefold()
        return all(word in name for word in self.q.casefold().split()) and all(
            fact is not None and OPERATORS[key](fact, asked)
            for key, asked in self._bounds.items()
            for fact in [FACTS[key](entry, card)]
        )

    def build_entry_controls(self, entries: Iterable[Entry]) -> list[Control]:
        """The controls of these filters; choices that no entry has are not offered."""
        # Entries may be an iterator, and are read several times.
        seen = list(entries)
        recipes = _build_choice_options({entry.recipe for entry in seen if entry.recipe})
        sizes = {entry.size for entry in seen}
        options = {
            "origin": _build_choice_options({entry.origin for entry in seen}),
            "size": [(name, label) for name, label in SIZE_NAMES.items() if name in sizes],
            "output": _build_choice_options({entry.output for entry in seen}),
            "recipe": [("none", "none: finished models"), *recipes] if recipes else [],
            "backbone": _build_choice_options(
                {e.backbone for e in seen if e.lineage} | {self.backbone} - {""}
            ),
            "trust": _build_choice_options({entry.trust for entry in seen} & TRUST),
        }
        selects: Options = {
            name: ("Revision" if name == "trust" else name.capitalize(), [("", "any"), *some])
            for name, some in options.items()
            if len(some) > (0 if name == "backbone" else 1)
        }
        most = f"{self.most:g}" if self.most else ""
        return [
            self.ask_name("Model"),
            *self.offer(selects),
            self.ask("number", "most", "Parameters in millions, at most", value=most, least=0),
            self.ask("number", "tokens", "Tokens, at least", least=1, step="1"),
            self.ask("number", "dimensions", "Dimensions, at most", least=1, step="1"),
            self.ask("check", "open", "Open weights"),
        ]


def _build_choice_options(values: Iterable[str]) -> list[tuple[str, str]]:
    return [(value, value) for value in sorted(values)]


ZERO = (("", "any share"), ("most", "over 50 %"), ("all", "100 %"))
EACH = (("model", "each model"), ("revision", "each revision and treatment"))
REVISIONS = (("any", "all scores"), ("pinned", "only on the suite’s data revisions"))


CHIPS: Mapping[str, str] = {
    "q": "name has “{}”", "origin": "{}", "size": "size {}", "output": "output {}", "recipe": "recipe {}",
    "backbone": "made of {}", "tokens": "at least {} tokens", "open": "open weights",
    "organisation": "by {}", "dimensions": "at most {} dimensions", "most": "at most {:g} M parameters",
    "trust": "revision: {}",
}  # fmt: skip
"""The filters over entries as texts."""

GROUPS = (("", "nothing"), ("backbone", "backbone"), ("recipe", "recipe"), ("organisation", "organisation"))

FILTERS = (
    "scope", "subset", "revisions", "q", "size", "most", "view", "origin", "output", "trust", "zero",
    "licence", "language", "organisation", "tokens", "dimensions", "recipe", "backbone", "group", "each",
    "open", "instructions", "reproduced",
)  # fmt: skip
"""The filters above a table of models, in order; the others are parameters alone."""

TABLE_CHIPS = {
    **CHIPS, "zero": "zero-shot on {}", "type": "only {}", "revisions": "only on the suite’s data revisions",
    "licence": "licence {}", "subset": "subset {}",
    "instructions": "instruction-tuned", "reproduced": "reproduced by somebody", "language": "for {}",
    "memory": "at most {:g} MB",
}  # fmt: skip
"""The filters as texts."""

SHARES = {"all": "every task", "most": "over half of the tasks"}
