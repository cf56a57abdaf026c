"""A run's outcome as JSON for machines and as tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from harness.aggregate import Aggregates, Mean
from harness.failures import print_failures, shortened
from harness.predicted_report import predicted_json, predicted_lines
from harness.report_text import mean_text, score_text
from harness.standing_report import print_standing, standing_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from harness.api import Report
    from harness.execute import Result
    from harness.types import Suite
    from harness.wanted import Subject

LABELS = {
    "cached": "was there",
    "done": "new",
    "shared": "another process",
    "failed": "FAILED",
    "impossible": "cannot run",
    "stopped": "not run",
}


def report_json(report: Report) -> dict[str, Any]:
    """The report for machines (docs/json.md)."""
    from harness.api import SCHEMA

    return {
        "schema": SCHEMA,
        "results": str(report.prepared.store.root),
        "texts_encoded": report.texts_encoded,
        "tokens_encoded": report.tokens_encoded,
        "models": [
            {"asked": text, "name": report.prepared.label(one), "artifact": one.artifact.key}
            for text, one in zip(report.prepared.request.models, report.prepared.asked, strict=True)
        ],
        "records": [_result_json(result) for result in report.results],
        "suites": [
            suite_json(report, one, suite)
            for one in report.prepared.subjects
            for suite in report.prepared.suites
        ],
    }


def suite_json(report: Report, one: Subject, suite: Suite) -> dict[str, Any]:
    """One model's columns and means on one suite."""
    found, standing = report.aggregates(one, suite), report.standing(one, suite)
    return {
        "suite": suite.name,
        "model": one.artifact.name,
        "artifact": one.artifact.key,
        **aggregates_json(suite, found),
        **({"standing": standing_json(standing)} if standing else {}),
    }


def aggregates_json(suite: Suite, found: Aggregates) -> dict[str, Any]:
    """A suite's columns and means as plain values."""
    return {
        "columns": dict(found.columns),
        "mean_over_tasks": _mean_json(found.over_tasks),
        "mean_over_types": _mean_json(found.over_types),
        "by_type": {name: _mean_json(mean) for name, mean in found.by_type.items()},
        "left_out": list(suite.left_out),
        "notes": list(suite.notes),
        **({"predicted": predicted_json(suite, found)} if suite.predictor else {}),
    }


def means_lines(suite: Suite, means: Aggregates) -> list[str]:
    """Both means of a suite, and whatever keeps them from being complete."""
    lines = [f"{mean_text(means.over_tasks)}, {mean_text(means.over_types)}"]
    if not means.over_tasks.complete:
        lines.append("incomplete: not to be ranked beside complete ones")
    if suite.left_out:
        count = len(suite.left_out)
        named = shortened(suite.left_out)
        lines.append(f"nothing of what was asked for in {count} columns: {named}")
    return [*lines, *predicted_lines(suite, means)]


def print_report(report: Report, console: Console) -> None:
    """The table of every suite, what failed and why, and where the records lie."""
    for suite in report.prepared.suites:
        _print_standings(suite, report, console)
        if all(task.output == "label" for task in suite.tasks):
            continue
        console.print(suite_table(suite, report))
        for note in suite.notes:
            console.print(note, style="dim", highlight=False, soft_wrap=True)
        for one in report.prepared.subjects:
            named = f"{report.prepared.label(one)}: " if len(report.prepared.subjects) > 1 else ""
            for line in means_lines(suite, report.aggregates(one, suite)):
                console.print(named + line, highlight=False, soft_wrap=True)
    for note in report.notes:
        console.print(note, style="dim", highlight=False, soft_wrap=True)
    print_failures(report.failures, report.prepared, console)
    if all(cell.laid for cell in report.prepared.plan.cells):
        there = sum(result.how == "cached" for result in report.results)
        known = f"{there} of {len(report.results)} scores were there. " if there else ""
        told = f"{known}Records: {report.prepared.store.root / 'records'}"
        console.print(told, highlight=False, soft_wrap=True)
        return
    console.print(
        f"Encoded {report.texts_encoded:,} texts ({report.tokens_encoded:,} tokens). "
        f"Records: {report.prepared.store.root / 'records'}",
        highlight=False,
        soft_wrap=True,
    )


def _print_standings(suite: Suite, report: Report, console: Console) -> None:
    recipe = report.prepared.recipe
    for one in report.prepared.subjects:
        found = report.standing(one, suite)
        if found is not None and recipe is not None:
            title = f"{report.prepared.label(one)} on {suite.title}, {recipe.name}"
            print_standing(found, title, console)


def suite_table(suite: Suite, report: Report) -> Table:
    """One row for each task of a suite, one column for each model."""
    from rich.table import Table

    table = Table(title=f"{suite.title}, scores × 100", title_justify="left")
    table.add_column("task", overflow="fold")
    table.add_column("type")
    table.add_column("metric")
    for one in report.prepared.subjects:
        table.add_column(report.prepared.label(one), justify="right")
        table.add_column("", style="dim")
    for column in suite.columns:
        if not column.tasks:
            continue
        cells: list[str] = []
        for one in report.prepared.subjects:
            found = [report.result(one, task) for task in column.tasks]
            cells += _cells(report.aggregates(one, suite).columns[column.name], [r.how for r in found])
        table.add_row(column.name, column.type, column.tasks[0].metric, *cells)
    return table


def _cells(score: float | None, hows: Sequence[str]) -> list[str]:
    """A column's score, and how it came about."""
    if len(set(hows)) == 1:
        return [score_text(score), LABELS[hows[0]]]
    there = [how for how in hows if how in ("cached", "done", "shared")]
    return [score_text(score), LABELS["done"] if len(there) == len(hows) else f"{len(there)} of {len(hows)}"]


def _result_json(result: Result) -> dict[str, Any]:
    cell, record = result.cell, result.record
    done = record is not None and record.status == "done"
    failure = result.failure
    return {
        "task": cell.task.name,
        "type": cell.task.type,
        "metric": cell.task.metric,
        "model": cell.subject.artifact.name,
        "artifact": cell.subject.artifact.key,
        "key": cell.key,
        "state": result.how,
        "main_score": record.main_score if record is not None and done else None,
        "notes": list(record.provenance.get("notes", ())) if record is not None else [],
        "error": None
        if failure is None
        else {"kind": failure.kind, "message": failure.message, "hint": failure.hint},
    }


def _mean_json(mean: Mean) -> dict[str, Any]:
    return {"value": mean.value, "there": mean.there, "wanted": mean.wanted}
