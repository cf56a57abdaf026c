"""Entries: models with scores, as sources give them and as pages see them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from math import inf
from typing import Any, Literal

from harness.core.keys import Lineage
from harness.results.scores import NamedModel
from harness.storage.record import APPROXIMATE
from leaderboard.data.suites import Raw, format_slug

Origin = Literal["measured", "imported", "reported"]

Trust = Literal["measured", "commit", "external", "none", "other", "reported"]
"""How far a score's model is known: measured here; pinned to a commit; stated by its makers; without a
known revision; with a revision that is no commit; printed in a paper."""


TRUST: tuple[Trust, ...] = ("measured", "commit", "other", "external", "none", "reported")
"""From the best known model to the least known."""

SIZES: Mapping[str, tuple[float, float]] = {
    "small": (0, 60e6), "base": (60e6, 200e6), "large": (200e6, 600e6), "xl": (600e6, 2e9),
    "xxl": (2e9, float("inf")),
}  # fmt: skip
"""Size classes by number of parameters, from (in) and to (out)."""


@cache
def find_size_class(number: int | None) -> str:
    """The size class of a number of parameters.

    >>> find_size_class(110_000_000), find_size_class(None)
    ('base', '')
    """
    matches = (name for name, (low, high) in SIZES.items() if number is not None and low <= number < high)
    return next(matches, "")


def format_seeds(seeds: Sequence[int]) -> str:
    """Seeds in words.

    >>> format_seeds([1]), format_seeds([1, 2, 3])
    ('seed 1', '3 seeds: 1, 2, 3')
    """
    listed = ", ".join(map(str, seeds))
    return f"{len(seeds)} seeds: {listed}" if len(seeds) > 1 else f"seed {listed}"


def extract_letters(text: str) -> str:
    """Letters and digits alone: names as people type them differ in signs and capitals.

    >>> extract_letters("BAAI/bge-M3")
    'baaibgem3'
    """
    return "".join(sign for sign in text.casefold() if sign.isalnum())


@dataclass(frozen=True, kw_only=True, slots=True)
class _EntryFacts:
    """Facts of an entry that sources give and pages show; `lineage` says what a recipe made it from."""

    model: str
    origin: Origin
    source: str
    trust: Trust
    treatment: str = ""
    revision: str | None = None
    artifact: str | None = None
    recipe: str | None = None
    output: str = "vector"
    parameters: int | None = None
    dimension: int | None = None
    max_tokens: int | None = None
    tokens_unlimited: bool = False
    released: str | None = None
    open_weights: bool | None = None
    adapted_from: str | None = None
    lineage: Lineage | None = None
    folder: str | None = None
    """The end of the path of a measured model's folder, empty where it is not known; None for any other."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry(_EntryFacts):
    """One thing with scores, as pages see it.

    Entries of one `group` differ only in the seed of their training or in the revision of an imported
    model. One more stands for all `seeds` or `revisions`, and they are its members.
    """

    id: int
    slug: str
    model_slug: str
    trained_on: frozenset[str] | None
    newest: str | None
    tasks: int
    group: str | None = None
    seeds: tuple[int, ...] = ()
    revisions: tuple[str, ...] = ()
    member: bool = False

    @property
    def of_seeds(self) -> bool:
        """Whether it stands for several seeds of a training."""
        return len(self.seeds) > 1

    @property
    def approximate(self) -> bool:
        """Whether its scores are from an approximate search."""
        return f", {APPROXIMATE} (" in self.treatment

    @property
    def modified(self) -> bool:
        """Whether a recipe trained it for each task with other settings than its own."""
        return f"{self.recipe}, modified: " in self.treatment

    def is_row(self, *, revisions: bool) -> bool:
        """Whether tables have a row of it: none of seeds, of single revisions only where asked for."""
        return not self.revisions if revisions and self.origin == "imported" else not self.member

    @property
    def size(self) -> str:
        """The size class, empty where the number of parameters is not known."""
        return find_size_class(self.parameters)

    @property
    def length(self) -> float | None:
        """The most tokens of an input, infinite where there is no limit; None where it is not known."""
        return inf if self.tokens_unlimited else self.max_tokens

    @property
    def organisation(self) -> str:
        """The part of the model's name before its slash."""
        return self.model.rpartition("/")[0] if self.folder is None else ""

    @property
    def short_name(self) -> str:
        """The model's name without its organisation; that of a folder is whole."""
        return self.model.removeprefix(f"{self.organisation}/") or self.model

    @property
    def lasting_slug(self) -> str:
        """The model's name in URLs that every checkpoint keeps: without the digest that it may have."""
        return re.sub(r"-[0-9a-f]{8}$", "", self.model_slug)

    @property
    def typed_names(self) -> tuple[str, str]:
        """The letters of its lasting name, with and without organisation."""
        return extract_letters(self.lasting_slug), extract_letters(self.lasting_slug.rpartition("--")[2])

    @property
    def named(self) -> NamedModel:
        """Its name, with what tells it from another model of the same name."""
        # The page of a model is that of all its revisions and seeds: what has one page has one name.
        local = self.folder is not None or self.lineage is not None
        key = self.lineage.group if self.lineage else self.artifact
        return NamedModel(
            name=self.model, key=key if local and key else "", folder=self.folder or "", shared=local
        )

    @property
    def backbone(self) -> str:
        """The model that it was made of, by its makers' own account; else the model itself."""
        return self.adapted_from or self.model

    @property
    def lineage_text(self) -> str:
        """What a recipe made its model of, under which seeds, and the treatment; empty for any other."""
        if self.lineage is None:
            return ""
        parents = " and ".join(parent.text for parent in self.lineage.parents)
        chosen = [self.lineage.choices_text] if self.lineage.choices else []
        recipe = f"{self.lineage.text} on {parents}"
        return "; ".join([recipe, *chosen, format_seeds(self.seeds), self.treatment])


