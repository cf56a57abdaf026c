"""The form of a protocol, all that a paper's tables ask of one backbone: plain data (docs/protocols.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.core.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class ProtocolStep:
    """One request of a protocol: a recipe with the suites on which its models are evaluated.

    Attributes:
        name: The name, by which columns and `--tasks` refer to it.
        request: Fields of a `Request`, as Python takes them.
        quick: The fields that are otherwise in a quick run.
        after: The step whose models its recipe starts from; empty for the backbone.
        differs: Sentences on what is otherwise than in the paper, which no recipe says itself.
        slow: Why a quick run leaves it out; empty if it does not.
    """

    name: str
    request: Mapping[str, Any]
    quick: Mapping[str, Any] = field(default_factory=dict)
    after: str = ""
    differs: tuple[str, ...] = ()
    slow: str = ""

    def __post_init__(self) -> None:
        """Refuse a step that would evaluate the models of another one as that step does."""
        if self.after and not self.request.get("recipe"):
            raise UsageError(
                f"The step {self.name} starts from the models of {self.after} and has no recipe.",
                hint=f"Give it a recipe, or name its suites in the step {self.after}.",
            )


@dataclass(frozen=True, kw_only=True)
class ProtocolColumn:
    """A column of a paper's table.

    Attributes:
        name: The name as printed.
        step: The step whose models are scored.
        suite: The suite, as the step names it.
        of: The number: "tasks" or "types" for the suite's mean over them, "type:NAME" for that of a type, or
            the name of a column of the suite.
    """

    name: str
    step: str
    suite: str
    of: str = "tasks"

    @property
    def rule(self) -> str:
        """In words, the mean that it is; empty for the score of one task."""
        if self.of in ("tasks", "types"):
            return f"the mean over {self.of}"
        return f"the mean over its {self.kind} tasks" if self.kind else ""

    @property
    def kind(self) -> str:
        """The type of tasks that it is the mean of; empty for any other number."""
        return self.of.removeprefix("type:") if self.of.startswith("type:") else ""


@dataclass(frozen=True, kw_only=True)
class ProtocolTable:
    """A table of `results/reported` in which the measured rows of a backbone stand.

    Attributes:
        paper: The name of the paper's file.
        table: The number of the table.
        columns: The columns.
        rank: The column by which rows are sorted; the last by default.
        lines: The measured rows of a backbone by their labels, each with the step that stands in for those of
            the columns; one row with the columns' own steps if empty.
    """

    paper: str
    table: str
    columns: tuple[ProtocolColumn, ...]
    rank: str = ""
    lines: Mapping[str, str] = field(default_factory=dict)

    @property
    def rank_column(self) -> ProtocolColumn:
        """The column by which rows are sorted."""
        return next((one for one in self.columns if one.name == self.rank), self.columns[-1])


@dataclass(frozen=True, kw_only=True)
class ProtocolEntry:
    """A protocol in the catalog, the `PROTOCOL` of a file in finetune/protocols/."""

    name: str
    summary: str
    steps: tuple[ProtocolStep, ...]
    tables: tuple[ProtocolTable, ...]
