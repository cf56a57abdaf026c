"""`harness show`: the recorded scores of a model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from harness.commands import options
from harness.core import files
from harness.core.arguments import split_names
from harness.core.errors import UsageError, explain_unknown
from harness.core.keys import Lineage
from harness.core.terminal import create_console, create_table, print_lines, print_table, shorten_names
from harness.core.types import OWN_UNITS, Column, Suite, SuiteOptions
from harness.driver.progress import find_most_common
from harness.driver.protocol import prepare_protocol
from harness.driver.report.protocol import ProtocolReport, show_protocol
from harness.driver.report.suite import (
    CHOSE,
    format_held_out_mean,
    format_mean_lines,
    format_recall_lines,
    format_seed_lineages,
    format_seed_means,
    is_approximate,
    is_selection_score,
    mean_text,
    serialize_choice_columns,
    serialize_held_out_mean,
    serialize_seed_means,
)
from harness.driver.report.trained import print_trained_result
from harness.plan import catalog
from harness.plan.request import Request
from harness.results.results import (
    MeasuredSuite,
    NotMeasuredError,
    build_suite_views,
    describe_former_weights,
    describe_record,
    drop_reference_records,
    extract_condition,
    serialize_condition,
)
from harness.results.scores import Spread, compute_seed_spread, format_spread, is_selection_column, score_text
from harness.storage.record import APPROXIMATE, Record, collect_notes
from harness.tools.measured import (
    collect_view_scores,
    compute_metric_means,
    compute_view_means,
    list_record_rows,
    list_suite_results,
    measure_view_spreads,
    serialize_model,
    serialize_suite_result,
    sort_records,
)
from harness.training.model_store import ModelStore


@click.command("show")
@click.argument("model")
@click.option("--suite", "suites", multiple=True, help="A suite's columns and means. Repeat for several.")
@options.select_tasks("All records of these tasks in full, as JSON: every raw metric and the provenance.")
@click.option(
    "--view",
    default="",
    help="The paper whose convention combines raw metrics, e.g. neobert (default: the recipe's own).",
)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="METRIC",
    help="A raw metric beside the main score of a suite's tasks, e.g. recall_at_100, map_at_100 or "
    "mrr_at_10. Repeat for several.",
)
@click.option(
    "--protocol", default="", metavar="NAME", help="The rows that `harness run --protocol NAME` prints."
)
@click.option("--quick", is_flag=True, help="With --protocol: the rows of its quick run.")
@click.option("--reference", is_flag=True, help="Also the scores that came with the project.")
@options.add_options("languages", "subsets", "splits", "results", "cache", "data", "offline")
@options.as_json
def command(
    model: str,
    suites: tuple[str, ...],
    tasks: list[str],
    view: str,
    metrics: tuple[str, ...],
    protocol: str,
    quick: bool,
    reference: bool,
    languages: str,
    subsets: str,
    splits: str,
    results: Path | None,
    cache: Path | None,
    data: Path | None,
    offline: bool,
    as_json: bool,
) -> int:
    """Show what has been measured of MODEL: a name, six or more digits of its key, or a folder.

    For a model that was trained with several seeds, show means with their standard deviations.
    """
    if protocol:
        typed = {"suite": suites, "task": tasks, "view": view, "metric": metrics, "reference": reference}
        typed |= {"languages": languages, "subsets": subsets, "splits": splits}
        option = next((name for name, value in typed.items() if value), None)
        if option is not None:
            raise UsageError(f"--{option} and --protocol exclude each other.", hint=f"Leave out --{option}.")
        places: dict[str, Any] = {"results": results, "cache": cache, "data": data, "offline": offline}
        request = Request(models=(model,), suites=(), **places)
        with request.limit_network():
            prepared = prepare_protocol(catalog.find_protocol(protocol), request, quick=quick)
            return show_protocol(ProtocolReport.build_report(prepared, prepared.read_results()), as_json)
    if quick:
        raise UsageError("--quick is for a protocol.", hint="Name one with --protocol, or leave it out.")
    if (languages or subsets or splits) and not suites:
        raise UsageError(
            "--languages, --subsets and --splits narrow a suite.", hint="Name one with --suite SUITE."
        )
    if view and not suites:
        raise UsageError(
            "--view chooses how the numbers of a suite are computed.", hint="Name one with --suite SUITE."
        )
    if metrics and not suites:
        raise UsageError("--metric is for a suite's tasks.", hint="Name one with --suite SUITE.")
    seeds = _load_seed_suites(model, results, cache)
    if not reference:
        seeds = drop_reference_records(model, seeds, results)
    if metrics and len(seeds) > 1:
        raise UsageError("--metric is for one model, not for several seeds.", hint="Name one by its key.")
    measured = seeds[0]
    narrowed = SuiteOptions(
        languages=split_names(languages),
        subsets=split_names(subsets),
        splits=split_names(splits),
        cache=files.resolve_cache_folder(cache),
        results=results,
    )
    if tasks:
        _print_task_records([record for one in seeds for record in one.records], tasks)
    elif suites:
        opened = catalog.join_single_tasks(catalog.open_suites(suites, narrowed))
        if len(seeds) > 1:
            _show_seed_suites(seeds, opened, as_json)
        else:
            _show_suites(measured, opened, as_json, view=view, metrics=metrics, places=(results, cache))
    elif len(seeds) > 1:
        _show_seed_tasks(seeds, as_json)
    else:
        _show_all_records(measured, as_json)
    if not (tasks or as_json):
        print_lines(format_seed_lineages([one.lineage for one in seeds]))
        for replicate in seeds:
            _print_former(replicate)
    return 0


def _load_seed_suites(model: str, results: Path | None, cache: Path | None) -> tuple[MeasuredSuite, ...]:
    try:
        return MeasuredSuite.load_seeds(model, results, cache)
    except NotMeasuredError:
        # Trials never enter a table, so a model may be trained, have records and still show nothing.
        for stored_model in ModelStore(files.resolve_results_folder(results)).list_stored_models():
            if model == stored_model.name or (len(model) >= 6 and stored_model.key.startswith(model)):
                raise UsageError(
                    f"{stored_model.name} ({stored_model.key[:12]}) is trained, but has only scores of "
                    "trials.",
                    hint=f"Type: harness run --model {stored_model.folder} --suite SUITE",
                ) from None
        raise


def _print_former(measured: MeasuredSuite) -> None:
    """Say that a model was trained again and has other weights now, if records of the former ones exist."""
    former = dict.fromkeys(record.task.name for record in measured.former)
    if former:
        named = f"{measured.records[0].model.artifact[:12]} was trained again, and has other weights now"
        names = shorten_names([*former])
        print_lines([f"{named}; scores of the former ones are in no mean with newer ones: {names}"])


def _show_all_records(measured: MeasuredSuite, as_json: bool) -> None:
    records = sort_records(measured.records)
    about = records[0].model
    if as_json:
        rows = list_record_rows(measured)
        click.echo(json.dumps({"schema": 1, "model": serialize_model(measured), "records": rows}, indent=1))
        return
    common = find_most_common(
        # The first of equally frequent settings counts: sorted, it does not depend on the records' order.
        [describe_record(r) for r in sorted(records, key=lambda r: extract_condition(r).rank)]
    )
    size = f", {about.parameters / 1e6:.1f}M parameters" if about.parameters else ""
    title = f"{about.name} ({about.artifact[:12]}{size}), scores × 100\n{common}"
    table = create_table("task", "type", "metric", numbers=["score"], notes=[""], title=title)
    for record in records:
        about_task = (record.task.name, record.task.type, record.task.metric)
        table.add_row(
            *about_task,
            score_text(record.main_score, measured=record.task.metric in OWN_UNITS),
            _describe_distinction(record, measured, common),
        )
    print_table(table, create_console())
    print_lines(format_recall_lines(records))


def _describe_distinction(record: Any, measured: MeasuredSuite, common: str) -> str:
    """The text that tells a record from others: settings, splits, data, weights, or that it is reference."""
    settings = describe_record(record)
    parts = [settings] if settings != common else []
    parts += [describe_former_weights(record.model.weights)] if measured.is_former(record) else []
    alike = [r for r in measured.records if (r.task.name, describe_record(r)) == (record.task.name, settings)]
    if any(list(one.scores) != list(record.scores) for one in alike):
        parts.append(f"splits {', '.join(record.scores)}")
    if any(one.identity["data"] != record.identity["data"] for one in alike):
        data = record.identity["data"]
        parts.append(f"data {(data.get('revision') or data['content'].removeprefix('sha256:'))[:12]}")
    if record.key in measured.reference:
        parts.append("reference")
    if is_selection_score(record, measured.lineage):
        parts.append(CHOSE)
    # Settings that differ from the common ones name the index themselves.
    if is_approximate(record) and settings == common:
        parts.append(APPROXIMATE)
    return ", ".join(parts)


def _show_seed_tasks(seeds: Sequence[MeasuredSuite], as_json: bool) -> None:
    """Show each task of a model that was trained with several seeds, a row for each setting."""
    # By the place of the seed, so that a seed without a score leaves a gap and moves no other.
    tasks: dict[tuple[str, str], dict[int, Record]] = {}
    for number, replicate in enumerate(seeds):
        for record in sort_records(replicate.newest.records):
            tasks.setdefault((record.task.name, describe_record(record)), {})[number] = record
    rows = [
        (task, settings, [there[at].main_score if at in there else None for at in range(len(seeds))], there)
        for (task, settings), there in tasks.items()
    ]
    if as_json:
        shown = [
            {
                "task": task,
                "settings": settings,
                "selected": _has_selection_record(there, seeds),
                **compute_seed_spread(values),
                "scores": values,
                "keys": [there[at].key if at in there else None for at in range(len(seeds))],
            }
            for task, settings, values, there in rows
        ]
        click.echo(json.dumps({"schema": 1, **_serialize_seeds(seeds), "tasks": shown}, indent=1))
        return
    common = find_most_common([settings for _, settings, *_ in rows])
    title = f"{_format_seeds_title(seeds)}, scores × 100\n{common}"
    table = create_table("task", "type", "metric", numbers=["score"], notes=[""], title=title)
    for task, settings, values, records in rows:
        about = next(iter(records.values())).task
        parts = [
            settings if settings != common else "",
            CHOSE if _has_selection_record(records, seeds) else "",
        ]
        text = ", ".join(filter(None, parts))
        table.add_row(
            task, about.type, about.metric, format_spread(values, measured=about.metric in OWN_UNITS), text
        )
    print_table(table, create_console())
    _print_seeds(seeds)


def _has_selection_record(records: Mapping[int, Record], seeds: Sequence[MeasuredSuite]) -> bool:
    """Whether one of a task's records, by the place of its seed, chose the model."""
    return any(is_selection_score(record, seeds[at].lineage) for at, record in records.items())


