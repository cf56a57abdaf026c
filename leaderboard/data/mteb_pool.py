"""The entries of an import: one for each folder of results, with the facts of its model card."""

from __future__ import annotations

import multiprocessing
import os
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from harness import catalog
from harness.errors import HarnessError
from leaderboard.data.mteb_files import FACTS, FLAGS, Known, Parsed, alone, known_tasks, parse_all

TRUST = ("commit", "external", "none", "other")
"""Kinds of revisions: a pinned commit, told by the authors, unknown, any other word."""

_TYPES = {
    "memory_usage_mb": pa.float64(),
    **dict.fromkeys(("tokens_unlimited", "open_weights", "public_training_data"), pa.bool_()),
    **dict.fromkeys(("public_training_code", "use_instructions", "is_cross_encoder"), pa.bool_()),
    **dict.fromkeys(("n_parameters", "n_embedding_parameters", "n_active_parameters_override"), pa.int64()),
    **dict.fromkeys(("max_tokens", "embed_dim"), pa.int64()),
    **dict.fromkeys(("training_datasets", "languages", "framework"), pa.list_(pa.string())),
    **dict.fromkeys(("modalities", "model_type"), pa.list_(pa.string())),
}

SCHEMA = pa.schema(
    [
        pa.field("folder", pa.string(), nullable=False),
        pa.field("model", pa.string(), nullable=False),
        pa.field("revision", pa.string(), nullable=False),
        pa.field("experiment", pa.string(), nullable=False),
        pa.field("trust", pa.string(), nullable=False),
        pa.field("files", pa.int32(), nullable=False),
        pa.field("rows", pa.int32(), nullable=False),
        pa.field("digest", pa.string(), nullable=False),
        pa.field("card", pa.bool_(), nullable=False),
        *(pa.field(name, _TYPES.get(name, pa.string())) for name in FACTS),
    ]
)
"""The columns of `entries`."""


class Size(NamedTuple):
    """What lies in a folder: files with scores, their rows, and a hash that changes with any of them."""

    files: int
    rows: int
    digest: str


def table_of(sizes: Mapping[str, Size], cards: Mapping[str, Mapping[str, Any]]) -> Any:
    """The entries in the order of `sizes`, both by folder."""
    names = _names(cards)
    rows = []
    for folder, size in sizes.items():
        model, revision, *_ = (*folder.split("/"), "")
        rows.append(
            {
                "folder": folder,
                "model": names.get(model) or model.replace("__", "/", 1),
                "revision": revision,
                "experiment": folder.split("/")[3] if folder.count("/") == 3 else "",
                "trust": trust_of(revision),
                **size._asdict(),
                "card": folder in cards,
                **cards.get(folder, {}),
            }
        )
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def cards_of(table: Any) -> dict[str, dict[str, Any]]:
    """The facts of the cards of a former import, by folder."""
    rows = table.select(["folder", "card", *FACTS]).to_pylist()
    return {row["folder"]: {name: row[name] for name in FACTS} for row in rows if row["card"]}


def trust_of(revision: str) -> str:
    """How far a revision can be trusted.

    >>> trust_of("no_revision_available"), trust_of("main")
    ('none', 'other')
    """
    if re.fullmatch(r"[0-9a-f]{40}", revision):
        return "commit"
    if revision in ("no_revision_available", "no_revision"):
        return "none"
    return "external" if revision == "external" else "other"


def _names(cards: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The models' names by folder, where a card's name is what the folder stands for."""
    found = {}
    for folder, facts in sorted(cards.items()):
        model, name = folder.partition("/")[0], facts["card_name"]
        if name and name.replace("/", "__").replace(" ", "_") == model:
            found[model] = name
    return found


Codes = NDArray[np.int32]
COLUMNS = ("split", "subset", "main_score", "flag")
"""The columns of `scores` that are a row's own; the others are its file's."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Main scores: `split` and `subset` count in their names, `flag` in FLAGS, no score is NaN."""

    splits: list[str]
    subsets: list[str]
    split: Codes
    subset: Codes
    score: NDArray[np.float64]
    flag: NDArray[np.int8]


def of_parsed(parsed: Parsed) -> Rows:
    """What a worker gave."""
    return Rows(
        splits=list(parsed.splits),
        subsets=list(parsed.subsets),
        split=np.frombuffer(parsed.split, dtype=np.int32),
        subset=np.frombuffer(parsed.subset, dtype=np.int32),
        score=np.frombuffer(parsed.score, dtype=np.float64),
        flag=np.frombuffer(parsed.flag, dtype=np.int8),
    )


def of_table(table: Any) -> Rows:
    """The rows of a former import, from COLUMNS of its scores."""
    split, splits = _codes(table["split"])
    subset, subsets = _codes(table["subset"])
    flag, flags = _codes(table["flag"])
    places = np.array([FLAGS.index(name) for name in flags], dtype=np.int8)
    score = table["main_score"].combine_chunks().to_numpy(zero_copy_only=False)
    own = places[flag] if len(flag) else np.zeros(0, dtype=np.int8)
    return Rows(splits=splits, subsets=subsets, split=split, subset=subset, score=score, flag=own)


def joined(parts: Sequence[Rows]) -> Rows:
    """Parts one after the other, over names that all share, sorted."""
    splits = sorted({name for part in parts for name in part.splits})
    subsets = sorted({name for part in parts for name in part.subsets})
    return Rows(
        splits=splits,
        subsets=subsets,
        split=_concat([_moved(part.split, part.splits, splits) for part in parts], np.int32),
        subset=_concat([_moved(part.subset, part.subsets, subsets) for part in parts], np.int32),
        score=_concat([part.score for part in parts], np.float64),
        flag=_concat([part.flag for part in parts], np.int8),
    )


def taken(rows: Rows, starts: NDArray[np.int64], lengths: Codes) -> Rows:
    """Pieces of the rows, by where each begins and how long it is, and the names that they use."""
    ends = np.cumsum(lengths, dtype=np.int64)
    index = np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)
    split, splits = _used(rows.split[index], rows.splits)
    subset, subsets = _used(rows.subset[index], rows.subsets)
    return Rows(
        splits=splits,
        subsets=subsets,
        split=split,
        subset=subset,
        score=rows.score[index],
        flag=rows.flag[index],
    )


