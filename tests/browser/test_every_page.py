from __future__ import annotations

from collections.abc import Callable
from typing import Literal
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page

from browsing import NANO, Reader, keys, rows_of
from harness.fits.runs import LAWS
from judged_data import NEWEST, NIGHTS
from leaderboard.web.routes import load_page_routes
from site_data import HOSTILE

# Every kind of page, light and dark, wide and narrow: nothing breaks, leaves the host or shuts out


TINY, LARGE, MINILM = "acme/tiny-base", "acme/tiny-large", "minilm-ish"

PAPERS = ("optibert", "mosaicbert", "neobert", "modernbert", "efficient-embeddings")

KINDS: dict[str, str] = {
    "overview": "/",
    "search": "/search?q=bert",
    "search-empty": "/search?q=none+has+this+name",
    "suites": "/suites",
    "suite": NANO,
    "suite-grouped": f"{NANO}?group=backbone&rows=25&cols=tasks&cols=types",
    "suite-reported": "/suites/glue",
    "suite-view": "/suites/glue?view=optibert&mean=types",
    "model-trained": TINY,
    "model-imported": LARGE,
    "model-hostile": HOSTILE,
    "result": f"result of {MINILM}",
    "result-trained": f"result of {TINY}",
    "tasks": "/tasks",
    "task": "/tasks/NanoNFCorpusRetrieval",
    "compare-none": "/compare",
    "compare-two": "compare 2",
    "compare-three": "compare 3",
    "pareto": "/pareto?suite=nanobeir",
    "glue": "/glue?view=modernbert",
    "backbones": "/backbones?column=dpr-beir",
    "papers": "/papers",
    **{f"paper-{name}": f"/papers/{name}" for name in PAPERS},
    "checks": "/checks",
    "line": "/checks/release-nanobeir-595c0c0d",
    "check": f"/check/{NEWEST}",
    "check-elsewhere": "/check/0123456789ab",
    "watches": "/watches",
    "watch": "/watch/base-run",
    "watch-task": "/watch/base-run?task=SciFact&scale=log",
    "curves": "/curves",
    "curves-of-runs": "/curves/two-runs?sound=1&against=tokens",
    "grid": "/grids/six-runs",
    "fits": "/fits",
    **{f"fit-{law}": f"/fits/{law}" for law in LAWS},
    "recipes": "/recipes",
    "recipe": "/recipes/glue-optibert",
    "rank": "/rank?type=Retrieval&most=100",
    "rank-pinned": f"/rank?suite=nanobeir&beside={MINILM}&language=eng",
    "reproductions": "/reproductions",
    "protocol": "/protocols/optibert",
    "cite": "/cite?of=/tasks/NanoClimateFEVERRetrieval",
    "kept-suite": f"kept {NANO}",
    "kept-cite": "kept /cite?of=/suites",
    "kept-model": "kept /models/acme--tiny-large",
    "embedded": f"{NANO}?embed=1",
    "about": "/about",
    "api": "/api",
    "missing": "/models/no-such-model",
}

FLAWS = """() => ({
  sideways: document.scrollingElement.scrollWidth - innerWidth,
  h1: document.querySelectorAll("h1").length,
  main: document.querySelectorAll("main").length,
  ground: getComputedStyle(document.body).backgroundColor,
})"""


def address(reader: Reader, kind: str) -> str:
    """The address of a kind of page; those of models, results and comparisons are looked up."""
    typed = KINDS[kind]
    if typed.startswith("/"):
        return typed
    if typed.startswith("kept"):
        kept = reader.context.request.post("/cite", max_redirects=0).headers["location"]
        return kept.rpartition("/cite")[0] + typed.removeprefix("kept ")
    if typed.startswith("compare"):
        slugs = keys(reader.json(f"{NANO}.json"))
        return "/compare?" + "&".join(f"m={slug}" for slug in slugs[: int(typed[-1])])
    model = typed.removeprefix("result of ")
    names = [row["cells"]["name"] for row in rows_of(reader.json(f"/search.json?q={quote(model)}"), "hits")]
    path: str = next(name["href"] for name in names if name["value"] == model)
    if typed == model:
        return path
    results = rows_of(reader.json(f"{path}.json"), "results")
    hrefs = [cell.get("href", "") for row in results for cell in row["cells"].values()]
    found: str = next(href for href in hrefs if href.startswith("/results/"))
    return found


def severe(page: Page, **options: object) -> list[str]:
    """What axe finds that is serious or worse, each with the first such element."""
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(Axe().axe_script)
    options |= {"resultTypes": ["violations"]}
    found = page.evaluate("options => axe.run(options).then(all => all.violations)", options)
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:160]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


def test_the_pages_are_all_of_them(reader: Reader) -> None:
    addresses = [address(reader, kind).partition("?")[0] for kind in KINDS]
    routes = load_page_routes()
    assert [route.path for route in routes if all(route.match_path(path) is None for path in addresses)] == []


