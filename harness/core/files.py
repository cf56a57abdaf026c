"""Files and folders: atomic writes, cached SHA-256 hashes, default folders, and registries.

A reader, or a crash, never sees half of a file. The default folders are cache, results and data root. A
registry has the entries of one kind, one in each file of a folder, and those of other distributions.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import importlib
import importlib.util
import json
import os
import pkgutil
import re
import shutil
import threading
import time
import traceback
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from harness.core.errors import StoreError, UsageError
from harness.core.terminal import clean_text

# PROC_PID_INIT_INO in Linux's include/linux/proc_ns.h.
_FIRST_NAMESPACE = 0xEFFFFFFC
"""The number of a Linux machine's own name space of process numbers; containers have others."""

# Host and process number tell `sweep` whose a leftover is, and whether its process still runs.
_TEMPORARY = re.compile(r"^\..+\.(?P<host>[^.]+)-(?P<pid>\d+)-[0-9a-f]{8}\.tmp$")


def write_once(path: Path, content: bytes) -> bool:
    """Write `content` to `path` unless the file exists; True if this call wrote it.

    The name appears after the complete content is on disk; of two processes with one name exactly one
    succeeds.
    """
    temporary = _write_temporary(path, content)
    try:
        # link() fails where the name exists, also for two machines; rename() would replace the file.
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.EXDEV):
            raise write_error(path, error) from error
        # A file system without hard links. Of two processes that both find no file here the later one wins.
        if path.exists():
            return False
        temporary.rename(path)
        return True
    finally:
        temporary.unlink(missing_ok=True)
        # fsync of a file does not put its name on disk; that of the folder does (fsync(2)).
        sync(path.parent)
    return True


def replace(path: Path, content: bytes, *, mode: int = 0o666, last: bool = True) -> None:
    """Write `content` to `path` in one step, replacing an existing file; its rights are at most `mode`.

    Args:
        path: The file; its folder is made if need be.
        content: All of its bytes.
        mode: Its rights, from which the process's umask takes some away.
        last: Whether to flush the folder's names to disk; of several files only the last needs to.

    Raises:
        StoreError: The file cannot be written.
    """
    temporary = _write_temporary(path, content, mode)
    try:
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise write_error(path, error) from error
    if last:
        sync(path.parent)


def require_size(path: Path, most: int) -> None:
    """Refuse a file that is larger than any of its kind, before it is read.

    Raises:
        OSError: There is no such file.
        ValueError: It is larger, or it is a pipe or a device, which may have no end.
    """
    size = path.stat().st_size
    if not path.is_file():
        raise ValueError("it is no regular file")
    if size > most:
        raise ValueError(f"it has {size:,} bytes, and may have {most:,}")


def move(path: Path, to: Path) -> None:
    """Rename a file or folder within its folder."""
    try:
        path.replace(to)
    except OSError as error:
        raise write_error(to, error) from error


def sweep(folder: Path, pattern: str = "**/.*.tmp") -> int:
    """Remove temporary files and folders of killed processes on this machine; returns their number."""
    orphans = _select_orphans(folder.glob(pattern))
    for leftover in orphans:
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)
    return len(orphans)


def sweep_cache(cache: Path) -> None:
    """Remove what killed processes on this machine have left in a cache."""
    sweep(cache, ".*.tmp")
    # The copies of remotes may have a million files, and are their site's to sweep.
    for folder in (one for one in cache.glob("*/") if one.name != "remote"):
        sweep(folder)


def find_leftovers(folder: Path) -> list[Path]:
    """The temporary files and folders of killed processes on this machine, sorted."""
    return _select_orphans(folder.rglob(".*.tmp"))


def _select_orphans(paths: Iterable[Path]) -> list[Path]:
    """The temporary files among `paths` whose process ran on this machine and has ended, sorted."""
    # Imported here, as most commands look for none.
    import psutil

    matches = ((path, _TEMPORARY.match(path.name)) for path in paths)
    return sorted(
        path
        for path, match in matches
        if match and match["host"] == get_host_name() and not psutil.pid_exists(int(match["pid"]))
    )


