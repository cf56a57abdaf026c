"""Small data files of tests: lines of JSON, compressed or not, and Parquet."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

UNPACKED: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""Arguments for unpacking a tar: the first releases of Python 3.11 know no filter."""


def lines(path: Path, rows: Sequence[object]) -> Path:
    """A file with a line of JSON for each row, compressed where its name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def parquet(path: Path, columns: Mapping[str, Any]) -> Path:
    """A Parquet file with these values of each column."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(dict(columns)), path)
    return path
