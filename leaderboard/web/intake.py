"""The audit: a line for every attempt to push a record, and one before a record is stored."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import json
import logging
import math
import os
import re
import secrets
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NoReturn

import anyio
from fastapi import APIRouter, Depends
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from harness import files
from harness.errors import HarnessError, RecordError, StoreError, UsageError, unknown
from harness.identity import digest
from harness.record import RECORDS, Record
from harness.store import Store
from harness.types import Artifact
from leaderboard.web.limits import Limits, Refusal

_MODE = 0o600
"""Read and written by the owner alone."""


def _site_folder(results: Path) -> Path:
    """Where a site keeps its own files in a results folder."""
    return results / "site"


@contextlib.contextmanager
def _locked(place: Path, name: str) -> Iterator[None]:
    """Hold the lock `name` of a folder; others of this machine wait, threads and processes alike.

    Raises:
        StoreError: The folder cannot be written.
    """
    with _writing(place):
        place.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(place / f".{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, content: bytes) -> None:
    """Write a file in place of what may be there, in one step; at no time may others read it.

    Raises:
        StoreError: It cannot be written.
    """
    name = f".{path.name}.{files.host()}-{os.getpid()}-{secrets.token_hex(4)}.tmp"
    temporary = path.parent / name
    try:
        with _writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        files.move(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        hint = "The folder must belong to the user that runs this."
        raise StoreError(f"Cannot write {path}: {error.strerror or error}.", hint=hint) from error


LONGEST = 128
"""Characters of one value; what is longer is cut."""

FULL = 64 * 2**20
"""Bytes after which the file is put aside as `audit.jsonl.1`, in place of the one before it."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """What is written of an attempt; no secret is among it.

    Attributes:
        token: The token's name, None where there was no known one.
        client: The address it came from.
        key: The record's key, None where the request did not get that far.
        outcome: One word: `accepted` before a record is stored; then `created`, `known`, `conflict`,
            or why it was refused.
        status: The HTTP status of the answer; 202 where there is none yet.
    """

    token: str | None
    client: str | None
    key: str | None
    outcome: str
    status: int


class Audit:
    """The audit of a results folder, in `site/audit.jsonl`."""

    def __init__(self, results: Path, *, full: int = FULL) -> None:
        self.path = _site_folder(results) / "audit.jsonl"
        self._full = full

    def write(self, attempt: Attempt) -> None:
        """Append a line, whole, whoever else writes; values of strangers are escaped and cut.

        Raises:
            OSError: The file cannot be written.
        """
        line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **asdict(attempt)}
        cut = {k: v[:LONGEST] if isinstance(v, str) else v for k, v in line.items()}
        content = (json.dumps(cut, ensure_ascii=True) + "\n").encode("ascii")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._make_room(len(content))
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.path, flags, _MODE)
        try:
            if os.write(descriptor, content) != len(content):
                raise OSError("the line was not written whole")
        finally:
            os.close(descriptor)

    def _make_room(self, wanted: int) -> None:
        if self._size() + wanted <= self._full:
            return
        with _locked(self.path.parent, "audit"):
            if self._size() + wanted > self._full:  # nobody else did it in between
                self.path.replace(self.path.with_name(f"{self.path.name}.1"))

    def _size(self) -> int:
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0


SCOPES = ("records:write",)
"""What a token may allow."""

PREFIX = "ehw_"
"""What every secret begins with, so that a scanner of repositories can find one that was committed."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
TOKENS_LONGEST = 3650
"""Days after which a token must end, if it ends at all."""

State = Literal["live", "expired", "revoked"]


