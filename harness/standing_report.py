"""A standing as a table for people and as JSON for machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.report_text import mean_text, score_text

if TYPE_CHECKING:
    from rich.console import Console

    from harness.standing import Row, Standing
    from harness.stats import Interval

KINDS = {
    "fresh": "fresh seeds of ours at the chosen cell",
    "final": "the protocol's final seeds at the chosen cell",
    "protocol": "the protocol's own seeds",
    "maximum": "none but the grid's: its maximum, which errs upward",
}
"""What the seeds behind a score are."""


LOST = (("diverged", "diverged"), ("constant", "predict one and the same for every row"))
"""What runs come to that learn nothing."""


def standing_json(found: Standing) -> dict[str, Any]:
    """The standing as plain values (docs/json.md)."""
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
        },
    }


def _row_json(row: Row) -> dict[str, Any]:
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
        "runs": len(row.training("cells", ())),
        "diverged": row.training("diverged"),
        "constant": row.training("constant"),
    }


def _bounds(found: Interval | None) -> list[float] | None:
    return None if found is None else [found.low, found.high]


def print_standing(found: Standing, title: str, console: Console) -> None:
    """The table of a model, and below it the mean with both of its intervals."""
    from rich.table import Table

    table = Table(title=f"{title}, scores × 100", title_justify="left")
    table.add_column("task")
    for name in ("score", "± 95 %", "sd", "best run"):
        table.add_column(name, justify="right")
    table.add_column("seeds", justify="right")
    table.add_column("raw metrics", overflow="fold", style="dim")
    for row in found.rows:
        if row.asked:
            table.add_row(row.task, *_cells(row))
    console.print(table)
    for line in _lines(found):
        console.print(line, highlight=False, soft_wrap=True)


def _cells(row: Row) -> list[str]:
    scores = row.seeds.get("scores", [])
    return [
        score_text(row.number),
        half_text(row.interval),
        score_text(row.deviation),
        score_text(row.best_run),
        "grid" if row.seeds.get("kind") == "maximum" else str(len(scores) or "–"),
        ", ".join(_raw(row.raw)),
    ]


def _raw(raw: Mapping[tuple[str, str], float]) -> list[str]:
    """Raw metrics by name, with their split where there are several or it is not the only one wanted."""
    plain = {split for split, _ in raw} <= {"validation", "dev", "test"}
    return [
        f"{name if plain else f'{split} {name}'} {score_text(value)}" for (split, name), value in raw.items()
    ]


def half_text(found: Interval | None) -> str:
    """Half of an interval's width, times 100; a dash for none."""
    return "–" if found is None else f"{50 * (found.high - found.low):.2f}"


def _lines(found: Standing) -> list[str]:
    average = found.average
    lines = [mean_text(average) + (f" ± {half_text(found.interval)}" if found.interval else "")]
    if found.interval is not None and found.mean_of_bounds is not None:
        lines.append(
            f"± is half of the 95 % interval over seeds and examples; of the mean it is "
            f"{_between(found.interval)}. The mean of the tasks' bounds, which OptiBERT prints in its place, "
            f"is {_between(found.mean_of_bounds)}."
        )
    if not average.complete:
        lines.append("incomplete: not to be ranked beside complete ones")
    lacking = [row.task for row in found.rows if row.record is not None and row.number is None]
    if lacking and found.convention:
        lines.append(
            f"{', '.join(lacking)}: not all is there that the view {found.convention.name} is made of"
        )
    kinds = dict.fromkeys(row.seeds.get("kind") for row in found.rows if row.record is not None)
    lines += [f"seeds: {KINDS[kind]}" for kind in kinds if kind in KINDS]
    if "fresh" in kinds or "final" in kinds:
        lines.append("best run: of the grid, chosen on the rows that it is scored on; it errs upward")
    if found.convention:
        lines.append(f"view {found.convention.name}: {found.convention.says}")
    return [*lines, *_lost(found)]


def _between(found: Interval) -> str:
    return f"{score_text(found.low)} to {score_text(found.high)}"


def _lost(found: Standing) -> list[str]:
    """Runs that came to nothing, never passed over."""
    told = []
    for row in found.rows:
        cells = len(row.training("cells", ()))
        for name, what in LOST:
            if row.training(name):
                told.append(f"{row.task}: {row.training(name)} of {cells} runs {what}")
        seeds = 0 if row.seeds.get("kind") in ("protocol", "maximum") else len(row.seeds.get("scores", ()))
        for name, what in LOST if seeds else ():
            if row.seeds.get(name):
                told.append(f"{row.task}: {row.seeds[name]} of {seeds} seeds that count {what}")
    return told
