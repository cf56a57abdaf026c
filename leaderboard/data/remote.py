"""Records of object storage that a site shows: a copy of them in the cache, which follows what is there."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from harness.core import paths
from harness.storage.remote import ObjectInfo, Remote
from harness.storage.store import SharedRecords, Store


def copy_folder(url: str) -> Path:
    """The results folder in the cache that has the copy of a URL."""
    return paths.cache_folder() / "remote" / hashlib.sha256(url.encode()).hexdigest()[:16]


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
        changes = self._records.difference(self._known)
        for path in changes.send:
            path.unlink(missing_ok=True)
        fetched = self._records.fetch(changes.fetch)
        self._known = changes.objects
        return fetched
