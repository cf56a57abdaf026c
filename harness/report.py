"""The report of a run: tables for people, JSON for machines (docs/json.md), and each failure once."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from harness.catalog import join_single_tasks
from harness.data.locate import DataMissing, human_size
from harness.errors import shortened
from harness.execute import Result
from harness.jobs import lineage_of
from harness.lineage import Lineage, SweepPart
from harness.plan import ConfiguredModel
from harness.record import Record
from harness.request import PreparedRun
from harness.results import notes_of
from harness.scores import (
    Aggregates,
    Mean,
    TaskResult,
    TrainedResult,
    Untouched,
    column_chose,
    part_scores,
    raw_metrics,
    score_text,
    spread_json,
    spread_text,
)
from harness.types import Column, Convention, Predicted, Suite, Task
from harness.workers import Failure

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from harness.stats import Interval


LABELS = {
    "cached": "was there",
    "done": "new",
    "shared": "another process",
    "failed": "FAILED",
    "impossible": "cannot run",
    "stopped": "not run",
}


FIRST = 0.4
"""The share of the width that names of a table's first column may take unfolded."""

NARROW = 6
"""The width of a folded column, at least."""


def print_table(table: Table, console: Console) -> None:
    """Print a table without its empty columns, below its title; nothing is cut.

    Where it is too wide names are folded, and numbers stay whole.
    """
    from rich.text import Text

    if table.title:
        console.print(Text(str(table.title), style="italic"), soft_wrap=True)
        table.title = None
    columns = table.columns = [column for column in table.columns if any(map(str, column.cells))]
    longest = [max((len(str(cell)) for cell in column.cells), default=0) for column in columns]
    widths = [max(len(str(column.header)), least) for column, least in zip(columns, longest, strict=True)]
    least = [
        longest[n] if column.justify == "right" else min(widths[n], NARROW)
        for n, column in enumerate(columns)
    ]
    room, own = console.width - 3 * len(columns) - 1, console.width
    for first in (min(longest[0], int(FIRST * own)), least[0]):
        while sum(widths) > room:
            wide = [n for n, width in enumerate(widths) if width > max(least[n], 0 if n else first)]
            if not wide:
                break
            widths[max(wide, key=widths.__getitem__)] -= 1
    for column, width in zip(columns, widths, strict=True):
        column.width, column.overflow = width, "fold"
    console.width = max(own, own - room + sum(widths))  # what cannot be made narrower the terminal wraps
    console.print(table, crop=False)
    console.width = own


def _report_json(report: Report) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "results": str(report.prepared.store.root),
        "texts_encoded": report.texts_encoded,
        "tokens_encoded": report.tokens_encoded,
        "vectors_dropped": report.vectors_dropped,
        "models": [
            {"asked": text, "name": report.prepared.label(one), "artifact": one.artifact.key}
            for text, one in zip(report.prepared.request.models, report.prepared.asked, strict=True)
        ],
        "trained": [_trained_json(report, one) for one in report.prepared.plan.trainings],
        "records": [_result_json(report, result) for result in report.results],
        "suites": [
            _suite_json(report, one, suite)
            for suite in join_single_tasks(report.prepared.suites)
            for one in report.models_of(suite)
        ],
        "over_seeds": [
            _over_seeds_json(report, group, suite)
            for suite in join_single_tasks(report.prepared.suites)
            for group in report.groups_of(suite)
            if len(group) > 1
        ],
    }


def _trained_json(report: Report, one: ConfiguredModel) -> dict[str, Any]:
    lineage, folder = report.lineage(one), one.artifact.folder
    assert lineage is not None
    return {
        "name": report.prepared.label(one),
        "artifact": one.artifact.key,
        "folder": str(folder) if folder.is_dir() else None,
        "lineage": lineage.model_dump(mode="json"),
    }


def _over_seeds_json(report: Report, group: Sequence[ConfiguredModel], suite: Suite) -> dict[str, Any]:
    return {
        "suite": suite.name,
        "model": group[0].artifact.name,
        "artifacts": [one.artifact.key for one in group],
        **over_seeds_json([report.aggregates(one, suite) for one in group]),
        **selected_json(suite, report.lineage(group[0])),
        **untouched_json(suite, report.lineage(group[0]), [report.numbers(one, suite) for one in group]),
    }


