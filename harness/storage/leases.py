"""Leases: work is shared between processes and hosts, without a common clock and without atomic renames.

A lease is a small file, made by exclusive creation, that names its holder; the holder has one file, in which
it counts upward every quarter of a term, however many leases it has. A process that wants a lease lets it
lapse once it has seen the holder's file unchanged for a term of its own monotonic clock, or at once where the
holder is known to be a dead process of this host. Wall clocks are never compared.

Leases only save work: records are put if absent, so two holders of one lease corrupt nothing. Nothing here
needs to be on disk when power fails.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import os
import secrets
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from harness.core.errors import StoreError
from harness.core.files import temporary_path, write_error

TERM = 90.0
"""Seconds after which a lease lapses whose holder shows no life; the same for all who share a place."""

LEASE, HOLDER, TAKING = ".json", ".holder", ".taking"
"""The ends of the names of leases, of their holders' files, and of the leases on taking over a lease."""


class LeasePlace(Protocol):
    """A place for small files: a folder, or a part of an object store.

    A file may be read half-written. Any method may raise a StoreError.
    """

    def create(self, name: str, content: bytes) -> bool:
        """Make a file; False if there is one. Of several at once exactly one succeeds."""

    def read(self, name: str) -> bytes | None:
        """The content of a file, None if there is none."""

    def replace(self, name: str, content: bytes, *, seen: bytes) -> bool:
        """Give a file another content; False if it is no longer `seen`, as far as the place can tell."""

    def remove(self, name: str, *, seen: bytes) -> bool:
        """Remove a file; False if it is no longer `seen`, as far as the place can tell."""

    def names(self) -> list[str]:
        """The names of all files."""


class LeaseFolder:
    """A folder as a place for leases, which is made with its first file.

    It needs exclusive creation, and neither links nor renames; nothing is flushed to disk.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def create(self, name: str, content: bytes) -> bool:
        """Make a file; False if there is one.

        Raises:
            StoreError: The folder cannot be made or written.
        """
        path = self.folder / name
        try:
            descriptor = self._new(path)
        except FileExistsError:
            return False
        except OSError as error:
            raise write_error(path, error) from error
        try:
            _fill(descriptor, content)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise write_error(path, error) from error
        return True

    def _new(self, path: Path) -> int:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        try:
            return os.open(path, flags, 0o666)
        except FileNotFoundError:
            self._make()
            return os.open(path, flags, 0o666)

    def _make(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:  # the folder's, not the file's, name is taken
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from error

    def read(self, name: str) -> bytes | None:
        """The content of a file, None if there is none.

        Raises:
            StoreError: It cannot be read.
        """
        try:
            return (self.folder / name).read_bytes()
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):
                return None
            raise _read_error(self.folder / name, error) from error

    def replace(self, name: str, content: bytes, *, seen: bytes) -> bool:
        """Give a file another content, in place; False if it is no longer `seen`.

        Raises:
            StoreError: It cannot be written.
        """
        path = self.folder / name
        if self.read(name) != seen:
            return False
        try:
            _fill(os.open(path, os.O_WRONLY), content)
        except FileNotFoundError:
            return False
        except PermissionError:  # another user's file, in a folder of both
            return self.remove(name, seen=seen) and self.create(name, content)
        except OSError as error:
            raise write_error(path, error) from error
        return True

    def remove(self, name: str, *, seen: bytes) -> bool:
        """Remove a file; False if it is no longer `seen`.

        Raises:
            StoreError: It cannot be removed.
        """
        path = self.folder / name
        if self.read(name) != seen:
            return False
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise write_error(path, error) from error
        return True

    def names(self) -> list[str]:
        """The names of leases, holders' files and others that end like them."""
        try:
            return [name for name in os.listdir(self.folder) if name.endswith((LEASE, HOLDER, TAKING))]
        except FileNotFoundError:
            return []


def _read_error(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"Cannot read {path}: {error.strerror}.",
        hint="Have it made readable, or choose another folder (--results DIR, --cache DIR).",
    )


