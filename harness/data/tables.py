"""Data sets as rows of a table and as JSON (docs/json.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from harness.data.needs import Need, Status
from harness.data.sizes import human_size
from harness.data.verify import Problem

HEADER = ("data set", "revision", "tasks", "size", "where", "state")

PLACES = {"root": "data root", "hub-cache": "hub cache", "hub": "hub"}


def status_row(row: Status, sizes: Mapping[Need, int]) -> tuple[str, ...]:
    """The cells under `HEADER`; `sizes` are those known of data that is not here."""
    need = row.need
    tasks = ", ".join(need.tasks[:3]) + (f" +{len(need.tasks) - 3}" if len(need.tasks) > 3 else "")
    where = PLACES.get(row.where or "", "–")
    return (
        need.path,
        need.revision[:12] or "–",
        tasks or "–",
        human_size(_size(row, sizes)),
        where,
        row.state,
    )


def status_json(row: Status, sizes: Mapping[Need, int]) -> dict[str, Any]:
    """How a data set stands, as plain values."""
    return {
        "path": row.need.path,
        "revision": row.need.revision,
        "content": row.data.content if row.data and row.data.content else None,
        "tasks": list(row.need.tasks),
        "subsets": list(row.need.subsets),
        "bytes": _size(row, sizes),
        "where": row.where,
        "state": row.state,
    }


def verified_json(need: Need, problems: Sequence[Problem]) -> dict[str, Any]:
    """What a check found, as plain values."""
    told = [{"kind": p.kind, "file": p.file, "message": p.message} for p in problems]
    return {"path": need.path, "revision": need.revision, "state": verdict(problems), "problems": told}


def verdict(problems: Sequence[Problem]) -> Literal["wrong", "unverified", "verified"]:
    """What problems amount to: "unverified" if there are only such that are not wrong."""
    if any(p.wrong for p in problems):
        return "wrong"
    return "unverified" if problems else "verified"


def _size(row: Status, sizes: Mapping[Need, int]) -> int | None:
    return row.size if row.size is not None else sizes.get(row.need)