def get_host_name() -> str:
    """This machine's name in names of temporary files; containers of one host name get different ones."""
    import socket

    # A container counts its processes from 1: a number is that of one process only within its name space.
    with suppress(OSError):
        if (space := os.stat("/proc/self/ns/pid").st_ino) != _FIRST_NAMESPACE:
            return re.sub(r"[^A-Za-z0-9]", "_", f"{socket.gethostname()}_{space}")
    return re.sub(r"[^A-Za-z0-9]", "_", socket.gethostname())


def require_writable(folder: Path) -> None:
    """Make `folder` if need be and check that files can be written there.

    Raises:
        StoreError: The folder cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(folder, error) from error
    _write_temporary(folder / "probe", b"x").unlink()


def create_temporary_folder(folder: Path) -> Path:
    """A new empty folder beside `folder`, to be renamed to it; `sweep` removes that of a killed process.

    Raises:
        StoreError: It cannot be made.
    """
    temporary = generate_temporary_path(folder)
    try:
        temporary.mkdir(parents=True)
    except OSError as error:
        raise write_error(folder, error) from error
    return temporary


def generate_temporary_path(path: Path) -> Path:
    """A new name beside `path` for a file or folder to be renamed to it (see `sweep`)."""
    return path.parent / f".{path.name}.{get_host_name()}-{os.getpid()}-{os.urandom(4).hex()}.tmp"


def _write_temporary(path: Path, content: bytes, mode: int = 0o666) -> Path:
    temporary = generate_temporary_path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Created with its final rights, so that others cannot read a private file even for a moment.
        temporary.touch(mode, exist_ok=False)
        with temporary.open("r+b") as file:
            file.write(content)
            file.flush()
            # Before the rename: after a crash some file systems would show the new name with an empty file.
            os.fsync(file.fileno())
    except OSError as error:
        with suppress(OSError):  # no such folder: a file has its name
            temporary.unlink()
        raise write_error(path, error) from error
    return temporary


def sync(place: Path) -> None:
    """Flush a file, or the names in a folder, to disk."""
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_REASONS = {
    errno.ENOSPC: ("the disk is full", "Free some room, or choose"),
    errno.EDQUOT: ("the disk quota is used up", "Free some room, or choose"),
    errno.EFBIG: ("the file would be larger than this process may write", "Raise that limit, or choose"),
    errno.EACCES: ("permission denied", "Make it writable, or choose"),
    errno.EPERM: ("permission denied", "Make it writable, or choose"),
    errno.EROFS: ("the file system is read-only", "Choose"),
    errno.ENOTDIR: ("a file stands where a folder should be", "Move that file away, or choose"),
    errno.EEXIST: ("a file stands where a folder should be", "Move that file away, or choose"),
}
"""By error number: the reason why a file cannot be written, and the start of what to do about it."""


def write_error(path: Path, error: OSError) -> StoreError:
    """The error of a file or folder that cannot be written, with what to do about it."""
    reason, mend = _REASONS.get(error.errno or 0, (error.strerror or str(error), "Choose"))
    return StoreError(
        f"Cannot write {path}: {reason}.",
        hint=f"What was finished before is kept. {mend} another folder "
        "(--results DIR, --cache DIR), and run the same command again.",
    )


CACHE_FILE = "file-hashes.jsonl"
"""The file of the cache; a line is [path, size, mtime_ns, ctime_ns, inode, device, sha256], and its check."""

SETTLED_NS = 100_000_000
"""The age below which a file's hash is not cached: a second change might leave the same times."""

_SHA256 = re.compile(r"[0-9a-f]{64}")

_Key = tuple[str | int, ...]


@dataclass
class _Read:
    """The part of a cache file that has been read."""

    inode: int
    size: int = 0
    known: dict[_Key, str] = field(default_factory=dict)


