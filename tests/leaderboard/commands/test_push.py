"""`harness push` against a real server: what arrives, what is refused, when it is sent again."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click
import pytest
import uvicorn
from fastapi import FastAPI

from harness.core.errors import HarnessError, UsageError
from harness.core.identity import digest
from harness.storage.record import RECORDS, Record
from harness.storage.store import Store
from leaderboard.commands import push
from leaderboard.commands.push import Answer, Client, Parcel, SiteError, address, is_open
from leaderboard.web.intake import Intake, router
from leaderboard.web.limits import Limits
from leaderboard.web.tokens import Tokens

ARTIFACT = "ab" * 32
SLUG = "tiny-" + ARTIFACT[:12]


def made(task: str, **changes: Any) -> Record:
    identity = {"artifact": ARTIFACT, "task": task, "seed": 42}
    fields = {
        "schema": 2,
        "key": digest(identity),
        "status": "done",
        "model": {"name": "tiny", "source": "tiny", "artifact": ARTIFACT, "weights": "cd" * 32},
        "task": {"name": task, "type": "STS", "metric": "cosine_spearman"},
        "identity": identity,
        "main_score": 0.5,
        **changes,
    }
    return RECORDS.parse(json.dumps(fields), where="test")


@contextmanager
def serving(app: FastAPI) -> Iterator[str]:
    """A server of its own on a free port."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()  # a client that comes before the server runs is queued, not refused
    config = uvicorn.Config(app, log_config=None, lifespan="off", ws="none", http="h11")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    return tmp_path / "remote"


