"""`harness cache`: show and reduce the size of the cache."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path

import click

from harness.commands import options
from harness.core import files
from harness.core.errors import UsageError
from harness.data.locate import format_size
from harness.search.plaid import read_index_artifact

PARTS = {
    "vectors": "embeddings",
    "datasets": "prepared data sets",
    "source": "tasks built from source code, sizes and counts of data",
    "finetuned": "fine-tuned weights that others start from",
    "units": "scores taken apart for checks",
    "clusters": "clusters of training pairs",
    "plaid": "indexes of approximate searches",
    "verdicts": "outcomes of trial loads",
    "adapters": "folders of links to adapters and their base models",
    "objects": "models that Python gave as objects",
}


@click.group("cache")
def command() -> None:
    """Show and prune the cache: embeddings, prepared data, weights; records are never touched."""


@command.command("size")
@options.cache
@options.as_json
def _print_cache_size(cache: Path | None, as_json: bool) -> int:
    """Print where the cache is and how much lies in it."""
    root = files.resolve_cache_folder(cache)
    parts = {name: _count_folder_bytes(root / name) for name in PARTS}
    if as_json:
        click.echo(
            json.dumps({"schema": 1, "folder": str(root), "bytes": parts, "total": sum(parts.values())})
        )
        return 0
    click.echo(f"{root}: {format_size(sum(parts.values()))}")
    for name, amount in parts.items():
        click.echo(f"  {PARTS[name]}: {format_size(amount)}")
    return 0


@command.command("prune")
@options.cache
@click.option(
    "--older-than",
    type=options.Amount(),
    default=None,
    metavar="DAYS",
    help="Only folders that were not written to for so many days.",
)
@click.option(
    "--model",
    "artifact",
    default="",
    help="Only embeddings and indexes of the model whose key begins with this (six digits or more).",
)
@click.option("--dry-run", is_flag=True, help="Print what would be removed; remove nothing.")
@options.as_json
def _prune(cache: Path | None, older_than: float | None, artifact: str, dry_run: bool, as_json: bool) -> int:
    """Remove cached embeddings, indexes, prepared data and weights; a run makes again what it needs."""
    if artifact and not re.fullmatch("[0-9a-f]{6,64}", artifact):
        raise UsageError(
            f"{artifact!r} is not six or more digits of a model's key.",
            hint="`harness list records` shows keys, and a run prints them.",
        )
    root = files.resolve_cache_folder(cache)
    chosen = [
        f
        for f in _list_cache_folders(root, vectors_only=bool(artifact))
        if _is_prunable(f, older_than, artifact)
    ]
    freed = sum(_count_folder_bytes(folder) for folder in chosen)
    for folder in () if dry_run else chosen:
        shutil.rmtree(folder)
    if as_json:
        click.echo(json.dumps({"schema": 1, "removed": not dry_run, "folders": len(chosen), "bytes": freed}))
    else:
        click.echo(f"{'Would remove' if dry_run else 'Removed'} {len(chosen)} folders, {format_size(freed)}.")
    return 0


def _list_cache_folders(root: Path, *, vectors_only: bool) -> list[Path]:
    # Only these two say whose they are: with --model nothing else is removed.
    spaces = [*sorted((root / "vectors").glob("*/*")), *sorted((root / "plaid").glob("*"))]
    source = [root / "source"] if (root / "source").is_dir() else []
    parts = ("datasets", "finetuned", "clusters", "adapters", "objects")
    others = [folder for part in parts for folder in sorted((root / part).glob("*"))]
    return spaces if vectors_only else [*spaces, *others, *source]


def _is_prunable(folder: Path, older_than: float | None, artifact: str) -> bool:
    if older_than is not None:
        # The time of a folder changes with the names in it only, not when one of its files is written.
        # That of a link is its own: what it leads to may be gone.
        newest = max((f.lstat().st_mtime for f in folder.rglob("*")), default=folder.stat().st_mtime)
        # 86,400 seconds are a day.
        if time.time() - newest < older_than * 86_400:
            return False
    return not artifact or _read_artifact_key(folder).startswith(artifact)


def _read_artifact_key(folder: Path) -> str:
    """The key of the model whose vectors are in a folder or an index; empty if it cannot be read."""
    try:
        # Folders of vectors have a space.json; an index has its own manifest.
        return str(json.loads((folder / "space.json").read_text())["artifact"])
    except (OSError, ValueError, LookupError, TypeError):
        return read_index_artifact(folder)


def _count_folder_bytes(folder: Path) -> int:
    # The file behind a link lies elsewhere, and removing the link frees nothing of it.
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file() and not f.is_symlink())