def over_seeds_json(found: Sequence[Aggregates]) -> dict[str, Any]:
    """The columns and means of a suite over the seeds of a training, as plain values."""
    return {
        "columns": {name: spread_json([one.columns[name] for one in found]) for name in found[0].columns},
        "mean_over_tasks": spread_json([one.over_tasks.whole for one in found]),
        "mean_over_types": spread_json([one.over_types.whole for one in found]),
    }


def over_seeds_lines(suite: Suite, found: Sequence[Aggregates]) -> list[str]:
    """The lines with both means of a suite over the seeds of a training, and what they lack."""
    lines = []
    for name in ("over_tasks", "over_types"):
        means = [getattr(one, name) for one in found]
        least = min(mean.there for mean in means)
        spread = spread_text([mean.whole for mean in means])
        lines.append(f"mean over {means[0].over} {spread} ({least} of {means[0].wanted})")
    return [", ".join(lines), *means_lines(suite, found[0])[1:]]


def _suite_json(report: Report, one: ConfiguredModel, suite: Suite) -> dict[str, Any]:
    found, standing = report.aggregates(one, suite), report.trained_result(one, suite)
    return {
        "suite": suite.name,
        "model": one.artifact.name,
        "artifact": one.artifact.key,
        **aggregates_json(suite, found),
        **selected_json(suite, report.lineage(one)),
        **untouched_json(suite, report.lineage(one), [report.numbers(one, suite)]),
        **({"standing": trained_result_json(standing)} if standing else {}),
    }


def aggregates_json(suite: Suite, found: Aggregates) -> dict[str, Any]:
    """A suite's columns and means as plain values."""
    return {
        "columns": dict(found.columns),
        "mean_over_tasks": _mean_json(found.over_tasks),
        "mean_over_types": _mean_json(found.over_types),
        **({"mean_over_requested": _mean_json(_over_requested(suite, found))} if suite.requested else {}),
        "by_type": {name: _mean_json(mean) for name, mean in found.by_type.items()},
        "shown_only": dict(found.shown_only),
        "left_out": list(suite.left_out),
        "notes": list(suite.notes),
        **({"predicted": _predicted_json(suite, found)} if suite.predictor else {}),
    }


def means_lines(suite: Suite, means: Aggregates) -> list[str]:
    """The lines with both means of a suite, what they lack, and the prediction of a proxy.

    Tasks that were asked for by name have a mean of their own, which is not the suite's.
    """
    over = _over_requested(suite, means) if suite.requested else means.over_tasks
    lines = [mean_text(over) if suite.requested else f"{mean_text(over)}, {mean_text(means.over_types)}"]
    if not over.wanted:
        lines = ["no mean: every task is shown by itself"]
    apart = {name: reason for name, reason in means.shown_only.items() if name not in suite.left_out}
    lines += _shown_only_lines(apart)
    if over.wanted and not over.complete:
        lines.append("incomplete: not to be ranked beside complete ones")
    elif len(suite.requested) < len(suite.columns) and suite.requested:
        lines.append(f"not the mean of {suite.title}: not to be ranked beside it")
    return [*lines, *left_out_lines(suite), *_predicted_lines(suite, means)]


def lineage_lines(lineage: Lineage | None) -> list[str]:
    """The lines on users' own data, and on tasks that chose a model, its checkpoint or its parents."""
    if lineage is None:
        return []
    own, sweep = lineage.own_data, lineage.sweep
    others = lineage.model_copy(update={"sweep": None}).choices
    return [
        *([f"trained on {own}, not on the recipe's data"] if own else []),
        *(f"made of {parent.text}" for parent in lineage.parents if parent.own_data),
        *(f"{what} chosen by {shortened(tasks)}: scores there are biased" for what, tasks in others.items()),
        *([] if sweep is None else _sweep_lines(sweep)),
    ]


def selection_json(lineage: Lineage | None) -> dict[str, Any]:
    """The tasks whose scores chose a model or one of its parents, and its sweep, as plain values."""
    sweep = lineage.sweep if lineage is not None else None
    return {
        "selected": list(lineage.all_selected_on) if lineage is not None else [],
        "sweep": None if sweep is None else sweep.model_dump(mode="json"),
    }


CHOSE = "chose"
"""The mark of a score that chose the model, in tables."""


def record_chose(
    record: Record, lineage: Lineage | None, splits: Sequence[str] = (), subsets: Sequence[str] = ()
) -> bool:
    """Whether the score of a record, or of some splits and subsets of it, chose the model."""
    about = record.identity
    scored = (splits or about.get("splits", ()), subsets or about.get("subsets", ()))
    return lineage is not None and bool(lineage.chosen_by(record.task.name, *scored))


