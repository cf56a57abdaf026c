"""`harness audit`: compare results and caches with what was written, and repair what is damaged."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from harness.commands import options
from harness.core import paths
from harness.core.errors import UsageError
from harness.core.terminal import create_console
from harness.data.locate import format_size
from harness.results.audit import AREAS, Audit, Fault, audit


@click.command("audit")
@options.results
@options.cache
@click.option(
    "--repair",
    is_flag=True,
    help="Move damaged records and models aside; remove damaged caches and what is stale.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Also refuse records that contradict themselves or each other, as for records from others.",
)
@options.as_json
def command(results: Path | None, cache: Path | None, repair: bool, strict: bool, as_json: bool) -> int:
    """Read every record, per-example file, trained model and cached file, and name what is damaged or stale.

    A record that was moved aside is measured again by the next run, a model trained again; a cache
    that was removed is made again. Ends with 0 if nothing is wrong (any more), else with 1.
    """
    # Without a check a misspelt folder would be found empty, and nothing wrong in it.
    if results is not None and not results.is_dir():
        raise UsageError(f"There is no folder {results}.", hint="See --results.")
    with _show_audit_progress(quiet=as_json) as progress:
        outcome = audit(
            paths.resolve_results_folder(results),
            paths.resolve_cache_folder(cache),
            repair=repair,
            strict=strict,
            progress=progress,
        )
    if as_json:
        click.echo(json.dumps({"schema": 1, **outcome.to_json()}, indent=1, ensure_ascii=False))
    else:
        for line in _describe_audit(outcome, repair=repair):
            click.echo(line)
    return 0 if outcome.clean else 1


def _describe_audit(outcome: Audit, *, repair: bool) -> Iterator[str]:
    yield f"{outcome.results} and {outcome.cache}"
    for area, title in AREAS.items():
        if outcome.files[area]:
            yield f"  {title}: {outcome.files[area]:,}, {format_size(outcome.bytes[area])}"
    if outcome.without_digest:
        yield f"  of {outcome.without_digest:,} records of older versions only the key could be checked"
    for fault in outcome.faults:
        yield f"✗ {fault.file}: {fault.reason}.{_repair_text(fault, repair=repair)}"
    # Faults without a repair are left even by --repair.
    left = sum(not fault.repaired for fault in outcome.faults)
    if not outcome.faults:
        yield "Nothing is wrong."
    elif repair:
        yield f"{len(outcome.faults) - left} of {len(outcome.faults)} faults are repaired."
    else:
        hint = " To repair: the same command with --repair." if any(f.repair for f in outcome.faults) else ""
        yield f"{left} fault{'' if left == 1 else 's'}.{hint}"


def _repair_text(fault: Fault, *, repair: bool) -> str:
    if fault.repaired:
        return {"remove": " Removed.", "move aside": " Moved aside."}[fault.repair]
    if repair or not fault.repair:
        return " It is left as it is."
    return {"remove": " --repair removes it.", "move aside": " --repair moves it aside."}[fault.repair]


@contextmanager
def _show_audit_progress(*, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar of bytes on a terminal."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    screen = create_console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        DownloadColumn(),
        TimeRemainingColumn(compact=True),
        console=screen,
        transient=True,
        disable=quiet or not screen.is_terminal,
    )
    task = bar.add_task("reading")
    with bar:
        yield lambda done, total: bar.update(task, completed=done, total=total)
