"""Storage that several drivers and workers share: objects that are complete or absent, and leases on work.

An object appears in one step, whatever its size: a reader, or the kill of a writer, never leaves half of one.
`create` is one conditional request, so of several writers of one name exactly one succeeds. obstore reaches
S3 (and what speaks it), Google Cloud Storage and mounted disks, with the credentials that it finds by itself,
and tries again, with growing delays, what fails for a passing reason.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from harness.core import files
from harness.core.errors import HarnessError, StoreError, UsageError

Answer = TypeVar("Answer")
Given = TypeVar("Given")

SCHEMES = ("s3", "gs", "file")

ATTEMPTS = 6
"""The number of times that a request is tried before the run ends."""

DELAY = 1.0
"""Seconds before the second attempt; each further one waits about twice as long."""

PART_BYTES = 50 * 2**20
"""The size of the parts in which a larger file is sent."""

TRANSFERS = 8
"""Small objects that are sent or read at once."""


@dataclass(frozen=True, kw_only=True)
class ObjectInfo:
    """What a listing says of an object: its bytes, and a tag that changes with its content.

    The tag of an object that came in one part is usually the MD5 of its content. Storage that encrypts gives
    another text, so only an equal one says something.
    """

    size: int
    tag: str = ""

    def has_content(self, content: bytes) -> bool:
        """Whether the object certainly has this content."""
        same = self.size == len(content)
        return same and self.tag == hashlib.md5(content, usedforsecurity=False).hexdigest()


class Remote:
    """The objects below one URL, by names relative to it.

    Every method raises StoreError where the storage cannot be reached or refuses. All of them can be called
    from several threads.

    Attributes:
        url: The URL, its scheme in the form of `SCHEMES`.
        needs_network: Whether it is reached over a network.
    """

    def __init__(self, url: str) -> None:
        """Name a place; no request is made.

        Raises:
            UsageError: It is no URL of a known kind.
        """
        scheme, separator, rest = url.partition("://")
        scheme = {"s3a": "s3", "gcs": "gs"}.get(scheme, scheme)
        place = rest.strip("/") if scheme != "file" else rest.rstrip("/")
        if not separator or scheme not in SCHEMES or not place:
            raise UsageError(
                f"--remote is {url!r}, and must be the URL of a folder in object storage.",
                hint="Type s3://BUCKET/FOLDER, gs://BUCKET/FOLDER or file:///FOLDER.",
            )
        if scheme == "file" and not place.startswith("/"):
            raise UsageError(f"--remote is {url!r}: a path after file:// begins with /.", hint=None)
        self.url = f"{scheme}://{place}"
        self.needs_network = scheme != "file"

    @cached_property
    def _objects(self) -> Any:
        return _open_store(self.url, ATTEMPTS)

    def require_usable(self) -> None:
        """Write, read and remove a small object, so that a run ends before it begins where it could not.

        Raises:
            UsageError: The place is not there, cannot be reached or written, or would let one writer replace
                the object of another.
        """
        name, content = f"probe/{files.get_host_name()}-{secrets.token_hex(6)}", secrets.token_bytes(16)
        try:
            # A single attempt: a wrong bucket or key is told at once, not after a minute of retries.
            once = _open_store(self.url, 1)
            _create(once, name, content)
            # Storage that ignores If-None-Match accepts the second write as well.
            exclusive = not _create(once, name, b"second")
            once.delete(name)
        except HarnessError:
            raise
        except Exception as error:
            advice = _find_storage_hint(error) or "Make the folder writable, or name another."
            raise UsageError(
                f"Cannot use {self.url}: {_describe_storage_error(error)}.", hint=advice
            ) from error
        if not exclusive:
            raise UsageError(
                f"Cannot use {self.url}: its storage ignores conditional writes (If-None-Match), so one "
                "driver would replace the records of another.",
                hint="Use a newer version of it, another storage, or one driver with a shared folder.",
            )

    def create(self, name: str, content: bytes) -> bool:
        """Write an object unless it exists; False if it exists with other content.

        This is one request, and a second one to compare an existing object. If the answer to the first was
        lost and it is repeated, the object of the first attempt counts as written.
        """
        with self._explain_storage_errors("write", name):
            if _retry_request(lambda: _create(self._objects, name, content)):
                return True
        return self.read_object(name) == content

    def replace(self, name: str, content: bytes) -> None:
        """Write an object in one step; an existing one is replaced."""
        with self._explain_storage_errors("write", name):
            self._objects.put(name, content, chunk_size=PART_BYTES)

    def compare_and_swap(self, name: str, content: bytes | None, *, seen: bytes) -> bool:
        """Replace an object, or remove it with None, only if it still has the content `seen`.

        A replacement is exact where the storage has conditional writes (S3, Google's). On a mounted disk, and
        in a removal, another writer may come between the look and the write.

        Args:
            name: The name of the object.
            content: Its new content; None to remove it.
            seen: The content that it must still have.

        Returns:
            Whether it was replaced or removed.
        """
        from obstore.exceptions import PreconditionError

        with self._explain_storage_errors("write", name):
            try:
                result = self._objects.get(name)
                if bytes(result.bytes()) != seen:
                    return False
                if content is None:
                    _retry_request(lambda: self._objects.delete(name))
                else:
                    # S3 compares the tag, Google's storage the version; each gives what it can compare.
                    version = {key: text for key in ("e_tag", "version") if (text := result.meta[key])}
                    mode = version if self.needs_network else "overwrite"
                    _retry_request(lambda: self._objects.put(name, content, mode=mode))
            except FileNotFoundError:
                return False
            except PreconditionError:  # another was first, or the answer to an earlier attempt was lost
                return self.read_object(name) == content
        return True

    def upload(self, name: str, file: Path) -> None:
        """Write a file of any size as an object; an existing one is replaced.

        Raises:
            OSError: The file cannot be read.
        """
        with file.open("rb") as content, self._explain_storage_errors("write", name):
            self._objects.put(name, content, chunk_size=PART_BYTES)

    def read_object(self, name: str) -> bytes | None:
        """The content of an object; None if it does not exist."""
        with self._explain_storage_errors("read", name), suppress(FileNotFoundError):
            return bytes(self._objects.get(name).bytes())
        return None

    def download(self, name: str, file: Path) -> bool:
        """Write an object to a new file, incomplete after a kill; False if the object does not exist."""
        with self._explain_storage_errors("read", name):
            try:
                chunks = iter(self._objects.get(name).stream())
            except FileNotFoundError:
                return False
        # Outside the context that explains errors of the storage: those of this disk are not its fault.
        with file.open("wb") as target:
            # Errors come at each part, long after the request was answered.
            while True:
                with self._explain_storage_errors("read", name):
                    chunk = next(chunks, None)
                if chunk is None:
                    return True
                target.write(chunk)

    def list_objects(self, folder: str) -> dict[str, ObjectInfo]:
        """Every object below a folder by its name, sorted; one request for each thousand."""
        with self._explain_storage_errors("list", folder):
            try:
                # To open a folder of this machine makes it: one that is only read is not made.
                if not self.needs_network:
                    os.stat(self.url.removeprefix("file://"))
            except FileNotFoundError:
                return {}
            listing = self._objects.list(folder).collect()
        # S3 gives the tag in quotation marks, as HTTP writes it (RFC 9110, 8.8.3).
        return {
            facts["path"]: ObjectInfo(size=facts["size"], tag=(facts["e_tag"] or "").strip('"'))
            for facts in sorted(listing, key=lambda facts: facts["path"])
        }

    def remove(self, name: str) -> None:
        """Remove an object if it exists."""
        with self._explain_storage_errors("remove", name), suppress(FileNotFoundError):
            _retry_request(lambda: self._objects.delete(name))

    def map_concurrently(self, function: Callable[[Given], Answer], values: Sequence[Given]) -> list[Answer]:
        """The answers of a function for several values, some of them at once, in order."""
        if len(values) < 2:
            return [function(value) for value in values]
        with ThreadPoolExecutor(TRANSFERS, thread_name_prefix="remote") as pool:
            return list(pool.map(function, values))

    @contextmanager
    def _explain_storage_errors(self, verb: str, name: str) -> Iterator[None]:
        """Turn what the storage raises into an error that says what to do."""
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, OSError) as error:
            first = _find_storage_hint(error) or "Wait until it can be reached."
            raise StoreError(
                f"Cannot {verb} {self.url}/{name}: {_describe_storage_error(error)}.",
                hint=f"{first} What was finished is kept in the results folder and in the cache: the same "
                "command goes on from there, and sends what is not there yet.",
            ) from error


def _open_store(url: str, attempts: int) -> Any:
    """A folder of storage as obstore has it.

    Raises:
        UsageError: There are no credentials.
    """
    from obstore import store

    scheme, _, place = url.partition("://")
    if scheme == "file":
        return store.LocalStore(place, mkdir=True)
    bucket, _, prefix = place.partition("/")
    backoff = {"init_backoff": timedelta(seconds=DELAY), "max_backoff": timedelta(minutes=1), "base": 2}
    # Bounds for slow lines: obstore's own, 30 seconds a request and 3 minutes with all retries, would end
    # the transfer of a part of 50 MiB. Plain HTTP is what storage of one's own (MinIO) often speaks.
    shared: dict[str, Any] = {
        "prefix": prefix or None,
        "retry_config": {
            "max_retries": attempts - 1,
            "backoff": backoff,
            "retry_timeout": timedelta(hours=1),
        },
        "client_options": {"allow_http": True, "timeout": timedelta(minutes=10)},
    }
    if scheme == "gs":
        return store.GCSStore(bucket, **shared)
    return store.S3Store(bucket, **shared, **_load_aws_profile())


def _load_aws_profile() -> dict[str, Any]:
    """Credentials and region as boto3 finds them in files and profiles, which obstore does not read."""
    if {"AWS_ACCESS_KEY_ID", "AWS_SKIP_SIGNATURE"} & os.environ.keys():
        return {}
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:  # roles of machines and pods need no boto3
        return {}
    try:
        return {"credential_provider": Boto3CredentialProvider()}
    except Exception as error:
        reason = "" if isinstance(error, ValueError) else f": {error}"  # a ValueError: none in any place
        raise UsageError(
            f"No credentials for S3 were found{reason}.",
            hint=f"{_CREDENTIALS} For a public bucket set AWS_SKIP_SIGNATURE=true.",
        ) from error


def _retry_request(request: Callable[[], Answer]) -> Answer:
    """Try a request again whose connection broke: obstore does so only for those that may run twice."""
    from obstore.exceptions import GenericError

    for attempt in range(ATTEMPTS):
        try:
            return request()
        except GenericError as error:
            # Where obstore has retried ("after N retries"), a further round would only take longer to fail.
            retry_note = re.search(r"after \d+ retries", str(error))
            if retry_note or "HTTP error" not in str(error) or attempt == ATTEMPTS - 1:
                raise
        time.sleep(DELAY * 2**attempt)
    raise AssertionError


def _create(objects: Any, name: str, content: bytes) -> bool:
    """Write an object unless there is one, in one request; False if there is one."""
    from obstore.exceptions import AlreadyExistsError

    try:
        # Several parts would be several requests, of which none could carry the condition.
        objects.put(name, content, mode="create", use_multipart=False)
    except AlreadyExistsError:
        return False
    return True


def _describe_storage_error(error: Exception) -> str:
    """What happened, in the words of the storage."""
    # obstore appends a dump of its Rust structures; S3's XML answer has one sentence for people.
    text = str(error).partition("\n\nDebug source")[0]
    message = re.search("<Message>(.*?)</Message>", text, re.DOTALL)
    short = " ".join((message[1] if message else text).split()).rstrip(".")
    short = re.sub(r"^Generic \w+ error: ", "", short)
    return (short if len(short) <= 300 else f"{short[:300]}…") or type(error).__name__


_CREDENTIALS = (
    "Check the credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or "
    "GOOGLE_APPLICATION_CREDENTIALS), and that they may write, read, list and remove there."
)


def _find_storage_hint(error: Exception) -> str | None:
    """What the user can do about an error; None for an unknown one."""
    text = str(error)
    if "NoSuchBucket" in text:
        return "Create the bucket, or correct its name."
    if "AccessDenied" in text or re.search("status code: 40[13]|[Cc]redential|AccessKeyId", text):
        return _CREDENTIALS
    if "error sending request" in text or "timed out" in text:
        return "Check the network, and for storage of your own its address in AWS_ENDPOINT_URL."
    return None


TERM = 90.0
"""Seconds without a sign of life after which a lease lapses; the same for all who share a place."""

LEASE, HOLDER = ".json", ".holder"
"""The ends of the names of leases and of their holders' objects."""


class Leases:
    """The leases of this process in a folder or in object storage; closed, they are released.

    A lease is a small object, created only if it is absent, that names its holder. However many leases a
    holder has, it has one object of its own, in which it counts upward every quarter of a term. A process
    that wants a lease takes it once it has seen the holder's object unchanged for a term of its own monotonic
    clock, or at once where the holder is known to be a dead process of this host. Clocks of hosts are never
    compared. Leases only save work: records are put if absent, so two holders of one lease corrupt nothing.

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
