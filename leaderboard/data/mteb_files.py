"""A file of mteb's results: the main scores of a task, or the card of a model.

Worker processes read the files, so this file imports nothing that is heavy.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import signal
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from harness.core.files import is_plain_name
from harness.core.types import is_number

CARD = "model_meta.json"

LARGEST = 64 * 2**20
"""Bytes of the largest file that is read."""

LARGE = 2**20
"""Bytes from which on only the main scores of a file are held in memory."""

FLAGS = ("", "impossible", "no-score")
FINE, IMPOSSIBLE, NO_SCORE = FLAGS
_NAME_LENGTH = 300
_TEXT_LENGTH = 500
_LIST_LENGTH = 5_000

Tasks = Mapping[str, tuple[str, str]]
"""The name and the metric of each task of mteb, by its name and by that in lower case."""


class Unreadable(Exception):
    """Why a file gives no scores."""


class Content(NamedTuple):
    """The facts of one file; `problem` says why it gives no scores, `seconds` is how long evaluation took."""

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
    """The contents of files in order, and their scores one after the other; NaN stands for no score."""

    files: list[Content] = field(default_factory=list)
    cards: dict[str, dict[str, Any]] = field(default_factory=dict)
    split: list[str] = field(default_factory=list)
    subset: list[str] = field(default_factory=list)
    score: array[float] = field(default_factory=lambda: array("d"))
    flag: list[str] = field(default_factory=list)


def ignore_interrupts() -> None:
    """Leave Ctrl-C to the process that started this one."""
    # A terminal sends Ctrl-C to every process of the group: each worker would print a traceback.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def parse_files(root: str, tasks: Tasks, paths: Sequence[str]) -> Parsed:
    """Read files below `root`; a bad one is a `problem`, never an error.

    Args:
        root: The folder of results.
        tasks: The tasks that mteb knows (build_task_index).
        paths: Paths of files below `root`.
    """
    parsed = Parsed()
    for path in paths:
        try:
            data = _load(f"{root}/{path}")
            if path.endswith(f"/{CARD}"):
                parsed.cards[path] = parse_card_facts(data)
                content = Content()
            else:
                content = _add_scores(parsed, data, tasks)
        except Unreadable as error:
            content = Content(problem=str(error))
        # json reads nested lists by recursion: ten thousand brackets in one file must not end the import.
        except RecursionError:
            content = Content(problem="nested too deeply")
        except MemoryError:
            content = Content(problem="too large for the memory")
        parsed.files.append(content)
    return parsed


def _load(path: str) -> dict[str, Any]:
    """The JSON object in a regular file."""
    # Since the listing a link or a pipe may have taken the place of the file.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        with open(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
            # read(n) allocates n bytes at once, so n is what the file holds. One byte more tells a file that
            # is too large. A pipe without a writer gives None.
            content = file.read(min(os.fstat(file.fileno()).st_size, LARGEST) + 1) or b""
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}") from error
    if len(content) > LARGEST:
        raise Unreadable(f"larger than {LARGEST >> 20} MiB")
    try:
        # The hook drops the other metrics while the file is read: whole, it takes many times its size as
        # objects. It is slow, so small files do without it.
        data = json.loads(content, object_pairs_hook=_filter_main_scores if len(content) > LARGE else None)
    except ValueError as error:
        raise Unreadable(f"not JSON: {str(error)[:80]}") from error
    if not isinstance(data, dict):
        raise Unreadable("no JSON object")
    return data


def _filter_main_scores(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object without the other metrics of a subset."""
    data = dict(pairs)
    return {k: data[k] for k in ("hf_subset", "main_score") if k in data} if "hf_subset" in data else data


def _add_scores(parsed: Parsed, data: Mapping[str, Any], tasks: Tasks) -> Content:
    """Add the scores of a file, all of them or none."""
    old = "scores" not in data and "mteb_dataset_name" in data
    task = _require_name(data.get("mteb_dataset_name" if old else "task_name"), "its task")
    if old:
        task, scores = _convert(task, data, tasks)
        repeated, seconds = 0, _sum_old_seconds(data)
    else:
        scores, repeated = _parse_split_scores(data.get("scores"))
        seconds = _parse_evaluation_time(data.get("evaluation_time"))
    rows = [(split, subset, x) for split, subsets in scores.items() for subset, x in subsets.items()]
    for split, subset, raw_score in rows:
        score, flag = parse_main_score(raw_score)
        # One object for each name: pickle then sends it to the parent process only once.
        parsed.split.append(sys.intern(split))
        parsed.subset.append(sys.intern(subset))
        parsed.score.append(score)
        parsed.flag.append(flag)
    return Content(
        task=task, data_revision=_parse_version_text(data.get("dataset_revision")),
        mteb_version=_parse_version_text(data.get("mteb_version")), converted=old, repeated=repeated,
        rows=len(rows), seconds=seconds,
    )  # fmt: skip


