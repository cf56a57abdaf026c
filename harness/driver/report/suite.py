"""The numbers of a suite in words, tables and JSON: means, what chose a model, and predictions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from harness.core.errors import shortened
from harness.core.lineage import Lineage, SweepPart
from harness.core.types import Predicted, Suite
from harness.results.results import APPROXIMATE
from harness.results.scores import (
    Aggregates,
    Mean,
    Untouched,
    column_chose,
    score_text,
    spread_json,
    spread_text,
)
from harness.search.plaid import Recall, index_text
from harness.storage.record import Record


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
    lines += shown_only_lines(apart)
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
        *([f"trained on {own}, {lineage.beside_own_data}"] if own else []),
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


def is_approximate(record: Record | None) -> bool:
    """Whether a score is from an approximate search."""
    return record is not None and bool(record.provenance.get("index"))


def approximate_lines(records: Iterable[Record]) -> list[str]:
    """A line on each score from an approximate search: what the index finds of the exact best documents."""
    told = [(r.task.name, _recall_text(r.provenance["index"])) for r in records if is_approximate(r)]
    return [f"{APPROXIMATE}: {task}: {text}" for task, text in dict.fromkeys(told)]


def _recall_text(index: Mapping[str, Any]) -> str:
    """The recall of a task's searches; of several the lowest."""
    found = sorted((Recall(**search["recall"]) for search in index["searches"]), key=lambda one: one.value)
    more = f"; the lowest of {len(found)} searches" if len(found) > 1 else ""
    return f"{index_text(index['settings'])}, {found[0].text}{more}"


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
        f"{one.value}: {'diverged' if one.mean is None else score_text(one.mean)}"
        f"{' (chosen)' if one.value == sweep.chosen else ''}"
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
    s = "s" * (len(names) != 1)
    return [f"nothing of what was asked for in {len(names)} column{s}: {shortened(names)}"] if names else []


def shown_only_lines(apart: Mapping[str, str]) -> list[str]:
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


def _mean_json(mean: Mean) -> dict[str, Any]:
    return {"value": mean.value, "there": mean.there, "wanted": mean.wanted}


def mean_text(mean: Mean) -> str:
    """A mean and the number of its scores, e.g. "mean over tasks 56.09 (41 of 41)"."""
    return f"mean over {mean.over} {score_text(mean.value)} ({mean.there} of {mean.wanted})"


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

    >>> from harness.core.types import Predicted
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
