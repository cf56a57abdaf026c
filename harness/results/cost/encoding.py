"""The cost of scores from vectors: texts, tokens, operations and seconds, by past ones and measured speeds.

A time is the tokens by the narrowest speed that is known: of the same model on this device, of other models
there by what their parameters compute, else a stated default; and what loading and scoring took before.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from harness.core import provenance
from harness.core.documents import read_content_file, write_content_file
from harness.core.encoding import USUAL_QUERIES, Encoding, Ranking
from harness.core.errors import StoreError
from harness.core.identity import digest
from harness.core.types import Purpose, Size
from harness.data.locate import format_size
from harness.results.cost.duration import LIKELY, TimeRange, format_duration
from harness.results.cost.memory import PlannedWork, estimate_index_size, is_streamed
from harness.search.plaid import OF_INDEX
from harness.storage.record import Record

CHARACTERS_PER_TOKEN = 4.0
"""A rough figure for English, until a run has shown a model's own."""

WORDS = 30_000
"""The vocabulary of a usual encoder, whose embeddings are looked up and compute nothing."""

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

Device = tuple[str, str]
"""The kind of a device, and its name as its maker says it; empty where it is not known."""


def _guess_device(devices: Sequence[str]) -> Device:
    """The device that a run would take, without importing torch; a GPU has no name."""
    # The driver's file: asking torch for a GPU would take the seconds of its import.
    usual = "cuda" if Path("/proc/driver/nvidia/version").exists() else "cpu"
    kind = devices[0].partition(":")[0] if devices else usual
    return kind, provenance.read_cpu_model() if kind == "cpu" else ""


def is_same_device(device: Device, here: Device) -> bool:
    """Whether work on a device tells of work here, where the name of a device may not be known."""
    return device[0] == here[0] and here[1] in ("", device[1])


