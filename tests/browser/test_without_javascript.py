"""What JavaScript adds is extra: forms and links lead to the same states."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest

from browsing import NANO, Reader, keys, values

TASK = "task:NanoNFCorpusRetrieval"


@pytest.fixture
def plain(reading: Callable[..., Reader]) -> Reader:
    """A reader whose browser runs no script."""
    return reading(java_script_enabled=False)


def query(reader: Reader) -> dict[str, list[str]]:
    return parse_qs(urlsplit(reader.page.url).query)


def test_the_form_filters(plain: Reader) -> None:
    page = plain.open(NANO)
    everything = plain.rows()
    page.fill("#filters-q", "model-1")
    page.select_option("#filters-size", "small")
    page.click("#filters button:has-text('Apply')")
    assert (query(plain)["q"], query(plain)["size"]) == (["model-1"], ["small"])
    assert sorted(plain.rows()) == sorted(one for one in everything if "model-1" in one)
    page.click("#filters .reset")
    assert plain.rows() == everything
    page.click(".more > summary")
    page.select_option("#filters-group", "backbone")
    page.click("#filters button:has-text('Apply')")
    assert page.locator("#t-suite tr.group").count() > 1


def test_headings_sort(plain: Reader) -> None:
    page = plain.open(NANO)
    page.click(f'#t-suite th[data-key="{TASK}"] a:first-child')
    down = values(plain.twin(), TASK)
    assert (plain.rows(), down) == (keys(plain.twin()), sorted(down, reverse=True))
    page.click(f'#t-suite th[data-key="{TASK}"] a:first-child')
    up = values(plain.twin(), TASK)
    assert up == sorted(down)


def test_columns_are_picked(plain: Reader) -> None:
    page = plain.open(NANO)
    usual = plain.columns()
    page.click(".columns > summary")
    page.uncheck(f'.columns input[value="{TASK}"]')
    page.click("#filters button:has-text('Apply')")
    assert plain.columns() == [one for one in usual if one != TASK]


def test_rows_are_pinned_and_turned_over(plain: Reader) -> None:
    page = plain.open(f"{NANO}?rows=25")
    first = plain.rows()
    page.hover(f'tr[data-key="{first[9]}"]')
    page.click(f'tr[data-key="{first[9]}"] .pin')
    assert plain.rows()[0] == first[9]
    page.click(".pager a[rel=next]")
    assert plain.rows()[0] == first[9]
    assert not set(plain.rows()[1:]) & set(first)


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


def test_theme_and_density_are_links(plain: Reader) -> None:
    page = plain.open(f"{NANO}?q=model-1")
    rows = plain.rows()
    for name, to in (("theme", "dark"), ("density", "dense")):
        page.click(".view > summary")
        page.click(f".view a[data-set={name}][data-to={to}]")
        assert (plain.root(f"data-{name}"), plain.rows()) == (to, rows)
    assert query(plain) == {"q": ["model-1"], "theme": ["dark"], "density": ["dense"]}


def test_every_place_is_reached(plain: Reader) -> None:
    page = plain.open("/")
    for at in range(page.locator(".places a").count()):
        link = page.locator(".places a").nth(at)
        path = link.get_attribute("href")
        link.click()
        assert urlsplit(page.url).path == path
        assert page.locator(".places a[aria-current=page]").get_attribute("href") == path
        assert page.locator("main h1").count() == 1


def test_what_needs_a_script_is_not_shown(plain: Reader) -> None:
    page = plain.open(NANO)
    page.click(".columns > summary")
    assert page.locator(".js-only").count() > 0
    assert not any(one.is_visible() for one in page.locator(".js-only").all())
    assert page.locator(".no-js").first.is_visible()


def test_the_picture_of_trade_offs_stands(plain: Reader) -> None:
    page = plain.open("/pareto?suite=nanobeir")
    points = page.locator("figure[data-plot] svg .plot-point")
    assert points.count() >= len(plain.twin()["tables"][0]["rows"]) > 0
    page.select_option("select[name=x]", "dimension")
    page.click("#filters button:has-text('Apply')")
    assert "dimension" in page.inner_text("figcaption")