class Token(BaseModel):
    """What is kept of a token: never its secret."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    scope: str
    digest: str
    """SHA-256 of the secret, in hex."""
    tail: str
    """The last four characters of the secret, to tell one from another."""
    created: datetime
    expires: datetime | None = None
    revoked: datetime | None = None

    def state(self, now: datetime) -> State:
        """Whether the token can be used."""
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and self.expires <= now else "live"


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = Field(default=1, alias="schema")
    tokens: tuple[Token, ...] = ()


class Tokens:
    """The tokens of a results folder, in `site/tokens.json`.

    The file is read anew each time, so that a revocation holds at once.
    """

    def __init__(self, results: Path) -> None:
        self.path = _site_folder(results) / "tokens.json"

    def all(self) -> tuple[Token, ...]:
        """Every token that was made, the oldest first.

        Raises:
            RecordError: The file cannot be read; nobody may push then.
        """
        try:
            return _File.model_validate_json(self.path.read_bytes()).tokens
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as error:
            raise RecordError(f"Cannot read {self.path}: {error.strerror}.") from error
        except ValidationError as error:
            hint = "Restore it, or move it away and make new tokens (`harness token create`)."
            raise RecordError(f"{self.path} is damaged, or of a newer version.", hint=hint) from error

    def create(self, name: str, *, scope: str = SCOPES[0], days: int | None = None) -> tuple[Token, str]:
        """Make a token; returns it and its secret, which nobody can show again.

        Args:
            name: Who will use it. A name is used once, so that the audit stays clear.
            scope: What it allows, one of SCOPES.
            days: How long it holds; None for ever.

        Raises:
            UsageError: The name, the scope or the days will not do.
            StoreError: The folder cannot be written.
        """
        _check(name, scope, days)
        now = datetime.now(UTC).replace(microsecond=0)
        expires = now + timedelta(days=days) if days is not None else None
        secret = PREFIX + secrets.token_urlsafe(32)
        token = Token(
            name=name, scope=scope, digest=_hash(secret), tail=secret[-4:], created=now, expires=expires
        )
        with _locked(self.path.parent, "tokens"):
            there = self.all()
            if any(other.name == name for other in there):
                hint = "A name is used once, also when it was revoked; choose another."
                raise UsageError(f"There is a token called {name!r}.", hint=hint)
            self._write((*there, token))
        return token, secret

    def revoke(self, name: str) -> Token:
        """End a token; returns it as it is now. Revoking it again changes nothing.

        Raises:
            UsageError: There is no such token.
            StoreError: The folder cannot be written.
        """
        if not self.all():
            raise UsageError("There is no token here.", hint="`harness token create NAME` makes one.")
        with _locked(self.path.parent, "tokens"):
            there = {token.name: token for token in self.all()}
            if name not in there:
                raise unknown("token", name, there, then="`harness token list` shows them.")
            if there[name].revoked is None:
                ended = datetime.now(UTC).replace(microsecond=0)
                there[name] = there[name].model_copy(update={"revoked": ended})
                self._write(tuple(there.values()))
        return there[name]

    def find(self, secret: str) -> Token | None:
        """The token of a secret, in any state; None if there is none.

        Every token is compared, each in constant time, so the time tells nothing of a near miss.
        """
        wanted, found = _hash(secret), None
        for token in self.all():
            if hmac.compare_digest(token.digest.encode(), wanted.encode()):
                found = token
        return found

    def _write(self, tokens: tuple[Token, ...]) -> None:
        _replace(self.path, _File(tokens=tokens).model_dump_json(indent=1, by_alias=True).encode() + b"\n")


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogateescape")).hexdigest()


def _check(name: str, scope: str, days: int | None) -> None:
    if not NAME.fullmatch(name):
        allowed = "Names are 1 to 64 letters, digits, '.', '_' and '-', a letter or digit first."
        raise UsageError(f"{name!r} cannot be a token's name.", hint=allowed)
    if scope not in SCOPES:
        raise unknown("scope", scope, SCOPES, then="`harness token create --help` explains them.")
    if days is not None and not 1 <= days <= TOKENS_LONGEST:
        raise UsageError(
            f"A token cannot hold for {days} days.", hint=f"From 1 to {TOKENS_LONGEST}, or for ever."
        )


DEPTH = 32
"""Objects and lists within one another."""

DOCUMENTS_NAME = 200
"""Bytes of a name: it becomes a folder's."""

INTEGER = 2**63
"""Integers are smaller than this, as in every database."""

COUNTS = (
    "texts",
    "texts_trained_on",
    "texts_encoded",
    "characters_encoded",
    "tokens_encoded",
    "tokens_per_second",
    "cores",
    "threads",
)
"""What a provenance says in numbers, where it says it."""

OBJECTS = ("device", "packages", "prompts_asked", "prompts_applied", "peak_memory_bytes", "gate")
TEXTS = ("written", "started", "commit", "harness")

AS_WRITTEN = "Push records as a run wrote them."

_END = object()
_HASH = re.compile(r"[0-9a-f]{64}")


