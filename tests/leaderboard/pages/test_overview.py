from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.testclient import TestClient

from harness.storage.record import Record
from html_pages import BROWSER, ask
from leaderboard.pages.overview import TEXTS
from leaderboard.views.suite_table import SuiteState
from leaderboard.web.site import BOARDS
from site_data import (
    Parsed,
    every_path,
    fill,
    measured_model,
    names,
    put,
    scored,
    small_app,
    standard_app,
    suites,
)

# The first page: boards, the best per size class, the newest records


def tables() -> dict[str, list[dict[str, Any]]]:
    document = ask(TestClient(standard_app()), "/index")
    return {table["name"]: [row["cells"] for row in table["rows"]] for table in document["tables"]}


def test_boards_hold_the_best_of_their_suites() -> None:
    found = tables()["boards"]
    boards = dict.fromkeys(row["board"]["value"] for row in found)
    assert next(iter(boards)) == "GLUE"
    for title in boards:
        slug = next(slug for slug, one in suites().items() if one.suite.title == title)
        page = TestClient(standard_app()).get(f"/suites/{slug}.json").json()["tables"][0]["rows"]
        ranked = [row["cells"] for row in page if "rank" in row["cells"]]
        wanted = [(c["rank"]["value"], c["model"]["value"], c["tasks"]["value"]) for c in ranked[:5]]
        own = [row for row in found if row["board"]["value"] == title]
        assert own
        got = [tuple(row[key].get("value") for key in ("rank", "model", "score")) for row in own]
        assert got == wanted or not ranked


def test_the_newest_records_come_first_with_their_zone() -> None:
    written = [row["written"] for row in tables()["newest"]]
    assert 0 < len(written) <= 8
    assert [cell["value"] for cell in written] == sorted((c["value"] for c in written), reverse=True)
    assert all(cell["text"].endswith(" UTC") for cell in written)


def test_the_first_page_leads_on() -> None:
    page = Parsed(TestClient(standard_app()).get("/", headers=BROWSER).text)
    assert page.wrong == []
    assert {SUITE, "/glue", "/backbones", "/suites", "/papers"} <= set(page.links)
    assert "harness run --model" in page.text
    assert page.all("figure")
    assert {slug for _, slug in BOARDS} <= set(TEXTS), "the head leads to the boards of the cards"


# Formats of pages: every row, what was asked for, and what must be read with it
MANY = 120
SUITE = "/suites/nanobeir"
FIRST = names("nanobeir")[0]


def many(folder: Path) -> None:
    """A site with a suite of several pages."""
    fill(folder)
    for number in range(MANY):
        model = measured_model(f"many-{number:03}", f"9{number:03}")
        records: list[Record] = [scored(model, FIRST, 0.2 + number / 1000)]
        put(folder / "results", model, records)


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    return TestClient(small_app(tmp_path_factory.mktemp("many"), many))


def count(asking: TestClient, path: str, form: str) -> int:
    """Rows of a page's first table in a form."""
    answer = asking.get(path.replace(".FORM", f".{form}"))
    assert answer.status_code == 200, answer.text
    if form == "json":
        return len([row for row in answer.json()["tables"][0]["rows"] if row["kind"] != "group"])
    if form == "csv":
        return len(list(csv.reader(io.StringIO(answer.text, newline="")))) - 1
    if form == "md":
        return len([line for line in answer.text.splitlines() if line.startswith("|")]) - 2
    body = answer.text.partition("\\midrule\n")[2].partition("\n\\bottomrule")[0]
    return len(body.splitlines())


@pytest.mark.parametrize("form", ["json", "csv", "md", "tex"])
def test_another_format_holds_every_row_unless_some_are_named(asking: TestClient, form: str) -> None:
    all_paths = count(asking, "/suites/nanobeir.FORM?rows=all", form)
    assert all_paths > MANY
    assert count(asking, "/suites/nanobeir.FORM", form) == all_paths
    assert count(asking, "/suites/nanobeir.FORM?theme=dark", form) == all_paths
    usual = SuiteState.model_fields["rows"].default
    named = count(asking, f"/suites/nanobeir.FORM?rows={usual}", form)
    assert named == int(usual), "named, though the usual number"
    assert count(asking, "/suites/nanobeir.FORM?rows=25", form) == 25
    assert count(asking, "/suites/nanobeir.FORM?page=1", form) == int(usual)
    assert count(asking, "/suites/nanobeir.FORM", form) == all_paths  # what is kept is not mistaken


def test_the_page_itself_stays_paged_and_leads_to_all_rows(asking: TestClient) -> None:
    page = Parsed(asking.get(f"{SUITE}?rows=25&page=2&q=many", headers=BROWSER).text)
    assert len([row for row in page.all("tr") if "data-key" in row]) == 25
    (link,) = [link for link in page.links if link.startswith(f"{SUITE}.json")]
    assert link == f"{SUITE}.json?q=many"
    assert len(asking.get(link).json()["tables"][0]["rows"]) == MANY


