"""Records from elsewhere: what a record must be, the route that takes one, and the audit."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

import anyio
from fastapi import APIRouter, Depends
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from harness.core.errors import HarnessError, RecordError
from harness.core.identity import digest
from harness.core.types import Artifact
from harness.storage.record import RECORDS, Record
from harness.storage.store import Store
from leaderboard.web.limits import Limits, Refusal, client_of
from leaderboard.web.tables import is_number
from leaderboard.web.tokens import OWNER_ONLY, SCOPES, Token, Tokens, locked, site_folder

log = logging.getLogger(__name__)

LARGEST = 2 * 2**20
"""Bytes of a body."""

AUDIT_LARGEST, AUDIT_VALUE = 64 * 2**20, 128
"""Bytes after which the audit is put aside as `audit.jsonl.1`; characters of a value in it."""

DEPTH, NAME_BYTES, INTEGER = 32, 200, 2**63
"""Of a record: nested objects, bytes of a name (it becomes a folder), the first integer that is too large."""

_HASH = re.compile(r"[0-9a-f]{64}")
_AS_WRITTEN = "Push records as a run wrote them."
_REALM = 'Bearer realm="records"'


class PushLog:
    """A line for every attempt to push a record, in `site/audit.jsonl`; no secret is among it."""

    def __init__(self, results: Path, *, largest: int = AUDIT_LARGEST) -> None:
        self.path = site_folder(results) / "audit.jsonl"
        self._largest = largest

    def write(
        self, *, token: str | None, client: str | None, key: str | None, outcome: str, status: int
    ) -> None:
        """Append a line, whole, whoever else writes; values of strangers are escaped and cut.

        Args:
            token: The token's name, None where there was no known one.
            client: The address that the record came from.
            key: The record's key, None where the request did not get that far.
            outcome: `accepted` before a record is stored; then `created`, `known`, or why it was refused.
            status: The HTTP status of the answer; 202 where there is none yet.

        Raises:
            OSError: The file cannot be written.
        """
        texts = {"token": token, "client": client, "key": key, "outcome": outcome}
        cut = {name: text and text[:AUDIT_VALUE] for name, text in texts.items()}
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        content = (json.dumps({"time": now, **cut, "status": status}) + "\n").encode("ascii")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._make_room(len(content))
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.path, flags, OWNER_ONLY)
        try:
            if os.write(descriptor, content) != len(content):
                raise OSError("the line was not written whole")
        finally:
            os.close(descriptor)

    def _make_room(self, size: int) -> None:
        if self._size() + size > self._largest:
            with locked(self.path.parent, "audit"):
                if self._size() + size > self._largest:  # nobody else did it in between
                    self.path.replace(self.path.with_name("audit.jsonl.1"))

    def _size(self) -> int:
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0


# What a record must be


def _parse_record(body: bytes) -> Record:
    """The finished final record of a request's body, without the files beside it.

    Raises:
        Refusal: 400 where the body is not JSON, 422 where it is no such record.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refusal(400, f"The body is not UTF-8: byte {error.start} is wrong.", outcome="json") from error
    _check_values(_parse_json(text))
    try:
        record = RECORDS.parse(text, where="The body")
    except RecordError as error:
        hint = error.hint and "The site is older than what wrote this record; it needs an update."
        raise _unfit(error.message, hint or "") from error
    except ValueError as error:
        raise _unfit("The record is not what its `digest` says.", _AS_WRITTEN) from error
    for check in (_check_status, _check_names, _check_sweep, _check_key, _check_scores, _check_provenance):
        check(record)
    return record.model_copy(update={"examples": None, "run": None})


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_not_finite, object_pairs_hook=_object)
    except RecursionError as error:
        raise _too_deep() from error
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise Refusal(400, f"The body is not JSON: {error.msg} ({place}).", outcome="json") from error
    except ValueError as error:  # an integer of thousands of digits
        raise _unfit(f"The body has an integer that is not within ±{INTEGER}.") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        double = next(name for name in names if names.count(name) > 1)
        raise _unfit(f"The name {_shown(double)} stands twice in one object.")
    return values


def _not_finite(constant: str) -> NoReturn:
    raise _unfit(f"The body has {constant}, which is no number.", "A value that is not finite is null.")


def _check_values(document: Any) -> None:
    """Every value and every name: not too deep, finite, not too large, and text that can be stored."""
    open_: list[Iterator[Any]] = [iter((document,))]
    while open_:
        for value in open_[-1]:
            if len(open_) - 1 > DEPTH:
                raise _too_deep()
            if isinstance(value, float):
                _require(
                    math.isfinite(value), "The body has a number that is not finite.", "It is null then."
                )
            elif isinstance(value, int):
                _require(abs(value) < INTEGER, f"The body has an integer that is not within ±{INTEGER}.")
            elif isinstance(value, str):
                storable = not any(c == "\0" or "\ud800" <= c <= "\udfff" for c in value)
                _require(storable, f"The text {_shown(value)} has a character that cannot be stored.")
            elif value is not None:
                open_.append(chain.from_iterable(value.items()) if isinstance(value, dict) else iter(value))
                break
        else:
            open_.pop()