def _show_seed_suites(seeds: Sequence[MeasuredSuite], suites: list[Suite], as_json: bool) -> None:
    """Show columns and means of suites over the seeds of a training, for each condition."""
    seed_views = [
        (suite, text, views) for suite in suites for text, views in _collect_seed_views(seeds, suite)
    ]
    if as_json:
        rows = [
            {
                "suite": suite.name,
                "settings": next(serialize_condition(view.treatment) for view in views if view)
                if text
                else None,
                **serialize_seed_means([compute_view_means(suite, view) for view in views]),
                **serialize_choice_columns(suite, seeds[0].lineage),
                **serialize_held_out_mean(suite, seeds[0].lineage, list(map(collect_view_scores, views))),
            }
            for suite, text, views in seed_views
        ]
        click.echo(json.dumps({"schema": 1, **_serialize_seeds(seeds), "suites": rows}, indent=1))
        return
    for suite, text, views in seed_views:
        means = [compute_view_means(suite, view) for view in views]
        title = f"{_format_seeds_title(seeds)} on {suite.heading}, {suite.unit}" + f"\n{text}".rstrip()
        table = create_table("task", "type", numbers=["score"], notes=[""], title=title)
        for column in suite.columns:
            if column.tasks:
                score = format_spread(
                    [m.columns[column.name] for m in means],
                    measured=column.tasks[0].metric in OWN_UNITS,
                )
                table.add_row(column.name, column.type, score, _mark(column, seeds[0].lineage))
        print_table(table, create_console())
        untouched = format_held_out_mean(suite, seeds[0].lineage, list(map(collect_view_scores, views)))
        print_lines((*format_seed_means(suite, means), *untouched))
    _print_seeds(seeds)


