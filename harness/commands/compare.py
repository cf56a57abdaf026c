"""`harness compare`: score deltas of two models, and what differs in how they came about."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from harness.commands import options
from harness.terminal import console

OWN = frozenset({"artifact"})
"""Fields that differ between any two models."""

MEASURED = {
    *("started", "written", "seconds", "tokens_per_second", "texts_encoded", "tokens_encoded"),
    "peak_memory_bytes",
}
"""Fields of the provenance that are measurements rather than conditions."""


@click.command("compare")
@click.argument("first")
@click.argument("second")
@click.option("--measurements", is_flag=True, help="Also list differing times, rates and memory.")
@options.results
@options.as_json
def command(first: str, second: str, measurements: bool, results: Path | None, as_json: bool) -> int:
    """Compare FIRST with SECOND: deltas (second − first) on the tasks both have, and why they may differ."""
    from harness import views

    a, b = views.records_of(first, results), views.records_of(second, results)
    shared = pairs(a, b)
    skip = set() if measurements else MEASURED
    found = {
        "deltas": [_delta(x, y) for x, y in shared],
        "differences": differences([(_conditions(x, skip), _conditions(y, skip)) for x, y in shared]),
        "only_first": sorted({r.task.name for r in a} - {x.task.name for x, _ in shared}),
        "only_second": sorted({r.task.name for r in b} - {y.task.name for _, y in shared}),
    }
    if as_json:
        names = {"first": a[0].model.model_dump(), "second": b[0].model.model_dump()}
        click.echo(json.dumps({"schema": 1, **names, **found}, indent=1))
    else:
        _print(a[0].model.name, b[0].model.name, found)
    return 0


def pairs(first: Sequence[Any], second: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Which record is held against which: same task, splits and subsets, and same settings.

    A task that the two models have under no common settings is held against each other under
    every pair of settings; what differs is then said.
    """
    found = []
    for name in dict.fromkeys(r.task.name for r in first):
        every = [(x, y) for x in first for y in second if x.task.name == name and _comparable(x, y)]
        alike = [(x, y) for x, y in every if _settings(x) == _settings(y)]
        found += alike or every
    return found


def differences(pairs: list[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Fields whose values differ in at least one pair, with the values and in how many pairs."""
    found: dict[tuple[str, str, str], int] = {}
    for a, b in pairs:
        for field in sorted({*a, *b}):
            x, y = a.get(field), b.get(field)
            if x != y:
                key = (field, json.dumps(x), json.dumps(y))
                found[key] = found.get(key, 0) + 1
    return [
        {"field": field, "first": json.loads(x), "second": json.loads(y), "tasks": count}
        for (field, x, y), count in found.items()
    ]


def flatten(value: Any, name: str = "") -> dict[str, Any]:
    """A nested mapping as dotted fields.

    >>> flatten({"a": {"b": 1}, "c": [2]})
    {'a.b': 1, 'c': [2]}
    """
    if not isinstance(value, Mapping):
        return {name: value}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat.update(flatten(inner, f"{name}.{key}" if name else str(key)))
    return flat


def _comparable(x: Any, y: Any) -> bool:
    same = ("splits", "subsets")
    return x.task.name == y.task.name and all(x.identity[name] == y.identity[name] for name in same)


def _settings(record: Any) -> tuple[Any, ...]:
    return tuple(record.identity[name] for name in ("encoding", "prompts", "seed", "scoring", "data"))


def _delta(x: Any, y: Any) -> dict[str, Any]:
    from harness.views import record_text

    row = {"task": x.task.name, "metric": x.task.metric, "first": x.main_score, "second": y.main_score}
    how = {"first_settings": record_text(x), "second_settings": record_text(y)}
    return {**row, "delta": y.main_score - x.main_score, **how}


def _conditions(record: Any, skip: Collection[str]) -> dict[str, Any]:
    identity = {k: v for k, v in record.identity.items() if k not in OWN | {"task"}}
    provenance = {k: v for k, v in record.provenance.items() if k not in skip}
    return flatten({"identity": identity, "provenance": provenance})


def _print(first: str, second: str, found: dict[str, Any]) -> None:
    out = console()
    if not found["deltas"]:
        out.print("There is no task that both were measured on, with the same splits and subsets.")
    else:
        table = Table(title=f"{second} − {first}, scores × 100", title_justify="left")
        table.add_column("task")
        table.add_column("metric")
        for name in (first, second, "delta"):
            table.add_column(name, justify="right")
        several = len({_row_settings(row) for row in found["deltas"]}) > 1
        if several:
            table.add_column("settings", style="dim")
        for row in found["deltas"]:
            numbers = [
                f"{100 * row['first']:.2f}",
                f"{100 * row['second']:.2f}",
                f"{100 * row['delta']:+.2f}",
            ]
            table.add_row(row["task"], row["metric"], *numbers, *([_row_settings(row)] if several else []))
        out.print(table)
        _print_differences(out, found["differences"], len(found["deltas"]))
    for side, name in (("only_first", first), ("only_second", second)):
        if found[side]:
            out.print(f"Only {name} has: {', '.join(found[side])}", highlight=False, soft_wrap=True)


def _row_settings(row: Mapping[str, Any]) -> str:
    first, second = row["first_settings"], row["second_settings"]
    return str(first) if first == second else f"{first} | {second}"


def _print_differences(out: Console, rows: list[dict[str, Any]], tasks: int) -> None:
    if not rows:
        out.print("Nothing else differs: same data, settings, scoring and conditions.")
        return
    table = Table(title="what else differs", title_justify="left")
    for name in ("field", "first", "second", "tasks"):
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(row["field"], str(row["first"]), str(row["second"]), f"{row['tasks']} of {tasks}")
    out.print(table)
