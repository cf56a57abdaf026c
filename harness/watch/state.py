"""The state of a watch on disk: one file in the results folder, whole after every checkpoint."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from harness.core.documents import DocumentFolder, DocumentKind, DocumentPart
from harness.watch.source import CheckpointSource

SCHEMA = 2
"""The schema that this version writes; a newer one is refused."""

SETTLED = 3
"""Low checkpoints in a row after which the low level counts as the new one."""

State = Literal["done", "failed", "partial", "waiting"]


class Look(DocumentPart):
    """The test of a checkpoint's mean against an earlier checkpoint's (harness.watch.changes)."""

    number: int
    """Counted from 1 over the whole watch; 0 where the outputs are the same and nothing was tested."""
    reference: int
    """The step of the earlier checkpoint."""
    delta: float
    """The checkpoint's mean minus the earlier one's, over the tested columns."""
    low: float
    high: float
    """Bounds of the true difference, each one-sided at the level."""
    p: float
    """The p-value of "not lower than the earlier one"."""
    level: float
    """The chance of a false alarm that this look spends."""
    verdict: Literal["lower", "not lower", "same"]
    columns: int
    wanted: int
    """The number of tested columns, and of those in the suite's mean."""


class WatchEntry(DocumentPart):
    """A checkpoint of a watch."""

    # The site draws curves in JavaScript, whose whole numbers are exact up to 2**53.
    step: Annotated[int, Field(le=2**53)]
    name: str
    """The name of its folder, or of its branch or tag."""
    folder: str | None = None
    """The path of its folder; None on the hub."""
    revision: str | None = None
    """The commit on the hub; None for a folder."""
    stamp: str = ""
    """A digest that changes with every file that decides what the model computes."""
    state: State
    reason: str = ""
    """The reason why it is not `done`."""
    model: str = ""
    """The model's name in its records."""
    artifact: str = ""
    """The ArtifactKey: of the model that a recipe makes of it, where one does."""
    backbone: str = ""
    """The ArtifactKey of the checkpoint itself, where a recipe makes a model of it."""
    same_as: int | None = None
    """The step of an earlier checkpoint with the same ArtifactKey."""
    scores: Mapping[str, float] = {}
    """task → main score."""
    records: Mapping[str, str] = {}
    """task → EvaluationKey."""
    mean: float | None = None
    """The mean over the requested columns; None unless all are there."""
    there: int = 0
    wanted: int = 0
    """The number of columns with a score, and of requested columns."""
    treatment: str = ""
    """The digest of the condition: data, scoring code, encoding, recipe."""
    evaluated: str = ""
    """The time of the evaluation, in UTC."""
    seconds: float = 0.0
    """The time that evaluation took, over all scans."""
    look: Look | None = None
    """Its test against an earlier checkpoint; None for the first one of a curve and without scores."""
    untested: str = ""
    """The reason why it was not tested."""


class ChangePoint(DocumentPart):
    """A drop in the level of a curve (harness.watch.changes)."""

    step: int
    last: int
    """The steps from which on it is lower, and where it was last seen."""
    kind: Literal["drop", "shift"]
    """A drop is of a checkpoint on arrival, a shift of the level with hindsight."""
    size: float
    """The distance below the expected score, above 0."""
    p: float
    """The probability by chance: of a checkpoint for a drop, of a curve for a shift."""


class Watch(DocumentPart):
    """A watch: its source, the settings of its evaluations, and an entry for each checkpoint."""

    schema_version: int = Field(default=SCHEMA, alias="schema")
    name: str
    source: str
    """The folder, or the hub repository."""
    suite: str
    request: Mapping[str, Any]
    """The settings that decide the scores, as requested."""
    checkpoints: tuple[WatchEntry, ...] = ()
    """The entries by step."""
    change_points: tuple[ChangePoint, ...] = ()
    looks: int = 0
    """The number of tests so far, of which each has spent its level."""

    def find_entry(self, step: int) -> WatchEntry | None:
        """The entry of a step."""
        return next((one for one in self.checkpoints if one.step == step), None)

    def add_entry(self, entry: WatchEntry) -> Watch:
        """The watch with an entry added, or put in place of the former entry of its step."""
        others = [one for one in self.checkpoints if one.step != entry.step]
        ordered = tuple(sorted([*others, entry], key=lambda one: one.step))
        return self.model_copy(update={"checkpoints": ordered})

    @property
    def curve(self) -> tuple[WatchEntry, ...]:
        """The complete checkpoints, by step, under the same condition as the latest of them."""
        done = [one for one in self.checkpoints if one.mean is not None]
        # By time, not step: a curve goes on under the condition that is used now, even for an old checkpoint.
        latest = max(done, key=lambda one: one.evaluated, default=None)
        return tuple(one for one in done if latest is not None and one.treatment == latest.treatment)

    @property
    def lower(self) -> tuple[WatchEntry, ...]:
        """The checkpoints of the curve that are lower than the one they are compared with."""
        return tuple(one for one in self.curve if one.look is not None and one.look.verdict == "lower")

    def find_reference(self, step: int) -> WatchEntry | None:
        """The checkpoint that one at a step is compared with: the last earlier one that was not lower.

        After SETTLED low ones in a row the last of them is, as the low level counts as the new one.
        """
        reference, low = None, 0
        for entry in self.curve:
            if entry.step < step:
                low = low + 1 if entry.look is not None and entry.look.verdict == "lower" else 0
                if low in (0, SETTLED):
                    reference, low = entry, 0
        return reference

    def to_json(self) -> str:
        """The text of the watch's file."""
        return json.dumps(self.model_dump(mode="json", by_alias=True), indent=1, ensure_ascii=False) + "\n"


def _migrate_recipe_settings(watch: dict[str, Any]) -> dict[str, Any]:
    """A watch of schema 1 in the form of schema 2: settings of GLUE become settings of the recipe."""
    request = dict(watch.get("request", {}))
    options = request.pop("recipe_options", {})
    changed = {
        "fresh_seeds": options.get("fresh_seeds"),
        "transfer": None if options.get("transfer", True) else "false",
        "mnli": options.get("source"),
    }
    settings = {name: str(value) for name, value in changed.items() if value is not None}
    recipe = [request["recipe"]] if request.get("recipe") else []
    return {**watch, "request": {**request, "recipe": recipe, "recipe_settings": settings}}


WATCHES = DocumentFolder(
    kind=DocumentKind(
        name="watch",
        type=Watch,
        schema=SCHEMA,
        migrations={1: _migrate_recipe_settings},
        hint="Remove it and type the same command again: recorded scores are reused.",
    ),
    folder="watches",
    then="`harness watch --list` shows them.",
    pattern=r"[A-Za-z0-9_][\w.+-]{0,99}",
    hint="Give one of letters, digits, dots, hyphens and underscores with --name.",
)


def choose_watch_name(source: CheckpointSource) -> str:
    """The name of a watch of a source, unless a user gives another."""
    return re.sub(r"[^A-Za-z0-9_.+-]", "-", source.name).lstrip(".-+")[:100] or "watch"