def columns_of(rows: Rows) -> dict[str, Any]:
    """COLUMNS as arrow arrays, no score as null."""
    return {
        "split": coded(rows.split, rows.splits),
        "subset": coded(rows.subset, rows.subsets),
        "main_score": pa.array(rows.score, mask=np.isnan(rows.score)),
        "flag": coded(rows.flag.astype(np.int32), FLAGS),
    }


def coded(codes: Codes, names: Sequence[str], missing: NDArray[np.bool_] | None = None) -> Any:
    """A dictionary array of text."""
    return pa.DictionaryArray.from_arrays(
        pa.array(codes, type=pa.int32(), mask=missing), pa.array(names, type=pa.string())
    )


def spread(texts: Sequence[str | None], lengths: Codes) -> Any:
    """A text of each file as a column of its rows."""
    known = sorted({text for text, rows in zip(texts, lengths, strict=True) if text is not None and rows})
    place = {name: i for i, name in enumerate(known)}
    codes = np.array([-1 if text is None else place.get(text, -1) for text in texts], dtype=np.int32)
    codes = np.repeat(codes, lengths)
    return coded(np.maximum(codes, 0), known or [""], codes < 0)


def _codes(column: Any) -> tuple[Codes, list[str]]:
    """The numbers and the names of a dictionary column."""
    whole = column.unify_dictionaries().combine_chunks()
    whole = whole if isinstance(whole, pa.DictionaryArray) else whole.dictionary_encode()
    numbers: Codes = whole.indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    return numbers, whole.dictionary.to_pylist()


def _moved(codes: Codes, names: Sequence[str], to: Sequence[str]) -> Codes:
    place = {name: i for i, name in enumerate(to)}
    return np.array([place[name] for name in names], dtype=np.int32)[codes] if len(codes) else codes


def _used(codes: Codes, names: Sequence[str]) -> tuple[Codes, list[str]]:
    """Without the names that no row has."""
    used = np.bincount(codes, minlength=len(names)) > 0
    place = np.cumsum(used, dtype=np.int32) - 1
    kept = [name for name, there in zip(names, used, strict=True) if there]
    return (place[codes] if len(codes) else codes), kept


def _concat(parts: list[Any], kind: type[np.generic]) -> Any:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=kind)


CHUNK = 800
"""Files that a process reads before it hands over what it found."""

Progress = Callable[[int, int], None]
"""Called with the files read so far, and how many there are to read."""


def parse(root: Path, paths: Sequence[str], workers: int | None, progress: Progress | None) -> list[Parsed]:
    """What the files below `root` hold, in their order, in parts.

    Raises:
        HarnessError: A process was killed.
    """
    tell = progress or (lambda done, total: None)
    chunks = [paths[i : i + CHUNK] for i in range(0, len(paths), CHUNK)]
    count = min(workers or len(os.sched_getaffinity(0)), len(chunks))
    known = _known()
    tell(0, len(paths))
    if count > 1:
        return _in_processes(str(root), chunks, count, known, tell)
    parts = []
    for chunk in chunks:
        parts.append(parse_all(str(root), chunk, known))
        tell(sum(len(part.told) for part in parts), len(paths))
    return parts


def _in_processes(
    root: str, chunks: Sequence[Sequence[str]], count: int, known: Known, tell: Progress
) -> list[Parsed]:
    total, done = sum(map(len, chunks)), 0
    spawn = multiprocessing.get_context("spawn")  # the site that imports may have threads
    pool = ProcessPoolExecutor(count, mp_context=spawn, initializer=alone)
    try:
        asked: list[Future[Parsed]] = [pool.submit(parse_all, root, chunk, known) for chunk in chunks]
        for future in as_completed(asked):
            done += len(future.result().told)
            tell(done, total)
        return [future.result() for future in asked]
    except BrokenProcessPool as error:
        raise HarnessError(
            "A process that reads results was killed, perhaps for want of memory.",
            hint="Run the same command again with --workers 1; the former import is as it was.",
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _known() -> Known:
    """The tasks of mteb and their metrics, from the catalog."""
    suite = catalog.suites().get("mteb")
    offers = suite.offers() if suite else ()
    return known_tasks({offer.name: offer.facts["metric"] for offer in offers if offer.kind == "task"})
