"""`harness show`: what has been measured of a model."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from harness.commands import options
from harness.terminal import console


@click.command("show")
@click.argument("model")
@click.option("--suite", "suites", multiple=True, help="A suite's columns and means. Repeat for several.")
@click.option("--task", default="", help="One record in full: every raw metric and its provenance.")
@options.languages
@options.splits
@options.results
@options.as_json
def command(
    model: str,
    suites: tuple[str, ...],
    task: str,
    languages: str,
    splits: str,
    results: Path | None,
    as_json: bool,
) -> int:
    """Show what has been measured of MODEL: a name, the start of a key, or a folder."""
    from harness import catalog, paths, views
    from harness.types import SuiteOptions

    records = views.records_of(model, results)
    narrowed = SuiteOptions(
        languages=options.listed(languages), splits=options.listed(splits), cache=paths.cache_folder()
    )
    if task:
        _one(records, task, as_json)
    elif suites:
        opened = catalog.open_suites(suites, narrowed)
        _suites(records, opened, as_json)
    else:
        _all(records, as_json)
    return 0


def _all(records: list[Any], as_json: bool) -> None:
    if as_json:
        rows = [{"task": r.task.name, "main_score": r.main_score, "key": r.key} for r in records]
        click.echo(
            json.dumps({"schema": 1, "model": records[0].model.model_dump(), "records": rows}, indent=1)
        )
        return
    from harness import views

    about = records[0].model
    size = f", {about.parameters / 1e6:.1f}M parameters" if about.parameters else ""
    table = Table(title=f"{about.name} ({about.artifact[:12]}{size}), scores × 100", title_justify="left")
    for name in ("task", "type", "metric"):
        table.add_column(name)
    table.add_column("score", justify="right")
    table.add_column("how", style="dim")
    for record in records:
        score = f"{100 * record.main_score:.2f}"
        table.add_row(
            record.task.name, record.task.type, record.task.metric, score, views.record_text(record)
        )
    console().print(table)


def _suites(records: list[Any], suites: list[Any], as_json: bool) -> None:
    from harness import views
    from harness.aggregate import aggregate
    from harness.report import aggregates_json

    about = records[0].model
    nothing: list[Any] = [None]
    found = [(suite, view) for suite in suites for view in views.suite_views(records, suite) or nothing]
    if as_json:
        rows = [
            {
                "suite": suite.name,
                "settings": dataclasses.asdict(view.treatment) if view else None,
                "unproven_data": list(view.unproven) if view else [],
                **aggregates_json(suite, aggregate(suite, view.scores if view else {})),
            }
            for suite, view in found
        ]
        click.echo(json.dumps({"schema": 1, "model": about.model_dump(), "suites": rows}, indent=1))
        return
    for suite, view in found:
        _print_suite(f"{about.name} on {suite.title}", suite, view)


def _print_suite(title: str, suite: Any, view: Any) -> None:
    from harness.aggregate import aggregate
    from harness.report import means_lines, score_text, shortened

    means = aggregate(suite, view.scores if view else {})
    under = f"\n{view.treatment.text}" if view else ""
    table = Table(title=f"{title}, scores × 100{under}", title_justify="left")
    table.add_column("task")
    table.add_column("type")
    table.add_column("score", justify="right")
    for column in suite.columns:
        if column.tasks:
            table.add_row(column.name, column.type, score_text(means.columns[column.name]))
    out = console()
    out.print(table)
    lines = means_lines(suite, means)
    if view and view.unproven:
        lines.append(f"data not proven to be the pinned revision: {shortened(view.unproven)}")
    for line in lines:
        out.print(line, highlight=False, soft_wrap=True)


def _one(records: list[Any], task: str, as_json: bool) -> None:
    from harness.errors import unknown

    mine = [r for r in records if r.task.name == task]
    if not mine:
        names = {r.task.name for r in records}
        raise unknown("recorded task", task, names, then="`harness show MODEL` lists them.")
    if as_json:
        click.echo(json.dumps([r.model_dump(mode="json", by_alias=True) for r in mine], indent=1))
        return
    for record in mine:
        click.echo(record.to_json(), nl=False)
