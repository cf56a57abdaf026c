"""Expected durations by past work, with their likely ranges, and the time that work still takes.

Of each piece of work the rest is expected from the durations of the narrowest group that has any: its own
task, its own kind, or all. With the sum S of the rests, the number of workers P that were busy so far, and
the longest chain C of rests of which each needs the one before,

    left = max(S / P + T, C)

T is the time in which the last pieces end while other workers have nothing to do any more. With durations of
mean m and variance s², a piece that is under way has ρ = (m² + s²) / 2m before it on average; of k such
pieces the last one ends (k - 1) / (k + 1) · ρ after their mean if durations are equal, and (H(k) - 1) · ρ if
they are exponential, with H(k) = 1 + 1/2 + … + 1/k. T lies between the two by v = min(1, s² / m²), which is 0
and 1 there.

Where a plan has expected seconds, durations are counted in units of these and weighted by them, so that a
long piece tells of a short one, and the start of a short one little of a long one; before any has ended, each
is taken to last as expected.

Short pieces end first, so a mean of those that have ended is too short. A piece that has run for a seconds
and does not say how far it is has v · m + (1 - v) · max(0, m - a) before it, again exact for both, and its
duration so expected counts in the mean, in a few rounds.

The variance of S is that of the single pieces, and of each group's mean: w · s² + w² · s² / n for w pieces
that wait and n durations that are known. Durations are taken to vary by half of their mean until several are
known: s² counts one more duration that differs so. The bounds are the 10 % and 90 % quantiles of normal
distributions, the larger ones of S / P + T and of C.
"""

from __future__ import annotations

import graphlib
import math
import sqlite3
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist, fmean
from typing import Any, Literal, NamedTuple

from harness.core.keys import digest
from harness.search.plaid import OF_INDEX
from harness.storage.record import Record

LEVEL = 0.8
"""The probability that the interval covers the time left."""

_ROUNDS = 5
"""The number of rounds in which the durations of running work are estimated."""

_VARIES = 0.5
"""The deviation of a duration from the mean, as a share of it, where little is known."""


