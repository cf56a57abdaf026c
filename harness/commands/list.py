"""`harness list`: the names of models, recipes, suites, benchmarks and tasks, and all records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from harness.commands import options
from harness.core import files
from harness.core.encoding import BM25
from harness.core.errors import UsageError
from harness.core.files import Registry
from harness.core.terminal import create_console, create_table, print_table
from harness.core.types import OWN_UNITS
from harness.encoder import backbones
from harness.plan import catalog
from harness.results.scores import score_text
from harness.search import bm25
from harness.tools.measured import list_index_rows
from harness.watch.runs import add_facts, list_run_rows, read_table, write_table

KINDS = ("models", "backbones", "recipes", "protocols", "suites", "benchmarks", "tasks", "records", "runs")

REGISTRIES: Mapping[str, Registry[Any]] = {
    **dict.fromkeys(("models", "backbones"), backbones.BACKBONES),
    **dict.fromkeys(("suites", "benchmarks", "tasks"), catalog.SUITES),
    "recipes": catalog.RECIPES,
    "protocols": catalog.PROTOCOLS,
}
"""The registry behind each list of names."""


@click.command("list")
@click.argument("what", type=click.Choice(KINDS), default="suites")
@click.option(
    "--match",
    "part",
    default="",
    help="Only rows with this text in the name, model, task or paper; upper and lower case are the same.",
)
@click.option("--rows", "limit", type=click.IntRange(min=1), metavar="N", help="The first N rows only.")
@click.option(
    "--suite",
    "suites",
    multiple=True,
    help="For runs: a suite whose scores become columns of trained models and models with a note. "
    "Checkpoints have the scores of their watch. Repeat for several.",
)
@options.add_file_option(
    "--facts", "For runs: a CSV or Parquet file with facts by model, run, seed or step, as exported from W&B."
)
@options.add_file_option("--out", "For runs: the .csv or .parquet file to write.")
@options.results
@options.cache
@options.as_json
def command(
    what: str,
    part: str,
    limit: int | None,
    suites: tuple[str, ...],
    facts: Path | None,
    out: Path | None,
    results: Path | None,
    cache: Path | None,
    as_json: bool,
) -> int:
    """List models, backbones, recipes, protocols, suites, mteb's benchmarks and tasks, records, or runs.

    `harness list` alone lists suites. Runs are the checkpoints of watches, trained models, and models
    with a note; each row has scores and known facts.
    """
    if what != "runs" and (suites or facts or out):
        raise UsageError("--suite, --facts and --out are of runs.", hint="Type harness list runs.")
    match what:
        case "records":
            rows = list_index_rows(results, cache, match=part)
        case "runs":
            places = files.resolve_results_folder(results), files.resolve_cache_folder(cache)
            rows = list_run_rows(*places, suites)
            rows = add_facts(rows, read_table(facts)) if facts else rows
        case "models":
            rows = _list_model_rows()
        case "backbones":
            rows = _list_backbone_rows()
        case "recipes":
            rows = _list_recipe_rows()
        case "protocols":
            rows = [
                {"name": one.name, "summary": one.summary}
                for one in catalog.PROTOCOLS.load_entries().values()
            ]
        case "suites":
            rows = _list_suite_rows()
        case _:
            rows = _list_offer_rows(what.removesuffix("s"))
    for error in REGISTRIES[what].collect_failures() if what in REGISTRIES else ():
        click.echo(f"Warning: {error}", err=True)
    # Rows of different lists have different fields: any of these may be the one that is meant.
    named = ("name", "model", "task", "run", "paper")
    if what != "records":
        rows = [r for r in rows if any(part.lower() in str(r.get(name, "")).lower() for name in named)]
    total = len(rows)
    rows = rows[:limit]
    if out:
        write_table(out, rows)
        click.echo(f"{out}: {len(rows)} rows.")
    elif as_json:
        click.echo(json.dumps({"schema": 1, what: rows}, indent=1))
    elif not (rows or part) and what == "records" and list_index_rows(results, cache, purpose="trial"):
        click.echo("No records yet but trials (--limit), which no table shows. Run without --limit.")
    elif not rows:
        click.echo(f"No {what}" + (f" match {part!r}." if part else " yet: `harness run` makes them."))
    else:
        _print_rows(what, rows, total)
    return 0


def _list_model_rows() -> list[dict[str, Any]]:
    rows = [{"name": b.name, "summary": b.summary} for b in backbones.list_catalog_models().values()]
    return [*rows, {"name": BM25, "summary": bm25.SUMMARY}]


def _list_backbone_rows() -> list[dict[str, Any]]:
    families = [
        (entry, entry.family) for entry in backbones.list_backbones().values() if entry.family is not None
    ]
    return [
        {
            "name": entry.name,
            "summary": entry.summary,
            "model_types": family.model_types,
            "runs_through": "transformers" if family.shape is None else "the harness",
            "sizes": tuple(family.sizes),
        }
        for entry, family in families
    ]


def _list_recipe_rows() -> list[dict[str, Any]]:
    rows = []
    for entry in catalog.load_recipe_entries().values():
        variants = {f"{entry.name}:{name}": summary for name, summary in entry.variants.items()}
        papers = "; ".join(dict.fromkeys(row.paper for row in entry.printed))
        for name, summary in {entry.name: entry.summary, **variants}.items():
            places = [row.place.rpartition(", ")[0] for row in entry.printed if name in row.recipe.split("+")]
            printed = "; ".join(dict.fromkeys(places))
            rows.append({"name": name, "summary": summary, "paper": papers, "printed": printed})
    return rows


def _list_suite_rows() -> list[dict[str, Any]]:
    rows = []
    for entry in catalog.load_suite_entries().values():
        argument = f":<{entry.argument}>" if entry.argument else ""
        name = f"{entry.name}[{argument}]" if argument and entry.alone else f"{entry.name}{argument}"
        rows.append({"name": name, "summary": entry.summary})
    return rows


def _list_offer_rows(kind: str) -> list[dict[str, Any]]:
    offers = [
        (e.name, o) for e in catalog.load_suite_entries().values() for o in e.offers() if o.kind == kind
    ]
    return [{"name": offer.name, "suite": f"{suite}:{offer.name}", **offer.facts} for suite, offer in offers]


def _print_rows(what: str, rows: list[dict[str, Any]], total: int) -> None:
    counted = what if total != 1 else what.removesuffix("s")
    unit = ", scores × 100" if what == "records" else ""
    number = str(total) if len(rows) == total else f"{len(rows):,} of {total:,}"
    table = create_table(title=f"{number} {counted}{unit}")
    # All rows of a list have the same fields; these three are for --json.
    shown = [name for name in rows[0] if name not in ("key", "suite", "similar")]
    for name in shown:
        is_number = name in ("main_score", "subsets", "tasks")
        table.add_column(name.replace("_", " "), justify="right" if is_number else "left")
    for row in rows:
        table.add_row(*(_format_list_cell(name, row) for name in shown))
    print_table(table, create_console())


def _format_list_cell(name: str, row: Mapping[str, Any]) -> str:
    value = row[name]
    if name == "artifact":
        return str(value)[:12]
    if name == "main_score":
        return score_text(value, measured=row["metric"] in OWN_UNITS)
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, tuple | list):
        return ", ".join(value)
    return "" if value is None else str(value)
