"""What stands around every answer: security headers, metrics, compression."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families
from starlette.responses import PlainTextResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.testclient import TestClient

from leaderboard.web.middleware import CONTENT_TYPE, CountRequests, Metrics, SecurityHeaders


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
        for family in text_string_to_metric_families(metrics.render_metrics().decode())
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


def test_the_other_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("leaderboard.web.middleware.time.monotonic", lambda: now[0])
    metrics, other = Metrics(), Metrics()
    metrics.note_refresh(7)
    metrics.cache.labels("hit").inc()
    now[0] = 112.5
    numbers = samples(metrics)
    assert numbers["harness_entries",] == 7
    assert numbers["harness_index_age_seconds",] == 12.5
    assert numbers["harness_cache_total", "hit"] == 1
    assert ("harness_cache_total", "hit") not in samples(other)
    assert numbers["harness_worker", str(os.getpid())] == 1
    assert CONTENT_TYPE.startswith("text/plain; version=0.0.4")
