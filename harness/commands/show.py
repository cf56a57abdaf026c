"""`harness show`: the recorded scores of a model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from harness.commands import options
from harness.core import paths
from harness.core.arguments import split_names
from harness.core.errors import UsageError, shortened, unknown
from harness.core.lineage import Lineage
from harness.core.terminal import console, print_table
from harness.core.types import Column, Suite, SuiteOptions
from harness.driver.progress import most_common
from harness.driver.report.suite import (
    CHOSE,
    aggregates_json,
    approximate_lines,
    is_approximate,
    lineages_lines,
    mean_text,
    means_lines,
    over_seeds_json,
    over_seeds_lines,
    record_chose,
    selected_json,
    selection_json,
    untouched_json,
    untouched_lines,
)
from harness.driver.report.trained import print_trained_result, trained_result_json
from harness.plan import catalog
from harness.results.results import (
    APPROXIMATE,
    MeasuredSuite,
    NotMeasuredError,
    RecipeCondition,
    all_stores,
    condition_json,
    condition_of,
    notes_of,
    record_text,
    suite_views,
    weights_text,
)
from harness.results.scores import (
    Aggregates,
    TrainedResult,
    column_chose,
    metric_scores,
    score_text,
    spread_json,
    spread_text,
)
from harness.storage.record import Record
from harness.training.model_store import ModelStore


@click.command("show")
@click.argument("model")
@click.option("--suite", "suites", multiple=True, help="A suite's columns and means. Repeat for several.")
@click.option(
    "--task", default="", help="One task's records in full, as JSON: every raw metric and the provenance."
)
@click.option(
    "--view",
    default="",
    help="The paper whose convention makes numbers of raw metrics, e.g. neobert (default: the recipe's own).",
)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="METRIC",
    help="A raw metric beside the main score of a suite's tasks, e.g. recall_at_100, map_at_100 or "
    "mrr_at_10. Repeat for several.",
)
@options.named("languages", "subsets", "splits", "results")
@options.as_json
def command(
    model: str,
    suites: tuple[str, ...],
    task: str,
    view: str,
    metrics: tuple[str, ...],
    languages: str,
    subsets: str,
    splits: str,
    results: Path | None,
    as_json: bool,
) -> int:
    """Show what has been measured of MODEL: a name, six or more digits of its key, or a folder.

    Of a model that was trained under several seeds these are means with their standard deviations.
    """
    if (languages or subsets or splits) and not suites:
        raise UsageError(
            "--languages, --subsets and --splits narrow a suite.", hint="Name one with --suite SUITE."
        )
    if view and not suites:
        raise UsageError("--view says how a suite is put into numbers.", hint="Name one with --suite SUITE.")
    if metrics and not suites:
        raise UsageError("--metric is for a suite's tasks.", hint="Name one with --suite SUITE.")
    seeds = _measured(model, results)
    if metrics and len(seeds) > 1:
        raise UsageError("--metric is for one model, not for several seeds.", hint="Name one by its key.")
    measured = seeds[0]
    narrowed = SuiteOptions(
        languages=split_names(languages),
        subsets=split_names(subsets),
        splits=split_names(splits),
        cache=paths.cache_folder(),
        results=results,
    )
    if task:
        _one([record for one in seeds for record in one.records], task)
    elif suites:
        opened = catalog.join_single_tasks(catalog.open_suites(suites, narrowed))
        if len(seeds) > 1:
            _suites_over_seeds(seeds, opened, as_json)
        else:
            _suites(measured, opened, as_json, view=view, metrics=metrics, results=results)
    elif len(seeds) > 1:
        _all_over_seeds(seeds, as_json)
    else:
        _all(measured, as_json)
    if not (task or as_json):
        for line in lineages_lines([one.lineage for one in seeds]):
            console().print(line, highlight=False, soft_wrap=True)
        for one in seeds:
            _print_former(one)
    return 0


def _measured(model: str, results: Path | None) -> tuple[MeasuredSuite, ...]:
    try:
        return MeasuredSuite.of_seeds(model, results)
    except NotMeasuredError:
        for one in ModelStore(paths.results_folder(results)).finished():
            if model == one.name or (len(model) >= 6 and one.key.startswith(model)):
                raise UsageError(
                    f"{one.name} ({one.key[:12]}) is trained, and no score of it is recorded but for trials.",
                    hint=f"Type: harness run --model {one.folder} --suite SUITE",
                ) from None
        raise


def _print_former(measured: MeasuredSuite) -> None:
    """Say that a model was trained again and has other weights now, if there are records of the former."""
    former = dict.fromkeys(record.task.name for record in measured.former)
    if former:
        named = f"{measured.records[0].model.artifact[:12]} was trained again, and has other weights now"
        told = f"{named}; scores of the former ones are in no mean with newer ones: {shortened([*former])}"
        console().print(told, highlight=False, soft_wrap=True)


def _all(measured: MeasuredSuite, as_json: bool) -> None:
    records, about = measured.records, measured.records[0].model
    if as_json:
        rows = [
            {
                "task": r.task.name,
                "main_score": r.main_score,
                "key": r.key,
                "settings": record_text(r),
                "data": r.identity["data"],
                "reference": r.key in measured.reference,
                "former": measured.is_former(r),
                "selected": record_chose(r, measured.lineage),
                "approximate": is_approximate(r),
            }
            for r in records
        ]
        click.echo(json.dumps({"schema": 1, "model": _model_json(measured), "records": rows}, indent=1))
        return
    common = most_common([record_text(r) for r in sorted(records, key=lambda r: condition_of(r).rank)])
    size = f", {about.parameters / 1e6:.1f}M parameters" if about.parameters else ""
    title = f"{about.name} ({about.artifact[:12]}{size}), scores × 100\n{common}"
    table = Table(title=title)
    table.add_column("task")
    for name in ("type", "metric"):
        table.add_column(name)
    table.add_column("score", justify="right")
    table.add_column("", style="dim")
    for record in records:
        about_task = (record.task.name, record.task.type, record.task.metric)
        table.add_row(
            *about_task, score_text(record.main_score), _distinguishing_text(record, measured, common)
        )
    print_table(table, console())
    _print_approximate(records)


def _print_approximate(records: Iterable[Record]) -> None:
    for line in approximate_lines(records):
        console().print(line, highlight=False, soft_wrap=True)


def _distinguishing_text(record: Any, measured: MeasuredSuite, common: str) -> str:
    """The text that tells a record from others: its settings, data, weights, or that it is a reference."""
    settings = record_text(record)
    parts = [settings] if settings != common else []
    parts += [weights_text(record.model.weights)] if measured.is_former(record) else []
    alike = [r for r in measured.records if (r.task.name, record_text(r)) == (record.task.name, settings)]
    if len(alike) > 1:
        data = record.identity["data"]
        parts.append(f"data {(data.get('revision') or data['content'].removeprefix('sha256:'))[:12]}")
    if record.key in measured.reference:
        parts.append("reference")
    if record_chose(record, measured.lineage):
        parts.append(CHOSE)
    if is_approximate(record) and settings == common:  # else the settings say it
        parts.append(APPROXIMATE)
    return ", ".join(parts)


def _all_over_seeds(seeds: Sequence[MeasuredSuite], as_json: bool) -> None:
    """Each task of a model that was trained under several seeds, a row for each setting."""
    tasks: dict[tuple[str, str], dict[int, Record]] = {}
    for at, one in enumerate(seeds):
        for record in one.newest.records:
            tasks.setdefault((record.task.name, record_text(record)), {})[at] = record
    rows = [
        (task, settings, [there[at].main_score if at in there else None for at in range(len(seeds))], there)
        for (task, settings), there in tasks.items()
    ]
    if as_json:
        shown = [
            {
                "task": task,
                "settings": settings,
                "selected": _chose_seed(there, seeds),
                **spread_json(values),
                "scores": values,
                "keys": [there[at].key if at in there else None for at in range(len(seeds))],
            }
            for task, settings, values, there in rows
        ]
        click.echo(json.dumps({"schema": 1, **_seeds_json(seeds), "tasks": shown}, indent=1))
        return
    common = most_common([settings for _, settings, *_ in rows])
    table = Table(title=f"{_seeds_title(seeds)}, scores × 100\n{common}")
    for name in ("task", "type", "metric"):
        table.add_column(name)
    table.add_column("score", justify="right")
    table.add_column("", style="dim")
    for task, settings, values, there in rows:
        about = next(iter(there.values())).task
        parts = [settings if settings != common else "", CHOSE if _chose_seed(there, seeds) else ""]
        text = ", ".join(filter(None, parts))
        table.add_row(task, about.type, about.metric, spread_text(values), text)
    print_table(table, console())
    _print_seeds(seeds)


def _chose_seed(records: Mapping[int, Record], seeds: Sequence[MeasuredSuite]) -> bool:
    """Whether one of a task's records, by the place of its seed, chose the model."""
    return any(record_chose(record, seeds[at].lineage) for at, record in records.items())


