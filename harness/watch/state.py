"""What a watch has seen, on disk: one file in the results folder, whole after every checkpoint."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from harness.documents import DocumentFolder, DocumentKind, DocumentPart
from harness.watch.source import CheckpointSource

SCHEMA = 1
"""The schema this version writes; a newer one is refused."""

State = Literal["done", "failed", "partial", "waiting"]


class Entry(DocumentPart):
    """One checkpoint of a watch."""

    step: int
    name: str
    """The name of its folder, or of its branch or tag."""
    folder: str | None = None
    """Where it lies; None on the hub."""
    revision: str | None = None
    """The commit on the hub; None for a folder."""
    stamp: str = ""
    """Changes when a file that decides what the model computes does."""
    state: State
    reason: str = ""
    """Why it is not `done`."""
    model: str = ""
    """What its records call it."""
    artifact: str = ""
    """The ArtifactKey."""
    same_as: int | None = None
    """The step of an earlier checkpoint with the same ArtifactKey."""
    scores: Mapping[str, float] = {}
    """task → main score."""
    records: Mapping[str, str] = {}
    """task → EvaluationKey."""
    mean: float | None = None
    """Over the columns asked for; None unless all are there."""
    there: int = 0
    wanted: int = 0
    """Columns with a score, and those asked for."""
    treatment: str = ""
    """Digest of what else the scores depend on: data, scoring code, encoding, recipe."""
    evaluated: str = ""
    """When, in UTC."""
    seconds: float = 0.0
    """How long that took, over all looks."""


class ChangePoint(DocumentPart):
    """A drop of the level (harness.watch.changes)."""

    step: int
    last: int
    kind: Literal["drop", "shift"]
    size: float
    p: float


class Watch(DocumentPart):
    """A watch: what is watched, how it is evaluated, and what became of each checkpoint."""

    schema_version: int = Field(default=SCHEMA, alias="schema")
    name: str
    source: str
    """The folder, or the hub repository."""
    suite: str
    request: Mapping[str, Any]
    """The settings that decide the scores, as asked for."""
    checkpoints: tuple[Entry, ...] = ()
    """By step."""
    change_points: tuple[ChangePoint, ...] = ()

    def entry(self, step: int) -> Entry | None:
        """What is known of a step."""
        return next((one for one in self.checkpoints if one.step == step), None)

    def with_entry(self, entry: Entry) -> Watch:
        """The same with one checkpoint added, or in the place of what was known of its step."""
        others = [one for one in self.checkpoints if one.step != entry.step]
        ordered = tuple(sorted([*others, entry], key=lambda one: one.step))
        return self.model_copy(update={"checkpoints": ordered})

    @property
    def curve(self) -> tuple[Entry, ...]:
        """The complete checkpoints, by step, that were measured as the latest of them was."""
        done = [one for one in self.checkpoints if one.mean is not None]
        latest = max(done, key=lambda one: one.evaluated, default=None)
        return tuple(one for one in done if latest is not None and one.treatment == latest.treatment)

    def to_json(self) -> str:
        """The watch as it is written."""
        return json.dumps(self.model_dump(mode="json", by_alias=True), indent=1, ensure_ascii=False) + "\n"


WATCHES = DocumentFolder(
    kind=DocumentKind(
        name="watch",
        type=Watch,
        schema=SCHEMA,
        hint="Remove it and type the same command again: scores that are recorded are not measured anew.",
    ),
    folder="watches",
    then="`harness watch --list` shows them.",
    pattern=r"[A-Za-z0-9_][\w.+-]{0,99}",
)


def usual_name(source: CheckpointSource) -> str:
    """What a watch of a source is called unless said otherwise."""
    return re.sub(r"[^A-Za-z0-9_.+-]", "-", source.name).lstrip(".-+")[:100] or "watch"