def estimate_non_embedding(parameters: int, width: int | None) -> int:
    """The parameters that compute, without the embeddings of a usual vocabulary.

    >>> estimate_non_embedding(110_000_000, 768)
    86960000
    """
    # A small model, or one with a small vocabulary, would else be left with nothing that computes.
    return max(parameters - WORDS * (width or 0), parameters // 4)


@dataclass(frozen=True, kw_only=True)
class Speed:
    """How fast a model encoded: its tokens and seconds, those of its load and check, and of imports before.

    `parameters` are those that compute, `device` the kind and name; from a record or a check of the model.
    """

    model: str
    parameters: int
    device: Device
    dtype: str
    tokens: int
    seconds: float
    load_seconds: float = 0.0
    import_seconds: float = 0.0

    @staticmethod
    def parse_speed(content: Mapping[str, Any]) -> Speed:
        """The speed of plain values."""
        return Speed(**{**content, "device": tuple(content["device"])})

    @property
    def operations(self) -> float:
        """Operations a second: two for each parameter and token."""
        return 2.0 * self.parameters * self.tokens / self.seconds


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
    if record.identity.get("encoding", {}).get("output", "ranking") != "ranking":
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


class PastScore(NamedTuple):
    """The work behind a finished record that was scored from vectors.

    `data` is what was encoded (task, data, splits and subsets), `setup` the model, its encoding and prompts;
    `characters` are 0 in records that do not have them, and `others` are the seconds of loading and scoring.
    `compared` are the pairs of tokens of an exact search and its seconds, `indexed` the tokens of new indexes
    and their seconds, `probed` the queries that indexes were searched for and their seconds, `streamed` the
    settings of the index that vectors went into without being kept.
    """

    data: str
    setup: str
    type: str
    max_length: int
    texts: int
    characters: int
    speed: Speed
    others: float
    compared: tuple[float, float] = (0, 0)
    indexed: tuple[float, float] = (0, 0)
    streamed: str = ""
    probed: tuple[float, float] = (0, 0)

    @staticmethod
    def from_record(record: Record) -> PastScore:
        """The work behind a record."""
        facts, spent = record.provenance, record.provenance.get("seconds", {})
        device, index = facts.get("device", {}), facts.get("index", {})
        searches = index.get("searches", ())
        new = [search for search in searches if not search["was_there"]]
        kept = all(search.get("vectors_kept", True) for search in searches)
        probing = sum(search["seconds"]["search"] + search["seconds"]["recall"] for search in searches)
        return PastScore(
            data=_hash_data_fields(record.identity),
            setup=_setup_digest(record.identity),
            type=record.task.type,
            max_length=record.identity["encoding"]["max_length"],
            texts=facts.get("texts_encoded", 0),
            characters=facts.get("characters_encoded", 0),
            speed=Speed(
                model=record.model.artifact,
                parameters=estimate_non_embedding(record.model.parameters or 0, record.model.dimension),
                device=(device.get("kind", ""), device.get("name", "")),
                dtype=record.identity["encoding"].get("dtype", ""),
                tokens=facts.get("tokens_encoded", 0),
                seconds=spent.get("encode", 0.0),
            ),
            others=spent.get("load", 0.0) + spent.get("score", 0.0),
            compared=(facts.get("token_pairs", 0), spent.get("search", 0.0)),
            indexed=(sum(one["tokens"] for one in new), sum(one["seconds"]["index"] for one in new)),
            streamed="" if kept else _hash_index_settings(index["settings"]),
            probed=(sum(search["recall"]["queries"] for search in searches), probing),
        )

    def flatten(self) -> tuple[Any, ...]:
        """Its fields one after the other, but for the model's key, as `from_fields` takes them."""
        speed = self.speed
        return (
            *(self.data, self.setup, self.type, self.max_length, self.texts, self.characters),
            *(speed.parameters, *speed.device, speed.dtype, speed.tokens, speed.seconds, self.others),
            *(*self.compared, *self.indexed, self.streamed, *self.probed),
        )

    @staticmethod
    def from_fields(model: str, *fields: Any) -> PastScore:
        """The work of a model's key and of what `flatten` gave."""
        data, setup, type_, max_length, texts, characters, parameters, kind, name, *rest = fields
        dtype, tokens, seconds, others, pairs, pair_seconds, indexed, index_seconds, streamed, *probed = rest
        return PastScore(
            data=data,
            setup=setup,
            type=type_,
            max_length=max_length,
            texts=texts,
            characters=characters,
            speed=Speed(
                model=model,
                parameters=parameters,
                device=(kind, name),
                dtype=dtype,
                tokens=tokens,
                seconds=seconds,
            ),
            others=others,
            compared=(pairs, pair_seconds),
            indexed=(indexed, index_seconds),
            streamed=streamed,
            probed=(probed[0], probed[1]),
        )

    @property
    def is_uncut(self) -> bool:
        """Whether its texts were so short that few can have been cut."""
        return 0 < self.speed.tokens < self.texts * self.max_length / 2


class PastRanking(NamedTuple):
    """The data and the seconds of a finished ranking."""

    data: str
    seconds: float

    @staticmethod
    def from_record(record: Record) -> PastRanking:
        """The work behind a record."""
        return PastRanking(_hash_data_fields(record.identity), sum(record.provenance["seconds"].values()))


def _hash_index_settings(settings: Mapping[str, Any]) -> str:
    return digest({name: settings[name] for name in OF_INDEX})


def _hash_data_fields(identity: Mapping[str, Any]) -> str:
    names = ("task", "data", "splits", "subsets", "documents")
    return digest({name: identity[name] for name in names if name in identity})


def _setup_digest(identity: Mapping[str, Any]) -> str:
    """What the vectors of a score depend on, whatever searches them."""
    encoding = {name: value for name, value in identity["encoding"].items() if name != "index"}
    return digest({**{name: identity[name] for name in ("artifact", "prompts")}, "encoding": encoding})


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

    scores: tuple[PastScore, ...] = ()
    speeds: tuple[Speed, ...] = ()
    ranked: tuple[PastRanking, ...] = ()
    cached: frozenset[str] = frozenset()
    device: Device
    alone: bool = False
    keep: float = 0.0
    cores: int = 1

    @staticmethod
    def collect_past_work(
        scores: Iterable[PastScore],
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
            scores=tuple(scores),
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
        failed, ranks = work.state == "cannot run", isinstance(work.encoding, Ranking)
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
            data = _hash_data_fields(work.identity)
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
        data = _hash_data_fields(work.identity)
        is_known = any(past.data == data for past in self.scores)
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
        longest, data = encoding.max_length, _hash_data_fields(work.identity)
        same = [past for past in self.scores if past.data == data]
        index_digest = "" if encoding.index is None else _hash_index_settings(asdict(encoding.index))
        setup = _setup_digest(work.identity)
        alike = [past for past in same if past.setup == setup]
        if work.model in self.cached and any(past.streamed in ("", index_digest) for past in alike):
            return 0, 0
        # Runs with fewer texts found some of them in the cache; the largest one had to encode the most.
        past = max(same, key=lambda past: past.texts, default=None)
        if past is not None and (past.texts or not self.alone):
            if past.is_uncut or past.max_length == longest or not past.texts:
                ratio = self.estimate_token_length(past.speed.model) / self.estimate_token_length(work.model)
                return past.texts, min(round(past.speed.tokens * ratio), past.texts * longest)
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
        for runs in ([past for past in self.scores if past.speed.model == model], self.scores):
            uncut = [past for past in runs if past.is_uncut and past.characters]
            tokens = sum(past.speed.tokens - 2 * past.texts for past in uncut)
            if tokens > 0:
                return sum(past.characters for past in uncut) / tokens
        return CHARACTERS_PER_TOKEN

    def estimate_token_rate(self, model: str, parameters: int, dtype: str) -> _Rate | None:
        """The expected speed of a model on this device; None for a model of unknown size where none is known.

        Args:
            model: The ArtifactKey.
            parameters: Those that compute.
            dtype: The requested precision; speeds of another one count where there are none of it.
        """
        learnt = self._select_local_speeds([past.speed for past in self.scores], dtype)
        checks = self._select_local_speeds(self.speeds, dtype)
        for speeds in (learnt, checks):
            model_speeds = [speed for speed in speeds if speed.model == model]
            if model_speeds:
                tokens = sum(speed.tokens for speed in model_speeds) / sum(
                    speed.seconds for speed in model_speeds
                )
                count = f"{len(model_speeds)} record{'s' if len(model_speeds) > 1 else ''} on this machine"
                source = count if speeds is learnt else "this machine's measured rate"
                return _Rate(tokens=tokens, factor=_estimate_error_factor(model_speeds), source=source)
        if not parameters:
            return None
        others = [speed for speed in learnt or checks if speed.parameters]
        if others:
            # Small networks use less of a device than large ones: the nearest size tells most.
            nearest = min(others, key=lambda speed: abs(math.log(speed.parameters / parameters)))
            same = [speed.operations for speed in others if speed.model == nearest.model]
            rate = fmean(same) / (2.0 * parameters)
            return _Rate(tokens=rate, factor=LIKELY, source="the rate of other models on this machine")
        kind = self.device[0]
        operations = OPERATIONS.get(kind, OPERATIONS["cpu"]) * (self.cores if kind == "cpu" else 1)
        what = "CPU" if kind == "cpu" else "GPU"
        source = f"a default for a {what}: may be off by a factor of {UNMEASURED:g}"
        return _Rate(tokens=operations / (2.0 * parameters), factor=UNMEASURED, source=source)

    def check_time(self, model: str) -> TimeRange:
        """The time of loading and checking a model, by its checks here, else by others'."""
        here = [speed for speed in self._select_local_speeds(self.speeds, "") if speed.load_seconds]
        load_times = [speed.load_seconds for speed in here if speed.model == model]
        if not here:
            return TimeRange.from_seconds(CHECK, UNMEASURED)
        return TimeRange.from_seconds(fmean(load_times or [speed.load_seconds for speed in here]))

    @property
    def start_time(self) -> TimeRange:
        """The time of a run beside its jobs: from the shell to a worker with its libraries, and back."""
        import_times = [
            one.import_seconds for one in self._select_local_speeds(self.speeds, "") if one.import_seconds
        ]
        return START + (
            TimeRange.from_seconds(fmean(import_times))
            if import_times
            else TimeRange.from_seconds(IMPORTS, UNMEASURED)
        )

    def _select_local_speeds(self, speeds: Sequence[Speed], dtype: str) -> list[Speed]:
        """Speeds on this device, of a dtype where it has any."""
        here = [
            speed
            for speed in speeds
            if speed.seconds and speed.tokens and is_same_device(speed.device, self.device)
        ]
        return [speed for speed in here if speed.dtype == dtype] or here

    def _estimate_overhead(self, work: PlannedWork) -> TimeRange:
        """The time of loading data and scoring: of the task's last time, else of its type, else of any."""
        data = _hash_data_fields(work.identity)
        last = [past.others for past in self.scores if past.data == data]
        if last:
            return TimeRange.from_seconds(last[-1])
        others = [past.others for past in self.scores if past.type == work.type] or [
            past.others for past in self.scores
        ]
        return (
            TimeRange.from_seconds(fmean(others)) if others else TimeRange.from_seconds(SCORING, UNMEASURED)
        )

    def _search_cost(self, work: PlannedWork) -> _SearchCost | None:
        """The cost of the search of a score, by past searches on this device; None without token vectors."""
        encoding, size = work.encoding, work.size
        if isinstance(encoding, Ranking) or encoding.late_interaction is None:
            return None
        here = [past for past in self.scores if is_same_device(past.speed.device, self.device)]
        tokens = size.most_tokens(encoding.max_length) if size.texts is not None else None
        if encoding.index is not None:
            rate = _compute_throughput([past.indexed for past in here])
            searched = _compute_throughput([past.probed for past in here])
            return _SearchCost(
                seconds=(size.examples or USUAL_QUERIES) / searched if searched else None,
                index_seconds=tokens / rate if rate and tokens is not None else None,
                index_bytes=estimate_index_size(work, self.keep) if tokens is not None else None,
                vectors_kept=not is_streamed(work, self.keep),
            )
        pairs = round(encoding.count_token_pairs(size))
        rate = _compute_throughput([past.compared for past in here])
        usual = PAIRS_PER_SECOND.get(self.device[0], PAIRS_PER_SECOND["cpu"])
        return _SearchCost(
            queries=size.examples or USUAL_QUERIES,
            pairs=pairs,
            seconds=pairs / rate if rate else None,
            is_long=pairs / (rate or usual) >= LONG,
        )


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