def _fill(descriptor: int, content: bytes) -> None:
    """Give an open file its content, never empty in between, and close it."""
    try:
        os.write(descriptor, content)
        os.ftruncate(descriptor, len(content))
    finally:
        os.close(descriptor)


# Holders


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process that holds leases.

    Attributes:
        host: What tells its host, since its last start, and its name space from all others; empty if unknown.
        pid: Its number there.
        start: The clock ticks from the host's start to its own.
    """

    host: str
    pid: int
    start: int

    @classmethod
    def current(cls) -> Process:
        """This process."""
        return cls(host=_host(), pid=os.getpid(), start=_start(os.getpid()) or 0)

    @classmethod
    def parse(cls, holder: bytes | None) -> Process | None:
        """The process in the content of a holder's file; None if it is damaged or missing."""
        try:
            fields = json.loads(holder or b"")
            return cls(host=str(fields["host"]), pid=int(fields["pid"]), start=int(fields["start"]))
        except (ValueError, TypeError, KeyError, OverflowError):
            return None

    def alive(self) -> bool | None:
        """Whether it runs; None where this process cannot tell."""
        if not self.host or self.host != _host() or self.pid <= 0:
            return None
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except (OSError, OverflowError):
            pass  # another user's
        start = _start(self.pid)
        return None if start is None or not self.start else start == self.start


def _host() -> str:
    """The host of this process, empty if not all that tells it from others is known.

    Containers may share a name, hosts of one image as well: the kernel's boot and the name spaces of process
    numbers and of times make the difference. /proc may be that of another name space.
    """
    import socket

    try:
        if os.readlink("/proc/self") != str(os.getpid()):
            return ""
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        spaces = [os.readlink("/proc/self/ns/pid"), _link("/proc/self/ns/time")]
    except OSError:
        return ""
    return " ".join([boot, *spaces, socket.gethostname()]) if boot else ""


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except FileNotFoundError:  # a kernel without it
        return "-"


def _start(pid: int) -> int | None:
    """The start of a process of this name space, in clock ticks since that of the host; None if unknown."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        return int(stat.rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def _holder_of(lease: bytes | None) -> str | None:
    """The name of the file of a lease's holder; None of a damaged lease, or one of an earlier form."""
    try:
        token = json.loads(lease or b"")["holder"]
    except (ValueError, TypeError, KeyError):
        return None
    return f"{token}{HOLDER}" if isinstance(token, str) and token.isalnum() else None


# Leases


@dataclass(frozen=True, kw_only=True)
class _Sight:
    """What this process has seen of a file that shows whether a holder lives.

    Attributes:
        content: Its last content, None if it was never there.
        since: When that was first seen, in seconds of this process's monotonic clock.
        looked: When it was last looked at.
        lapsed: Whether it had been the same for a term then.
    """

    content: bytes | None
    since: float
    looked: float
    lapsed: bool


