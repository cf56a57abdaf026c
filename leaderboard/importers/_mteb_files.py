"""Reading one result of mteb, and many in a process of their own.

Imports nothing heavy: each worker process starts with this module.
"""

from __future__ import annotations

import json
import math
import os
import signal
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from leaderboard.importers._mteb_cards import clean, facts_of
from leaderboard.importers._mteb_old import Known, convert
from leaderboard.importers._mteb_scan import CARD

LARGEST = 64 * 2**20
"""Bytes of a file that is still read."""

SLIM = 2**20
"""Bytes from which on a file is cut down to what is needed while it is read."""

LONGEST = 300
"""Characters of a name that is still one."""

FLAGS = ("", "impossible", "no-score")
FINE, IMPOSSIBLE, NO_SCORE = range(3)

TIME = "evaluation_time"

_KEEP = ("hf_subset", "main_score")


class Unreadable(Exception):
    """Why a file is left out."""


class Told(NamedTuple):
    """What one file is: `problem` says why it gives no scores, empty if it does.

    `seconds` is how long its scores took on whatever machine they were made, None where it does not say.
    """

    problem: str = ""
    task: str | None = None
    data_revision: str | None = None
    mteb_version: str | None = None
    converted: bool = False
    repeated: int = 0
    rows: int = 0
    seconds: float | None = None


@dataclass(kw_only=True)
class Parsed:
    """What files hold, their rows one after the other: compact, to travel between processes.

    Attributes:
        told: What each file is, in the order asked for.
        cards: The facts of the model cards by path.
        splits: The number of each split in `split`; likewise `subsets`.
        score: Main scores, NaN where there is none; `flag` counts in FLAGS.
    """

    told: list[Told] = field(default_factory=list)
    cards: dict[str, dict[str, Any]] = field(default_factory=dict)
    splits: dict[str, int] = field(default_factory=dict)
    subsets: dict[str, int] = field(default_factory=dict)
    split: array[int] = field(default_factory=lambda: array("i"))
    subset: array[int] = field(default_factory=lambda: array("i"))
    score: array[float] = field(default_factory=lambda: array("d"))
    flag: array[int] = field(default_factory=lambda: array("b"))

    def add(self, split: str, subset: str, given: Any) -> None:
        """Take in one row."""
        score, flag = judge(given)
        self.split.append(self.splits.setdefault(split, len(self.splits)))
        self.subset.append(self.subsets.setdefault(subset, len(self.subsets)))
        self.score.append(score)
        self.flag.append(flag)


def alone() -> None:
    """Begin a worker process: Ctrl-C is for the one that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def parse_all(root: str, paths: Sequence[str], known: Known) -> Parsed:
    """Read files below `root`; none of them can make it fail."""
    parsed = Parsed()
    for path in paths:
        try:
            data = load(f"{root}/{path}")
            if path.endswith(f"/{CARD}"):
                parsed.cards[path] = facts_of(data)
                told = Told()
            else:
                told = _take(parsed, data, known)
        except Unreadable as error:
            told = Told(problem=str(error))
        except RecursionError:
            told = Told(problem="nested too deeply")
        except MemoryError:
            told = Told(problem="too large for the memory")
        parsed.told.append(told)
    return parsed


def load(path: str) -> dict[str, Any]:
    """The JSON object in a regular file; of large ones only what is needed.

    Raises:
        Unreadable: There is none, or it is too large.
    """
    try:
        content = _bytes(path)
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}") from error
    if len(content) > LARGEST:
        raise Unreadable(f"larger than {LARGEST >> 20} MiB")
    try:
        data = json.loads(content, object_pairs_hook=_slim if len(content) > SLIM else None)
    except ValueError as error:
        raise Unreadable(f"not JSON: {str(error)[:80]}") from error
    if not isinstance(data, dict):
        raise Unreadable("no JSON object")
    return data


def _bytes(path: str) -> bytes:
    """The first bytes of a file, one more than LARGEST at most."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        expected = min(os.fstat(descriptor).st_size, LARGEST)
        content = os.read(descriptor, expected + 1)
        while len(content) <= LARGEST and (more := os.read(descriptor, SLIM)):
            content += more
        return content
    finally:
        os.close(descriptor)


def _slim(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object without the metrics that nobody asks for."""
    found = dict(pairs)
    return {name: found[name] for name in _KEEP if name in found} if "hf_subset" in found else found


def _take(parsed: Parsed, data: Mapping[str, Any], known: Known) -> Told:
    """Add the rows of one file, all of them or none."""
    old = "scores" not in data and "mteb_dataset_name" in data
    task = _name(data.get("mteb_dataset_name" if old else "task_name"), "its task")
    if old:
        task, scores = convert({**data, "mteb_dataset_name": task}, known)
        scores = {
            _name(s, "a split"): {_name(n, "a subset"): x for n, x in v.items()} for s, v in scores.items()
        }
        repeated = 0
    else:
        scores, repeated = _scores(data.get("scores"))
    before = len(parsed.score)
    for split, subsets in scores.items():
        for subset, given in subsets.items():
            parsed.add(split, subset, given)
    return Told(
        task=task,
        data_revision=_text(data.get("dataset_revision")),
        mteb_version=_text(data.get("mteb_version")),
        converted=old,
        repeated=repeated,
        rows=len(parsed.score) - before,
        seconds=_old_seconds(data) if old else duration(data.get(TIME)),
    )


def _old_seconds(data: Mapping[str, Any]) -> float | None:
    """What the splits of a file from before mteb 1.11 took together, None where one does not say."""
    told = [duration(table.get(TIME)) for table in data.values() if isinstance(table, dict)]
    known = [seconds for seconds in told if seconds is not None]
    return sum(known) if known and len(known) == len(told) else None


def duration(given: Any) -> float | None:
    """Seconds, None for what cannot be a duration.

    >>> duration(2.5), duration(0), duration("2.5"), duration(float("inf"))
    (2.5, None, None, None)
    """
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < 2**31:
        return None
    return float(given)


def _scores(given: Any) -> tuple[dict[str, dict[str, Any]], int]:
    """Split → subset → main score, and how many rows were told twice: the last one counts."""
    if not isinstance(given, dict):
        raise Unreadable("its scores are no table")
    scores: dict[str, dict[str, Any]] = {}
    told = 0
    for split, rows in given.items():
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise Unreadable("a split that is no list of tables")
        of = scores[_name(split, "a split")] = {}
        for row in rows:
            of[_name(row.get("hf_subset"), "a subset")] = row.get("main_score")
        told += len(rows)
    return scores, told - sum(map(len, scores.values()))


def judge(given: Any) -> tuple[float, int]:
    """A main score and its flag; NaN where it is no finite number.

    >>> judge(0.5), judge(98.1), judge("0.5")
    ((0.5, 0), (98.1, 1), (nan, 2))
    """
    if isinstance(given, bool) or not isinstance(given, int | float):
        return math.nan, NO_SCORE
    try:
        score = float(given)
    except OverflowError:
        score = math.inf
    if not math.isfinite(score):
        return math.nan, IMPOSSIBLE
    return score, FINE if -1 <= score <= 1 else IMPOSSIBLE


def _name(given: Any, what: str) -> str:
    if not isinstance(given, str) or not 0 < len(given) <= LONGEST:
        raise Unreadable(f"{what} has no name")
    return clean(given)


def _text(given: Any) -> str | None:
    return clean(given) if isinstance(given, str) and 0 < len(given) <= LONGEST else None
