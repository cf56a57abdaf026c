"""Object storage that several drivers and workers share: a URL, and objects that are whole or absent.

An object appears in one step, whatever its size: a reader, or the kill of a writer, never leaves half of one.
`create` is one conditional request, so of several writers of one name exactly one succeeds. S3 (and what
speaks it) and Google Cloud Storage are reached through fsspec with the credentials and the configuration that
their libraries read by themselves; `file` and `memory` are for a mounted disk and for tests.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, TypeVar

from harness.core import files
from harness.core.errors import HarnessError, StoreError, UsageError

Answer = TypeVar("Answer")
Given = TypeVar("Given")

BACKENDS = {"s3": "s3", "gs": "gs", "file": "", "memory": ""}
"""The schemes of a URL, each with the extra of this package that it needs."""

ATTEMPTS = 6
"""The number of times that a request is tried before the run ends."""

DELAY = 1.0
"""Seconds before the second attempt; each further one waits twice as long, give or take a half."""

PART_BYTES = 50 * 2**20
"""The size of a part of a large object; one of twice this size or more is sent and read in parts."""

TRANSFERS = 8
"""Small objects that are sent or read at once."""


@dataclass(frozen=True, kw_only=True)
class ObjectInfo:
    """What a listing says of an object: its bytes, and the MD5 of its content where the storage gives that.

    Storage that encrypts may give another text in its place, so only an equal one says something.
    """

    size: int
    md5: str = ""

    def proves(self, content: bytes) -> bool:
        """Whether the object certainly has this content."""
        same = self.size == len(content)
        return same and self.md5 == hashlib.md5(content, usedforsecurity=False).hexdigest()


class Remote:
    """The objects below one URL, by names relative to it.

    Every method tries again, with growing delays, what fails for a passing reason, and raises StoreError in
    the end. All of them can be called from several threads.
    """

    def __init__(self, url: str) -> None:
        """Open a URL; no request is made.

        Raises:
            UsageError: It is no URL of a known kind, or the library for it is not installed.
        """
        scheme, separator, rest = url.partition("://")
        scheme = {"s3a": "s3", "gcs": "gs"}.get(scheme, scheme)
        place = rest.strip("/") if scheme != "file" else rest.rstrip("/")
        if not separator or scheme not in BACKENDS or not place:
            raise UsageError(
                f"--remote is {url!r}, and must be the URL of a folder in object storage.",
                hint="Type s3://BUCKET/FOLDER, gs://BUCKET/FOLDER or file:///FOLDER.",
            )
        if scheme == "file" and not place.startswith("/"):
            raise UsageError(f"--remote is {url!r}: a path after file:// begins with /.", hint=None)
        self.url = f"{scheme}://{place}"
        self._place = place
        self._backend: _Backend = _Files() if scheme == "file" else _Objects(scheme)

    @property
    def needs_network(self) -> bool:
        """Whether it is reached over a network."""
        return not self.url.startswith(("file://", "memory://"))

    def require_usable(self) -> None:
        """Write, read and remove a small object, so that a run ends before it begins where it could not.

        Raises:
            UsageError: The place is not there, cannot be reached or written, or would let one writer replace
                the object of another.
        """
        name, content = f"probe/{files.host()}-{secrets.token_hex(6)}", secrets.token_bytes(16)
        path = self._path(name)
        try:
            if not self._backend.create(path, content) and self._backend.read(path, 0) != content:
                raise UsageError(f"Cannot use {self.url}: an object that was just written is another one.")
            exclusive = not self._backend.create(path, b"second")
            self._backend.remove(path)
        except StoreError as error:
            raise UsageError(error.message, hint="Make the folder writable, or name another.") from error
        except HarnessError:
            raise
        except Exception as error:
            raise UsageError(f"Cannot use {self.url}: {_reason(error)}.", hint=_advice(error)) from error
        if not exclusive:
            raise UsageError(
                f"Cannot use {self.url}: its storage ignores conditional writes (If-None-Match), so one "
                "driver would replace the records of another.",
                hint="Use a newer version of it, another storage, or one driver with a shared folder.",
            )

    def create(self, name: str, content: bytes) -> bool:
        """Write an object unless there is one; False where there is one with other content.

        It is one request, and a second one where there is an object. An answer that was lost on the way does
        not count: the object that is there afterwards does.
        """
        path = self._path(name)
        if self._try(name, "write", lambda: self._backend.create(path, content)):
            return True
        return self.read(name) == content

    def replace(self, name: str, content: bytes) -> None:
        """Write an object in one step, in place of one that is there."""
        self._try(name, "write", lambda: self._backend.replace(self._path(name), content))

    def exchange(self, name: str, content: bytes | None, *, seen: bytes) -> bool:
        """Replace an object, or remove it with None, only if it still has the content `seen`.

        Exact on S3 and in memory; elsewhere another writer may come between the look and the write.
        """
        path = self._path(name)
        return self._try(name, "write", lambda: self._backend.exchange(path, content, seen))

    def upload(self, name: str, file: Path) -> None:
        """Write a file of any size as an object, in place of one that is there.

        Raises:
            OSError: The file cannot be read.
        """
        file.stat()
        self._try(name, "write", lambda: self._backend.upload(self._path(name), file))

    def read(self, name: str, *, size: int = 0) -> bytes | None:
        """The content of an object, None where there is none; one whose large size is known in parallel."""
        return self._try(name, "read", lambda: self._backend.read(self._path(name), size))

    def download(self, name: str, file: Path) -> bool:
        """Write an object to a new file, which is not whole after a kill; False where there is none."""
        return self._try(name, "read", lambda: self._backend.download(self._path(name), file))

    def objects(self, folder: str) -> dict[str, ObjectInfo]:
        """Every object below a folder by its name, sorted; one request for each thousand."""
        found = self._try(folder, "list", lambda: self._backend.objects(self._path(folder)))
        start = len(self._place) + 1
        return {path[start:]: found[path] for path in sorted(found)}

    def remove(self, name: str) -> None:
        """Remove an object, if it is there."""
        self._try(name, "remove", lambda: self._backend.remove(self._path(name)))

    def each(self, function: Callable[[Given], Answer], values: Sequence[Given]) -> list[Answer]:
        """The answers of a function for several values, some of them at once, in order."""
        if len(values) < 2:
            return [function(value) for value in values]
        with ThreadPoolExecutor(TRANSFERS, thread_name_prefix="remote") as pool:
            return list(pool.map(function, values))

    def _path(self, name: str) -> str:
        return f"{self._place}/{name}" if name else self._place

    def _try(self, name: str, verb: str, request: Callable[[], Answer]) -> Answer:
        for attempt in range(ATTEMPTS):
            try:
                return request()
            except HarnessError:
                raise
            except Exception as error:
                if attempt == ATTEMPTS - 1 or not _is_passing(error):
                    raise self._error(name, verb, error) from error
            time.sleep(DELAY * 2**attempt * random.uniform(0.5, 1.5))
        raise AssertionError

    def _error(self, name: str, verb: str, error: Exception) -> StoreError:
        first = _advice(error) or "Wait until it can be reached."
        return StoreError(
            f"Cannot {verb} {self.url}/{name}: {_reason(error)}.",
            hint=f"{first} What was finished is kept in the results folder and in the cache: the same "
            "command goes on from there, and sends what is not there yet.",
        )


class _Backend(Protocol):
    """One kind of storage; paths are whole, and errors are those of its library."""

    def create(self, path: str, content: bytes) -> bool: ...
    def replace(self, path: str, content: bytes) -> None: ...
    def exchange(self, path: str, content: bytes | None, seen: bytes) -> bool: ...
    def upload(self, path: str, file: Path) -> None: ...
    def read(self, path: str, size: int) -> bytes | None: ...
    def download(self, path: str, file: Path) -> bool: ...
    def objects(self, folder: str) -> dict[str, ObjectInfo]: ...
    def remove(self, path: str) -> None: ...


class _Files:
    """A folder of this machine's file system."""

    def create(self, path: str, content: bytes) -> bool:
        self._sweep(path)
        return files.write_once(Path(path), content)

    def replace(self, path: str, content: bytes) -> None:
        self._sweep(path)
        files.replace(Path(path), content)

    def exchange(self, path: str, content: bytes | None, seen: bytes) -> bool:
        if self.read(path, 0) != seen:
            return False
        self.remove(path) if content is None else self.replace(path, content)
        return True

    def upload(self, path: str, file: Path) -> None:
        self.replace(path, file.read_bytes())

    def read(self, path: str, size: int) -> bytes | None:
        with suppress(FileNotFoundError, NotADirectoryError):
            return Path(path).read_bytes()
        return None

    def download(self, path: str, file: Path) -> bool:
        content = self.read(path, 0)
        if content is not None:
            file.write_bytes(content)
        return content is not None

    def objects(self, folder: str) -> dict[str, ObjectInfo]:
        found = {}
        for place, _, names in os.walk(folder):
            for path in (os.path.join(place, name) for name in names if not name.endswith(".tmp")):
                with suppress(FileNotFoundError):
                    found[path] = ObjectInfo(size=os.stat(path).st_size)
        return found

    def remove(self, path: str) -> None:
        Path(path).unlink(missing_ok=True)

    @staticmethod
    def _sweep(path: str) -> None:
        with suppress(OSError):
            files.sweep_beside(Path(path))


