"""How a site runs: options of `harness serve`, the environment, and the copy of a remote's records."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.core import files
from harness.core.errors import UsageError
from harness.storage.remote_and_leases import ObjectInfo, Remote
from harness.storage.store import SharedRecords, Store

PAGES_A_MINUTE = 1200


@dataclass(frozen=True, kw_only=True)
class SiteSettings:
    """How a site runs.

    Attributes:
        results: Results folders, that of the remote's copy last.
        remote: The URL of object storage whose records are shown, too; empty for none.
        reference: Records that come with a checkout, None without one.
        reported: The papers' tables, None without a checkout.
        snapshots: Where snapshots lie; None for the cache.
        refresh: Seconds between two looks at the folders; 0 for none after the start.
        pages_a_minute: Pages that one client may have rendered; pages from the cache cost nothing.
        cache_bytes: How much compressed pages may take.
        url: The address that readers type, for badges; empty where it is not known.
        suites: Suites of one's own, as --suite takes them: they have pages and means as the named ones do.
        keep: How many snapshots are kept for those who cite them, at most.
    """

    results: tuple[Path, ...]
    remote: str = ""
    reference: Path | None = None
    reported: Path | None = None
    snapshots: Path | None = None
    refresh: float = 30
    pages_a_minute: int = PAGES_A_MINUTE
    cache_bytes: int = 32 << 20
    url: str = ""
    suites: tuple[str, ...] = ()
    keep: int = 100


def read_site_settings(results: Sequence[Path] = (), *, remote: str = "", **others: object) -> SiteSettings:
    """Settings from the environment (`HARNESS_PAGES_A_MINUTE`, `HARNESS_RESULTS`), options going first.

    Raises:
        UsageError: A variable does not hold what it should, or a folder that was named is not there.
    """
    pages = os.environ.get("HARNESS_PAGES_A_MINUTE") or str(PAGES_A_MINUTE)
    if not pages.isdecimal() or int(pages) < 1:
        hint = f"For example HARNESS_PAGES_A_MINUTE={PAGES_A_MINUTE}."
        raise UsageError(f"HARNESS_PAGES_A_MINUTE is {pages!r}, not a whole number above 0.", hint=hint)
    values: dict[str, object] = {
        "results": _resolve_results_folders(results, remote),
        "remote": remote,
        "reference": files.find_reference_folder(),
        "reported": files.find_reported_folder(),
        "pages_a_minute": int(pages),
    }
    return SiteSettings(**{**values, **others})  # type: ignore[arg-type]


def _resolve_results_folders(results: Sequence[Path], remote: str) -> tuple[Path, ...]:
    """The results folders; only ./results, which nobody named, may be missing; a remote takes its place."""
    named = bool(results or os.environ.get("HARNESS_RESULTS"))
    folders = tuple(files.resolve_home_path(path) for path in results)
    if named or not remote:
        folders = folders or (files.resolve_results_folder(),)
    for folder in folders if named else ():
        if not folder.is_dir():
            hint = f"Name a folder that exists; `harness run --results {folder} …` makes this one."
            raise UsageError(f"There is no folder {folder}.", hint=hint)
    return (*folders, copy_folder(remote)) if remote else folders


def copy_folder(url: str) -> Path:
    """The results folder in the cache that has the copy of a URL."""
    return files.resolve_cache_folder() / "remote" / hashlib.sha256(url.encode()).hexdigest()[:16]


class RemoteCopy:
    """The copy of a remote's records; several processes may have the same one."""

    def __init__(self, url: str) -> None:
        """Name the copy; nothing is fetched.

        Raises:
            UsageError: The URL is none of a known kind.
        """
        self._records = SharedRecords(Remote(url), Store(copy_folder(url)))
        self._known: Mapping[str, ObjectInfo] = {}

    def pull(self) -> int:
        """Fetch what is new or has changed, remove what is gone; returns the number of fetched records.

        Raises:
            StoreError: The remote cannot be read, or the cache cannot be written.
        """
        changes = self._records.compare_records(self._known)
        # Records that the remote does not have: in a copy of it they are gone.
        for path in changes.send:
            path.unlink(missing_ok=True)
        fetched = self._records.fetch(changes.fetch)
        # Only after the fetch: if that fails, the next pull tries the same objects again.
        self._known = changes.objects
        return fetched
