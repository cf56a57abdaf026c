"""What readers set in their systems: less motion, forced colours, more contrast; and paper."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from browsing import NANO, Reader
from judged_data import NEWEST

VISIBLE = """() => {
  const see = one => one.checkVisibility() && one.textContent.trim() && one.getClientRects().length;
  const ground = one => {
    for (let at = one; at; at = at.parentElement) {
      const own = getComputedStyle(at).backgroundColor;
      if (!/, 0\\)$|transparent/.test(own)) return own;
    }
    return getComputedStyle(document.documentElement).backgroundColor;
  };
  const texts = "h1, p, li, td, th, a, label, button, summary, dt, dd, svg text";
  const all = [...document.querySelectorAll(texts)];
  const ink = one => one instanceof SVGElement ? getComputedStyle(one).fill : getComputedStyle(one).color;
  return {
    seen: all.filter(see).length,
    lost: all.filter(one => see(one) && ink(one) === ground(one)).map(one => one.outerHTML.slice(0, 120)),
  };
}"""

PAGES = [
    "/",
    NANO,
    "/pareto?suite=nanobeir",
    "/papers",
    "/tasks/NanoNFCorpusRetrieval",
    "/recipes/glue-quick",
    "/checks",
    f"/check/{NEWEST}",
    "/watch/base-run",
]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_text_is_seen_in_forced_colours(reading: Callable[..., Reader], path: str, scheme: str) -> None:
    reader = reading(forced_colors="active", color_scheme=scheme)
    page = reader.open(path)
    found = page.evaluate(VISIBLE)
    assert found["seen"] > 40
    assert found["lost"] == []


def test_nothing_moves_where_motion_is_not_wanted(reading: Callable[..., Reader]) -> None:
    for motion, moves in (("reduce", False), ("no-preference", True)):
        reader = reading(reduced_motion=motion)
        page = reader.open(NANO)
        page.evaluate("document.querySelector('main').setAttribute('aria-busy', 'true')")
        name = page.evaluate("getComputedStyle(document.querySelector('main'), '::before').animationName")
        assert (name != "none") == moves
        times = page.evaluate(
            "[...document.querySelectorAll('*')].map(one => getComputedStyle(one).transitionDuration)"
        )
        assert any(one != "0s" for one in times) == moves


def test_paper_holds_the_table_and_not_the_controls(reading: Callable[..., Reader]) -> None:
    reader = reading(color_scheme="dark")
    page = reader.open(NANO)
    page.emulate_media(media="print")
    for css in ("header.site", ".filters", ".pager", ".exports"):
        assert not page.locator(css).first.is_visible(), css
    assert page.locator("#t-suite").is_visible()
    whole = "one => one.scrollHeight <= one.clientHeight + 1 && getComputedStyle(one).overflowY"
    assert page.locator(".scroll").first.evaluate(whole) == "visible"
    ink = page.evaluate("getComputedStyle(document.querySelector('h1')).color")
    assert ink == "rgb(21, 25, 30)"
    assert page.pdf()[:5] == b"%PDF-"


def test_more_contrast_leaves_no_pale_text(reading: Callable[..., Reader]) -> None:
    reader = reading(contrast="more")
    page = reader.open(NANO)
    colour = "css => getComputedStyle(document.querySelector(css)).color"
    assert page.evaluate(colour, "footer p") == page.evaluate(colour, "h1") == "rgb(21, 25, 30)"