_in_memory = threading.RLock()
"""Held while an object in memory is looked at and written."""


class _Objects:
    """Storage that fsspec reaches."""

    def __init__(self, scheme: str) -> None:
        self._scheme = scheme
        try:
            import fsspec

            # An instance of its own: the configuration of the moment, and listings that are never old.
            self._system: Any = fsspec.filesystem(scheme, skip_instance_cache=True, use_listings_cache=False)
        except ImportError as error:
            raise UsageError(
                f"--remote {scheme}:// needs a library that is not installed ({error.name or error}).",
                hint=f"pip install 'encoder-harness[{BACKENDS[scheme]}]'",
            ) from error
        if scheme == "s3":
            self._system.retries = 1  # botocore tries a request again, `Remote` the whole
            self._system.read_timeout = 120  # seconds, in which a part must be sent over a slow line

    def create(self, path: str, content: bytes) -> bool:
        whole = max(PART_BYTES, len(content) + 1)  # one request, as the condition is one of a request
        try:
            with _in_memory if self._scheme == "memory" else nullcontext():
                self._system.pipe_file(path, content, mode="create", chunksize=whole)
        except FileExistsError:
            return False
        except Exception as error:
            if _status(error) == 412:
                return False
            raise
        return True

    def replace(self, path: str, content: bytes) -> None:
        self._system.pipe_file(path, content, chunksize=PART_BYTES)

    def exchange(self, path: str, content: bytes | None, seen: bytes) -> bool:
        if self._scheme == "s3":
            return self._exchange_by_tag(path, content, seen)
        with _in_memory:
            if self.read(path, 0) != seen:
                return False
            self.remove(path) if content is None else self.replace(path, content)
        return True

    def _exchange_by_tag(self, path: str, content: bytes | None, seen: bytes) -> bool:
        """Ask for the tag that most storage gives this content, and where that fails for the present one."""
        usual = f'"{hashlib.md5(seen, usedforsecurity=False).hexdigest()}"'
        if content is not None and self._write_if(path, content, usual):
            return True
        try:
            tag = self._system.info(path)["ETag"]
        except FileNotFoundError:
            return False
        there = self.read(path, 0)
        if there == content:  # the answer to an attempt that succeeded was lost
            return True
        return there == seen and self._write_if(path, content, tag)

    def _write_if(self, path: str, content: bytes | None, tag: str) -> bool:
        try:
            if content is not None:
                self._system.pipe_file(path, content, IfMatch=tag)
            else:
                bucket, _, key = path.partition("/")
                self._system.call_s3("delete_object", Bucket=bucket, Key=key, IfMatch=tag)
        except FileNotFoundError:
            return False
        except Exception as error:
            if _status(error) in (404, 412):
                return False
            raise
        return True

    def upload(self, path: str, file: Path) -> None:
        if self._scheme == "memory":
            self.replace(path, file.read_bytes())
        else:
            self._system.put_file(str(file), path, chunksize=PART_BYTES)

    def read(self, path: str, size: int) -> bytes | None:
        # s3fs asks for the size first, unless it may not read in parts.
        how = {"max_concurrency": 1} if self._scheme == "s3" and size < 2 * PART_BYTES else {}
        with suppress(FileNotFoundError):
            return bytes(self._system.cat_file(path, **how))
        return None

    def download(self, path: str, file: Path) -> bool:
        with suppress(FileNotFoundError):
            self._system.get_file(path, str(file))
            return True
        return False

    def objects(self, folder: str) -> dict[str, ObjectInfo]:
        parent, _, last = folder.rpartition("/")
        # With a prefix s3fs does not look whether an empty folder is an object.
        below = {"prefix": f"{last}/"} if self._scheme == "s3" and parent else {}
        found = self._system.find(parent if below else folder, detail=True, **below)
        return {name.lstrip("/"): _info(facts) for name, facts in found.items() if facts["type"] == "file"}

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._system.rm_file(path)


