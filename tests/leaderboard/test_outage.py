"""A database that is away: every route says so, and the site goes on once it is back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
from fastapi import FastAPI
from sqlalchemy import exc
from sqlalchemy.engine import Engine
from starlette.testclient import TestClient

from leaderboard.access import outage
from site_data import Parsed, small_app

BROWSER = {"accept": "text/html"}


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


@pytest.mark.parametrize(
    "path", ["/healthz", "/feed.xml", "/suites/nanobeir.json", "/pareto.json?x=cost&suite=nanobeir"]
)
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
    outage.add(app)

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