class Leases:
    """The leases of this process in a folder or another place; closed, they are released.

    A lease that another holds is asked for again and again with `claim`, as seldom as one likes: the first
    call begins to observe its holder, and one that comes a term later, without a sign of life in between,
    takes it over. What is not asked for is not observed.

    Args:
        place: A folder, or another place.
        term: Seconds without a sign of life after which a lease lapses.
    """

    def __init__(self, place: Path | LeasePlace, *, term: float = TERM) -> None:
        self.term = term
        self._place = _place(place)
        self._token = secrets.token_hex(8)
        self._holder = f"{self._token}{HOLDER}"
        self._count = 0
        self._renewals = 0
        self._renewed = time.monotonic()
        self._held: dict[str, bytes] = {}
        self._sights: dict[str, _Sight] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def claim(self, key: str) -> bool:
        """Take the lease on `key`; False as long as another holds it, or might.

        Raises:
            StoreError: The place cannot be read or written.
        """
        if self._thread and time.monotonic() - self._renewed > self.term / 2:
            self._renew()  # this process was stopped
        content = self._obtain(f"{key}{LEASE}")
        if content is None:
            return False
        self._held[key] = content
        self._keep_renewing()
        return True

    def held(self, key: str) -> bool:
        """Whether this process holds the lease on `key`, which it loses when it is stopped for a term.

        Raises:
            StoreError: The place cannot be read.
        """
        content = self._held.get(key)
        return content is not None and self._place.read(f"{key}{LEASE}") == content

    def release(self, key: str) -> None:
        """Release the lease on `key`; one that another process has taken over is left to it.

        Raises:
            StoreError: The place cannot be written.
        """
        content = self._held.pop(key, None)
        if content is not None:
            self._place.remove(f"{key}{LEASE}", seen=content)

    def close(self) -> None:
        """Release all leases and stop renewing; what cannot be released lapses after a term."""
        self._stop.set()
        if self._thread:
            self._thread.join()
        for key in tuple(self._held):
            with suppress(StoreError):
                self.release(key)
        with suppress(StoreError):
            if self._thread and (seen := self._place.read(self._holder)) is not None:
                self._place.remove(self._holder, seen=seen)

    @staticmethod
    def lapsed(path: Path) -> bool:
        """Whether the holder of a lease, or of a holder's file, is known to be dead, at a single look."""
        return _Look(LeaseFolder(path.parent)).alive(path.name) is False

    @staticmethod
    def sweep(place: Path | LeasePlace) -> None:
        """Remove what processes of this host that are known to be dead have left, at a single look.

        Of holders without leases all files go but those of living processes of this host: one that lives
        elsewhere makes its file again.
        """
        look = _Look(_place(place))
        names = look.place.names()
        leases = [name for name in names if not name.endswith(HOLDER)]
        dead = {name for name in leases if look.alive(name) is False}
        used = {_holder_of(look.read(name)) for name in leases if name not in dead}
        idle = {name for name in {*names} - {*leases} - used if look.alive(name) is not True}
        for name in (*dead, *idle):
            Leases(look.place)._remove(name, look.read(name))

    @staticmethod
    def discard(path: Path) -> None:
        """Remove a lease, or a holder's file, of a process that is known to be dead; a holder's file last."""
        look = _Look(LeaseFolder(path.parent))
        if look.alive(path.name) is False:
            Leases(look.place)._remove(path.name, look.read(path.name))

    @staticmethod
    def ages(folder: Path) -> dict[str, float]:
        """By the name of each file of a folder of leases: seconds since its holder has renewed it.

        They are those of the file system's own clock, by the time of a file that is made for that; empty
        where none can be made. They tell a reader what may be stale, and decide nothing.
        """
        look, probe = _Look(LeaseFolder(folder)), temporary_path(folder / "probe")
        try:
            probe.touch()
            now = probe.stat().st_mtime
            probe.unlink()
        except OSError:
            return {}
        shown = {name: {name, _holder_of(look.read(name)) or name} for name in look.place.names()}
        times = {name: _time(folder, files) for name, files in shown.items()}
        return {name: now - time for name, time in times.items() if time is not None}

    def _obtain(self, name: str) -> bytes | None:
        """The content with which this process holds a lease now, None if another does."""
        content = self._content()
        if self._place.create(name, content):
            return content
        began = time.monotonic()
        seen = self._place.read(name)
        if seen == content:  # NFS has sent the creation twice
            return content
        if seen is None or not self._has_lapsed(name, seen, began):
            return None
        return content if self._take(name, seen, content) else None

    def _take(self, name: str, seen: bytes, content: bytes) -> bool:
        """Take over a lapsed lease; of several observers one succeeds."""
        with self._right_to_change(name, seen) as may:
            lapsed = may and self._has_lapsed(name, seen, time.monotonic())
            replaced = lapsed and self._place.replace(name, content, seen=seen)
            return replaced and self._place.read(name) == content

    def _remove(self, name: str, seen: bytes | None) -> None:
        """Remove the lease of a dead holder, which nobody else takes over meanwhile, or a holder's file."""
        if seen is None:
            return
        with suppress(StoreError):
            if name.endswith(HOLDER):
                self._place.remove(name, seen=seen)
                return
            with self._right_to_change(name, seen) as may:
                if may:
                    self._place.remove(name, seen=seen)

    @contextmanager
    def _right_to_change(self, name: str, seen: bytes) -> Iterator[bool]:
        """A context in which no other observer changes a lapsed lease; False if another may.

        It is a lease on the change of this very content, and lapses like any other if its holder dies.
        """
        right = f"{hashlib.sha256(name.encode() + b'/' + seen).hexdigest()[:32]}{TAKING}"
        mine = self._obtain(right)
        try:
            yield mine is not None
        finally:
            if mine is not None:
                self._place.remove(right, seen=mine)

    def _has_lapsed(self, name: str, lease: bytes, began: float) -> bool:
        """Whether nobody holds a lease any more, as far as this process has seen.

        Args:
            name: Its name.
            lease: Its content.
            began: A time on the monotonic clock at which it had not yet been read.
        """
        holder = _holder_of(lease)
        if holder is None:
            return self._observe(name, lease, began)
        self._sights.pop(name, None)
        sight = self._sights.get(holder)
        if sight and not sight.lapsed and began - sight.looked < self.term / 100:
            return False  # of one holder's many leases the first is enough
        return self._observe(holder, self._place.read(holder), began)

    def _observe(self, name: str, content: bytes | None, began: float) -> bool:
        """Whether a file shows no life: unchanged for a term (missing is unchanged), or of a dead process.

        This process may itself be stopped at any point, so what it sees is at least as old as `began`, and
        new no earlier than now.
        """
        sight = self._sights.get(name)
        if sight is None or content not in (None, sight.content):
            sight = _Sight(content=content, since=time.monotonic(), looked=began, lapsed=False)
        process = Process.parse(content)
        dead = process is not None and process.alive() is False
        lapsed = dead or began - sight.since >= self.term
        self._sights[name] = replace(sight, looked=began, lapsed=lapsed)
        return lapsed

    def _content(self) -> bytes:
        """The content of a new lease, never the same twice."""
        self._count += 1
        return json.dumps({"holder": self._token, "number": self._count}).encode()

    def _keep_renewing(self) -> None:
        """Make the holder's file with the first lease, and renew it from then on."""
        if self._thread is None:
            self._renew()
            self._thread = threading.Thread(target=self._renew_on, name="leases", daemon=True)
            self._thread.start()

    def _renew_on(self) -> None:
        while not self._stop.wait(self.term / 4):
            self._renew()

    def _renew(self) -> None:
        """Show that this process lives; where that fails others may do the same work."""
        with self._lock, suppress(Exception):
            began = time.monotonic()
            self._renewals += 1
            process = Process.current()
            fields: dict[str, Any] = {"host": process.host, "pid": process.pid, "start": process.start}
            content = json.dumps({**fields, "renewals": f"{self._renewals:012}"}).encode()
            seen = self._place.read(self._holder)
            if seen is None:
                self._place.create(self._holder, content)
            else:
                self._place.replace(self._holder, content, seen=seen)
            self._renewed = began


def _place(place: Path | LeasePlace) -> LeasePlace:
    return LeaseFolder(place) if isinstance(place, Path) else place


class _Look:
    """A single look at a place: each file is read once; one that cannot be read counts as missing."""

    def __init__(self, place: LeasePlace) -> None:
        self.place = place
        self.read = functools.cache(self._read)
        self._lives = functools.cache(self._life)

    def _read(self, name: str) -> bytes | None:
        with suppress(StoreError):
            return self.place.read(name)
        return None

    def alive(self, name: str) -> bool | None:
        """Whether the holder of a lease, or of a holder's file, lives; None where it cannot be told."""
        holder = name if name.endswith(HOLDER) else _holder_of(self.read(name))
        return self._lives(holder) if holder else None

    def _life(self, holder: str) -> bool | None:
        process = Process.parse(self.read(holder))
        return process.alive() if process else None


def _time(folder: Path, names: Iterable[str]) -> float | None:
    """The last change of some files, in seconds of the file system's clock; None if none is there."""
    times = []
    for name in names:
        with suppress(OSError):
            times.append((folder / name).stat().st_mtime)
    return max(times, default=None)