_read_so_far: dict[Path, _Read] = {}
_reading = threading.Lock()


def hash_file(path: Path, cache_dir: Path | None = None) -> str:
    """The SHA-256 of a file's bytes, 64 hex digits.

    With `cache_dir` the hash is cached there under the file's real path, size, times, inode and device. Lines
    that were changed, or that another machine wrote, are skipped; any number of processes may add lines at
    once, and an unwritable cache is ignored.

    Raises:
        OSError: The file cannot be read.
    """

    def compute_file_hash() -> str:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    return _hash([path], lambda: _build_stat_key(path), compute_file_hash, cache_dir)


def hash_files(paths: Sequence[Path], read: Callable[[], str], cache_dir: Path | None = None) -> str:
    """The SHA-256 that `read` makes of several files, cached as that of one file is.

    Args:
        paths: The files; the cached hash counts while size, times and inode of all are the same.
        read: Computes the hash, 64 hex digits.
        cache_dir: The folder of the cache; None for no cache.

    Raises:
        OSError: A file cannot be read.
    """

    def build_files_key() -> _Key:
        stats = json.dumps([_build_stat_key(path) for path in paths])
        return ("joined", hashlib.sha256(stats.encode()).hexdigest())

    return _hash(paths, build_files_key, read, cache_dir)


def _hash(
    paths: Sequence[Path], stamp: Callable[[], _Key], read: Callable[[], str], cache_dir: Path | None
) -> str:
    key = stamp()
    cache = cache_dir / CACHE_FILE if cache_dir else None
    if cache and (cached_hash := _lookup(cache, key)):
        return cached_hash
    file_hash = read()
    newest = max(max(_build_stat_key(path)[2:4]) for path in paths)
    # A file that changed while it was read has another stamp now, and its hash is not cached.
    if cache and stamp() == key and time.time_ns() - newest > SETTLED_NS:
        _append_hash(cache, key, file_hash)
    return file_hash


def has_sha256(path: Path, start: str, cache_dir: Path | None = None) -> bool:
    """Whether the SHA-256 of a file starts so; a cached hash that does not is computed again.

    Raises:
        OSError: The file cannot be read.
    """
    cache_matches = cache_dir is not None and hash_file(path, cache_dir).startswith(start)
    return cache_matches or hash_file(path).startswith(start)


def pack_hashed_file(name: str, content: bytes) -> bytes:
    """The content of a file `name` of a cache, behind the hash of both (see `unpack_hashed_file`)."""
    named = name.encode() + b"\n" + content
    return hashlib.sha256(named).hexdigest().encode() + b"\n" + named


def unpack_hashed_file(path: Path) -> bytes:
    """The content of a file made by `pack_hashed_file`.

    Raises:
        OSError: The file cannot be read.
        ValueError: It has changed, or is that of another name.
    """
    sha256, _, named = path.read_bytes().partition(b"\n")
    name, _, content = named.partition(b"\n")
    if hashlib.sha256(named).hexdigest().encode() != sha256 or name != path.name.encode():
        raise ValueError("its content is not what was written")
    return content


def _build_stat_key(path: Path) -> tuple[str, int, int, int, int, int]:
    real = path.resolve()
    stat = real.stat()
    return (str(real), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev)


def append_check(line: bytes, secret: bytes = b"") -> bytes:
    """A line of JSON, which has no tab, with a tab and its check; only who knows `secret` can make that."""
    return b"%b\t%b" % (line, hashlib.sha256(secret + line).hexdigest()[:16].encode())


def strip_check(checked_line: bytes, secret: bytes = b"") -> bytes | None:
    """The line of which `append_check` made another; None if either has changed."""
    line = checked_line.rpartition(b"\t")[0]
    return line if append_check(line, secret) == checked_line else None


