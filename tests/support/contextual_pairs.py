"""Pairs for tiny trainings on contextual batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from datasets import Dataset

import tiny
from harness.data.training.sets import LocatedTraining, TrainingData


def pairs_file(folder: Path, rows: int, *, texts: Callable[[int], str] | None = None) -> LocatedTraining:
    """Pairs in a Parquet file."""
    folder.mkdir(parents=True, exist_ok=True)
    words = texts or (lambda at: " ".join(tiny.WORDS[(at // 7**n) % 7 + n] for n in range(4)))
    columns = {
        "anchor": [words(at) for at in range(rows)],
        "positive": [words(at * 3 + 1) for at in range(rows)],
    }
    Dataset.from_dict(columns).to_parquet(str(folder / "rows.parquet"))
    data = TrainingData(content=f"{rows:064d}", columns=("anchor", "positive"), rows=rows)
    return LocatedTraining(data=data, file=folder / "rows.parquet", name="rows", rows=rows, own=True)
