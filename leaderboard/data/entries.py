"""What is found in folders, on its way into the index."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from harness.lineage import Lineage
from leaderboard.data.suites import Raw, slug

Origin = Literal["measured", "imported", "reported"]

Trust = Literal["measured", "commit", "external", "none", "other", "reported"]
"""How far a score's model is known: measured here; of a pinned commit; told by its makers; of no
known revision; of a revision that is no commit; printed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Number:
    """A task's number by a convention, with its interval where predictions are kept."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """One task's outcome.

    Attributes:
        task: Its name.
        type: Its type; empty where nobody knows it.
        metric: Name of the main metric; empty likewise.
        status: "done" or "failed".
        value: Its main score.
        data: Revision or content hash of its data; empty where nothing proves one.
        raw: Main scores by split and subset.
        numbers: By the name of a convention, where a recipe trained for the task.
        key: The EvaluationKey of a record.
        written: When, ISO 8601.
        document: The whole of it as JSON.
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
    numbers: Mapping[str, Number] = field(default_factory=dict)
    key: str | None = None
    written: str | None = None
    trained_on: int | None = None


@dataclass(frozen=True, kw_only=True)
class NewEntry:
    """One thing with scores: a model, its revision, and how it was measured.

    `averages` are (suite's slug, convention, document as JSON), `lineage` is what a recipe made the model of.
    """

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
    released: str | None = None
    open_weights: bool | None = None
    adapted_from: str | None = None
    trained_on: Sequence[str] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    outcomes: Sequence[Outcome] = ()
    averages: Sequence[tuple[str, str, str]] = ()
    lineage: Lineage | None = None

    @property
    def group(self) -> str | None:
        """What entries that differ only in the seed of their training share; None without a training."""
        if self.lineage is None:
            return None
        recipe = (
            None if self.recipe == self.lineage.name else self.recipe
        )  # one has several names by variants
        return _digest(self.lineage.group, recipe, self.treatment)

    @property
    def model_slug(self) -> str:
        """The model's name in URLs; with a digest where it is not one model's alone, or lost letters."""
        plain = slug(self.model.replace("/", "--"))[:120]
        lost = plain != self.model.replace("/", "--") or "--" in self.model
        if self.lineage:  # one model under all its seeds
            return f"{plain}-{self.lineage.group[:8]}".lstrip("-")
        if self.artifact and "/" not in self.model:  # a folder's name: there may be others of that name
            return f"{plain}-{self.artifact[:8]}".lstrip("-")
        return f"{plain}-{_short(self.model)}".lstrip("-") if lost else plain

    @property
    def slug(self) -> str:
        """The entry's name in URLs."""
        what = _short(self.origin, self.source, self.revision, self.artifact, self.treatment)
        return f"{self.model_slug}-{what}"


@dataclass(frozen=True, kw_only=True)
class StoredDocument:
    """A document that is shown as it is: a check, or the state of a watch.

    Attributes:
        kind: Which of these.
        name: In URLs; unique among its kind.
        written: When, ISO 8601.
        facts: What lists show of it.
        document: The whole of it as JSON.
    """

    kind: Literal["check", "watch"]
    name: str
    written: str
    facts: Mapping[str, Any]
    document: str


@dataclass(frozen=True, kw_only=True)
class Unit:
    """What is taken in or dropped as a whole; `stamp` changes whenever its files do."""

    source: str
    name: str
    stamp: str
    read: Callable[[], Sequence[NewEntry | StoredDocument]]


def _short(*parts: object) -> str:
    return _digest(*parts)[:8]


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()