def test_the_papers_are_all_of_them(reader: Reader) -> None:
    reader.open("/papers")
    hrefs = reader.page.eval_on_selector_all("#t-papers a", "all => all.map(one => one.getAttribute('href'))")
    assert sorted(hrefs) == sorted(f"/papers/{name}" for name in PAPERS)


Scheme = Literal["light", "dark"]

GROUND: dict[Scheme, str] = {"light": "rgb(255, 255, 255)", "dark": "rgb(17, 21, 24)"}
WIDTHS = (390, 768, 1280, 1440)

COLOUR = ("color-contrast", "link-in-text-block")
"""The rules of axe that depend on the scheme; they take most of its time."""

RULES: dict[tuple[int, Scheme], dict[str, object]] = {
    (390, "light"): {},
    (1440, "light"): {"rules": {rule: {"enabled": False} for rule in COLOUR}},
    (1440, "dark"): {"runOnly": COLOUR},
}
"""What axe looks at: each rule at both widths, and colours once in each scheme."""


@pytest.mark.parametrize("kind", KINDS)
def test_page(reading: Callable[..., Reader], kind: str) -> None:
    """The page is loaded once; then its window and the scheme change."""
    reader = reading(width=WIDTHS[0], reduced_motion="reduce")
    page = reader.open(address(reader, kind), status=404 if kind == "missing" else 200)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        for scheme, ground in GROUND.items():
            page.emulate_media(color_scheme=scheme)
            flaws = page.evaluate(FLAWS)
            assert flaws["sideways"] <= 0, (width, scheme)
            assert (flaws["h1"], flaws["main"], flaws["ground"]) == (1, 1, ground)
            if (width, scheme) in RULES:
                assert severe(page, **RULES[width, scheme]) == [], (width, scheme)


def test_the_checks_see_what_is_wrong(browser: Browser, base: str) -> None:
    reader = Reader(browser, base)
    page = reader.open("/about")
    page.set_content("<main><img src='http://elsewhere.test/a.png'><button></button></main>")
    page.evaluate("console.warn('so it is')")
    assert any("button-name" in one for one in severe(page))
    assert any("image-alt" in one for one in severe(page))
    assert any(one.startswith("left the host: http://elsewhere.test/") for one in reader.wrong)
    assert any("Content Security Policy" in one or "ERR_" in one for one in reader.wrong)
    assert any(one.startswith("so it is") for one in reader.wrong)
    reader.context.close()


def test_a_hostile_name_is_text_everywhere(reader: Reader) -> None:
    for path in (address(reader, "model-hostile"), "/search?q=evil", f"{NANO}?q=evil"):
        page = reader.open(path)
        assert HOSTILE.rpartition("/")[2] in page.inner_text("main")
        assert page.locator("main script").count() == 0


# Checks and watches as a reader meets them: from the list to a check, its tasks, and the comparison


@pytest.fixture(params=[True, False], ids=["script", "no-script"])
def either(request: pytest.FixtureRequest, reading: Callable[..., Reader]) -> Reader:
    """A reader whose browser runs scripts, and one whose does not."""
    return reading(java_script_enabled=request.param)


def test_from_the_list_to_the_comparison(either: Reader) -> None:
    page = either.open("/")
    page.click(".rest > summary")
    page.click(".places a:has-text('Checks')")
    assert page.locator("#t-lines tbody tr").count() == 2
    assert page.locator(".parts").first.get_attribute("aria-label", timeout=1000)
    page.click("#t-lines tbody th a:has-text('release')")
    # A script may begin the navigation after the click.
    page.wait_for_selector("#t-history tbody tr")
    assert page.locator("#t-history tbody tr").count() == NIGHTS
    page.click("#t-history tbody th a >> nth=0")
    assert page.url.endswith(f"/check/{NEWEST}")
    assert page.inner_text(".verdict") == "regressed"
    page.click("a:has-text('Compare both models')")
    assert "/compare?m=" in page.url
    assert page.locator("#t-facts").count() == 1


def test_the_curve_of_a_task_is_chosen(either: Reader) -> None:
    page = either.open("/watch/base-run")
    page.select_option("#filters-task", "NFCorpus")
    if page.locator("button.apply").is_visible():
        page.click("button.apply")
    page.wait_for_url("**task=NFCorpus**")
    either.goes("task=NFCorpus")
    assert "NFCorpus against the step" in page.inner_text("figcaption")
    assert "score" in either.columns("checkpoints")


def test_a_verdict_is_seen_at_once_on_a_phone(reading: Callable[..., Reader]) -> None:
    phone = reading(width=390, has_touch=True, is_mobile=True)
    for path, table in (("/checks", "lines"), (f"/check/{NEWEST}", "tasks")):
        heading = phone.open(path).locator(f'#t-{table} thead th[data-key="verdict"]')
        place = heading.bounding_box()
        assert place is not None
        assert place["x"] + place["width"] <= 390
