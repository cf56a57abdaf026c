"""`harness proxy`: a few tasks that predict a benchmark's mean in minutes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
from rich.table import Table

from harness.commands import options
from harness.core import paths
from harness.core.arguments import split_names
from harness.core.errors import HarnessError, RecordError, UsageError, unknown
from harness.core.terminal import console, print_table
from harness.core.types import Suite, SuiteOptions
from harness.plan import catalog
from harness.proxy.document import PROXIES, Proxy
from harness.storage.imported import Imported
from harness.storage.store import Store


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
    type=click.FloatRange(min=0, min_open=True),
    default=None,
    help="What the tasks may take together on the reference (default: 5).",
)
@click.option("--tasks", default="", help="Take these tasks, comma-separated, instead of choosing.")
@click.option(
    "--reference",
    default="",
    help="The imported model whose minutes are meant (default: one of median speed among those fitted on).",
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
        raise UsageError("--tasks are taken whatever they cost.", hint="Leave out --minutes, or --tasks.")
    folder = paths.results_folder(results)
    asked = SuiteOptions(cache=paths.cache_folder(cache), results=folder)
    typed, suite = _open_target(target, asked)
    wish = fit.ProxyRequest(
        suite=typed,
        minutes=5.0 if minutes is None else minutes,
        tasks=split_names(tasks),
        reference=reference,
        name=name or "",
    )
    if name:
        PROXIES.check_name(name)
    with _progress(quiet=as_json) as tell:
        found = fit.fit_proxy(_open_import(source, folder), suite, wish, tell)
    path = PROXIES.write(folder, found.name, found.to_json())
    if as_json:
        click.echo(json.dumps(_document(found, path), indent=1))
    else:
        _print(found)
        click.echo(f"Next: harness run --model MODEL --suite proxy:{found.name}")
    return 0


@command.command("list")
@options.results
@options.as_json
def _list_proxies(results: Path | None, as_json: bool) -> int:
    """List the proxies of the results folder."""
    found: list[Proxy] = []
    broken: list[HarnessError] = []
    folder = paths.results_folder(results)
    for name in PROXIES.names(folder):
        try:
            found.append(PROXIES.read(folder, name))
        except (RecordError, UsageError) as error:
            broken.append(error)
    if as_json:
        click.echo(json.dumps({"schema": 1, "proxies": [_row(proxy) for proxy in found]}, indent=1))
    elif found:
        _print_list(found)
    else:
        click.echo("No proxies yet: `harness proxy fit` makes them.")
    for one in broken:
        click.echo(f"Warning: {one}", err=True)
    return 0


@command.command("show")
@click.argument("name")
@options.results
@options.as_json
def _show(name: str, results: Path | None, as_json: bool) -> int:
    """Show a proxy, by its name or its JSON file: tasks, formula, error and cost."""
    path = Proxy.find(name, paths.results_folder(results))
    found = PROXIES.kind.read(path)
    if as_json:
        click.echo(json.dumps(_document(found, path), indent=1))
    else:
        _print(found)
    return 0


def _document(proxy: Proxy, path: Path) -> dict[str, object]:
    return {"schema": 1, "path": str(path), "proxy": proxy.model_dump(mode="json", by_alias=True)}


def _row(proxy: Proxy) -> dict[str, object]:
    return {
        "name": proxy.name,
        "target": proxy.target.title,
        "suite": f"proxy:{proxy.name}",
        "tasks": len(proxy.tasks),
        "minutes": proxy.cost.minutes,
        "half_width": proxy.error.half_width,
        "rmse": proxy.error.rmse,
    }


def _print(proxy: Proxy) -> None:
    print_table(_table(proxy), console())
    for line in _lines(proxy):
        console().print(line, highlight=False, soft_wrap=True)


def _print_list(found: list[Proxy]) -> None:
    print_table(_listing(found), console())


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on standard error, hidden where that is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("families held out"), BarColumn(bar_width=30), MofNCompleteColumn())
    hidden, console = quiet or not sys.stderr.isatty(), Console(stderr=True)
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=hidden) as shown:
        bar = shown.add_task("families", total=None)
        yield lambda done, total: shown.update(bar, completed=done, total=total)


def _table(proxy: Proxy) -> Table:
    """The tasks of a proxy with their weights."""
    from rich.table import Table

    found = Table(title=f"{proxy.name}: {len(proxy.tasks)} tasks that predict {proxy.target.title}")
    found.add_column("task")
    for name in ("weight", "minutes", "seen from", "to"):
        found.add_column(name, justify="right")
    for task in proxy.tasks:
        seen = (f"{100 * task.low:.1f}", f"{100 * task.high:.1f}")
        found.add_row(task.task, f"{task.coefficient:+.4f}", _minutes(task.minutes), *seen)
    return found


def _lines(proxy: Proxy) -> list[str]:
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
        f"{_minutes(cost.minutes)} of {_minutes(cost.whole)} minutes of the whole benchmark, on {whom}",
        f"fitted on {fitted.models} complete models of {fitted.families} families of {proxy.imported.source} "
        f"({proxy.imported.when[:10]}), {fitted.other_data} of them with a score on another data revision",
    ]


def _listing(found: Sequence[Proxy]) -> Table:
    """A table with a proxy in each row."""
    from rich.table import Table

    rows = Table(title=f"{len(found)} {'proxy' if len(found) == 1 else 'proxies'}")
    rows.add_column("name")
    rows.add_column("target")
    for name in ("tasks", "minutes", "± (95 %)"):
        rows.add_column(name, justify="right")
    for one in found:
        facts = (str(len(one.tasks)), _minutes(one.cost.minutes), f"{100 * one.error.half_width:.2f}")
        rows.add_row(one.name, one.target.title, *facts)
    return rows


def _minutes(value: float | None) -> str:
    return "?" if value is None else f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def _rank(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _open_target(text: str, options: SuiteOptions) -> tuple[str, Suite]:
    """The spelling of a benchmark for --suite, and its suite."""
    typed = text if text.partition(":")[0] in catalog.suites() else _offered(text)
    suite = catalog.open_suite(typed, options)
    learnt = any(task.output == "label" for task in suite.tasks)
    if len(suite.tasks) < 2 or learnt or suite.predictor is not None:
        raise UsageError(
            f"{suite.title} is no benchmark that a few of its tasks could predict.",
            hint="`harness list benchmarks` shows those that can be.",
        )
    return typed, suite


def _offered(name: str) -> str:
    entries = catalog.suites().values()
    offers = {o.name: f"{e.name}:{o.name}" for e in entries for o in e.offers() if o.kind == "benchmark"}
    if name not in offers:
        known = [*offers, *(entry.name for entry in entries if entry.alone)]
        raise unknown("benchmark", name, known, then="`harness list benchmarks` shows all.")
    return offers[name]


def _open_import(name: str, results: Path) -> Imported:
    """The import of a source, or the only import where no source is named."""
    found = {one.source: one for one in Store(results).imported()}
    if not found:
        raise UsageError(
            f"Nothing was imported into {results}.", hint="Type harness import mteb-results PATH first."
        )
    if name and name not in found:
        raise unknown("import", name, found, then="`harness import` makes one.")
    if not name and len(found) > 1:
        raise UsageError(
            f"There are {len(found)} imports.", hint=f"Type --from with one of {', '.join(found)}."
        )
    return found[name] if name else next(iter(found.values()))