def selected_json(suite: Suite, lineage: Lineage | None) -> dict[str, Any]:
    """The columns of a suite that chose a model, as plain values."""
    return {"selected": [column.name for column in suite.columns if column_chose(column, lineage)]}


def lineages_lines(lineages: Sequence[Lineage | None]) -> list[str]:
    """The lines of `lineage_lines` over the seeds of a training, each seed with the outcome of its sweep."""
    named = [
        f"seed {made.seed}: {line}" if len(lineages) > 1 and made is not None and made.sweep else line
        for made in lineages
        for line in lineage_lines(made)
    ]
    return list(dict.fromkeys(named))


def _sweep_lines(sweep: SweepPart) -> list[str]:
    """The lines on a sweep: what chose, and the mean score of each value."""
    about = f"{sweep.setting} chosen among {len(sweep.values)} values by {shortened([*sweep.tasks])}"
    curve = [
        f"{one.value}: {score_text(one.mean)}{' (chosen)' if one.value == sweep.chosen else ''}"
        for one in sweep.curve
    ]
    over = f"mean over {len(sweep.tasks)} tasks" if len(sweep.tasks) > 1 else next(iter(sweep.tasks))
    told = [f"{over} by {sweep.setting}: {', '.join(curve)}"] if curve else []
    return [f"{about}: scores there are biased", *told]


def untouched_lines(
    suite: Suite, lineage: Lineage | None, scores: Sequence[Mapping[str, float]]
) -> list[str]:
    """The line on the mean over the tasks of a suite that did not choose the model.

    Args:
        suite: The suite.
        lineage: That of the model.
        scores: By task, of each seed of the model.
    """
    found = Untouched.of(suite, [lineage])
    if found is None:
        return []
    means = _untouched_means(found, scores)
    least = min(mean.there for mean in means)
    value = spread_text([mean.value if mean.complete or len(means) == 1 else None for mean in means])
    count = f" ({least} of {means[0].wanted})" if found.count else ""
    return [f"mean {found.text} {value}{count}; without {shortened(found.selected)}"]


def _untouched_means(found: Untouched, scores: Sequence[Mapping[str, float]]) -> list[Mean]:
    every = [Aggregates.of(found.suite, one) for one in scores]
    if found.suite.requested:
        return [_over_requested(found.suite, one) for one in every]
    return [one.over_tasks for one in every]


def untouched_json(
    suite: Suite, lineage: Lineage | None, scores: Sequence[Mapping[str, float]]
) -> dict[str, Any]:
    """The mean over the tasks of a suite that did not choose the model; empty where none chose it."""
    found = Untouched.of(suite, [lineage])
    if found is None:
        return {}
    means = _untouched_means(found, scores)
    mean = _mean_json(means[0]) if len(means) == 1 else spread_json([mean.whole for mean in means])
    return {"mean_over_untouched": {**mean, "without": list(found.selected)}}


def left_out_lines(suite: Suite) -> list[str]:
    """The line on the columns of a suite that narrowing has left nothing of."""
    names = [name for name in suite.left_out if not suite.requested or name in suite.requested]
    return [f"nothing of what was asked for in {len(names)} columns: {shortened(names)}"] if names else []


def _shown_only_lines(apart: Mapping[str, str]) -> list[str]:
    """A line on the tasks that are shown and not averaged."""
    if not apart:
        return []
    named = ", ".join(f"{name} ({reason})" for name, reason in apart.items())
    small = " (docs/local-data.md: Means)" if any("examples" in reason for reason in apart.values()) else ""
    return [f"shown and not averaged{small}: {named}"]


def _over_requested(suite: Suite, means: Aggregates) -> Mean:
    """The mean over the columns of a suite that were asked for by name."""
    count = len(suite.requested)
    over = f"the {count} tasks asked for" if count > 1 else "the task asked for"
    return Mean.of(over, [means.columns[name] for name in suite.requested if name not in means.shown_only])


def _print_trained_results(suite: Suite, report: Report, console: Console) -> None:
    recipe = report.prepared.recipe
    for one in report.models_of(suite):
        found = report.trained_result(one, suite)
        if found is not None and recipe is not None:
            title = f"{report.prepared.label(one)} on {suite.heading}, {recipe.name}"
            print_trained_result(found, title, console)


