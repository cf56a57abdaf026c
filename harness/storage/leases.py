"""Leases: several processes and hosts share work without doing it twice.

In a folder a lease is filelock's `SoftFileLease`: a file with the holder's process and host, which lapses at
once where that is a dead process of this host. In object storage it is a small object. A thread of the holder
renews it. Either lapses once a process that wants it has seen it unchanged for a term of its own monotonic
clock: clocks of hosts are never compared.

Leases only save work. Records are put if absent, so two holders of one lease corrupt nothing.
"""

from __future__ import annotations

import functools
import secrets
import threading
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import SoftFileLease, Timeout

from harness.core.errors import StoreError
from harness.core.files import write_error
from harness.storage.remote import Remote

TERM = 90.0
"""Seconds after which a lease lapses that nobody renews; the same for all who share a place."""

SUFFIX = ".lease"
"""The end of the name of a lease's file."""


class Leases:
    """The leases of this process in a folder or in object storage; closed, they are released.

    A lease that another holds is asked for again and again with `claim`, as seldom as one likes: the first
    call begins to observe it, and one that comes a term later, without a renewal in between, takes it over.

    Args:
        place: A folder, or object storage.
        term: Seconds without a renewal after which a lease lapses.
    """

    def __init__(self, place: Path | Remote, *, term: float = TERM) -> None:
        self._kind = _FolderLease if isinstance(place, Path) else _RemoteLease
        self._place = place
        self._term = term
        self._leases: dict[str, _FolderLease | _RemoteLease] = {}

    def claim(self, key: str) -> bool:
        """Take the lease on `key`; False as long as another holds it, or might.

        Raises:
            StoreError: The place cannot be read or written.
        """
        if key not in self._leases:
            self._leases[key] = self._kind(self._place, key, self._term)  # type: ignore[arg-type]
        return self._leases[key].claim()

    def release(self, key: str) -> None:
        """Release the lease on `key`; one that another process has taken over is left to it.

        Raises:
            StoreError: The place cannot be written.
        """
        if key in self._leases:
            self._leases.pop(key).release()

    def close(self) -> None:
        """Release all leases; what cannot be released lapses after a term."""
        for key in tuple(self._leases):
            with suppress(StoreError):
                self.release(key)


class _FolderLease:
    """A lease in a folder, which is made with its first lease."""

    def __init__(self, folder: Path, key: str, term: float) -> None:
        self._path = folder / f"{key}{SUFFIX}"
        # Released by the thread that ends the work, which need not be the one that began it.
        self._lock = SoftFileLease(self._path, lease_duration=term, thread_local=False)

    def claim(self) -> bool:
        if self._lock.is_locked:
            return True
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(blocking=False)
        except Timeout:
            return False
        except OSError as error:
            raise write_error(self._path, error) from error
        return True

    def release(self) -> None:
        try:
            self._lock.release()
        except OSError as error:
            raise write_error(self._path, error) from error


class _RemoteLease:
    """A lease in object storage, which its holder renews every quarter of a term."""

    def __init__(self, remote: Remote, key: str, term: float) -> None:
        self._remote = remote
        self._name = f"leases/{key}"
        self._term = term
        self._content = b""
        self._seen: tuple[bytes, float] = (b"", 0.0)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def claim(self) -> bool:
        if self._thread is not None:
            return True
        content, began = secrets.token_bytes(16), time.monotonic()
        if not self._remote.create(self._name, content):
            there = self._remote.read(self._name)
            if there is None:
                return False  # it has just been released; the next call takes it
            if there != self._seen[0]:
                self._seen = (there, time.monotonic())
            # What was read is at least as old as `began`, whenever this process was stopped since.
            lapsed = began - self._seen[1] >= self._term
            if not lapsed or not self._remote.exchange(self._name, content, seen=there):
                return False
        self._content = content
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()
        return True

    def _renew(self) -> None:
        while not self._stop.wait(self._term / 4):
            content = secrets.token_bytes(16)
            with suppress(StoreError):  # where it cannot be renewed, others may do the same work
                if not self._remote.exchange(self._name, content, seen=self._content):
                    return
                self._content = content

    def release(self) -> None:
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._remote.exchange(self._name, None, seen=self._content)


def has_dead_holder(path: Path) -> bool:
    """Whether the holder of a lease's file is known to be dead: a process of this host that is gone."""
    import psutil

    owner = SoftFileLease(path, lease_duration=TERM).owner
    return owner is not None and owner.hostname == _own_host() and not psutil.pid_exists(owner.pid)


@functools.cache
def _own_host() -> str:
    """This host as filelock names it in a lease, with the name space of process numbers."""
    with TemporaryDirectory() as folder, SoftFileLease(Path(folder, "own"), lease_duration=TERM) as lease:
        owner = lease.owner
        return owner.hostname if owner is not None else ""


def sweep_leases(folder: Path) -> None:
    """Remove the leases that dead processes of this host have left in a folder."""
    for path in folder.glob(f"*{SUFFIX}"):
        lease = _FolderLease(folder, path.name.removesuffix(SUFFIX), TERM)
        with suppress(StoreError):
            if lease.claim():
                lease.release()