@functools.cache
def _read_machine_identity() -> bytes:
    # The machine's own id, which nobody else needs to know (machine-id(5)); a container without one has at
    # least the kernel's, which changes when the host boots.
    for place in ("/etc/machine-id", "/proc/sys/kernel/random/boot_id"):
        with suppress(OSError):
            if identity := Path(place).read_bytes().strip():
                return identity
    return get_host_name().encode()


def _lookup(cache: Path, key: _Key) -> str | None:
    try:
        stat = cache.stat()
    except OSError:
        return None
    with _reading:
        read = _read_so_far.get(cache)
        # Another inode, or a shorter file: the cache was begun again, and is read from its start.
        if read is None or read.inode != stat.st_ino or read.size > stat.st_size:
            read = _read_so_far[cache] = _Read(inode=stat.st_ino)
        if read.size < stat.st_size:
            _read_on(cache, read)
        return read.known.get(key)


def _read_on(cache: Path, read: _Read) -> None:
    """Read the whole lines that were added to the cache file."""
    try:
        with cache.open("rb") as file:
            file.seek(read.size)
            added = file.read()
    except OSError:
        return
    # A line without its line feed is still being written by another process; the next call reads it.
    complete_lines = added[: added.rfind(b"\n") + 1]
    read.size += len(complete_lines)
    for checked_line in complete_lines.splitlines():
        line = strip_check(checked_line, _read_machine_identity())
        if line is None:
            continue
        try:
            *stored, sha = json.loads(line)
        except (ValueError, TypeError):
            continue
        if isinstance(sha, str) and _SHA256.fullmatch(sha) and all(isinstance(s, str | int) for s in stored):
            read.known[tuple(stored)] = sha


def _append_hash(cache: Path, key: _Key, sha: str) -> None:
    # A single append is atomic even with several writers; the leading line feed ends a half-written line.
    line = append_check(json.dumps([*key, sha]).encode(), _read_machine_identity())
    line = b"\n%b\n" % line
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(cache, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, line)
        finally:
            os.close(handle)
    except OSError:
        return


def list_unfinished_downloads(folder: Path) -> list[str]:
    """The parts of files that `hf download --local-dir` left in a folder, and its files that are gone."""
    records = folder / ".cache/huggingface/download"
    done = (folder / path.relative_to(records).with_suffix("") for path in records.rglob("*.metadata"))
    lost = [*records.rglob("*.incomplete"), *(path for path in done if not path.is_file())]
    return sorted(path.relative_to(folder).as_posix() for path in lost)


HOMES = (Path("/home"), Path("/Users"))
"""The folders in which users have their home folders: a user's name is in no record."""


def resolve_cache_folder(chosen: str | Path | None = None) -> Path:
    """The cache: --cache, else HARNESS_CACHE, else the user's cache folder."""
    # `or`, and not a test for None: a variable that is set to nothing counts as not set.
    place = chosen or os.environ.get("HARNESS_CACHE")
    if place:
        return resolve_home_path(place)
    from platformdirs import user_cache_path

    return user_cache_path("encoder-harness", appauthor=False)


def resolve_results_folder(chosen: str | Path | None = None) -> Path:
    """The results folder: --results, else HARNESS_RESULTS, else `results` in the current folder."""
    return resolve_home_path(chosen or os.environ.get("HARNESS_RESULTS") or "results")


def resolve_data_root(chosen: str | Path | None = None) -> Path | None:
    """The data root: --data, else HARNESS_DATA, else none."""
    place = chosen or os.environ.get("HARNESS_DATA")
    return resolve_home_path(place) if place else None


def resolve_remote_url(chosen: str | None = None) -> str | None:
    """The URL of shared object storage: --remote, else HARNESS_REMOTE, else none."""
    return chosen or os.environ.get("HARNESS_REMOTE") or None