def test_what_was_asked_for_stands_in_every_format_that_is_read_by_people() -> None:
    asking = TestClient(standard_app())
    query = "revisions=pinned&q=tiny&theme=dark&rows=25"
    md, tex = (asking.get(f"{SUITE}.{form}?{query}").text for form in ("md", "tex"))
    assert "View: `q=tiny&revisions=pinned`" in md.partition("\n## ")[0]
    above = tex.partition("\\begin{table}")[0].splitlines()
    assert "% View: q=tiny&revisions=pinned" in above
    data = asking.get(f"{SUITE}.json?{query}").json()
    assert data["state"] == {"q": "tiny", "revisions": "pinned", "rows": "25"}
    assert "View" not in asking.get(f"{SUITE}.md?theme=dark").text
    assert asking.get(f"{SUITE}.json").json()["state"] == {}


@pytest.mark.parametrize(
    "path",
    ["/", "/index.json", SUITE, f"{SUITE}.csv", "/tasks", "/about.json", "/api", "/models/acme--tiny-base"],
)
def test_an_unknown_parameter_is_refused(path: str) -> None:
    asking = TestClient(standard_app())
    answer = asking.get(f"{path}?thme=dark", headers={"accept": "application/json"})
    error = answer.json()["error"]
    assert answer.status_code == error["status"] == 422
    assert error["message"] == "There is no parameter 'thme'. Did you mean theme?"
    assert "/api" in error["hint"]
    page = asking.get(f"{path}?thme=dark", headers=BROWSER)
    assert page.status_code == 422
    assert "Did you mean theme?" in page.text


@pytest.mark.parametrize(
    ("path", "wanted"),
    [("/", ""), (SUITE, "cols"), (f"{SUITE}.json", "cols"), ("/compare", "")],
)
def test_the_nearest_parameter_is_one_of_that_page(path: str, wanted: str) -> None:
    said = TestClient(standard_app()).get(f"{path}?colls=x").json()["error"]["message"]
    hint = f" Did you mean {wanted}?" if wanted else ""
    assert said == f"There is no parameter 'colls'.{hint}"


def links(asking: TestClient, path: str) -> Iterator[str]:
    """The links and forms of a page that hold a query, as a browser would ask for them."""
    page = Parsed(asking.get(path, headers=BROWSER).text)
    yield from (link if link[:1] == "/" else path + link for link in page.links if "?" in link)
    action = path
    for tag, attributes in page.elements:
        if tag == "form":
            action = attributes.get("action") or path
        elif tag in ("input", "select") and attributes.get("name") and attributes.get("form") != "pick":
            yield f"{action}?{attributes['name']}="


def test_no_page_leads_to_a_parameter_that_is_none() -> None:
    app = standard_app()
    asking = TestClient(app)
    seen: set[tuple[str, frozenset[str]]] = set()
    all_paths = every_path(app)
    of_each_kind = {path.rpartition("/")[0]: path for path in all_paths}
    for path in [*all_paths[:: 1 + len(all_paths) // 60], *of_each_kind.values()]:
        for link in links(asking, path):
            base, _, query = link.partition("?")
            key = base, frozenset(part.partition("=")[0] for part in query.split("&"))
            if key in seen or base.startswith("/static"):
                continue
            seen.add(key)
            answer = asking.get(link, headers={"accept": "application/json"})
            assert "There is no parameter" not in answer.text, (path, link)
    assert len(seen) > 20


def suite(**query: Any) -> dict[str, Any]:
    return ask(TestClient(standard_app()), f"{SUITE}?{urlencode(query, doseq=True)}")


def test_a_bare_name_stands_for_its_column() -> None:
    whole, bare = suite(cols=f"task:{FIRST}"), suite(cols=FIRST)
    assert [c["key"] for c in bare["tables"][0]["columns"]] == ["rank", "model", f"task:{FIRST}"]
    assert bare["tables"] == whole["tables"]
    for sign in ("", "-"):
        one, other = suite(sort=f"{sign}{FIRST}"), suite(sort=f"{sign}task:{FIRST}")
        assert one["tables"] == other["tables"]
    assert suite(sort="-mean")["tables"] == suite()["tables"]
    assert [c["key"] for c in suite(cols="mean", mean="types")["tables"][0]["columns"]][2:] == ["types"]


@pytest.mark.parametrize("query", [{"cols": "nope"}, {"cols": [FIRST, "nope"]}, {"sort": "nope"}])
def test_a_column_that_is_none_is_said(query: dict[str, Any]) -> None:
    answer = TestClient(standard_app()).get(f"{SUITE}.json", params=query)
    assert answer.status_code == 404
    assert answer.json()["error"]["message"] == "No column is called 'nope'."
