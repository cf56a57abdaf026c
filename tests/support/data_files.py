"""Small data files of tests: lines of JSON, compressed or not, and Parquet."""

from __future__ import annotations

import gzip
import json
import os
import tarfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

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


def find_published(archive: Path, folder: Path, one_in: int, named: Collection[str] = ()) -> Path:
    """mteb's public results: all where HARNESS_MTEB_RESULTS names them, else those of some models.

    Args:
        archive: mteb-results.tar.xz.
        folder: Where these results are unpacked.
        one_in: One in so many models is taken.
        named: Models that are taken besides.
    """
    if whole := os.environ.get("HARNESS_MTEB_RESULTS"):
        return Path(whole)
    wanted = {name.replace("/", "__") for name in named}
    with tarfile.open(archive) as packed:
        for member in packed:
            model = member.name.partition("results/")[2].partition("/")[0]
            if model in wanted or crc32(model.encode()) % one_in == 0:
                packed.extract(member, folder, **UNPACKED)
    return next(path.parent for path in (folder, *folder.glob("*")) for path in path.glob("results"))