def _info(facts: Mapping[str, Any]) -> ObjectInfo:
    """What a listing of fsspec says of an object: S3 has the MD5 as its tag, Google's storage in base 64."""
    tag = str(facts.get("ETag", "")).strip('"')
    if "md5Hash" in facts:
        import base64

        tag = base64.b64decode(facts["md5Hash"]).hex()
    return ObjectInfo(size=int(facts["size"]), md5=tag if re.fullmatch("[0-9a-f]{32}", tag) else "")


def _status(error: BaseException | None) -> int | None:
    """The HTTP status behind an error of fsspec, None where there is none."""
    while error is not None:
        response = getattr(error, "response", None)
        if isinstance(response, dict):
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            return int(status) if status else None
        code = getattr(error, "code", None) or getattr(error, "status", None)
        if isinstance(code, int | str) and str(code).isdigit():
            return int(code)
        error = error.__cause__
    return None


_FINAL = ("Credential", "Profile", "Validation", "Region", "Config", "DefaultCredentials")
"""Parts of the names of errors that another attempt does not mend."""


def _is_passing(error: Exception) -> bool:
    """Whether a later attempt may succeed."""
    if isinstance(error, PermissionError | FileNotFoundError | TypeError | ValueError | LookupError):
        return False
    if isinstance(error, AttributeError | NotImplementedError) or "Forbidden" in str(error):
        return False
    status = _status(error)
    if status is not None:
        return status in (408, 409, 425, 429) or status >= 500
    return not any(part in type(error).__name__ for part in _FINAL)


