"""Past scores: the work behind records that were scored from vectors, in a table that estimates ask."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from harness.core.keys import digest
from harness.search.plaid import OF_INDEX
from harness.storage.record import Record

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
