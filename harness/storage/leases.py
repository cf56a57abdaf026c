"""Leases: several processes and hosts share work without doing it twice, and without a common clock.

A lease is a small object, created only if it is absent, that names its holder. However many leases a holder
has, it has one object of its own, in which it counts upward every quarter of a term. A process that wants a
lease takes it once it has seen the holder's object unchanged for a term of its own monotonic clock, or at
once where the holder is known to be a dead process of this host. Clocks of hosts are never compared.

Leases only save work. Records are put if absent, so two holders of one lease corrupt nothing.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

from harness.core.errors import StoreError
from harness.storage.remote import Remote

TERM = 90.0
"""Seconds without a sign of life after which a lease lapses; the same for all who share a place."""

LEASE, HOLDER = ".json", ".holder"
"""The ends of the names of leases and of their holders' objects."""


class Leases:
    """The leases of this process in a folder or in object storage; closed, they are released.

    For a lease that another process holds, `claim` is called again from time to time: the first call begins
    to observe the holder, and a call that comes a term later, without a sign of life in between, takes the
    lease over.

    Args:
        place: A folder, or object storage.
        term: Seconds without a sign of life after which a lease lapses.
    """

    def __init__(self, place: Path | Remote, *, term: float = TERM) -> None:
        local = isinstance(place, Path)
        self._remote = Remote(f"file://{place.absolute()}") if isinstance(place, Path) else place
        self._folder = "" if local else "leases/"
        self._term = term
        self._token = secrets.token_hex(8)
        self._own_name = f"{self._folder}{self._token}{HOLDER}"
        self._count = self._renewals = 0
        self._held: dict[str, bytes] = {}
        self._seen: dict[str, tuple[bytes | None, float]] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def claim(self, key: str) -> bool:
        """Take the lease on `key`; False as long as another holds it, or might.

        Raises:
            StoreError: The place cannot be read or written.
        """
        if key in self._held:
            return True
        # A lease that was released and taken again must differ from the first one: others compare contents.
        self._count += 1
        content = json.dumps({"holder": self._token, "number": self._count}).encode()
        name = f"{self._folder}{key}{LEASE}"
        if not self._remote.create(name, content):
            # Taken before the read: see `_has_lapsed`.
            began = time.monotonic()
            lease = self._remote.read_object(name)
            if lease is None or not self._has_lapsed(name, lease, began):
                return False  # what has just been released the next call takes
            if not self._remote.compare_and_swap(name, content, seen=lease):
                return False
        self._held[key] = content
        self._keep_renewing()
        return True

    def release(self, key: str) -> None:
        """Release the lease on `key`, unless another process has taken it over.

        Raises:
            StoreError: The place cannot be written.
        """
        content = self._held.pop(key, None)
        if content is not None:
            self._remote.compare_and_swap(f"{self._folder}{key}{LEASE}", None, seen=content)

    def release_leases(self) -> None:
        """Release all leases; what cannot be released lapses after a term."""
        # The thread ends first, or it would write the holder's object again after it was removed.
        self._stop.set()
        if self._thread is not None:
            self._thread.join(self._term / 10)  # it may wait for storage that is away
        with suppress(StoreError):
            for key in tuple(self._held):
                self.release(key)
            if self._renewals:
                self._remote.remove(self._own_name)

    def _has_lapsed(self, name: str, lease: bytes, began: float) -> bool:
        """Whether nobody holds a lease any more, as far as this process has seen.

        Args:
            name: Its name.
            lease: Its content.
            began: A time on the monotonic clock at which it had not yet been read: this process may be
                stopped at any point, so what it sees is at least as old.
        """
        token = _parse_holder(lease)
        # A damaged lease names no holder; then the lease itself is watched.
        shown = f"{self._folder}{token}{HOLDER}" if token else name
        content = self._remote.read_object(shown) if token else lease
        # Another host's clock is never read: this process watches the object for a whole term by its own.
        seen = self._seen.get(shown)
        if seen is None or content not in (None, seen[0]):  # that it vanishes is no sign of life
            seen = self._seen[shown] = (content, time.monotonic())
        return _is_dead(content) or began - seen[1] >= self._term

    def _keep_renewing(self) -> None:
        if self._thread is None:
            # The first sign of life at once: the thread gives one only after a quarter of a term.
            self._renew()
            self._thread = threading.Thread(target=self._renew_on, name="leases", daemon=True)
            self._thread.start()

    def _renew_on(self) -> None:
        # Four renewals a term: three in a row may fail before the lease lapses.
        while not self._stop.wait(self._term / 4):
            with suppress(StoreError):  # where it cannot show life, others may do the same work
                self._renew()

    def _renew(self) -> None:
        self._renewals += 1
        process = {"host": _read_host_identity(), "pid": os.getpid(), "start": _start(os.getpid()) or 0}
        content = json.dumps({**process, "renewals": f"{self._renewals:012}"}).encode()
        self._remote.replace(self._own_name, content)


