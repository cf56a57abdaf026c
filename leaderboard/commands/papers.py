"""`harness papers`: the scores of a model beside what papers print of a suite."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

import click
from rich.console import Console

from harness.commands import options
from harness.core import files
from harness.core.errors import UsageError, explain_unknown
from harness.core.terminal import create_console, create_table, print_table, shorten_names
from harness.core.types import Suite, SuiteOptions
from harness.plan import catalog
from harness.results.reported import AVERAGE, Paper, PaperValue, normalize_metric, read_papers
from harness.results.results import MeasuredSuite, build_suite_views
from harness.results.scores import Aggregates, format_delta, score_text
from leaderboard.data.paper_lines import format_table_title, has_same_queries, match_task_column

_PRINTED: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "beir": ("BEIR", ()),
    "beir:dl19": ("BEIR", ()),
    "mldr": ("MLDR-en", ("DPR MLDR-OOD", "DPR MLDR-ID", "ColBERT MLDR-OOD")),
    "codesearchnet": ("CoIR", ("CodeSearchNet",)),
    "stackqa": ("CoIR", ("StackQA",)),
}
"""The name of a suite in print, and the names of its mean where that alone is printed."""


@dataclass(frozen=True, kw_only=True)
class _Line:
    """A model's line in a paper beside a measured model, as shares of 1.

    `other_queries` are tasks of other queries, with the print's note; `common` are those in both means, none
    where the print has the mean alone; `measured_mean` is None unless all of these are measured.
    """

    paper: str
    table: str
    model: str
    setting: str
    mean: float | None
    columns: Mapping[str, float]
    other_queries: Mapping[str, str]
    common: tuple[str, ...]
    printed_mean: float | None
    measured_mean: float | None


@click.command("papers")
@click.argument("model")
@click.option("--suite", required=True, metavar="SUITE", help="The suite, e.g. beir or beir:dl19.")
@click.option("--paper", default="", help="Only this paper, by the name of its file, e.g. modernbert.")
@click.option("--line", default="", help="Show each task beside the paper's lines whose model name contains "
              "this, e.g. 'BERT base'.")  # fmt: skip
@options.results
@options.cache
@options.as_json
def command(
    model: str, suite: str, paper: str, line: str, results: Path | None, cache: Path | None, as_json: bool
) -> int:
    """Compare the scores of MODEL with those that papers print: means over the same tasks and queries.

    Printed numbers never enter a table of measured scores.
    """
    opened = catalog.open_suite(suite, SuiteOptions(cache=files.resolve_cache_folder(cache), results=results))
    measured = MeasuredSuite.load_records(model, results, cache).newest
    views = build_suite_views(measured.records, opened)
    means = Aggregates.aggregate_scores(opened, views[0].scores if views else {})
    every = _collect_suite_lines(_select_papers(paper), opened, means)
    lines = [one for one in every if line.casefold() in one.model.casefold()]
    if not lines:
        raise UsageError(
            f"No paper here prints {suite}" + (f" for a model like {line!r}." if line else "."),
            hint=f"Printed are: {', '.join(_PRINTED)}"
            + ("; without --line and --paper every line is shown." if line or paper else "."),
        )
    about = measured.records[0].model
    if as_json:
        shown = {"model": about.model_dump(), "suite": suite, "columns": dict(means.columns)}
        click.echo(json.dumps({"schema": 1, **shown, "lines": [asdict(one) for one in lines]}, indent=1))
        return 0
    out = create_console()
    numbers = ("printed mean", "tasks", "print over these", "measured", "Δ")
    title = f"{about.name} on {opened.title} beside papers, scores × 100"
    table = create_table("paper", "model", "setting", numbers=numbers, title=title)
    for row in map(_format_line, lines):
        table.add_row(*row)
    print_table(table, out)
    for paper_line in lines if line else ():
        _print_tasks_table(paper_line, means, out)
    for note in _list_comparison_notes(opened, lines, [view.text for view in views]):
        out.print(note, highlight=False, soft_wrap=True)
    return 0


def _select_papers(slug: str) -> list[Paper]:
    folder = files.find_reported_folder()
    papers_by_slug = read_papers(folder) if folder else {}
    if slug and slug not in papers_by_slug:
        raise explain_unknown("paper", slug, papers_by_slug, then="Without --paper all are shown.")
    return [papers_by_slug[slug]] if slug else [*papers_by_slug.values()]


def _collect_suite_lines(papers: Sequence[Paper], suite: Suite, means: Aggregates) -> Iterator[_Line]:
    """The lines that papers print of a suite."""
    name, alone = _PRINTED.get(suite.name, ("", ()))
    groups: dict[tuple[str, ...], list[PaperValue]] = {}
    for row in (row for paper in papers for row in paper.rows if row.suite == name and row.is_score):
        mean_name = row.metric if row.metric in alone else ""
        if mean_name or (not alone and not row.metric.endswith(f" {name}")):
            key = (row.paper, row.table, row.model, row.size_class, row.setting, mean_name)
            groups.setdefault(key, []).append(row)
    return (_build_suite_line(rows, suite, means, alone=bool(alone)) for rows in groups.values())


def _build_suite_line(rows: Sequence[PaperValue], suite: Suite, means: Aggregates, *, alone: bool) -> _Line:
    first, names = rows[0], [column.name for column in suite.columns]
    shares = {normalize_metric(row.suite, row.metric): row.share for row in rows}
    mean = first.share if alone else shares.get(AVERAGE)
    printed = () if alone else rows
    tasks = {match_task_column(normalize_metric(row.suite, row.metric), names): row for row in printed}
    columns = {name: row.share for name, row in tasks.items() if name and row.metric != AVERAGE}
    others = {name: tasks[name].note for name in columns if not has_same_queries(tasks[name], name)}
    common = tuple(name for name in names if name in columns and name not in others)
    measured = [value for name in common if (value := means.columns[name]) is not None]
    printed_mean, measured_mean = mean, means.over_tasks.whole
    if not alone:
        printed_mean = fmean(columns[name] for name in common) if common else None
        measured_mean = fmean(measured) if common and len(measured) == len(common) else None
    return _Line(
        paper=first.paper, table=format_table_title(first.table), model=first.name,
        mean=mean, columns=columns,
        setting=f"{first.setting}, {first.metric}" if alone else first.setting, other_queries=others,
        common=common, printed_mean=printed_mean, measured_mean=measured_mean,
    )  # fmt: skip


def _format_line(line: _Line) -> tuple[str, ...]:
    printed, measured = line.printed_mean, line.measured_mean
    delta = None if printed is None or measured is None else measured - printed
    count, numbers = str(len(line.common) or "mean"), map(score_text, (printed, measured))
    place = (f"{line.paper}, {line.table}", line.model, line.setting)
    return (*place, score_text(line.mean), count, *numbers, format_delta(delta))


def _print_tasks_table(line: _Line, means: Aggregates, out: Console) -> None:
    title = f"{line.paper}, {line.table}: {line.model}, {line.setting}"
    table = create_table("task", numbers=("printed", "measured", "Δ"), notes=[""], title=title)
    for name, value in line.columns.items():
        mine, other = means.columns[name], line.other_queries.get(name, "")
        delta = None if mine is None or other else mine - value
        table.add_row(name, score_text(value), score_text(mine), format_delta(delta), other)
    print_table(table, out)


def _list_comparison_notes(suite: Suite, lines: Sequence[_Line], conditions: Sequence[str]) -> Iterator[str]:
    """What both means are over, what they leave out, and how the model was measured."""
    yield f"measured: {conditions[0] if conditions else 'nothing of this suite'}"
    if len(conditions) > 1:
        yield f"not shown: {len(conditions) - 1} further settings (`harness show MODEL --suite {suite.name}`)"
    places_by_note: dict[tuple[str, str], list[str]] = {}
    for line in lines:
        for column, note in line.other_queries.items():
            places_by_note.setdefault((column, note), []).append(f"{line.paper}, {line.table}")
    for (column, note), places in places_by_note.items():
        where = shorten_names([*dict.fromkeys(places)])
        yield f"{column} is in neither mean: in {where} it is of other queries ({note})"
    if any(one.columns for one in lines):
        yield "Δ: measured less print, over the tasks that both have on the same queries"
