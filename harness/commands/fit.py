"""`harness fit`: laws through many runs, with intervals, and the plan of a budget."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from harness.commands import options
from harness.core import files
from harness.core.errors import UsageError
from harness.core.terminal import create_console, create_table, print_lines, print_table
from harness.fits.fitting import FitSettings, fit_law
from harness.fits.runs import LAWS, SIZES, LawName, Runs, Size, read_runs
from harness.fits.stored import FITS, Quantity, StoredFit
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
    runs = read_runs(
        table,
        columns=dict(_split_column(text) for text in columns),
        counts=size_is,
        needed=NEEDED.get(law, ()),
        drop_diverged=drop_diverged,
    )
    settings = FitSettings(resamples=resamples, seed=seed, budget=budget, extrapolate=extrapolate)
    fit = fit_law(law, runs, settings, out or "")
    commands = _build_commands(fit, runs)
    if out:
        path = FITS.write_document(files.resolve_results_folder(results), out, fit)
        click.echo(f"{path}: {len(runs)} runs. `harness serve` shows them at /fits/{out}.", err=True)
    if as_json:
        click.echo(json.dumps({"schema": SCHEMA, **fit.dump_output(), "commands": commands}, indent=1))
    else:
        _print_fit(fit, commands)
    return NOT_IDENTIFIED if fit.untold else 0


def _split_column(text: str) -> tuple[str, str]:
    name, sign, column = text.partition("=")
    if not sign:
        raise UsageError(f"--column {text} has no '='.", hint="Type --column size=params")
    return name, column


def _build_commands(fit: StoredFit, runs: Runs) -> dict[str, str]:
    """By method whose name is that of a recipe, or the end of one, what trains at the budget."""
    recipes = [*catalog.load_recipe_entries()]
    commands = {}
    for method, _ in fit.iter_told_plans():
        names = [name for name in recipes if method and name in (method, f"efficient-{method}")]
        if names and fit.budget is not None:
            rank = _find_rank(runs.select_runs(runs["method"] == method), fit.budget)
            setting = f" --set rank={rank}" if rank else ""
            commands[method] = (
                f"harness train --model MODEL --recipe {names[0]} --budget {fit.budget:g}{setting}"
            )
    return commands


def _find_rank(runs: Runs, budget: float) -> int:
    """The rank of the best run of the budget that is nearest, 0 where the table has no rank."""
    distance = abs(runs["flops"] / budget - 1)
    near = runs.select_runs(distance <= distance.min() + 0.05)
    return int(near["rank"][near["loss"].argmin()]) if "rank" in near.columns else 0


def _print_fit(fit: StoredFit, commands: Mapping[str, str]) -> None:
    _print_quantities(f"{fit.law}: {len(fit.method)} runs, size in {SIZES[fit.size_is]}", fit.quantities)
    if fit.plans:
        _print_quantities(f"at {fit.budget:.4g} operations", fit.planned)
    best = fit.choose_method() if len(fit.plans) > 1 else None
    lowest = [f"The lowest loss at this budget is that of {best}."] if best is not None else []
    print_lines([*fit.notes, *lowest, *commands.values()])


def _print_quantities(title: str, quantities: Sequence[Quantity]) -> None:
    table = create_table("method", "quantity", numbers=("value", "95 %"), title=title)
    table.add_column("not told, because")
    for quantity in quantities:
        numbers = (quantity.value, quantity.low, quantity.high)
        # The sign alone, not that of an exponent.
        texts = ["" if n is None else f"{'−' if n < 0 else ''}{abs(n):.4g}" for n in numbers]
        ends = f"{texts[1]} … {texts[2]}" if texts[1] else ""
        table.add_row(quantity.method, quantity.name, texts[0], ends, quantity.reason)
    print_table(table, create_console())
