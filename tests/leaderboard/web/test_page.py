"""What the site answers when something is wrong."""

from __future__ import annotations

from pathlib import Path
from unittest import mock
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from harness.core.errors import StoreError
from leaderboard.web.app import Refusal
from leaderboard.web.page import NotFound, build_missing_error
from site_data import Parsed, small_app, standard_app


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
    with mock.patch.object(
        app.state.site, "render", side_effect=StoreError("The disk is full.", hint="Wait.")
    ):
        answer = asking.get("/about.json")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert answer.json()["error"]["hint"] == "Wait."
    assert "The disk is full." in caplog.text
    refusal = Refusal(429, "No.", hint="Later.", headers={"Retry-After": "9"})
    with mock.patch.object(app.state.site, "render", side_effect=refusal):
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
    error = build_missing_error("suite", "glu", ["glue", "mteb"], then="Look there.")
    assert isinstance(error, NotFound)
    assert "glue" in f"{error.message} {error.hint}"
    assert "Look there." in str(error.hint)
    assert (
        build_missing_error("suite", "other", map(str, range(100, 200)), then="Look there.").hint
        == "Look there."
    )
