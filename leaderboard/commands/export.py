"""`harness export`: a page of the leaderboard as data, without a server."""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import parse_qs

import click

from harness.errors import UsageError


@click.command("export")
@click.argument("page")
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "csv", "md", "tex"]),
    default="md",
    show_default=True,
    help="What to write the page's tables as.",
)
@click.option(
    "--results",
    "results",
    multiple=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="A results folder (default: HARNESS_RESULTS, else ./results). Repeat for several.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write (default: standard output).",
)
def command(page: str, form: str, results: tuple[Path, ...], out: Path | None) -> int:
    """Write PAGE, an address as a browser shows it, e.g. '/suites/mteb?mean=types'."""
    from leaderboard.settings import from_environment
    from leaderboard.site import open_site

    site = open_site(from_environment(results))
    path, _, query = page.partition("?")
    content = site.twin(path if path.startswith("/") else f"/{path}", parse_qs(query), form)
    if out is None:
        sys.stdout.buffer.write(content)
        return 0
    try:
        out.write_bytes(content)
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}.") from error
    return 0
