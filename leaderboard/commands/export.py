"""`harness export`: a page of the leaderboard as data, or a model's runs for trec_eval or scores for mteb."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import click
from click.core import ParameterSource

from harness.commands.options import process_cache, site_results
from harness.core.errors import UsageError
from harness.core.groups import group_by
from harness.core.terminal import shorten_names
from harness.tools.exports import export_mteb, export_trec
from leaderboard.data.settings import read_site_settings

FORMATS = ("json", "csv", "md", "tex", "parquet")


@click.command("export")
@click.argument("page")
@click.option("--format", "form", type=click.Choice(FORMATS), default="csv", show_default=True,
              help="What to write the page's tables as.")  # fmt: skip
@site_results
@process_cache
@click.option("--suite", "suites", multiple=True, metavar="SUITE", help="A suite of your own to open as "
              "well, e.g. code:FOLDER or local:FOLDER; with --trec or --mteb the suite whose tasks are "
              "written. Repeat for several.")  # fmt: skip
@click.option("--trec", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Write the runs and judgements of a model's retrieval tasks to this folder "
              "(docs/trec.md).")  # fmt: skip
@click.option("--mteb", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Write a model's scores to this folder as mteb stores its results "
              "(docs/trec.md).")  # fmt: skip
@click.option("--as", "published", default="", metavar="ORG/NAME@REVISION", help="With --mteb, the model's "
              "name and revision on the hub (default: those of a hub model).")  # fmt: skip
@click.option("--tasks", default="", help="With --trec or --mteb, only these tasks, e.g. SciFact,NFCorpus.")
@click.option("--settings", default="", metavar="TEXT", help="With --trec or --mteb, the settings whose "
              "scores are written, where there are several: a part of their text in `harness show`, e.g. "
              "'128 tokens'.")  # fmt: skip
@click.option("--keep", is_flag=True, help="Also store a snapshot of the site, whose address (printed) "
              "keeps showing this state.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="The file to write (default: "
              "standard output).")  # fmt: skip
def command(
    page: str,
    form: str,
    results: tuple[Path, ...],
    suites: tuple[str, ...],
    trec: Path | None,
    mteb: Path | None,
    published: str,
    tasks: str,
    settings: str,
    keep: bool,
    out: Path | None,
) -> int:
    """Write PAGE, an address as a browser shows it, e.g. '/suites/mteb?mean=types'.

    All rows are written, unless the address names `rows` or `page`. An address that ends in a format, as
    /index.csv does, is written in it. With --trec or --mteb, PAGE is a model, whose runs or scores are
    written.
    """
    source = click.get_current_context().get_parameter_source("form")
    if trec is not None or mteb is not None:
        option = "--mteb" if trec is None else "--trec"
        others = (out, keep, len(results) > 1, source is not ParameterSource.DEFAULT)
        if any(others) or (trec is not None and (mteb is not None or published)):
            raise UsageError(
                f"{option} takes one results folder, no --out, no --keep and no --format, and --as is for "
                "--mteb alone.",
                hint="Leave the others out.",
            )
        place: dict[str, Any] = {"suites": suites, "tasks": tasks, "settings": settings}
        place["results"] = next(iter(results), None)
        return _export_model(page, trec, mteb, published, place)
    for name, value in {"--tasks": tasks, "--settings": settings, "--as": published}.items():
        if value:
            raise UsageError(f"{name} is for --trec or --mteb.", hint="Name a folder: --mteb DIR.")
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


def _export_model(
    model: str, trec: Path | None, mteb: Path | None, published: str, options: Mapping[str, Any]
) -> int:
    """Write a model's runs or scores, and say which files there are and what is in none."""
    done: Any
    if trec is not None:
        done, notes = export_trec(model, trec, **options), []
        if done.left_out:
            notes = [f"Not measured with these settings: {shorten_names([*done.left_out])}"]
    else:
        done = export_mteb(model, mteb or Path(), published=published, **options)
        reasons = group_by(done.left_out, done.left_out.__getitem__).items()
        notes = [f"Left out: {shorten_names(tasks)}: {reason}" for reason, tasks in reasons]
    for path in done.files:
        click.echo(f"{path}\t{done.settings}")
    others = (f"Measured with other settings, too: {text} (--settings chooses)" for text in done.others)
    for note in (*notes, *others):
        click.echo(note, err=True)
    return 0 if done.files or trec is not None else 1


def _split_address(page: str) -> tuple[str, str, str]:
    """An address in parts: the page's path, the query, and the format that its ending names.

    >>> _split_address("http://localhost:8000/suites/mteb.csv?mean=types")
    ('/suites/mteb', 'mean=types', 'csv')
    >>> _split_address("index.json")
    ('/', '', 'json')
    """
    # A page without a host gets one, else a colon in its name would end a scheme.
    url = urlsplit(page if "://" in page.partition("?")[0] else f"//site/{page.lstrip('/')}")
    base, dot, ending = url.path.rpartition(".")
    if not dot or ending not in FORMATS:
        return f"/{url.path.lstrip('/')}", url.query, ""
    return "/" if base == "/index" else base, url.query, ending
