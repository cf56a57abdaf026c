"""`harness proxy`: a few tasks that predict a benchmark's mean in minutes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click
from rich.table import Table

from harness.commands import options
from harness.core import files
from harness.core.arguments import split_names
from harness.core.errors import HarnessError, RecordError, UsageError, explain_unknown
from harness.core.terminal import (
    create_console,
    create_table,
    print_lines,
    print_table,
    shorten_names,
    show_progress,
)
from harness.core.types import Suite, SuiteOptions
from harness.plan import catalog
from harness.proxy.document import PROXIES, Proxy
from harness.proxy.table import read_column_scores, read_measured_scores
from harness.results.type_tasks import RankCorrelation, TypeRanking, rank_type_tasks
from harness.storage.imported import Imported


@click.group("proxy")
def command() -> None:
    """Choose a few tasks that predict a benchmark's mean, and show such proxies.

    `--suite proxy:NAME` runs one and prints the prediction with its error.
    """


@command.command("fit")
@click.option(
    "--from", "source", default="", help="The import to fit on (default: the only one), e.g. mteb-results."
)
@click.option(
    "--target",
    required=True,
    help="The benchmark to predict: a name of `harness list benchmarks`, or what --suite takes.",
)
@click.option(
    "--minutes",
    type=options.Amount(above=0),
    default=None,
    help="Minutes that the tasks may take together for the reference model (default: 5).",
)
@click.option("--tasks", default="", help="Take these tasks, comma-separated, instead of choosing.")
@click.option(
    "--reference",
    default="",
    help="The imported model whose minutes are meant (default: the one of median speed in the fit).",
)
@click.option("--name", default="", help="The proxy's name (default: made of the target and the minutes).")
@options.results
@options.cache
@options.as_json
def _fit(
    source: str,
    target: str,
    minutes: float | None,
    tasks: str,
    reference: str,
    name: str,
    results: Path | None,
    cache: Path | None,
    as_json: bool,
) -> int:
    """Choose the tasks that predict a benchmark's mean best, and keep them as a proxy.

    A proxy of the same name is replaced.
    """
    from harness.proxy import fit

    if tasks and minutes is not None:
        raise UsageError(
            "--minutes has no effect on tasks that --tasks names.", hint="Leave out --minutes, or --tasks."
        )
    folder = files.resolve_results_folder(results)
    suite_options = SuiteOptions(cache=files.resolve_cache_folder(cache), results=folder)
    typed, suite = _open_target(target, suite_options)
    wish = fit.ProxyRequest(
        suite=typed,
        minutes=5.0 if minutes is None else minutes,
        tasks=split_names(tasks),
        reference=reference,
        name=name or "",
    )
    # Before the fit, which takes minutes, and not when its result is written.
    if name:
        PROXIES.check_name(name)
    with show_progress("families held out", quiet=as_json) as tell:
        proxy = fit.fit_proxy(_open_import(source, folder), suite, wish, tell)
    path = PROXIES.write_document(folder, proxy.name, proxy)
    if as_json:
        click.echo(json.dumps(_serialize_proxy(proxy, path), indent=1))
    else:
        _print_proxy(proxy)
        click.echo(f"Next: harness run --model MODEL --suite proxy:{proxy.name}")
    return 0


@command.command("types")
@click.option(
    "--from", "source", default="", help="The import to compute from (default: the only one), or: measured."
)
@click.option(
    "--target",
    required=True,
    help="The benchmark: a name of `harness list benchmarks`, or what --suite takes.",
)
@options.results
@options.cache
@options.as_json
def _show_types(source: str, target: str, results: Path | None, cache: Path | None, as_json: bool) -> int:
    """Show, for each task type of a benchmark, the task that correlates best with the type's mean.

    The correlation is over models. As in the Efficient-Embeddings paper, the mean includes the task itself;
    the table also names the task that correlates best with the mean of the other tasks.
    """
    folder, kept = files.resolve_results_folder(results), files.resolve_cache_folder(cache)
    _, suite = _open_target(target, SuiteOptions(cache=kept, results=folder))
    if source == "measured":
        rankings = rank_type_tasks(suite, partial(read_measured_scores, folder, kept))
    else:
        rankings = rank_type_tasks(suite, partial(read_column_scores, _open_import(source, folder)))
    if as_json:
        types = [asdict(ranking) | {"level": ranking.level} for ranking in rankings]
        click.echo(json.dumps({"schema": 1, "target": suite.title, "types": types}, indent=1))
    else:
        print_table(_build_types_table(suite.title, rankings), create_console())
    return 0


def _build_types_table(title: str, rankings: Sequence[TypeRanking]) -> Table:
    heads = ("type", "follows its mean best", "ρ", "follows the others best", "ρ ")
    table = create_table(*heads, numbers=("models",), notes=("interval holds the first's ρ",), title=title)
    for ranking in rankings:
        first, rival = next(iter(ranking.tasks), None), ranking.best_by_others
        cells = [first.task, _format_correlation(first.mean)] if first else ["–", "–"]
        cells += [rival.task, _format_correlation(rival.others)] if rival else ["–", "–"]
        table.add_row(
            ranking.type, *cells, str(ranking.models), ranking.reason or shorten_names(ranking.level)
        )
    return table


def _format_correlation(rho: RankCorrelation | None) -> str:
    return "–" if rho is None else f"{rho.value:.3f} [{rho.low:.3f}, {rho.high:.3f}]"


@command.command("list")
@options.results
@options.as_json
def _list_proxies(results: Path | None, as_json: bool) -> int:
    """List the proxies of the results folder."""
    proxies: list[Proxy] = []
    broken: list[HarnessError] = []
    folder = files.resolve_results_folder(results)
    for name in PROXIES.list_names(folder):
        try:
            proxies.append(PROXIES.find_document(folder, name))
        except (RecordError, UsageError) as error:
            broken.append(error)
    if as_json:
        click.echo(
            json.dumps({"schema": 1, "proxies": [_build_proxy_row(proxy) for proxy in proxies]}, indent=1)
        )
    elif proxies:
        print_table(_build_proxies_table(proxies), create_console())
    else:
        click.echo("No proxies yet: `harness proxy fit` makes them.")
    for problem in broken:
        click.echo(f"Warning: {problem}", err=True)
    return 0


@command.command("show")
@click.argument("name")
@options.results
@options.as_json
def _show_proxy(name: str, results: Path | None, as_json: bool) -> int:
    """Show a proxy, by its name or its JSON file: tasks, formula, error and cost."""
    path = Proxy.find(name, files.resolve_results_folder(results))
    proxy = PROXIES.read_document_file(path)
    if as_json:
        click.echo(json.dumps(_serialize_proxy(proxy, path), indent=1))
    else:
        _print_proxy(proxy)
    return 0


def _serialize_proxy(proxy: Proxy, path: Path) -> dict[str, object]:
    return {"schema": 1, "path": str(path), "proxy": proxy.model_dump(mode="json", by_alias=True)}


def _build_proxy_row(proxy: Proxy) -> dict[str, object]:
    return {
        "name": proxy.name,
        "target": proxy.target.title,
        "suite": f"proxy:{proxy.name}",
        "tasks": len(proxy.tasks),
        "minutes": proxy.cost.minutes,
        "half_width": proxy.error.half_width,
        "rmse": proxy.error.rmse,
    }


def _print_proxy(proxy: Proxy) -> None:
    print_table(_build_weights_table(proxy), create_console())
    print_lines(_describe_proxy(proxy))


def _build_weights_table(proxy: Proxy) -> Table:
    """The tasks of a proxy with their weights."""
    title = f"{proxy.name}: {len(proxy.tasks)} tasks that predict {proxy.target.title}"
    table = create_table("task", numbers=("weight", "minutes", "seen from", "to"), title=title)
    for task in proxy.tasks:
        seen = (f"{100 * task.low:.1f}", f"{100 * task.high:.1f}")
        table.add_row(task.task, f"{task.coefficient:+.4f}", _format_minutes(task.minutes), *seen)
    return table


def _describe_proxy(proxy: Proxy) -> list[str]:
    """Lines on the intercept, the error, the cost and the fitted models."""
    error, cost, fitted = proxy.error, proxy.cost, proxy.fitted
    whom = cost.reference or "a model of median speed" + (f", as {cost.nearest}" if cost.nearest else "")
    chosen = "tasks chosen and fitted" if proxy.chosen == "greedy" else "fitted"
    return [
        f"intercept {100 * proxy.intercept:+.2f}; scores × 100",
        f"±{100 * error.half_width:.2f} ({100 * error.level:g} %) on models of held-out families, "
        f"{chosen} without them: RMSE {100 * error.rmse:.2f}, mean error {100 * error.mae:.2f}, "
        f"Kendall {_rank(error.kendall)}, Spearman {_rank(error.spearman)}",
        f"(the error it was chosen by, which errs on the low side: RMSE {100 * error.plain_rmse:.2f}; "
        f"of the models' mean alone: {100 * error.deviation:.2f})",
        f"{_format_minutes(cost.minutes)} of {_format_minutes(cost.whole)} minutes of the whole benchmark, "
        f"on {whom}",
        f"fitted on {fitted.models} complete models of {fitted.families} families of {proxy.imported.source} "
        f"({proxy.imported.when[:10]}), {fitted.other_data} of them with a score on another data revision",
    ]


def _build_proxies_table(proxies: Sequence[Proxy]) -> Table:
    """A table with a proxy in each row."""
    title = f"{len(proxies)} {'proxy' if len(proxies) == 1 else 'proxies'}"
    rows = create_table("name", "target", numbers=("tasks", "minutes", "± (95 %)"), title=title)
    for proxy in proxies:
        facts = (
            str(len(proxy.tasks)),
            _format_minutes(proxy.cost.minutes),
            f"{100 * proxy.error.half_width:.2f}",
        )
        rows.add_row(proxy.name, proxy.target.title, *facts)
    return rows


def _format_minutes(value: float | None) -> str:
    if value is None:
        return "?"
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def _rank(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _open_target(text: str, options: SuiteOptions) -> tuple[str, Suite]:
    """The spelling of a benchmark for --suite, and its suite."""
    typed = text if text.partition(":")[0] in catalog.load_suite_entries() else _resolve_offer(text)
    suite = catalog.open_suite(typed, options)
    has_labels = any(task.output == "label" for task in suite.tasks)
    if len(suite.tasks) < 2 or has_labels or suite.predictor is not None:
        raise UsageError(
            f"{suite.title} is not a benchmark of several tasks that embeddings are scored on.",
            hint="`harness list benchmarks` shows those that are.",
        )
    return typed, suite


def _resolve_offer(name: str) -> str:
    entries = catalog.load_suite_entries().values()
    offers = {o.name: f"{e.name}:{o.name}" for e in entries for o in e.offers() if o.kind == "benchmark"}
    if name not in offers:
        names = [*offers, *(entry.name for entry in entries if entry.alone)]
        raise explain_unknown("benchmark", name, names, then="`harness list benchmarks` shows all.")
    return offers[name]


def _open_import(name: str, results: Path) -> Imported:
    """The import of a source, or the only import where no source is named."""
    imports = {one.source: one for one in Imported.read_imports(results)}
    if not imports:
        raise UsageError(
            f"Nothing was imported into {results}.", hint="Type harness import mteb-results PATH first."
        )
    if name and name not in imports:
        raise explain_unknown("import", name, imports, then="`harness import` makes one.")
    if not name and len(imports) > 1:
        raise UsageError(
            f"There are {len(imports)} imports.", hint=f"Type --from with one of {', '.join(imports)}."
        )
    return imports[name] if name else next(iter(imports.values()))