def record_of(body: bytes) -> Record:
    """The finished final record of a request's body, without the files beside it.

    Raises:
        Refusal: 400 where the body is not JSON, 422 where it is no such record.
    """
    text = _text(body)
    _check_values(_value(text))
    try:
        record = RECORDS.parse(text, where="The body")
    except RecordError as error:
        hint = error.hint and "The site is older than what wrote this record; it needs an update."
        raise _unfit(error.message, hint=hint or "") from error
    except ValueError as error:
        raise _unfit("The record is not what its `digest` says.", hint=AS_WRITTEN) from error
    _check_kind(record)
    _check_names(record)
    _check_sweep(record)
    _check_key(record)
    _check_scores(record)
    _check_provenance(record.provenance)
    return record.model_copy(update={"examples": None, "run": None})


def slug_of(record: Record) -> str:
    """The artifact's folder, named as a run would name it."""
    model = record.model
    return Artifact(
        name=model.name, source=model.source, folder=Path(), key=model.artifact, weights=model.weights
    ).slug


def key_of(body: bytes) -> str | None:
    """What a body that was refused may have as its key, for the audit."""
    found = re.search(rb'"key"\s*:\s*"([0-9a-f]{64})"', body)
    return found[1].decode() if found else None


def _text(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refusal(400, f"The body is not UTF-8: byte {error.start} is wrong.", outcome="json") from error


def _value(text: str) -> Any:
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
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _unfit(f"The name {_shown(name)} stands twice in one object.")
        found[name] = value
    return found


def _not_finite(constant: str) -> NoReturn:
    raise _unfit(f"The body has {constant}, which is no number.", hint="A value that is not finite is null.")


def _check_values(document: Any) -> None:
    for value, depth in _walk(document):
        if depth > DEPTH:
            raise _too_deep()
        if isinstance(value, float) and not math.isfinite(value):
            raise _unfit("The body has a number that is not finite.", hint="Such a value is null.")
        if isinstance(value, int) and abs(value) >= INTEGER:
            raise _unfit(f"The body has an integer that is not within ±{INTEGER}.")
        if isinstance(value, str) and any(c == "\0" or "\ud800" <= c <= "\udfff" for c in value):
            raise _unfit(f"The text {_shown(value)} has a character that cannot be stored.")


def _walk(document: Any) -> Iterator[tuple[Any, int]]:
    """Every value and every name of an object, each with its depth."""
    open_: list[Iterator[Any]] = [iter((document,))]
    while open_:
        value = next(open_[-1], _END)
        if value is _END:
            open_.pop()
            continue
        yield value, len(open_) - 1
        if isinstance(value, dict):
            open_.append(chain.from_iterable(value.items()))
        elif isinstance(value, list):
            open_.append(iter(value))


def _check_kind(record: Record) -> None:
    if record.status != "done" or record.error is not None:
        raise _unfit("The record is of a failure.", hint="Only finished scores are taken.")
    if record.purpose != "final":
        raise _unfit("The record is of a trial.", hint="Only final records are taken.")
    if record.main_score is not None and not math.isfinite(record.main_score):
        raise _unfit("The `main_score` is not finite.", hint="A value that is not there is null.")


def _check_names(record: Record) -> None:
    model, task = record.model, record.task
    if not model.name.strip() or not task.name.strip():
        raise _unfit("The model or the task has no name.")
    made = record.lineage
    parents = made.parents if made else ()
    trained = [made.recipe, made.variant, *(p.name for p in parents), *made.all_selected_on] if made else []
    own = [made.own_data, *(p.own_data for p in parents)] if made else []
    own += [made.sweep.setting] if made and made.sweep else []
    for name in (
        *(model.name, model.source, model.revision or "", task.name, task.type, task.metric),
        *trained,
        *own,
    ):
        if len(name.encode()) > DOCUMENTS_NAME:
            raise _unfit(f"The name {_shown(name)} is longer than {DOCUMENTS_NAME} bytes.")
        if any(unicodedata.category(c) in ("Cc", "Cf", "Cn", "Co", "Zl", "Zp") for c in name):
            raise _unfit(f"The name {_shown(name)} has characters that cannot be seen.")
    if not _HASH.fullmatch(record.model.artifact):
        raise _unfit("The model's `artifact` is not an ArtifactKey: 64 digits of a SHA-256.")


def _check_sweep(record: Record) -> None:
    """The tasks of a sweep are those of every member's scores, its members its values, one of them chosen."""
    sweep = record.lineage.sweep if record.lineage else None
    if sweep is None:
        return
    members = [member.value for member in sweep.curve]
    if any(value not in sweep.values for value in members):
        raise _unfit("A member of the lineage's `sweep` has a value that is none of it.", hint=AS_WRITTEN)
    if sweep.chosen not in members:
        raise _unfit("The value that the lineage's `sweep` chose is that of no member.", hint=AS_WRITTEN)
    for member in sweep.curve:
        if set(member.scores) != set(sweep.tasks):
            raise _unfit("A member of the lineage's `sweep` has other tasks than it.", hint=AS_WRITTEN)


def _check_key(record: Record) -> None:
    if record.key != digest(record.identity):
        raise _unfit("The `key` is not the digest of `identity`.", hint=AS_WRITTEN)
    if record.identity.get("artifact") != record.model.artifact:
        raise _unfit("The `identity` is of another artifact than `model`.")
    if record.lineage is not None and record.lineage.key != record.model.artifact:
        raise _unfit("The `lineage` is of another model than `model`.", hint=AS_WRITTEN)
    if record.identity.get("task") != record.task.name:
        raise _unfit("The `identity` is of another task than `task`.")


def _check_scores(record: Record) -> None:
    """Every score is null or a share: not above 1 and not below -1."""
    found: dict[str, Any] = {"main_score": record.main_score}
    for split, subsets in record.scores.items():
        for subset, metrics in subsets.items():
            for name in ("main_score", record.task.metric):
                found[f"scores.{split}.{subset}.{name}"] = metrics.get(name)
    for name, value in found.items():
        if isinstance(value, int | float) and not -1 <= value <= 1:
            raise _unfit(
                f"{_shown(name)} is {value}, which no score is.",
                hint="Scores are shares of 1, from -1 to 1; a value that is not there is null.",
            )


def _check_provenance(said: Mapping[str, Any]) -> None:
    """What pages read of it is of its kind, or not there; what else is said is free."""
    seconds = said.get("seconds")
    if seconds is not None and not (isinstance(seconds, Mapping) and all(map(_amount, seconds.values()))):
        raise _unfit("The provenance's `seconds` are no numbers by name.")
    for name in COUNTS:
        if said.get(name) is not None and not _amount(said[name]):
            raise _unfit(f"The provenance's `{name}` is no number, or below 0.")
    kinds: tuple[tuple[tuple[str, ...], type, str], ...] = (
        (OBJECTS, Mapping, "object"),
        (TEXTS, str, "text"),
        (("notes",), list, "list"),
    )
    for names, kind, called in kinds:
        for name in names:
            if said.get(name) is not None and not isinstance(said[name], kind):
                raise _unfit(f"The provenance's `{name}` is no {called}.")


def _amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 40 else text[:40] + "…")


