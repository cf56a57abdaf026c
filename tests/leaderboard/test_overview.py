from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from harness.record import Record
from html_pages import BROWSER
from leaderboard.pages.overview import OverviewState
from site_data import (
    HOSTILE,
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

# The overview: models x suites, their order, and what a search finds


def asked(**query: Any) -> dict[str, Any]:
    answer = TestClient(standard_app()).get("/index.json", params=query)
    assert answer.status_code == 200, answer.text
    (table,) = answer.json()["tables"]
    return dict(table)


def models(**query: Any) -> list[str]:
    return [row["cells"]["model"]["value"] for row in asked(**query)["rows"]]


def test_a_row_for_each_model_and_a_column_for_each_suite() -> None:
    found = asked(rows="all")
    queries = standard_app().state.site.queries
    known = {e.model_slug for e in queries.entries.values() if e.origin != "reported"}
    assert len(found["rows"]) == len(known)
    printed = [e for e in queries.entries.values() if e.origin == "reported"]
    assert len(asked(rows="all", origin="reported")["rows"]) == len(printed) > 20, "each stands alone"
    keys = [column["key"] for column in found["columns"]]
    assert set(queries.entries_of_suites) <= set(keys)


def test_cells_are_the_means_of_the_suites_pages() -> None:
    for slug in ("nanobeir", "mteb-MTEB-kor-v1"):
        page = TestClient(standard_app()).get(f"/suites/{slug}.json?rows=all").json()["tables"][0]["rows"]
        said = {
            row["cells"]["model"]["value"]: row["cells"]["tasks"] for row in page if row["kind"] != "part"
        }
        for row in asked(rows="all", cols=slug)["rows"]:
            name, cell = row["cells"]["model"]["value"], row["cells"][slug]
            if name in said:
                assert cell["value"] == said[name]["value"]
            else:
                assert cell.get("kind") in ("none", "part", "away", "reported"), name
                assert cell["value"] is None or cell["kind"] == "reported"


def test_a_part_of_a_suite_is_no_mean() -> None:
    (row,) = [r for r in asked(rows="all")["rows"] if r["cells"]["model"]["value"] == HOSTILE]
    assert row["cells"]["nanobeir"] == {"value": None, "text": f"3/{len(names('nanobeir'))}", "kind": "part"}


def test_the_complete_stand_first_in_both_directions() -> None:
    for sort in ("nanobeir", "-nanobeir"):
        cells = [row["cells"]["nanobeir"] for row in asked(sort=sort, rows="all")["rows"]]
        values = [cell["value"] for cell in cells if cell["value"] is not None]
        assert len(values) == 3
        assert [cell["value"] for cell in cells[:3]] == values
        assert values == sorted(values, reverse=sort.startswith("-"))
    assert models(sort="model", rows="all") == sorted(models(rows="all"), key=str.casefold)
    sizes = [row["cells"]["parameters"]["value"] for row in asked(sort="-parameters", rows="all")["rows"]]
    known = [size for size in sizes if isinstance(size, int)]
    assert len(known) >= 3
    assert known == sorted(known, reverse=True)


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({"q": "tiny"}, {"acme/tiny-base", "acme/tiny-large"}),
        ({"origin": "imported"}, {"acme/tiny-base", "acme/tiny-large", HOSTILE}),
        ({"recipe": "glue-optibert"}, {"acme/tiny-base"}),
        ({"q": "nobody"}, set()),
    ],
)
def test_filters(query: dict[str, str], wanted: set[str]) -> None:
    assert set(models(rows="all", **query)) == wanted


def test_a_search_finds_suites_tasks_and_papers_as_well() -> None:
    asking = TestClient(standard_app())
    task = names("nanobeir")[0]
    for text, link in ((task, f"/tasks/{task}"), ("nanobeir", "/suites/nanobeir"), ("glue", "/suites/glue")):
        page = Parsed(asking.get("/", params={"q": text}, headers={"accept": "text/html"}).text)
        assert link in page.links
    empty = asking.get("/", params={"q": "nobody at all"}, headers={"accept": "text/html"})
    assert empty.status_code == 200
    assert Parsed(empty.text).wrong == []


def test_pages_of_rows() -> None:
    all_paths = models(rows="all", origin="reported")
    first, second = (models(rows="25", page=page, origin="reported") for page in (1, 2))
    assert [*first, *second] == all_paths[:50]
    last = models(rows="25", page=99_999, origin="reported")
    assert last == all_paths[-len(last) :]


