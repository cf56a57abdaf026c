"""Addresses that one would guess lead to the pages."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from site_data import standard_app

BROWSER = {"accept": "text/html"}


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(standard_app(), follow_redirects=False)


@pytest.mark.parametrize(
    ("asked", "led"),
    [
        ("/models", "/"),
        ("/models/", "/"),
        ("/models?q=tiny", "/?q=tiny"),
        ("/models/acme/tiny-base", "/models/acme--tiny-base"),
        ("/models/Acme/Tiny-Base", "/models/acme--tiny-base"),
        ("/models/acme/tiny-base.json?rows=25", "/models/acme--tiny-base.json?rows=25"),
        ("/models/acme%2Ftiny-base", "/models/acme--tiny-base"),
        ("/suites/MTEB(eng, v2)", "/suites/mteb"),
        ("/suites/MTEB%28eng%2C%20v2%29?mean=types", "/suites/mteb?mean=types"),
        ("/suites/mteb:MTEB(eng, v2)", "/suites/mteb"),
        ("/suites/mteb:MTEB(kor, v1).csv", "/suites/mteb-MTEB-kor-v1.csv"),
        ("/suites/NanoBEIR", "/suites/nanobeir"),
        ("/suites/mteb-MTEB-eng-v2", "/suites/mteb"),
    ],
)
def test_guessed_addresses(client: TestClient, asked: str, led: str) -> None:
    answer = client.get(asked)
    assert (answer.status_code, answer.headers["location"]) == (307, led)
    assert client.get(led).status_code == 200
    assert client.head(asked).status_code == 307


@pytest.mark.parametrize(
    "path",
    [
        "/suites",
        "/suites/mteb",
        "/suites/mteb.json",
        "/models/acme--tiny-base",
        "/models/acme--tiny-base.csv",
    ],
)
def test_pages_own_addresses_stay(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 200


def test_what_is_none_is_not_found_with_the_nearest(client: TestClient) -> None:
    for asked, near in [
        ("/models/acme/tiny-bose", "acme--tiny-base"),
        ("/models/acme/tiny-bose.json", "acme--tiny-base"),
        ("/suites/nanobier", "nanobeir"),
        ("/suites/nanobeir%00", "nanobeir"),
    ]:
        answer = client.get(asked, headers=BROWSER)
        assert answer.status_code == 404, asked
        assert near in answer.text, asked


@pytest.mark.parametrize("name", ["//evil.example/x", "/\\evil.example", "..//evil.example", "é", "%", ""])
def test_no_redirect_leads_out_of_the_site(client: TestClient, name: str) -> None:
    for kind in ("models", "suites"):
        answer = client.get(f"/{kind}/{quote(name)}", headers=BROWSER)
        assert answer.status_code in (200, 307, 404), answer.text
        there = answer.headers.get("location", "/").removeprefix("http://testserver")
        assert there.startswith("/")
        assert not there.startswith("//")


def test_they_are_no_part_of_the_api(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert not {"/models", "/models/{organisation}/{name}"} & set(paths)