def _check_status(record: Record) -> None:
    done = record.status == "done" and record.error is None
    _require(done, "The record is of a failure.", "Only finished scores are taken.")
    _require(record.purpose == "final", "The record is of a trial.", "Only final records are taken.")
    finite = record.main_score is None or math.isfinite(record.main_score)
    _require(finite, "The `main_score` is not finite.", "A value that is not there is null.")


def _check_names(record: Record) -> None:
    model, task, lineage = record.model, record.task, record.lineage
    _require(bool(model.name.strip() and task.name.strip()), "The model or the task has no name.")
    names = [model.name, model.source, model.revision or "", task.name, task.type, task.metric]
    if lineage:
        names += [lineage.recipe, lineage.variant, *lineage.all_selected_on, lineage.own_data]
        names += [text for parent in lineage.parents for text in (parent.name, parent.own_data)]
        names += [lineage.sweep.setting] if lineage.sweep else []
    for name in names:
        short = len(name.encode()) <= NAME_BYTES
        _require(short, f"The name {_shown(name)} is longer than {NAME_BYTES} bytes.")
        hidden = any(unicodedata.category(c) in ("Cc", "Cf", "Cn", "Co", "Zl", "Zp") for c in name)
        _require(not hidden, f"The name {_shown(name)} has characters that cannot be seen.")
    key = bool(_HASH.fullmatch(model.artifact))
    _require(key, "The model's `artifact` is not an ArtifactKey: 64 digits of a SHA-256.")


def _check_sweep(record: Record) -> None:
    """The tasks of a sweep are those of every member's scores, its members its values, one of them chosen."""
    sweep = record.lineage.sweep if record.lineage else None
    if sweep is None:
        return
    members, part = [member.value for member in sweep.curve], "A member of the lineage's `sweep` has"
    known = all(value in sweep.values for value in members)
    _require(known, f"{part} a value that is none of it.", _AS_WRITTEN)
    chosen = sweep.chosen in [member.value for member in sweep.curve if member.mean is not None]
    _require(
        chosen, "The value that the lineage's `sweep` chose is that of no member with scores.", _AS_WRITTEN
    )
    alike = all(
        set(member.scores) == set(sweep.tasks if member.mean is not None else ()) for member in sweep.curve
    )
    _require(alike, f"{part} other tasks than it.", _AS_WRITTEN)


def _check_key(record: Record) -> None:
    identity, artifact, lineage = record.identity, record.model.artifact, record.lineage
    _require(record.key == digest(identity), "The `key` is not the digest of `identity`.", _AS_WRITTEN)
    _require(identity.get("artifact") == artifact, "The `identity` is of another artifact than `model`.")
    own = lineage is None or lineage.key == artifact
    _require(own, "The `lineage` is of another model than `model`.", _AS_WRITTEN)
    _require(identity.get("task") == record.task.name, "The `identity` is of another task than `task`.")


def _check_scores(record: Record) -> None:
    """Every score is null or a share: not above 1 and not below -1."""
    scores: dict[str, Any] = {"main_score": record.main_score}
    for split, subsets in record.scores.items():
        for subset, metrics in subsets.items():
            for name in ("main_score", record.task.metric):
                scores[f"scores.{split}.{subset}.{name}"] = metrics.get(name)
    hint = "Scores are shares of 1, from -1 to 1; a value that is not there is null."
    for name, value in scores.items():
        share = not isinstance(value, int | float) or -1 <= value <= 1
        _require(share, f"{_shown(name)} is {value}, which no score is.", hint)


_COUNTS = (
    "texts", "texts_trained_on", "texts_encoded", "characters_encoded", "tokens_encoded", "tokens_per_second",
    "cores", "threads",
)  # fmt: skip
_KINDS: Mapping[str, tuple[type, str]] = {
    **dict.fromkeys(
        ("device", "packages", "prompts_asked", "prompts_applied", "peak_memory_bytes", "gate"),
        (dict, "object"),
    ),
    **dict.fromkeys(("written", "started", "commit", "harness"), (str, "text")),
    "notes": (list, "list"),
}