def _parse_split_scores(table: Any) -> tuple[dict[str, dict[str, Any]], int]:
    """Split → subset → main score, and how many subsets are repeated: the last one counts."""
    if not isinstance(table, dict):
        raise Unreadable("its scores are no table")
    scores: dict[str, dict[str, Any]] = {}
    total = 0
    for split, rows in table.items():
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise Unreadable("a split that is no list of tables")
        subsets = scores[_require_name(split, "a split")] = {}
        for row in rows:
            subsets[_require_name(row.get("hf_subset"), "a subset")] = row.get("main_score")
        total += len(rows)
    return scores, total - sum(map(len, scores.values()))


def parse_main_score(value: Any) -> tuple[float, str]:
    """A main score and its flag; NaN where it is no finite number.

    >>> parse_main_score(0.5), parse_main_score(98.1), parse_main_score("0.5")
    ((0.5, ''), (98.1, 'impossible'), (nan, 'no-score'))
    """
    if not is_number(value):
        return math.nan, NO_SCORE
    try:
        score = float(value)
    # JSON may hold integers that no float can.
    except OverflowError:
        score = math.inf
    if not math.isfinite(score):
        return math.nan, IMPOSSIBLE
    return score, FINE if -1 <= score <= 1 else IMPOSSIBLE


def _parse_evaluation_time(seconds: Any) -> float | None:
    # Seconds: 2**31 are 68 years, and no evaluation took that long.
    return float(seconds) if is_number(seconds) and 0 < seconds < 2**31 else None


def _require_name(name: Any, what: str) -> str:
    if not isinstance(name, str) or not name:
        raise Unreadable(f"{what} has no name")
    if not is_plain_name(name):
        raise Unreadable(f"{what} has a name that is too long, or has control characters")
    return _replace_surrogates(name)


def _parse_version_text(text: Any) -> str | None:
    return _replace_surrogates(text) if isinstance(text, str) and 0 < len(text) <= _NAME_LENGTH else None


def _replace_surrogates(text: str) -> str:
    """A text without what cannot be written as UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


# Files from before mteb 1.11

_NEW_NAMES = {
    "NorwegianParliament": "NorwegianParliamentClassification", "CMedQAv2": "CMedQAv2-reranking",
    "CMedQAv1": "CMedQAv1-reranking", "8TagsClustering": "EightTagsClustering", "PPC": "PpcPC",
}  # fmt: skip
_REMOVED_TASKS = {f"Scala{language}Classification": "accuracy" for language in ("Nb", "Nn", "Da", "Sv")}
_PREFIXES = {"cos_sim": "cosine", **{n: n for n in ("manhattan", "euclidean", "dot", "max", "similarity")}}
"""Tables of metrics, and how the names of these metrics begin today."""
_NOT_SPLITS = ("mteb_dataset_name", "dataset_revision", "mteb_version")
_NOT_SUBSETS = {"v_measures", "cos_sim", "euclidean", "manhattan", "dot", "max"}
_FRENCH_ONLY = ("MLSUMClusteringP2P", "MLSUMClusteringS2S")


def build_task_index(metrics: Mapping[str, str]) -> Tasks:
    """The tasks with these metrics, and those that mteb no longer has."""
    pairs = {name: (name, metric) for name, metric in {**_REMOVED_TASKS, **metrics}.items()}
    return {**{name.lower(): pair for name, pair in pairs.items()}, **pairs}


def _convert(name: str, data: Mapping[str, Any], tasks: Tasks) -> tuple[str, dict[str, dict[str, Any]]]:
    """Today's name of the task, and split → subset → main score (None without one), as mteb converts it."""
    name = _NEW_NAMES.get(name, name)
    task, metric = tasks.get(name) or tasks.get(name.lower()) or (name, "main_score")
    splits = {s: table for s, table in data.items() if s not in _NOT_SPLITS and isinstance(table, dict)}
    # Files with several languages have a table for each; in others the metrics stand right below the split.
    tables = (x for table in splits.values() for n, x in table.items() if n not in _NOT_SUBSETS)
    nested = any(isinstance(table, dict) for table in tables)
    scores: dict[str, dict[str, Any]] = {}
    for split, table in splits.items():
        subsets = table.items() if nested else [("default", table)]
        old = [(_require_name(n, "a subset"), x) for n, x in subsets if isinstance(x, dict)]
        scores[_require_name(split, "a split")] = {n: _find_old_score(x, metric) for n, x in old}
    # From here on as mteb does in TaskResult._convert_from_before_v1_11_0: these versions wrote the French
    # subset as the default one.
    test, french = scores.get("test", {}), task in _FRENCH_ONLY
    if french and data.get("mteb_version") in ("1.1.2.dev0", "1.1.3.dev0") and "default" in test:
        test["fr"] = test.pop("default")
    if task == "XPQARetrieval" and "fr" in test:
        test["fra-fra"] = test.pop("fr")
    return task, scores


