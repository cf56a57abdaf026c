"""The state of a watch: one file in the results folder, and the scores of the records that it names.

The file has decisions and the keys of records, and no score: `read_watch` takes these from the records each
time, so that no copy can differ from them.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from harness.core.documents import DocumentFolder, DocumentKind, DocumentPart
from harness.core.errors import RecordError
from harness.core.terminal import shorten_names
from harness.results.scores import Mean, collect_raw_metrics
from harness.storage.record import Record
from harness.storage.store import Store, format_task_folder
from harness.watch.source import LARGEST_STEP, CheckpointSource

SCHEMA = 3
"""The schema that this version writes; a newer one is refused."""

SETTLED = 3
"""Low checkpoints in a row after which the low level counts as the new one."""

State = Literal["done", "failed", "partial", "waiting", "lost"]
"""A checkpoint is `lost`, which no file says, if records that its entry names cannot be read any more."""

Key: TypeAlias = Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]
Stamp: TypeAlias = tuple[int, int, int]
"""The size, time and inode of a file."""
Metrics: TypeAlias = tuple[tuple[str, str | None, str], ...]
"""Raw metrics of a record as (split, subset, metric); without a subset the mean over all of them."""


class ColumnPart(DocumentPart):
    """A task's number in a column of a suite: the mean of raw metrics, without any the main score."""

    task: str
    metrics: Metrics = ()


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

    step: Annotated[int, Field(le=LARGEST_STEP)]
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
    artifact: Key = ""
    """The ArtifactKey: of the model that a recipe makes of it, where one does."""
    backbone: Key = ""
    """The ArtifactKey of the checkpoint itself, where a recipe makes a model of it."""
    same_as: int | None = None
    """The step of an earlier checkpoint with the same ArtifactKey."""
    # No file has what is excluded: it is read from the records each time.
    scores: Mapping[str, float] = Field(default={}, exclude=True)
    """task → main score."""
    records: Mapping[str, Key] = {}
    """task → EvaluationKey."""
    mean: float | None = Field(default=None, exclude=True)
    """The mean over the requested columns; None unless all are there."""
    there: int = Field(default=0, exclude=True)
    wanted: int = 0
    """The number of columns with a score, and of requested columns."""
    columns: tuple[tuple[ColumnPart, ...], ...] | None = ()
    """The requested columns, each the mean of its parts; empty where each is the main score of one task, and
    None in files from before schema 3 that do not tell them."""
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

    def dump_output(self) -> dict[str, Any]:
        """The entry as JSON values for output, with its scores."""
        scores = {"scores": dict(self.scores), "mean": self.mean, "there": self.there}
        return self.model_dump(mode="json") | scores


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

    @property
    def lost(self) -> tuple[WatchEntry, ...]:
        """The checkpoints with scores that are gone."""
        return tuple(one for one in self.checkpoints if one.state == "lost")

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

    def dump_output(self) -> dict[str, Any]:
        """The watch as JSON values for output, with its scores."""
        checkpoints = [entry.dump_output() for entry in self.checkpoints]
        return self.model_dump(mode="json", by_alias=True, exclude={"checkpoints"}) | {
            "checkpoints": checkpoints
        }


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


def _migrate_scores(watch: dict[str, Any]) -> dict[str, Any]:
    """A watch of schema 2 in the form of schema 3: scores and means are those of the records."""
    checkpoints = [_migrate_entry_scores(entry) for entry in watch.get("checkpoints", ())]
    return {**watch, "checkpoints": checkpoints}


def _migrate_entry_scores(entry: dict[str, Any]) -> dict[str, Any]:
    kept = dict(entry)
    scores, mean, there = (kept.pop(name, None) for name in ("scores", "mean", "there"))
    numbers = list((scores or {}).values())
    # Schema 2 did not say what the mean is over: a column may have several tasks, or a part of one.
    plain = (there or 0) == len(numbers) and (mean is None or abs(mean - fmean(numbers or [mean])) < 1e-9)
    return kept if plain else {**kept, "columns": None}


WATCHES = DocumentFolder(
    kind=DocumentKind(
        name="watch",
        type=Watch,
        schema=SCHEMA,
        migrations={1: _migrate_recipe_settings, 2: _migrate_scores},
        hint="Remove it and type the same command again: recorded scores are reused.",
        digest_since=3,
    ),
    folder="watches",
    then="`harness watch FOLDER --suite SUITE` begins one, and `harness watch --list` shows all.",
    pattern=r"[A-Za-z0-9_][\w.+-]{0,99}",
    hint="Give one of letters, digits, dots, hyphens and underscores with --name.",
)


def choose_watch_name(source: CheckpointSource) -> str:
    """The name of a watch of a source, unless a user gives another."""
    return re.sub(r"[^A-Za-z0-9_.+-]", "-", source.name).lstrip(".-+")[:100] or "watch"


def read_watch(results: Path, name: str) -> Watch:
    """A watch as everything shows it: its file, with the scores of the records that it names.

    Args:
        results: The results folder.
        name: The name of the watch.

    Raises:
        UsageError: No watch has this name.
        RecordError: Its file cannot be read, was changed, or is of a newer schema.
    """
    return read_scores(WATCHES.find_document(results, name), results)


