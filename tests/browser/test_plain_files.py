"""The site as plain files, in a sub-folder of a web host without programs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import unquote, urlsplit

import pytest

from browsing import Reader
from leaderboard.static_site import write_site
from site_data import HOSTILE, Parsed, fill, small_settings, suites

OWN = "my leaderboard"


class Quiet(SimpleHTTPRequestHandler):
    """Files, without a line for each request."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The written site."""
    home = tmp_path_factory.mktemp("plain")
    fill(home)
    with mock.patch("leaderboard.index.listed", return_value=suites()):
        write_site(small_settings(home, static=True), home / "web" / OWN)
    return home / "web" / OWN


@pytest.fixture(scope="module")
def host(files: Path) -> Iterator[str]:
    """The address of the host."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(files.parent)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join(10)
    server.server_close()


@pytest.fixture
def reader(reading: Callable[..., Reader], host: str) -> Reader:
    return reading(host)


def test_every_link_leads_to_a_file(files: Path) -> None:
    pages = [path for path in files.rglob("*.html") if path.is_file()]
    assert len(pages) > 50
    for page in pages:
        for link in Parsed(page.read_text()).links:
            parts = urlsplit(link)
            assert not link.startswith("/"), (page, link)
            if parts.scheme or not parts.path:
                continue
            target = (page.parent / unquote(parts.path)).resolve()
            assert target.is_file() or (target / "index.html").is_file(), (page.relative_to(files), link)


def test_pages_open_with_their_styles(reader: Reader) -> None:
    page = reader.open(f"/{OWN}/index.html")
    face = page.evaluate("getComputedStyle(document.querySelector('h1')).fontFamily")
    assert "Palatino" in face
    assert page.locator("#t-models tbody tr").count() > 3
    for at in range(page.locator(".places a").count()):
        if not page.locator(".places a").nth(at).is_visible():
            continue
        page.locator(".places a").nth(at).click()
        assert page.locator("main h1").count() == 1
        assert page.locator("body").evaluate("one => getComputedStyle(one).margin") == "0px"
        page.go_back()


def test_from_the_overview_to_a_model_and_back(reader: Reader) -> None:
    page = reader.open(f"/{OWN}/")
    page.click("#t-models tbody th a:has-text('tiny-large')")
    page.wait_for_url("**/acme--tiny-large/**")
    assert page.locator("h1").inner_text() == "acme/tiny-large"
    page.click(".brand")
    page.click(f"#t-models tbody th a:has-text('{HOSTILE.rpartition('/')[2][-3:]}')")
    page.wait_for_url("**/models/**")
    assert page.locator("h1").inner_text() == HOSTILE


def test_a_click_on_a_heading_sorts_in_the_browser(reader: Reader) -> None:
    page = reader.open(f"/{OWN}/suites/nanobeir/index.html")
    column = "task:NanoNFCorpusRetrieval"
    at = reader.columns().index(column)
    cells = f"#t-suite tbody tr > :nth-child({at + 1})"

    def shown() -> list[float]:
        texts = page.locator(cells).all_inner_texts()
        return [float(text.strip("†‡ ")) for text in texts if text.strip("†‡ –")]

    down = sorted(shown(), reverse=True)
    page.click(f'#t-suite th[data-key="{column}"] > :first-child')
    assert shown() == down
    assert page.locator(f'th[data-key="{column}"]').get_attribute("aria-sort") == "descending"
    assert "descending" in reader.said()
    page.click(f'#t-suite th[data-key="{column}"] > :first-child')
    assert shown() == down[::-1]
    page.click('#t-suite th[data-key="model"] > :first-child')
    names = page.locator("#t-suite tbody th").all_inner_texts()
    assert names == sorted(names, key=str.casefold)
    assert urlsplit(page.url).query == ""


def test_what_needs_a_server_is_hidden(reader: Reader) -> None:
    for path in ("suites/glue", "models/acme--tiny-base", "tasks/NanoNFCorpusRetrieval", "papers", "compare"):
        page = reader.open(f"/{OWN}/{path}/index.html")
        for css in ("form", ".pin", "input", ".pager a", ".columns", ".chips a", ".adds"):
            assert not [one for one in page.locator(css).all() if one.is_visible()], (path, css)
        dead = "one => one.checkVisibility() && one.pathname === location.pathname && !one.hash"
        links = page.eval_on_selector_all("main :not(th) > a[href]", f"all => all.filter({dead}).length")
        assert links == 0, path
    assert not page.locator(".places a:has-text('Compare')").is_visible()
    assert "needs a running site" in page.inner_text("main")


def test_theme_and_keys_work_without_a_server(reader: Reader) -> None:
    page = reader.open(f"/{OWN}/suites/nanobeir/index.html")
    page.click(".view > summary")
    page.click("[data-set=theme][data-to=dark]")
    assert reader.root("data-theme") == "dark"
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    href = page.evaluate("document.activeElement.href")
    page.keyboard.press("Enter")
    page.wait_for_url(href)
    assert reader.root("data-theme") == "dark"
    assert page.locator("h1").inner_text() == "acme/tiny-large"


def test_the_trade_offs_are_a_picture(reader: Reader) -> None:
    page = reader.open(f"/{OWN}/pareto/index.html")
    assert page.locator("main h1").count() == 1
    assert not any("plotly" in one for one in reader.asked)


def test_without_javascript_the_links_lead_on(reading: Callable[..., Reader], host: str) -> None:
    reader = reading(host, java_script_enabled=False)
    page = reader.open(f"/{OWN}/index.html")
    page.click(".places a:has-text('Papers')")
    page.click(".cards a >> nth=0")
    assert page.locator("table.data").count() > 2
