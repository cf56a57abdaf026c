"""The papers' rows as entries of the index: what is printed of a suite, never ranked with the rest."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from leaderboard.data.entries import NewEntry, Unit
from leaderboard.data.paper_tables import papers
from leaderboard.data.papers import (
    AVERAGE,
    OVER_TASKS,
    OVER_TYPES,
    SCORES,
    SUITES,
    TYPES,
    Paper,
    PaperTable,
    PaperValue,
    column_of,
    means,
    plain,
    same_queries,
    title,
)
from leaderboard.data.suites import SiteSuite, views

SOURCE = "reported"


def units(folder: Path | None, suites: Mapping[str, SiteSuite]) -> Iterator[Unit]:
    """One unit for all papers of a folder."""
    if folder is None:
        return
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*")):
        digest.update(path.name.encode() + path.read_bytes() if path.is_file() else b"")
    yield Unit(source=SOURCE, name=SOURCE, stamp=digest.hexdigest(), read=partial(_read, folder, suites))


def _read(folder: Path, suites: Mapping[str, SiteSuite]) -> list[NewEntry]:
    return [entry for paper in papers(folder).values() for entry in _entries(paper, suites)]


def _entries(paper: Paper, suites: Mapping[str, SiteSuite]) -> Iterator[NewEntry]:
    for table in paper.tables.values():
        lines: dict[tuple[str, str, str, str], list[PaperValue]] = {}
        for row in table.rows:
            listed = suites.get(SUITES.get(row.suite, ""))
            if listed is not None and row.unit in SCORES and not _stands_twice(row, listed):
                key = (row.model, row.size_class, row.setting, row.suite)
                lines.setdefault(key, []).append(row)
        for (_, _, _, suite), rows in lines.items():
            document = _document(rows, suites[SUITES[suite]])
            if document:
                yield _entry(paper, table, rows, suites[SUITES[suite]], document)


def _stands_twice(row: PaperValue, listed: SiteSuite) -> bool:
    """Whether a row is copied from a paper that is here itself, and would stand under the same view."""
    return row.setting.startswith("copied from") and not listed.suite.conventions


def _document(rows: Sequence[PaperValue], listed: SiteSuite) -> dict[str, Any]:
    """What a printed line says of a suite's columns or types, as shares of 1."""
    suite = rows[0].suite
    scale = 1 if rows[0].unit == "fraction" else 100
    values = {plain(suite, r.metric): r.number / scale for r in rows if r.number is not None}
    average = values.pop(AVERAGE, None)
    columns = dict(_columns(rows, [column.name for column in listed.suite.columns], scale))
    types = {TYPES[m]: v for m, v in values.items() if m in TYPES} if suite.startswith("MTEB") else {}
    made = means(suite, {r.metric: r.number / scale for r in rows if r.number is not None}) if types else {}
    if not columns and not types:
        return {}
    return {
        "columns": {} if types else columns,
        "types": types,
        "printed": average,
        "over_tasks": made.get(OVER_TASKS),
        "over_types": made.get(OVER_TYPES),
    }


def _columns(rows: Sequence[PaperValue], names: Sequence[str], scale: int) -> Iterator[tuple[str, float]]:
    """The columns of a line; not those that are of other queries than the suite's."""
    for row in rows:
        metric = plain(row.suite, row.metric)
        name = column_of(metric, names) if metric != AVERAGE else None
        if name is not None and row.number is not None and same_queries(row, name):
            yield name, row.number / scale


def _parameters(text: str) -> int | None:
    """A printed number of parameters.

    >>> _parameters("137M"), _parameters("1.2B"), _parameters("")
    (137000000, 1200000000, None)
    """
    found = re.fullmatch(r"([0-9.]+)([MB])", text.strip())
    return round(float(found[1]) * (1e6 if found[2] == "M" else 1e9)) if found else None


def _entry(
    paper: Paper,
    table: PaperTable,
    rows: Sequence[PaperValue],
    listed: SiteSuite,
    document: Mapping[str, Any],
) -> NewEntry:
    first = rows[0]
    size = f" ({first.size_class})" if first.size_class else ""
    own = [view for view in views(listed.suite) if view in ("", paper.slug)]
    return NewEntry(
        model=f"{first.model}{size}",
        origin="reported",
        source=paper.slug,
        trust="reported",
        treatment=f"{paper.name}, {title(table.id)}: {first.setting}",
        parameters=_parameters(first.params),
        output="label" if listed.slug == "glue" else "vector",
        facts={"paper": paper.slug, "table": table.id, "hub_id": first.hub_id},
        averages=[(listed.slug, view, json.dumps(document)) for view in own or views(listed.suite)[:1]],
    )