def _parse_holder(lease: bytes) -> str:
    """The name of a lease's holder; empty for a damaged lease."""
    with suppress(ValueError, TypeError, KeyError):
        token = json.loads(lease)["holder"]
        return token if isinstance(token, str) and token.isalnum() else ""
    return ""


def _is_dead(holder: bytes | None) -> bool:
    """Whether the process in a holder's object is known to be dead: of this host, and gone."""
    try:
        fields = json.loads(holder or b"")
        host, pid, start = str(fields["host"]), int(fields["pid"]), int(fields["start"])
    except (ValueError, TypeError, KeyError, OverflowError):
        return False
    if not host or host != _read_host_identity() or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # another user's
    # Process numbers are used again: a process with another start is a new one, and the holder is dead.
    now = _start(pid)
    return now is not None and start > 0 and now != start


def _read_host_identity() -> str:
    """The host of this process; empty if not all that tells it from others is known.

    Containers may share a name, hosts of one image as well: the kernel's boot and the name spaces of process
    numbers and of times make the difference. /proc may be that of another name space.
    """
    try:
        if os.readlink("/proc/self") != str(os.getpid()):
            return ""
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        spaces = [os.readlink("/proc/self/ns/pid"), "-"]
        with suppress(FileNotFoundError):  # a kernel without it
            spaces[1] = os.readlink("/proc/self/ns/time")
    except OSError:
        return ""
    return " ".join([boot, *spaces, socket.gethostname()]) if boot else ""


def _start(pid: int) -> int | None:
    """The start of a process of this name space, in clock ticks since that of the host; None if unknown."""
    try:
        # The second field is the program's name in parentheses, which may hold blanks and parentheses, so
        # fields are counted behind the last ")": starttime, number 22, is then the 20th (proc_pid_stat(5)).
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        return int(stat.rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def locate_holder_file(path: Path) -> Path:
    """The file of the holder of a lease's file, or that file itself."""
    with suppress(OSError):
        if path.suffix == LEASE and (token := _parse_holder(path.read_bytes())):
            return path.with_name(f"{token}{HOLDER}")
    return path


def has_dead_holder(path: Path) -> bool:
    """Whether the holder of a lease's file, or of a holder's file, is known to be dead."""
    try:
        return _is_dead(locate_holder_file(path).read_bytes())
    except OSError:
        return False


def sweep_leases(folder: Path) -> None:
    """Remove what dead processes of this host have left in a folder, holders' files last."""
    files = [*folder.glob(f"*{LEASE}"), *folder.glob(f"*{HOLDER}")]
    # All are judged before the first is removed, since a lease is judged by its holder's file. Holders' files
    # come last: after a kill halfway the leases that are left can still be judged.
    for path in [path for path in files if has_dead_holder(path)]:
        with suppress(OSError):
            path.unlink(missing_ok=True)