def _find_old_score(metrics: Mapping[str, Any], metric: str) -> Any:
    for name in ("main_score", metric):
        if name in metrics:
            return metrics[name]
    for table, prefix in _PREFIXES.items():
        inner = metrics.get(table)
        if metric.startswith(f"{prefix}_") and isinstance(inner, dict):
            return inner.get(metric.removeprefix(f"{prefix}_"))
    return None


def _sum_old_seconds(data: Mapping[str, Any]) -> float | None:
    """The evaluation time of all splits, None where one has none."""
    tables = [table for table in data.values() if isinstance(table, dict)]
    times = [_parse_evaluation_time(table.get("evaluation_time")) for table in tables]
    durations = [seconds for seconds in times if seconds is not None]
    return sum(durations) if durations and len(durations) == len(times) else None


# Cards

_SAME = {"maxsim": "max_sim", "apache-2": "apache-2.0", "not specified": None, "none": None, "": None}
_MISSPELLED = {
    "open_weights": "open_source",
    "memory_usage_mb": "memory_usage",
    "use_instructions": "use_instuctions",
    "embed_dim": "embedding_dimension",
}
"""Fields, and what some cards call them."""


def parse_card_facts(card: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a card by name, None for what is not stated."""
    card_values = {**{name: card.get(other) for name, other in _MISSPELLED.items()}, **card}
    return {name: read(card_values.get(field)) for name, (field, read) in FACTS.items()}


def _parse_card_text(value: Any) -> str | None:
    if not isinstance(value, str) or len(value) > _TEXT_LENGTH:
        return None
    text = _replace_surrogates(value).strip()
    return _SAME.get(text.lower(), text)


def _link(value: Any) -> str | None:
    """An address of the web and nothing else, as it becomes a link."""
    text = _parse_card_text(value)
    return text if text and text.startswith(("https://", "http://")) else None


def _parse_model_name(value: Any) -> str | None:
    text = _parse_card_text(value)
    return text.removeprefix("https://huggingface.co/") if text else None


def _parse_flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _parse_flag_or_link(value: Any) -> bool | None:
    # Cards state public data or code with true, or with its address.
    return True if _link(value) else _parse_flag(value)


def _parse_positive_number(value: Any) -> float | None:
    # Above, int64 columns could not hold it; infinity is left to `tokens_unlimited`.
    return float(value) if is_number(value) and 0 < value < 2**62 else None


def _parse_card_count(value: Any) -> int | None:
    return int(value) if _parse_positive_number(value) is not None and value == int(value) else None


def _is_infinite(value: Any) -> bool | None:
    """Whether a number is infinite, None without a number."""
    if isinstance(value, float) and math.isinf(value):
        return value > 0
    return None if _parse_card_count(value) is None else False


def _parse_card_date(value: Any) -> str | None:
    try:
        return datetime.date.fromisoformat(value).isoformat() if isinstance(value, str) else None
    except ValueError:
        return None


def _parse_card_names(value: Any) -> list[str] | None:
    """Names, sorted and each once: of a list, the keys of a table, or a single one."""
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list | dict):
        return None
    return sorted({name for item in list(values)[:_LIST_LENGTH] if (name := _parse_card_text(item))})


def _parse_nonempty_names(value: Any) -> list[str] | None:
    return _parse_card_names(value) or None


def _parse_card_languages(value: Any) -> list[str] | None:
    return _parse_nonempty_names([code.replace("_", "-") for code in _parse_card_names(value) or ()])


_SAME_NAME: dict[str, Callable[[Any], Any]] = {
    "release_date": _parse_card_date, "n_parameters": _parse_card_count,
    "n_embedding_parameters": _parse_card_count, "memory_usage_mb": _parse_positive_number,
    "max_tokens": _parse_card_count, "embed_dim": _parse_card_count, "license": _parse_card_text,
    "open_weights": _parse_flag,
    "adapted_from": _parse_model_name, "superseded_by": _parse_model_name,
    "training_datasets": _parse_card_names, "public_training_data": _parse_flag_or_link,
    "public_training_code": _parse_flag_or_link, "use_instructions": _parse_flag,
    "similarity_fn_name": _parse_card_text, "languages": _parse_card_languages,
    "framework": _parse_nonempty_names, "modalities": _parse_nonempty_names,
    "model_type": _parse_nonempty_names, "reference": _link, "is_cross_encoder": _parse_flag,
}  # fmt: skip
FACTS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "card_name": ("name", _parse_card_text),
    **{name: (name, read) for name, read in _SAME_NAME.items()},
    "tokens_unlimited": ("max_tokens", _is_infinite),
    "training_data_link": ("public_training_data", _link),
    "training_code_link": ("public_training_code", _link),
}
"""Facts by name: the field of the card, and how it is read."""
