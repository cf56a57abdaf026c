"""`harness import`: scores that others published, beside one's own."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from harness.commands import options
from harness.core import files
from harness.core.terminal import clean_text, show_progress

_TRUST = {
    "commit": "of a commit",
    "external": "stated by the makers of the model",
    "none": "of no known revision",
    "other": "of a revision that is no commit",
}
_LISTED = 5


@click.group("import")
def command() -> None:
    """Import scores that others published; they never mix with measured ones."""


@command.command("mteb-results")
@click.argument("path", type=click.Path(path_type=Path))
@options.results
@click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Processes that read files "
              "(default: one for each core).")  # fmt: skip
@options.as_json
def _import_mteb_results(path: Path, results: Path | None, workers: int | None, as_json: bool) -> int:
    """Import a checkout of mteb's public results repository, or refresh what was imported.

    PATH is the checkout or its `results` folder. Typed again, only new and changed files are read.
    """
    # Not at the top: pyarrow loads slowly, and the help does without it.
    from leaderboard.data.mteb_import import import_results

    began = time.perf_counter()
    with show_progress("files", quiet=as_json) as progress:
        done = import_results(
            files.resolve_home_path(path),
            files.resolve_results_folder(results),
            workers=workers,
            progress=progress,
        )
    document: dict[str, Any] = {
        "schema": 1, "folder": str(done.imported.folder), "changed": done.changed, "read": done.read,
        "unchanged": done.unchanged, "removed": done.removed,
        "seconds": round(time.perf_counter() - began, 3), "import": dict(done.imported.stamp),
    }  # fmt: skip
    if as_json:
        click.echo(json.dumps(document, indent=1))
        return 0
    for line in _describe_import(document, document["import"]):
        click.echo(line)
    click.echo("Next: harness serve" + (f" --results {shlex.quote(str(results))}" if results else ""))
    return 0


def _describe_import(done: Mapping[str, Any], stamp: Mapping[str, Any]) -> Iterator[str]:
    counts = stamp["counts"]
    commit = f", commit {stamp['commit'][:12]}" if stamp.get("commit") else ""
    yield f"{stamp['source']}{commit} in {done['folder']}"
    files = f"{done['read']:,} files read, {done['unchanged']:,} unchanged, {done['removed']:,} removed"
    yield f"  {files if done['changed'] else 'Nothing is new'} ({done['seconds']:.1f} s)"
    numbers = (f"{counts[name]:,} {name}" for name in ("models", "entries", "files"))
    yield f"  {', '.join(numbers)}, {counts['rows']:,} scores"
    yield from (f"  {counts['trust'][kind]:>6,} entries {text}" for kind, text in _TRUST.items())
    if counts["no_score"]:
        yield f"  {counts['no_score']:,} rows without a main score"
    yield from _list_bad_files(counts["impossible"], "impossible scores", stamp["impossible"], "main_score")
    copies = (counts["contradicting"], "copies with other scores", stamp["contradicting"], "problem")
    yield from _list_bad_files(*copies)
    yield from _list_bad_files(counts["unreadable"], "unreadable files", stamp["unreadable"], "problem")


def _list_bad_files(count: int, what: str, rows: list[dict[str, Any]], why: str) -> Iterator[str]:
    if count:
        yield f"  {count:,} {what}" + (f", the first {_LISTED}:" if count > _LISTED else ":")
    for row in rows[:_LISTED]:
        path = clean_text(str(row["path"]), line=True)
        yield f"    {path}: {'not finite' if row[why] is None else row[why]}"
