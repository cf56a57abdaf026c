"""The papers' lines as entries, which are never ranked with the rest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from leaderboard.data.backbones import find_backbone, find_glue_source, parse_parameter_count
from leaderboard.data.entries import NewEntry, Unit
from leaderboard.data.groups import group_by
from leaderboard.data.papers import (
    AVERAGE,
    OVER_TASKS,
    OVER_TYPES,
    SCORES,
    SUITES,
    TYPES,
    Paper,
    PaperValue,
    compute_printed_means,
    format_table_title,
    has_same_queries,
    match_task_column,
    normalize_metric,
    read_papers,
)
from leaderboard.data.suites import SiteSuite, list_conventions

SOURCE = "reported"


def iter_paper_units(folder: Path | None, suites: Mapping[str, SiteSuite]) -> Iterator[Unit]:
    """One unit for all papers of a folder."""
    if folder is None:
        return
    # By content: a checkout gives files new times.
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*")):
        digest.update(path.name.encode() + path.read_bytes() if path.is_file() else b"")
    yield Unit(
        source=SOURCE,
        name=SOURCE,
        stamp=digest.hexdigest(),
        read=partial(_read_paper_entries, folder, suites),
    )


def _read_paper_entries(folder: Path, suites: Mapping[str, SiteSuite]) -> list[NewEntry]:
    return [entry for paper in read_papers(folder).values() for entry in _iter_paper_entries(paper, suites)]


def _iter_paper_entries(paper: Paper, suites: Mapping[str, SiteSuite]) -> Iterator[NewEntry]:
    kept = [
        row
        for row in paper.rows
        if (suite := suites.get(SUITES.get(row.suite, ""))) and row.unit in SCORES
        if not (row.is_copy and not suite.suite.conventions)
    ]
    lines = group_by(kept, lambda row: (row.table, row.model, row.size_class, row.setting, row.suite))
    for rows in lines.values():
        suite = suites[SUITES[rows[0].suite]]
        if document := _build_scores_document(rows, suite):
            yield _build_paper_entry(paper, rows[0], suite, document)


def _build_scores_document(rows: Sequence[PaperValue], listed: SiteSuite) -> dict[str, Any]:
    """A printed line's scores by task or by type, as shares of 1; empty without any."""
    suite = rows[0].suite
    values = {normalize_metric(suite, row.metric): row.share for row in rows if row.number is not None}
    average = values.pop(AVERAGE, None)
    types = {TYPES[m]: v for m, v in values.items() if m in TYPES} if suite.startswith("MTEB") else {}
    names = [column.name for column in listed.suite.columns]
    columns = {}
    for row in rows:
        metric = normalize_metric(suite, row.metric)
        name = None if types or metric == AVERAGE else match_task_column(metric, names)
        if name is not None and metric in values and has_same_queries(row, name):
            columns[name] = values[metric]
    mean_values = compute_printed_means(suite, values) if types else {}
    if not columns and not types:
        return {}
    return {
        "columns": columns,
        "types": types,
        "printed": average,
        "over_tasks": mean_values.get(OVER_TASKS),
        "over_types": mean_values.get(OVER_TYPES),
    }


def _build_paper_entry(
    paper: Paper, row: PaperValue, listed: SiteSuite, document: Mapping[str, Any]
) -> NewEntry:
    convention = find_glue_source(paper, row)[1] if row.suite == "GLUE dev" else paper.slug
    matching_views = [
        view for view in list_conventions(listed.suite) if view in ("", convention or paper.slug)
    ]
    backbone = find_backbone(row.backbone)
    return NewEntry(
        model=f"{row.model} ({row.size_class})" if row.size_class else row.model,
        origin="reported",
        source=paper.slug,
        trust="reported",
        treatment=f"{paper.name}, {format_table_title(row.table)}: {row.setting}",
        parameters=parse_parameter_count(row.params),
        output="label" if listed.slug == "glue" else "vector",
        facts={
            "paper": paper.slug,
            "table": row.table,
            "hub_id": row.hub_id,
            "backbone": backbone.slug if backbone else "",
        },
        averages=[
            (listed.slug, view, json.dumps(document))
            for view in matching_views or list_conventions(listed.suite)[:1]
        ],
    )