APART = ("resolve", "score")
"""Kinds of jobs whose duration, in units of the expected one, tells of no other kind: loading and scoring."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """A piece of work, with its times in seconds on one clock.

    Attributes:
        key: Its name among the inputs of others.
        groups: What it is alike with, the narrowest group first; the last one is the widest that tells of it.
        inputs: The keys of work that must have ended before it begins.
        width: The number of workers that it takes.
        begun: When it began; None if it waits.
        ended: When it ended; None if it runs or waits.
        whole: Its whole duration by how far it is; None where that is not known.
        typical: Whether its duration says how long others take, which that of a failure does not.
        expected: The seconds that the plan expected; None where it could not tell.
    """

    key: str
    groups: tuple[Hashable, ...]
    inputs: tuple[str, ...] = ()
    width: int = 1
    begun: float | None = None
    ended: float | None = None
    whole: float | None = None
    typical: bool = True
    expected: float | None = None

    @property
    def size(self) -> float:
        """What its duration is compared with others by: the expected seconds, else 1."""
        return self.expected or 1.0

    @property
    def scaled_groups(self) -> tuple[Hashable, ...]:
        """The groups, split by whether the plan expected seconds, so that units are not mixed."""
        return tuple((group, bool(self.expected)) for group in self.groups)

    def measure_busy_time(self, now: float, since: float = -math.inf) -> float:
        """The seconds from its beginning up to its end, without those before `since`."""
        if self.begun is None:
            return 0.0
        return max(0.0, (now if self.ended is None else self.ended) - max(self.begun, since))

    def measure_duration(self, now: float) -> float | None:
        """The seconds from its beginning to its end; None where that is not known."""
        if self.ended is None:
            return self.whole
        return self.measure_busy_time(now) or None  # another process has made it


@dataclass(frozen=True, kw_only=True)
class _Durations:
    """Durations of one group: how many have ended, their mean, their variance, and what that is of mean²."""

    count: float
    mean: float
    variance: float
    groups: tuple[Hashable, ...] = ()

    @property
    def varied(self) -> float:
        """The variance as a share of the squared mean: 0 for equal durations, 1 for exponential ones."""
        return min(1.0, self.variance / self.mean**2)

    def expect_residual(self, age: float) -> float:
        """The expected seconds after `age` seconds."""
        return self.varied * self.mean + (1 - self.varied) * max(0.0, self.mean - age)

    def scale_durations(self, size: float) -> _Durations:
        """The durations of pieces that are so many times as large."""
        return replace(self, mean=self.mean * size, variance=self.variance * size**2)

    @staticmethod
    def fit_durations(
        ended: Sequence[tuple[float, float]],
        ages: Sequence[tuple[float, float]] = (),
        former: _Durations | None = None,
    ) -> _Durations:
        """The durations of ended work, and of work under way as it was expected from `former` ones.

        Each comes with the size that it counts by.
        """
        samples = [
            *ended,
            *((age + former.expect_residual(age), size) for age, size in ages if former is not None),
        ]
        total = math.fsum(size for _, size in samples)
        mean = math.fsum(one * size for one, size in samples) / total
        variance = math.fsum((one - mean) ** 2 * size for one, size in samples) / total
        squares = (_VARIES * mean) ** 2
        squares += math.fsum(former.varied * former.mean**2 for _ in ages if former is not None)
        # As many pieces of one size would say as much (Kish, Survey Sampling, 1965).
        count = sum(size for _, size in ended) ** 2 / sum(size**2 for _, size in ended) if ended else 1.0
        return _Durations(count=count, mean=mean, variance=variance + squares / len(samples))


class _PastDurations:
    """The durations so far, by group, in units of what a plan expected of each piece."""

    def __init__(self, work: Sequence[Work], now: float) -> None:
        self._ended: dict[Hashable, list[tuple[float, float]]] = defaultdict(list)
        self._ages: dict[Hashable, list[tuple[float, float]]] = defaultdict(list)
        self._found: dict[tuple[Hashable, ...], _Durations] = {}
        for piece in work:
            seconds = piece.measure_duration(now) if piece.typical else None
            for group in piece.scaled_groups:
                if seconds:
                    self._ended[group].append((seconds / piece.size, piece.size))
                elif piece.ended is None and piece.begun is not None:
                    self._ages[group].append((piece.measure_busy_time(now) / piece.size, piece.size))

    def expect_durations(self, work: Work) -> _Durations | None:
        """The durations in the narrowest group with known ones, else by what the plan expected."""
        groups = work.scaled_groups
        widest = groups[-1] if groups else None
        if not self._ended.get(widest) and work.expected is None:
            return None
        return self._find_group_durations(groups).scale_durations(work.size)

    def _find_group_durations(self, groups: tuple[Hashable, ...]) -> _Durations:
        if groups not in self._found:
            self._found[groups] = replace(self._look(groups), groups=groups)
        return self._found[groups]

    def _look(self, groups: tuple[Hashable, ...]) -> _Durations:
        if not groups:  # nothing has ended: each takes what was expected
            return _Durations(count=1, mean=1.0, variance=_VARIES**2)
        ended, ages = self._ended.get(groups[0], []), self._ages.get(groups[0], [])
        if not ended and not ages:
            return self._find_group_durations(groups[1:])
        if not ended:
            wider = self._find_group_durations(groups[1:])
            return _Durations.fit_durations([(wider.mean, fmean(size for _, size in ages))], ages, wider)
        durations = _Durations.fit_durations(ended)
        for _ in range(_ROUNDS if ages else 0):
            durations = _Durations.fit_durations(ended, ages, durations)
        return durations


@dataclass(frozen=True, kw_only=True)
class _Rest:
    """What is left of a piece of work: the expected seconds, and their variance."""

    work: Work
    like: _Durations
    seconds: float
    variance: float

    @staticmethod
    def estimate_rest(work: Work, like: _Durations, now: float) -> _Rest:
        spent, variance = work.measure_busy_time(now), like.variance
        if work.whole is not None:
            seconds = max(0.0, work.whole - spent)
            variance *= (seconds / work.whole) ** 2 if work.whole else 0.0
        else:
            seconds = like.mean if work.begun is None else like.expect_residual(spent)
        return _Rest(work=work, like=like, seconds=seconds, variance=variance)


def time_left(work: Sequence[Work], now: float, *, window: float = math.inf) -> TimeRange | None:
    """The time until all work has ended; None while the duration of some is not known.

    Args:
        work: All work: ended, under way, and waiting.
        now: The present time.
        window: The last seconds whose busy workers count; all since the first beginning if infinite.
    """
    past = _PastDurations(work, now)
    likes = [(one, past.expect_durations(one)) for one in work if one.ended is None]
    rests = [_Rest.estimate_rest(one, like, now) for one, like in likes if like is not None]
    if len(rests) < len(likes):
        return None
    if not rests:
        return TimeRange(seconds=0.0, low=0.0, high=0.0)
    return _Remainder(rests=rests, pace=_count_busy_workers(work, now, window=window)).estimate_time_left()


def _count_busy_workers(work: Sequence[Work], now: float, *, window: float = math.inf) -> float:
    """The mean number of busy workers over the last seconds; 1 where nothing has run."""
    first = min(
        (one.begun for one in work if one.begun is not None and one.measure_busy_time(now)), default=now
    )
    since = max(first, now - window)
    busy = math.fsum(one.width * one.measure_busy_time(now, since) for one in work)
    return busy / (now - since) if busy else 1.0


@dataclass(frozen=True, kw_only=True)
class _Remainder:
    """What is left of all work, and the number of workers that share it."""

    rests: Sequence[_Rest]
    pace: float

    def estimate_time_left(self) -> TimeRange:
        full = self._seconds / self.pace
        chain, chain_variance = self._chain
        if not self._waiting:
            low, high = self._compute_last_bounds()
            return TimeRange(seconds=max(low, min(high, chain)), low=low, high=high)
        tail, tail_variance = self._tail
        # NormalDist.inv_cdf refuses a deviation of 0, hence 1e-9 seconds.
        by_pace = NormalDist(full + tail, math.sqrt(self._variance / self.pace**2 + tail_variance) or 1e-9)
        by_chain = NormalDist(chain, math.sqrt(chain_variance) or 1e-9)
        low, high = (
            max(0.0, by_pace.inv_cdf(share), by_chain.inv_cdf(share)) for share in _compute_bound_shares(1)
        )
        return TimeRange(seconds=max(full + tail, chain), low=low, high=high)

    @cached_property
    def _waiting(self) -> Sequence[_Rest]:
        return [rest for rest in self.rests if rest.work.begun is None]

    @property
    def _seconds(self) -> float:
        return math.fsum(rest.work.width * rest.seconds for rest in self.rests)

    @property
    def _variance(self) -> float:
        """The variance of the seconds of all workers: of the single rests, and of the means behind them."""
        single = math.fsum(rest.work.width**2 * rest.variance for rest in self.rests)
        # Pieces of one group share its mean, whose error they have in common: it adds up, then is squared.
        shared: dict[tuple[float, tuple[Hashable, ...]], float] = defaultdict(float)
        for rest in self._waiting:
            like = rest.like
            shared[like.count, like.groups] += rest.work.width * math.sqrt(like.variance)
        return single + math.fsum(error**2 / count for (count, _), error in shared.items())

    @property
    def _tail(self) -> tuple[float, float]:
        """The mean and the variance of the time in which the last pieces of work end."""
        count = min(len(self.rests), max(1, round(self.pace)))
        mean = math.fsum(rest.like.mean for rest in self.rests) / len(self.rests)
        square = math.fsum(rest.like.mean**2 + rest.like.variance for rest in self.rests) / len(self.rests)
        before, varied = square / (2 * mean), min(1.0, square / mean**2 - 1)
        exponential = math.fsum(1 / n - 1 / count for n in range(1, count + 1))
        exponential_variance = math.fsum((1 / n - 1 / count) ** 2 for n in range(1, count + 1))
        equal = (count - 1) / (count + 1)
        equal_variance = 4 * count / ((count + 1) ** 2 * (count + 2)) if count > 1 else 0.0
        return (
            before * (varied * exponential + (1 - varied) * equal),
            before**2 * (varied * exponential_variance + (1 - varied) * equal_variance),
        )

    @cached_property
    def _chain(self) -> tuple[float, float]:
        """The seconds of the longest chain of work, each needing the one before, and their variance."""
        rests = {rest.work.key: rest for rest in self.rests}
        before = {key: [i for i in rest.work.inputs if i in rests] for key, rest in rests.items()}
        ends: dict[str, tuple[float, float]] = {}
        for key in graphlib.TopologicalSorter(before).static_order():
            seconds, variance = max((ends[one] for one in before[key]), default=(0.0, 0.0))
            ends[key] = (seconds + rests[key].seconds, variance + rests[key].variance)
        return max(ends.values())

    def _compute_last_bounds(self) -> tuple[float, float]:
        """The bounds where nothing waits: the last one of several independent rests ends between them."""
        low, high = (NormalDist().inv_cdf(share) for share in _compute_bound_shares(len(self.rests)))
        return (
            max(max(0.0, rest.seconds + low * math.sqrt(rest.variance)) for rest in self.rests),
            max(max(0.0, rest.seconds + high * math.sqrt(rest.variance)) for rest in self.rests),
        )


def _compute_bound_shares(count: int) -> tuple[float, float]:
    """The shares for each of several independent values, so that their largest has the interval's bounds."""
    # The largest of n independent values is below a bound with the n-th power of one value's probability.
    return ((1 - LEVEL) / 2) ** (1 / count), ((1 + LEVEL) / 2) ** (1 / count)


