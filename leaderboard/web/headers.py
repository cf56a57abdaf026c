"""Security headers: what a browser may do with a page."""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

import brotli
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from harness import files
from harness.errors import StoreError

PLOT = "interactive_plot"
"""A page with the interactive plot says so: `request.state.interactive_plot = True`."""

_POLICY = {
    "default-src": "'self'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",
    "object-src": "'none'",
    "base-uri": "'none'",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
}

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cross-Origin-Opener-Policy": "same-origin",
}
"""On every answer. Strict-Transport-Security is not here: the proxy that speaks TLS knows about it."""


def policy(*, plot: bool = False) -> str:
    """The Content-Security-Policy; a page with the interactive plot may style its elements.

    >>> "unsafe-inline" in policy(), "style-src 'self' 'unsafe-inline';" in policy(plot=True)
    (False, True)
    """
    parts = {**_POLICY, "style-src": "'self' 'unsafe-inline'"} if plot else _POLICY
    return "; ".join(f"{name} {value}" for name, value in parts.items())


class SecurityHeaders:
    """Puts the headers on every answer that has none of its own.

    Wrap the whole application in it, so that answers to a failure have them too.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._plain, self._plot = policy(), policy(plot=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        state = scope.setdefault("state", {})

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                csp = self._plot if state.get(PLOT) else self._plain
                for name, value in {"Content-Security-Policy": csp, **HEADERS}.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, with_headers)


PREFERRED = ("br", "gzip", "identity")
"""What there is, the best first."""

SMALLEST = 256
"""Bytes below which compressing a body is not worth its header."""

BROTLI, GZIP = 5, 6

_QUALITY = re.compile(r"0(\.\d{0,3})?|1(\.0{0,3})?")


def compressed(body: bytes, accept_encoding: str) -> tuple[bytes, str]:
    """A body as a client takes it, and its Content-Encoding; `identity` needs no such header.

    The same body always gives the same bytes, so an ETag of them holds. What depends on it must
    say `Vary: Accept-Encoding`.
    """
    chosen = choose(accept_encoding) if len(body) >= SMALLEST else "identity"
    if chosen == "br":
        return brotli.compress(body, quality=BROTLI), chosen
    if chosen == "gzip":
        return gzip.compress(body, compresslevel=GZIP, mtime=0), chosen
    return body, "identity"


def choose(accept_encoding: str) -> str:
    """The encoding with the highest quality, of equal ones the best (RFC 9110, section 12.5.3).

    Encodings that are not named have the quality of `*`. `identity` is what remains: it is chosen
    where it is named with a higher quality than all others, or where none of them is taken, even
    if it is refused then; an answer that a client may not read is better than none.

    >>> choose("gzip;q=1.0, identity; q=0.5, *;q=0"), choose("*"), choose("")
    ('gzip', 'br', 'identity')
    """
    asked = _qualities(accept_encoding)
    other = asked.get("*", 0.0)
    offered = {name: asked.get(name, other) for name in PREFERRED[:-1]}
    best = max(offered, key=lambda name: offered[name])  # the first of equal ones
    return best if offered[best] > 0 and offered[best] >= asked.get("identity", 0.0) else "identity"


def _qualities(header: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for member in header.split(","):
        name, *parameters = (part.strip().lower() for part in member.split(";"))
        if name:
            found["gzip" if name == "x-gzip" else name] = _quality(parameters)
    return found


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            return float(value) if _QUALITY.fullmatch(value.strip()) else 0.0
    return 1.0


class Heads:
    """Answers HEAD as GET, and keeps the body back."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return

        async def bare(message: Message) -> None:
            body = message["type"] == "http.response.body"
            await send({**message, "body": b""} if body else message)

        await self.app({**scope, "method": "GET"}, receive, bare)


MODE = 0o600
"""Read and written by the owner alone."""


def folder(results: Path) -> Path:
    """Where a site keeps its own files in a results folder."""
    return results / "site"


@contextlib.contextmanager
def exclusively(place: Path, name: str) -> Iterator[None]:
    """Hold the lock `name` of a folder; others of this machine wait, threads and processes alike.

    Raises:
        StoreError: The folder cannot be written.
    """
    with _explained(place):
        place.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(place / f".{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def replace(path: Path, content: bytes) -> None:
    """Write a file in place of what may be there, in one step; at no time may others read it.

    Raises:
        StoreError: It cannot be written.
    """
    name = f".{path.name}.{files.host()}-{os.getpid()}-{secrets.token_hex(4)}.tmp"
    temporary = path.parent / name
    try:
        with _explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        files.move(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        hint = "The folder must belong to the user that runs this."
        raise StoreError(f"Cannot write {path}: {error.strerror or error}.", hint=hint) from error