def _suites_over_seeds(seeds: Sequence[MeasuredSuite], suites: list[Suite], as_json: bool) -> None:
    """Columns and means of suites over the seeds of a training, for each condition."""
    found = [(suite, text, views) for suite in suites for text, views in _views_over_seeds(seeds, suite)]
    if as_json:
        rows = [
            {
                "suite": suite.name,
                "settings": next(condition_json(view.treatment) for view in views if view) if text else None,
                **over_seeds_json([_means(suite, view) for view in views]),
                **selected_json(suite, seeds[0].lineage),
                **untouched_json(suite, seeds[0].lineage, list(map(_scores, views))),
            }
            for suite, text, views in found
        ]
        click.echo(json.dumps({"schema": 1, **_seeds_json(seeds), "suites": rows}, indent=1))
        return
    for suite, text, views in found:
        means = [_means(suite, view) for view in views]
        table = Table(title=f"{_seeds_title(seeds)} on {suite.heading}, scores × 100" + f"\n{text}".rstrip())
        table.add_column("task")
        table.add_column("type")
        table.add_column("score", justify="right")
        table.add_column("", style="dim")
        for column in suite.columns:
            if column.tasks:
                score = spread_text([m.columns[column.name] for m in means])
                table.add_row(column.name, column.type, score, _mark(column, seeds[0].lineage))
        print_table(table, console())
        untouched = untouched_lines(suite, seeds[0].lineage, list(map(_scores, views)))
        for line in (*over_seeds_lines(suite, means), *untouched):
            console().print(line, highlight=False, soft_wrap=True)
    _print_seeds(seeds)


