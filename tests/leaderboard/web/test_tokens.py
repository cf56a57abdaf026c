"""Tokens and the audit at rest: who may read them, what they hold, what is refused."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import RecordError, StoreError, UsageError
from leaderboard.web.intake import PushLog
from leaderboard.web.tokens import Tokens


def test_a_secret_is_random_and_only_its_hash_is_kept(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    made = [tokens.create(f"t{i}") for i in range(20)]
    assert len({secret for _, secret in made}) == 20
    content = tokens.path.read_text()
    for token, secret in made:
        assert len(secret) == 47
        assert secret.startswith("ehw_")
        assert set(secret[4:]) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
        assert secret[4:-4] not in content
        assert token.digest == hashlib.sha256(secret.encode()).hexdigest()
        assert token.tail == secret[-4:]
        assert tokens.find(secret) == token
    assert tokens.find("ehw_" + "A" * 43) is None
    assert tokens.find("") is None


def test_every_token_is_compared_in_constant_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = Tokens(tmp_path)
    secrets = [tokens.create(f"t{i}")[1] for i in range(3)]
    compared: list[bytes] = []
    compare = hmac.compare_digest

    def counting(kept: bytes, wanted: bytes) -> bool:
        compared.append(kept)
        return compare(kept, wanted)

    monkeypatch.setattr(hmac, "compare_digest", counting)
    for secret in (secrets[0], secrets[2], "ehw_wrong", ""):
        compared.clear()
        tokens.find(secret)
        assert compared == [token.digest.encode() for token in tokens.all()]


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_only_the_owner_reads_the_files(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        tokens = Tokens(tmp_path)
        tokens.create("a")
        tokens.revoke("a")
        audit = PushLog(tmp_path)
        audit.write(**attempt())
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tokens.path, audit.path)} == {0o600}
    assert {p.name for p in (tmp_path / "site").iterdir()} == {"tokens.json", "audit.jsonl", ".tokens.lock"}


def test_the_form_of_the_file(tmp_path: Path) -> None:
    Tokens(tmp_path).create("ci", days=30)
    content = json.loads(Tokens(tmp_path).path.read_text())
    assert content["schema"] == 1
    assert set(content["tokens"][0]) == {"name", "scope", "digest", "tail", "created", "expires", "revoked"}


def test_a_token_ends(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    token, secret = tokens.create("ci", days=2)
    assert token.expires == token.created + timedelta(days=2)
    moment = timedelta(seconds=1)
    assert token.state(token.expires - moment) == "live"
    assert token.state(token.expires) == "expired"
    once = tokens.revoke("ci")
    assert once.state(datetime.now(UTC)) == "revoked"
    assert tokens.revoke("ci") == once
    assert tokens.find(secret) == once


def test_a_name_is_used_once(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    tokens.create("ci")
    tokens.revoke("ci")
    with pytest.raises(UsageError, match="There is a token called 'ci'"):
        tokens.create("ci")


@pytest.mark.parametrize("name", ["", "a b", "../x", "a\n", "é", "-x", "x" * 65, "a\x00"])
def test_names_are_plain(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be a token's name"):
        Tokens(tmp_path).create(name)
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize("options", [{"scope": "all"}, {"days": 0}, {"days": -1}, {"days": 10**9}])
def test_scopes_and_days_are_checked(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Tokens(tmp_path).create("ci", **options)


def test_unknown_tokens_cannot_be_revoked(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    with pytest.raises(UsageError, match="no token here"):
        tokens.revoke("ci")
    assert not tokens.path.parent.exists()
    tokens.create("nightly")
    with pytest.raises(UsageError) as caught:
        tokens.revoke("nightli")
    assert "Did you mean nightly?" in str(caught.value)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": 2, "tokens": []}', '{"schema": 1, "x": 1}'])
def test_a_damaged_file_is_said_and_kept(tmp_path: Path, content: str) -> None:
    tokens = Tokens(tmp_path)
    tokens.path.parent.mkdir()
    tokens.path.write_text(content)
    with pytest.raises(RecordError, match="is damaged"):
        tokens.find("ehw_x")
    with pytest.raises(RecordError, match="is damaged"):
        tokens.create("ci")
    assert tokens.path.read_text() == content


def test_tokens_made_at_once_are_all_kept(tmp_path: Path) -> None:
    gate = threading.Barrier(8)

    def create(number: int) -> str:
        gate.wait()
        return Tokens(tmp_path).create(f"t{number}")[1]

    with ThreadPoolExecutor(8) as pool:
        secrets = list(pool.map(create, range(8)))
    assert {token.name for token in Tokens(tmp_path).all()} == {f"t{i}" for i in range(8)}
    assert all(Tokens(tmp_path).find(secret) is not None for secret in secrets)


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "site").write_text("in the way")
    with pytest.raises(StoreError, match="Cannot write"):
        Tokens(tmp_path).create("ci")


def attempt(**changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"token": "ci", "client": "::1", "key": "k", "outcome": "created", "status": 201}
    return {**fields, **changes}


def test_hostile_values_stay_within_their_line(tmp_path: Path) -> None:
    audit = PushLog(tmp_path)
    hostile = 'a"\n{"status": 201}\r\u2028\x1b[2J\ud800\x00' + "é" * 10_000
    audit.write(**attempt(client=hostile, key=hostile))
    audit.write(**attempt(token=None, key=None))
    content = audit.path.read_bytes()
    assert content.isascii()
    first, second = content.splitlines()
    assert len(first) < 2000
    assert json.loads(first)["client"] == hostile[:128]
    assert json.loads(second)["token"] is None
    assert b"\x1b" not in content


def test_lines_written_at_once_stay_whole(tmp_path: Path) -> None:
    def write(number: int) -> None:
        for i in range(50):
            PushLog(tmp_path).write(**attempt(key=f"{number}-{i}"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    lines = [json.loads(line)["key"] for line in PushLog(tmp_path).path.read_text().splitlines()]
    assert sorted(lines) == sorted(f"{n}-{i}" for n in range(8) for i in range(50))


def test_a_full_audit_is_put_aside(tmp_path: Path) -> None:
    audit = PushLog(tmp_path, largest=1000)
    for i in range(30):
        audit.write(**attempt(key=str(i)))
    aside = audit.path.with_name("audit.jsonl.1")
    assert audit.path.stat().st_size <= 1000
    assert aside.stat().st_size <= 1000
    keys = [json.loads(line)["key"] for path in (aside, audit.path) for line in path.read_text().splitlines()]
    assert keys == [str(i) for i in range(30 - len(keys), 30)]


def test_an_audit_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "elsewhere").write_text("")
    (tmp_path / "site" / "audit.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        PushLog(tmp_path).write(**attempt())