def _collect_seed_views(seeds: Sequence[MeasuredSuite], suite: Suite) -> list[tuple[str, list[Any]]]:
    """The views of a suite by condition, each with that of every seed, or None."""
    views: dict[str, list[Any]] = {}
    for number, replicate in enumerate(seeds):
        for view in build_suite_views(replicate.newest.records, suite):
            views.setdefault(view.treatment.text, [None] * len(seeds))[number] = view
    return list(views.items()) or [("", [None] * len(seeds))]


def _format_seeds_title(seeds: Sequence[MeasuredSuite]) -> str:
    return f"{seeds[0].records[0].model.name} ({len(seeds)} seeds)"


def _serialize_seeds(seeds: Sequence[MeasuredSuite]) -> dict[str, Any]:
    models = [(one.lineage.seed if one.lineage else None, serialize_model(one)) for one in seeds]
    return {"models": [{"seed": seed, **model} for seed, model in models]}


def _mark(column: Column, lineage: Lineage | None) -> str:
    """The mark of a column that chose the model."""
    return CHOSE if is_selection_column(column, lineage) else ""


def _print_seeds(seeds: Sequence[MeasuredSuite]) -> None:
    lineage = seeds[0].lineage
    named = ", ".join(
        f"{one.lineage.seed} ({one.records[0].model.artifact[:12]})" for one in seeds if one.lineage
    )
    text = f"{lineage.text} on {', '.join(parent.text for parent in lineage.parents)}; " if lineage else ""
    print_lines([f"{text}mean ± standard deviation over the seeds {named}"])


