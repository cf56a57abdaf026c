"""`harness import`: scores that others published, as they stand there, beside one's own."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.commands import options

if TYPE_CHECKING:
    from leaderboard.data.mteb_import import Outcome

TRUST = {
    "commit": "of a pinned commit",
    "external": "told by the makers of the model",
    "none": "of no known revision",
    "other": "of a revision that is no commit",
}
NEXT = "Next: harness serve"

SHOWN = 5
"""Files and scores that are named on a terminal; the stamp names more."""


@click.group("import")
def command() -> None:
    """Import scores that others published; they never mix with measured ones."""


@command.command("mteb-results")
@click.argument("path", type=click.Path(path_type=Path))
@options.results
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=None,
    metavar="N",
    help="Processes that read files (default: one for each core).",
)
@options.as_json
def mteb_results(path: Path, results: Path | None, workers: int | None, as_json: bool) -> int:
    """Import a checkout of mteb's public results repository, or refresh what was imported.

    PATH is the checkout or its `results` folder. Typed again, only new and changed files are read.
    """
    from harness import paths
    from leaderboard.data.mteb_import import import_results
    from leaderboard.data.snapshot import open_index
    from leaderboard.web.settings import from_environment

    began = time.perf_counter()
    with _progress(quiet=as_json) as tell:
        done = import_results(
            paths.expanded(path), paths.results_folder(results), workers=workers, progress=tell
        )
    seconds = time.perf_counter() - began
    open_index(from_environment([results] if results else [])).refresh()
    indexed = time.perf_counter() - began - seconds
    if as_json:
        click.echo(json.dumps({**_document(done, seconds), "seconds_index": round(indexed, 3)}, indent=1))
    else:
        then = f"{NEXT} --results {shlex.quote(str(results))}" if results else NEXT
        for line in (*_lines(done, seconds), f"The site's index is up to date ({indexed:.1f} s)", then):
            click.echo(line)
    return 0


def _document(done: Outcome, seconds: float) -> dict[str, object]:
    return {
        "schema": 1,
        "folder": str(done.imported.folder),
        "changed": done.changed,
        "read": done.read,
        "unchanged": done.unchanged,
        "removed": done.removed,
        "seconds": round(seconds, 3),
        "import": dict(done.imported.stamp),
    }


def _lines(done: Outcome, seconds: float) -> Iterator[str]:
    """What a person wants to know."""
    counts, stamp = done.imported.counts, done.imported.stamp
    commit = f", commit {stamp['commit'][:12]}" if stamp.get("commit") else ""
    yield f"{done.imported.source}{commit} in {done.imported.folder}"
    what = f"{done.read:,} files read, {done.unchanged:,} unchanged, {done.removed:,} removed"
    yield f"  {what if done.changed else 'Nothing is new'} ({seconds:.1f} s)"
    yield (
        f"  {counts['models']:,} models, {counts['entries']:,} entries, "
        f"{counts['files']:,} files, {counts['rows']:,} scores"
    )
    yield from (f"  {counts['trust'][kind]:>6,} entries {said}" for kind, said in TRUST.items())
    if counts["no_score"]:
        yield f"  {counts['no_score']:,} rows without a main score"
    yield from _named(counts["impossible"], "impossible scores", stamp["impossible"], "main_score")
    yield from _named(counts["unreadable"], "unreadable files", stamp["unreadable"], "problem")


def _named(count: int, what: str, rows: list[dict[str, object]], why: str) -> Iterator[str]:
    """How many there are, and the first of them."""
    if not count:
        return
    yield f"  {count:,} {what}" + (f", the first {SHOWN}:" if count > SHOWN else ":")
    for row in rows[:SHOWN]:
        path = "".join(c if c.isprintable() else "?" for c in str(row["path"]))
        yield f"    {path}: {'not finite' if row[why] is None else row[why]}"


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error, nothing where that is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("files"), BarColumn(bar_width=30), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=quiet or not sys.stderr.isatty()
    ) as shown:
        bar = shown.add_task("files", total=None)
        yield lambda done, total: shown.update(bar, completed=done, total=total)
