"""How readers come: by keyboard, by phone, and with what they set in their systems."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import FloatRect, Locator

from browsing import NANO, Reader
from judged_data import NEWEST

# The site by keyboard alone


FOCUS = """() => {
  const on = document.activeElement, look = getComputedStyle(on);
  return {
    is: on.id || on.name || on.className || on.textContent.trim(),
    row: on.closest("tr[data-key]")?.dataset.key ?? null,
    inside: on.closest("main") !== null,
    ring: on.matches(":focus-visible") && look.outlineStyle !== "none" && parseFloat(look.outlineWidth) >= 1,
    seen: on.checkVisibility(),
    href: on.getAttribute("href"),
  };
}"""


def test_slash_leads_to_the_search(reader: Reader) -> None:
    page = reader.open(NANO)
    page.keyboard.press("/")
    assert page.evaluate(FOCUS)["is"] == "find"
    page.keyboard.type("jx?/k")
    assert page.input_value("#find") == "jx?/k"


def test_a_question_mark_lists_the_keys(reader: Reader) -> None:
    page = reader.open(NANO)
    assert not page.locator("#keys").is_visible()
    page.keyboard.press("?")
    assert page.locator("#keys kbd", has_text="/").first.is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#keys").is_visible()
    page.keyboard.press("/")
    page.keyboard.type("?")
    assert not page.locator("#keys").is_visible()


def test_escape_closes_the_menu(reader: Reader) -> None:
    page = reader.open(NANO)
    page.click(".rest > summary")
    assert page.locator(".rest a:has-text('All suites')").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator(".rest a:has-text('All suites')").is_visible()
    assert page.evaluate("document.activeElement.textContent") == "More"


def test_tab_reaches_the_filters_in_order_and_shows_where_it_is(reader: Reader) -> None:
    page = reader.open(NANO)
    stops = []
    for _ in range(90):
        page.keyboard.press("Tab")
        focus = page.evaluate(FOCUS)
        assert focus["seen"], focus
        assert focus["ring"], focus
        stops.append(focus["is"])
        if focus["row"]:
            break
    assert stops[0] == "skip"
    wanted = ["find", "filters-q", "filters-most", "filters-origin"]
    at = [stops.index(one) for one in wanted]
    assert at == sorted(at)
    assert "scroll" in stops[at[-1] :]  # the table itself, so that arrows scroll it
    assert focus["row"] == reader.rows()[0]


def test_the_skip_link_leads_to_the_content(reader: Reader) -> None:
    page = reader.open(NANO)
    page.keyboard.press("Tab")
    box = page.locator(".skip").bounding_box()
    assert box is not None
    assert box["y"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    assert page.evaluate(FOCUS)["inside"]


def test_the_place_is_kept_when_a_heading_sorts(reader: Reader) -> None:
    page = reader.open(NANO)
    page.focus('#t-suite th[data-key="parameters"] a')
    page.keyboard.press("Enter")
    reader.goes("sort=")
    assert page.evaluate("document.activeElement.closest('th')?.dataset.key") == "parameters"
    page.keyboard.press("Enter")
    reader.goes("sort=parameters")
    assert page.locator('th[data-key="parameters"]').get_attribute("aria-sort") == "ascending"


# A window of 390 pixels: what decides is seen without scrolling sideways, and nothing is out of reach


WIDTH = 390


@pytest.fixture
def phone(reading: Callable[..., Reader]) -> Reader:
    return reading(width=WIDTH, has_touch=True, is_mobile=True)


def box(found: Locator) -> FloatRect:
    place = found.bounding_box()
    assert place is not None
    return place


@pytest.mark.parametrize(
    ("path", "table", "columns"),
    [
        ("/tasks/NanoNFCorpusRetrieval", "ranking", ["model", "score"]),
        ("/compare?m=crowd--model-29&m=acme--tiny-large", "pairs", ["one", "other", "tasks_verdict"]),
        ("/compare?m=crowd--model-29&m=acme--tiny-large", "tasks", ["name", "s0", "s1"]),
        ("/models/acme--tiny-large", "results", ["name", "score"]),
    ],
)
def test_what_decides_is_seen_at_once(phone: Reader, path: str, table: str, columns: list[str]) -> None:
    page = phone.open(path)
    for column in columns:
        heading = page.locator(f'#t-{table} thead th[data-key="{column}"]')
        place = box(heading)
        assert place["x"] + place["width"] <= WIDTH, column
        assert not heading.evaluate("one => one.firstElementChild.scrollHeight > one.clientHeight"), "clipped"


@pytest.mark.parametrize(
    ("path", "least"),
    [
        (NANO, 3),
        ("/glue?view=modernbert", 10),
        ("/backbones?column=dpr-beir", 3),
        ("/models/acme--tiny-large", 4),
        ("/tasks", 4),
        ("/pareto?suite=nanobeir", 3),
    ],
)
def test_a_board_is_cards_with_name_and_scores(phone: Reader, path: str, least: int) -> None:
    page = phone.open(path)
    row = page.locator(".data.cards tbody tr:not(.group)").first
    shown = [cell for cell in row.locator("th, td").all() if cell.is_visible()]
    assert len(shown) >= least
    for cell in shown:
        place = box(cell)
        assert 0 <= place["x"] <= place["x"] + place["width"] <= WIDTH


@pytest.mark.parametrize("width", [1440, WIDTH])
def test_what_a_model_was_trained_on_is_seen_at_once(reading: Callable[..., Reader], width: int) -> None:
    page = reading(width=width).open(f"{NANO}?q=tiny-large")
    cell = page.locator("#t-suite td.leak").first
    place = box(cell)
    assert place["x"] + place["width"] <= min(width, 700)
    assert "%" in cell.inner_text()
    assert "†" in cell.evaluate("one => getComputedStyle(one, '::after').content")


def test_the_list_of_tasks_fits_a_window(reading: Callable[..., Reader]) -> None:
    page = reading(width=1280).open("/tasks")
    assert page.locator(".scroll").first.evaluate("one => one.scrollWidth - one.clientWidth") == 0


def test_filters_are_there_when_a_phone_is_turned(phone: Reader) -> None:
    page = phone.open(NANO)
    page.set_viewport_size({"width": 844, "height": WIDTH})
    page.locator("#filters-origin").wait_for()


def test_names_stay_when_a_table_is_moved(reading: Callable[..., Reader]) -> None:
    page = reading(width=700).open(NANO)
    name = page.locator("#t-suite tbody th").nth(3)
    before = box(name)
    page.locator(".scroll").first.evaluate("one => { one.scrollLeft = 600; }")
    assert box(name)["x"] == pytest.approx(before["x"], abs=25)


def test_a_short_name_beside_its_box_is_whole_and_the_way_here_ends_without_a_slash(
    reading: Callable[..., Reader],
) -> None:
    page = reading(width=700).open(NANO)
    # Cut where a box and a name share less than their room, as in a table that is wider than its page.
    cut = "some => some.filter(one => one.scrollWidth > one.clientWidth && one.innerText.length < 20).length"
    assert page.locator("#t-suite tbody th:has(input)").evaluate_all(cut) == 0
    assert page.locator("#t-suite tbody th:has(input)").count() > 3
    last = page.locator(".crumbs li").last
    assert last.evaluate("one => getComputedStyle(one, '::after').content") == "none"


def test_long_addresses_of_a_citation_wrap_on_a_phone(phone: Reader) -> None:
    page = phone.open(
        f"/cite?of=/rank%3Fsuite%3Dnanobeir%26models%3D1%26task%3D{'NanoArguAnaRetrieval%2C' * 4}"
    )
    boxes = page.locator("pre").evaluate_all("some => some.map(one => one.scrollWidth - one.clientWidth)")
    assert boxes == [0, 0, 0]


def test_filters_open(phone: Reader) -> None:
    page = phone.open(NANO)
    assert not page.locator("#filters-origin").is_visible()
    page.tap(".fold > summary")
    page.select_option("#filters-origin", "measured")
    phone.goes("origin=measured")
    assert page.locator("#filters-origin").is_visible()  # what was open stays open


def test_the_menu_opens_and_holds_every_place(phone: Reader) -> None:
    page = phone.open("/about")
    assert not page.locator(".places a").first.is_visible()
    page.tap(".menu > summary")
    page.tap(".rest > summary")
    assert all(link.is_visible() for link in page.locator(".places a").all())
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_no_button_opens_nothing(phone: Reader) -> None:
    for path in ("/suites", "/compare", "/tasks", NANO, "/models/acme--tiny-base"):
        page = phone.open(path)
        for fold in page.locator("details.fold").all():
            assert fold.locator("select, input:not([type=hidden])").count() > 0, path


# What readers set in their systems: less motion, forced colours, more contrast; and paper


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
    "/", NANO, "/pareto?suite=nanobeir", "/papers", "/tasks/NanoNFCorpusRetrieval", "/recipes/glue-quick",
    "/checks", f"/check/{NEWEST}", "/watch/base-run",
]  # fmt: skip


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
    assert ink == "rgb(20, 25, 31)"
    assert page.pdf()[:5] == b"%PDF-"


def test_more_contrast_leaves_no_pale_text(reading: Callable[..., Reader]) -> None:
    reader = reading(contrast="more")
    page = reader.open(NANO)
    colour = "css => getComputedStyle(document.querySelector(css)).color"
    assert page.evaluate(colour, "footer p") == page.evaluate(colour, "h1") == "rgb(20, 25, 31)"


# A question from the first page: the answer is one page further


@pytest.mark.parametrize("width", [1440, 390])
def test_a_question_of_the_first_page_is_answered_on_the_next(
    reading: Callable[..., Reader], width: int
) -> None:
    reader = reading(width=width)
    page = reader.open("/")
    page.select_option("#ask-suite", "any")
    page.select_option("#ask-type", "Retrieval")
    page.fill("#ask-most", "200")
    page.check("#ask input[name=open]")
    page.click("#ask button:has-text('Rank')")
    page.wait_for_selector("#t-suite")
    assert page.url.partition("?")[0].endswith("/rank")
    assert page.inner_text("h1 + p, .lead").startswith("First is ")
    first = page.inner_text("#t-suite tbody tr:first-child th")
    assert first.replace("\n", "").strip() in page.inner_text("main").replace("\n", "")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [1440, 390])
def test_a_model_of_ones_own_stands_marked_among_the_others(
    reading: Callable[..., Reader], width: int
) -> None:
    reader = reading(width=width)
    page = reader.open("/")
    page.select_option("#ask-suite", "nanobeir")
    page.fill("#ask-beside", "minilm-ish")
    page.click("#ask button:has-text('Rank')")
    page.wait_for_selector("#t-suite")
    assert "minilm-ish" in page.inner_text("tr.beside")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
