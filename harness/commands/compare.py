"""`harness compare`: score deltas of two models, and the differences in how they were measured."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from harness.commands import options
from harness.core.terminal import create_console, create_table, print_lines, print_table, shorten_names
from harness.core.types import OWN_UNITS
from harness.driver.progress import find_most_common
from harness.driver.report.suite import CHOSE, format_lineage_lines
from harness.results.scores import format_delta, score_text
from harness.tools.comparison import compare_chain, compare_models

REASONS = {
    "task": "Only {own} has",
    "splits": "Only {own} has a score of just these splits and subsets",
    "number": "Not compared, as {other} has another number of it (view, or a grid's maximum)",
    "data": "Not compared, as {other} was measured on other data (--across-data does)",
    "settings": "Not compared, as {other} has no score of it under these settings of {own}",
    "weights": "Not compared, as {own} was trained again since, and has other weights now",
}
"""Why a record of one model has no counterpart, in words."""


@click.command("compare")
@click.argument("first")
@click.argument("second")
@click.argument("further", nargs=-1)
@options.select_tasks("Only these tasks, e.g. RTE,MRPC.")
@click.option(
    "--settings",
    default="",
    help="The settings whose scores are compared, where a model has several: a part of their text in "
    "`harness show`, e.g. '128 tokens'.",
)
@click.option("--across-data", is_flag=True, help="Also compare scores on different data.")
@click.option("--measurements", is_flag=True, help="Also list differing times, rates and memory.")
@options.results
@options.cache
@options.as_json
def command(
    first: str,
    second: str,
    further: tuple[str, ...],
    tasks: list[str],
    settings: str,
    across_data: bool,
    measurements: bool,
    results: Path | None,
    cache: Path | None,
    as_json: bool,
) -> int:
    """Compare FIRST with SECOND: deltas (second − first) on the tasks both have, and why they may differ.

    Scores on the same data and under the same settings are compared with each other. If each model then has
    exactly one other score on this data, these two are compared as well. BM25 shares no settings with a
    model of vectors, so it is compared with each score of that model. Tasks are tested over their examples.
    Each split of a task has a row.

    FURTHER models make an ablation chain: each mean is compared with the one before it, and with the first.
    """
    options: dict[str, Any] = {"tasks": tasks, "settings": settings, "across_data": across_data}
    options |= {"measurements": measurements, "results": results, "cache": cache}
    if further:
        steps = compare_chain((first, second, *further), **options)
        if as_json:
            click.echo(json.dumps({"schema": 1, "first": first, "steps": steps}, indent=1))
        else:
            _print_chain(first, steps)
        return 0
    comparison = compare_models(first, second, **options)
    if as_json:
        click.echo(json.dumps(comparison.to_json(), indent=1))
    else:
        _print_comparison(*comparison.names, comparison.to_json(), comparison.pairs)
        for name, side in zip(comparison.names, comparison.sides, strict=True):
            print_lines(f"{name}: {line}" for line in format_lineage_lines(side.lineage))
    return 0


def _print_chain(first: str, steps: Sequence[Mapping[str, Any]]) -> None:
    title = f"mean over {steps[0]['tasks']} tasks that all have, scores × 100"
    heads = ("mean", "− the one before", "95 %", f"− {first}", "95 % ")
    table = create_table("model", numbers=heads, notes=("what differs from the one before",), title=title)
    start = steps[0]["mean"] - steps[0]["first"]["delta"]
    table.add_row(first, score_text(start), *[""] * 5)
    for step in steps:
        gaps = [step["before"], step["first"]]
        cells = [text for gap in gaps for text in (format_delta(gap["delta"]), _test_texts(gap["test"])[0])]
        table.add_row(step["model"], score_text(step["mean"]), *cells, shorten_names(step["differs"]))
    print_table(table, create_console())
    if any(step[gap]["test"] is None for step in steps for gap in ("before", "first")):
        print_lines(["Without an interval: a task has no test, as `harness compare` of the two says."])
    if chose := dict.fromkeys(task for step in steps for task in step["selected"]):
        print_lines([f"Scores that {CHOSE} a model err upward: {shorten_names([*chose])}."])


def _print_comparison(first: str, second: str, comparison: dict[str, Any], pairs: int) -> None:
    out = create_console()
    if not comparison["deltas"]:
        out.print("The models have no score in common on the same data and splits.")
    else:
        _print_deltas(out, first, second, comparison["deltas"])
        for reason in dict.fromkeys(row["untested"] for row in comparison["deltas"] if row["untested"]):
            rows = [row["task"] for row in comparison["deltas"] if row["untested"] == reason]
            print_lines([f"No test of {', '.join(dict.fromkeys(rows))}: {reason}."], out)
        _print_differences(out, comparison["differences"], pairs)
    sides = (("first", {"own": first, "other": second}), ("second", {"own": second, "other": first}))
    for (reason, text), (of, names) in itertools.product(REASONS.items(), sides):
        tasks = [
            f"{one['task']} ({', '.join(one['splits'])})" if reason == "splits" else one["task"]
            for one in comparison["not_compared"]
            if (one["of"], one["reason"]) == (of, reason)
        ]
        if tasks:
            print_lines([f"{text.format(**names)}: {', '.join(dict.fromkeys(tasks))}"], out)


def _print_deltas(out: Console, first: str, second: str, rows: Sequence[Mapping[str, Any]]) -> None:
    common = find_most_common([_format_row_settings(row) for row in rows])
    others = any(_format_row_settings(row) != common for row in rows)
    table = create_table(
        "task",
        "metric",
        numbers=(first, second, "delta", "95 %", "p"),
        notes=("other settings", "") if others else ("",),
        title=f"{second} − {first}, scores × 100\n{common}",
    )
    for row in rows:
        measured = row["metric"] in OWN_UNITS
        scores = [score_text(row[name], measured=measured) for name in ("first", "second")]
        scores.append(format_delta(row["delta"] and row["delta"] / (100 if measured else 1)))
        tested, settings = _test_texts(row["test"]), _format_row_settings(row)
        names = {"first": first, "second": second}
        table.add_row(
            _format_row_name(row),
            row["metric"],
            *scores,
            *tested,
            *(["" if settings == common else settings] if others else []),
            ", ".join(
                f"{mark} {names[of]}"
                for mark, sides in ((CHOSE, row["selected"]), ("reference", row["reference"]))
                for of in sides
            ),
        )
    print_table(table, out)


def _format_row_name(row: Mapping[str, Any]) -> str:
    """The task, with the split and the subset of a row that is a part of it."""
    part = ", ".join(name for name in (row["split"], row["subset"]) if name not in (None, "default"))
    return f"{row['task']} ({part})" if part else str(row["task"])


def _test_texts(test: Mapping[str, Any] | None) -> tuple[str, str]:
    """The interval and the p-value of a paired test; empty texts without one."""
    if test is None:
        return "", ""
    p = "< 0.001" if test["p"] < 0.001 else f"{test['p']:.3f}"
    return f"{format_delta(test['low'])} … {format_delta(test['high'])}", p


def _format_row_settings(row: Mapping[str, Any]) -> str:
    first, second = row["first_settings"], row["second_settings"]
    return str(first) if first == second else f"{first} | {second}"


def _print_differences(out: Console, rows: list[dict[str, Any]], tasks: int) -> None:
    if not rows:
        out.print("Nothing else differs: same data, settings, scoring and conditions.")
        return
    table = create_table("field", "first", "second", "tasks", title="what else differs")
    for row in rows:
        values = (_cut_hashes(row["first"]), _cut_hashes(row["second"]))
        table.add_row(row["field"], *values, f"{row['tasks']} of {tasks}")
    print_table(table, out)


def _cut_hashes(value: Any) -> str:
    """A value for a table, with hashes cut."""
    # From 16 digits on, so that numbers and short words made of these letters stay as they are.
    return re.sub(r"\b[0-9a-f]{16,}\b", lambda found: found[0][:12], str(value))
