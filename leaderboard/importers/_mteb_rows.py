"""The rows of an import as arrays: from parsed files, from a former import, and put in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from leaderboard.importers._mteb_files import FLAGS, Parsed

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
