"""Static files, the feed and the API's description: compressed, tagged, and kept as long as they hold."""

from __future__ import annotations

import hashlib
from pathlib import Path
from unittest import mock

import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import event
from starlette.testclient import TestClient

from leaderboard.site import STATIC, asset
from site_data import Parsed, measured_model, names, put, scored, small_app, small_settings, standard_app

FILES = sorted(path.name for path in STATIC.iterdir())
KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@pytest.mark.parametrize("name", FILES)
def test_a_file_comes_whole_compressed_and_for_a_year(name: str) -> None:
    asking, content = TestClient(standard_app()), (STATIC / name).read_bytes()
    for encoding in ("br", "gzip", "identity"):
        answer = asking.get(asset(name), headers={"accept-encoding": encoding})
        assert (answer.status_code, answer.content) == (200, content)
        assert answer.headers["content-type"].partition(";")[0] == KINDS[Path(name).suffix]
        assert answer.headers.get("content-encoding", "identity") == encoding
        assert answer.headers["cache-control"] == "public, max-age=31536000"
        assert answer.headers["vary"] == "Accept-Encoding"
    tag = answer.headers["etag"]
    assert asking.get(asset(name), headers={"if-none-match": tag}).status_code == 304


def test_a_file_by_another_address_is_asked_for_again() -> None:
    asking = TestClient(standard_app())
    for address in ("/static/style.css", "/static/style.css?v=0", "/static/style.css?w=1"):
        answer = asking.get(address)
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-cache")


def test_pages_name_files_by_their_content() -> None:
    page = Parsed(TestClient(standard_app()).get("/", headers={"accept": "text/html"}).text)
    found = [a["href"] for a in page.all("link") if a.get("rel") == "stylesheet"]
    assert found == [asset("style.css")]


@pytest.mark.parametrize(
    "path",
    ["app.py", "../app.py", "%2e%2e/app.py", "..%2fapp.py", "..%5capp.py", "%2fetc%2fpasswd", "%2e%2e", "",
     "%00", "style.css%00", "style.css/", "./style.css/x"],
)  # fmt: skip
def test_no_path_leads_to_another_file(path: str) -> None:
    answer = TestClient(standard_app()).get(f"/static/{path}", follow_redirects=False)
    assert answer.status_code in (404, 307)
    assert "import" not in answer.text


def test_the_library_of_plots_is_that_of_the_package() -> None:
    from leaderboard.plots.interactive import plotly_file

    answer = TestClient(standard_app()).get("/static/plotly.min.js?v=6", headers={"accept-encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert hashlib.sha256(answer.content).digest() == hashlib.sha256(plotly_file().read_bytes()).digest()


def test_what_everybody_asks_for() -> None:
    asking = TestClient(standard_app())
    icon = asking.get("/favicon.ico")
    assert (icon.status_code, icon.headers["content-type"]) == (200, "image/svg+xml")
    assert icon.content == (STATIC / "favicon.svg").read_bytes()
    robots = asking.get("/robots.txt")
    assert robots.text.split() == ["User-agent:", "*", "Allow:", "/"]
    assert robots.headers["content-type"].startswith("text/plain")


def test_the_description_has_a_tag_and_is_compressed() -> None:
    app = standard_app()
    asking = TestClient(app)
    answer = asking.get("/openapi.json", headers={"accept-encoding": "gzip"})
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.json() == app.openapi()
    again = asking.get("/openapi.json", headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert "/static/{name}" not in answer.json()["paths"]


def test_the_feed_looks_its_records_up_once_and_keeps_nothing_of_a_client(tmp_path: Path) -> None:
    app = small_app(tmp_path)
    site, asking, asked = app.state.site, TestClient(app), []
    asking.get("/feed.xml", headers={"host": "first.example"})
    held = len(site.kept._pages)
    event.listen(site.index.engine, "before_cursor_execute", lambda *said: asked.append(said[2]))
    bodies = {asking.get("/feed.xml", headers={"host": f"h{n}.example"}).text for n in range(30)}
    assert len(bodies) == 30
    assert len(site.kept._pages) == held
    assert [statement for statement in asked if "results" in statement] == []
    model = measured_model("new", "e")
    put(tmp_path / "results", model, [scored(model, names("nanobeir")[0], 0.5)])
    site.refresh()
    assert "new on" in asking.get("/feed.xml").text


def test_who_asks_for_the_feed_too_often_waits(tmp_path: Path) -> None:
    with mock.patch("site_data.small_settings", lambda folder: small_settings(folder, pages_a_minute=2)):
        app = small_app(tmp_path)
    asking = TestClient(app)
    said = [asking.get("/feed.xml", headers={"host": f"h{n}.example"}).status_code for n in range(3)]
    assert said == [200, 200, 429]


def numbers(app: FastAPI) -> dict[tuple[str, ...], float]:
    text = TestClient(app).get("/metrics").text
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_pages_that_are_kept_count_as_hits(tmp_path: Path) -> None:
    app = small_app(tmp_path)
    asking = TestClient(app)
    for _ in range(5):
        assert asking.get("/suites").status_code == 200
    assert asking.get("/suites?theme=auto").status_code == 200  # the same page by another name
    found = numbers(app)
    assert (found["harness_cache_total", "miss"], found["harness_cache_total", "hit"]) == (1, 5)


def test_a_pushed_record_counts_at_once(tmp_path: Path) -> None:
    from leaderboard.access.tokens import Tokens

    app = small_app(tmp_path)
    before = numbers(app)["harness_entries",]
    secret = Tokens(tmp_path / "results").create("ci")[1]
    record = scored(measured_model("pushed", "e"), names("nanobeir")[0], 0.5)
    headers = {"content-type": "application/json", "authorization": f"Bearer {secret}"}
    posted = TestClient(app).post("/api/records", content=record.to_json(), headers=headers)
    assert posted.status_code == 201
    assert numbers(app)["harness_entries",] == before + 1
