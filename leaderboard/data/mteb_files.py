"""Finding the files of a checkout of mteb's results repository, without following a link."""

from __future__ import annotations

import datetime
import hashlib
import json
import math
import os
import re
import signal
import stat
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from harness.errors import UsageError

CARD = "model_meta.json"
EXPERIMENTS = "experiments"
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class Found(NamedTuple):
    """One file: where it lies below the results, and what changes when it does.

    `problem` says why it is not to be read, empty if it is. The time of the last change of the
    inode is there because archives give all their files one time of modification.
    """

    path: str
    size: int
    mtime_ns: int
    ctime_ns: int
    problem: str = ""


def results_of(path: Path) -> Path:
    """The folder of the results: `path`, or `results` below it.

    Raises:
        UsageError: There is no such folder.
    """
    if not path.is_dir():
        raise UsageError(
            f"{path} is no folder.",
            hint="PATH is a checkout of github.com/embeddings-benchmark/results, or its results folder.",
        )
    return path / "results" if (path / "results").is_dir() else path


def scan(root: Path) -> list[Found]:
    """Every JSON file below the results, sorted by path; other files are none of ours.

    Results lie at <model>/<revision>/<Task>.json and
    <model>/<revision>/experiments/<name>/<Task>.json.
    """
    found: list[Found] = []
    for model in _list(root, "", found, holds=False):
        for revision in _list(root, model, found, holds=False):
            for inner in _list(root, revision, found, holds=True):
                if not inner.endswith(f"/{EXPERIMENTS}"):
                    found.append(Found(inner, 0, 0, 0, "a folder where none belongs"))
                    continue
                for experiment in _list(root, inner, found, holds=False):
                    for deeper in _list(root, experiment, found, holds=True):
                        found.append(Found(deeper, 0, 0, 0, "a folder where none belongs"))
    return sorted(found)


def digest_of(found: list[Found]) -> str:
    """A hash that changes with any file: another one, a missing one, another size or time."""
    digest = hashlib.sha256("\0".join([f"{file.path}\0{file.problem}" for file in found]).encode())
    for numbers in ("size", "mtime_ns", "ctime_ns"):
        digest.update(array("q", map(attrgetter(numbers), found)))
    return digest.hexdigest()


def folder_of(path: str) -> str | None:
    """The folder of an entry that a path lies in, None if it lies in none.

    >>> folder_of("org__model/external/experiments/long/STS12.json")
    'org__model/external/experiments/long'
    """
    folder, _, _ = path.rpartition("/")
    steps = folder.split("/")
    return folder if len(steps) == 2 or (len(steps) == 4 and steps[2] == EXPERIMENTS) else None


def commit_of(path: Path) -> str | None:
    """The commit that is checked out at `path` or right above it, read without git."""
    for folder in (path, path.parent):
        if (folder / ".git").is_dir():
            return _commit(folder / ".git")
    return None


def _commit(git: Path) -> str | None:
    head = _text(git / "HEAD")
    if not head.startswith("ref: refs/") or ".." in head:
        return head if _COMMIT.fullmatch(head) else None
    name = head.removeprefix("ref: ")
    packed = {n: c for c, _, n in (line.partition(" ") for line in _text(git / "packed-refs").splitlines())}
    commit = _text(git / name) or packed.get(name, "")
    return commit if _COMMIT.fullmatch(commit) else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _list(root: Path, below: str, found: list[Found], *, holds: bool) -> list[str]:
    """The folders in a folder; its JSON files go to `found`, with a problem unless it `holds` results."""
    prefix = f"{below}/" if below else ""
    folders = []
    try:
        with os.scandir(f"{root}/{below}") as entries:
            for entry in entries:
                path = f"{prefix}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    if below or not entry.name.startswith("."):
                        folders.append(path)
                elif entry.name.endswith(".json"):
                    found.append(_file(entry, path, holds))
                elif entry.is_symlink() and entry.is_dir():
                    found.append(Found(shown(path), 0, 0, 0, "a symbolic link"))
    except OSError as error:
        found.append(Found(shown(below), 0, 0, 0, f"cannot be listed: {error.strerror}"))
    return folders


