"""The numbers of a suite in words, tables and JSON: means, what chose a model, and predictions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from harness.core.keys import Lineage, SweepPart, list_swept_settings
from harness.core.terminal import shorten_names
from harness.core.types import Predicted, Suite
from harness.results.scores import (
    Aggregates,
    Mean,
    Spread,
    Untouched,
    compute_seed_spread,
    format_spread,
    is_selection_column,
    score_text,
)
from harness.search.plaid import Recall, describe_index
from harness.storage.record import APPROXIMATE, Record


def serialize_seed_means(seed_aggregates: Sequence[Aggregates]) -> dict[str, Any]:
    """The columns and means of a suite over the seeds of a training, as plain values."""
    return {
        "columns": {
            name: compute_seed_spread([one.columns[name] for one in seed_aggregates])
            for name in seed_aggregates[0].columns
        },
        "mean_over_tasks": compute_seed_spread([one.over_tasks.whole for one in seed_aggregates]),
        "mean_over_types": compute_seed_spread([one.over_types.whole for one in seed_aggregates]),
    }


def format_seed_means(suite: Suite, seed_aggregates: Sequence[Aggregates]) -> list[str]:
    """The lines with both means of a suite over the seeds of a training, and what they lack."""
    lines = []
    for name in ("over_tasks", "over_types"):
        means = [getattr(one, name) for one in seed_aggregates]
        least = min(mean.there for mean in means)
        spread = format_spread([mean.whole for mean in means])
        lines.append(f"mean over {means[0].over} {spread} ({least} of {means[0].wanted})")
    return [", ".join(lines), *format_mean_lines(suite, seed_aggregates[0])[1:]]


def serialize_aggregates(suite: Suite, aggregates: Aggregates) -> dict[str, Any]:
    """A suite's columns and means as plain values."""
    # The small columns, and the mean over such columns alone, each with its examples and its interval.
    small = {
        "columns": {name: _serialize_spread(spread) for name, spread in aggregates.spreads.items()},
        "mean": None if aggregates.spread is None else _serialize_spread(aggregates.spread),
    }
    return {
        "columns": dict(aggregates.columns),
        "mean_over_tasks": _mean_json(aggregates.over_tasks),
        "mean_over_types": _mean_json(aggregates.over_types),
        **({"small": small} if aggregates.spreads else {}),
        **(
            {"mean_over_requested": _mean_json(_compute_requested_mean(suite, aggregates))}
            if suite.requested
            else {}
        ),
        "by_type": {name: _mean_json(mean) for name, mean in aggregates.by_type.items()},
        "shown_only": dict(aggregates.shown_only),
        "left_out": list(suite.left_out),
        "notes": list(suite.notes),
        **({"predicted": _serialize_prediction(suite, aggregates)} if suite.predictor else {}),
    }


def _serialize_spread(spread: Spread) -> dict[str, Any]:
    return {"examples": spread.examples, "half_width": spread.half}


def format_mean_lines(suite: Suite, means: Aggregates) -> list[str]:
    """The lines with both means of a suite, what they lack, and the prediction of a proxy.

    Tasks that were asked for by name have a mean of their own, which is not the suite's.
    """
    over = _compute_requested_mean(suite, means) if suite.requested else means.over_tasks
    lines = [mean_text(over) if suite.requested else f"{mean_text(over)}, {mean_text(means.over_types)}"]
    if not over.wanted:
        lines = ["no mean: every task is shown by itself"]
    lines += format_few_examples(means.spread if over.complete else None)
    apart = {name: reason for name, reason in means.shown_only.items() if name not in suite.left_out}
    lines += format_display_only(apart)
    if over.wanted and not over.complete:
        names = suite.requested or tuple(means.columns)
        explained = {*means.shown_only, *suite.left_out}
        missing = [n for n in names if means.columns[n] is None and n not in explained]
        without = f"; no score of {shorten_names(missing)}" if missing else ""
        lines.append(f"incomplete: not to be ranked beside complete ones{without}")
    elif over.wanted and suite.requested and len(suite.requested) < len(suite.columns):
        lines.append(f"not the mean of {suite.title}: not to be ranked beside it")
    return [*lines, *format_empty_columns(suite), *_format_prediction_lines(suite, means)]


def format_lineage_lines(lineage: Lineage | None) -> list[str]:
    """The lines on users' own data, and on tasks that chose a model, its checkpoint or its parents."""
    if lineage is None:
        return []
    own_data, sweep = lineage.own_data, lineage.sweep
    # The sweep has lines of its own below.
    others = lineage.model_copy(update={"sweep": None}).choices
    return [
        *([f"trained on {own_data}, {lineage.beside_own_data}"] if own_data else []),
        *(f"made of {parent.text}" for parent in lineage.parents if parent.own_data),
        *(
            f"{what} chosen by {shorten_names(tasks)}: scores there are biased"
            for what, tasks in others.items()
        ),
        *([] if sweep is None else _sweep_lines(sweep)),
    ]