def _suite_table(suite: Suite, report: Report) -> Table:
    """The table of a suite: a row for each task, a column for each model, or for the seeds of a training."""
    from rich.table import Table

    table = Table(title=f"{suite.heading}, scores × 100")
    for name in ("task", "type", "metric"):
        table.add_column(name)
    groups = report.groups_of(suite)
    for group in groups:
        table.add_column(report.label(group), justify="right")
        table.add_column("", style="dim")
    for column in suite.columns:
        if not column.tasks:
            continue
        cells: list[str] = []
        for group in groups:
            hows = [
                report.result(one, task).how for one in group for task in report.tasks_of(suite, column, one)
            ]
            scores = [report.aggregates(one, suite).columns[column.name] for one in group]
            chose = column_chose(column, report.lineage(group[0]))
            cells += _cells(spread_text(scores), hows, chose=chose) if hows else ["", ""]
        table.add_row(column.name, column.type, column.tasks[0].metric, *cells)
    return table


def _cells(score: str, hows: Sequence[str], *, chose: bool) -> list[str]:
    """A column's score, and its origin with the mark of a score that chose the model."""
    there = [how for how in hows if how in ("cached", "done", "shared")]
    origin = LABELS["done"] if len(there) == len(hows) else f"{len(there)} of {len(hows)}"
    if len(set(hows)) == 1:
        origin = LABELS[hows[0]]
    return [score, ", ".join([origin, *([CHOSE] if chose else [])])]


def _result_json(report: Report, result: Result) -> dict[str, Any]:
    cell, record = result.cell, result.record
    lineage = report.lineage(cell.subject)
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
        "selected": lineage is not None
        and bool(lineage.chosen_by(cell.task.name, cell.task.splits, cell.task.subsets)),
        "notes": list(record.provenance.get("notes", ())) if record is not None else [],
        "error": None
        if failure is None
        else {"kind": failure.kind, "message": failure.message, "hint": failure.hint},
    }


def _mean_json(mean: Mean) -> dict[str, Any]:
    return {"value": mean.value, "there": mean.there, "wanted": mean.wanted}


def mean_text(mean: Mean) -> str:
    """A mean and the number of its scores, e.g. "mean over tasks 56.09 (41 of 41)"."""
    return f"mean over {mean.over} {score_text(mean.value)} ({mean.there} of {mean.wanted})"


def impossible_results(prepared: PreparedRun) -> list[Result]:
    """The scores without data, as results of a run that has not begun."""
    cells = [cell for cell in prepared.plan.cells if cell.problem is not None]
    return [Result(cell=c, how="impossible", failure=Failure.of(c.problem)) for c in cells if c.problem]


def print_failures(results: Sequence[Result], prepared: PreparedRun, console: Console) -> None:
    """Print each reason once; tasks without data share one reason, whichever data set each lacks."""
    from rich.text import Text

    groups: dict[tuple[str, str, str], list[Result]] = {}
    for result in results:
        if result.failure is not None:
            groups.setdefault(_reason(result, result.failure, prepared), []).append(result)
    for group in groups.values():
        label, message, hint = _describe(group, prepared)
        console.print(Text.assemble((f"{label}: ", "bold red"), message), soft_wrap=True)
        if hint:
            console.print(Text(f"  {hint}"), soft_wrap=True)
    stopped = sum(1 for r in results if r.how == "stopped")
    if stopped:
        late = prepared.request.budget is not None and not prepared.request.fail_fast
        why = "the budget was used up" if late else "--fail-fast stopped at the first failure"
        console.print(f"{stopped} not run: {why}.", highlight=False, soft_wrap=True)


def _reason(result: Result, failure: Failure, prepared: PreparedRun) -> tuple[str, str, str]:
    if isinstance(failure.fault, DataMissing):
        return "", "no data", ""
    return prepared.label(result.cell.subject), _message(failure), failure.hint or ""


def _describe(group: Sequence[Result], prepared: PreparedRun) -> tuple[str, str, str]:
    """The tasks of a group of failures, the message, and the hint."""
    failure = group[0].failure
    assert failure is not None
    tasks = list(dict.fromkeys(result.cell.task.name for result in group))
    hint = prepared.with_suites(failure.hint or "")
    if isinstance(failure.fault, DataMissing):
        likewise = f" {len(tasks) - 1} more likewise." if len(tasks) > 1 else ""
        return shortened(tasks), failure.message + likewise, hint
    several = len(prepared.subjects) > 1
    model = f"{prepared.label(group[0].cell.subject)}: " if several else ""
    return model + shortened(tasks), _message(failure), hint


