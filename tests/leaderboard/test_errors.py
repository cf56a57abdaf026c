"""What the site says when something is wrong, and while its database is away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import quote

import pytest
from fastapi import FastAPI
from sqlalchemy import exc
from sqlalchemy.engine import Engine
from starlette.testclient import TestClient

from harness.errors import StoreError, UsageError
from html_pages import BROWSER
from leaderboard import pages
from leaderboard.web import errors as outage
from leaderboard.web.errors import DOCUMENTED, SAYS, SHAPE
from leaderboard.web.limits import Refusal
from leaderboard.web.page import NotFound, missing
from leaderboard.web.site import page_routes
from site_data import Parsed, small_app, standard_app

# What the site says when something is wrong, and to whom it says it how


@pytest.mark.parametrize(
    ("path", "accept", "data"),
    [
        ("/models/none", "text/html,*/*;q=0.8", False),
        ("/models/none", "application/json", True),
        ("/models/none", "*/*", True),
        ("/models/none.json", "text/html", True),
        ("/models/none.csv", "text/html", True),
        ("/badges/none/x.svg", "text/html", True),
        ("/api/none", "text/html", True),
    ],
)
def test_who_reads_data_gets_data(path: str, accept: str, data: bool) -> None:
    answer = TestClient(standard_app()).get(path, headers={"accept": accept})
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("application/json" if data else "text/html")


def test_hostile_names_stand_escaped_in_error_pages() -> None:
    name = "<script>alert(1)<img src=x onerror=alert(1)>\"'{{7*7}}"
    answer = TestClient(standard_app()).get(f"/suites/{quote(name)}", headers={"accept": "text/html"})
    page = Parsed(answer.text)
    assert answer.status_code == 404
    assert page.wrong == []
    assert all("src" in script for script in page.all("script"))
    assert "{{7*7}}" in page.text
    assert name in page.text.replace("\\'", "'")
    assert page.all("img") == []
    as_data = TestClient(standard_app()).get(f"/suites/{quote(name)}.json").json()
    assert name in as_data["error"]["message"] or repr(name) in as_data["error"]["message"]


def test_errors_of_the_harness_and_refusals(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    app = small_app(tmp_path)
    asking = TestClient(app, raise_server_exceptions=False)
    with mock.patch.object(app.state.site, "make", side_effect=StoreError("The disk is full.", hint="Wait.")):
        answer = asking.get("/about.json")
    assert (answer.status_code, answer.json()["error"]["hint"]) == (500, "Wait.")
    assert "The disk is full." in caplog.text
    refusal = Refusal(429, "No.", hint="Later.", headers={"Retry-After": "9"})
    with mock.patch.object(app.state.site, "make", side_effect=refusal):
        for accept in ("text/html", "application/json"):
            answer = asking.get("/about", headers={"accept": accept})
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "9")
            assert "Later." in answer.text
    assert asking.get("/about").status_code == 200


def test_errors_are_not_kept_by_caches(tmp_path: Path) -> None:
    asking = TestClient(standard_app())
    for path in ("/models/none", "/suites/nanobeir?page=0"):
        for accept in ("text/html", "application/json"):
            said = asking.get(path, headers={"accept": accept, "if-none-match": "*"})
            assert said.status_code in (404, 422)
            assert said.headers.get("cache-control", "no-store") in ("no-store", "no-cache")


def test_the_nearest_names_are_told() -> None:
    error = missing("suite", "glu", ["glue", "mteb"], then="Look there.")
    assert isinstance(error, NotFound)
    assert "glue" in f"{error.message} {error.hint}"
    assert "Look there." in str(error.hint)


def test_what_is_documented() -> None:
    assert DOCUMENTED.keys() == SAYS.keys()
    assert set(SHAPE["properties"]["error"]["required"]) == {"status", "message", "hint"}


# A database that is away: every route says so, and the site goes on once it is back


@contextmanager
def away() -> Iterator[None]:
    """No connection can be had, as where the server was stopped."""

    def refused(_engine: Engine, *_: Any, **__: Any) -> Any:
        raise exc.OperationalError("SELECT secret", {}, OSError("connection\nrefused"))

    with mock.patch.object(Engine, "connect", refused), mock.patch.object(Engine, "begin", refused):
        yield


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    return small_app(tmp_path_factory.mktemp("outage"))


@pytest.mark.parametrize("path", ["/healthz", "/suites/nanobeir.json", "/pareto.json?x=cost&suite=nanobeir"])
def test_every_route_says_that_the_database_is_away(
    app: FastAPI, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    asking = TestClient(app)
    with away():
        answer = asking.get(path)
    assert answer.status_code == 503
    error = answer.json()["error"]
    assert (error["status"], error["message"]) == (503, "The database does not answer.")
    assert (answer.headers["retry-after"], answer.headers["cache-control"]) == ("5", "no-store")
    assert answer.headers["x-frame-options"] == "DENY"
    assert "secret" not in answer.text + caplog.text
    lines = [record for record in caplog.records if "the database does not answer" in record.message]
    assert [line.message for line in lines] == [
        f"{path.partition('?')[0]}: the database does not answer: connection refused"
    ]
    assert lines[0].exc_info is None
    assert asking.get(path).status_code == 200
    assert '"503"' in asking.get("/metrics").text


def test_a_browser_gets_a_page(app: FastAPI) -> None:
    with away():
        answer = TestClient(app).get("/suites/mteb", headers=BROWSER)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    page = Parsed(answer.text)
    assert page.wrong == []
    assert "The database does not answer." in page.text


def test_pages_that_are_kept_are_sent_meanwhile(app: FastAPI) -> None:
    asking = TestClient(app)
    assert asking.get("/about", headers=BROWSER).status_code == 200
    with away():
        assert asking.get("/about", headers=BROWSER).status_code == 200


def failing(error: Exception) -> TestClient:
    app = FastAPI()
    outage.add_outage(app)

    @app.get("/")
    def fail() -> None:
        raise error

    return TestClient(app, raise_server_exceptions=False)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (exc.OperationalError("x", {}, OSError("gone")), 503),
        (exc.InterfaceError("x", {}, OSError("gone")), 503),
        (exc.DBAPIError("x", {}, OSError("gone")), 503),
        (exc.TimeoutError("the pool is empty"), 503),
        (exc.ProgrammingError("x", {}, ValueError("no such column")), 500),
        (exc.ProgrammingError("x", {}, OSError("gone"), connection_invalidated=True), 503),
        (exc.DataError("x", {}, ValueError("too large")), 500),
        (ValueError("x"), 500),
    ],
)
def test_only_an_outage_is_called_one(error: Exception, status: int) -> None:
    answer = failing(error).get("/")
    assert answer.status_code == status
    assert ("retry-after" in answer.headers) == (status == 503)


def test_a_page_that_does_not_load_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "licences.py").write_text('"""Entries by licence."""\nPAGES = None +\n')
    monkeypatch.setattr(pages, "__path__", [*pages.__path__, str(tmp_path)])
    with pytest.raises(UsageError, match=r"licences\.py, line 2, does not load: SyntaxError") as wrong:
        page_routes()
    assert "\n" not in str(wrong.value)