def resolve_home_path(text: str | Path) -> Path:
    """A path with `~` replaced by the home folder.

    Raises:
        UsageError: The user after the ~ does not exist, the current folder was removed, or a name in the
            path is not UTF-8.
    """
    try:
        path = Path(text).expanduser()
        absolute = path.absolute()
    except RuntimeError as error:
        raise UsageError(f"{text}: {error}") from error
    except FileNotFoundError as error:
        raise UsageError(
            f"{text} is in the current folder, which was removed.", hint="Change to a folder that exists."
        ) from error
    require_utf8(str(absolute))
    return path


def require_utf8(text: str) -> None:
    """Refuse a text or a path that is not UTF-8: records are, and could not name it.

    Raises:
        UsageError: It has bytes of another encoding.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise explain_not_utf8(text) from error


def explain_not_utf8(text: str) -> UsageError:
    """The error for a text that is not UTF-8; a long one is cut."""
    shown = text if len(text) <= 200 else f"{text[:200]}…"
    return UsageError(
        f"{shown!r} is not UTF-8.",
        hint="Rename the file or folder, or type the text in UTF-8.",
    )


LONGEST_NAME = 200
"""The most bytes of a name in UTF-8: a file of 255 may be called by it, and a line shows it."""


def is_plain_name(name: str) -> bool:
    r"""Whether a name is not too long, and looks on a terminal and a page as it is.

    >>> [is_plain_name(name) for name in ("e5 large", "数" * 67, "red\x1b[31m", "gpj.\u202eexe")]
    [True, False, False, False]
    """
    # Control, format, unassigned, private and half characters, and separators of lines: two names that look
    # alike would be two models.
    unseen = any(unicodedata.category(sign) in ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp") for sign in name)
    return 0 < len(name.encode("utf-8", "surrogatepass")) <= LONGEST_NAME and not unseen


def is_displayable(text: str) -> bool:
    """Whether a text has no character that a terminal or a page obeys."""
    return "\t" not in text and clean_text(text, line=True) == text


def require_plain_name(name: str, what: str, *, hint: str) -> None:
    """Refuse a new name that is too long or has control characters.

    Args:
        name: The name.
        what: What it shall be, e.g. "a model's name".
        hint: What to do about it.

    Raises:
        UsageError: It is.
    """
    if not is_plain_name(name):
        shown = name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"
        must = f"A name has up to {LONGEST_NAME} bytes, and no control characters."
        raise UsageError(f"{shown!r} cannot be {what}.", hint=f"{must} {hint}")


PUBLISHED = 3
"""The most folder names of a model's path that a record has."""


def shorten_folder(folder: Path) -> str:
    """The end of a folder's path, as records have it: never the whole path, nor a user's home folder.

    >>> shorten_folder(Path("/home/ann/exp1/final")), shorten_folder(Path("/data/team/a/runs/1/final"))
    ('exp1/final', 'runs/1/final')
    """
    place = folder.resolve()
    # Path.home() raises where a container's user has no home folder.
    homes = [
        Path(os.path.expanduser("~")),
        *(root / place.parts[2] for root in HOMES if root in place.parents),
    ]
    parts = next((place.relative_to(h).parts for h in homes if h in place.parents), place.parts[2:])
    return "/".join(parts[-PUBLISHED:])


def find_reference_folder() -> Path | None:
    """The reference records of a checkout, None without a checkout."""
    # This file is harness/core/files.py: parents[2] is the root of the checkout. A wheel has no
    # results folder beside the package.
    folder = Path(__file__).parents[2] / "results" / "reference"
    return folder if folder.is_dir() else None


def find_reported_folder() -> Path | None:
    """The papers' tables of a checkout, None without a checkout."""
    folder = Path(__file__).parents[2] / "results" / "reported"
    return folder if folder.is_dir() else None


class _Named(Protocol):
    @property
    def name(self) -> str: ...


Entry = TypeVar("Entry", bound=_Named)


