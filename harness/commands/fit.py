"""`harness fit`: laws through many runs, with intervals, and the plan of a budget."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from harness.commands import options
from harness.core import files
from harness.core.errors import UsageError
from harness.core.terminal import create_console, print_table
from harness.fits.estimate import Fit, FitSettings
from harness.fits.fitting import fit_law, group_budgets
from harness.fits.runs import LAWS, SIZES, LawName, Runs, Size, read_runs
from harness.fits.stored import COLUMNS, FITS, Quantity, StoredFit
from harness.plan import catalog

SCHEMA = 1
"""The version of the --json output (docs/json.md)."""

NOT_IDENTIFIED = 3

NEEDED = {"finetune": ("trainable",), "correlation": ("score",)}
"""Columns that a law needs beside size, tokens and loss."""


@click.command("fit")
@click.argument("table", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--law", required=True, type=click.Choice(LAWS), help="The law that is fitted (docs/fits.md).")
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME=COLUMN",
    help="Name of a column in the table, e.g. size=params. Columns are size, tokens, flops, loss, method, "
    "seed, trainable, rank, learning_rate, batch and score. Repeat for several.",
)
@click.option(
    "--size-is",
    type=click.Choice([*SIZES]),
    default="parameters",
    help="What a size counts: parameters without embeddings, all parameters, or operations per token.",
)
@click.option(
    "--budget",
    type=click.FloatRange(0, min_open=True),
    help="Operations whose best size and tokens are printed.",
)
@click.option("--extrapolate", is_flag=True, help="Let budgets, optima and crossings lie outside the runs.")
@click.option(
    "--drop-diverged", is_flag=True, help="Leave out runs that have diverged; else they are refused."
)
@click.option("--resamples", type=click.IntRange(100, 100_000), default=4000, help="Resamples of the runs.")
@click.option(
    "--out", metavar="NAME", help="Also keep the fit under this name in the results folder, for the site."
)
@options.add_options("seed")
@options.results
@options.as_json
def command(
    table: Path,
    law: LawName,
    columns: tuple[str, ...],
    size_is: Size,
    budget: float | None,
    extrapolate: bool,
    drop_diverged: bool,
    resamples: int,
    out: str | None,
    seed: int,
    results: Path | None,
    as_json: bool,
) -> int:
    """Fit a law to the runs of TABLE, a file in CSV, TSV, JSONL or Parquet with one run a row.

    The exit code is 3 if the runs do not determine a quantity, which then has a reason instead of a value.
    """
    if out:
        FITS.check_name(out)
    named = dict(_split_column(text) for text in columns)
    runs = read_runs(
        table, columns=named, counts=size_is, needed=NEEDED.get(law, ()), drop_diverged=drop_diverged
    )
    fit = fit_law(
        law, runs, FitSettings(resamples=resamples, seed=seed, budget=budget, extrapolate=extrapolate)
    )
    commands = _build_commands(fit, runs, budget)
    if out:
        stored = build_stored_fit(out, fit, runs, budget)
        path = FITS.write_document(files.resolve_results_folder(results), out, stored)
        click.echo(f"{path}: {len(runs)} runs. `harness serve` shows them at /fits/{out}.", err=True)
    if as_json:
        chosen = {"method": fit.choose_method(), "commands": commands}
        document = {"schema": SCHEMA, "size_is": size_is, "budget": budget, **fit.to_json(), **chosen}
        click.echo(json.dumps(document, indent=1))
    else:
        _print_fit(fit, runs, budget, commands)
    return 0 if fit.identified else NOT_IDENTIFIED


def build_stored_fit(name: str, fit: Fit, runs: Runs, budget: float | None = None) -> StoredFit:
    """The document of a fit.

    Args:
        name: Its name.
        fit: The fit.
        runs: The runs that it is of.
        budget: The operations that were planned.
    """
    columns = {column: getattr(runs, column) for column in COLUMNS} | dict(runs.others)
    # A law of the whole loss may be of runs whose budgets are neither one nor apart.
    with contextlib.suppress(UsageError):
        numbers, levels, _ = group_budgets(runs.flops)
        columns["budget"] = levels[numbers]
    document = {
        "name": name,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "size_is": runs.counts,
        "budget": budget,
        "method": runs.method,
        "columns": {column: tuple(values.tolist()) for column, values in columns.items()},
    }
    fields = {key: value for key, value in fit.to_json().items() if key in StoredFit.model_fields}
    return StoredFit.model_validate({**fields, **document})


def _split_column(text: str) -> tuple[str, str]:
    name, sign, column = text.partition("=")
    if not sign:
        raise UsageError(f"--column {text} has no '='.", hint="Type --column size=params")
    return name, column


def _find_rank(runs: Runs, method: str, budget: float) -> int | None:
    """The rank of a method's best run of the budget that is nearest, None where the table has no rank."""
    part = runs.select_method(method)
    if "rank" not in part.others:
        return None
    distance = abs(part.flops / budget - 1)
    near = part.select_runs(distance <= distance.min() + 0.05)
    rank = float(near.others["rank"][near.loss.argmin()])
    return int(rank) or None


def _build_commands(fit: Fit, runs: Runs, budget: float | None) -> dict[str, str]:
    """By method whose name is that of a recipe, or the end of one, what trains at the budget."""
    recipes = [*catalog.load_recipe_entries()]
    commands = {}
    for method, plan in fit.plans.items():
        names = [name for name in recipes if method and (name == method or name == f"efficient-{method}")]
        if names and budget is not None and not any(quantity.reason for quantity in plan.values()):
            rank = _find_rank(runs, method, budget)
            setting = f" --set rank={rank}" if rank else ""
            commands[method] = f"harness train --model MODEL --recipe {names[0]} --budget {budget:g}{setting}"
    return commands


def _print_fit(fit: Fit, runs: Runs, budget: float | None, commands: Mapping[str, str]) -> None:
    out = create_console()
    table = Table(title=f"{fit.law}: {fit.runs} runs, size in {SIZES[runs.counts]}")
    _add_rows(table, fit.quantities)
    print_table(table, out)
    if fit.plans:
        plan = Table(title=f"at {budget:.4g} operations")
        _add_rows(plan, [quantity for plan in fit.plans.values() for quantity in plan.values()])
        print_table(plan, out)
    lines = list(fit.notes)
    if (method := fit.choose_method()) is not None and len(fit.plans) > 1:
        lines.append(f"The lowest loss at this budget is that of {method}.")
    for line in (*lines, *commands.values()):
        out.print(line, highlight=False, soft_wrap=True)


def _add_rows(table: Table, quantities: list[Quantity]) -> None:
    table.add_column("method")
    table.add_column("quantity")
    table.add_column("value", justify="right")
    table.add_column("95 %", justify="right")
    table.add_column("not told, because")
    for quantity in quantities:
        numbers: list[Any] = [quantity.value, quantity.low, quantity.high]
        # The sign alone, not that of an exponent.
        texts = ["" if n is None else f"{'−' if n < 0 else ''}{abs(n):.4g}" for n in numbers]
        ends = f"{texts[1]} … {texts[2]}" if texts[1] else ""
        table.add_row(quantity.method, quantity.name, texts[0], ends, quantity.reason)
