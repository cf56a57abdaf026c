"""The site without what is extra: without JavaScript, and as plain files."""

from __future__ import annotations

import csv
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import quote, unquote, urlsplit

import pytest

from browsing import NANO, Reader, keys, query, served, values
from leaderboard.web.app import create_app
from leaderboard.web.site import write_site
from site_data import HOSTILE, Parsed, fill, small_settings, suites

# What JavaScript adds is extra: forms and links lead to the same states


TASK = "task:NanoNFCorpusRetrieval"


@pytest.fixture
def plain(reading: Callable[..., Reader]) -> Reader:
    """A reader whose browser runs no script."""
    return reading(java_script_enabled=False)


def test_the_form_filters(plain: Reader) -> None:
    page = plain.open(NANO)
    everything = plain.rows()
    page.fill("#filters-q", "model-1")
    page.fill("#filters-most", "60")
    page.click("#filters button:has-text('Apply')")
    assert (query(plain)["q"], query(plain)["most"]) == (["model-1"], ["60"])
    assert sorted(plain.rows()) == sorted(one for one in everything if "model-1" in one)
    page.click("#filters .reset")
    assert plain.rows() == everything
    page.select_option("#filters-group", "backbone")
    page.click("#filters button:has-text('Apply')")
    assert page.locator("#t-suite tr.group").count() > 1


def test_headings_sort(plain: Reader) -> None:
    page = plain.open(NANO)
    page.click(f'#t-suite th[data-key="{TASK}"] a:first-child')
    down = values(plain.data(), TASK)
    assert (plain.rows(), down) == (keys(plain.data()), sorted(down, reverse=True))
    page.click(f'#t-suite th[data-key="{TASK}"] a:first-child')
    up = values(plain.data(), TASK)
    assert up == sorted(down)


def test_ticked_rows_are_compared(plain: Reader) -> None:
    page = plain.open(NANO)
    chosen = plain.rows()[:2]
    for key in chosen:
        page.check(f'input[value="{key}"]')
    page.click("#pick button")
    assert (urlsplit(page.url).path, query(plain)) == ("/compare", {"m": chosen})
    assert page.locator("#t-means").count() == 1
    page.click(".chips li:first-child a")
    assert query(plain)["m"] == chosen[1:]
    assert "Add at least one more" in page.inner_text("main")


def test_more_than_six_are_told(plain: Reader) -> None:
    page = plain.open(NANO)
    for key in plain.rows()[:7]:
        page.check(f'input[value="{key}"]')
    page.click("#pick button")
    assert "at most 6 can stand side by side" in page.inner_text("main")


def test_the_theme_is_a_link(plain: Reader) -> None:
    page = plain.open(f"{NANO}?q=model-1")
    rows = plain.rows()
    page.click(".theme .to-dark")
    assert (plain.root("data-theme"), plain.rows()) == ("dark", rows)
    assert query(plain) == {"q": ["model-1"], "theme": ["dark"]}


def test_every_place_is_reached(plain: Reader) -> None:
    page = plain.open("/")
    for at in range(page.locator(".places a").count()):
        link = page.locator(".places a").nth(at)
        path = link.get_attribute("href")
        if not link.is_visible():
            page.click(".rest > summary")
        link.click()
        assert urlsplit(page.url).path == path
        assert page.locator(".places a[aria-current=page]").get_attribute("href") == path
        assert page.locator("main h1").count() == 1


def test_what_needs_a_script_is_not_shown(plain: Reader) -> None:
    page = plain.open(NANO)
    assert page.locator(".js-only").count() > 0
    assert not any(one.is_visible() for one in page.locator(".js-only").all())
    assert page.locator(".no-js").first.is_visible()


def test_a_chart_is_drawn_and_its_values_are_a_click_away(plain: Reader) -> None:
    page = plain.open("/models/acme--tiny-base")
    assert page.locator(".chart .point").first.is_visible()
    assert not page.locator(".chart table").first.is_visible()
    page.locator(".chart summary").first.click()
    assert page.locator(".chart table").first.is_visible()
    assert page.locator(".chart table tbody tr").count() > 3


# The site as plain files, in a sub-folder of a web host without programs


OWN = "my leaderboard"


class Quiet(SimpleHTTPRequestHandler):
    """Files, without a line for each request."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with records and imports."""
    folder = tmp_path_factory.mktemp("plain")
    fill(folder)
    return folder


