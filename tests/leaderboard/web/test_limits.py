"""Who may do what at the site: headers, limits, tokens, and their audit."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import pytest
from fastapi import FastAPI
from limits.storage import MemoryStorage
from prometheus_client.parser import text_string_to_metric_families
from starlette.responses import PlainTextResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.testclient import TestClient

from harness.core.errors import HarnessError, RecordError, StoreError, UsageError
from leaderboard.commands import token as commands
from leaderboard.web.headers import SecurityHeaders
from leaderboard.web.intake import Audit
from leaderboard.web.limits import PARAMETERS, QUERY_BYTES, Limits, Refusal, check_query, network_of
from leaderboard.web.metrics import CONTENT_TYPE, CountRequests, Metrics
from leaderboard.web.tokens import Tokens

# What stands around every answer: security headers, metrics, compression


@pytest.fixture
def app(tmp_path: Path) -> FastAPI:
    app = FastAPI()
    (tmp_path / "x.css").write_text("a {}")
    app.mount("/static", StaticFiles(directory=tmp_path))

    @app.get("/models/{model:path}")
    def model(model: str) -> str:
        return model

    @app.get("/own")
    def own() -> Response:
        return PlainTextResponse("x", headers={"Content-Security-Policy": "sandbox"})

    @app.get("/broken")
    def broken() -> None:
        raise RuntimeError("on purpose")

    return app


def directives(policy: str) -> dict[str, str]:
    return dict(part.strip().partition(" ")[::2] for part in policy.split(";"))


def test_every_answer_has_the_headers(app: FastAPI) -> None:
    client = TestClient(SecurityHeaders(app), raise_server_exceptions=False)
    for path, status in (("/models/a/b", 200), ("/static/x.css", 200), ("/nothing", 404), ("/broken", 500)):
        answer = client.get(path)
        assert answer.status_code == status
        policy = directives(answer.headers["content-security-policy"])
        assert policy["default-src"] == policy["script-src"] == policy["style-src"] == "'self'"
        assert policy["img-src"] == "'self' data:"
        assert policy["frame-ancestors"] == policy["object-src"] == policy["base-uri"] == "'none'"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert "camera=()" in answer.headers["permissions-policy"]
        assert "strict-transport-security" not in answer.headers


def test_an_application_can_be_wrapped_in_place(app: FastAPI) -> None:
    """Its own handler of failures stands outside of what `add_middleware` adds."""
    app.middleware_stack = SecurityHeaders(app.build_middleware_stack())
    answer = TestClient(app, raise_server_exceptions=False).get("/broken")
    assert (answer.status_code, answer.headers["x-frame-options"]) == (500, "DENY")


def test_an_answer_may_be_stricter(app: FastAPI) -> None:
    assert TestClient(SecurityHeaders(app)).get("/own").headers["content-security-policy"] == "sandbox"


def samples(metrics: Metrics) -> dict[tuple[str, ...], float]:
    """Every sample by its name and the values of its labels, read by the client library's parser."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
    }


def test_requests_are_counted_by_template(app: FastAPI) -> None:
    metrics = Metrics()
    client = TestClient(CountRequests(app, metrics), raise_server_exceptions=False)
    for i in range(30):
        client.get(f"/models/org/m{i}?x={i}")
        client.get(f"/nothing/{i}")
        client.request(f"VERB{i}", f"/nothing/{i}")
    client.get("/static/x.css")
    client.get("/static/y.css")
    client.get("/broken")
    client.post("/own")
    found = samples(metrics)
    counted = {k[1:]: v for k, v in found.items() if k[0] == "harness_requests_total"}
    assert counted == {
        ("GET", "/models/{model:path}", "200"): 30,
        ("GET", "(none)", "404"): 30,
        ("OTHER", "(none)", "404"): 30,
        ("GET", "(other)", "200"): 1,
        ("GET", "(other)", "404"): 1,
        ("GET", "/broken", "500"): 1,
        ("POST", "/own", "405"): 1,
    }
    assert found["harness_request_seconds_count", "/models/{model:path}"] == 30
    assert found["harness_request_seconds_bucket", "+Inf", "/models/{model:path}"] == 30
    assert found["harness_request_seconds_sum", "/models/{model:path}"] > 0


# How often and how much a client may ask


def test_clients_and_uses_are_counted_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("time.time", lambda: now[0])
    limits = Limits({"page": "2/minute", "post": "1/minute"})
    for client, what in (("a", "page"), ("a", "post"), ("b", "post"), ("a", "page")):
        limits.enforce(client, what)
    now[0] += 0.5
    with pytest.raises(Refusal) as caught:
        limits.enforce("a", "page")
    response = caught.value.response()
    assert (response.status_code, response.headers["retry-after"]) == (429, "60")
    error = json.loads(bytes(response.body))["error"]
    assert error == {"status": 429, "message": "Too many requests.", "hint": "Wait 60 s and try again."}
    now[0] += 60
    limits.enforce("a", "page")


def test_no_more_than_the_limit_get_through_at_once() -> None:
    limits = Limits({"page": "50/minute"})
    gate = threading.Barrier(8)

    def request(_: int) -> int:
        gate.wait()
        done = 0
        for _ in range(20):
            with contextlib.suppress(Refusal):
                limits.enforce("a", "page")
                done += 1
        return done

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(request, range(8))) == 50


