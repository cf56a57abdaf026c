"""The cost of scores from vectors: texts, tokens, operations, seconds, disk and memory.

A time is the tokens by the narrowest speed that is known: of the same model on this device, of other models
there by what their parameters compute, else a stated default; and what loading and scoring took before.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from harness.core import provenance
from harness.core.documents import read_content_file, write_content_file
from harness.core.encoding import USUAL_QUERIES, AnyEncoding, Encoding
from harness.core.errors import StoreError
from harness.core.terminal import shorten_names
from harness.core.types import Purpose, Size
from harness.data.locate import format_size
from harness.results.cost.duration import (
    LIKELY,
    SIMILAR_SIZE,
    Device,
    PastRanking,
    PastScore,
    PastScores,
    Speed,
    TimeRange,
    estimate_non_embedding,
    format_duration,
    hash_data_fields,
    hash_index_settings,
    hash_setup,
    is_same_device,
)
from harness.search.plaid import estimate_index_bytes, sample_size
from harness.storage.record import Record

KEY_BYTES, OFFSET_BYTES = 16, 8
"""Bytes of a text's hash beside its vector, and of its place in its shard where each token has a vector."""

PER_WEIGHT, PER_LOADED = 6, 2
"""The memory of a CPU run (weights, gradients, two moments, temporary values), and of a worker that encodes,
in units of its model's weights."""

PROCESS = 2_500_000_000
"""Further bytes of a process: its libraries and activations."""

PER_TEXT = 8_192
"""The bytes of a text that is scored: its vector of up to 1,024 values, and that in the task's own form."""

PER_CHARACTER = 2
"""The bytes of its characters: those of the data, and of the texts that the model is given."""

SHARE = 0.9
"""The share of a device's memory that training runs of tasks may take."""


def estimate_job_memory(weights: int, *, trains: bool) -> int:
    """The bytes of main memory of a job, by those of its model's weights."""
    return PROCESS + weights * (PER_WEIGHT if trains else PER_LOADED)


def estimate_scoring_memory(size: Size) -> int:
    """The bytes of main memory of a process that scores a task, of known texts only."""
    return PROCESS + (size.texts or 0) * PER_TEXT + (size.characters or 0) * PER_CHARACTER


