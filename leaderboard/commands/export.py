"""`harness export`: a page of the leaderboard as data, without a server, or a model's runs for trec_eval."""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import click
from click.core import ParameterSource

from harness.commands.options import process_cache, site_results
from harness.core.errors import UsageError, shorten_names
from harness.tools.trec import export_trec
from leaderboard.data.settings import read_site_settings

FORMATS = ("json", "csv", "md", "tex", "parquet")


@click.command("export")
@click.argument("page")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="csv",
    show_default=True,
    help="What to write the page's tables as.",
)
@site_results
@process_cache
@click.option(
    "--suite",
    "suites",
    multiple=True,
    metavar="SUITE",
    help="A suite of your own to open as well, e.g. code:FOLDER or local:FOLDER; with --trec the suite whose "
    "tasks are written. Repeat for several.",
)
@click.option(
    "--trec",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write the runs and judgements of a model's retrieval tasks to this folder (docs/trec.md).",
)
@click.option("--tasks", default="", help="With --trec, only these tasks, e.g. SciFact,NFCorpus.")
@click.option(
    "--settings",
    default="",
    metavar="TEXT",
    help="With --trec, the settings whose scores are written, where there are several: a part of their text "
    "in `harness show`, e.g. '128 tokens'.",
)
@click.option(
    "--keep",
    is_flag=True,
    help="Keep the snapshot that the page is of, so that its address with the snapshot's id stays.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write (default: standard output).",
)
def command(
    page: str,
    form: str,
    results: tuple[Path, ...],
    suites: tuple[str, ...],
    trec: Path | None,
    tasks: str,
    settings: str,
    keep: bool,
    out: Path | None,
) -> int:
    """Write PAGE, an address as a browser shows it, e.g. '/suites/mteb?mean=types'.

    All rows are written, unless the address names `rows` or `page`. An address that ends in a format, as
    /index.csv does, is written in it. With --trec, PAGE is a model, and its runs are written.
    """
    source = click.get_current_context().get_parameter_source("form")
    if trec is not None:
        if out is not None or keep or len(results) > 1 or source is not ParameterSource.DEFAULT:
            raise UsageError(
                "--trec takes one results folder, no --out, no --keep and no --format.",
                hint="Leave the others out.",
            )
        return _export_runs(page, trec, suites, tasks, settings, next(iter(results), None))
    if tasks or settings:
        raise UsageError(
            f"{'--tasks' if tasks else '--settings'} is for --trec.", hint="Name a folder: --trec DIR."
        )
    # Not at the top: the site loads FastAPI and DuckDB, which the help and --trec do without.
    from leaderboard.web.site import open_site

    path, query, ending = _split_address(page)
    # csv is a default: only a format that was typed can contradict the address.
    if ending and source is not ParameterSource.DEFAULT and form != ending:
        raise UsageError(
            f"{page!r} ends in .{ending}, and --format says {form}.", hint="Leave one of the two out."
        )
    form = ending or form
    site = open_site(read_site_settings(results, suites=suites))
    content = site.export(path, parse_qs(query, keep_blank_values=True), form)
    if keep:
        click.echo(f"Kept: {site.keep()}{path}", err=True)
    if out is None:
        sys.stdout.buffer.write(content)
        return 0
    try:
        out.write_bytes(content)
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}.") from error
    return 0


def _export_runs(
    model: str, folder: Path, suites: tuple[str, ...], tasks: str, settings: str, results: Path | None
) -> int:

    done = export_trec(model, folder, suites=suites, tasks=tasks, settings=settings, results=results)
    for path in done.files:
        click.echo(f"{path}\t{done.settings}")
    if done.missing:
        click.echo(f"Not measured with these settings: {shorten_names(done.missing)}", err=True)
    for text in done.others:
        click.echo(f"Measured with other settings, too: {text} (--settings chooses)", err=True)
    return 0


def _split_address(page: str) -> tuple[str, str, str]:
    """An address in parts: the page's path, the query, and the format that its ending names.

    >>> _split_address("http://localhost:8000/suites/mteb.csv?mean=types")
    ('/suites/mteb', 'mean=types', 'csv')
    >>> _split_address("index.json")
    ('/', '', 'json')
    """
    url = page.partition("#")[0]
    if "://" in url.partition("?")[0]:
        parts = urlsplit(url)
        path, query = parts.path, parts.query
    else:
        path, _, query = url.partition("?")
    path = f"/{path.lstrip('/')}"
    base, dot, ending = path.rpartition(".")
    if not dot or ending not in FORMATS:
        return path, query, ""
    return "/" if base == "/index" else base, query, ending