LIKELY = 1.7
"""The factor of an expectation by other work: the ends of its range are 2.9 times apart."""

UNITS = ((2 * 3600.0, 3600.0, "h"), (120.0, 60.0, "min"), (0.0, 1.0, "s"))
"""From which seconds on a unit is used, its seconds, and its name."""


@dataclass(frozen=True, kw_only=True)
class TimeRange:
    """A time in seconds, with the bounds between which it is likely to lie.

    Attributes:
        seconds: The expected time.
        low: The lower bound: 80 % of times lie between the two.
        high: The upper bound.
    """

    seconds: float = 0.0
    low: float = 0.0
    high: float = 0.0

    @staticmethod
    def from_seconds(seconds: float, factor: float = LIKELY) -> TimeRange:
        """A time that may be shorter or longer by a factor."""
        return TimeRange(seconds=seconds, low=seconds / factor, high=seconds * factor)

    def __add__(self, other: TimeRange) -> TimeRange:
        """The sum; the bounds add up, since what makes one part slow makes the others slow as well."""
        return TimeRange(
            seconds=self.seconds + other.seconds, low=self.low + other.low, high=self.high + other.high
        )

    def split_time(self, by: float) -> TimeRange:
        """The time if the work is shared by this number of workers."""
        return TimeRange(seconds=self.seconds / by, low=self.low / by, high=self.high / by)

    @property
    def text(self) -> str:
        """The range in words, with two digits.

        >>> TimeRange(low=190, seconds=300, high=421).text, TimeRange(low=34, seconds=60, high=130).text
        ('3.2 to 7 min', '34 s to 2.2 min')
        >>> TimeRange(low=0.2, seconds=0.4, high=0.9).text
        'under 1 s'
        """
        if self.high < 1:
            return "under 1 s"
        (low, unit), (high, last) = _format_unit(self.low), _format_unit(self.high)
        if (low, unit) == (high, last):
            return f"{high} {last}"
        return f"{low} to {high} {last}" if unit == last else f"{low} {unit} to {high} {last}"