@pytest.fixture
def site(remote: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("HARNESS_TOKEN", Tokens(remote).create("ci")[1])
    app = FastAPI()
    app.include_router(router(Intake(results=remote, largest=20_000)))
    with serving(app) as url:
        yield url


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Three finished records, a trial and a failure."""
    folder = tmp_path / "mine"
    store = Store(folder)
    for task in ("A", "B", "C"):
        store.put(SLUG, made(task, examples={"file": "", "rows": 1, "sha256": ""}), b"examples")
    store.put(SLUG, made("D", purpose="trial"))
    store.put(SLUG, made("E", status="failed"))
    return folder


def harness(*arguments: object) -> int:
    code: int = push.command.main([str(a) for a in arguments], standalone_mode=False)
    return code


def pushed(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, Any]:
    code = harness(*arguments, "--json")
    return code, json.loads(capsys.readouterr().out)


def test_finished_records_arrive_once(
    site: str, results: Path, remote: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = pushed(capsys, "--to", site + "/", "--results", results)
    assert (code, said["created"], said["known"], said["refused"], said["not_sent"]) == (0, 3, 0, 0, 0)
    assert [(r["task"], r["outcome"], r["status"]) for r in said["records"]] == [
        (task, "created", 201) for task in "ABC"
    ]
    there = list(Store(remote).records())
    assert [r.model_copy(update={"examples": None}) for r in Store(results).records()] == there
    code, said = pushed(capsys, "--to", site, "--results", results)
    assert (code, said["created"], said["known"]) == (0, 0, 3)


def test_what_is_printed(site: str, results: Path, remote: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Store(remote).put(SLUG, made("B", main_score=0.75))
    Store(remote).put(SLUG, made("C"))
    assert harness("--to", site, "--results", results) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "✗ B (tiny): 409 There is another score under this key: 0.75, not 0.5.",
        f"3 records for {site}: 1 new, 1 there already, 1 refused.",
    ]


def test_a_record_that_is_refused_does_not_stop_the_others(
    site: str, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Store(results).put(SLUG, made("A2", provenance={"notes": ["x" * 20_000]}))
    Store(results).put(SLUG, made("A3", main_score=50.0))
    code, said = pushed(capsys, "--to", site, "--results", results)
    assert (code, said["created"], said["refused"]) == (1, 3, 2)
    refused = {r["task"]: (r["status"], r["reason"]) for r in said["records"] if r["outcome"] == "refused"}
    assert refused["A2"] == (413, "The body is larger than 20000 bytes.")
    assert refused["A3"] == (422, "'main_score' is 50.0, which no score is.")


def test_a_dry_run_sends_nothing(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert harness("--to", "http://127.0.0.1:9", "--results", results, "--dry-run") == 0
    assert capsys.readouterr().out == "Would push 3 records to http://127.0.0.1:9.\n  tiny: 3\n"
    code, said = pushed(capsys, "--to", "http://127.0.0.1:9", "--results", results, "--dry-run")
    assert (code, said["dry_run"], said["not_sent"], len(said["records"])) == (0, True, 3, 3)


def test_a_token_that_does_not_hold(site: str, results: Path, remote: Path) -> None:
    Tokens(remote).revoke("ci")
    with pytest.raises(UsageError, match="401 This token does not hold") as caught:
        harness("--to", site, "--results", results)
    assert "`harness token create NAME`" in (caught.value.hint or "")
    assert list(Store(remote).records()) == []


def test_a_site_that_takes_no_records(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER", "ehw_x")
    with serving(FastAPI()) as url, pytest.raises(UsageError, match="404") as caught:
        harness("--to", url, "--results", results, "--token-env", "OTHER")
    assert "site's first page" in (caught.value.hint or "")


def test_a_site_without_tokens_says_how_it_gets_one(
    remote: Path, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_TOKEN", "ehw_x")
    app = FastAPI()
    app.include_router(router(Intake(results=remote)))
    with serving(app) as url:
        with pytest.raises(UsageError, match="404 This site takes no records") as caught:
            harness("--to", url, "--results", results)
        assert "`harness token create NAME`" in (caught.value.hint or "")
        monkeypatch.setenv("HARNESS_TOKEN", Tokens(remote).create("ci")[1])
        assert harness("--to", url, "--results", results) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--to", "example.org"], "not a site's address"),
        (["--to", "file:///etc/passwd"], "not a site's address"),
        (["--to", "http://"], "not a site's address"),
        (["--to", "http://a b"], "not a site's address"),
        (["--to", "http://[::1"], "not a site's address"),
        (["--to", "http://x:99999"], "not a site's address"),
        (["--to", "http://me:word@x"], "no user"),
        (["--to", "http://x?y=1"], "no user"),
        (["--to", "http://x", "--results", "nowhere"], "holds no records"),
        (["--to", "http://x", "--token-env", "NOT_THERE"], "no token in NOT_THERE"),
        (["--to", "http://x", "--token-env", "BROKEN"], "no token in BROKEN"),
        (["--to", "http://x", "--token-env", "ehw_secret"], "not the token itself"),
        ([], "Missing option"),
    ],
)
def test_misuse(
    results: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.setenv("HARNESS_RESULTS", str(results))
    monkeypatch.setenv("BROKEN", "ehw_a\nb")
    with pytest.raises((HarnessError, click.ClickException)) as caught:
        harness(*arguments)
    assert getattr(caught.value, "exit_code", None) == 2
    told = caught.value
    assert said in (told.format_message() if isinstance(told, click.ClickException) else str(told))
    assert "ehw_secret" not in str(told)


def test_a_wrong_password_is_not_printed() -> None:
    with pytest.raises(UsageError) as caught:
        address("https://me:hunter2@example.org/x")
    assert "hunter2" not in str(caught.value)


def test_the_limit_of_the_site_is_waited_for(
    remote: Path, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr("time.time", lambda: clock[0])
    app = FastAPI()
    limits = Limits({"post": "1/minute"})
    app.include_router(router(Intake(results=remote, limits=limits)))
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        clock[0] += seconds

    secret = Tokens(remote).create("ci")[1]
    with serving(app) as url:
        to = Client(site=url, secret=secret, sleep=sleep)
        answers = [to.push(Parcel.of(record)) for record in Store(results).records()]
    assert [a.outcome for a in answers] == ["created"] * 3
    assert waits == [60.0, 60.0]


class Played(BaseHTTPRequestHandler):
    """Answers as it is told; each answer is a status, headers and a body, None to hang up."""

    script: list[tuple[int, dict[str, str], bytes] | None]
    heard: list[tuple[str, str | None]]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.heard.append((self.path, self.headers["Authorization"]))
        step = self.script.pop(0)
        if step is None:
            self.close_connection = True
            return
        status, headers, body = step
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST

    def log_message(self, format: str, *args: Any) -> None:
        pass


Play = Callable[..., tuple[str, type[Played]]]


@pytest.fixture
def play() -> Iterator[Play]:
    servers: list[tuple[ThreadingHTTPServer, threading.Thread]] = []

    def start(*script: tuple[int, dict[str, str], bytes] | None) -> tuple[str, type[Played]]:
        handler = type("Handler", (Played,), {"script": list(script), "heard": []})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_address[1]}", handler

    yield start
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


def parcel(size: int = 0) -> Parcel:
    found = Parcel.of(made("A"))
    return replace(found, body=b"x" * size) if size else found


def good() -> tuple[int, dict[str, str], bytes]:
    return 201, {}, json.dumps({"key": parcel().key, "created": True}).encode()


def test_a_site_that_is_busy_is_asked_again(play: Play) -> None:
    waits: list[float] = []
    url, handler = play(
        (503, {"Retry-After": "7"}, b"<html>"),
        (429, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, b"{}"),
        (503, {"Retry-After": "soon"}, b""),
        (429, {"Retry-After": "99999999999999"}, b""),
        None,
        good(),
    )
    answer = Client(site=url, secret="s", sleep=waits.append).push(parcel())
    assert answer == Answer(outcome="created", status=201)
    assert waits == [7.0, 0.0, 4.0, 300.0, 16.0]
    assert handler.heard == [("/api/records", "Bearer s")] * 6


def test_a_site_that_stays_busy_is_given_up(play: Play) -> None:
    waits: list[float] = []
    url, handler = play(*[(503, {}, b'{"error": {"message": "Closed.\\u001b[2J"}}')] * 6)
    with pytest.raises(SiteError) as caught:
        Client(site=url, secret="s", sleep=waits.append).push(parcel())
    assert "503 Closed.?[2J" in caught.value.message
    assert caught.value.exit_code == 1
    assert (len(handler.heard), waits) == (6, [1, 2, 4, 8, 16])


def test_a_site_that_is_away_ends_the_push(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    monkeypatch.setenv("HARNESS_TOKEN", "ehw_x")
    monkeypatch.setattr(push, "TRIES", 1)
    with pytest.raises(SiteError, match="cannot be pushed to"):
        harness("--to", url, "--results", results)
    assert capsys.readouterr().out == f"3 records for {url}: 0 new, 0 there already, 3 not sent.\n"


def test_a_large_record_whose_connection_breaks_is_refused(play: Play) -> None:
    url, _ = play(*[None] * 6)
    answer = Client(site=url, secret="s", sleep=lambda seconds: None).push(parcel(2**20 + 1))
    assert answer.outcome == "refused"
    assert "1048577 bytes may be too many" in answer.reason


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(play: Play, status: int) -> None:
    there, trap = play(good())
    url, _ = play((status, {"Location": f"{there}/api/records"}, b""))
    with pytest.raises(UsageError, match=str(status)):
        Client(site=url, secret="s").push(parcel())
    assert trap.heard == []


@pytest.mark.parametrize("body", [b"", b"<html>hello</html>", b"[]", b'{"key": "other"}', b"[" * 60_000])
def test_another_kind_of_site_is_recognised(play: Play, body: bytes) -> None:
    url, _ = play((200, {}, body))
    with pytest.raises(UsageError, match="takes no records"):
        Client(site=url, secret="s").push(parcel())


def test_a_site_below_a_path(play: Play) -> None:
    url, handler = play(good())
    Client(site=address(f"{url}/board/"), secret="s").push(parcel())
    assert handler.heard[0][0] == "/board/api/records"


def test_a_secret_is_not_in_what_is_printed_of_a_client() -> None:
    assert "ehw_x" not in repr(Client(site="https://example.org", secret="ehw_x"))


def test_plain_http_is_said_where_others_could_read_it() -> None:
    assert is_open("http://example.org")
    assert not any(map(is_open, ("https://example.org", "http://localhost:8000", "http://[::1]:8000")))
