"""Tokens: who may push records to a site.

A secret is 256 random bits, so the SHA-256 of it is all that is kept: there is no dictionary to try
against the hash, as there is for passwords, and a slow hash or a salt would only cost time on every
request. Whoever reads the file learns names and dates, and cannot push.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.errors import RecordError, UsageError, unknown
from leaderboard.access import private

SCOPES = ("records:write",)
"""What a token may allow."""

PREFIX = "ehw_"
"""What every secret begins with, so that a scanner of repositories can find one that was committed."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LONGEST = 3650
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
        self.path = private.folder(results) / "tokens.json"

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
        with private.exclusively(self.path.parent, "tokens"):
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
        with private.exclusively(self.path.parent, "tokens"):
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
        private.replace(
            self.path, _File(tokens=tokens).model_dump_json(indent=1, by_alias=True).encode() + b"\n"
        )


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogateescape")).hexdigest()


def _check(name: str, scope: str, days: int | None) -> None:
    if not NAME.fullmatch(name):
        allowed = "Names are 1 to 64 letters, digits, '.', '_' and '-', a letter or digit first."
        raise UsageError(f"{name!r} cannot be a token's name.", hint=allowed)
    if scope not in SCOPES:
        raise unknown("scope", scope, SCOPES, then="`harness token create --help` explains them.")
    if days is not None and not 1 <= days <= LONGEST:
        raise UsageError(f"A token cannot hold for {days} days.", hint=f"From 1 to {LONGEST}, or for ever.")
