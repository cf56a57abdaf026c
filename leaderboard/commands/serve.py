"""`harness serve`: the leaderboard as a web site, or as plain files."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.errors import UsageError

if TYPE_CHECKING:
    from leaderboard.web.settings import Settings


@click.command("serve")
@click.option(
    "--results",
    "results",
    multiple=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="A results folder to show (default: HARNESS_RESULTS, else ./results). Repeat for several; the first "
    "one takes pushed records.",
)
@click.option(
    "--suite",
    "suites",
    multiple=True,
    metavar="SUITE",
    help="A suite of your own to show as well, e.g. code:FOLDER or local:FOLDER. Repeat for several.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    default=8000,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="The port; 0 for any free one.",
)
@click.option(
    "--refresh",
    default=30.0,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds between two looks at the folders; 0 for none after the start.",
)
@click.option(
    "--static",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the whole site into this folder as plain files for any web host, and end.",
)
@click.option(
    "--url",
    default="",
    help="With --static: the address that the files will have, e.g. https://example.org/encoders. The feed "
    "of new records needs it; without it none is written.",
)
def command(
    results: tuple[Path, ...],
    suites: tuple[str, ...],
    host: str,
    port: int,
    refresh: float,
    static: Path | None,
    url: str,
) -> int:
    """Open the leaderboard over results folders: what was measured, imported and reported."""
    from leaderboard.web.settings import from_environment

    _check(url, static)
    settings = from_environment(results, suites=suites, refresh=refresh, static=static is not None)
    _say_what_is_missing(settings)
    if static is None:
        return _serve(settings, host, port)
    from leaderboard.web.static_site import write_site

    click.echo(BUILDING, err=True)
    return write_site(settings, static, url)


BUILDING = "Bringing the index up to date…"

SWITCH = 0.0005
"""Seconds that a thread which makes a page may keep the one waiting that sends pages."""


def _check(url: str, static: Path | None) -> None:
    if url and static is None:
        raise UsageError("--url is for --static: a server sees its address.", hint="Leave --url out.")
    if url and not url.startswith(("https://", "http://")):
        raise UsageError(
            f"--url is {url!r}, no web address.", hint="For example https://example.org/encoders."
        )


def _say_what_is_missing(settings: Settings) -> None:
    if not settings.home.is_dir():
        some = settings.reference or settings.reported
        left = "only the reference records and the papers are shown" if some else "nothing is shown"
        click.echo(f"There is no ./{settings.home}: {left}.", err=True)


def _serve(settings: Settings, host: str, port: int) -> int:
    import socket

    import uvicorn

    from leaderboard.web.app import create_app

    try:
        bound = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise UsageError(f"Cannot listen on {host}:{port}: {_why(error)}.", hint=_hint(error)) from None
    with bound:
        click.echo(BUILDING, err=True)
        app = create_app(settings)
        entries = len(app.state.site.queries.entries)
        at = f"[{host}]" if ":" in host else host
        click.echo(f"{entries:,} entries. Open http://{at}:{bound.getsockname()[1]}  (Ctrl-C ends)", err=True)
        sys.setswitchinterval(SWITCH)
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, lifespan="on"
        )
        uvicorn.Server(config).run(sockets=[bound])
    return 0


def _why(error: OSError) -> str:
    """The reason alone: Python adds the address, which the message has already."""
    return (error.strerror or str(error)).partition(" (")[0]


def _hint(error: OSError) -> str:
    if error.errno in (errno.EADDRINUSE, errno.EACCES):
        return "Choose another one with --port."
    return "--host takes an address of this machine: 127.0.0.1 for itself alone, 0.0.0.0 for all."
