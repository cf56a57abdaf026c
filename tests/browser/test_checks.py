"""Checks and watches as a reader meets them: from the list to a check, its tasks, and the comparison."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from browsing import Reader, keys
from judged_data import NEWEST, NIGHTS


@pytest.fixture(params=[True, False], ids=["script", "no-script"])
def either(request: pytest.FixtureRequest, reading: Callable[..., Reader]) -> Reader:
    """A reader whose browser runs scripts, and one whose does not."""
    return reading(java_script_enabled=request.param)


def test_from_the_list_to_the_comparison(either: Reader) -> None:
    page = either.open("/")
    page.click(".places a:has-text('Checks')")
    assert page.locator("#t-lines tbody tr").count() == 2
    assert page.locator(".verdicts").first.get_attribute("aria-label", timeout=1000)
    page.click("#t-lines tbody th a:has-text('release')")
    assert page.locator("#t-history tbody tr").count() == NIGHTS
    page.locator(".plot-svg a").last.click()
    assert page.url.endswith(f"/check/{NEWEST}")
    assert page.inner_text(".verdict") == "regressed"
    page.click("a:has-text('Compare both models')")
    assert "/compare?m=" in page.url
    assert page.locator("#t-facts").count() == 1


def test_tasks_of_one_verdict(either: Reader) -> None:
    page = either.open(f"/check/{NEWEST}")
    page.select_option("#filters-verdict", "missing")
    if page.locator("button.apply").is_visible():
        page.click("button.apply")
    page.wait_for_url("**verdict=missing**")
    either.goes("verdict=missing")
    assert either.rows("tasks") == keys(either.twin(), "tasks") == ["TRECCOVID & <others>"]
    page.click(".chips .clear")
    page.wait_for_url(lambda url: "verdict" not in url)
    page.click('#t-tasks th[data-key="delta"] a')
    page.wait_for_url("**sort=delta**")
    assert either.rows("tasks")[0] == "SciFact"


def test_the_curve_of_a_task_is_chosen(either: Reader) -> None:
    page = either.open("/watch/base-run")
    assert page.locator(".plot-mark").count() == 1
    page.select_option("#filters-task", "NFCorpus")
    if page.locator("button.apply").is_visible():
        page.click("button.apply")
    page.wait_for_url("**task=NFCorpus**")
    either.goes("task=NFCorpus")
    assert "NFCorpus against the step" in page.inner_text("figcaption")
    assert "score" in either.columns("checkpoints")


def test_points_are_reached_by_the_keyboard(reader: Reader) -> None:
    page = reader.open("/checks")
    page.click("#t-lines tbody th a:has-text('release')")
    page.locator(".plot-svg a").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/check/**")
    assert page.locator(".verdict").count() == 1


def test_a_verdict_is_seen_at_once_on_a_phone(reading: Callable[..., Reader]) -> None:
    phone = reading(width=390, has_touch=True, is_mobile=True)
    for path, table in (("/checks", "lines"), (f"/check/{NEWEST}", "tasks")):
        heading = phone.open(path).locator(f'#t-{table} thead th[data-key="verdict"]')
        place = heading.bounding_box()
        assert place is not None
        assert place["x"] + place["width"] <= 390