def compute_run_capacity(room: float, need: float) -> int:
    """The number of runs that fit into some memory, at least one.

    >>> compute_run_capacity(80e9, 12e9), compute_run_capacity(8e9, 12e9)
    (6, 1)
    """
    return max(1, int(room // need))


@dataclass(frozen=True, kw_only=True)
class PlannedWork:
    """A planned score from vectors or from a ranking, in the words of a plan.

    Attributes:
        name, task, key, state, purpose, error: As a table shows them.
        model: The ArtifactKey.
        type: The type of the task.
        identity: What the score depends on.
        encoding: The settings on this task.
        size: The size of the task.
        parameters: All that the weights hold, in float32.
        width: The length of a vector; None where configs do not say.
    """

    name: str
    task: str
    key: str
    state: str
    purpose: Purpose = "final"
    error: str | None = None
    model: str
    type: str = ""
    identity: Mapping[str, Any]
    encoding: AnyEncoding
    size: Size
    parameters: int = 0
    width: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether it is still to be made."""
        return self.state == "to do"


def _estimate_vector_bytes(work: PlannedWork) -> int | None:
    """The bytes of a score's vectors, None where they are not known."""
    encoding, size = work.encoding, work.size
    if not isinstance(encoding, Encoding):
        return 0
    if not work.width or size.texts is None:
        return None
    each = work.width * (2 if encoding.vectors == "float16" else 4)
    if encoding.late_interaction is None:
        return size.texts * (each + KEY_BYTES)
    return size.most_tokens(encoding.max_length) * each + size.texts * (KEY_BYTES + OFFSET_BYTES)


def is_streamed(work: PlannedWork, keep: float) -> bool:
    """Whether the vectors of a score's documents are not kept, by the gigabytes that are, and by its size."""
    indexed = isinstance(work.encoding, Encoding) and work.encoding.index is not None
    return indexed and (_estimate_vector_bytes(work) or 0) > keep * 1e9


def estimate_index_size(work: PlannedWork, keep: float) -> int:
    """The bytes of a score's index, about; 0 without one, or where the task's size is not known.

    While one is made whose vectors are not kept, those of a sample are beside its first half.
    """
    encoding, size = work.encoding, work.size
    if not isinstance(encoding, Encoding) or encoding.index is None or encoding.late_interaction is None:
        return 0
    tokens = size.most_tokens(encoding.max_length)
    full_size = estimate_index_bytes(tokens, encoding.late_interaction.dimension, encoding.index)
    if not is_streamed(work, keep) or not size.texts:
        return full_size
    # The sample's vectors are as large a part of all as its texts.
    sample = (_estimate_vector_bytes(work) or 0) * sample_size(size.texts) // size.texts
    return max(full_size, full_size // 2 + sample)


@dataclass(frozen=True, kw_only=True)
class DiskNeed:
    """The disk that a run's vectors and indexes take at most, in bytes, and what is free in the cache.

    `texts` are those whose vectors count, and `bytes` with `indexes` all that is taken. `unknown` are the
    tasks of unknown size, and `passing` those whose vectors are not kept; only their indexes count.
    `is_float32` is whether vectors of any model are kept in float32.
    """

    texts: int
    bytes: int
    free: int
    indexes: int = 0
    unknown: tuple[str, ...] = ()
    passing: tuple[str, ...] = ()
    is_float32: bool = True

    @property
    def is_large(self) -> bool:
        """Whether the need is worth a line: a gigabyte or more, more than is free, or indexes."""
        return self.bytes >= min(10**9, self.free) or self.indexes > 0

    @property
    def text(self) -> str:
        """A sentence on the need, with a warning where it does not fit."""
        what = f"vectors of up to {self.texts:,} texts" if self.texts else "indexes"
        sentence = f"{what} take about {format_size(self.bytes)} of disk"
        sentence += f", {format_size(self.indexes)} of it in indexes" if self.indexes and self.texts else ""
        more = f", without {shorten_names(self.unknown)}, whose size is not known" if self.unknown else ""
        more += f", the vectors of {shorten_names(self.passing)} are not kept" if self.passing else ""
        if self.bytes <= self.free:
            return f"{sentence}{more}; {format_size(self.free)} are free"
        half = "--vectors float16 takes half of it, " if self.is_float32 else ""
        return (
            f"WARNING: {sentence}{more}, and only {format_size(self.free)} are free in the cache. "
            f"{half}--drop-vectors that of one model at a time, --cache DIR another disk"
        )

    @staticmethod
    def estimate_disk_need(
        works: Sequence[PlannedWork], cache: Path, *, keep: float, drop: bool
    ) -> DiskNeed | None:
        """The need of open scores; None where no vectors are made, or nothing is known.

        Args:
            works: The scores.
            cache: The cache folder, whose free disk counts.
            keep: The gigabytes of token vectors that are kept of a corpus with an index.
            drop: Whether the vectors of each model are removed before those of the next are made.
        """
        streamed = {work.key: work.task for work in works if is_streamed(work, keep)}
        sizes = {work.key: 0 if work.key in streamed else _estimate_vector_bytes(work) for work in works}
        models: dict[str, int] = {}
        for work in works:
            models[work.model] = models.get(work.model, 0) + (sizes[work.key] or 0)
        indexes = sum(estimate_index_size(work, keep) for work in works)
        if not any(models.values()) and not streamed:
            return None
        kept = [work for work in works if sizes[work.key]]
        encodings = [work.encoding for work in kept if isinstance(work.encoding, Encoding)]
        return DiskNeed(
            texts=sum(work.size.texts or 0 for work in kept),
            bytes=indexes + (max(models.values()) if drop else sum(models.values())),
            indexes=indexes,
            free=_measure_free_disk(cache),
            unknown=tuple(dict.fromkeys(work.task for work in works if sizes[work.key] is None)),
            passing=tuple(dict.fromkeys(streamed.values())),
            is_float32=any(encoding.vectors == "float32" for encoding in encodings),
        )


def _measure_free_disk(folder: Path) -> int:
    """The free bytes of the disk on which a folder lies or will lie."""
    # The cache folder may not be made yet, and disk_usage wants a path that exists.
    ancestor = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    return shutil.disk_usage(ancestor).free


CHARACTERS_PER_TOKEN = 4.0
"""A rough figure for English, until a run has shown a model's own."""

OPERATIONS = {"cpu": 5e10, "mps": 2e12, "cuda": 3e13}
"""Operations a second of a core or of a GPU in float32, until one has been measured."""

UNMEASURED = 3.0
"""The factor by which a time from a default may be off."""

PAIRS_PER_SECOND = {"cpu": 1e9, "cuda": 1e11}
"""Pairs of tokens an exact search compares, until a run has shown a figure."""

LONG = 3600.0
"""The seconds from which an exact search is long."""

START = TimeRange(seconds=3.0, low=2.0, high=5.0)
"""A run from the shell to its first worker, and from its last job back."""

IMPORTS, CHECK, SCORING = 5.0, 3.0, 2.0
"""The seconds, until any are known, of importing torch and its companions, of loading and checking a model,
and of the data and scores of a task."""


def _guess_device(devices: Sequence[str]) -> Device:
    """The device that a run would take, without importing torch; a GPU has no name."""
    # The driver's file: asking torch for a GPU would take the seconds of its import.
    usual = "cuda" if Path("/proc/driver/nvidia/version").exists() else "cpu"
    kind = devices[0].partition(":")[0] if devices else usual
    return kind, provenance.read_cpu_model() if kind == "cpu" else ""


_SPEEDS = "speeds.json"
"""The file of the cache with the last speeds of models here, by checks and by what runs have encoded."""

_MOST_SPEEDS = 500
"""The speeds that are kept, the newest ones: each score of a run reads and writes them all."""

LEAST_IMPORTS = 1.0
"""The seconds of imports below which a process had its libraries before."""

LEAST_TOKENS = 1000
"""The tokens below which a score says little of a speed."""


def note_speed(cache: Path, speed: Speed) -> None:
    """Keep the last speed of a model on a device in the cache; where it cannot be written, it is lost.

    What was encoded for a score says nothing of loading, nor a check in a process that had its libraries of
    imports: the last seconds that are known stay.
    """
    if not speed.seconds or speed.tokens < (0 if speed.load_seconds else LEAST_TOKENS):
        return
    speeds = {(one.model, one.device, one.dtype): one for one in read_speeds(cache)}
    # Taken out and put in again, so that it is the newest: a dict keeps the place of a key that is replaced.
    before = speeds.pop((speed.model, speed.device, speed.dtype), None)
    import_seconds = before.import_seconds if before else 0.0
    if speed.import_seconds >= LEAST_IMPORTS:
        import_seconds = speed.import_seconds
    speed = replace(
        speed,
        load_seconds=speed.load_seconds or (before.load_seconds if before else 0.0),
        import_seconds=import_seconds,
    )
    speeds[speed.model, speed.device, speed.dtype] = speed
    with contextlib.suppress(StoreError):
        newest = [*speeds.values()][-_MOST_SPEEDS:]
        write_content_file(cache / _SPEEDS, {"speeds": [asdict(one) for one in newest]})


def note_record(cache: Path, record: Record) -> None:
    """Keep the speed at which the texts of a score were encoded, where vectors were."""
    encoding = record.identity.get("encoding", {})
    if "max_length" in encoding and encoding["output"] != "measured":
        note_speed(cache, PastScore.from_record(record).speed)


def read_speeds(cache: Path) -> tuple[Speed, ...]:
    """The speeds in a cache, one of each model, device and dtype; none where they cannot be read."""
    try:
        return tuple(map(Speed.parse_speed, read_content_file(cache / _SPEEDS)["speeds"]))
    except (OSError, ValueError, TypeError, LookupError):  # absent, or of another version
        return ()


@dataclass(frozen=True, kw_only=True)
class _SearchCost:
    """The expected cost of searching vectors of tokens; seconds are None where unknown.

    Attributes:
        queries: Those of an exact search, or a thousand where their number is not known.
        pairs: The pairs of tokens that it compares for them; None where an index is searched.
        seconds: The time of that, or of the search by an index.
        index_seconds: The time of making an index.
        index_bytes: The disk that it takes at most; None where the size of the task is not known.
        vectors_kept: Whether the cache has the vectors of the documents afterwards.
        is_long: Whether an exact search takes an hour or more, by past ones or a rough figure.
    """

    queries: int = 0
    pairs: int | None = None
    seconds: float | None = None
    index_seconds: float | None = None
    index_bytes: int | None = None
    vectors_kept: bool = True
    is_long: bool = False

    @property
    def time(self) -> TimeRange | None:
        """The time of index and search; None where no past one says how long an index takes."""
        if self.pairs is None and (self.seconds is None or self.index_seconds is None):
            return None
        return TimeRange.from_seconds((self.seconds or 0.0) + (self.index_seconds or 0.0))

    def note(self, task: str) -> str:
        """A sentence on an index, or on an exact search that is long; empty for a short one."""
        taken = self.index_seconds if self.pairs is None else self.seconds
        time = "an unknown time" if taken is None else f"about {format_duration(taken)}"
        if self.pairs is None:
            disk = "" if self.index_bytes is None else f" and about {format_size(self.index_bytes)} of disk"
            search = (
                "" if self.seconds is None else f"; its search takes about {format_duration(self.seconds)}"
            )
            kept = "" if self.vectors_kept else "; vectors go into it as they are encoded and are not kept"
            return f"{task}: its index takes {time}{disk}, unless it is there{search}{kept}"
        if not self.is_long:
            return ""
        return (
            f"{task}: the exact search for {self.queries:,} queries compares {self.pairs:.1e} pairs of "
            f"tokens and takes {time}; --index plaid is approximate, and its recall is measured"
        )


@dataclass(frozen=True, kw_only=True)
class ScoreCost:
    """The expected cost of a planned score, None where unknown.

    `texts` and `tokens` are those still to be encoded, `data_texts` and `data_characters` those of the task.
    `seconds` lie between `low` and `high`, and `source` says what they were learnt from.
    """

    model: str
    task: str
    key: str
    state: str
    texts: int | None
    tokens: int | None
    flops: float | None
    seconds: float | None
    low: float | None = None
    high: float | None = None
    source: str = ""
    runs: int | None = None
    steps: int | None = None
    notes: tuple[str, ...] = ()
    data_texts: int | None = None
    data_characters: int | None = None
    search: _SearchCost | None = None
    purpose: Purpose = "final"
    error: str | None = None

    @property
    def time(self) -> TimeRange | None:
        """The seconds with their bounds; None where they are unknown."""
        if self.seconds is None or self.low is None or self.high is None:
            return None
        return TimeRange(seconds=self.seconds, low=self.low, high=self.high)

    def add_time(self, time: TimeRange | None, source: str = "") -> ScoreCost:
        """The same with a time."""
        return self if time is None else replace(self, **asdict(time), source=source)


@dataclass(frozen=True, kw_only=True)
class _Rate:
    """Tokens a second, the factor by which they may be off, and where they are from."""

    tokens: float
    factor: float
    source: str


@dataclass(frozen=True, kw_only=True)
class PastWork:
    """Past work, in records and checks of models, by which the cost of new scores is estimated.

    `ranked` are the data and the seconds of past rankings, `cached` the keys of models with cached vectors,
    `device` that of the new work, `keep` the gigabytes of token vectors that are kept, and `alone` whether
    each model has a single task, so that no other task can have encoded its texts.
    """

    scores: PastScores = field(default_factory=PastScores.from_scores)
    speeds: tuple[Speed, ...] = ()
    ranked: tuple[PastRanking, ...] = ()
    cached: frozenset[str] = frozenset()
    device: Device
    alone: bool = False
    keep: float = 0.0
    cores: int = 1

    @staticmethod
    def collect_past_work(
        scores: PastScores,
        ranked: Iterable[PastRanking],
        cache: Path,
        devices: Sequence[str],
        *,
        alone: bool,
        keep: float,
    ) -> PastWork:
        """The past work in a results folder and the checks in a cache.

        Args:
            scores: The work behind records that were scored from vectors.
            ranked: The rankings in records.
            cache: The cache folder.
            devices: The requested devices; empty for a guess.
            alone: Whether each model has a single task.
            keep: The gigabytes of token vectors that are kept of a corpus with an index.
        """
        from harness.storage.vectors import list_cached_models

        return PastWork(
            scores=scores,
            speeds=read_speeds(cache),
            ranked=tuple(ranked),
            cached=list_cached_models(cache),
            device=_guess_device(devices),
            alone=alone,
            keep=keep,
            # torch takes its number of threads from this variable, too.
            cores=int(os.environ.get("OMP_NUM_THREADS", 0) or provenance.count_cores()),
        )

    def estimate_score_cost(self, work: PlannedWork) -> ScoreCost:
        """The cost of a planned score."""
        failed, ranks = work.state == "cannot run", not isinstance(work.encoding, Encoding)
        texts, tokens = (
            self.expect_texts(work) if work.is_open and not ranks else (None if failed else 0,) * 2
        )
        search = self._search_cost(work) if work.is_open else None
        operations = 0.0 if ranks else _estimate_operations(work, texts, tokens)
        cost = ScoreCost(
            **{name: getattr(work, name) for name in ("task", "key", "state", "purpose", "error")},
            model=work.name,
            texts=texts,
            tokens=tokens,
            data_texts=work.size.texts,
            data_characters=work.size.characters,
            flops=None if failed else operations,
            seconds=None,
            search=search,
            notes=tuple(filter(None, [search.note(work.task) if search else ""])),
        )
        if not work.is_open:
            return cost if failed else cost.add_time(TimeRange())
        if ranks:
            data = hash_data_fields(work.identity)
            same = [past.seconds for past in self.ranked if past.data == data]
            return cost.add_time(TimeRange.from_seconds(same[-1]), "its last ranking") if same else cost
        return cost if tokens is None else self._add_expected_time(cost, work, tokens)

    def _add_expected_time(self, cost: ScoreCost, work: PlannedWork, tokens: int) -> ScoreCost:
        assert isinstance(work.encoding, Encoding)
        rate = self.estimate_token_rate(
            work.model, estimate_non_embedding(work.parameters, work.width), work.encoding.dtype
        )
        others, searching = self._estimate_overhead(work), cost.search.time if cost.search else TimeRange()
        if searching is None or (rate is None and tokens):
            return cost
        if rate is None or not tokens:
            return cost.add_time(others + searching, "vectors that are there")
        # Of data that no run has encoded here, the tokens of a text are not known, either.
        data = hash_data_fields(work.identity)
        is_known = self.scores.find_largest(data) is not None
        encoding = TimeRange.from_seconds(
            tokens / rate.tokens, rate.factor if is_known else max(LIKELY, rate.factor)
        )
        return cost.add_time(encoding + others + searching, rate.source)

    def expect_texts(self, work: PlannedWork) -> tuple[int | None, int | None]:
        """The texts of a planned score that are still to be encoded, and their tokens; None where unknown.

        Texts that the model has encoded in the same way are cached, unless its vectors were dropped, or were
        not kept beside an index; the same index is there then. Else they are as many as a past run of the
        same data had to encode: fewer than the task has where other tasks share them. Their tokens are those
        of that run, by the two models' characters per token; without such a run the task's characters by
        this model's. No text has more tokens than the longest input.
        """
        size, encoding = work.size, work.encoding
        assert isinstance(encoding, Encoding)
        longest, data = encoding.max_length, hash_data_fields(work.identity)
        index_digest = "" if encoding.index is None else hash_index_settings(asdict(encoding.index))
        if work.model in self.cached:
            streams = self.scores.list_streams(data, hash_setup(work.identity))
            if not {"", index_digest}.isdisjoint(streams):
                return 0, 0
        # Runs with fewer texts found some of them in the cache; the largest one had to encode the most.
        past = self.scores.find_largest(data)
        if past is not None and (past.texts or not self.alone):
            if past.is_uncut or past.max_length == longest or not past.texts:
                ratio = self.estimate_token_length(past.model) / self.estimate_token_length(work.model)
                return past.texts, min(round(past.tokens * ratio), past.texts * longest)
            size = Size(texts=past.texts, characters=past.characters or size.characters)
        if size.texts is None or size.characters is None:
            return size.texts, None
        tokens = size.characters / self.estimate_token_length(work.model)
        # Two special tokens a text, as in estimate_token_length.
        return size.texts, min(round(tokens) + 2 * size.texts, size.texts * longest)

    def estimate_token_length(self, model: str) -> float:
        """Characters per token in a model's past runs of short texts, else in all models', else a default.

        Two special tokens of each text are not counted.
        """
        for characters, tokens in (self.scores.sum_lengths(model), self.scores.sum_lengths()):
            if tokens > 0:
                return characters / tokens
        return CHARACTERS_PER_TOKEN

    def estimate_token_rate(self, model: str, parameters: int, dtype: str) -> _Rate | None:
        """The expected speed of a model on this device; None for a model of unknown size where none is known.

        Args:
            model: The ArtifactKey.
            parameters: Those that compute.
            dtype: The requested precision; speeds of another one count where there are none of it.
        """
        learnt = self.scores.list_speeds(self.device, dtype, model)
        checks = self._select_local_speeds(dtype)
        for model_speeds in (learnt, [speed for speed in checks if speed.model == model]):
            if model_speeds:
                tokens = sum(speed.tokens for speed in model_speeds) / sum(
                    speed.seconds for speed in model_speeds
                )
                count = f"{len(model_speeds)} record{'s' if len(model_speeds) > 1 else ''} on this machine"
                source = count if model_speeds is learnt else "this machine's measured rate"
                return _Rate(tokens=tokens, factor=_estimate_error_factor(model_speeds), source=source)
        if not parameters:
            return None
        # Small networks use less of a device than large ones: the nearest size tells most.
        nearest = self.scores.list_nearest_speeds(self.device, dtype, parameters) or _select_nearest(
            checks, parameters
        )
        if nearest:
            rate = fmean(speed.operations for speed in nearest) / (2.0 * parameters)
            return _Rate(tokens=rate, factor=LIKELY, source="the rate of other models on this machine")
        kind = self.device[0]
        operations = OPERATIONS.get(kind, OPERATIONS["cpu"]) * (self.cores if kind == "cpu" else 1)
        what = "CPU" if kind == "cpu" else "GPU"
        source = f"a default for a {what}: may be off by a factor of {UNMEASURED:g}"
        return _Rate(tokens=operations / (2.0 * parameters), factor=UNMEASURED, source=source)

    def check_time(self, model: str) -> TimeRange:
        """The time of loading and checking a model, by its checks here, else by others'."""
        here = [speed for speed in self._select_local_speeds("") if speed.load_seconds]
        load_times = [speed.load_seconds for speed in here if speed.model == model]
        if not here:
            return TimeRange.from_seconds(CHECK, UNMEASURED)
        return TimeRange.from_seconds(fmean(load_times or [speed.load_seconds for speed in here]))

    @property
    def start_time(self) -> TimeRange:
        """The time of a run beside its jobs: from the shell to a worker with its libraries, and back."""
        import_times = [one.import_seconds for one in self._select_local_speeds("") if one.import_seconds]
        return START + (
            TimeRange.from_seconds(fmean(import_times))
            if import_times
            else TimeRange.from_seconds(IMPORTS, UNMEASURED)
        )

    def _select_local_speeds(self, dtype: str) -> list[Speed]:
        """Speeds of checks on this device, of a dtype where it has any."""
        here = [
            speed
            for speed in self.speeds
            if speed.seconds and speed.tokens and is_same_device(speed.device, self.device)
        ]
        return [speed for speed in here if speed.dtype == dtype] or here

    def _estimate_overhead(self, work: PlannedWork) -> TimeRange:
        """The time of loading data and scoring: of the task's last time, else of its type, else of any."""
        others = self.scores.list_overheads(hash_data_fields(work.identity), work.type)
        return (
            TimeRange.from_seconds(fmean(others)) if others else TimeRange.from_seconds(SCORING, UNMEASURED)
        )

    def _search_cost(self, work: PlannedWork) -> _SearchCost | None:
        """The cost of the search of a score, by past searches on this device; None without token vectors."""
        encoding, size = work.encoding, work.size
        if not isinstance(encoding, Encoding) or encoding.late_interaction is None:
            return None
        tokens = size.most_tokens(encoding.max_length) if size.texts is not None else None
        if encoding.index is not None:
            rate = _compute_throughput(self.scores.list_searches(self.device, "indexed"))
            searched = _compute_throughput(self.scores.list_searches(self.device, "probed"))
            return _SearchCost(
                seconds=(size.examples or USUAL_QUERIES) / searched if searched else None,
                index_seconds=tokens / rate if rate and tokens is not None else None,
                index_bytes=estimate_index_size(work, self.keep) if tokens is not None else None,
                vectors_kept=not is_streamed(work, self.keep),
            )
        pairs = round(encoding.count_token_pairs(size))
        rate = _compute_throughput(self.scores.list_searches(self.device, "compared"))
        usual = PAIRS_PER_SECOND.get(self.device[0], PAIRS_PER_SECOND["cpu"])
        return _SearchCost(
            queries=size.examples or USUAL_QUERIES,
            pairs=pairs,
            seconds=pairs / rate if rate else None,
            is_long=pairs / (rate or usual) >= LONG,
        )


def _select_nearest(speeds: Sequence[Speed], parameters: int) -> list[Speed]:
    """The speeds of the model whose size is nearest; none where all are of another size."""
    bounds = (parameters / SIMILAR_SIZE, parameters * SIMILAR_SIZE)
    some = [speed for speed in speeds if bounds[0] <= speed.parameters <= bounds[1]]
    nearest = min(some, key=lambda speed: abs(math.log(speed.parameters / parameters)), default=None)
    return [speed for speed in some if nearest and speed.model == nearest.model]


def _estimate_error_factor(speeds: Sequence[Speed]) -> float:
    """The factor by which a next speed may be off, from how much these differ; 80 % lie within it.

    The logarithms of speeds are taken to be normal: 1.28 deviations on each side.
    """
    if len(speeds) < 3:
        return 1.5
    deviation = stdev(math.log(speed.tokens / speed.seconds) for speed in speeds)
    return min(LIKELY, max(1.25, math.exp(1.28 * deviation)))


def _compute_throughput(done: Sequence[tuple[float, float]]) -> float | None:
    """Amounts a second, from amounts and seconds; None if nothing is known."""
    seconds = sum(seconds for amount, seconds in done if amount)
    return sum(amount for amount, _ in done) / seconds if seconds else None


def _estimate_operations(work: PlannedWork, texts: int | None, tokens: int | None) -> float | None:
    """Two for each parameter and token; the vectors of a context are read again with each text."""
    parameters, encoding = estimate_non_embedding(work.parameters, work.width), work.encoding
    if not parameters or tokens is None:
        return None
    behind = encoding.context.size if isinstance(encoding, Encoding) and encoding.context else 0
    share = 0.5 if behind else 1.0  # each stage has half of the parameters, and texts pass through one
    return 2.0 * parameters * share * (tokens + behind * (texts or 0))
