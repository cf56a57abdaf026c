"""Tables and the interactive plot, as a reader with JavaScript uses them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from browsing import CROWD, NANO, Reader, keys, query, rows_of, values

# Sorting, filtering, picking, comparing and sharing, as a reader with JavaScript does it


TASK = "task:NanoNFCorpusRetrieval"


def test_a_click_on_a_heading_sorts(reader: Reader) -> None:
    page = reader.open(NANO)
    before = reader.rows()
    assert before == keys(reader.data())
    page.click(f'#t-suite th[data-key="{TASK}"] a:first-child')
    reader.goes(f"sort=-{TASK}")
    down = values(reader.data(), TASK)
    assert reader.rows() == keys(reader.data())
    assert down == sorted(down, reverse=True)
    assert len(set(down)) > 5
    heading = page.locator(f'#t-suite th[data-key="{TASK}"]')
    assert heading.get_attribute("aria-sort") == "descending"
    heading.locator("a").first.click()
    reader.goes(f"sort={TASK}")
    up = values(reader.data(), TASK)
    assert (reader.rows(), up) == (keys(reader.data()), sorted(up))
    page.go_back()
    reader.goes(f"sort=-{TASK}")
    page.go_back()
    reader.leaves("sort=")
    assert reader.rows() == before
    assert [one for one in reader.asked if one.endswith(NANO)] == [page.url, page.url]


def test_typing_filters_after_a_moment(reader: Reader) -> None:
    page = reader.open(NANO)
    everything = reader.rows()
    page.locator("#filters-q").press_sequentially("model-1", delay=20)
    reader.goes("q=model-1")
    pages = [one for one in reader.asked if "q=" in one]
    assert len(pages) == 1  # once for what was typed, not for each letter
    assert sorted(reader.rows()) == sorted(one for one in everything if "model-1" in one)
    assert len(reader.rows()) == 10
    assert page.evaluate("document.activeElement.id") == "filters-q"
    assert page.input_value("#filters-q") == "model-1"
    assert "10" in reader.said()
    page.keyboard.type("2")
    reader.goes("q=model-12")
    assert reader.rows() == keys(reader.data())
    assert len(reader.rows()) == 1
    page.go_back()
    page.wait_for_function("() => document.querySelectorAll('#t-suite tbody tr').length === 10")
    assert page.input_value("#filters-q") == "model-1"
    page.go_back()
    reader.leaves("q=")
    assert (reader.rows(), page.input_value("#filters-q")) == (everything, "")


def test_nothing_found_says_so_and_leads_back(reader: Reader) -> None:
    page = reader.open(NANO)
    page.fill("#filters-q", "none has this name")
    reader.goes("q=none")
    assert "No model passes these filters" in page.inner_text("main")
    page.click(".empty a")
    reader.leaves("q=")
    assert len(reader.rows()) > CROWD


def test_selects_filter_and_chips_take_back(reader: Reader) -> None:
    page = reader.open(NANO)
    page.select_option("#filters-origin", "measured")
    reader.goes("origin=measured")
    assert [row["cells"]["origin"]["value"] for row in rows_of(reader.data())] == ["measured"]
    assert reader.rows() == keys(reader.data())
    page.select_option("#filters-group", "backbone")
    reader.goes("group=backbone")
    assert query(reader) == {"origin": ["measured"], "group": ["backbone"]}
    page.click(".chips a:has-text('measured')")
    reader.leaves("origin=")
    groups = page.locator("#t-suite tr.group").all_inner_texts()
    assert any("acme/tiny-base" in one for one in groups)
    assert reader.rows() == [one for one in keys(reader.data()) if one]


def test_every_choice_of_a_select_can_be_made(reader: Reader) -> None:
    """The first choice too, where it is not what the page shows unasked."""
    for path, name in (("/pareto", "suite"), ("/pareto?suite=nanobeir", "x"), ("/suites/glue", "view")):
        page = reader.open(path)
        options = page.eval_on_selector_all(f"select[name={name}] option", "all => all.map(o => o.value)")
        for value in [options[-1], options[0]]:
            if page.input_value(f"select[name={name}]") == value:
                continue
            with page.expect_response(lambda answer: answer.request.resource_type == "fetch"):
                page.select_option(f"select[name={name}]", value)
            page.wait_for_function("() => !document.querySelector('main[aria-busy]')")
            assert page.input_value(f"select[name={name}]") == value, (path, name)


def test_pages_of_rows(reader: Reader) -> None:
    page = reader.open(f"{NANO}?rows=25")
    first = reader.rows()
    assert len(first) == 25
    page.click(".pager a[rel=next]")
    reader.goes("page=2")
    rest = reader.rows()
    assert (set(first) & set(rest), reader.said()) == (set(), page.inner_text(".pager .range"))
    page.click(".pager .sizes a:has-text('all')")
    reader.goes("rows=all")
    assert reader.rows() == first + rest


def test_the_theme_is_remembered(reader: Reader) -> None:
    page = reader.open(NANO)
    page.click(".theme .to-dark")
    assert reader.root("data-theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 21, 24)"
    assert page.url.endswith(NANO)
    reader.open("/about")
    assert reader.root("data-theme") == "dark"
    assert [page.locator(f".theme .to-{name}").is_visible() for name in ("dark", "light")] == [False, True]
    reader.open("/about?theme=light")
    assert reader.root("data-theme") == "light"


def test_ticked_rows_are_compared(reader: Reader) -> None:
    page = reader.open(NANO)
    rows = reader.rows()
    chosen = [next(one for one in rows if part in one) for part in ("tiny-large", "crowd")]
    submit = page.locator("#pick button:not([type])")
    assert not submit.is_visible()
    page.check(f'input[value="{chosen[0]}"]')
    assert submit.is_disabled()
    page.fill("#filters-q", "crowd/")  # what is ticked stays, whatever is shown
    reader.goes("q=crowd")
    assert chosen[0] not in reader.rows()
    page.check(f'input[value="{chosen[1]}"]')
    assert page.locator(".chosen button").count() == 2
    submit.click()
    page.wait_for_url("**/compare?*")
    assert query(reader) == {"m": chosen}
    assert page.locator(".chips[aria-label='Entries that are compared'] li").count() == 2
    assert "means" in [table["name"] for table in reader.data()["tables"]]


def test_more_than_six_are_refused(reader: Reader) -> None:
    page = reader.open(NANO)
    rows = reader.rows()
    for key in rows[:6]:
        page.check(f'input[value="{key}"]')
    seventh = page.locator(f'input[value="{rows[6]}"]')
    seventh.click()
    assert (seventh.is_checked(), reader.said()) == (False, "No more than 6 can be compared")
    page.locator(".chosen button").first.click()
    assert not page.locator(f'input[value="{rows[0]}"]').is_checked()
    seventh.click()
    assert seventh.is_checked()
    page.click("#pick button:not([type])")
    page.wait_for_url("**/compare?*")
    assert query(reader)["m"] == rows[1:7]


@pytest.mark.parametrize(
    "state", ["q=model&sort=parameters&rows=25&page=2", f"sort={TASK}&cols=tasks&cols={TASK}&theme=dark"]
)
def test_who_gets_the_address_sees_the_same(reading: Callable[..., Reader], state: str) -> None:
    reader = reading(permissions=["clipboard-read", "clipboard-write"])
    page = reader.open(f"{NANO}?{state}")
    page.click("[data-do=copy]")
    page.wait_for_function("() => document.querySelector('[data-do=copy]').textContent === 'Copied'")
    copied = page.evaluate("navigator.clipboard.readText()")
    other = reading(width=390)
    other.open(copied)
    assert len(reader.rows()) >= 5
    assert (other.rows(), other.columns()) == (reader.rows(), reader.columns())
    assert other.root("data-theme") == reader.root("data-theme")


def test_an_address_made_by_clicks_is_shared_too(reading: Callable[..., Reader]) -> None:
    reader = reading()
    page = reader.open(NANO)
    page.fill("#filters-q", "model-2")
    reader.goes("q=model-2")
    page.click('#t-suite th[data-key="parameters"] a')
    reader.goes("sort=")
    other = reading(width=390, java_script_enabled=False)
    other.open(page.url)
    assert (other.rows(), other.columns()) == (reader.rows(), reader.columns())


def test_the_site_finds_by_name_from_any_page(reader: Reader) -> None:
    page = reader.open("/about")
    page.fill("#find", "tiny-large")
    page.keyboard.press("Enter")
    page.wait_for_url("**/models/acme--tiny-large")
    assert "acme/tiny-large" in page.inner_text("main")


def test_a_failing_server_is_no_dead_end(reader: Reader) -> None:
    """Where a state cannot be fetched, the browser goes there itself."""
    page = reader.open(NANO)
    page.route("**/*?*q=model-3*", lambda route: route.abort(), times=1)
    page.fill("#filters-q", "model-3")
    page.wait_for_url("**q=model-3*")
    assert page.input_value("#filters-q") == "model-3"
    reader.wrong = [one for one in reader.wrong if "ERR_FAILED" not in one]


# Charts: drawn by the server, their values as tables below


PARETO = "/pareto?suite=nanobeir"
TRAINED = "/models/acme--tiny-base"
DRAWN = "#c-points .plane .point"


def test_every_point_is_there_and_tells_its_name(reader: Reader) -> None:
    page = reader.open(PARETO)
    points = rows_of(reader.data(), "points")
    titles = page.locator("#c-points .plane title").all_text_contents()
    assert page.locator(DRAWN).count() == len(titles) == len(points) > 30
    models = {row["cells"]["model"]["value"] for row in points}
    assert {title.splitlines()[0] for title in titles} == models


CROSSED = """() => {
  const texts = [...document.querySelectorAll(".chart .name")].filter(one => one.checkVisibility());
  const boxes = texts.map(one => one.getBoundingClientRect());
  const meet = (a, b) => a.left < b.right && b.left < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom;
  const holds = (a, p) => a.left + 2 < p.x && p.x < a.right - 2 && a.top + 2 < p.y && p.y < a.bottom - 2;
  const drawing = [".line.dotted", ".mark", "rect"].map(one => `.chart .plane ${one}`).join();
  const points = [...document.querySelectorAll(drawing)].flatMap(path => Array.from({length: 200}, (_, at) =>
      path.getPointAtLength(path.getTotalLength() * at / 199).matrixTransform(path.getScreenCTM())));
  return {
    names: boxes.length,
    overlap: boxes.flatMap((a, i) => boxes.slice(i + 1).some(b => meet(a, b)) ? [texts[i].textContent] : []),
    crossed: texts.filter((one, i) => points.some(p => holds(boxes[i], p))).map(one => one.textContent),
  };
}"""


@pytest.mark.parametrize(
    ("path", "least"),
    [(PARETO, 3), ("/glue?view=modernbert", 8), ("/tasks/NanoNFCorpusRetrieval?rows=all", 1)],
)
def test_names_in_a_chart_cover_no_name_and_no_line(reader: Reader, path: str, least: int) -> None:
    for width in (1440, 700):
        reader.page.set_viewport_size({"width": width, "height": 900})
        page = reader.open(path)
        found = page.evaluate(CROSSED)
        assert (found["overlap"], found["crossed"]) == ([], []), width
        assert found["names"] >= least, width


def test_a_chart_needs_no_script_of_its_own(reader: Reader) -> None:
    page = reader.open(TRAINED)
    assert all("/static/site.js" in url for url in reader.asked if ".js" in url)
    chart = page.locator(".chart").first
    assert chart.locator(".point").count() > 3
    assert chart.locator("details").get_attribute("open") is None
    chart.locator("summary").click()
    assert chart.locator("table tbody tr").count() > 3


def test_a_filter_draws_anew(reader: Reader) -> None:
    page = reader.open(PARETO)
    everything = page.locator(DRAWN).count()
    page.fill("#filters-q", "crowd")
    reader.goes("q=crowd")
    page.wait_for_function(
        "most => document.querySelectorAll('#c-points .plane .point').length < most", arg=everything
    )
    assert page.locator(DRAWN).count() > 0
    page.select_option("select[name=x]", "dimension")
    reader.goes("x=dimension")
    page.wait_for_selector("#c-points .axis:text('dimension')")


def test_a_click_opens_the_model(reader: Reader) -> None:
    page = reader.open(PARETO)
    page.locator(DRAWN).last.click()
    page.wait_for_url("**/models/*")


def test_it_takes_the_colours_of_the_theme(reader: Reader) -> None:
    page = reader.open(PARETO)
    colour = "getComputedStyle(document.querySelector('.plane .point')).fill"
    light = page.evaluate(colour)
    page.click(".theme .to-dark")
    page.wait_for_function(f"before => {colour} !== before", arg=light)