def _check_provenance(record: Record) -> None:
    """What pages read of a provenance is of its kind, or not there; what else it has is free."""
    values = {name: value for name, value in record.provenance.items() if value is not None}
    seconds = values.get("seconds", {})
    amounts = isinstance(seconds, Mapping) and all(map(_is_amount, seconds.values()))
    _require(amounts, "The provenance's `seconds` are no numbers by name.")
    for name in values.keys() & set(_COUNTS):
        _require(_is_amount(values[name]), f"The provenance's `{name}` is no number, or below 0.")
    for name in values.keys() & _KINDS.keys():
        kind, label = _KINDS[name]
        _require(isinstance(values[name], kind), f"The provenance's `{name}` is no {label}.")


def _is_amount(value: Any) -> bool:
    return is_number(value) and value >= 0


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 40 else text[:40] + "…")


def _require(true: bool, message: str, hint: str = "") -> None:
    if not true:
        raise _unfit(message, hint)


def _too_deep() -> Refusal:
    return _unfit(f"The body has more than {DEPTH} objects and lists within one another.")


def _unfit(message: str, hint: str = "") -> Refusal:
    return Refusal(422, message, hint=hint, outcome="unfit")


# The route


@dataclass(kw_only=True)
class _Attempt:
    """What became known of a request on its way."""

    client: str
    token: str | None = None
    key: str | None = None


@dataclass(frozen=True, kw_only=True)
class Intake:
    """How a site takes records.

    Attributes:
        results: The folder they go to; its `site/` holds the tokens and the audit.
        limits: How often one token may push (`post`), and one client may send a wrong token.
        largest: Bytes that a body may have.
        patience: Seconds within which a body must arrive.
        changed: Called after a record was added, to refresh the site.
        counted: Called with the outcome of every attempt.
    """

    results: Path
    limits: Limits = field(default_factory=lambda: Limits({}))
    largest: int = LARGEST
    patience: float = 30.0
    changed: Callable[[], object] = lambda: None
    counted: Callable[[str], object] = lambda outcome: None

    async def answer(self, request: Request) -> Response:
        """The answer to a request; every attempt at a site that takes records is audited.

        A record that is new has two lines: `accepted` before it is stored, and what became of it.
        """
        attempt = _Attempt(client=client_of(request))
        try:
            status, outcome, content = await self._take(request, attempt)
            headers = {"Cache-Control": "no-store"}
            response: Response = JSONResponse(content, status_code=status, headers=headers)
        except Refusal as refusal:
            outcome, response = refusal.outcome, refusal.response()
        if outcome != "off":
            self.counted(outcome)
            await run_in_threadpool(self._audit, attempt, outcome, response.status_code)
        return response

    async def _take(self, request: Request, attempt: _Attempt) -> tuple[int, str, dict[str, Any]]:
        await run_in_threadpool(self._admit, request.headers, attempt)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Refusal(415, "The body must be application/json.", outcome="form")
        if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise Refusal(415, "The body must not be compressed.", outcome="form")
        body = await self._read(request)
        key = re.search(rb'"key"\s*:\s*"([0-9a-f]{64})"', body)
        attempt.key = key[1].decode() if key else None
        return await run_in_threadpool(self._store, body, attempt)

    def _admit(self, headers: Mapping[str, str], attempt: _Attempt) -> None:
        """Let in who has a token that holds; wrong ones are limited by address, a right one by its name."""
        try:
            token = self._token(headers, attempt)
        except Refusal as refusal:
            if refusal.status == 401:
                self.limits.enforce(attempt.client, "wrong token")
            raise
        self.limits.enforce(token.name, "post")
        if token.scope != SCOPES[0]:
            challenge = {"WWW-Authenticate": f'{_REALM}, error="insufficient_scope", scope="{SCOPES[0]}"'}
            raise Refusal(403, "This token may not push records.", headers=challenge, outcome="scope")

    def _token(self, headers: Mapping[str, str], attempt: _Attempt) -> Token:
        tokens = Tokens(self.results)
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        try:
            if not tokens.all():
                raise Refusal(404, "This site takes no records.", outcome="off")
            token = tokens.find(secret.strip())
        except HarnessError as error:
            log.error("%s Nobody can push.", error.message)
            raise _unable("tokens") from error
        if scheme.lower() != "bearer" or not secret.strip():
            hint, challenge = "Send `Authorization: Bearer <token>`.", {"WWW-Authenticate": _REALM}
            raise Refusal(401, "A token is needed.", hint=hint, headers=challenge, outcome="no-token")
        state = token.state(datetime.now(UTC)) if token is not None else "unknown"
        attempt.token = token.name if token is not None else None
        if token is None or state != "live":
            challenge = {"WWW-Authenticate": f'{_REALM}, error="invalid_token"'}
            hint = "It may be mistyped, expired or revoked."
            raise Refusal(401, "This token does not hold.", hint=hint, headers=challenge, outcome=state)
        return token

    async def _read(self, request: Request) -> bytes:
        """The body, as far as it is allowed to go, whatever its length is declared to be."""
        too_large = Refusal(413, f"The body is larger than {self.largest} bytes.", outcome="too-large")
        length = request.headers.get("content-length", "")
        if length.isdecimal() and len(length) <= 20 and int(length) > self.largest:
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

    def _store(self, body: bytes, attempt: _Attempt) -> tuple[int, str, dict[str, Any]]:
        record = _parse_record(body)
        attempt.key = record.key
        try:
            with locked(site_folder(self.results), "intake"):
                stands, created = self._put(record, attempt)
        except (HarnessError, OSError) as error:
            log.error("A record could not be stored. %s", error)
            raise _unable("store") from error
        if stands.main_score != record.main_score:
            message = f"There is another score under this key: {stands.main_score}, not {record.main_score}."
            raise Refusal(409, message, hint="The record that is there stays.", outcome="conflict")
        if created:
            try:
                self.changed()
            except Exception:  # the record stays all the same
                log.exception("A record was added, but the site could not be refreshed.")
        content = {
            "key": stands.key, "created": created, "model": stands.model.name, "task": stands.task.name,
            "main_score": stands.main_score, "examples": None,
            "notes": ["The per-example file is not taken, nor the run; the record is stored without them."],
        }  # fmt: skip
        return (201, "created", content) if created else (200, "known", content)

    def _put(self, record: Record, attempt: _Attempt) -> tuple[Record, bool]:
        """What stands under a record's key now, and whether it was put there, after it was audited."""
        store, model = Store(self.results), record.model
        slug = Artifact(
            name=model.name, source=model.source, folder=Path(), key=model.artifact, weights=model.weights
        ).slug
        path = store.path(slug, record.task.name, record.key).relative_to(store.root / "records")
        if len(path.parts) != 3 or {".", ".."} & set(path.parts):
            raise _unfit("The names of model and task make no path.")
        there = store.get(slug, record.task.name, record.key)
        if there is not None:
            return there, False
        if not self._audit(attempt, "accepted", 202):
            raise _unable("audit")
        stands = store.put(slug, record)
        return stands, stands is record

    def _audit(self, attempt: _Attempt, outcome: str, status: int) -> bool:
        """Audit an attempt; whether that could be done."""
        try:
            PushLog(self.results).write(**vars(attempt), outcome=outcome, status=status)
        except (OSError, HarnessError):
            log.exception("The audit could not be written.")
            return False
        return True