def compute_precedence(entry: Entry) -> tuple[bool, int, int, bool, str]:
    """The order of entries of one model, the highest first: no members, trust, tasks, exact, the newest."""
    exact, newest = not entry.approximate, entry.newest or ""
    return (not entry.member, -TRUST.index(entry.trust), entry.tasks, exact, newest)


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskNumber:
    """A task's number by a convention, with its interval where predictions are kept."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class EntryOutcome:
    """One task's outcome.

    Attributes:
        data: Revision or content hash of its data; empty where nothing proves one.
        numbers: By the name of a convention, where a recipe trained for the task.
        key: The EvaluationKey of a record.
        document: The whole of it as JSON.
        half: Half of the 95 % interval of a score over few examples; None for any other.
        trained_on: How many of the task's texts the model was trained on; None where nobody counted.
    """

    task: str
    type: str
    metric: str
    status: Literal["done", "failed"]
    value: float | None
    data: str
    raw: Raw
    document: str
    numbers: Mapping[str, TaskNumber] = field(default_factory=dict)
    key: str | None = None
    written: str | None = None
    trained_on: int | None = None
    half: float | None = None


@dataclass(frozen=True, kw_only=True)
class NewEntry(_EntryFacts):
    """One thing with scores: a model, its revision, and how it was measured.

    `averages` are (suite's slug, convention, document as JSON).
    """

    trained_on: Sequence[str] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    outcomes: Sequence[EntryOutcome] = ()
    averages: Sequence[tuple[str, str, str]] = ()

    @cached_property
    def group(self) -> str | None:
        """What entries that differ only in the seed of their training share; None without a training."""
        if self.lineage is None:
            return None
        # The recipe of the model itself goes by several names (variants); the lineage identifies it.
        recipe = None if self.recipe == self.lineage.name else self.recipe
        return _digest(self.lineage.group, recipe, self.treatment)

    @cached_property
    def model_slug(self) -> str:
        """The model's name in URLs; with a digest if other models may have it, or if it lost letters."""
        plain = format_slug(self.model.replace("/", "--"))[:120]
        lost = plain != self.model.replace("/", "--") or "--" in self.model
        digest = _digest(self.model) if lost else ""
        # The name of a folder, which other folders may have, too.
        if self.artifact and "/" not in self.model:
            digest = self.artifact
        # The group is the lineage without its seed: all seeds are one model.
        if self.lineage:
            digest = self.lineage.group
        return "-".join(filter(None, (plain, digest[:8])))

    @cached_property
    def slug(self) -> str:
        """The entry's name in URLs."""
        # Links from elsewhere hold this name: another list of parts here would break all of them.
        what = _digest(self.origin, self.source, self.revision, self.artifact, self.treatment)[:8]
        return f"{self.model_slug}-{what}"


@dataclass(frozen=True, kw_only=True)
class StoredDocument:
    """A document of a results folder: its name in URLs, what lists show of it, and the whole as JSON."""

    kind: Literal["check", "watch", "note", "curves", "grid", "fit"]
    name: str
    written: str
    facts: Mapping[str, Any]
    document: str


@dataclass(frozen=True, kw_only=True)
class Unit:
    """The files that the index reads or drops together; `stamp` changes whenever one of them does.

    Those of an artifact are its `records`, which another process can read as well.
    """

    source: str
    name: str
    stamp: str
    read: Callable[[], Sequence[NewEntry | StoredDocument]]
    records: Sequence[str] = ()


def _digest(*parts: object) -> str:
    # repr tells None from "None", and ("ab", "c") from ("a", "bc").
    return hashlib.sha256(repr(parts).encode()).hexdigest()