def serialize_selection(lineage: Lineage | None) -> dict[str, Any]:
    """The tasks whose scores chose a model or one of its parents, and its sweep, as plain values."""
    sweep = lineage.sweep if lineage is not None else None
    return {
        "selected": list(lineage.all_selected_on) if lineage is not None else [],
        "sweep": None if sweep is None else sweep.model_dump(mode="json"),
    }


CHOSE = "chose"
"""The mark of a score that chose the model, in tables."""


def is_selection_score(
    record: Record, lineage: Lineage | None, splits: Sequence[str] = (), subsets: Sequence[str] = ()
) -> bool:
    """Whether the score of a record chose the model.

    Args:
        record: The record.
        lineage: What the model is made of; None for a model that was not trained here.
        splits: The splits that count; those of the record by default.
        subsets: The subsets that count; those of the record by default.
    """
    about = record.identity
    scored = (splits or about.get("splits", ()), subsets or about.get("subsets", ()))
    return lineage is not None and bool(lineage.chosen_by(record.task.name, *scored))


def is_approximate(record: Record | None) -> bool:
    """Whether a score is from an approximate search."""
    return record is not None and bool(record.provenance.get("index"))


def format_recall_lines(records: Iterable[Record]) -> list[str]:
    """A line on each score from an approximate search: what the index finds of the exact best documents."""
    task_recalls = [
        (r.task.name, _format_lowest_recall(r.provenance["index"])) for r in records if is_approximate(r)
    ]
    return [f"{APPROXIMATE}: {task}: {text}" for task, text in dict.fromkeys(task_recalls)]


def _format_lowest_recall(index: Mapping[str, Any]) -> str:
    """The recall of a task's searches; of several the lowest."""
    recalls = sorted((Recall(**search["recall"]) for search in index["searches"]), key=lambda one: one.value)
    more = f"; the lowest of {len(recalls)} searches" if len(recalls) > 1 else ""
    return f"{describe_index(index['settings'])}, {recalls[0].text}{more}"


def serialize_choice_columns(suite: Suite, lineage: Lineage | None) -> dict[str, Any]:
    """The columns of a suite that chose a model, as plain values."""
    return {"selected": [column.name for column in suite.columns if is_selection_column(column, lineage)]}


def format_seed_lineages(lineages: Sequence[Lineage | None]) -> list[str]:
    """The lines of `format_lineage_lines` over the seeds of a training; each seed has its own sweep."""
    named = [
        f"seed {made.seed}: {line}" if len(lineages) > 1 and made is not None and made.sweep else line
        for made in lineages
        for line in format_lineage_lines(made)
    ]
    return list(dict.fromkeys(named))


def _sweep_lines(sweep: SweepPart) -> list[str]:
    """The lines on a sweep: what chose, and the mean score of each value; of several settings all scores."""
    about = f"{sweep.setting} chosen among {sweep.count_text} by {shorten_names([*sweep.tasks])}"
    if len(sweep.names) > 1:
        return [f"{about}: scores there are biased", *_member_lines(sweep)]
    curve = [
        f"{one.value}: {'diverged' if one.mean is None else score_text(one.mean)}"
        f"{' (chosen)' if one.value == sweep.chosen else ''}"
        for one in sweep.curve
    ]
    over = f"mean over {len(sweep.tasks)} tasks" if len(sweep.tasks) > 1 else next(iter(sweep.tasks))
    curve_lines = [f"{over} by {sweep.setting}: {', '.join(curve)}"] if curve else []
    return [f"{about}: scores there are biased", *curve_lines]


def _member_lines(sweep: SweepPart) -> list[str]:
    """The members of a sweep as the lines of a table: settings, scores on each task, their mean."""
    rows = [[*sweep.names, *sweep.tasks, "mean", ""]] if sweep.curve else []
    for member in sweep.curve:
        scores = [score_text(member.scores.get(task)) for task in sweep.tasks]
        mark = "chosen" if member.value == sweep.chosen else "diverged" if member.mean is None else ""
        values = map(str, list_swept_settings(sweep.setting, member.value).values())
        rows.append([*values, *scores, score_text(member.mean), mark])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.rjust, row[:-1], widths)) + f"  {row[-1]}".rstrip() for row in rows]


def format_held_out_mean(
    suite: Suite, lineage: Lineage | None, scores: Sequence[Mapping[str, float]]
) -> list[str]:
    """The line on the mean over the tasks of a suite that did not choose the model.

    Args:
        suite: The suite.
        lineage: That of the model.
        scores: By task, of each seed of the model.
    """
    held_out, means = _compute_held_out_means(suite, lineage, scores)
    if held_out is None:
        return []
    least = min(mean.there for mean in means)
    value = format_spread([mean.value if mean.complete or len(means) == 1 else None for mean in means])
    count = f" ({least} of {means[0].wanted})" if held_out.count else ""
    return [f"mean {held_out.text} {value}{count}; without {shorten_names(held_out.selected)}"]


