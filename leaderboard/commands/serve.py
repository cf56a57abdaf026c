"""`harness serve`: the leaderboard as a web site, or as plain files."""

from __future__ import annotations

import errno
import gc
import socket
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import click

from harness.commands.options import Amount, process_cache, site_results
from harness.core.errors import UsageError
from leaderboard.data.settings import SiteSettings, read_site_settings

PATIENCE = 60
"""Seconds that a busy worker may take to show that it lives before it is replaced."""


@click.command("serve")
@site_results
@process_cache
@click.option("--remote", default="", metavar="URL", help="Show the records of object storage, e.g. "
              "s3://BUCKET/FOLDER. They are fetched at the start and at every refresh; ./results is then "
              "shown only if it is named.")  # fmt: skip
@click.option("--suite", "suites", multiple=True, metavar="SUITE", help="A suite of your own to show as "
              "well, e.g. code:FOLDER or local:FOLDER. Repeat for several.")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535),
              help="The port; 0 for any free one.")  # fmt: skip
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1, 64),
              help="Server processes; for many readers one for each core.")  # fmt: skip
@click.option("--refresh", default=30.0, show_default=True, type=Amount(), help="Seconds between two looks "
              "at the folders; 0 for none after the start.")  # fmt: skip
@click.option("--keep", default=100, show_default=True, type=click.IntRange(0),
              help="The most snapshots that are kept for citations.")  # fmt: skip
@click.option("--static", type=click.Path(path_type=Path, file_okay=False), help="Write the whole site into "
              "this folder as plain files for any web host, and end.")  # fmt: skip
@click.option("--url", default="", help="The address that readers type, e.g. https://example.org/encoders; "
              "badges and citations hold it.")  # fmt: skip
def command(
    results: tuple[Path, ...],
    remote: str,
    suites: tuple[str, ...],
    host: str,
    port: int,
    workers: int,
    refresh: float,
    keep: int,
    static: Path | None,
    url: str,
) -> int:
    """Open the leaderboard over results folders: what was measured, imported and reported."""
    if url and not url.startswith(("https://", "http://")):
        hint = "It begins with https:// or http://, as https://example.org/encoders does."
        raise UsageError(f"--url is {url!r}, no web address.", hint=hint)
    overrides = {"suites": suites, "refresh": refresh, "url": url.rstrip("/"), "keep": keep}
    settings = read_site_settings(results, remote=remote, **overrides)
    if not remote and not settings.results[0].is_dir():
        some = settings.reference or settings.reported
        left = "only the reference records and the papers are shown" if some else "nothing is shown"
        click.echo(f"No folder ./{settings.results[0]} exists: {left}.", err=True)
    if static is None:
        try:
            _serve(settings, host, port, workers)
        except KeyboardInterrupt:
            # Only a signal ends the server, which has nothing to go on from.
            click.echo("\nThe leaderboard has stopped.", err=True)
        return 130
    from leaderboard.web.site import write_site

    _report_refresh(settings)
    return write_site(settings, static)


def _report_refresh(settings: SiteSettings) -> None:
    first = f"Fetching the records of {settings.remote}, then bringing" if settings.remote else "Bringing"
    click.echo(f"{first} the snapshot up to date…", err=True)


def _serve(settings: SiteSettings, host: str, port: int, workers: int) -> None:
    options: dict[str, Any] = {"http": "leaderboard.web.middleware:TimedProtocol", "log_level": "warning"}
    options |= {"access_log": False, "server_header": False}
    # Before the snapshot, which may take minutes: that a port is taken is said at once.
    with _bind_socket(host, port) as listening:
        _report_refresh(settings)
        # A start makes many objects and no garbage: the collector would search them in vain, again and again.
        gc.disable()
        try:
            import uvicorn
            from uvicorn.supervisors import Multiprocess

            from leaderboard.web import app
            from leaderboard.web.site import open_site

            site = open_site(settings, at_once=True)
        finally:
            gc.enable()
        url_host = f"[{host}]" if ":" in host else host
        entries, address = site.queries.count_entries(), f"http://{url_host}:{listening.getsockname()[1]}"
        # A change since the earlier start is not there yet.
        earlier = " as at the last start; what is new follows in a moment" if site.is_stale else ""
        click.echo(f"{entries:,} entries{earlier}. Open {address}  (Ctrl-C ends)", err=True)
        if workers == 1:
            uvicorn.Server(uvicorn.Config(app.create_app(settings, site), **options)).run(sockets=[listening])
            return
        ends = Event()
        # This process alone writes snapshots; the workers look for the newest one.
        refresher = Thread(target=app.poll_changes, args=[site, ends])
        refresher.start()
        worker = partial(app.create_app, settings, follows=True)
        options |= {"workers": workers, "timeout_worker_healthcheck": PATIENCE}
        config = uvicorn.Config(worker, factory=True, **options)
        try:
            Multiprocess(config, sockets=[listening]).run()
        finally:
            ends.set()
            refresher.join()


def _bind_socket(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        # Python adds the address in brackets, which the message has already.
        reason = (error.strerror or str(error)).partition(" (")[0]
        # EACCES: ports below 1024 need rights.
        port_conflict = error.errno in (errno.EADDRINUSE, errno.EACCES)
        hint = "--host takes an address of this machine: 127.0.0.1 for itself alone, 0.0.0.0 for all."
        message = f"Cannot listen on {host}:{port}: {reason}."
        raise UsageError(message, hint="Choose another one with --port." if port_conflict else hint) from None
