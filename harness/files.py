"""Writing files so that a reader, or a crash, never sees half of one."""

from __future__ import annotations

import errno
import os
import re
from contextlib import suppress
from pathlib import Path

from harness.errors import StoreError

_TEMPORARY = re.compile(r"^\..+\.(?P<host>[^.]+)-(?P<pid>\d+)-[0-9a-f]{8}\.tmp$")


def write_once(path: Path, content: bytes) -> bool:
    """Write `content` to `path` unless something is there; True if this call wrote it.

    The content is complete and on the disk before the name appears, and of two processes that
    write the same name exactly one succeeds.
    """
    temporary = _stage(path, content)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.EXDEV):
            raise _explain(path, error) from error
        if path.exists():  # a file system without hard links
            return False
        temporary.rename(path)
        return True
    finally:
        temporary.unlink(missing_ok=True)
        _sync_folder(path.parent)
    return True


def replace(path: Path, content: bytes) -> None:
    """Write `content` to `path`, in place of what may be there, in one step."""
    temporary = _stage(path, content)
    try:
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _explain(path, error) from error
    _sync_folder(path.parent)


def move(path: Path, to: Path) -> None:
    """Give a file another name in its folder."""
    try:
        path.replace(to)
    except OSError as error:
        raise _explain(to, error) from error


def sweep(folder: Path) -> int:
    """Remove what killed processes of this machine left half written; returns how many files."""
    removed = 0
    for leftover in folder.rglob(".*.tmp"):
        match = _TEMPORARY.match(leftover.name)
        if match and match["host"] == host() and not alive(int(match["pid"])):
            leftover.unlink(missing_ok=True)
            removed += 1
    return removed


def alive(pid: int) -> bool:
    """Whether a process of this machine still runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def host() -> str:
    """This machine's name, as it stands in leases and names of temporary files."""
    import socket

    return re.sub(r"[^A-Za-z0-9]", "_", socket.gethostname())


def writable(folder: Path) -> None:
    """Make `folder` if need be and check that files can be written there.

    Raises:
        StoreError: With what is wrong and how to choose another folder.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _explain(folder, error) from error
    _stage(folder / "probe", b"x").unlink()


def _stage(path: Path, content: bytes) -> Path:
    name = f".{path.name}.{host()}-{os.getpid()}-{os.urandom(4).hex()}.tmp"
    temporary = path.parent / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        with suppress(OSError):  # no such folder: a file stands in its place
            temporary.unlink()
        raise _explain(path, error) from error
    return temporary


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _explain(path: Path, error: OSError) -> StoreError:
    reasons = {
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "the disk quota is used up",
        errno.EFBIG: "the file would be larger than this process may write",
        errno.EACCES: "permission denied",
        errno.EPERM: "permission denied",
        errno.EROFS: "the file system is read-only",
        errno.ENOTDIR: "a file stands where a folder should be",
        errno.EEXIST: "a file stands where a folder should be",
    }
    reason = reasons.get(error.errno or 0, error.strerror or str(error))
    mend = "Free some room, or choose"
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        mend = "Move that file away, or choose"
    return StoreError(
        f"Cannot write {path}: {reason}.",
        hint=f"What was finished before is kept. {mend} another folder "
        "(--results DIR, --cache DIR), and run the same command again.",
    )