def _compute_held_out_means(
    suite: Suite, lineage: Lineage | None, scores: Sequence[Mapping[str, float]]
) -> tuple[Untouched | None, list[Mean]]:
    held_out = Untouched.from_suite(suite, [lineage])
    if held_out is None:
        return None, []
    every = [Aggregates.aggregate_scores(held_out.suite, one) for one in scores]
    if held_out.suite.requested:
        return held_out, [_compute_requested_mean(held_out.suite, one) for one in every]
    return held_out, [one.over_tasks for one in every]


def serialize_held_out_mean(
    suite: Suite, lineage: Lineage | None, scores: Sequence[Mapping[str, float]]
) -> dict[str, Any]:
    """The mean of `format_held_out_mean` as plain values; empty where no task chose the model."""
    held_out, means = _compute_held_out_means(suite, lineage, scores)
    if held_out is None:
        return {}
    mean = _mean_json(means[0]) if len(means) == 1 else compute_seed_spread([mean.whole for mean in means])
    return {"mean_over_untouched": {**mean, "without": list(held_out.selected)}}


def format_empty_columns(suite: Suite) -> list[str]:
    """The line on the columns of a suite that narrowing has left nothing of."""
    names = [name for name in suite.left_out if not suite.requested or name in suite.requested]
    if not names:
        return []
    s = "" if len(names) == 1 else "s"
    return [f"nothing of what was asked for in {len(names)} column{s}: {shorten_names(names)}"]


def format_display_only(apart: Mapping[str, str]) -> list[str]:
    """A line on the tasks that are shown and not averaged."""
    if not apart:
        return []
    named = "; ".join(f"{name}, {reason}" for name, reason in apart.items())
    small = any("fewer than" in reason for reason in apart.values())
    return [f"shown and not averaged: {named}{MEANS if small else ''}"]


def format_few_examples(spread: Spread | None) -> list[str]:
    """A line on the examples of a mean where they are few."""
    return [f"{spread.text}: too few for a mean with larger tasks{MEANS}"] if spread else []


MEANS = " (docs/local-data.md: Means)"
"""The page on means over few examples."""


def _compute_requested_mean(suite: Suite, means: Aggregates) -> Mean:
    """The mean over the columns of a suite that were asked for by name."""
    count = len(suite.requested)
    over = f"the {count} tasks asked for" if count > 1 else "the task asked for"
    return Mean.compute_mean(
        over, [means.columns[name] for name in suite.requested if name not in means.shown_only]
    )


def _mean_json(mean: Mean) -> dict[str, Any]:
    return {"value": mean.value, "there": mean.there, "wanted": mean.wanted}


def mean_text(mean: Mean) -> str:
    """A mean and the number of its scores, e.g. "mean over tasks 56.09 (41 of 41)", or "(2 of 41 scored)"."""
    scored = " scored" if mean.there < mean.wanted else ""
    return f"mean over {mean.over} {score_text(mean.value)} ({mean.there} of {mean.wanted}{scored})"


def _format_prediction_lines(suite: Suite, aggregates: Aggregates) -> list[str]:
    """The prediction with its interval, or why there is none; empty without a proxy."""
    if suite.predictor is None:
        return []
    predicted = suite.predictor.predict(_collect_proxy_scores(aggregates))
    if predicted is None:
        missing = [name for name in suite.predictor.tasks if name not in _collect_proxy_scores(aggregates)]
        return [f"{suite.predictor.target} is not predicted: no score of {shorten_names(missing)}"]
    warning = "outside of what the proxy was fitted on, so that its interval may not hold"
    outside = [f"{warning}: {shorten_names(predicted.outside)}"] if predicted.outside else []
    return [_format_prediction(predicted), *outside]


def _format_prediction(predicted: Predicted) -> str:
    """A prediction as a line, its scores times 100.

    >>> from harness.core.types import Predicted
    >>> interval = {"low": 0.506, "high": 0.518, "level": 0.95}
    >>> _format_prediction(Predicted(target="MTEB", value=0.512, families=9, **interval))
    'predicted MTEB: 51.2 ± 0.6 (95 %, cross-validated over 9 families)'
    """
    half = (predicted.high - predicted.low) / 2
    return (
        f"predicted {predicted.target}: {100 * predicted.value:.1f} ± {100 * half:.1f} "
        f"({100 * predicted.level:g} %, cross-validated over {predicted.families} families)"
    )


def _serialize_prediction(suite: Suite, aggregates: Aggregates) -> dict[str, Any] | None:
    """The prediction as plain values; None where a score is missing."""
    predicted = suite.predictor.predict(_collect_proxy_scores(aggregates)) if suite.predictor else None
    return None if predicted is None else {**asdict(predicted), "outside": list(predicted.outside)}


def _collect_proxy_scores(aggregates: Aggregates) -> dict[str, float]:
    """The scores of a proxy's columns, each of which is one task."""
    return {name: value for name, value in aggregates.columns.items() if value is not None}