def _format_unit(seconds: float) -> tuple[str, str]:
    """A duration with two digits in the largest unit that fits, and the unit."""
    size, name = next((size, name) for least, size, name in UNITS if seconds >= least)
    digits = float(f"{seconds / size:.2g}")
    return (f"{digits:,.0f}" if digits >= 10 or digits == round(digits) else f"{digits:g}"), name


def format_duration(seconds: float) -> str:
    """A duration in words.

    >>> format_duration(7.2), format_duration(192), format_duration(7300)
    ('7 s', '3 min 12 s', '2 h 1 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


WORDS = 30_000
"""The vocabulary of a usual encoder, whose embeddings are looked up and compute nothing."""

SIMILAR_SIZE = 30.0
"""The factor in size up to which a model's speed tells of another's: a tiny one's time is that of calls."""

Device = tuple[str, str]
"""The kind of a device, and its name as its maker says it; empty where it is not known."""


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


class PastScore(NamedTuple):
    """The work behind a finished record that was scored from vectors, by the model's key.

    `data` is what was encoded (task, data, splits and subsets), `setup` the model, its encoding and prompts;
    `characters` are 0 in records that do not have them, and `others` are the seconds of loading and scoring.
    `compared` are the pairs of tokens of an exact search, `indexed` the tokens of new indexes, and `probed`
    the queries that indexes were searched for, each with its seconds; `streamed` are the settings of the
    index that vectors went into without being kept.
    """

    model: str
    data: str
    setup: str
    type: str
    max_length: int
    texts: int
    characters: int
    parameters: int
    device_kind: str
    device_name: str
    dtype: str
    tokens: int
    seconds: float
    others: float
    compared: float
    compared_seconds: float
    indexed: float
    indexed_seconds: float
    streamed: str
    probed: float
    probed_seconds: float

    @staticmethod
    def from_record(record: Record) -> PastScore:
        """The work behind a record."""
        facts, spent = record.provenance, record.provenance.get("seconds", {})
        device, index = facts.get("device", {}), facts.get("index", {})
        searches = index.get("searches", ())
        new = [search for search in searches if not search["was_there"]]
        kept = all(search.get("vectors_kept", True) for search in searches)
        return PastScore(
            model=record.model.artifact,
            data=hash_data_fields(record.identity),
            setup=hash_setup(record.identity),
            type=record.task.type,
            max_length=record.identity["encoding"]["max_length"],
            texts=facts.get("texts_encoded", 0),
            characters=facts.get("characters_encoded", 0),
            parameters=estimate_non_embedding(record.model.parameters or 0, record.model.dimension),
            device_kind=device.get("kind", ""),
            device_name=device.get("name", ""),
            dtype=record.identity["encoding"].get("dtype", ""),
            tokens=facts.get("tokens_encoded", 0),
            seconds=spent.get("encode", 0.0),
            others=spent.get("load", 0.0) + spent.get("score", 0.0),
            compared=facts.get("token_pairs", 0),
            compared_seconds=spent.get("search", 0.0),
            indexed=sum(one["tokens"] for one in new),
            indexed_seconds=sum(one["seconds"]["index"] for one in new),
            streamed="" if kept else hash_index_settings(index["settings"]),
            probed=sum(search["recall"]["queries"] for search in searches),
            probed_seconds=sum(one["seconds"]["search"] + one["seconds"]["recall"] for one in searches),
        )

    @property
    def speed(self) -> Speed:
        """How fast its texts were encoded."""
        return Speed(
            model=self.model,
            parameters=self.parameters,
            device=(self.device_kind, self.device_name),
            dtype=self.dtype,
            tokens=self.tokens,
            seconds=self.seconds,
        )

    @property
    def is_uncut(self) -> bool:
        """Whether its texts were so short that few can have been cut."""
        return 0 < self.tokens < self.texts * self.max_length / 2


