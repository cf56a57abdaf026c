"""The site by keyboard alone."""

from __future__ import annotations

from urllib.parse import urlsplit

from browsing import NANO, Reader

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


def test_letters_move_tick_and_open(reader: Reader) -> None:
    page = reader.open(NANO)
    rows = reader.rows()
    for key, at in (("j", 0), ("j", 1), ("ArrowDown", 2), ("k", 1)):
        page.keyboard.press(key)
        assert page.evaluate(FOCUS)["row"] == rows[at]
    page.keyboard.press("x")
    assert page.locator(f'input[value="{rows[1]}"]').is_checked()
    focus = page.evaluate(FOCUS)
    assert (focus["row"], focus["ring"]) == (rows[1], True)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{focus['href']}")
    assert urlsplit(page.url).path.startswith("/models/")


def test_slash_finds_and_letters_are_letters_there(reader: Reader) -> None:
    page = reader.open(NANO)
    page.keyboard.press("/")
    assert page.evaluate(FOCUS)["is"] == "find"
    page.keyboard.type("jx?/k")
    assert page.input_value("#find") == "jx?/k"
    assert page.locator("dialog[open]").count() == 0
    page.fill("#find", "")
    page.keyboard.press("Escape")
    assert page.evaluate(FOCUS)["is"] != "find"


def test_a_question_mark_shows_the_keys(reader: Reader) -> None:
    page = reader.open(NANO)
    page.keyboard.press("j")
    on = page.evaluate(FOCUS)["row"]
    page.keyboard.press("?")
    dialog = page.locator("dialog[open]")
    assert dialog.get_by_role("heading").inner_text() == "Keys"
    assert dialog.locator("kbd").all_inner_texts() == ["/", "j", "k", "Enter", "x", "c", "?", "Esc"]
    page.keyboard.press("j")  # not heard while the help is open
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0
    assert page.evaluate(FOCUS)["row"] == on


def test_c_opens_the_columns_and_escape_closes(reader: Reader) -> None:
    page = reader.open(NANO)
    page.keyboard.press("c")
    assert page.locator(".columns").get_attribute("open") is not None
    assert page.evaluate(FOCUS)["is"] == "cols"
    page.keyboard.press("Space")
    reader.goes("cols=")
    assert page.evaluate(FOCUS)["is"] == "cols"  # where it was, in the next state
    page.keyboard.press("Escape")
    assert page.locator(".columns").get_attribute("open") is None
    assert page.evaluate("document.activeElement.textContent") == "Columns"


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
    wanted = ["find", "filters-q", "filters-origin", "filters-size"]
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