def test_clients_that_left_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits({"page": "5/second"})
    for i in range(500):
        limits.enforce(f"client {i}", "page")
    storage = limits._limiter.storage
    assert isinstance(storage, MemoryStorage)
    time.sleep(1.1)
    limits.enforce("another", "page")
    time.sleep(0.2)
    assert len(storage.storage) == len(storage.expirations) == 1


def test_a_network_of_one_client_is_one_client() -> None:
    assert network_of("2001:db8:1:2:aaaa::1") == network_of("2001:db8:1:2:bbbb::9")
    assert network_of("2001:db8:1:2::1") != network_of("2001:db8:1:3::1")
    assert network_of("fe80::1%eth0") == network_of("fe80::2%eth1")
    assert network_of("::ffff:192.0.2.1") == network_of("192.0.2.1") != network_of("192.0.2.2")
    assert len(network_of("x" * 10_000)) <= 64


def test_the_other_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("leaderboard.web.metrics.time.monotonic", lambda: now[0])
    metrics, other = Metrics(), Metrics()
    metrics.refreshed(7)
    metrics.cache.labels("hit").inc()
    metrics.posts.labels("created").inc()
    now[0] = 112.5
    numbers = samples(metrics)
    assert numbers["harness_entries",] == 7
    assert numbers["harness_index_age_seconds",] == 12.5
    assert numbers["harness_cache_total", "hit"] == numbers["harness_posts_total", "created"] == 1
    assert numbers["harness_worker", str(os.getpid())] == 1
    assert ("harness_posts_total", "created") not in samples(other)
    assert CONTENT_TYPE.startswith("text/plain; version=0.0.4")


@pytest.mark.parametrize(
    "query",
    [
        b"",
        b"m=a&m=b&sort=-x",
        b"q=" + b"x" * 512,
        b"&".join(b"m=%d" % i for i in range(PARAMETERS)),
        "q=é".encode("ascii", "xmlcharrefreplace"),
        b"q=%C3%A9&empty=&flag",
        b"q=" + b"%C3%A9" * 512,
    ],
)
def test_queries_that_are_let_through(query: bytes) -> None:
    check_query(query)
    assert len(query) <= QUERY_BYTES


@pytest.mark.parametrize(
    ("query", "status"),
    [
        (b"x" * (QUERY_BYTES + 1), 414),
        (b"q=" + b"x" * 513, 400),
        (b"x" * 513 + b"=1", 400),
        (b"&".join(b"m=%d" % i for i in range(PARAMETERS + 1)), 400),
        (b"q=%ff", 400),
        (b"q=\xff", 400),
        (b"q=a%00b", 400),
        (b"q=a%0d%0aSet-Cookie:x", 400),
        (b"q%00=a", 400),
        (b"q=%7f", 400),
        (b"q=%ed%a0%80", 400),
    ],
)
def test_queries_that_are_refused(query: bytes, status: int) -> None:
    with pytest.raises(Refusal) as caught:
        check_query(query)
    assert caught.value.status == status


# Tokens and the audit at rest: who may read them, what they hold, what is refused


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
        audit = Audit(tmp_path)
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
    audit = Audit(tmp_path)
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
            Audit(tmp_path).write(**attempt(key=f"{number}-{i}"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    lines = [json.loads(line)["key"] for line in Audit(tmp_path).path.read_text().splitlines()]
    assert sorted(lines) == sorted(f"{n}-{i}" for n in range(8) for i in range(50))


def test_a_full_audit_is_put_aside(tmp_path: Path) -> None:
    audit = Audit(tmp_path, largest=1000)
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
        Audit(tmp_path).write(**attempt())


def harness(results: Path, *arguments: str) -> int:
    code: int = commands.command.main([*arguments, "--results", str(results)], standalone_mode=False)
    return code


def test_the_secret_is_printed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert harness(tmp_path, "create", "ci", "--days", "7") == 0
    said = capsys.readouterr()
    secret = said.out.strip()
    assert "cannot be shown again" in said.err
    found = Tokens(tmp_path).find(secret)
    assert found is not None
    assert found.name == "ci"
    for arguments in (("list",), ("list", "--json"), ("revoke", "ci"), ("revoke", "ci", "--json"), ("list",)):
        assert harness(tmp_path, *arguments) == 0
        shown = capsys.readouterr().out
        assert "ci" in shown
        assert secret not in shown
        assert found.digest not in shown
    assert "revoked" in shown


def test_json_of_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    harness(tmp_path, "list", "--json")
    assert json.loads(capsys.readouterr().out) == {"schema": 1, "tokens": []}
    harness(tmp_path, "create", "ci", "--json")
    created = json.loads(capsys.readouterr().out)
    found = Tokens(tmp_path).find(created["secret"])
    assert found is not None
    assert created["token"]["name"] == found.name
    assert created["token"]["state"] == "live"
    harness(tmp_path, "list", "--json")
    assert json.loads(capsys.readouterr().out)["tokens"] == [created["token"]]


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "a b"),
        ("create", "ci", "--days", "0"),
        ("create", "ci", "--scope", "x"),
        ("create",),
        ("revoke", "x"),
    ],
)
def test_misuse(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with pytest.raises((HarnessError, click.ClickException)) as caught:
        harness(tmp_path, *arguments)
    assert getattr(caught.value, "exit_code", None) == 2


def test_an_empty_list_says_what_to_type(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert harness(tmp_path, "list") == 0
    assert "harness token create" in capsys.readouterr().out