PAST_COLUMNS = PastScore._fields[1:]
"""The columns of a table of past scores, beside the place in their order and the model's key."""


class PastRanking(NamedTuple):
    """The data and the seconds of a finished ranking."""

    data: str
    seconds: float

    @staticmethod
    def from_record(record: Record) -> PastRanking:
        """The work behind a record."""
        return PastRanking(hash_data_fields(record.identity), sum(record.provenance["seconds"].values()))


def hash_index_settings(settings: Mapping[str, Any]) -> str:
    """What an index depends on beside its vectors."""
    return digest({name: settings[name] for name in OF_INDEX})


def hash_data_fields(identity: Mapping[str, Any]) -> str:
    """What is encoded for a score."""
    names = ("task", "data", "splits", "subsets", "documents", "limit")
    return digest({name: identity[name] for name in names if name in identity})[:16]


def hash_setup(identity: Mapping[str, Any]) -> str:
    """What the vectors of a score depend on, whatever searches them."""
    encoding = {name: value for name, value in identity["encoding"].items() if name != "index"}
    return digest({**{name: identity[name] for name in ("artifact", "prompts")}, "encoding": encoding})[:16]


_LOCAL = "seconds AND tokens AND device_kind = ? AND ? IN ('', device_name)"
"""The speeds of a device, as `is_same_device` has it."""