def _message(failure: Failure) -> str:
    return failure.message if failure.fault or failure.hint else f"{failure.kind}: {failure.message}"


def _predicted_lines(suite: Suite, found: Aggregates) -> list[str]:
    """The prediction with its interval, or why there is none; empty without a proxy."""
    if suite.predictor is None:
        return []
    predicted = suite.predictor.predict(_scores(found))
    if predicted is None:
        missing = [name for name in suite.predictor.tasks if name not in _scores(found)]
        return [f"{suite.predictor.target} is not predicted: no score of {shortened(missing)}"]
    return [_predicted_text(predicted), *_warnings(predicted)]


def _predicted_text(predicted: Predicted) -> str:
    """A prediction as a line, its scores times 100.

    >>> from harness.types import Predicted
    >>> _predicted_text(Predicted(target="MTEB", value=0.512, low=0.506, high=0.518, level=0.95, families=9))
    'predicted MTEB: 51.2 ± 0.6 (95 %, cross-validated over 9 families)'
    """
    half = (predicted.high - predicted.low) / 2
    return (
        f"predicted {predicted.target}: {100 * predicted.value:.1f} ± {100 * half:.1f} "
        f"({100 * predicted.level:g} %, cross-validated over {predicted.families} families)"
    )


def _predicted_json(suite: Suite, found: Aggregates) -> dict[str, Any] | None:
    """The prediction as plain values; None where a score is missing."""
    predicted = suite.predictor.predict(_scores(found)) if suite.predictor else None
    return None if predicted is None else {**asdict(predicted), "outside": list(predicted.outside)}


def _warnings(predicted: Predicted) -> list[str]:
    if not predicted.outside:
        return []
    named = shortened(predicted.outside)
    return [f"outside of what the proxy was fitted on, so that its interval may not hold: {named}"]


def _scores(found: Aggregates) -> dict[str, float]:
    """The scores of a proxy's columns, each of which is one task."""
    return {name: value for name, value in found.columns.items() if value is not None}


KINDS = {
    "fresh": "fresh seeds of ours at the chosen cell",
    "final": "the protocol's final seeds at the chosen cell",
    "protocol": "the protocol's own seeds",
    "maximum": "none but the grid's: its maximum, which errs upward",
}
"""Descriptions of the kinds of seeds behind a score."""

LOST = (("diverged", "diverged"), ("constant", "predict one and the same for every row"))
"""The kinds of runs that learn nothing, with their text."""


def trained_result_json(found: TrainedResult) -> dict[str, Any]:
    """The trained result as plain values (docs/json.md)."""
    return {
        "view": found.convention.name if found.convention else None,
        "convention": found.convention.says if found.convention else None,
        "tasks": [_row_json(row) for row in found.rows],
        "average": {
            "value": found.average.value,
            "there": found.average.there,
            "wanted": found.average.wanted,
            "interval": _bounds(found.interval),
            "mean_of_bounds": _bounds(found.mean_of_bounds),
            "last": found.last.whole if found.last else None,
            "cross_fitted": found.cross_fitted.whole if found.cross_fitted else None,
        },
        "shown_only": dict(found.shown_only),
    }


def _row_json(row: TaskResult) -> dict[str, Any]:
    return {
        "task": row.task,
        "key": row.record.key if row.record else None,
        "score": row.number,
        "interval": _bounds(row.interval),
        "interval_one_seed": _bounds(row.one_seed),
        "metrics": [[*name, value] for name, value in row.raw.items()],
        "seeds": row.seeds.get("kind"),
        "scores": list(row.scores),
        "standard_deviation": row.deviation,
        "best_run": row.best_run,
        "counts": row.training("evaluation", {}).get("counts"),
        "last": row.last,
        "cross_fitted": row.cross_fitted,
        "with_diverged": row.with_diverged,
        "runs": len(row.training("cells", ())),
        "diverged": row.training("diverged"),
        "constant": row.training("constant"),
    }


def _bounds(found: Interval | None) -> list[float] | None:
    return None if found is None else [found.low, found.high]


