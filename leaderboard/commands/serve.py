"""`harness serve`: the leaderboard as a web site, or as plain files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.errors import UsageError

if TYPE_CHECKING:
    from leaderboard.settings import Settings


@click.command("serve")
@click.option(
    "--results",
    "results",
    multiple=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="A results folder to show (default: HARNESS_RESULTS, else ./results). Repeat for several; the first "
    "one takes pushed records.",
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
def command(results: tuple[Path, ...], host: str, port: int, refresh: float, static: Path | None) -> int:
    """Open the leaderboard over results folders: what was measured, imported and reported."""
    from leaderboard.settings import from_environment

    settings = from_environment(results, refresh=refresh, static=static is not None)
    if static is not None:
        from leaderboard.static_site import write_site

        return write_site(settings, static)
    return _serve(settings, host, port)


def _serve(settings: Settings, host: str, port: int) -> int:
    import socket

    import uvicorn

    from leaderboard.app import create_app

    try:
        bound = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise UsageError(
            f"Cannot listen on {host}:{port}: {error.strerror}.", hint="Choose another one with --port."
        ) from None
    app = create_app(settings)
    entries = len(app.state.site.queries.entries)
    at = f"[{host}]" if ":" in host else host
    click.echo(f"{entries} entries. Open http://{at}:{bound.getsockname()[1]}  (Ctrl-C ends)", err=True)
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, lifespan="on")
    server = uvicorn.Server(config)
    server.run(sockets=[bound])
    return 0