class PastScores:
    """Past scores in a table `past` of a database, of which each question reads what it needs.

    The table has `place`, by which scores are in order, `model` and the columns of `PAST_COLUMNS`.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        # The scores of a run ask the same of one model or one type of task.
        self._answers: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}

    @staticmethod
    def from_scores(scores: Iterable[PastScore] = ()) -> PastScores:
        """Scores in the order that they are given."""
        database, columns = sqlite3.connect(":memory:"), ("place", "model", *PAST_COLUMNS)
        database.execute(f"CREATE TABLE past({', '.join(columns)})")
        rows = ((place, *score) for place, score in enumerate(scores))
        database.executemany(f"INSERT INTO past VALUES ({', '.join('?' * len(columns))})", rows)
        return PastScores(database)

    def list_scores(self) -> list[PastScore]:
        """All scores in their order."""
        return self._list_scores("1 ORDER BY place")

    def find_largest(self, data: str) -> PastScore | None:
        """The first score of some data that had the most texts to encode."""
        return next(iter(self._list_scores("data = ? ORDER BY texts DESC, place LIMIT 1", data)), None)

    def list_streams(self, data: str, setup: str) -> list[str]:
        """The settings of the indexes that vectors of some data and setup went into; empty where kept."""
        return [text for (text,) in self._ask("DISTINCT streamed", "data = ? AND setup = ?", data, setup)]

    def list_overheads(self, data: str, type_: str) -> list[float]:
        """The seconds of loading and scoring: the last ones of the data, else all of the type, else all."""
        rows = self._ask("others", "data = ? ORDER BY place DESC LIMIT 1", data)
        return [
            time for (time,) in rows or self._ask("others", "type = ?", type_) or self._ask("others", "1")
        ]

    def sum_lengths(self, model: str = "") -> tuple[float, float]:
        """The characters and tokens of texts that few can have been cut of, of a model or of all.

        Two special tokens of each text are not counted.
        """
        uncut = "tokens > 0 AND 2 * tokens < texts * max_length AND characters"
        where, values = (f"model = ? AND {uncut}", (model,)) if model else (uncut, ())
        ((characters, tokens),) = self._ask("TOTAL(characters), TOTAL(tokens - 2 * texts)", where, *values)
        return characters, tokens

    def list_speeds(self, device: Device, dtype: str, model: str) -> list[Speed]:
        """The speeds of a model on a device: those of a dtype where any model has one of it there."""
        local, values = self._choose_dtype(device, dtype)
        return [
            score.speed
            for score in self._list_scores(f"model = ? AND {local} ORDER BY place", model, *values)
        ]

    def list_nearest_speeds(self, device: Device, dtype: str, parameters: int) -> list[Speed]:
        """The speeds on a device of the model whose size is nearest; none where all are of another size."""
        local, values = self._choose_dtype(device, dtype)
        ratio = "MAX(1.0 * parameters / ?, 1.0 * ? / parameters)"
        nearest = f"{local} AND parameters AND {ratio} <= ? ORDER BY {ratio}, place LIMIT 1"
        sizes = (parameters, parameters)
        models = self._ask("model", nearest, *values, *sizes, SIMILAR_SIZE, *sizes)
        return [
            speed
            for (model,) in models
            for speed in self.list_speeds(device, dtype, model)
            if speed.parameters
        ]

    def list_searches(
        self, device: Device, kind: Literal["compared", "indexed", "probed"]
    ) -> list[tuple[float, float]]:
        """The amounts and seconds of searches on a device."""
        where = f"device_kind = ? AND ? IN ('', device_name) AND {kind} ORDER BY place"
        return [(row[0], row[1]) for row in self._ask(f"{kind}, {kind}_seconds", where, *device)]

    def _choose_dtype(self, device: Device, dtype: str) -> tuple[str, tuple[str, ...]]:
        """The condition of speeds on a device, of a dtype where it has any, and its values."""
        alike = f"{_LOCAL} AND dtype = ?"
        has_dtype = self._ask("1", f"{alike} LIMIT 1", *device, dtype)
        return (alike, (*device, dtype)) if has_dtype else (_LOCAL, device)

    def _list_scores(self, where: str, *values: Any) -> list[PastScore]:
        return [PastScore(*row) for row in self._ask(", ".join(PastScore._fields), where, *values)]

    def _ask(self, columns: str, where: str, *values: Any) -> list[tuple[Any, ...]]:
        asked = (columns, where, *values)
        if asked not in self._answers:
            query = f"SELECT {columns} FROM past WHERE {where}"
            self._answers[asked] = self._database.execute(query, values).fetchall()
        return self._answers[asked]
