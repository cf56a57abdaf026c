"""The intake: `POST /api/records` takes one record, checks it, and puts it if absent."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from harness.errors import HarnessError
from harness.record import Record
from harness.store import Store
from leaderboard.access import private
from leaderboard.access.audit import Attempt, Audit
from leaderboard.access.documents import key_of, record_of, slug_of
from leaderboard.access.limits import Limits
from leaderboard.access.refusals import Refusal
from leaderboard.access.tokens import SCOPES, Token, Tokens

log = logging.getLogger(__name__)

LARGEST = 2 * 2**20
"""Bytes of a body, unless said otherwise."""

REALM = 'Bearer realm="records"'
WITHOUT_EXAMPLES = "The per-example file is not taken, nor the run; the record is kept without them."


@dataclass(frozen=True, kw_only=True)
class Intake:
    """How a site takes records.

    Attributes:
        results: The folder they go to; its `site/` holds the tokens and the audit.
        limits: How often a client may push (`post`); None for no limit here.
        largest: Bytes that a body may have.
        patience: Seconds within which a body must arrive.
        changed: Called after a record was added, e.g. to look after the index.
        counted: Called with the outcome of every attempt, e.g. `Metrics.post`.
    """

    results: Path
    limits: Limits | None = None
    largest: int = LARGEST
    patience: float = 30.0
    changed: Callable[[], None] | None = None
    counted: Callable[[str], None] | None = None
    tokens: Tokens = field(init=False)
    audit: Audit = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", Tokens(self.results))
        object.__setattr__(self, "audit", Audit(self.results))

    async def answer(self, request: Request) -> Response:
        """What a request is answered; every attempt at a site that takes records is audited.

        A record that is new has two lines: `accepted` before it is stored, and what became of it.
        """
        seen = _Seen(client=request.client.host if request.client else "")
        try:
            status, outcome, content = await self._take(request, seen)
            response: Response = JSONResponse(
                content, status_code=status, headers={"Cache-Control": "no-store"}
            )
        except Refusal as refusal:
            outcome, response = refusal.outcome, refusal.response()
        if outcome == "off":
            return response
        if self.counted is not None:
            self.counted(outcome)
        await run_in_threadpool(self._note, seen.attempt(outcome, response.status_code))
        return response

    async def _take(self, request: Request, seen: _Seen) -> tuple[int, str, dict[str, Any]]:
        there = await run_in_threadpool(self._all_tokens)
        if not there:
            raise Refusal(404, "This site takes no records.", outcome="off")
        if self.limits is not None:
            self.limits.enforce(seen.client, "post")
        await run_in_threadpool(self._admit, request.headers, seen)
        _check_form(request.headers)
        body = await self._read(request)
        seen.key = key_of(body)
        return await run_in_threadpool(self._keep, body, seen)

    def _all_tokens(self) -> tuple[Token, ...]:
        try:
            return self.tokens.all()
        except HarnessError as error:
            log.error("%s Nobody can push.", error.message)
            raise _unable("tokens") from error

    def _admit(self, headers: Mapping[str, str], seen: _Seen) -> None:
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not secret.strip():
            hint = "Send `Authorization: Bearer <token>`."
            raise Refusal(
                401, "A token is needed.", hint=hint, headers={"WWW-Authenticate": REALM}, outcome="no-token"
            )
        token = self.tokens.find(secret.strip())
        state = token.state(datetime.now(UTC)) if token is not None else "unknown"
        seen.token = token.name if token is not None else None
        if token is None or state != "live":
            challenge = {"WWW-Authenticate": f'{REALM}, error="invalid_token"'}
            hint = "It may be mistyped, expired or revoked."
            raise Refusal(401, "This token does not hold.", hint=hint, headers=challenge, outcome=state)
        if token.scope != SCOPES[0]:
            challenge = {"WWW-Authenticate": f'{REALM}, error="insufficient_scope", scope="{SCOPES[0]}"'}
            raise Refusal(403, "This token may not push records.", headers=challenge, outcome="scope")

    async def _read(self, request: Request) -> bytes:
        """The body, as far as it is allowed to go, whatever its length is said to be."""
        too_large = Refusal(413, f"The body is larger than {self.largest} bytes.", outcome="too-large")
        said = request.headers.get("content-length", "")
        if said.isdecimal() and len(said) <= 20 and int(said) > self.largest:
            raise too_large
        body = bytearray()
        try:
            with anyio.fail_after(self.patience):
                async for part in request.stream():
                    body += part
                    if len(body) > self.largest:
                        raise too_large
        except TimeoutError as error:
            raise Refusal(408, "The body did not arrive in time.", outcome="too-slow") from error
        except ClientDisconnect as error:
            raise Refusal(400, "The body broke off.", outcome="broken-off") from error
        return bytes(body)

    def _keep(self, body: bytes, seen: _Seen) -> tuple[int, str, dict[str, Any]]:
        record = record_of(body)
        seen.key = record.key
        try:
            with private.exclusively(private.folder(self.results), "intake"):
                stands, created = _put(Store(self.results), record, lambda: self._accept(seen))
        except (HarnessError, OSError) as error:
            log.error("A record could not be kept. %s", error)
            raise _unable("store") from error
        if stands.main_score != record.main_score:
            raise Refusal(
                409,
                f"There is another score under this key: {stands.main_score}, not {record.main_score}.",
                hint="The record that is there stays.",
                outcome="conflict",
            )
        if created:
            self._tell()
        return _said(stands, created=created)

    def _tell(self) -> None:
        """Say that a record was added; what goes wrong there does not undo it."""
        try:
            if self.changed is not None:
                self.changed()
        except Exception:
            log.exception("A record was added, but what depends on it was not told.")

    def _accept(self, seen: _Seen) -> None:
        """Audit that a record will be stored; a site that cannot say what it takes takes nothing."""
        if not self._note(seen.attempt("accepted", 202)):
            raise _unable("audit")

    def _note(self, attempt: Attempt) -> bool:
        """Audit an attempt; whether that could be done."""
        try:
            self.audit.write(attempt)
        except (OSError, HarnessError):
            log.exception("The audit could not be written.")
            return False
        return True


@dataclass(kw_only=True)
class _Seen:
    """What became known of a request on its way."""

    client: str
    token: str | None = None
    key: str | None = None

    def attempt(self, outcome: str, status: int) -> Attempt:
        """A line of the audit about it."""
        return Attempt(token=self.token, client=self.client, key=self.key, outcome=outcome, status=status)


def _put(store: Store, record: Record, before: Callable[[], None]) -> tuple[Record, bool]:
    """What stands under a record's key now, and whether it was put there, `before` being called first."""
    slug = slug_of(record)
    path = store.path(slug, record.task.name, record.key)
    below = path.relative_to(store.root / "records").parts
    if len(below) != 3 or {".", ".."} & set(below):
        raise Refusal(422, "The names of model and task make no path.", outcome="unfit")
    there = store.get(slug, record.task.name, record.key)
    if there is not None:
        return there, False
    before()
    stands = store.put(slug, record)
    return stands, stands is record


def _check_form(headers: Mapping[str, str]) -> None:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(415, "The body must be application/json.", outcome="form")
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Refusal(415, "The body must not be compressed.", outcome="form")


def _said(stands: Record, *, created: bool) -> tuple[int, str, dict[str, Any]]:
    content = {
        "key": stands.key,
        "created": created,
        "model": stands.model.name,
        "task": stands.task.name,
        "main_score": stands.main_score,
        "examples": None,
        "notes": [WITHOUT_EXAMPLES],
    }
    return (201, "created", content) if created else (200, "known", content)


def _unable(outcome: str) -> Refusal:
    """A failure of the site's own; its log says which."""
    hint = "Whoever runs the site finds the cause in its log. Pushing again does no harm."
    return Refusal(
        503, "The site cannot take records now.", hint=hint, headers={"Retry-After": "60"}, outcome=outcome
    )
