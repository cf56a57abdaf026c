"""The overview: models x suites, their order, and what a search finds."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from site_data import HOSTILE, Parsed, names, standard_app, suites


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
    every = models(rows="all", origin="reported")
    first, second = (models(rows="25", page=page, origin="reported") for page in (1, 2))
    assert [*first, *second] == every[:50]
    last = models(rows="25", page=99_999, origin="reported")
    assert last == every[-len(last) :]


def test_names_that_are_none() -> None:
    for query in ({"sort": "nothing"}, {"cols": "nothing"}):
        answer = TestClient(standard_app()).get("/index.json", params=query)
        assert answer.status_code == 404
        assert "nothing" in answer.json()["error"]["message"]
    assert set(suites()) >= {"nanobeir"}