def print_trained_result(found: TrainedResult, title: str, console: Console) -> None:
    """Print the table of a model's trained tasks, and the mean with both of its intervals."""
    from rich.table import Table

    table = Table(title=f"{title}, scores × 100")
    table.add_column("task")
    others = ("last", "cross-fitted") if any(row.best_counts for row in found.rows) else ()
    for name in ("score", *others, "± 95 %", "sd", "best run"):
        table.add_column(name, justify="right")
    table.add_column("seeds", justify="right")
    table.add_column("raw metrics", style="dim")
    table.add_column("", style="dim")
    for row in found.rows:
        if row.asked:
            table.add_row(row.task, *_trained_cells(row, others=bool(others)))
    print_table(table, console)
    for line in _lines(found):
        console.print(line, highlight=False, soft_wrap=True)


def _trained_cells(row: TaskResult, *, others: bool) -> list[str]:
    scores = row.seeds.get("scores", [])
    return [
        score_text(row.number),
        *([score_text(row.last), score_text(row.cross_fitted)] if others else []),
        _half_text(row.interval),
        score_text(row.deviation),
        score_text(row.best_run),
        "grid" if row.seeds.get("kind") == "maximum" else str(len(scores) or "–"),
        ", ".join(_raw(row.raw)),
        CHOSE if row.record is not None and record_chose(row.record, row.record.lineage) else "",
    ]


def _raw(raw: Mapping[tuple[str, str], float]) -> list[str]:
    """Raw metrics by name, with the split unless every split is a plain validation or test split."""
    plain = {split for split, _ in raw} <= {"validation", "dev", "test"}
    return [
        f"{name if plain else f'{split} {name}'} {score_text(value)}" for (split, name), value in raw.items()
    ]


def _half_text(found: Interval | None) -> str:
    """Half of an interval's width, times 100; a dash for None."""
    return "–" if found is None else f"{50 * (found.high - found.low):.2f}"


def _lines(found: TrainedResult) -> list[str]:
    average = found.average
    lines = [mean_text(average) + (f" ± {_half_text(found.interval)}" if found.interval else "")]
    if not average.wanted:
        lines = ["no mean: every task is shown by itself"]
    lines += _shown_only_lines(found.shown_only)
    if found.interval is not None and found.mean_of_bounds is not None:
        lines.append(
            f"± is half of the 95 % interval over seeds and examples; of the mean it is "
            f"{_between(found.interval)}. The mean of the tasks' bounds, which OptiBERT prints in its place, "
            f"is {_between(found.mean_of_bounds)}."
        )
    if average.wanted and not average.complete:
        lines.append("incomplete: not to be ranked beside complete ones")
    lacking = [row.task for row in found.rows if row.record is not None and row.number is None]
    if lacking and found.convention:
        lines.append(
            f"{', '.join(lacking)}: not all is there that the view {found.convention.name} is made of"
        )
    kinds = dict.fromkeys(row.seeds.get("kind") for row in found.rows if row.record is not None)
    lines += [f"seeds: {KINDS[kind]}" for kind in kinds if kind in KINDS]
    lines += _evaluation_lines(found)
    if "fresh" in kinds or "final" in kinds:
        lines.append("best run: of the grid, chosen on the rows that it is scored on; it errs upward")
    if found.convention:
        lines.append(f"view {found.convention.name}: {found.convention.says}")
    return [*lines, *_lost(found)]


def _evaluation_lines(found: TrainedResult) -> list[str]:
    """Lines on scores of best evaluations, which were chosen on the rows that they are measured on."""
    if found.last is None or found.cross_fitted is None:
        return []
    rows = [row for row in found.rows if row.best_counts]
    counts = [count for row in rows for count in row.training("evaluation")["evaluations"]]
    most = f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else str(max(counts))
    return [
        f"score: the best of {most} evaluations of each run, as the recipe has it; it errs upward, which ± "
        "does not see",
        "last: the last evaluation of the same runs; cross-fitted: the evaluation is chosen on one half of "
        "the set and scored on the other",
        f"last: {mean_text(found.last)}; cross-fitted: {mean_text(found.cross_fitted)}",
    ]


def _between(found: Interval) -> str:
    return f"{score_text(found.low)} to {score_text(found.high)}"