def _show_suites(
    measured: MeasuredSuite,
    suites: list[Any],
    as_json: bool,
    *,
    view: str,
    metrics: Sequence[str],
    places: tuple[Path | None, Path | None],
) -> None:
    records, lineage = measured.records, measured.lineage
    about = records[0].model
    _require_metrics(metrics, suites, records)
    suite_rows = list_suite_results(measured, suites, view, places[0])
    if as_json:
        rows = [serialize_suite_result(measured, *row, metrics, places) for row in suite_rows]
        click.echo(json.dumps({"schema": 1, "model": serialize_model(measured), "suites": rows}, indent=1))
        return
    for suite, seen, stands in suite_rows:
        title, spreads = f"{about.name} on {suite.heading}", measure_view_spreads(suite, seen, *places)
        _print_suite(title, suite, seen, stands, spreads, metrics, lineage)
        if stands is None:
            print_lines(format_held_out_mean(suite, lineage, [collect_view_scores(seen)]))


def _require_metrics(metrics: Sequence[str], suites: Sequence[Suite], records: Sequence[Record]) -> None:
    """Refuse a metric that no record of the suites' tasks has."""
    names = {task.name for suite in suites for task in suite.tasks}
    metric_names = {
        metric
        for record in records
        if record.task.name in names
        for subsets in record.scores.values()
        for found in subsets.values()
        for metric, value in found.items()
        if isinstance(value, int | float)
    }
    then = "`harness show MODEL --task TASK` has all."
    if not metric_names:
        then = "Nothing is recorded of these tasks; trials are in no table: run without --limit."
    for metric in metrics:
        if metric not in metric_names:
            raise explain_unknown("recorded metric", metric, metric_names, then=then)


def _print_suite(
    title: str,
    suite: Any,
    view: Any,
    stands: Any,
    spreads: Mapping[str, Spread],
    metrics: Sequence[str],
    lineage: Lineage | None,
) -> None:
    if stands is not None:
        print_trained_result(stands, f"{title}, {view.text}", create_console())
        notes = collect_notes(view.records.values())
        print_lines((*suite.notes, *_describe_unproven_data(view), *notes))
        return
    means = compute_view_means(suite, view, spreads)
    further = compute_metric_means(suite, view, metrics)
    under = f"\n{view.text}" if view else ""
    title = f"{title}, {suite.unit}{under}"
    table = create_table("task", "type", numbers=("score", *further), notes=[""], title=title)
    for column in suite.columns:
        if column.tasks:
            values = [one.columns[column.name] for one in (means, *further.values())]
            near = (
                [APPROXIMATE] if view and any(map(is_approximate, _list_column_records(column, view))) else []
            )
            marks = ", ".join(filter(None, [_mark(column, lineage), *near]))
            measured = column.tasks[0].output == "measured"
            texts = [score_text(value, measured=measured) for value in values]
            table.add_row(column.name, column.type, *texts, marks)
    print_table(table, create_console())
    others = [f"{name}: {mean_text(one.over_tasks)}" for name, one in further.items()]
    print_lines((*format_mean_lines(suite, means), *others, *_describe_unproven_data(view)))
    print_lines(format_recall_lines(view.records.values() if view else ()))


def _list_column_records(column: Column, view: Any) -> list[Record | None]:
    """The records of a column's tasks, or that of the column where it shows a part of a task."""
    return [view.records.get(name) for name in (column.name, *(task.name for task in column.tasks))]


def _describe_unproven_data(view: Any) -> list[str]:
    """A line on the tasks whose data is not known to be what the suite pins."""
    remark = "data not proven to be the pinned revision"
    return [f"{remark}: {shorten_names(view.unproven)}"] if view and view.unproven else []


def _print_task_records(records: Sequence[Record], tasks: Sequence[str]) -> None:
    names = {record.task.name for record in records}
    for task in tasks:
        if task not in names:
            raise explain_unknown("recorded task", task, names, then="`harness show MODEL` lists them.")
    rows = [one.model_dump(mode="json", by_alias=True) for one in records if one.task.name in tasks]
    click.echo(json.dumps(rows, indent=1))
