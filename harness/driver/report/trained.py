"""The results of tasks that a recipe trains for, in tables, words and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console

from harness.core.terminal import create_table, print_lines, print_table
from harness.driver.report.suite import (
    CHOSE,
    format_display_only,
    format_few_examples,
    is_selection_score,
    mean_text,
)
from harness.results.scores import TaskResult, TrainedResult, score_text

if TYPE_CHECKING:
    from harness.results.bootstrap import Interval

KINDS = {
    "fresh": "fresh seeds of ours at the chosen cell",
    "final": "the protocol's final seeds at the chosen cell",
    "protocol": "the protocol's own seeds",
    "maximum": "none but the grid's: its maximum, which errs upward",
}
"""Descriptions of the kinds of seeds behind a score."""


LOST = (("diverged", "diverged"), ("constant", "predict one and the same for every row"))
"""The kinds of runs that learn nothing, with their text."""


def serialize_trained_result(result: TrainedResult) -> dict[str, Any]:
    """The trained result as plain values (docs/json.md)."""
    return {
        "view": result.convention.name if result.convention else None,
        "convention": result.convention.says if result.convention else None,
        "tasks": [_serialize_task_result(row) for row in result.rows],
        "average": {
            "value": result.average.value,
            "there": result.average.there,
            "wanted": result.average.wanted,
            "interval": _serialize_interval(result.interval),
            "mean_of_bounds": _serialize_interval(result.mean_of_bounds),
            "last": result.last.whole if result.last else None,
            "cross_fitted": result.cross_fitted.whole if result.cross_fitted else None,
        },
        "shown_only": dict(result.shown_only),
    }


def _serialize_task_result(row: TaskResult) -> dict[str, Any]:
    return {
        "task": row.task,
        "key": row.record.key if row.record else None,
        "score": row.number,
        "interval": _serialize_interval(row.interval),
        "interval_one_seed": _serialize_interval(row.one_seed),
        "metrics": [[*name, value] for name, value in row.raw.items()],
        "seeds": row.seeds.get("kind"),
        "scores": list(row.scores),
        "standard_deviation": row.deviation,
        "best_run": row.best_run,
        "counts": row.get_training_field("evaluation", {}).get("counts"),
        "last": row.last,
        "cross_fitted": row.cross_fitted,
        "with_diverged": row.with_diverged,
        "runs": len(row.get_training_field("cells", ())),
        "diverged": row.get_training_field("diverged"),
        "constant": row.get_training_field("constant"),
    }


def _serialize_interval(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]


def print_trained_result(result: TrainedResult, title: str, console: Console) -> None:
    """Print the table of a model's trained tasks, and the mean with both of its intervals."""
    others = ("last", "cross-fitted") if any(row.best_counts for row in result.rows) else ()
    numbers = ("score", *others, "± 95 %", "sd", "best run", "seeds")
    notes = ("raw metrics", "")
    table = create_table("task", numbers=numbers, notes=notes, title=f"{title}, scores × 100")
    for row in result.rows:
        if row.asked:
            table.add_row(row.task, *_format_result_cells(row, others=bool(others)))
    print_table(table, console)
    print_lines(_format_result_lines(result), console)


def _format_result_cells(row: TaskResult, *, others: bool) -> list[str]:
    scores = row.seeds.get("scores", [])
    return [
        score_text(row.number),
        *([score_text(row.last), score_text(row.cross_fitted)] if others else []),
        _format_half_width(row.interval),
        score_text(row.deviation),
        score_text(row.best_run),
        "grid" if row.seeds.get("kind") == "maximum" else str(len(scores) or "–"),
        ", ".join(_format_raw_metrics(row.raw)),
        CHOSE if row.record is not None and is_selection_score(row.record, row.record.lineage) else "",
    ]