def _lost(found: TrainedResult) -> list[str]:
    """Lines on runs and seeds that learned nothing."""
    told = []
    for row in found.rows:
        cells = len(row.training("cells", ()))
        for name, what in LOST:
            if row.training(name):
                told.append(f"{row.task}: {row.training(name)} of {cells} runs {what}")
        if row.with_diverged is not None:
            told.append(
                f"{row.task}: {score_text(row.number)} without the diverged seeds, "
                f"{score_text(row.with_diverged)} with them as constant predictions"
            )
        seeds = 0 if row.seeds.get("kind") in ("protocol", "maximum") else len(row.seeds.get("scores", ()))
        for name, what in LOST if seeds else ():
            if row.seeds.get(name):
                told.append(f"{row.task}: {row.seeds[name]} of {seeds} seeds that count {what}")
    return told


SCHEMA = 1
"""The version of the report's JSON."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Report:
    """The report of a run: a result for each planned score, and the aggregates of each suite."""

    prepared: PreparedRun
    results: tuple[Result, ...]
    texts_encoded: int
    tokens_encoded: int
    vectors_dropped: int = 0

    @property
    def records(self) -> tuple[Record, ...]:
        """The finished records, in the order of the plan."""
        return tuple(r.record for r in self.results if r.record is not None and r.record.status == "done")

    @property
    def failures(self) -> tuple[Result, ...]:
        """The results that failed, had no data, or were not reached."""
        return tuple(r for r in self.results if r.how in ("failed", "impossible", "stopped"))

    @property
    def exit_code(self) -> int:
        """0 if every planned score has a record, else 1."""
        return 1 if self.failures else 0

    def aggregates(self, one: ConfiguredModel, suite: Suite) -> Aggregates:
        """The columns and means of a suite for one model."""
        return Aggregates.of(suite, self.numbers(one, suite))

    def numbers(self, one: ConfiguredModel, suite: Suite) -> dict[str, float]:
        """The numbers that enter a suite's means, by task, and by column where it shows a part of a task."""
        done = self._done(one, suite)
        numbers = {name: self._number(suite, record) for name, record in done.items()}
        known = {name: value for name, value in numbers.items() if value is not None}
        return {**known, **part_scores(suite, done)}

    def trained_result(self, one: ConfiguredModel, suite: Suite) -> TrainedResult | None:
        """The trained result of a model on a suite, with intervals; None if no task of it needs training."""
        part = TrainedResult.part_of(suite)
        if part is None:
            return None
        store, slug = self.prepared.store, one.artifact.slug
        return TrainedResult.of(
            part,
            self._done(one, part),
            self._convention(suite),
            lambda record: store.examples(record, slug),
        )

    def _lines(self, suite: Suite, group: Sequence[ConfiguredModel]) -> list[str]:
        """The lines below a suite's table on one model, or on the seeds of a training."""
        found = [self.aggregates(one, suite) for one in group]
        lineage, scores = self.lineage(group[0]), [self.numbers(one, suite) for one in group]
        untouched = untouched_lines(suite, lineage, scores)
        if len(group) == 1:
            return [*means_lines(suite, found[0]), *untouched, *self._trained_on_lines(suite, group)]
        first, *others = over_seeds_lines(suite, found)
        seeds = ", ".join(str(one.lineage.seed) for one in group if one.lineage is not None)
        return [
            f"{first}; mean ± standard deviation over the seeds {seeds}",
            *others,
            *untouched,
            *self._trained_on_lines(suite, group),
        ]

    def lineage(self, one: ConfiguredModel) -> Lineage | None:
        """What a model is made of, with the outcome of its sweep where that has ended."""
        key = one.artifact.key
        if key not in self._lineages:
            self._lineages[key] = lineage_of(one.artifact) or self._recorded.get(key) or one.lineage
        return self._lineages[key]

    @functools.cached_property
    def _lineages(self) -> dict[str, Lineage | None]:
        return {}

    @functools.cached_property
    def _recorded(self) -> dict[str, Lineage]:
        """The lineages in records, by artifact; a model's folder may be gone."""
        return {r.model.artifact: r.lineage for r in self.records if r.lineage is not None}

    def _trained_on_lines(self, suite: Suite, group: Sequence[ConfiguredModel]) -> list[str]:
        """What a model was trained on: the user's own data, tasks that chose it, and texts of the tasks."""
        records = [record for one in group for record in self._done(one, suite).values()]
        known = {
            r.task.name: f"{r.task.name} ({count:,} of {r.provenance['texts']:,} texts)"
            for r in records
            if (count := r.provenance.get("texts_trained_on"))
        }
        lines = lineages_lines([self.lineage(one) for one in group])
        return [*lines, *([f"trained on texts of {shortened([*known.values()])}"] if known else [])]

    def _done(self, one: ConfiguredModel, suite: Suite) -> dict[str, Record]:
        """The finished records of a suite, by task."""
        keys = self.prepared.plan.keys
        found = {task.name: self.result(one, task).record for task in suite.tasks if (one, task) in keys}
        return {name: record for name, record in found.items() if record and record.status == "done"}

    def _convention(self, suite: Suite) -> Convention | None:
        """The recipe's convention, where the suite has it."""
        recipe = self.prepared.recipe
        return suite.conventions.get(recipe.convention) if recipe is not None else None

    def _number(self, suite: Suite, record: Record) -> float | None:
        """The number of a record in a suite's mean."""
        convention = self._convention(suite) if "recipe" in record.identity else None
        return (
            record.main_score
            if convention is None
            else convention.number(record.task.name, raw_metrics(record))
        )

    def models_of(self, suite: Suite) -> tuple[ConfiguredModel, ...]:
        """The models that are evaluated on a task of a suite."""
        keys = self.prepared.plan.keys
        return tuple(
            one for one in self.prepared.subjects if any((one, task) in keys for task in suite.tasks)
        )

    def groups_of(self, suite: Suite) -> tuple[tuple[ConfiguredModel, ...], ...]:
        """The models that are evaluated on every task of a suite, the seeds of a training together."""
        keys = self.prepared.plan.keys
        return tuple(
            group
            for group in self.prepared.groups
            if any((group[0], task) in keys and task.output != "label" for task in suite.tasks)
        )

    def tasks_of(self, suite: Suite, column: Column, one: ConfiguredModel) -> list[Task]:
        """The tasks of a column that a model is evaluated on, as a whole."""
        names = [task.name for task in column.tasks]
        keys = self.prepared.plan.keys
        return [task for task in suite.tasks if task.name in names and (one, task) in keys]

    def label(self, group: Sequence[ConfiguredModel]) -> str:
        """The name of a model, or of the seeds of a training."""
        if len(group) == 1:
            return self.prepared.label(group[0])
        return f"{group[0].artifact.name} ({len(group)} seeds)"

    def result(self, one: ConfiguredModel, task: Task) -> Result:
        """The result of one model on a task of a suite."""
        return self._by_key[self.prepared.plan.keys[one, task]]

    @functools.cached_property
    def _by_key(self) -> dict[str, Result]:
        return {result.cell.key: result for result in self.results}

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of the records, such as on data that was left out; each once, with its tasks."""
        return notes_of([r.record for r in self.results if r.record])

    def __repr__(self) -> str:
        done = f"{len(self.records)} of {len(self.results)} scores"
        models = ", ".join(self.prepared.label(one) for one in self.prepared.subjects)
        suites = ", ".join(suite.name for suite in self.prepared.suites)
        return f"<Report: {models} on {suites}, {done}>"

    def to_json(self) -> dict[str, Any]:
        """The report for machines; docs/json.md documents every field."""
        return _report_json(self)

    def print(self, console: Console) -> None:
        """Print the table of every suite, the failures with their reasons, and the folder of the records."""
        for suite in join_single_tasks(self.prepared.suites):
            _print_trained_results(suite, self, console)
            if all(task.output == "label" for task in suite.tasks):
                continue
            print_table(_suite_table(suite, self), console)
            for note in suite.notes:
                console.print(note, style="dim", highlight=False, soft_wrap=True)
            groups = self.groups_of(suite)
            for group in groups:
                named = f"{self.label(group)}: " if len(groups) > 1 else ""
                for line in self._lines(suite, group):
                    console.print(named + line, highlight=False, soft_wrap=True)
        for note in self.notes:
            console.print(note, style="dim", highlight=False, soft_wrap=True)
        print_failures(self.failures, self.prepared, console)
        if all(cell.recipe_plan for cell in self.prepared.plan.cells):
            there = sum(result.how == "cached" for result in self.results)
            known = f"{there} of {len(self.results)} scores were there. " if there else ""
            told = f"{known}Records: {self.prepared.store.root / 'records'}"
            console.print(told, highlight=False, soft_wrap=True)
            return
        console.print(
            f"Encoded {self.texts_encoded:,} texts ({self.tokens_encoded:,} tokens). "
            f"Records: {self.prepared.store.root / 'records'}",
            highlight=False,
            soft_wrap=True,
        )
        if self.prepared.request.drop_vectors:
            console.print(f"Removed {human_size(self.vectors_dropped)} of cached vectors.", highlight=False)