def test_names_that_are_none() -> None:
    for query in ({"sort": "nothing"}, {"cols": "nothing"}):
        answer = TestClient(standard_app()).get("/index.json", params=query)
        assert answer.status_code == 404
        assert "nothing" in answer.json()["error"]["message"]
    assert set(suites()) >= {"nanobeir"}


# Twins of pages: every row, what was asked for, and what must be read with it
MANY = 120
SUITE = "/suites/nanobeir"
FIRST = names("nanobeir")[0]


def many(folder: Path) -> None:
    """A site whose overview has several pages."""
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
    return len(list(csv.reader(io.StringIO(answer.text, newline="")))) - 1


@pytest.mark.parametrize("form", ["json", "csv"])
def test_a_twin_holds_every_row_unless_some_are_named(asking: TestClient, form: str) -> None:
    all_paths = count(asking, "/index.FORM?rows=all", form)
    assert all_paths > MANY
    assert count(asking, "/index.FORM", form) == all_paths
    assert count(asking, "/index.FORM?theme=dark", form) == all_paths
    usual = OverviewState.model_fields["rows"].default
    assert count(asking, f"/index.FORM?rows={usual}", form) == int(usual)  # named, though the usual number
    assert count(asking, "/index.FORM?rows=25", form) == 25
    assert count(asking, "/index.FORM?page=1", form) == int(usual)
    assert count(asking, "/index.FORM", form) == all_paths  # what is kept is not mistaken


def test_the_page_itself_stays_paged_and_leads_to_all_rows(asking: TestClient) -> None:
    page = Parsed(asking.get("/?rows=25&page=2&q=many", headers=BROWSER).text)
    assert len(page.all("tr")) - len([a for a in page.all("tr") if a.get("class") == "groups"]) == 25 + 1
    (link,) = [link for link in page.links if link.startswith("/index.json")]
    assert link == "/index.json?q=many"
    assert len(asking.get(link).json()["tables"][0]["rows"]) == MANY


def test_what_was_asked_for_stands_in_every_twin_that_is_read_by_people() -> None:
    asking = TestClient(standard_app())
    query = "revisions=any&q=tiny&theme=dark&rows=25"
    warning = "Scores on other revisions of the data count here"
    md, tex = (asking.get(f"{SUITE}.{form}?{query}").text for form in ("md", "tex"))
    assert "View: `q=tiny&revisions=any`" in md.partition("\n## ")[0]
    assert warning in md.partition("\n## ")[0]
    above = tex.partition("\\begin{table}")[0].splitlines()
    assert "% View: q=tiny&revisions=any" in above
    assert any(line.startswith(f"% {warning}") for line in above)
    data = asking.get(f"{SUITE}.json?{query}").json()
    assert data["state"] == {"q": "tiny", "revisions": "any", "rows": "25"}
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
    [("/", "cols"), ("/index.csv", "cols"), (SUITE, "cols"), (f"{SUITE}.json", "cols"), ("/compare", "")],
)
def test_the_nearest_parameter_is_one_of_that_page(path: str, wanted: str) -> None:
    said = TestClient(standard_app()).get(f"{path}?colls=x").json()["error"]["message"]
    hint = f" Did you mean {wanted}?" if wanted else ""
    assert said == f"There is no parameter 'colls'.{hint}"


def links(asking: TestClient, path: str) -> Iterator[str]:
    """The links and forms of a page that hold a query, as a browser would ask for them."""
    page = Parsed(asking.get(path, headers=BROWSER).text)
    yield from (link if link[:1] == "/" else path + link for link in page.links if "?" in link)
    for name in {a["name"] for tag in ("input", "select") for a in page.all(tag)
                 if a.get("name") and a.get("form") != "pick" and a.get("id") != "find"}:  # fmt: skip
        yield f"{path}?{name}="


def test_no_page_leads_to_a_parameter_that_is_none() -> None:
    app = standard_app()
    asking = TestClient(app)
    seen: set[tuple[str, frozenset[str]]] = set()
    all_paths = every_path(app)
    for path in [
        *all_paths[:: 1 + len(all_paths) // 60],
        *{p.rpartition("/")[0]: p for p in all_paths}.values(),
    ]:
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
    answer = TestClient(standard_app()).get(f"{SUITE}.json", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


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