def read_scores(watch: Watch, results: Path) -> Watch:
    """A watch with the scores of its records, and its checkpoints `lost` where they are gone or damaged."""
    # One listing for all: a folder of each model, of which there may be thousands.
    folders = _list_record_folders(results)
    entries = tuple(_read_entry_scores(entry, folders) for entry in watch.checkpoints)
    return watch.model_copy(update={"checkpoints": entries})


def read_entry_scores(entry: WatchEntry, results: Path) -> WatchEntry:
    """The same for one checkpoint."""
    return _read_entry_scores(entry, _list_record_folders(results))


def _read_entry_scores(entry: WatchEntry, folders: Mapping[str, Sequence[Path]]) -> WatchEntry:
    columns = entry.columns or tuple((ColumnPart(task=task),) for task in entry.records)
    numbers = _read_entry_numbers(entry, columns, folders)
    values = [
        Mean.compute_mean("parts", [numbers.get(part.task, {}).get(part.metrics) for part in column]).whole
        for column in columns
    ]
    mean = Mean.compute_mean("columns", values)
    scores = {task: score for task, read in numbers.items() if (score := read[()]) is not None}
    complete = entry.state == "done" and entry.columns is not None and mean.there == entry.wanted
    found = {"scores": scores, "there": mean.there, "mean": mean.value if complete else None}
    entry = entry.model_copy(update=found)
    return entry.model_copy(update=_explain_lost_scores(entry, entry.records.keys() - numbers.keys()))


def _explain_lost_scores(entry: WatchEntry, gone: Set[str]) -> dict[str, str]:
    """The state and the reason of a checkpoint whose scores are not what they were; empty for others."""
    if not gone and (entry.state != "done" or entry.mean is not None):
        return {}
    if entry.columns is None and not gone:
        return {"reason": "its file is too old to tell the columns of the mean; type the same command again"}
    reason = f"scores of step {entry.step} are gone: {shorten_names(sorted(gone)) if gone else 'all'}"
    # A revision on the hub is not looked for: nothing that only shows a watch asks the network.
    if entry.folder is not None and not os.path.isdir(entry.folder):
        reason += "; its checkpoint is not there any more, so they cannot be measured again"
    return {"state": "lost", "reason": reason}


def _read_entry_numbers(
    entry: WatchEntry, columns: Sequence[Sequence[ColumnPart]], folders: Mapping[str, Sequence[Path]]
) -> dict[str, Mapping[Metrics, float | None]]:
    """The main scores of a checkpoint's records, and what its columns need of them; none of what is gone."""
    wanted: dict[str, tuple[Metrics, ...]] = dict.fromkeys(entry.records, ((),))
    for part in (part for column in columns for part in column if part.task in wanted):
        wanted[part.task] += (part.metrics,)
    read = {
        task: _read_numbers(path, stamp, wanted[task])
        for task, path, stamp in _locate_entry_records(entry, folders)
    }
    return {task: numbers for task, numbers in read.items() if numbers is not None}


def _list_record_folders(results: Path) -> Mapping[str, Sequence[Path]]:
    """The folders of records by the start of the ArtifactKey at the end of their names."""
    folders: dict[str, list[Path]] = {}
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for folder in sorted((results / "records").iterdir()):
            folders.setdefault(folder.name.rpartition("-")[2], []).append(folder)
    return folders


def _locate_entry_records(
    entry: WatchEntry, folders: Mapping[str, Sequence[Path]]
) -> Iterator[tuple[str, str, Stamp]]:
    """The tasks of a checkpoint's records that have a file, each with its path and its stamp."""
    # With recipes of both kinds, some records are of the checkpoint and some of the model made of it.
    places = [folder for key in (entry.artifact, entry.backbone) for folder in folders.get(key[:12], ())]
    for task, key in entry.records.items():
        for folder in places:
            path = f"{folder}/{format_task_folder(task)}/{key}.json"
            with contextlib.suppress(OSError):
                facts = os.stat(path)
                yield task, path, (facts.st_size, facts.st_mtime_ns, facts.st_ino)
                break


# A watch that runs for days reads its records again at every look: those that are as they were are kept.
@functools.lru_cache(maxsize=2**17)
def _read_numbers(
    path: str, _stamp: Stamp, wanted: tuple[Metrics, ...]
) -> Mapping[Metrics, float | None] | None:
    """Numbers of a record in a file; None if it is gone, damaged, or none that counts."""
    try:
        record = Store.read_record(Path(path))
    except RecordError as error:
        logging.getLogger(__name__).warning("%s", error.message)
        return None
    if record is None or record.purpose == "trial":
        return None
    return {metrics: _compute_number(record, metrics) for metrics in wanted}


def _compute_number(record: Record, metrics: Metrics) -> float | None:
    """The mean of some raw metrics of a record, None unless all are there; without any its main score."""
    if not metrics:
        return record.main_score
    means = collect_raw_metrics(record)
    values = [
        means.get((split, name)) if subset is None else record.scores.get(split, {}).get(subset, {}).get(name)
        for split, subset, name in metrics
    ]
    return Mean.compute_mean("metrics", values).whole


def stamp_records(watch: Watch, results: Path) -> str:
    """A digest that changes with any file of a record that a watch names; no file is opened."""
    folders = _list_record_folders(results)
    stamps = [[*_locate_entry_records(entry, folders)] for entry in watch.checkpoints]
    return hashlib.sha256(repr(stamps).encode()).hexdigest()[:16]
