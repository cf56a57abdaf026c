"""`harness audit`: compare results and caches with what was written, and repair what is damaged."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from harness.checks.baselines import BASELINES, find_unpacked_problem
from harness.checks.outcome import CHECKS
from harness.commands import options
from harness.core import files
from harness.core.documents import DocumentFolder, read_content_file
from harness.core.errors import UsageError
from harness.core.keys import digest, serialize_canonical
from harness.core.terminal import show_progress
from harness.data.locate import format_size
from harness.executors.run_log import EVENTS, HEADER, HEADERS, HEARTBEAT, HEARTBEATS, iter_log_lines
from harness.fits.stored import FITS
from harness.proxy.document import PROXIES
from harness.results.audit import AREAS, Audit, Fault, FileKind, audit
from harness.results.notes import NOTES
from harness.watch.curves import CURVES
from harness.watch.grids import GRIDS
from harness.watch.state import WATCHES

STATE = "best.json"
"""The file of a grid that names its best weights and their hashes (finetune.glue.jobs)."""


def _read_grid_runs(path: Path) -> Mapping[str, Mapping[str, Any]]:
    runs: Mapping[str, Mapping[str, Any]] = read_content_file(path)["runs"]
    return runs


def _find_weight_problem(path: Path) -> str:
    try:
        sha256 = _read_grid_runs(path.with_name(STATE))[path.stem]["sha256"]
    except (OSError, ValueError, LookupError):
        return f"{STATE} does not name it"
    return "" if files.has_sha256(path, sha256) else f"its SHA-256 is not that in {STATE}"


def _find_cluster_problem(path: Path) -> str:
    """What is wrong with a file of clusters (finetune.cde.clusters): its identity, or its content."""
    import numpy as np
    from pyarrow import ArrowException, parquet

    try:
        table = parquet.read_table(path)
        about = json.loads(table.schema.metadata[b"clusters"])
        content = hashlib.sha256(table["cluster"].to_numpy().astype(np.int32).tobytes())
        content.update(table["similarity"].to_numpy().astype(np.float32).tobytes())
        content.update(serialize_canonical([about["tour"], about["facts"]]).encode())
        same = (content.hexdigest(), digest(about["identity"])) == (about["content"], path.parent.name)
    except (OSError, ValueError, LookupError, TypeError, ArrowException):
        return "it is truncated, or no table of clusters"
    return "" if same else "its content is not what was written"


def _find_snapshot_problem(folder: Path) -> str:
    """What is wrong with a snapshot of the site (leaderboard.data.snapshot)."""
    if not (folder / "current.json").exists():
        return ""  # nobody reads the rest, and the next start of a site begins again
    try:
        current = read_content_file(folder / "current.json")
        version = str(current["version"])
        broken = [
            name
            for name, (_, sha256) in current["files"].items()
            if not files.has_sha256(folder / version / name, sha256)
        ]
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return "it is incomplete, or its current.json has changed"
    return f"{version}/{broken[0]} is not what was written" if broken else ""


def _read_events(path: Path) -> None:
    if None in iter_log_lines(path):
        raise ValueError("a line of it has changed")


FOLDERS: tuple[DocumentFolder[Any], ...] = (BASELINES, CHECKS, CURVES, FITS, GRIDS, NOTES, PROXIES, WATCHES)

KINDS = (
    *(
        FileKind(
            "documents",
            f"{folder.folder}/*.json",
            folder.read_document_file,
            "move aside",
        )
        for folder in FOLDERS
    ),
    FileKind("baselines", "baselines/*/", find_unpacked_problem),
    FileKind("finetuned", f"finetuned/*/{STATE}", _read_grid_runs),
    FileKind("finetuned", "finetuned/*/*.safetensors", _find_weight_problem),
    FileKind("clusters", "clusters/*/clusters.parquet", _find_cluster_problem),
    *(FileKind("", f"clusters/*/{name}") for name in ("lease.json", "*.holder", "work/")),
    FileKind("site", "site/*/", _find_snapshot_problem),
    FileKind("logs", f"runs/*/{HEADER}", HEADERS.read_document_file),
    FileKind("logs", f"runs/*/{HEARTBEAT}", HEARTBEATS.read_document_file),
    FileKind("logs", f"runs/*/{EVENTS}", _read_events),
    FileKind("", f"runs/*/{HEARTBEAT}.new"),
)
"""The kinds of files of the storeys above the audit."""

SHOWN = 20
"""The most unknown files that are printed."""


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
    """Read every file of a results folder and a cache, and name what is damaged or stale.

    A record that was moved aside is measured again by the next run, a model trained again; a cache
    that was removed is made again. Files of no known kind are named and left. Ends with 0 if nothing
    is wrong (any more), else with 1.
    """
    # Without a check a misspelt folder would be found empty, and nothing wrong in it.
    if results is not None and not results.is_dir():
        raise UsageError(f"There is no folder {results}.", hint="See --results.")
    with show_progress("reading", quiet=as_json, in_bytes=True) as progress:
        outcome = audit(
            files.resolve_results_folder(results),
            files.resolve_cache_folder(cache),
            kinds=KINDS,
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
    for path in outcome.unknown[:SHOWN]:
        yield f"? {path}: no kind of file has such a name here. It is left as it is."
    if len(outcome.unknown) > SHOWN:
        yield f"? and {len(outcome.unknown) - SHOWN:,} more of no known kind."
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
