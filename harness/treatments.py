"""How a model was measured: what two records must share to stand in one mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from typing import Any, Protocol

from harness.identity import data_identity
from harness.record import Record
from harness.types import SEED, Task, prompt_for


class Treatment(Protocol):
    """How a model was measured: what two records must share to stand in one mean."""

    @property
    def text(self) -> str:
        """The treatment in a few words."""
        ...

    @property
    def rank(self) -> tuple[Any, ...]:
        """What puts treatments of as many tasks in order."""
        ...

    def fits(self, record: Record, task: Task) -> bool:
        """Whether `record` is what this treatment gives on `task`."""
        ...


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A recipe, with what a user asked of it.

    `protocol` is the digest of all its settings; `kind` says what the seeds behind a score are
    (results/README.md). `start` says what tasks started from that a protocol starts from another
    one; None of those that it does not, which every start has.
    """

    recipe: str
    protocol: str
    kind: str
    view: str
    final_seeds: tuple[int, ...]
    fresh_seeds: tuple[int, ...]
    start: Mapping[str, Any] | None
    scoring: str

    @property
    def text(self) -> str:
        """The recipe and its seeds."""
        seeds = [f"fresh seeds {seeds_text(self.fresh_seeds)}"] if self.fresh_seeds else []
        content = str((self.start or {}).get("content", ""))[:8]
        start = {"backbone": ["no transfer"], "checkpoint": [f"started from the checkpoint {content}"]}
        if self.kind == "maximum":
            seeds = ["the grid's maximum"]
        return ", ".join([self.recipe, *seeds, *start.get((self.start or {}).get("from", ""), [])])

    @property
    def rank(self) -> tuple[Any, ...]:
        """After finished models, by name."""
        return (1, False, self.text)

    def fits(self, record: Record, task: Task) -> bool:
        """Whether `record` is what this treatment gives on `task`."""
        if "recipe" not in record.identity or task.output != "label":
            return False
        own = trained_of(record)
        alike = replace(own, start=self.start) == self and own.start in (None, self.start)
        data = task.data.content == "" or record.identity["data"] == data_identity(task.data)
        same = record.task.name == task.name and record.identity["scoring"] == task.source.scoring
        return same and alike and data and record.identity["splits"] == sorted(task.splits)


def seeds_text(seeds: Sequence[int]) -> str:
    """Seeds that follow one another, in short.

    >>> seeds_text((42001, 42002, 42003)), seeds_text((7,))
    ('42001–42003', '7')
    """
    return str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]}–{seeds[-1]}"


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """How a finished model was measured.

    `encoding` is the part of the identity of that name; `prompts` are all that were given, of
    which a task applies one for each of its sides.
    """

    encoding: Mapping[str, Any]
    prompts: Mapping[str, str]
    default_prompt: str | None
    seed: int
    scoring: str

    @property
    def text(self) -> str:
        """The treatment in a few words."""
        named = [f"{name} prompt {text!r}" for name, text in self.prompts.items() if text]
        if len(named) > 4:
            named = [f"{len(named)} prompts"]
        seed = [] if self.seed == SEED else [f"seed {self.seed}"]
        return ", ".join([how_text(self.encoding), *named, *seed])

    @property
    def rank(self) -> tuple[Any, ...]:
        """Full precision first, then by the text."""
        return (0, self.encoding["dtype"] != "float32", self.text)

    def fits(self, record: Record, task: Task) -> bool:
        """Whether `record` is what this treatment gives on `task`."""
        applied = {r: prompt_for(task, r, self.prompts, self.default_prompt) for r in task.roles}
        wanted = {
            "task": task.name,
            "splits": sorted(task.splits),
            "subsets": sorted(task.subsets),
            "encoding": self.encoding,
            "prompts": applied,
            "seed": self.seed,
            "scoring": self.scoring,
        }
        if task.data.content:
            wanted["data"] = data_identity(task.data)
        return all(record.identity.get(name) == value for name, value in wanted.items())


def how_text(encoding: Mapping[str, Any]) -> str:
    """An identity's encoding in a few words.

    >>> how_text({"dtype": "float32", "max_length": 256, "normalize": True, "output": "vector",
    ...           "pooling": "mean", "similarity": "cosine"})
    'mean pooling, normalized, 256 tokens, float32, cosine'
    """
    rest = dict(encoding)
    parts = [
        f"{rest.pop('pooling')} pooling",
        *(["normalized"] if rest.pop("normalize", False) else []),
        f"{rest.pop('max_length')} tokens",
        rest.pop("dtype"),
        rest.pop("similarity"),
    ]
    if rest.get("output") == "vector":
        rest.pop("output")
    return ", ".join([*parts, *(f"{name} {value}" for name, value in rest.items())])


def treatment_of(record: Record) -> Treatment:
    """The treatment under which a record was made."""
    if "recipe" in record.identity:
        return trained_of(record)
    asked = record.provenance.get("prompts_asked", {})
    return Encoded(
        encoding=record.identity["encoding"],
        prompts=asked.get("named", {}),
        default_prompt=asked.get("default"),
        seed=record.identity["seed"],
        scoring=record.identity["scoring"],
    )


def trained_of(record: Record) -> Trained:
    """The recipe, and what was asked of it, under which a record was made."""
    identity = record.identity
    return Trained(
        recipe=identity["recipe"],
        protocol=identity.get("protocol", ""),
        kind=identity.get("kind", ""),
        view=identity["view"],
        final_seeds=tuple(identity["final_seeds"]),
        fresh_seeds=tuple(identity["fresh_seeds"]),
        start=identity.get("start"),
        scoring=identity["scoring"],
    )


def treatment_json(treatment: Treatment) -> dict[str, Any]:
    """A treatment as plain values (docs/json.md)."""
    assert is_dataclass(treatment)
    return asdict(treatment)