def _unable(outcome: str) -> Refusal:
    """A failure of the site's own; its log says which."""
    hint = "Whoever runs the site finds the cause in its log. Pushing again does no harm."
    retry = {"Retry-After": "60"}
    return Refusal(503, "The site cannot take records now.", hint=hint, headers=retry, outcome=outcome)


_ANSWERS = {
    200: "The record was there already, with the same score; nothing was changed.",
    201: "The record was added.",
    400: "The body is not JSON in UTF-8, or broke off.",
    401: "No token, or one that does not hold.",
    403: "The token does not allow this.",
    404: "This site takes no records.",
    408: "The body did not arrive in time.",
    409: "Another score stands under this key; it stays.",
    413: "The body is too large.",
    415: "The body is not application/json, or compressed.",
    422: "The body is no finished final record, or its key is not that of its identity.",
    429: "Too many requests; Retry-After says when to try again.",
    503: "The site cannot take records now; Retry-After says when to try again.",
}


def router(intake: Intake) -> APIRouter:
    """The route that takes records; it answers 404 as long as no token was made."""
    routes = APIRouter()
    token = HTTPBearer(auto_error=False, description="From `harness token create`.")

    @routes.post(
        "/api/records",
        status_code=201,
        summary="Add one record",
        responses={status: {"description": text} for status, text in _ANSWERS.items()},
        dependencies=[Depends(token)],
        openapi_extra={
            "requestBody": {"required": True, "content": {"application/json": {"schema": _schema()}}}
        },
    )
    async def add_record(request: Request) -> Response:
        """Take one finished final record as a run wrote it; posting it again changes nothing."""
        return await intake.answer(request)

    return routes


def _schema() -> dict[str, Any]:
    """The record's JSON Schema with every part in its place: a reference would point out of it."""
    schema = Record.model_json_schema()
    parts = schema.pop("$defs")

    def placed(value: Any) -> Any:
        if isinstance(value, list):
            return [placed(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value:
            return placed(parts[value["$ref"].removeprefix("#/$defs/")])
        return {name: placed(item) for name, item in value.items()}

    return {name: placed(value) for name, value in schema.items()}