@dataclass(frozen=True, kw_only=True)
class Registry(Generic[Entry]):
    """The registry of one kind of entry.

    Attributes:
        kind: The class of the entries.
        package: The folder; a file whose name begins with "_" has no entry.
        attribute: The name of the entry in each file.
        group: The entry points of other distributions.
    """

    kind: type[Entry]
    package: str
    attribute: str
    group: str

    def iter_entries(self) -> Iterator[Entry]:
        """The entries of the folder that load, sorted by file; each is imported only when its turn comes."""
        for file in _list_entry_files(self.package):
            with contextlib.suppress(UsageError):
                yield self._open_file_entry(file)

    def find_entry(self, name: str) -> Entry | None:
        """The entry in the file of that name (`mteb_v1.py` for "mteb-v1"), or None; loads no plugin.

        Raises:
            UsageError: The file does not load.
        """
        file = name.replace("-", "_")
        entry = self._open_file_entry(file) if file in _list_entry_files(self.package) else None
        return entry if entry is not None and entry.name == name else None

    def load_entries(self) -> dict[str, Entry]:
        """Every entry that loads by name, those of the folder first."""
        return self._scan()[0]

    def collect_failures(self) -> list[UsageError]:
        """An error for each file and plugin that does not load, or has no entry with a name of its own."""
        return self._scan()[1]

    def add_failures(self, error: UsageError) -> UsageError:
        """The error for an unknown name, with what does not load, where the name may be."""
        lines = [error.hint or "", *(one.message for one in self.collect_failures())]
        return type(error)(error.message, hint="\n".join(filter(None, lines)) or None)

    def _scan(self) -> tuple[dict[str, Entry], list[UsageError]]:
        # Slow to import, and most commands find their entry by the name of its file.
        from importlib.metadata import entry_points

        files = _list_entry_files(self.package)
        places = {file: (f"{self.package}.{file}", self.attribute) for file in files}
        # Behind the folder's files: a plugin cannot take the name of an entry that comes with the harness.
        places |= {point.value: (point.module, point.attr) for point in entry_points(group=self.group)}
        entries: dict[str, Entry] = {}
        broken = []
        for place, (module, attribute) in places.items():
            try:
                entry = self._open_own_entry(place, module, attribute)
                if entry.name in entries:
                    taken = f"{entry.name!r} to {self.group}, a name that is already taken"
                    raise UsageError(f"{place} adds {taken}.")
                entries[entry.name] = entry
            except UsageError as error:
                broken.append(error)
        return entries, broken

    def _open_file_entry(self, file: str) -> Entry:
        return self._open_own_entry(file, f"{self.package}.{file}", self.attribute)

    def _open_own_entry(self, place: str, module: str, attribute: str) -> Entry:
        entry = open_entry(module, attribute)
        if not isinstance(entry, self.kind):
            raise UsageError(f"{place} is not a {self.kind.__name__} of {self.group}.")
        return entry


def open_entry(module: str, attribute: str) -> Any:
    """An attribute of a module, which is imported.

    Raises:
        UsageError: It does not load; the message names the file, the line and the error.
    """
    try:
        return functools.reduce(getattr, attribute.split("."), importlib.import_module(module))
    # A plugin may raise anything while it is imported; the other entries must stay usable.
    except Exception as error:
        # str() of a SyntaxError has file and line in it, which the message already names.
        message = error.msg if isinstance(error, SyntaxError) else str(error)
        reason = f"{type(error).__name__}: {message}".replace("\n", " ")
        raise UsageError(f"{_locate_failure(module, error)} does not load: {reason}") from error


def _locate_failure(module: str, error: Exception) -> str:
    """The file of a module with the line where its import failed."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno},"
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):  # its package does not load
        spec = None
    file = spec.origin if spec is not None and spec.origin else module
    # The last frame in this file: deeper ones lie in what it imports, and the first is that of importlib.
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"{file}, line {lines[-1]}," if lines else file


@functools.cache
def _list_entry_files(package: str) -> tuple[str, ...]:
    """The names of a folder's files with an entry, sorted."""
    home = importlib.import_module(package)
    return tuple(sorted(m.name for m in pkgutil.iter_modules(home.__path__) if not m.name.startswith("_")))
