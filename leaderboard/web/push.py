"""One record sent to a site, again where the site asks to wait."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import Message
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any, Literal
from urllib.parse import urlsplit

from harness.core.errors import HarnessError, UsageError
from harness.storage.record import Record

TRIES = 6
"""How often one record is sent before the site is given up."""

LONGEST_WAIT = 300.0
AGAIN = frozenset({429, 502, 503, 504})
"""Statuses after which the same record may be sent again."""

CLOSED = "This site takes no records."
"""What a site without tokens says."""

LARGE = 2**20
"""Bytes from which a connection that breaks may mean that the body is too large."""

Outcome = Literal["created", "known", "refused", "not-sent"]


class SiteError(HarnessError):
    """A site that cannot be reached, or that takes nothing now."""


@dataclass(frozen=True, kw_only=True)
class Parcel:
    """A record on its way."""

    key: str
    model: str
    task: str
    body: bytes

    @staticmethod
    def of(record: Record) -> Parcel:
        """The parcel of a record."""
        body = record.to_json().encode()
        return Parcel(key=record.key, model=record.model.name, task=record.task.name, body=body)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What became of a parcel: `status` is 0 where no answer came."""

    outcome: Outcome
    status: int = 0
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class _Reply:
    status: int
    content: Any = None
    after: float | None = None
    broken: str = ""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token to another place, and make a GET of a POST."""

    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(frozen=True, kw_only=True)
class Client:
    """A site that records are pushed to.

    Attributes:
        site: Its address, e.g. `https://example.org/board`.
        secret: The token.
        waiting: Called with the seconds before each wait.
        sleep: How to wait; a test does not.
        timeout: Seconds without a sign of life after which a connection is given up.
    """

    site: str
    secret: str = field(repr=False)
    waiting: Callable[[float], None] = lambda seconds: None
    sleep: Callable[[float], None] = time.sleep
    timeout: float = 30.0

    def push(self, parcel: Parcel) -> Answer:
        """Send one record, again while the site asks to wait or cannot be reached.

        Raises:
            UsageError: The address or the token is wrong; no other record would fare better.
            SiteError: The site cannot be reached, or takes nothing now.
        """
        for attempt in range(TRIES):
            reply = self._send(parcel.body)
            if reply.status and reply.status not in AGAIN:
                return self._answer(reply, parcel)
            if attempt < TRIES - 1:
                seconds = min(2.0**attempt if reply.after is None else reply.after, LONGEST_WAIT)
                self.waiting(seconds)
                self.sleep(seconds)
        if reply.broken and len(parcel.body) > LARGE:
            reason = f"the connection broke ({reply.broken}); {len(parcel.body)} bytes may be too many"
            return Answer(outcome="refused", reason=reason)
        reason = reply.broken or f"{reply.status} {_message(reply)}"
        hint = "Push again later: nothing is sent twice."
        raise SiteError(f"{self.site} cannot be pushed to: {reason}.", hint=hint)

    def _send(self, body: bytes) -> _Reply:
        request = urllib.request.Request(f"{self.site}/api/records", data=body, method="POST")
        request.add_header("Content-Type", "application/json")
        request.add_header("Accept", "application/json")
        request.add_unredirected_header("Authorization", f"Bearer {self.secret}")
        try:
            with urllib.request.build_opener(_NoRedirect).open(request, timeout=self.timeout) as answer:
                return _Reply(status=answer.status, content=_json(answer.read(2**16)))
        except urllib.error.HTTPError as error:
            with error:
                content = None
                with contextlib.suppress(OSError, HTTPException):
                    content = _json(error.read(2**16))
                return _Reply(status=error.code, content=content, after=_after(error.headers))
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or str(error) or type(error).__name__
            return _Reply(status=0, broken=_clean(str(reason)))

    def _answer(self, reply: _Reply, parcel: Parcel) -> Answer:
        content = reply.content if isinstance(reply.content, dict) else {}
        if reply.status in (200, 201) and content.get("key") == parcel.key:
            return Answer(outcome="created" if content.get("created") else "known", status=reply.status)
        if reply.status in (400, 408, 409, 413, 415, 422, 500):
            return Answer(outcome="refused", status=reply.status, reason=_message(reply))
        raise UsageError(
            f"{self.site} takes no records from here: {reply.status} {_message(reply)}", hint=_hint(reply)
        )


def address(text: str) -> str:
    """A site's address without a slash at its end.

    Raises:
        UsageError: It is none.
    """
    try:
        parts = urlsplit(text)
        wrong = parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0
    except ValueError:
        wrong = True
    if wrong or not text.isascii() or not text.isprintable() or " " in text:
        raise UsageError(f"{text!r} is not a site's address.", hint="Type --to https://example.org.")
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise UsageError(f"--to takes no user, query or fragment: {parts.hostname}{parts.path} would do.")
    return text.rstrip("/")


def is_open(site: str) -> bool:
    """Whether what is sent there can be read on the way."""
    parts = urlsplit(site)
    return parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1")


CREATE = "`harness token create NAME`, run where that site's results lie,"


def _hint(reply: _Reply) -> str:
    """What to do about an answer that every record would get."""
    if reply.status == 404 and _message(reply) == CLOSED:
        return f"It takes them once it has a token: {CREATE} makes one."
    if reply.status == 401:
        wrong = "The token in the variable that --token-env names is mistyped, expired or revoked"
        return f"{wrong}; {CREATE} makes a new one."
    if reply.status == 403:
        return f"{CREATE} makes one that may."
    return "--to takes the address of a site's first page, as it is after redirects."


def _message(reply: _Reply) -> str:
    error = reply.content.get("error") if isinstance(reply.content, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    return _clean(message) if isinstance(message, str) else "(no reason given)"


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _after(headers: Message) -> float | None:
    """Seconds that Retry-After asks for, given as such or as a date."""
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdecimal():
        return float(text[:9])
    try:
        return max(0.0, (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None


def _clean(text: str) -> str:
    """A stranger's text, fit for a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)[:300]
