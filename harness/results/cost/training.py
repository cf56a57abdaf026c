"""The cost of trainings, by past ones or by operations, and of fine-tuning runs, by measured steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from harness.core.lineage import Lineage, ModelDocument
from harness.data.training.sets import LocatedTraining
from harness.results.cost.duration import LIKELY, Device, TimeRange, is_same_device
from harness.results.cost.encoding import CHARACTERS_PER_TOKEN, PastWork

COUNTS = ("epochs", "max_steps", "seed", "warmup", "checkpoint_minutes")
"""The settings of a training that change how many steps it has, and not how long one takes."""

TRAINING_SHARE = 0.5
"""The operations a second of a training as a share of those of encoding: it has smaller batches."""

TRAINING_START = 10.0
"""The seconds of a training beside its steps: its process, its data, and the model that it writes."""

USUAL_TOKENS = 32.0
"""The tokens of a text for training where its file does not say how long it is."""


@dataclass(frozen=True, kw_only=True)
class TrainingCost:
    """A planned training and its expected cost, None where unknown.

    Attributes:
        model, key, folder: The model's name, its ArtifactKey, and the folder where it will lie.
        recipe, seed: What it is made with.
        parent: The model that it starts from.
        state: "there", "to do", "to go on" with a training that was interrupted, "diverged", or "to
            choose" in a sweep.
        steps, texts: Optimizer steps, and texts that are encoded.
        done: The steps that an interrupted training has in its checkpoint or log.
        operations: The budget of a training that has one.
        seconds: Of the whole training, between `low` and `high`.
        source: What they were learnt from.
        data: The names of the training data.
        notes: What the recipe says of it, and what it assumes.
    """

    model: str
    key: str
    folder: str
    recipe: str
    seed: int
    parent: str
    state: str
    steps: int | None
    texts: int | None
    done: int
    operations: float | None = None
    seconds: float | None
    low: float | None = None
    high: float | None = None
    source: str = ""
    data: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def time_left(self) -> TimeRange | None:
        """The time of the steps that are left; None where it is unknown."""
        if self.seconds is None or self.low is None or self.high is None:
            return None
        left = 1 - self.done / self.steps if self.steps else 1.0
        full_time = TimeRange(seconds=self.seconds, low=self.low, high=self.high)
        return full_time.split_time(1 / left) if left > 0 else TimeRange()


@dataclass(frozen=True, kw_only=True)
class _PastTraining:
    """A finished training: what it was, its texts and the seconds of its steps, and those of the rest."""

    lineage: Lineage
    device: Device
    texts: float
    seconds: float
    others: float

    @staticmethod
    def from_document(document: ModelDocument) -> _PastTraining | None:
        """The training of a model; None where its document does not say how long it took."""
        facts = document.training
        texts, seconds = facts.get("texts"), facts.get("seconds")
        if not texts or not seconds:
            return None
        device = facts.get("device", {})
        try:
            # What is left of the whole time is that of the process, of its data, and of the model that it
            # writes.
            began, ended = (datetime.fromisoformat(facts[name]) for name in ("started", "written"))
            others = max(0.0, (ended - began).total_seconds() - seconds)
        except (KeyError, ValueError, TypeError):
            others = TRAINING_START
        kind = (device.get("kind", ""), device.get("name", ""))
        return _PastTraining(
            lineage=document.lineage, device=kind, texts=texts, seconds=seconds, others=others
        )

    def is_like(self, lineage: Lineage) -> bool:
        """Whether its steps were those of another training: recipe, backbone and settings."""
        mine, theirs = ({**one.settings} for one in (self.lineage, lineage))
        for name in COUNTS:
            mine.pop(name, None), theirs.pop(name, None)
        return mine == theirs and _list_parent_keys(self.lineage) == _list_parent_keys(lineage)


def expect_training(
    lineage: Lineage,
    texts: int | None,
    data: Sequence[LocatedTraining],
    documents: Sequence[ModelDocument],
    past: PastWork,
    *,
    parameters: int,
) -> tuple[TimeRange, str] | None:
    """The time of a training and where that is from; None where its texts are not counted.

    Args:
        lineage: What the model will be made of.
        texts: The texts in all its steps.
        data: Where its data is.
        documents: Those of finished models.
        past: What is known of encoding on this device.
        parameters: Those of the backbone that compute.
    """
    if texts is None:
        return None
    trainings = [
        one
        for one in map(_PastTraining.from_document, documents)
        if one and is_same_device(one.device, past.device)
    ]
    same = [one for one in trainings if one.lineage.recipe == lineage.recipe]
    for some, factor in (
        ([one for one in same if one.is_like(lineage)], 1.5),
        ([one for one in same if _list_parent_keys(one.lineage) == _list_parent_keys(lineage)], LIKELY),
    ):
        if some:
            each = sum(one.seconds for one in some) / sum(one.texts for one in some)
            others = sum(one.others for one in some) / len(some)
            count = f"{len(some)} training{'s' if len(some) > 1 else ''} on this machine"
            return TimeRange.from_seconds(texts * each + others, factor), count
    rate = past.estimate_token_rate("", parameters, "float32")
    if rate is None:
        return None
    tokens = texts * _estimate_text_tokens(data, lineage.settings)
    # A step computes each token forwards, and twice as much backwards (Kaplan et al., 2020).
    seconds = 3 * tokens / (rate.tokens * TRAINING_SHARE) + TRAINING_START
    return TimeRange.from_seconds(seconds, rate.factor), rate.source


def _list_parent_keys(lineage: Lineage) -> list[str]:
    """The models that a training begins with, by their keys."""
    return [parent.artifact for parent in lineage.parents]


def _estimate_text_tokens(data: Sequence[LocatedTraining], settings: Mapping[str, Any]) -> float:
    """The mean tokens of a text for training, by the bytes of its files, and by the longest input."""
    sizes = [size for part in data if (size := _measure_text_bytes(part)) is not None]
    mean = sum(sizes) / len(sizes) / CHARACTERS_PER_TOKEN + 2 if sizes else USUAL_TOKENS
    return min(mean, float(settings.get("max_length") or mean))


def _measure_text_bytes(part: LocatedTraining) -> float | None:
    """The mean bytes of a text by the size of columns in Parquet files; None where there are none."""
    if not part.rows:
        return None
    import pyarrow.parquet as pq

    root = part.folder or Path()
    files = [part.file] if part.file else sorted(root.glob(f"**/{part.data.split}*.parquet"))
    if part.folder and part.data.config:
        files = [file for file in files if part.data.config in file.relative_to(root).parts] or files
    rows, size = 0, 0
    for file in files:
        head = pq.read_metadata(file)
        rows += head.num_rows
        for group in map(head.row_group, range(head.num_row_groups)):
            columns = map(group.column, range(group.num_columns))
            size += sum(one.total_uncompressed_size for one in columns if one.physical_type == "BYTE_ARRAY")
    return size / rows / part.data.texts_per_row if rows and size else None


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """A measured step of a run: its tokens and seconds, and the seconds of scoring the same tokens."""

    tokens: float
    seconds: float
    scoring: float


@dataclass(frozen=True, kw_only=True)
class FinetuneSpeed:
    """The seconds of a step of a run beside its tokens, of a trained token, and of a scored token."""

    step: float
    token: float
    scored: float

    @staticmethod
    def fit_speed(few: StepTime, many: StepTime) -> FinetuneSpeed:
        """The speed by a step with few tokens and one with many: a line through both."""
        # Both may be of equal size where a task's texts all are: all time then goes to the tokens.
        more = many.tokens - few.tokens
        token = (many.seconds - few.seconds) / more if more > 0 else many.seconds / many.tokens
        token = max(token, 0.0)
        return FinetuneSpeed(
            step=max(0.0, few.seconds - token * few.tokens), token=token, scored=many.scoring / many.tokens
        )

    def estimate_seconds(self, steps: int, *, trained: float, scored: float) -> float:
        """The seconds of training and scoring.

        Args:
            steps: The number of steps.
            trained: Tokens in all steps.
            scored: Tokens that are scored without training.
        """
        return steps * self.step + trained * self.token + scored * self.scored


SHARED_GAIN = 1.25
"""The speedup of runs that share the cores: each alone leaves some of their time unused."""


def estimate_run_time(seconds: float, workers: int) -> TimeRange:
    """The time of runs by their seconds one after the other; early stopping ends some of them before."""
    return TimeRange.from_seconds(seconds).split_time(SHARED_GAIN if workers > 1 else 1.0)
