"""The rows of a per-example file, as arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Texts = NDArray[np.object_]


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Columns of equal length (results/README.md).

    Attributes:
        split: Of the data.
        subset: Likewise.
        ids: Of the examples.
        replicate: The probe, fold, draw or seed.
        prediction: As text, or numbers where a recipe trained.
        gold: Likewise.
        metric: What the row scored; NaN where it has no score of its own.
    """

    split: Texts
    subset: Texts
    ids: Texts
    replicate: NDArray[np.int64]
    prediction: NDArray[Any]
    gold: NDArray[Any]
    metric: NDArray[np.float64]

    def parts(self) -> Iterator[tuple[tuple[str, str], Rows]]:
        """The rows of each split and subset, by the ids of their examples."""
        for name in dict.fromkeys(zip(self.split.tolist(), self.subset.tolist(), strict=True)):
            chosen = np.flatnonzero((self.split == name[0]) & (self.subset == name[1]))
            yield name, self.at(chosen[np.argsort(self.ids[chosen].astype(str), kind="stable")])

    def replicates(self) -> list[Rows]:
        """The rows of each probe, fold, draw or seed."""
        found = dict.fromkeys(self.replicate.tolist())
        return [self.at(np.flatnonzero(self.replicate == one)) for one in sorted(found)]

    def at(self, places: NDArray[np.intp]) -> Rows:
        """Some of the rows."""
        return Rows(
            split=self.split[places],
            subset=self.subset[places],
            ids=self.ids[places],
            replicate=self.replicate[places],
            prediction=self.prediction[places],
            gold=self.gold[places],
            metric=self.metric[places],
        )

    @property
    def digest(self) -> str:
        """What stands for the examples in their order."""
        return digest(self.ids.tolist())


def digest(names: list[str]) -> str:
    """What stands for units in their order."""
    return hashlib.sha256("\0".join(names).encode()).hexdigest()


def read(path: Path) -> Rows:
    """The rows of a per-example file."""
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        table = file.read()
    texts = {name: np.array(table[name].to_pylist(), dtype=object) for name in ("split", "subset")}
    values = {name: table[name].to_numpy() for name in ("prediction", "gold")}
    metric = table["metric"].to_pylist()
    return Rows(
        split=texts["split"],
        subset=texts["subset"],
        ids=np.array(table["example_id"].to_pylist(), dtype=object),
        replicate=table["replicate"].to_numpy().astype(np.int64),
        prediction=values["prediction"],
        gold=values["gold"],
        metric=np.array([np.nan if one is None else one for one in metric], dtype=np.float64),
    )
