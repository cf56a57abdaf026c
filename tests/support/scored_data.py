"""Small data sets of queries with scored documents, in hub layout."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datasets import Dataset

CARD = """---
configs:
- config_name: train
  data_files: train/*.parquet
- config_name: queries
  data_files: queries/*.parquet
- config_name: documents
  data_files: documents/*.parquet
---
"""


def sentence(number: int) -> str:
    """A short sentence; no two of the first ten thousand are equal."""
    words = ["cat", "sat", "mat", "query", *"abcdefgh"]
    return " ".join(["the", *(words[(number * 31 + at) % 12] for at in range(number % 7)), str(number)])


def tables(rows: int = 12, documents: int = 3) -> dict[str, dict[str, list[Any]]]:
    """Tables of `rows` queries with `documents` documents each; the scores fall by less and less."""
    return {
        "train": {
            "query_id": [f"q{row}" for row in reversed(range(rows))],
            "document_ids": [
                [f"d{(row * documents + at) % (rows * 2)}" for at in range(documents)]
                for row in reversed(range(rows))
            ],
            "scores": [[1 / (1 + at + row % 3) for at in range(documents)] for row in range(rows)],
        },
        "queries": {
            "query_id": [f"q{row}" for row in range(rows)],
            "text": [sentence(row) for row in range(rows)],
        },
        "documents": {
            "document_id": [f"d{at}" for at in range(rows * 2)],
            "text": [f"{sentence(1000 + at)}." for at in range(rows * 2)],
        },
    }


def write(folder: Path, content: Mapping[str, Mapping[str, list[Any]]] | None = None) -> Path:
    """A folder of these tables, those of `tables()` unless others are given."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text(CARD)
    for name, columns in (content or tables()).items():
        (folder / name).mkdir(exist_ok=True)
        Dataset.from_dict(dict(columns)).to_parquet(str(folder / name / "train-00000-of-00001.parquet"))
    return folder