def _file(entry: os.DirEntry[str], path: str, holds: bool) -> Found:
    try:
        facts = entry.stat(follow_symlinks=False)
    except OSError as error:
        return Found(shown(path), 0, 0, 0, f"cannot be read: {error.strerror}")
    place = (facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
    if not path.isascii() and shown(path) != path:
        return Found(shown(path), *place, "its name is not UTF-8")
    if stat.S_ISREG(facts.st_mode):
        return Found(path, *place, "" if holds else "not where results lie")
    return Found(path, *place, "a symbolic link" if stat.S_ISLNK(facts.st_mode) else "no regular file")


def shown(path: str) -> str:
    """A path as text, what is no UTF-8 in it escaped."""
    return path.encode("utf-8", "backslashreplace").decode()


HUB = "https://huggingface.co/"
LONGEST = 500
"""No text is longer; what is longer is no name, license or address."""

MOST = 5_000
"""No list holds more."""

_SAME = {
    "maxsim": "max_sim",
    "apache-2": "apache-2.0",
    "not specified": None,
    "none": None,
    "": None,
}
_TYPOS = {
    "open_weights": "open_source",
    "memory_usage_mb": "memory_usage",
    "use_instructions": "use_instuctions",
    "embed_dim": "embedding_dimension",
}
"""Fields, and what some files call them."""


def facts_of(card: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a card by name, None for what is unknown."""
    given = {**{name: card.get(typo) for name, typo in _TYPOS.items()}, **card}
    return {name: read(given.get(field)) for name, (field, read) in FACTS.items()}


def text(value: Any) -> str | None:
    """A text, None if it says nothing."""
    if not isinstance(value, str) or len(value) > LONGEST:
        return None
    plain = clean(value).strip()
    return _SAME.get(plain.lower(), plain)


def clean(value: str) -> str:
    """A text without what cannot be written as UTF-8."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def link(value: Any) -> str | None:
    """An address of the web, None for anything else: it is to become a link."""
    plain = text(value)
    return plain if plain and plain.startswith(("https://", "http://")) else None


def model(value: Any) -> str | None:
    """The name of a model, without the address of the hub."""
    plain = text(value)
    return plain.removeprefix(HUB) if plain else None


def yes(value: Any) -> bool | None:
    """Yes or no."""
    return value if isinstance(value, bool) else None


def given(value: Any) -> bool | None:
    """Yes or no; an address says yes."""
    return True if link(value) else yes(value)


def number(value: Any) -> float | None:
    """A number above zero."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 2**62:
        return None
    return float(value)


def count(value: Any) -> int | None:
    """A whole number above zero.

    >>> count(512.0), count("512"), count(0), count(float("inf"))
    (512, None, None, None)
    """
    return int(value) if number(value) is not None and value == int(value) else None


def unlimited(value: Any) -> bool | None:
    """Whether a number is infinite, None if there is none."""
    if isinstance(value, float) and math.isinf(value):
        return value > 0
    return None if count(value) is None else False


def date(value: Any) -> str | None:
    """A day, as 2024-01-31."""
    try:
        return datetime.date.fromisoformat(value).isoformat() if isinstance(value, str) else None
    except ValueError:
        return None


def names(value: Any) -> list[str] | None:
    """Names, sorted and without repeats: the members of a list, the keys of a table, or a single one."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | dict):
        return None
    found = {text(item) for item in list(value)[:MOST]}
    return sorted(item for item in found if item)


def some(value: Any) -> list[str] | None:
    """Names, None if there are none."""
    return names(value) or None


def languages(value: Any) -> list[str] | None:
    """Codes of languages, None if there are none.

    >>> languages(["zho_Hans", "eng-Latn"])
    ['eng-Latn', 'zho-Hans']
    """
    found = some(value)
    return sorted({code.replace("_", "-") for code in found}) if found else None


def settings(value: Any) -> str | None:
    """A table as JSON, None if it is empty or large."""
    try:
        said = json.dumps(value, sort_keys=True) if isinstance(value, dict) and value else None
    except (ValueError, RecursionError):
        return None
    return said if said and len(said) <= LONGEST else None


FACTS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "card_name": ("name", text),
    "release_date": ("release_date", date),
    "n_parameters": ("n_parameters", count),
    "n_embedding_parameters": ("n_embedding_parameters", count),
    "n_active_parameters_override": ("n_active_parameters_override", count),
    "memory_usage_mb": ("memory_usage_mb", number),
    "max_tokens": ("max_tokens", count),
    "tokens_unlimited": ("max_tokens", unlimited),
    "embed_dim": ("embed_dim", count),
    "license": ("license", text),
    "open_weights": ("open_weights", yes),
    "adapted_from": ("adapted_from", model),
    "superseded_by": ("superseded_by", model),
    "training_datasets": ("training_datasets", names),
    "public_training_data": ("public_training_data", given),
    "training_data_link": ("public_training_data", link),
    "public_training_code": ("public_training_code", given),
    "training_code_link": ("public_training_code", link),
    "use_instructions": ("use_instructions", yes),
    "similarity_fn_name": ("similarity_fn_name", text),
    "languages": ("languages", languages),
    "framework": ("framework", some),
    "modalities": ("modalities", some),
    "model_type": ("model_type", some),
    "reference": ("reference", link),
    "is_cross_encoder": ("is_cross_encoder", yes),
    "experiment_settings": ("experiment_kwargs", settings),
}
"""Facts by name: the field they are read from, and how."""


RENAMED = {
    "NorwegianParliament": "NorwegianParliamentClassification",
    "CMedQAv2": "CMedQAv2-reranking",
    "CMedQAv1": "CMedQAv1-reranking",
    "8TagsClustering": "EightTagsClustering",
    "PPC": "PpcPC",
}
"""Tasks that have another name by now."""

GONE = {f"Scala{language}Classification": "accuracy" for language in ("Nb", "Nn", "Da", "Sv")}
"""The metrics of tasks that mteb has no more."""

_ABOUT = ("mteb_dataset_name", "dataset_revision", "mteb_version")
_METRICS = {
    "cos_sim": "cosine",
    "manhattan": "manhattan",
    "euclidean": "euclidean",
    "dot": "dot",
    "max": "max",
    "similarity": "similarity",
}
"""Tables of metrics, and what their metrics' names begin with today."""

_NO_SUBSETS = {"v_measures", "cos_sim", "euclidean", "manhattan", "dot", "max"}
_FRENCH_ONLY = ("MLSUMClusteringP2P", "MLSUMClusteringS2S")

Known = Mapping[str, tuple[str, str]]
"""A task's name and metric by its name, and by that in lower case."""


def known_tasks(metrics: Mapping[str, str]) -> Known:
    """What `convert` must know of the tasks with these metrics, by name."""
    pairs = {name: (name, metric) for name, metric in {**GONE, **metrics}.items()}
    return {**{name.lower(): pair for name, pair in pairs.items()}, **pairs}


def convert(data: Mapping[str, Any], known: Known) -> tuple[str, dict[str, dict[str, Any]]]:
    """The task's name of today, and its main scores: split → subset → score, None where there is none.

    What is no table where one belongs is passed over.
    """
    named = data["mteb_dataset_name"]
    named = RENAMED.get(named, named)
    task, metric = known.get(named) or known.get(named.lower()) or (named, "main_score")
    splits = {s: table for s, table in data.items() if s not in _ABOUT and isinstance(table, dict)}
    nested = any(_has_subsets(table) for table in splits.values())
    scores = {
        split: {subset: _main_score(metrics, metric) for subset, metrics in _subsets(table, nested).items()}
        for split, table in splits.items()
    }
    _rename(task, data.get("mteb_version"), scores)
    return task, scores


def _has_subsets(table: Mapping[str, Any]) -> bool:
    return any(isinstance(value, dict) for name, value in table.items() if name not in _NO_SUBSETS)


def _subsets(table: Mapping[str, Any], nested: bool) -> dict[str, dict[str, Any]]:
    if not nested:
        return {"default": dict(table)}
    return {subset: metrics for subset, metrics in table.items() if isinstance(metrics, dict)}


def _main_score(metrics: Mapping[str, Any], metric: str) -> Any:
    if "main_score" in metrics:
        return metrics["main_score"]
    if metric in metrics:
        return metrics[metric]
    for table, prefix in _METRICS.items():
        within = metrics.get(table)
        if metric.startswith(f"{prefix}_") and isinstance(within, dict):
            return within.get(metric.removeprefix(f"{prefix}_"))
    return None


def _rename(task: str, version: Any, scores: dict[str, dict[str, Any]]) -> None:
    """Give subsets the names they have today."""
    test = scores.get("test", {})
    if task in _FRENCH_ONLY and version in ("1.1.2.dev0", "1.1.3.dev0") and "default" in test:
        test["fr"] = test.pop("default")
    if task == "XPQARetrieval" and "fr" in test:
        test["fra-fra"] = test.pop("fr")


LARGEST = 64 * 2**20
"""Bytes of a file that is still read."""

SLIM = 2**20
"""Bytes from which on a file is cut down to what is needed while it is read."""

MTEB_FILES_LONGEST = 300
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
        data_revision=_mteb_files_text(data.get("dataset_revision")),
        mteb_version=_mteb_files_text(data.get("mteb_version")),
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
    if not isinstance(given, str) or not 0 < len(given) <= MTEB_FILES_LONGEST:
        raise Unreadable(f"{what} has no name")
    return clean(given)


def _mteb_files_text(given: Any) -> str | None:
    return clean(given) if isinstance(given, str) and 0 < len(given) <= MTEB_FILES_LONGEST else None
