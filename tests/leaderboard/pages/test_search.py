"""The search: any name of anything leads to its page, the best hits first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

import site_data
from html_pages import BROWSER, ask, find_rows, page
from leaderboard.pages.search import KINDS


def hits(client: TestClient, query: str) -> list[dict[str, Any]]:
    return [row["cells"] for row in find_rows(ask(client, f"/search?q={quote(query)}"), "hits")]


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("optibert", "OptiBERT"),
        ("neobert", "NeoBERT"),
        ("modernbert", "ModernBERT"),
        ("mosaicbert", "MosaicBERT"),
        ("bert-base", "BERT base"),
        ("google-bert/bert-base-uncased", "BERT base"),
        ("cola", "CoLA"),
        ("tiny base", "acme/tiny-base"),
        ("mteb", "mteb"),
        ("glue-optibert", "glue-optibert"),
    ],
)
def test_the_first_hit_leads_to_numbers(client: TestClient, query: str, name: str) -> None:
    first = hits(client, query)[0]
    assert name in (first["name"]["value"], first.get("matched", {}).get("value")) or first["name"][
        "value"
    ].startswith(name)
    assert page(client, str(first["name"]["href"])).tables
    if name != "glue-optibert":
        path, _, state = str(first["name"]["href"]).partition("?")
        tables = client.get(f"{path}.json?{state}").json()["tables"]
        cells = [cell["value"] for one in tables for row in one["rows"] for cell in row["cells"].values()]
        assert sum(isinstance(value, float) for value in cells) > 5


def test_whole_names_go_first_then_beginnings_then_parts(client: TestClient) -> None:
    names = [one["name"]["value"] for one in hits(client, "neobert")]
    assert names.index("NeoBERT") < names.index("glue-neobert")
    assert hits(client, "ArguAna")[0]["kind"]["value"] == "task"


def test_every_word_must_be_in_the_name(client: TestClient) -> None:
    assert {one["name"]["value"] for one in hits(client, "acme large")} == {"acme/tiny-large"}
    assert hits(client, "acme nowhere") == hits(client, "???") == []
    assert "Nothing has such a name." in page(client, "/search?q=nowhere").text


@pytest.mark.parametrize("query", ["tiny-large NanoArguAnaRetrieval", "NanoArguAnaRetrieval acme tiny large"])
def test_the_names_of_a_model_and_a_task_find_its_result(client: TestClient, query: str) -> None:
    (result,) = hits(client, query)
    assert result["name"]["value"] == "acme/tiny-large on NanoArguAnaRetrieval"
    data = ask(client, str(result["name"]["href"]))["data"]
    assert (data["model"], data["task"]) == ("acme/tiny-large", "NanoArguAnaRetrieval")


def test_a_part_of_a_model_s_name_finds_its_results(client: TestClient) -> None:
    task = "NanoArguAnaRetrieval"
    names = {one["name"]["value"] for one in hits(client, f"tin {task}")}
    assert f"acme/tiny-large on {task}" in names
    assert len(names) > 1
    assert hits(client, "tiny-large NanoArguAna") == [], "of a task the whole name"


def test_a_paper_or_model_and_a_suite_find_both(client: TestClient) -> None:
    """What has all of the words goes first."""
    found = [(hit["kind"]["value"], hit["name"]["value"]) for hit in hits(client, "optibert glue")]
    assert found[0] == ("recipe", "glue-optibert")
    assert {("paper", "OptiBERT"), ("suite", "GLUE")} <= {*found}
    assert any(kind == "backbone" and name.startswith("OptiBERT") for kind, name in found)
    assert not any(kind == "suite" for kind, _ in hits(client, "zzzz glue"))


def test_without_words_all_is_listed_by_kind(client: TestClient) -> None:
    found = client.get("/search.json?rows=all").json()["tables"][0]["rows"]
    kinds = [row["cells"]["kind"]["value"] for row in found]
    assert list(dict.fromkeys(kinds)) == [kind for kind in KINDS if kind in kinds]
    tasks = client.get("/search.json?kind=task&rows=all").json()["tables"][0]["rows"]
    assert {row["cells"]["kind"]["value"] for row in tasks} == {"task"}
    assert len(tasks) == kinds.count("task")


def test_a_model_is_found_by_every_name_that_records_have_for_its_files(tmp_path: Path) -> None:
    names = ["last-night", "ours/tiny", "tonight"]
    for number, name in enumerate(names):
        source = "ours/tiny" if "/" in name else "local"
        model = replace(site_data.measured_model(name, "b"), source=source)
        task = site_data.names("nanobeir")[number]
        site_data.put(tmp_path / "results", model, [site_data.scored(model, task, 0.5)])
    client = TestClient(site_data.small_app(tmp_path, lambda folder: None))
    for name in names:
        first = hits(client, name)[0]
        assert (first["name"]["value"], first["name"]["href"]) == ("ours/tiny", "/models/ours--tiny")
        beside = ask(client, f"/rank?suite=nanobeir&beside={name}")
        assert [row["kind"] for row in find_rows(beside, "suite")] == ["beside"]
    assert "Also called last-night, tonight." in page(client, "/models/ours--tiny").text


@pytest.mark.parametrize("query", ["tiny-large", "ACME/tiny large"])
def test_the_whole_name_of_one_thing_leads_to_it(client: TestClient, query: str) -> None:
    answer = client.get("/search", params={"q": query}, headers=BROWSER)
    assert answer.url.path == "/models/acme--tiny-large"
    # A part, several hits, and other formats are lists; a page of none is one, too.
    for path in (
        f"/search.json?q={quote(query)}",
        "/search?q=acme large",
        "/search?q=tiny",
        "/search?q=neobert",
    ):
        assert client.get(path, headers=BROWSER).url.path == path.partition("?")[0]


def test_a_hostile_query_stands_escaped(client: TestClient) -> None:
    text = client.get("/search", params={"q": site_data.HOSTILE}).text
    assert "<script>alert" not in text
    assert hits(client, site_data.HOSTILE)[0]["name"]["value"] == site_data.HOSTILE
