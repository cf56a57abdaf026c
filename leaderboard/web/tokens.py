"""Tokens: who may push records, and files of the site that only their owner may read."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from filelock import FileLock
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.core import files
from harness.core.errors import RecordError, StoreError, UsageError, unknown

SCOPES = ("records:write",)
"""What a token may allow."""

PREFIX = "ehw_"
"""What every secret begins with, so that a scanner of repositories can find one that was committed."""

OWNER_ONLY = 0o600
DAYS = 3650
"""After which a token must end, if it ends at all."""

_TOKEN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def site_folder(results: Path) -> Path:
    """Where a site has its own files in a results folder."""
    return results / "site"


@contextlib.contextmanager
def locked(folder: Path, name: str) -> Iterator[None]:
    """Hold a lock of a folder against other threads and processes of this machine."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / f".{name}.lock", mode=OWNER_ONLY).acquire(poll_interval=0.01)
    except OSError as error:
        hint = "The folder must belong to the user that runs this."
        raise StoreError(f"Cannot write {folder}: {error.strerror or error}.", hint=hint) from error
    with lock:
        yield


class Token(BaseModel):
    """What is stored of a token: the SHA-256 of its secret and its last four characters, not the secret."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    scope: str
    digest: str
    tail: str
    created: datetime
    expires: datetime | None = None
    revoked: datetime | None = None

    def state(self, now: datetime) -> Literal["live", "expired", "revoked"]:
        """Whether the token can be used."""
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and self.expires <= now else "live"


class _TokenFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = Field(default=1, alias="schema")
    tokens: tuple[Token, ...] = ()


class Tokens:
    """The tokens of a results folder, in `site/tokens.json`, read anew each time: it may change."""

    def __init__(self, results: Path) -> None:
        self.path = site_folder(results) / "tokens.json"

    def all(self) -> tuple[Token, ...]:
        """Every token that was made, the oldest first.

        Raises:
            RecordError: The file cannot be read; nobody may push then.
        """
        try:
            return _TokenFile.model_validate_json(self.path.read_bytes()).tokens
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as error:
            raise RecordError(f"Cannot read {self.path}: {error.strerror}.") from error
        except ValidationError as error:
            hint = "Restore it, or move it away and make new tokens (`harness token create`)."
            raise RecordError(f"{self.path} is damaged, or of a newer version.", hint=hint) from error

    def create(self, name: str, *, scope: str = SCOPES[0], days: int | None = None) -> tuple[Token, str]:
        """Make a token that holds for some days, or for ever; returns it and its secret, shown only now.

        Raises:
            UsageError: The name, the scope or the days will not do, or the name was used before.
            StoreError: The folder cannot be written.
        """
        if not _TOKEN_NAME.fullmatch(name):
            hint = "Names are 1 to 64 letters, digits, '.', '_' and '-', a letter or digit first."
            raise UsageError(f"{name!r} cannot be a token's name.", hint=hint)
        if scope not in SCOPES:
            raise unknown("scope", scope, SCOPES, then="`harness token create --help` explains them.")
        if days is not None and not 1 <= days <= DAYS:
            raise UsageError(f"A token cannot hold for {days} days.", hint=f"From 1 to {DAYS}, or for ever.")
        now, secret = datetime.now(UTC).replace(microsecond=0), PREFIX + secrets.token_urlsafe(32)
        expires = now + timedelta(days=days) if days is not None else None
        token = Token(
            name=name, scope=scope, digest=_hash(secret), tail=secret[-4:], created=now, expires=expires
        )
        with locked(self.path.parent, "tokens"):
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
        with locked(self.path.parent, "tokens"):
            there = {token.name: token for token in self.all()}
            if name not in there:
                raise unknown("token", name, there, then="`harness token list` shows them.")
            if there[name].revoked is None:
                now = datetime.now(UTC).replace(microsecond=0)
                there[name] = there[name].model_copy(update={"revoked": now})
                self._write(tuple(there.values()))
        return there[name]

    def find(self, secret: str) -> Token | None:
        """The token of a secret, in any state; all are compared, so the time tells nothing of a near miss."""
        own = _hash(secret).encode()
        return next(reversed([t for t in self.all() if hmac.compare_digest(t.digest.encode(), own)]), None)

    def _write(self, tokens: tuple[Token, ...]) -> None:
        content = _TokenFile(tokens=tokens).model_dump_json(indent=1, by_alias=True)
        files.replace(self.path, content.encode() + b"\n", mode=OWNER_ONLY)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogateescape")).hexdigest()
