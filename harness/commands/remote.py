"""`harness remote`: copy records between a results folder and object storage that machines share."""

from __future__ import annotations

import json
from pathlib import Path

import click

from harness.commands import options
from harness.core import files
from harness.core.errors import UsageError
from harness.storage.remote_and_leases import Remote
from harness.storage.store import SharedRecords, Store

_url = click.argument("url", envvar="HARNESS_REMOTE", required=False, default=None)
_dry_run = click.option(
    "--dry-run", is_flag=True, help="Print how many records would be copied; copy nothing."
)


@click.group("remote")
def command() -> None:
    """Fetch records from object storage that machines share, and send them there.

    A run with --remote does so by itself for the records of its models. Vectors and trained models are
    copied by the runs that need or make them.
    """


@command.command("pull")
@_url
@options.results
@_dry_run
@options.as_json
def _pull(url: str | None, results: Path | None, dry_run: bool, as_json: bool) -> int:
    """Fetch every record that the results folder lacks; one that differs is replaced by the storage's.

    URL is that of --remote of a run (default: HARNESS_REMOTE).
    """
    shared = _open_shared_records(url, results)
    differences = shared.compare_records()
    # A mistyped URL is an empty place to object storage, which has no folders.
    if not differences.objects:
        raise UsageError(
            f"No records are in {shared.remote.url}.",
            hint="Check the URL: it is that of --remote of the runs, or of `harness remote push`.",
        )
    names = differences.fetch
    count = len(names) if dry_run else shared.fetch(names)
    _print_copy_count(shared, count, "Fetched", "Would fetch", dry_run=dry_run, as_json=as_json)
    return 0 if count == len(names) else 1


@command.command("push")
@_url
@options.results
@_dry_run
@options.as_json
def _push(url: str | None, results: Path | None, dry_run: bool, as_json: bool) -> int:
    """Send every record that the storage lacks, with the files beside it.

    URL is that of --remote of a run (default: HARNESS_REMOTE).
    """
    shared = _open_shared_records(url, results)
    files = shared.compare_records().send
    count = len(files)
    if not dry_run:
        # A URL that cannot be written to is named once, and not for every record.
        shared.remote.require_usable()
        count = sum(found is not None for found in shared.remote.map_concurrently(shared.send, files))
    _print_copy_count(shared, count, "Sent", "Would send", dry_run=dry_run, as_json=as_json)
    return 0 if count == len(files) else 1


def _open_shared_records(url: str | None, results: Path | None) -> SharedRecords:
    """The records of the storage and of the results folder.

    Raises:
        UsageError: No storage is named, or its URL cannot be used.
    """
    if not url:
        raise UsageError("No storage is named.", hint="Type its URL, e.g. s3://BUCKET/FOLDER.")
    remote = Remote(url)
    return SharedRecords(remote, Store(files.resolve_results_folder(results)))


def _print_copy_count(
    shared: SharedRecords, count: int, done: str, planned: str, *, dry_run: bool, as_json: bool
) -> None:
    if as_json:
        about = {"schema": 1, "remote": shared.remote.url, "dry_run": dry_run, "records": count}
        click.echo(json.dumps(about))
    else:
        click.echo(f"{planned if dry_run else done} {count:,} records ({shared.remote.url}).")