@pytest.fixture(scope="module")
def files(home: Path) -> Path:
    """The written site."""
    with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=suites()):
        write_site(small_settings(home), home / "web" / OWN)
    return home / "web" / OWN


@pytest.fixture(scope="module")
def live(home: Path, files: Path) -> Iterator[str]:
    """The address of a server of the same records."""
    with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=suites()):
        app = create_app(small_settings(home))
    with served(app) as address:
        yield address


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
    assert "Segoe UI" in face
    assert page.locator(".board-cards .top li").count() > 3
    for at in range(page.locator(".places a").count()):
        if not page.locator(".places a").nth(at).is_visible():
            continue
        page.locator(".places a").nth(at).click()
        page.locator("main h1").wait_for()
        assert page.locator("main h1").count() == 1
        assert page.locator("body").evaluate("one => getComputedStyle(one).margin") == "0px"
        page.go_back()


def test_from_a_suite_to_a_model_and_back(reader: Reader) -> None:
    page = reader.open(f"/{OWN}/")
    for model in ("acme/tiny-large", HOSTILE):
        page.goto(f"/{OWN}/suites/nanobeir.html")
        page.click(f"#t-suite tbody th a:has-text('{model.rpartition('/')[2][-3:]}') >> nth=0")
        page.wait_for_url("**/models/**")
        assert page.locator("h1").inner_text() == model
        page.click(".brand")
        page.wait_for_url(f"**/{quote(OWN)}/index.html")


def test_a_click_on_a_heading_sorts_in_the_browser(reader: Reader) -> None:
    page = reader.open(f"/{OWN}/suites/nanobeir.html")
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
    numbers = "['+0.10', '−0.2', '< 0.001', '1.5 k'].map(text => numberIn({ textContent: text }))"
    assert page.evaluate(numbers) == [0.1, -0.2, 0.001, 1500]


def test_what_needs_a_server_is_hidden(reader: Reader) -> None:
    for path in ("suites/glue.html", "models/acme--tiny-base.html", "tasks/NanoNFCorpusRetrieval.html",
                 "papers/index.html", "compare/index.html"):  # fmt: skip
        page = reader.open(f"/{OWN}/{path}")
        for css in ("#pick", "[form=pick]", "[name=scope]", "[name=revisions]", "[name=each]", "[name=view]",
                    ".pager a", ".columns", ".chips a", ".adds"):  # fmt: skip
            assert not [one for one in page.locator(css).all() if one.is_visible()], (path, css)
        dead = "one => one.checkVisibility() && one.pathname === location.pathname && !one.hash"
        links = page.eval_on_selector_all(
            "main :not(th) > a[href]:not(.reset)", f"all => all.filter({dead}).length"
        )
        assert links == 0, path
    assert not page.locator(".places a:has-text('Compare')").is_visible()
    assert "needs a running site" in page.inner_text("main")


CELLS = """
table => [...table.tBodies[0].rows].map(row => [row.className, ...[...row.cells].map(cell =>
    [cell.textContent.trim(), [...cell.classList].sort().join(" "), cell.title, cell.dataset.label ?? ""])
])"""


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("suites/nanobeir", "?tasks=all&rows=all"), ("suites/glue", "?tasks=all&rows=all"),
        ("tasks/NanoNFCorpusRetrieval", "?rows=all"), ("models/acme--tiny-base", "?rows=all"), ("glue", ""),
        ("papers/optibert", ""), ("backbones", ""),
    ],
)  # fmt: skip
def test_tables_are_those_of_the_server(
    reader: Reader, reading: Callable[..., Reader], live: str, path: str, query: str
) -> None:
    here = f"{path}.html" if "/" in path else f"{path}/index.html"
    plain, other = reader.open(f"/{OWN}/{here}"), reading(live).open(f"/{path}{query}")
    tables = other.locator("main table.data").all()
    assert len(tables) == plain.locator("main table.data").count() > 0
    for table in tables:
        css = f"#{table.get_attribute('id')}"
        assert plain.locator(css).evaluate(CELLS) == table.evaluate(CELLS), css


SUITE, RANKING = "suites/nanobeir", "tasks/NanoNFCorpusRetrieval"


