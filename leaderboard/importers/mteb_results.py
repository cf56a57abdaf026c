"""Importing the public results repository of mteb: its main scores and its model cards.

Three tables come out (`harness.imported`): `entries`, `files` and `scores`. `files` is the manifest
of a refresh: only files of another size or time than in the former import are read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import imported
from harness.errors import UsageError
from harness.imported import Imported
from leaderboard.importers import _mteb_former as former
from leaderboard.importers._mteb_former import Former
from leaderboard.importers._mteb_scan import Found, commit_of, digest_of, results_of, scan

if TYPE_CHECKING:
    from leaderboard.importers._mteb_pool import Progress

SOURCE = "mteb-results"

PARSER = 2
"""The version of the reading of files: another one reads all of them again."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What an import did.

    Attributes:
        imported: The import as it stands now.
        changed: Whether its tables were written.
        read: Files that were read, new and changed ones.
        unchanged: Files that were not, as they are what they were.
        removed: Files of the former import that are gone.
    """

    imported: Imported
    changed: bool
    read: int
    unchanged: int
    removed: int


def import_results(
    path: Path, results: Path, *, workers: int | None = None, progress: Progress | None = None
) -> Outcome:
    """Import a checkout of the repository into a results folder, or refresh the import there.

    Running it again after it was stopped begins anew; the former import stands until the last step.

    Args:
        path: The checkout, or its `results` folder.
        results: The results folder.
        workers: Processes that read files; None means one for each core.
        progress: Told how many files were read.

    Raises:
        UsageError: There are no results at `path`, or another import is at work.
        StoreError: The results folder cannot be written.
        RecordError: The import there is of a newer schema.
    """
    root = results_of(path)
    found = scan(root)
    if not any(not file.problem for file in found):  # nothing is made for a wrong path
        raise UsageError(
            f"{path} holds no results of mteb.",
            hint="They lie at <model>/<revision>/<Task>.json, here or in `results` below.",
        )
    folder = imported.Imported.home(results, SOURCE)
    with imported.Imported.lock(folder):
        standing = imported.Imported.read(folder)
        digest = digest_of(found)
        told = {"commit": commit_of(root), "scan": digest}
        if standing is None or not former.usable(standing, versions()):
            return _refreshed(folder, root, found, None, told, workers, progress)
        if former.stands(standing, digest):
            return _unchanged(standing, told, read=0, of=len(found))
        return _refreshed(folder, root, found, former.read(standing), told, workers, progress)


def versions() -> Mapping[str, Any]:
    """What decides how files are read."""
    return {"parser": PARSER}


def _refreshed(
    folder: Path,
    root: Path,
    found: list[Found],
    before: Former | None,
    told: Mapping[str, Any],
    workers: int | None,
    progress: Progress | None,
) -> Outcome:
    """Read what is new, and what could not be read before; write the tables if that changed them."""
    from leaderboard.importers._mteb_pool import parse

    known = before.files if before else {}
    others = [file for file in found if (row := known.get(file.path)) is None or not row.same(file)]
    again = [file for file in found if file.path in known and known[file.path].passing]
    read = sorted({file.path for file in (*others, *again) if not file.problem})
    parsed = parse(root, read, workers, progress) if read else []
    gone = len(known.keys() - {file.path for file in found})
    if before and not others and not gone and all(one.problem for part in parsed for one in part.told):
        return _unchanged(before.imported, told, read=len(read), of=len(found))
    from leaderboard.importers._mteb_tables import tables_of

    tables, facts = tables_of(found, read, parsed, before)
    now = imported.Imported.publish(folder, tables, {**told, **facts}, versions())
    return Outcome(imported=now, changed=True, read=len(read), unchanged=len(found) - len(read), removed=gone)


def _unchanged(now: Imported, told: Mapping[str, Any], *, read: int, of: int) -> Outcome:
    """The import as it stands, with the commit it is of now."""
    if now.stamp.get("commit") != told["commit"]:
        now = now.restamp({"commit": told["commit"]})
    return Outcome(imported=now, changed=False, read=read, unchanged=of - read, removed=0)