def _too_deep() -> Refusal:
    return _unfit(f"The body has more than {DEPTH} objects and lists within one another.")


def _unfit(message: str, *, hint: str = "") -> Refusal:
    return Refusal(422, message, hint=hint, outcome="unfit")


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
            with _locked(_site_folder(self.results), "intake"):
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


ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The record was there already, with the same score; nothing was changed."},
    201: {"description": "The record was added."},
    400: {"description": "The body is not JSON in UTF-8, or broke off."},
    401: {"description": "No token, or one that does not hold."},
    403: {"description": "The token does not allow this."},
    404: {"description": "This site takes no records."},
    408: {"description": "The body did not arrive in time."},
    409: {"description": "Another score stands under this key; it stays."},
    413: {"description": "The body is too large."},
    415: {"description": "The body is not application/json, or compressed."},
    422: {"description": "The body is no finished final record, or its key is not that of its identity."},
    429: {"description": "Too many requests; Retry-After says when to ask again."},
    503: {"description": "The site cannot take records now; Retry-After says when to ask again."},
}


def router(intake: Intake) -> APIRouter:
    """The route that takes records; it answers 404 as long as no token was made."""
    routes = APIRouter()
    body = {"required": True, "content": {"application/json": {"schema": _schema()}}}
    token = HTTPBearer(auto_error=False, description="From `harness token create`.")

    @routes.post(
        "/api/records",
        status_code=201,
        summary="Add one record",
        responses=ANSWERS,
        dependencies=[Depends(token)],
        openapi_extra={"requestBody": body},
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

    found: dict[str, Any] = placed(schema)
    return found