@pytest.mark.parametrize(
    ("path", "query"),
    [
        (SUITE, "q=tiny"), (SUITE, "q=acme+base"), (SUITE, "most=60"), (SUITE, "most=30&tokens=512"),
        (SUITE, "open=1"), (SUITE, "organisation=acme"), (SUITE, "licence=permissive"), (SUITE, "zero=all"),
        (RANKING, "dimensions=384&q=acme"), (RANKING, "size=small&q=tiny"),
        (RANKING, "origin=imported"),
    ],
)  # fmt: skip
def test_filters_answer_as_the_server(
    reader: Reader, reading: Callable[..., Reader], live: str, path: str, query: str
) -> None:
    page = reader.open(f"/{OWN}/{path}.html?{query}")
    page.locator("#filters + .count:not(:empty)").wait_for()
    shown = page.locator("table.data").first.locator("tbody tr:visible th a").all_inner_texts()
    other = reading(live).open(f"/{path}?rows=all&{query}")
    assert shown == other.locator("table.data").first.locator("tbody th a").all_inner_texts()
    assert 0 < len(shown) < page.locator("table.data").first.locator("tbody tr").count()


def test_the_form_filters_in_the_browser(reader: Reader) -> None:
    page = reader.open(f"/{OWN}/suites/nanobeir.html")
    rows = page.locator("#t-suite tbody tr:visible")
    everything = rows.count()
    page.fill("#filters-q", "tiny")
    page.wait_for_url("**?q=tiny")
    assert 0 < rows.count() < everything
    assert all("tiny" in text for text in rows.locator("th").all_inner_texts())
    assert page.inner_text("#filters + .count").startswith(f"{rows.count()} of {everything} rows")
    page.select_option("#filters-origin", "measured")
    page.wait_for_url("**?q=tiny&origin=measured")
    page.click("#filters .reset")
    page.wait_for_url("**/nanobeir.html")
    assert rows.count() == everything


def test_the_search_finds_what_the_server_finds(
    reader: Reader, reading: Callable[..., Reader], live: str
) -> None:
    for asked in ("tiny", "acme base", "nano", "optibert", "no such name"):
        page = reader.open(f"/{OWN}/suites/nanobeir.html")
        page.fill("#find", asked)
        page.press("#find", "Enter")
        page.wait_for_url("**/search/index.html?q=*")
        page.locator("#filters + .count:not(:empty)").wait_for()
        other = reading(live).open(f"/search?rows=all&q={quote(asked)}")
        names = page.locator("#t-hits tbody tr:visible th").all_inner_texts()
        assert names == other.locator("#t-hits tbody th").all_inner_texts(), asked
    page.fill("#filters-q", "tiny-base")
    page.wait_for_url("**?q=tiny-base")
    page.click("#t-hits tbody tr:visible th a >> nth=0")
    page.wait_for_url("**/models/**")


def test_what_is_shown_is_saved(reader: Reader) -> None:
    page = reader.open(f"/{OWN}/suites/nanobeir.html?q=tiny")
    page.locator("#filters + .count:not(:empty)").wait_for()
    with page.expect_download() as saving:
        page.click("[data-do=csv]")
    assert saving.value.suggested_filename.endswith(".csv")
    lines = list(csv.reader(saving.value.path().read_text().splitlines()))
    rows = lines[1 : lines.index([])]
    assert [row[1] for row in rows] == page.locator("#t-suite tbody tr:visible th").all_inner_texts()
    assert (lines[0][:2], lines[0][-1]) == (["Rank", "Model"], "notes")


def test_a_point_of_a_chart_leads_to_its_model(reader: Reader) -> None:
    page = reader.open(f"/{OWN}/suites/nanobeir.html")
    page.locator(".chart a:has(.point)").first.dispatch_event("click")
    page.wait_for_url("**/models/*.html")
    assert page.locator("h1").count() == 1


def test_the_theme_works_without_a_server(reader: Reader) -> None:
    page = reader.open(f"/{OWN}/suites/nanobeir.html")
    page.click(".theme .to-dark")
    assert reader.root("data-theme") == "dark"
    page.click("#t-suite tbody th a >> nth=0")
    page.wait_for_url("**/models/**")
    assert reader.root("data-theme") == "dark"


def test_without_javascript_the_links_lead_on(reading: Callable[..., Reader], host: str) -> None:
    reader = reading(host, java_script_enabled=False)
    page = reader.open(f"/{OWN}/index.html")
    page.click(".places a:has-text('Papers')")
    page.click("#t-papers tbody a >> nth=0")
    assert page.locator("table.data").count() > 2