def _reason(error: Exception) -> str:
    """What happened, in the words of the storage."""
    text = " ".join(str(getattr(error, "strerror", None) or error).split()).rstrip(".")
    return (text if len(text) <= 300 else f"{text[:300]}…") or type(error).__name__


def _advice(error: Exception) -> str | None:
    """What to do about an error, None where nothing special can be said."""
    name, status = type(error).__name__, _status(error)
    if isinstance(error, FileNotFoundError):
        return "Make the bucket, or mend its name."
    denied = isinstance(error, PermissionError) or status in (401, 403)
    if denied or "Credential" in name or "Profile" in name:
        return (
            "Check the credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or "
            "GOOGLE_APPLICATION_CREDENTIALS), and that they may write, read, list and remove there."
        )
    if "Connect" in name or "Timeout" in name:
        return "Check the network, and for storage of your own its address in AWS_ENDPOINT_URL."
    return None


class RemoteLeases:
    """The place of leases in object storage: small objects, which one process at a time makes or changes.

    On S3 every change is one conditional request, so of two processes one succeeds. Elsewhere two may, in the
    rare case, both believe to have a lease: then work is done twice, and nothing is corrupted.
    """

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    def create(self, name: str, content: bytes) -> bool:
        """Make a lease; False if there is one."""
        return self._remote.create(self._object(name), content)

    def read(self, name: str) -> bytes | None:
        """The content of a lease, None without one."""
        return self._remote.read(self._object(name))

    def replace(self, name: str, content: bytes, *, seen: bytes) -> bool:
        """Change a lease only if it still has the content `seen`."""
        return self._remote.exchange(self._object(name), content, seen=seen)

    def remove(self, name: str, *, seen: bytes) -> bool:
        """Remove a lease only if it still has the content `seen`."""
        return self._remote.exchange(self._object(name), None, seen=seen)

    def names(self) -> list[str]:
        """The names of all leases, sorted."""
        return [PurePosixPath(name).name for name in self._remote.objects("leases")]

    @staticmethod
    def _object(name: str) -> str:
        return f"leases/{name}"