def _format_raw_metrics(raw: Mapping[tuple[str, str], float]) -> list[str]:
    """Raw metrics by name, with the split unless every split is a plain validation or test split."""
    plain = {split for split, _ in raw} <= {"validation", "dev", "test"}
    return [
        f"{name if plain else f'{split} {name}'} {score_text(value)}" for (split, name), value in raw.items()
    ]


def _format_half_width(interval: Interval | None) -> str:
    """Half of an interval's width, times 100; a dash for None."""
    return "–" if interval is None else f"{50 * (interval.high - interval.low):.2f}"


def _format_result_lines(result: TrainedResult) -> list[str]:
    average = result.average
    lines = [mean_text(average) + (f" ± {_format_half_width(result.interval)}" if result.interval else "")]
    if not average.wanted:
        lines = ["no mean: every task is shown by itself"]
    lines += format_few_examples(result.spread if average.complete else None)
    lines += format_display_only(result.shown_only)
    if result.interval is not None and result.mean_of_bounds is not None:
        lines.append(
            "± is half of the width of the 95 % interval over seeds and examples; that of the mean is "
            f"{_format_interval_bounds(result.interval)}. The mean of the tasks' bounds, which OptiBERT "
            f"prints in its place, is {_format_interval_bounds(result.mean_of_bounds)}."
        )
    if average.wanted and not average.complete:
        lines.append("incomplete: not to be ranked beside complete ones")
    lacking = [row.task for row in result.rows if row.record is not None and row.number is None]
    if lacking and result.convention:
        lines.append(
            f"{', '.join(lacking)}: not all is there that the view {result.convention.name} is made of"
        )
    kinds = dict.fromkeys(row.seeds.get("kind") for row in result.rows if row.record is not None)
    lines += [f"seeds: {KINDS[kind]}" for kind in kinds if kind in KINDS]
    lines += _format_evaluation_lines(result)
    if "fresh" in kinds or "final" in kinds:
        lines.append("best run: of the grid, chosen on the rows that it is scored on; it errs upward")
    if result.convention:
        lines.append(f"view {result.convention.name}: {result.convention.says}")
    return [*lines, *_list_lost_runs(result)]


def _format_evaluation_lines(result: TrainedResult) -> list[str]:
    """Lines on scores of best evaluations, which were chosen on the rows that they are measured on."""
    if result.last is None or result.cross_fitted is None:
        return []
    rows = [row for row in result.rows if row.best_counts]
    counts = [count for row in rows for count in row.get_training_field("evaluation")["evaluations"]]
    most = f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else str(max(counts))
    return [
        f"score: the best of {most} evaluations of each run, as the recipe has it; it errs upward, which ± "
        "does not see",
        "last: the last evaluation of the same runs; cross-fitted: the evaluation is chosen on one half of "
        "the set and scored on the other",
        f"last: {mean_text(result.last)}; cross-fitted: {mean_text(result.cross_fitted)}",
    ]


def _format_interval_bounds(interval: Interval) -> str:
    return f"{score_text(interval.low)} to {score_text(interval.high)}"


def _list_lost_runs(result: TrainedResult) -> list[str]:
    """Lines on runs and seeds that learned nothing."""
    lines = []
    for row in result.rows:
        cells = len(row.get_training_field("cells", ()))
        for name, what in LOST:
            if row.get_training_field(name):
                lines.append(f"{row.task}: {row.get_training_field(name)} of {cells} runs {what}")
        if row.with_diverged is not None:
            lines.append(
                f"{row.task}: {score_text(row.number)} without the diverged seeds, "
                f"{score_text(row.with_diverged)} with them as constant predictions"
            )
        # These two kinds have no runs beside the grid, whose lost runs are told above.
        seeds = 0 if row.seeds.get("kind") in ("protocol", "maximum") else len(row.seeds.get("scores", ()))
        for name, what in LOST if seeds else ():
            if row.seeds.get(name):
                lines.append(f"{row.task}: {row.seeds[name]} of {seeds} seeds that count {what}")
    return lines