def _views_over_seeds(seeds: Sequence[MeasuredSuite], suite: Suite) -> list[tuple[str, list[Any]]]:
    """The views of a suite by condition, each with that of every seed, or None."""
    found: dict[str, list[Any]] = {}
    for at, one in enumerate(seeds):
        for view in suite_views(one.newest.records, suite):
            found.setdefault(view.treatment.text, [None] * len(seeds))[at] = view
    return list(found.items()) or [("", [None] * len(seeds))]


def _means(suite: Suite, view: Any) -> Aggregates:
    return Aggregates.of(suite, _scores(view))


def _scores(view: Any) -> dict[str, float]:
    return dict(view.scores) if view else {}


def _seeds_title(seeds: Sequence[MeasuredSuite]) -> str:
    return f"{seeds[0].records[0].model.name} ({len(seeds)} seeds)"


def _seeds_json(seeds: Sequence[MeasuredSuite]) -> dict[str, Any]:
    models = [(one.lineage.seed if one.lineage else None, _model_json(one)) for one in seeds]
    return {"models": [{"seed": seed, **model} for seed, model in models]}


def _model_json(measured: MeasuredSuite) -> dict[str, Any]:
    return {**measured.records[0].model.model_dump(), **selection_json(measured.lineage)}


def _mark(column: Column, lineage: Lineage | None) -> str:
    """The mark of a column that chose the model."""
    return CHOSE if column_chose(column, lineage) else ""


def _print_seeds(seeds: Sequence[MeasuredSuite]) -> None:
    made = seeds[0].lineage
    named = ", ".join(
        f"{one.lineage.seed} ({one.records[0].model.artifact[:12]})" for one in seeds if one.lineage
    )
    text = f"{made.text} on {', '.join(parent.text for parent in made.parents)}; " if made else ""
    console().print(
        f"{text}mean ± standard deviation over the seeds {named}", highlight=False, soft_wrap=True
    )


def _suites(
    measured: MeasuredSuite,
    suites: list[Any],
    as_json: bool,
    *,
    view: str,
    metrics: Sequence[str],
    results: Path | None,
) -> None:
    records, lineage = measured.records, measured.lineage
    about = records[0].model
    _require_metrics(metrics, suites, records)
    nothing: list[Any] = [None]
    found = [
        (suite, seen, _trained_result(suite, seen, view, results))
        for suite in suites
        for seen in suite_views(records, suite) or nothing
    ]
    if as_json:
        rows = [
            {
                "suite": suite.name,
                "settings": condition_json(seen.treatment) if seen else None,
                "former_weights": seen.former or None if seen else None,
                "unproven_data": list(seen.unproven) if seen else [],
                **aggregates_json(suite, Aggregates.of(suite, _numbers(seen, stands))),
                **selected_json(suite, lineage),
                **untouched_json(suite, lineage, [_numbers(seen, stands)]),
                **({"standing": trained_result_json(stands)} if stands else {}),
                **({"metrics": _metrics_json(suite, seen, metrics)} if metrics else {}),
            }
            for suite, seen, stands in found
        ]
        click.echo(json.dumps({"schema": 1, "model": _model_json(measured), "suites": rows}, indent=1))
        return
    for suite, seen, stands in found:
        _print_suite(f"{about.name} on {suite.heading}", suite, seen, stands, metrics, lineage)
        for line in [] if stands is not None else untouched_lines(suite, lineage, [_scores(seen)]):
            console().print(line, highlight=False, soft_wrap=True)


