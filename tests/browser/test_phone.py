"""A window of 390 pixels: what decides is seen without scrolling sideways, and nothing is out of reach."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import FloatRect, Locator

from browsing import NANO, Reader

WIDTH = 390


@pytest.fixture
def phone(reading: Callable[..., Reader]) -> Reader:
    return reading(width=WIDTH, has_touch=True, is_mobile=True)


def box(found: Locator) -> FloatRect:
    place = found.bounding_box()
    assert place is not None
    return place


@pytest.mark.parametrize(
    ("path", "column"),
    [(NANO, "tasks"), ("/tasks/NanoNFCorpusRetrieval", "score"), ("/pareto?suite=nanobeir", "score")],
)
def test_the_score_is_seen_at_once(phone: Reader, path: str, column: str) -> None:
    page = phone.open(path)
    heading = page.locator(f'thead th[data-key="{column}"]').first
    place = box(heading)
    assert place["x"] + place["width"] <= WIDTH


def test_names_stay_when_a_table_is_moved(phone: Reader) -> None:
    page = phone.open(NANO)
    name = page.locator("#t-suite tbody th").nth(3)
    page.locator(".scroll").first.evaluate("one => { one.scrollLeft = 600; }")
    place = box(name)
    assert 0 <= place["x"] < 40
    assert "model-27" in name.inner_text()


def test_filters_and_columns_open(phone: Reader) -> None:
    page = phone.open(NANO)
    assert not page.locator("#filters-origin").is_visible()
    page.tap(".fold > summary")
    page.select_option("#filters-origin", "measured")
    phone.goes("origin=measured")
    assert page.locator("#filters-origin").is_visible()  # what was open stays open
    page.tap(".columns > summary")
    sheet = box(page.locator(".columns .sheet"))
    assert (sheet["x"], sheet["width"]) == (0, WIDTH)
    assert sheet["y"] + sheet["height"] <= page.viewport_size["height"] + 1  # type: ignore[index]
    page.locator(".columns input").last.tap()
    phone.goes("cols=")


def test_no_button_opens_nothing(phone: Reader) -> None:
    for path in ("/suites", "/compare", "/tasks", NANO, "/models/minilm-ish"):
        page = phone.open(path)
        for fold in page.locator("details.fold").all():
            assert fold.locator("select, input:not([type=hidden])").count() > 0, path


def test_rows_are_pinned_and_compared_by_touch(phone: Reader) -> None:
    page = phone.open(f"{NANO}?rows=25")
    rows = phone.rows()
    for key in rows[:2]:
        tick, pin = (
            box(page.locator(f'input[value="{key}"]')),
            box(page.locator(f'tr[data-key="{key}"] .pin')),
        )
        row = box(page.locator(f'tr[data-key="{key}"]'))
        assert tick["y"] + tick["height"] <= pin["y"] + 4
        assert pin["y"] + pin["height"] <= row["y"] + row["height"] + 1
        page.tap(f'input[value="{key}"]')
    page.tap("#pick button:not([type])")
    page.wait_for_url("**/compare?*")
    page.go_back()
    page.tap(f'tr[data-key="{rows[9]}"] .pin')
    phone.goes(f"pin={rows[9]}")
    assert phone.rows()[0] == rows[9]


def test_the_search_grows_when_it_is_used(phone: Reader) -> None:
    page = phone.open("/about")
    small = box(page.locator("#find"))["width"]
    page.tap("#find")
    assert box(page.locator("#find"))["width"] > 2 * small


def test_more_filters_open_where_they_are_at_any_width(phone: Reader, reading: Callable[..., Reader]) -> None:
    page = phone.open(NANO)
    page.tap(".fold > summary")
    for reader in (phone, reading()):
        page = reader.page if reader is phone else reader.open(NANO)
        summary = page.locator(".more > summary")
        before = box(summary)
        summary.click()
        assert page.locator("#filters-group").is_visible()
        assert (box(summary)["x"], box(summary)["y"]) == (before["x"], before["y"])
