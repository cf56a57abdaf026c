"""Data that is proven to be that of a revision on the hub."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from harness.storage.record import Record

REVISIONS = Path(__file__).with_name("revisions.csv")
"""Revisions of tasks' data that hold the same texts as another, or differ (benchmarks/prove_data.py)."""


@cache
def _read_revision_rows() -> Mapping[tuple[str, str], Mapping[str, str]]:
    with REVISIONS.open(encoding="utf-8", newline="") as file:
        return {(row["task"], row["revision"]): row for row in csv.DictReader(file)}


@cache
def read_revisions() -> Mapping[tuple[str, str], str]:
    """By task and revision, the revision that holds the same texts."""
    return {key: row["same_as"] for key, row in _read_revision_rows().items() if row["same_as"]}


def explain_other_data(task: str, data: str) -> str:
    """How a copy of a task's data differs from the pinned revision; empty where nothing says it."""
    row = _read_revision_rows().get((task, data), {"same_as": "?"})
    return "" if row["same_as"] else row["evidence"]


def resolve_data_revision(task: str, data: str) -> str:
    """One revision for all that are known to hold the same texts."""
    return read_revisions().get((task, data), data)


def find_data_revision(record: Record) -> str | None:
    """The revision on the hub with the texts that a record was measured on; None if none is known."""
    data: dict[str, str | None] = record.identity["data"]
    content = data.get("content")
    if (stated := data.get("revision") or content) is None:
        return None
    revision = resolve_data_revision(record.task.name, stated)
    return None if revision == content else revision