def _require_metrics(metrics: Sequence[str], suites: Sequence[Suite], records: Sequence[Record]) -> None:
    """Refuse a metric that no record of the suites' tasks has."""
    names = {task.name for suite in suites for task in suite.tasks}
    known = {
        metric
        for record in records
        if record.task.name in names
        for subsets in record.scores.values()
        for found in subsets.values()
        for metric, value in found.items()
        if isinstance(value, int | float)
    }
    for metric in metrics:
        if metric not in known:
            raise unknown("recorded metric", metric, known, then="`harness show MODEL --task TASK` has all.")


def _metric_means(suite: Suite, seen: Any, metrics: Sequence[str]) -> dict[str, Aggregates]:
    """The columns and means of a suite by each of these raw metrics."""
    records = seen.records if seen else {}
    return {name: Aggregates.of(suite, metric_scores(suite, records, name)) for name in metrics}


def _metrics_json(suite: Suite, seen: Any, metrics: Sequence[str]) -> dict[str, Any]:
    return {
        name: {"columns": dict(found.columns), "mean_over_tasks": asdict(found.over_tasks)}
        for name, found in _metric_means(suite, seen, metrics).items()
    }


def _numbers(seen: Any, stands: Any) -> dict[str, float]:
    """The task scores that enter a suite's mean."""
    if stands is None:
        return _scores(seen)
    return {row.task: row.number for row in stands.rows if row.number is not None}


def _trained_result(suite: Any, seen: Any, view: str, results: Path | None) -> Any:
    """The TrainedResult of a suite that models are trained for, by a paper's convention; else None."""
    if view and view not in suite.conventions:
        if not suite.conventions:
            raise UsageError(
                f"{suite.name} has no views: no paper has a table of it.", hint="Leave out --view."
            )
        then = f"`harness show MODEL --suite {suite.name}` takes the recipe's own."
        raise unknown(f"view of {suite.name}", view, suite.conventions, then=then)
    part = TrainedResult.part_of(suite)
    if part is None or seen is None or not isinstance(seen.treatment, RecipeCondition):
        return None
    own = next(iter(seen.records.values())).training.get("view", "")
    stores = all_stores(results)

    def files(record: Any) -> Path | None:
        places = (store.examples(record, f"model-{record.model.artifact[:12]}") for store in stores)
        return next((place for place in places if place is not None and place.exists()), None)

    return TrainedResult.of(part, seen.records, suite.conventions.get(view or own), files)


def _print_suite(
    title: str, suite: Any, view: Any, stands: Any, metrics: Sequence[str], lineage: Lineage | None
) -> None:
    if stands is not None:
        print_trained_result(stands, f"{title}, {view.text}", console())
        for line in (*suite.notes, *_unproven(view), *notes_of(view.records.values())):
            console().print(line, highlight=False, soft_wrap=True)
        return
    means = _means(suite, view)
    further = _metric_means(suite, view, metrics)
    under = f"\n{view.text}" if view else ""
    table = Table(title=f"{title}, scores × 100{under}")
    table.add_column("task")
    table.add_column("type")
    for name in ("score", *further):
        table.add_column(name, justify="right")
    table.add_column("", style="dim")
    for column in suite.columns:
        if column.tasks:
            values = [one.columns[column.name] for one in (means, *further.values())]
            near = [APPROXIMATE] if view and any(map(is_approximate, _records_of(column, view))) else []
            marks = ", ".join(filter(None, [_mark(column, lineage), *near]))
            table.add_row(column.name, column.type, *map(score_text, values), marks)
    out = console()
    print_table(table, out)
    others = [f"{name}: {mean_text(one.over_tasks)}" for name, one in further.items()]
    for line in (*means_lines(suite, means), *others, *_unproven(view)):
        out.print(line, highlight=False, soft_wrap=True)
    _print_approximate(view.records.values() if view else ())


def _records_of(column: Column, view: Any) -> list[Record | None]:
    """The records of a column's tasks, or that of the column where it shows a part of a task."""
    return [view.records.get(name) for name in (column.name, *(task.name for task in column.tasks))]


def _unproven(view: Any) -> list[str]:
    """A line on the tasks whose data is not known to be what the suite pins."""
    told = "data not proven to be the pinned revision"
    return [f"{told}: {shortened(view.unproven)}"] if view and view.unproven else []


def _one(records: Sequence[Any], task: str) -> None:
    mine = [r for r in records if r.task.name == task]
    if not mine:
        names = {r.task.name for r in records}
        raise unknown("recorded task", task, names, then="`harness show MODEL` lists them.")
    click.echo(json.dumps([r.model_dump(mode="json", by_alias=True) for r in mine], indent=1))
