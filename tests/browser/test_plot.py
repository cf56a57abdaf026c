"""The interactive plot of trade-offs: on top of the picture that is there without it."""

from __future__ import annotations

from browsing import Reader, rows_of

PARETO = "/pareto?suite=nanobeir"
DRAWN = "figure[data-interactive] .scatterlayer .point"


def test_every_point_is_there_and_tells_its_name(reader: Reader) -> None:
    page = reader.open(PARETO)
    page.wait_for_selector(DRAWN)
    points = rows_of(reader.twin(), "points")
    assert page.locator(DRAWN).count() == len(points) > 30
    best = page.locator(DRAWN).last.bounding_box()
    assert best is not None
    page.mouse.move(best["x"] + best["width"] / 2 - 40, best["y"] + 60)
    page.mouse.move(best["x"] + best["width"] / 2, best["y"] + best["height"] / 2, steps=5)
    label = page.locator(".hoverlayer .hovertext")
    label.wait_for()
    assert any(row["cells"]["model"]["value"] in (label.text_content() or "") for row in points)


def test_the_axis_changes_and_the_still_picture_comes_back(reader: Reader) -> None:
    page = reader.open(PARETO)
    page.wait_for_selector(DRAWN)
    axis = "document.querySelector('.xaxislayer-above').textContent"
    logarithmic = page.evaluate(axis)
    page.click(".plot-button:has-text('Logarithmic')")
    page.wait_for_function(f"before => {axis} !== before", arg=logarithmic)
    assert page.locator(".plot-button:has-text('Logarithmic')").get_attribute("aria-pressed") == "false"
    page.click(".plot-button:has-text('Still picture')")
    assert page.locator("figure .plot-svg").is_visible()
    assert not page.locator(".plot-holder").is_visible()
    page.click(".plot-button:has-text('Still picture')")
    page.wait_for_selector(DRAWN)
    assert page.locator("figure .plot-svg").count() == 0


def test_a_filter_draws_anew(reader: Reader) -> None:
    page = reader.open(PARETO)
    page.wait_for_selector(DRAWN)
    everything = page.locator(DRAWN).count()
    page.fill("#filters-q", "crowd")
    reader.goes("q=crowd")
    page.wait_for_selector(DRAWN)
    assert 0 < page.locator(DRAWN).count() < everything
    page.select_option("select[name=x]", "dimension")
    reader.goes("x=dimension")
    page.wait_for_selector(DRAWN)
    assert "dimension" in (page.locator(".xtitle").text_content() or "").lower()
    assert sum("plotly" in url for url in reader.asked) == 1


def test_a_click_opens_the_model(reader: Reader) -> None:
    page = reader.open(PARETO)
    page.wait_for_selector(DRAWN)
    box = page.locator(DRAWN).last.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=5)
    page.locator(".hoverlayer .hovertext").wait_for()
    page.mouse.down()
    page.mouse.up()
    page.wait_for_url("**/models/*")


def test_it_takes_the_colours_of_the_theme(reader: Reader) -> None:
    page = reader.open(PARETO)
    page.wait_for_selector(DRAWN)
    colour = "getComputedStyle(document.querySelector('.xtick text')).fill"
    light = page.evaluate(colour)
    page.click(".view > summary")
    page.click("[data-set=theme][data-to=dark]")
    page.wait_for_function(f"before => {colour} !== before", arg=light)


def test_without_the_library_the_picture_stays(reader: Reader) -> None:
    reader.context.route("**/plotly.min.js*", lambda route: route.abort())
    page = reader.open(PARETO)
    assert page.locator("figure .plot-svg .plot-point").count() > 30
    assert page.locator(".plot-button").count() == 0
    page.fill("#filters-q", "crowd")
    reader.goes("q=crowd")
    assert page.locator("figure .plot-svg").is_visible()
    assert all("plotly.min.js" in one for one in reader.wrong)
    reader.wrong = []
