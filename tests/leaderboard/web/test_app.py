"""The application: every page in every format, every static file, and what stands around every answer."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from fastapi import FastAPI
from limits.storage import MemoryStorage
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from leaderboard.data.settings import SiteSettings
from leaderboard.web.app import (
    PARAMETERS,
    QUERY_BYTES,
    Limits,
    PageJson,
    Refusal,
    check_query,
    create_app,
    mask_client_address,
)
from leaderboard.web.middleware import HEADERS
from leaderboard.web.routes import FORMATS
from leaderboard.web.site import STATIC, format_asset_url
from queued_jobs import wait
from site_data import (
    Parsed,
    different_paths,
    every_path,
    fill,
    measured_model,
    names,
    put,
    scored,
    small_app,
    small_settings,
    standard_app,
    suites,
)

# Pages and their formats


BROWSER = {"accept": "text/html,application/xhtml+xml"}


def client(app: FastAPI | None = None, **options: Any) -> TestClient:
    return TestClient(app or standard_app(), **options)


def file_of(path: str, form: str) -> str:
    return f"{'/index' if path == '/' else path}.{form}"


def opened(settings: SiteSettings) -> FastAPI:
    with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=suites()):
        return create_app(settings)


def test_every_page_answers_with_whole_html() -> None:
    app = standard_app()
    paths = every_path(app)
    assert len(paths) == len(set(paths)) > 50
    assert {"/", "/suites", "/suites/nanobeir", "/about", "/api"} <= set(paths)
    asking = client(app)
    for path in paths:
        answer = asking.get(path, headers=BROWSER)
        assert answer.status_code == 200, path
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        page = Parsed(answer.text)
        assert page.wrong == [], path
        assert len(page.all("h1")) == len(page.all("main")) == 1, path
        assert page.elements[1][0] == "head", path
        ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
        assert len(ids) == len(set(ids)), path
        policy = answer.headers["content-security-policy"]
        inline = [a for t, a in page.elements if "style" in a or any(name.startswith("on") for name in a)]
        assert inline == [], path  # the policy lets none of it through
        assert "script-src 'self'" in policy


def test_every_format_is_of_its_form() -> None:
    app = standard_app()
    asking = client(app)
    for route in app.state.site.pages:
        all_paths = list(route.all_paths(app.state.site))
        for path in all_paths[:: 1 + len(all_paths) // 15]:
            said = {form: asking.get(file_of(path, form)) for form in FORMATS}
            assert {form for form in FORMATS if said[form].status_code == 200} == set(route.formats), path
            said = {form: answer for form, answer in said.items() if form in route.formats}
            if not said:
                continue
            for form, answer in said.items():
                assert answer.status_code == 200, (path, form)
                assert answer.headers["content-type"] == FORMATS[form][1]
            whole = json.loads(said["json"].text, parse_constant=_no_constant)
            assert PageJson.model_validate(whole).model_dump()["title"] == whole["title"]
            rows = list(csv.reader(io.StringIO(said["csv"].text, newline="")))
            wanted = sum(len(table["rows"]) + 2 for table in whole["tables"])  # a head and an empty line each
            assert len(rows) == max(0, wanted - 1), path
            if "md" in said:
                assert said["md"].text.startswith("# ")
                assert said["tex"].text.count("\\begin{tabular}") == len(whole["tables"])


def _no_constant(name: str) -> float:
    raise AssertionError(f"JSON has no {name}")


def test_formats_of_a_page_are_named_on_it_and_hold_its_state() -> None:
    asking = client()
    page = Parsed(asking.get("/suites/nanobeir?q=tiny&mean=types&theme=dark", headers=BROWSER).text)
    for form in FORMATS:
        links = {link for link in page.links if link.startswith(f"/suites/nanobeir.{form}")}
        (link,) = {link for link in links if "cols=all" not in link}
        assert "q=tiny" in link
        assert "theme" not in link
        assert asking.get(link).status_code == 200
    found = json.loads(asking.get("/suites/nanobeir.json?q=tiny").text)
    shown = {row["cells"]["model"]["value"] for row in found["tables"][0]["rows"]}
    assert shown <= {"acme/tiny-base", "acme/tiny-large"}


@pytest.mark.slow
def test_every_link_of_every_page_leads_somewhere() -> None:
    app, seen = standard_app(), set[str]()
    asking = client(app)
    tasks = [path for path in every_path(app) if path.startswith("/tasks/")]
    for path in different_paths(app):
        seen |= {
            link.partition("#")[0]
            for link in Parsed(asking.get(path, headers=BROWSER).text).links
            if link.startswith("/") and not link.startswith("//")
        }
    assert len(seen) > 100
    once = {link.partition("?")[0]: link for link in sorted(seen)}  # of each path the longest query
    rest = [path for path in once if path.startswith("/tasks/")][40:]
    once = {path: link for path, link in once.items() if path not in rest}
    assert {path for path in rest if path.rpartition(".")[0] not in tasks} <= set(tasks)
    wrong = {link: s for link in once.values() if (s := asking.get(link, headers=BROWSER).status_code) != 200}
    assert wrong == {}


def shape(answer: Any) -> Mapping[str, Any]:
    body = answer.json()
    assert body.keys() == {"error"}
    error: Mapping[str, Any] = body["error"]
    assert error.keys() == {"status", "message", "hint"}
    assert error["status"] == answer.status_code
    assert error["message"]
    return error


ERRORS = [
    ("/suites/nanobier", 404),
    ("/nothing/at/all", 404),
    ("/models/nobody", 404),
    ("/models/", 404),
    ("/static/none.css", 404),
    ("/suites/nanobeir?page=0", 422),
    ("/suites/nanobeir?mean=median", 422),
    ("/suites/nanobeir?tokens=many", 422),
    ("/suites/nanobeir?sort=nothing", 404),
    ("/suites/nanobeir?cols=" + "x" * 300, 422),
    ("/suites/" + "x" * 400, 422),
]


@pytest.mark.parametrize(("path", "status"), ERRORS)
def test_errors_have_one_shape(path: str, status: int) -> None:
    asking = client()
    error = shape(asking.get(path, headers={"accept": "application/json"}))
    assert error["status"] == status
    answer = asking.get(path, headers=BROWSER)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")
    page = Parsed(answer.text)
    assert page.wrong == []
    assert error["message"] in page.text
    before, mark, rest = path.partition("?")
    if before.startswith("/static") or (len(path) > 300 and status == 422):
        return
    as_data = asking.get(f"{before}.json{mark}{rest}", headers=BROWSER)
    assert shape(as_data)["status"] == status  # a format says its errors as data, whoever asks


def test_a_name_that_is_nearly_right_is_corrected() -> None:
    error = shape(client().get("/suites/nanobier", headers={"accept": "*/*"}))
    assert "nanobeir" in error["message"] + error["hint"]


def test_only_what_is_there_is_asked() -> None:
    asking = client()
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        answer = asking.request(method, "/suites/nanobeir")
        assert shape(answer)["status"] == 405
        assert "GET" in answer.headers["allow"]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("q=" + "x" * 9000, 414),
        ("q=" + "x" * 600, 400),
        ("&".join(f"a{n}=1" for n in range(300)), 400),
        ("q=%ff%fe", 400),
        ("q=%00", 400),
        ("q=%ed%a0%80", 400),
    ],
)
def test_queries_that_are_too_much(query: str, status: int) -> None:
    for path in ("/suites/nanobeir", "/suites/nanobeir.json", "/nothing"):
        answer = client().get(f"{path}?{query}")
        assert shape(answer)["status"] == status
        assert answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/%2e%2e%2fapp.py",
        "/static/..%5capp.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/%2e%2e",
        "/static/",
        "/static/%00",
        "/static/style.css%00",
        "/static/./style.css/x",
        "/suites/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/suites/..%2f..%2fapp",
        "/suites/nanobeir%00",
        "/models/%2e%2e",
        "/papers/%2e%2e%2fREADME",
        "/papers/..%5cpapers",
        "/tasks/%00",
        "/tasks/%ff%fe",
        "/results/../../etc/passwd",
        "/results/%2e%2e",
        "/results/99999999999999999999999999",
        "/results/-1",
        "/results/1e3",
        "/recipes/%2e%2e%2fglue",
        "/badges/../x.svg",
        "/badges/nanobeir/%2e%2e%2fx.svg",
        "/badges/%00/x.svg",
    ],
)
@pytest.mark.parametrize("end", ["", ".json", ".csv"])
def test_no_path_leads_out_of_the_site(path: str, end: str) -> None:
    asking = client()
    answer = asking.get(path + end, headers={"accept": "application/json"})
    assert answer.status_code in (404, 422)
    shape(answer)
    assert "root:" not in answer.text
    assert "FastAPI" not in answer.text


def headers_are_there(answer: Any) -> None:
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    for name, value in HEADERS.items():
        assert answer.headers[name] == value


def test_security_headers_are_on_every_answer() -> None:
    asking = client(raise_server_exceptions=False)
    tag = asking.get("/about").headers["etag"]
    for path, headers, status in (
        ("/", BROWSER, 200),
        ("/about", {"if-none-match": tag}, 304),
        ("/index.json", {}, 200),
        ("/static/style.css", {}, 200),
        ("/healthz", {}, 200),
        ("/metrics", {}, 200),
        ("/openapi.json", {}, 200),
        ("/nothing", BROWSER, 404),
        ("/suites/nanobeir?page=0", BROWSER, 422),
        ("/?q=" + "x" * 9000, {}, 414),
    ):
        answer = asking.get(path, headers=headers)
        assert answer.status_code == status, path
        headers_are_there(answer)


def test_a_failure_is_told_in_one_shape_without_its_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = small_app(tmp_path)
    asking = client(app, raise_server_exceptions=False)
    with mock.patch.object(app.state.site, "_render", side_effect=RuntimeError("the password is hunter2")):
        plain = asking.get("/about.json")
        page = asking.get("/about", headers=BROWSER)
    assert shape(plain)["status"] == page.status_code == 500
    for answer in (plain, page):
        headers_are_there(answer)
        assert "hunter2" not in answer.text
    assert Parsed(page.text).wrong == []
    assert "hunter2" in caplog.text
    assert asking.get("/about").status_code == 200  # nothing of it was kept


def test_who_asks_too_often_is_told_when_to_come_back(tmp_path: Path) -> None:
    fill(tmp_path)
    asking = client(opened(small_settings(tmp_path, pages_a_minute=2)))
    assert asking.get("/about").status_code == asking.get("/suites").status_code == 200
    refused = asking.get("/suites/nanobeir")
    assert shape(refused)["status"] == 429
    assert 0 < int(refused.headers["retry-after"]) <= 60
    page = asking.get("/suites/nanobeir", headers=BROWSER)
    assert page.status_code == 429
    assert "retry-after" in page.headers
    assert Parsed(page.text).wrong == []
    assert asking.get("/about").status_code == 200  # what is kept costs nothing


def test_the_site_only_reads(tmp_path: Path) -> None:
    app = small_app(tmp_path)
    asking = client(app)
    assert asking.post("/api/records", json={}).status_code == 404
    for path in every_path(app):
        assert asking.post(path).status_code == 405


def test_a_record_of_any_identity_does_not_take_the_site_down(tmp_path: Path) -> None:
    """What no run wrote is left out of the pages."""
    from harness.core.keys import digest

    app = small_app(tmp_path)
    asking = client(app)
    model = measured_model("odd", "e")
    record = scored(model, names("nanobeir")[0], 0.5)
    identity = {"artifact": model.key, "task": record.task.name, "data": [], "encoding": "mean"}
    odd = record.model_copy(update={"identity": identity, "key": digest(identity)})
    put(tmp_path / "results", model, [odd])
    app.state.site.refresh()
    assert asking.get("/suites/nanobeir", headers=BROWSER).status_code == 200
    put(tmp_path / "results", model, [record])
    app.state.site.refresh()
    (slug,) = [slug for slug in app.state.site.queries.models if "odd" in slug]
    assert asking.get(f"/models/{slug}", headers=BROWSER).status_code == 200


def test_pages_change_when_the_folders_do(tmp_path: Path) -> None:
    app = small_app(tmp_path)
    asking = client(app)
    first = asking.get("/suites/nanobeir.json")
    again = asking.get("/suites/nanobeir.json", headers={"if-none-match": first.headers["etag"]})
    assert again.status_code == 304
    model = measured_model("new", "e")
    put(tmp_path / "results", model, [scored(model, names("nanobeir")[0], 0.5)])
    app.state.site.refresh()
    later = asking.get("/suites/nanobeir.json", headers={"if-none-match": first.headers["etag"]})
    assert later.status_code == 200
    assert "new" in later.text
    app.state.site.refresh()
    assert asking.get("/suites/nanobeir.json").headers["etag"] == later.headers["etag"]


def test_a_page_made_while_the_index_changed_is_not_shown_for_ever(tmp_path: Path) -> None:
    app = small_app(tmp_path)
    site, make = app.state.site, app.state.site._render
    model = measured_model("new", "e")

    def slowly(*arguments: Any) -> Any:
        made = make(*arguments)
        put(tmp_path / "results", model, [scored(model, names("nanobeir")[0], 0.5)])
        site.refresh()
        return made

    with mock.patch.object(site, "_render", slowly):
        assert "new" not in client(app).get("/suites/nanobeir.csv").text
    assert "new" in client(app).get("/suites/nanobeir.csv").text


def test_the_folders_are_looked_at_again_and_again(tmp_path: Path) -> None:
    fill(tmp_path)
    app = opened(replace(small_settings(tmp_path), refresh=0.05))
    site, refresh, three, seen = app.state.site, app.state.site.refresh, threading.Event(), []

    def counted() -> Any:
        seen.append(1)
        if len(seen) == 2:
            raise OSError("the disk is away for a moment")
        if len(seen) > 3:
            three.set()
        return refresh()

    with mock.patch.object(site, "refresh", counted), TestClient(app) as asking:
        assert three.wait(60)
        assert asking.get("/about").status_code == 200


def test_health_and_metrics() -> None:
    asking = client()
    assert asking.get("/healthz").text == f"ok, snapshot {standard_app().state.site.index.version}\n"
    assert "# HELP" in asking.get("/metrics").text


def test_head_answers_as_get_without_a_body() -> None:
    asker = client()
    for path in ("/", "/suites/nanobeir.json", "/nowhere"):
        got, head = asker.get(path), asker.head(path)
        assert (head.status_code, head.content) == (got.status_code, b"")
        assert head.headers.get("etag") == got.headers.get("etag")
    counted = 'harness_requests_total{method="HEAD",route="/suites/{suite}.json",status="200"}'
    assert counted in asker.get("/metrics").text
    assert not any("head" in methods for methods in asker.get("/openapi.json").json()["paths"].values())


# Static files and the API's description: compressed, tagged, and kept as long as they hold


FILES = sorted(path.name for path in STATIC.iterdir())
KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


# One is too small, and a picture is compressed as it is.
@pytest.mark.parametrize("name", [name for name in FILES if name not in ("favicon.svg", "preview.png")])
def test_a_file_comes_whole_compressed_and_for_a_year(name: str) -> None:
    asking, content = TestClient(standard_app()), (STATIC / name).read_bytes()
    for encoding in ("gzip", "identity"):
        answer = asking.get(format_asset_url(name), headers={"accept-encoding": encoding})
        assert (answer.status_code, answer.content) == (200, content)
        assert answer.headers["content-type"].partition(";")[0] == KINDS[Path(name).suffix]
        assert answer.headers.get("content-encoding", "identity") == encoding
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    tag = answer.headers["etag"]
    assert asking.get(format_asset_url(name), headers={"if-none-match": tag}).status_code == 304


def test_a_file_by_another_address_is_asked_for_again() -> None:
    asking = TestClient(standard_app())
    for address in ("/static/style.css", "/static/style.css?v=0", "/static/style.css?w=1"):
        answer = asking.get(address)
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-cache")


def test_pages_name_files_by_their_content() -> None:
    page = Parsed(TestClient(standard_app()).get("/", headers={"accept": "text/html"}).text)
    found = [a["href"] for a in page.all("link") if a.get("rel") == "stylesheet"]
    assert found == [format_asset_url("style.css"), format_asset_url("boards.css")]


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


# How often and how much a client may ask


def test_clients_are_counted_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("time.time", lambda: now[0])
    limits = Limits("2/minute")
    for client in ("a", "b", "a"):
        limits.enforce(client)
    now[0] += 0.5
    with pytest.raises(Refusal) as caught:
        limits.enforce("a")
    refusal = caught.value
    assert (refusal.status, refusal.headers["Retry-After"]) == (429, "60")
    assert (refusal.message, refusal.hint) == ("Too many requests.", "Wait 60 s and try again.")
    now[0] += 60
    limits.enforce("a")


def test_no_more_than_the_limit_get_through_at_once() -> None:
    limits = Limits("50/minute")
    gate = threading.Barrier(8)

    def request(_: int) -> int:
        gate.wait()
        done = 0
        for _ in range(20):
            with contextlib.suppress(Refusal):
                limits.enforce("a")
                done += 1
        return done

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(request, range(8))) == 50


def test_clients_that_left_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("time.time", lambda: now[0])
    limits = Limits("5/second")
    for i in range(500):
        limits.enforce(f"client {i}")
    storage = limits._limiter.storage
    assert isinstance(storage, MemoryStorage)
    now[0] += 1.1
    limits.enforce("another")
    wait(lambda: len(storage.storage) == len(storage.expirations) == 1)


def test_a_network_of_one_client_is_one_client() -> None:
    assert mask_client_address("2001:db8:1:2:aaaa::1") == mask_client_address("2001:db8:1:2:bbbb::9")
    assert mask_client_address("2001:db8:1:2::1") != mask_client_address("2001:db8:1:3::1")
    assert mask_client_address("fe80::1%eth0") == mask_client_address("fe80::2%eth1")
    assert (
        mask_client_address("::ffff:192.0.2.1")
        == mask_client_address("192.0.2.1")
        != mask_client_address("192.0.2.2")
    )
    assert len(mask_client_address("x" * 10_000)) <= 64


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


def test_a_results_folder_that_vanishes_is_said_on_the_pages_and_by_healthz(tmp_path: Path) -> None:
    app = small_app(tmp_path)
    client, site = TestClient(app), app.state.site
    sentence = "The results folder results is gone or empty."
    paths = ["/suites/nanobeir", "/suites/nanobeir.json", "/suites/nanobeir.md", "/"]
    texts = {path: client.get(path, headers=BROWSER).text for path in paths}
    assert client.get("/healthz").text == "ok, snapshot 1\n"
    (tmp_path / "results").rename(tmp_path / "away")
    answer = client.get("/healthz")
    assert answer.status_code == 503
    assert answer.text == "gone or empty: results; still shown: snapshot 1\n"
    site.refresh()
    for path in paths:
        said = client.get(path, headers=BROWSER).text
        assert sentence in said
        assert sentence not in texts[path]
    assert "minilm-ish" in client.get("/suites/nanobeir.csv").text
    (tmp_path / "away").rename(tmp_path / "results")
    site.refresh()
    assert client.get("/healthz").status_code == 200
    assert {path: client.get(path, headers=BROWSER).text for path in paths} == texts


def test_an_embedded_page_is_its_table_and_other_sites_may_frame_it_alone() -> None:
    asking = client()
    usual, framed = (asking.get(f"/suites/nanobeir{query}", headers=BROWSER) for query in ("", "?embed=1"))
    assert usual.headers["X-Frame-Options"] == "DENY"
    assert "frame-ancestors 'none'" in usual.headers["Content-Security-Policy"]
    assert "X-Frame-Options" not in framed.headers
    assert "frame-ancestors *" in framed.headers["Content-Security-Policy"]
    page = Parsed(framed.text)
    assert page.wrong == []
    assert not page.all("header") + page.all("footer") + page.all("form")[1:]
    assert len(page.all("table")) == 1
    assert {a["href"] for a in page.all("a") if "sort=" in a["href"]} <= {
        a["href"] for a in page.all("a") if "embed=1" in a["href"]
    }
    for path in ("/", "/compare", "/glue", "/check/none"):
        answer = asking.get(f"{path}?embed=1", headers=BROWSER)
        assert answer.status_code in (200, 404)
        assert "<footer" not in answer.text or answer.status_code == 404
    assert asking.get("/suites/nanobeir.json?embed=1").json()["state"] == {}
