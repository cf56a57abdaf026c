"""The pages of a model and of a result, over a small site."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from statistics import mean
from typing import Any
from unittest import mock

import pytest
from starlette.testclient import TestClient

import site_data
from harness.core.keys import digest
from harness.results import reported as papers
from harness.storage.record import ErrorPart
from html_pages import BROWSER, ask, find_rows, find_values, page, printed
from leaderboard.pages.model import find_model, list_parents
from leaderboard.views.training import build_grid_lines, iter_training_charts
from leaderboard.web.app import create_app
from leaderboard.web.site import Site
from site_data import Import, names, put_imports, small_settings, suites

MANY = 1200
"""Subsets of a large result."""

Json = dict[str, Any]


def fill(folder: Path) -> None:
    """The standard site, with a measured backbone that papers print and a failure of hostile words."""
    site_data.fill(folder)
    results = folder / "results"
    modern = site_data.measured_model("answerdotai/ModernBERT-base", "c")
    site_data.put(results, modern, [site_data.trained(modern, "RTE", 0.8)])
    odd = site_data.measured_model("odd", "d")
    broken = ErrorPart(kind="Boom", message="<script>bad()</script>", hint="Try <i>", traceback="</code><b>")
    site_data.put(results, odd, [site_data.scored(odd, "ArguAna", None, error=broken)])


@pytest.fixture(scope="module")
def site(client: TestClient) -> Site:
    found: Site = client.app.state.site  # type: ignore[attr-defined]
    return found


def slug_of(site: Site, model: str, origin: str) -> str:
    return next(e.slug for e in site.queries.entries.values() if (e.model, e.origin) == (model, origin))


LARGE, BASE = "/models/acme--tiny-large", "/models/acme--tiny-base"
MINILM = "/models/minilm-ish-aaaaaaaa"


def test_boards_hold_both_means_their_tasks_and_the_rank(client: TestClient) -> None:
    nano = site_data.names("nanobeir")
    scores = site_data.spread_scores([*nano, *site_data.names("mteb-MTEB-kor-v1")], 0.6)
    rows = {row["name"]: row for row in find_values(ask(client, LARGE), "boards")}
    row = rows["nanobeir"]
    assert row["tasks"] == printed(mean(scores[name] for name in nano))
    assert row["types"] == pytest.approx(row["tasks"])
    assert (row["count"], row["rank"], row["ranked"]) == (13, 1, 3)


def test_a_task_on_other_data_counts_and_is_marked(client: TestClient) -> None:
    (korean,) = (r for r in find_values(ask(client, LARGE), "others") if r["name"] == "mteb-MTEB-kor-v1")
    assert korean["count"] == 6
    first = site_data.names("mteb-MTEB-kor-v1")[0]
    rows = find_rows(ask(client, LARGE), "results")
    assert [r["key"] for r in rows if "other" in r["cells"]["score"].get("kind", "").split()] == [first]
    (cell,) = (r["cells"]["score"] for r in rows if r["key"] == first)
    assert "on another revision of the data" in cell["note"]


def test_the_rank_is_that_of_the_suites_own_page(client: TestClient) -> None:
    for path in (LARGE, f"{BASE}", MINILM):
        own = ask(client, path)
        ranked = [r for r in find_values(own, "boards") if r.get("rank")]
        for row in ranked:
            view = f"?view={row['convention']}" if row.get("convention") else ""
            listed = ask(client, f"/suites/{row['name']}{view}")
            places = {r["model"]: r["rank"] for r in find_values(listed, "suite") if r.get("rank")}
            assert places[own["title"]] == row["rank"]
            assert len(places) == row["ranked"]


def test_every_source_stands_beside_the_others(client: TestClient, site: Site) -> None:
    measured, imported = (slug_of(site, "acme/tiny-base", origin) for origin in ("measured", "imported"))
    own = ask(client, BASE)
    assert own["data"]["entry"] == measured
    assert [row["name"] for row in find_values(own, "entries")] == [measured, imported]
    boards = find_rows(own, "boards")
    kinds = {(row["cells"]["name"]["value"], row["cells"]["source"]["kind"]) for row in boards}
    assert {("glue", "measured"), ("nanobeir", "imported")} <= kinds
    by_task = {row["name"]: row for row in find_values(own, "results")}
    assert len(by_task) == 2 + 13
    assert ("score" in by_task["RTE"], f"score:{imported}" in by_task["RTE"]) == (True, False)
    nano = by_task[site_data.names("nanobeir")[0]]
    assert ("score" in nano, f"score:{imported}" in nano) == (False, True)


def test_another_entry_can_be_shown_in_full(client: TestClient, site: Site) -> None:
    measured, imported = (slug_of(site, "acme/tiny-base", origin) for origin in ("measured", "imported"))
    other = ask(client, f"{BASE}?entry={imported}")
    assert other["data"]["entry"] == imported
    assert "training" not in [t["name"] for t in other["tables"]]
    rows = {row["name"]: row for row in find_values(other, "results")}
    assert f"score:{measured}" in rows["RTE"]
    assert len(find_values(ask(client, f"{BASE}?q=nanobeir"), "results")) == 13
    assert any(f"entry={imported}" in link for link in page(client, BASE).hrefs)


def test_facts_come_from_any_entry_and_unknown_ones_say_so(client: TestClient) -> None:
    """The measured entry says nothing of a licence: the imported one does."""
    assert ask(client, BASE)["data"]["facts"]["license"] == "mit"
    facts = ask(client, MINILM)["data"]["facts"]
    assert (facts["license"], facts["parameters"]) == (None, 22_713_216)
    assert re.search(r"Licence\s*not stated", page(client, MINILM).text)
    assert re.search(r"Licence\s*mit", page(client, BASE).text)


def test_lineage_leads_up_and_down(client: TestClient) -> None:
    assert ask(client, LARGE)["data"]["made_from"] == ["acme/tiny-base"]
    assert BASE in page(client, LARGE).hrefs
    assert [row["model"] for row in find_values(ask(client, BASE), "children")] == ["acme/tiny-large"]
    assert LARGE in page(client, BASE).hrefs


def test_a_lineage_that_leads_back_to_itself_ends(site: Site) -> None:
    model = find_model(site.queries, "acme--tiny-base")
    assert list_parents(site.queries, model, "acme/tiny-large") == ["acme/tiny-large"]
    other = find_model(site.queries, MINILM.rpartition("/")[2])
    assert list_parents(site.queries, other, "acme/tiny-large") == ["acme/tiny-large", "acme/tiny-base"]


def test_a_task_that_the_model_was_trained_on_is_marked(client: TestClient) -> None:
    rows = find_rows(ask(client, LARGE), "results")
    leaks = [r["key"] for r in rows if "leak" in r["cells"]["score"].get("kind", "")]
    assert leaks == [site_data.names("nanobeir")[0]]


def test_results_are_filtered_sorted_and_paged(client: TestClient) -> None:
    everything = find_values(ask(client, LARGE), "results")
    down = [r["score"] for r in find_values(ask(client, f"{LARGE}?sort=-score"), "results")]
    assert down == sorted((r["score"] for r in everything), reverse=True)
    some = [r["name"] for r in find_values(ask(client, f"{LARGE}?q=nano"), "results")]
    assert some == sorted(site_data.names("nanobeir"), key=str.casefold)
    typed = find_values(ask(client, f"{LARGE}?q=Classification"), "results")
    assert typed
    assert {r["type"] for r in typed} >= {"Classification"}
    assert all("classification" in f"{r['name']} {r['type']}".casefold() for r in typed)
    assert len(find_values(ask(client, f"{LARGE}?rows=25"), "results")) == len(everything) == 19
    assert "No task passes these filters." in page(client, f"{LARGE}?q=zzz").text


def test_a_sort_keeps_what_failed_last(client: TestClient) -> None:
    for sort in ("score", "-score"):
        rows = find_values(ask(client, f"{MINILM}?sort={sort}"), "results")
        assert rows[-1]["name"] == "ArguAna"


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("/models/acme--tiny-bas", "acme--tiny-base"),
        (f"{MINILM}?entry=minilm-ish-0", "minilm-ish-"),
        (f"{MINILM}?sort=scor", "score"),
    ],
)
def test_a_name_that_is_none_is_not_found_and_the_nearest_is_named(
    client: TestClient, path: str, near: str
) -> None:
    answer = client.get(path, headers={"accept": "application/json"})
    assert answer.status_code == 404
    error = answer.json()["error"]
    assert near in error["message"] + error["hint"]


def test_a_parameter_that_is_wrong_is_refused(client: TestClient) -> None:
    assert client.get(f"{LARGE}?page=0").status_code == 422
    assert client.get(f"{LARGE}?rows=7").status_code == 422


def test_training_tells_the_choice_the_seeds_and_the_sensitivity(client: TestClient) -> None:
    found = ask(client, BASE)
    rte = next(row for row in find_values(found, "training") if row["name"] == "RTE")
    numbers = [rte[name] for name in ("score", "deviation", "cells", "diverged", "best")]
    assert numbers == [70, 1, 6, 1, 70]
    assert rte["seeds"] == "69.00 70.00 71.00"
    assert (rte["last"], rte["cross_fitted"]) == (67, 68)
    assert rte["chosen"] == "lr 1e-05, batch 16, decay 0.01, epochs 3, seed 0"
    text = page(client, BASE)
    assert "The development sets chose the settings" in text.text
    assert "each run's best evaluation on the development set" in text.text
    assert sum(a.get("class") == "plane" for _, a in text.tags) == 2
    marked = find_rows(found, "results")
    chosen = {row["key"] for row in marked if row["cells"].get("score", {}).get("kind") == "chosen"}
    assert chosen == {"RTE", "CoLA"}
    cells = site_data.training_of(0.7)["cells"]
    lines = {line.label: [(p.x, p.y) for p in line.points] for line in build_grid_lines(cells)}
    assert lines["batch 16"] == [(1e-5, 0.7), (3e-5, 0.68), (1e-4, 0.66)]
    assert [y for _, y in lines["batch 32"]] == [0.69, 0.67, None]


def grid_of(rates: list[float], sizes: list[int]) -> Json:
    cells = [
        {"learning_rate": r, "batch_size": s, "weight_decay": 0, "epochs": 1, "score": r * s}
        for r in rates
        for s in sizes
    ]
    return {"task": {"name": "T"}, "training": {"cells": cells}}


def test_many_settings_become_the_best_the_median_and_the_worst() -> None:
    found = build_grid_lines(grid_of([0.1, 0.2], [1, 2, 3, 4, 5, 9])["training"]["cells"])
    at = {line.label: [round(p.y, 6) for p in line.points if p.y is not None] for line in found}
    assert at == {"best": [0.9, 1.8], "median": [0.35, 0.7], "worst": [0.1, 0.2]}


def test_runs_that_differ_by_seed_alone_are_a_mean_with_its_range() -> None:
    record = grid_of([0.1, 0.2], [1])
    cells = record["training"]["cells"]
    record["training"]["cells"] = [*cells, {**cells[0], "score": 0.3}]
    (line,) = build_grid_lines(record["training"]["cells"])
    assert (line.points[0].y, line.points[0].low, line.points[0].high) == (pytest.approx(0.2), 0.1, 0.3)
    assert line.points[1].low is None


def test_one_learning_rate_gives_no_plot_and_evaluations_give_one() -> None:
    assert list(iter_training_charts(grid_of([0.1], [1, 2]))) == []
    steps = [{"step": s, "metrics": [["dev", "accuracy", s / 10]]} for s in (1, 2)]
    (figure,) = iter_training_charts({"task": {"name": "T"}, "training": {"evaluations": steps}})
    assert "evaluations" in figure.title


def test_a_measured_entry_says_how_it_was_measured(client: TestClient) -> None:
    text = page(client, BASE).text
    facts = (
        "glue-optibert",
        "torch 2.11.0, mteb 2.26.24",
        "commit c0ffeec0ffee",
        "train 61.5",
        "cpu AMD EPYC",
    )
    assert [fact for fact in facts if fact not in text] == []
    assert "/recipes/glue-optibert" in page(client, BASE).hrefs
    assert "batches made smaller" in page(client, MINILM).text


MODERN = "/models/answerdotai--ModernBERT-base"


def test_printed_rows_stand_beside_measured_numbers(client: TestClient, site: Site) -> None:
    rows = find_values(ask(client, MODERN), "printed-GLUE-dev")
    wanted = [
        row.number
        for paper in site.papers.values()
        for row in paper.rows
        if row.hub_id == "answerdotai/ModernBERT-base" and row.metric == "RTE" and row.suite == "GLUE dev"
    ]
    assert [row["RTE"] for row in rows if row["source"] != "measured" and "RTE" in row] == wanted != []
    assert {row.get("RTE") for row in rows if row["source"] == "measured"} == {80}
    assert "measured" not in [row["source"] for row in find_values(ask(client, MODERN), "printed-BEIR")]


def test_a_backbone_is_one_page_under_all_of_its_names(client: TestClient, site: Site) -> None:
    names = {"answerdotai--ModernBERT-base", "modernbert-base"} | {
        e.model_slug for e in site.queries.entries.values() if e.model == "ModernBERT (base)"
    }
    assert len(names) > 2
    pages = [ask(client, f"/models/{name}") for name in names]
    assert [one["tables"] for one in pages] == [pages[0]["tables"]] * len(pages)
    origins = {row["source"].partition(",")[0] for row in find_values(pages[0], "boards")}
    assert {"ModernBERT", "NeoBERT"} < origins
    assert any(origin.startswith("measured") for origin in origins)


def lines_of(name: str) -> list[dict[str, str]]:
    """A file of the papers' numbers, as it lies on disk."""
    with (Path(__file__).parents[3] / "results" / "reported" / name).open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_printed_number_of_a_model_is_on_one_page(client: TestClient, site: Site) -> None:
    """Of every model in models.csv, the thirty most printed among them; several may be one backbone."""
    numbers: dict[tuple[str, str], list[float]] = {}
    for line in (line for paper in site.papers for line in lines_of(f"{paper}.csv")):
        if (number := papers.parse_finite_number(line["value"])) is not None:
            numbers.setdefault((line["model"], line["size_class"]), []).append(number)
    known = {(line["model"], line["size_class"]): line["backbone"] for line in lines_of("models.csv")}
    slugs = {line["name"]: line["slug"] for line in lines_of("backbones.csv")}
    assert len(numbers.keys() & known) > 30
    for name in numbers.keys() & known:
        found = ask(client, f"/models/{slugs[known[name]]}")
        cells = [
            cell["value"]
            for one in found["tables"]
            if one["name"].startswith("printed-")
            for row in one["rows"]
            if row["cells"]["source"]["value"] not in ("measured", "imported")
            and row["cells"]["as"]["text"] == " ".join(name).strip()
            for key, cell in row["cells"].items()
            if key not in ("source", "as", "setting") and not isinstance(cell["value"], str)
        ]
        assert sorted(cells) == sorted(numbers[name]), name


def test_a_model_that_only_papers_know_has_a_page(client: TestClient, site: Site) -> None:
    entry = next(e for e in site.queries.entries.values() if e.origin == "reported" and e.tasks == 0)
    text = page(client, f"/models/{entry.model_slug}").text
    assert "Its numbers come from papers alone." in text
    assert "In the papers" in text


def test_a_hostile_name_stands_escaped(client: TestClient, site: Site) -> None:
    entry = next(e for e in site.queries.entries.values() if e.model == site_data.HOSTILE)
    for path in (
        f"/models/{entry.model_slug}",
        f"/results/{site.queries.find_results(entry=entry.id)[0].id}",
    ):
        found = page(client, path)
        assert site_data.HOSTILE in found.text
        assert not [a for tag, a in found.tags if tag == "script" and "src" not in a]
        assert not any(name.startswith("on") or name == "style" for _, a in found.tags for name in a)
        assert client.get(f"{path}.json").json()["data"]["model"] == site_data.HOSTILE


def test_every_model_has_a_page_in_every_form(client: TestClient, site: Site) -> None:
    route = next(r for r in site.pages if r.path == "/models/{model}")
    paths = list(route.all_paths(site))
    assert set(paths) >= {f"/models/{slug}" for slug in site.queries.models}
    for path in [p for p in paths if "acme" in p or "evil" in p or "minilm" in p]:
        for form in ("", ".json", ".csv"):
            assert client.get(path + form).status_code == 200


def test_a_badge_is_one_that_the_site_gives(client: TestClient) -> None:
    snippet = re.search(r"SITE(/badges/\S+\.svg)", page(client, LARGE).text)
    assert snippet
    assert client.get(snippet[1]).headers["content-type"].startswith("image/svg+xml")


def number_of(client: TestClient, model: str, task: str) -> int:
    (row,) = (row for row in find_rows(ask(client, model), "results") if row["key"] == task)
    return int(row["cells"]["score"]["href"].rpartition("/")[2])


def test_a_result_shows_every_raw_metric_identity_and_provenance(client: TestClient, site: Site) -> None:
    task = site_data.names("nanobeir")[0]
    number = number_of(client, MINILM, task)
    found = ask(client, f"/results/{number}")
    scores = {row["metric"]: row["value"] for row in find_values(found, "scores")}
    assert scores == {"main_score": 0.5, "ndcg_at_10": 0.5}
    identity = {row["name"]: row["value"] for row in find_values(found, "identity")}
    assert identity["encoding.max_length"] == 128
    assert identity["data.revision"] == site_data.task(task).data.revision
    provenance = {row["name"]: row["value"] for row in find_values(found, "provenance")}
    assert provenance["packages.torch"] == "2.11.0"
    prompts = {row["name"]: row["value"] for row in find_values(found, "prompts")}
    assert prompts["asked.named.query"] == "query: "
    assert found["data"]["document"] == site.queries.load_result_document(number)
    assert f"/tasks/{task}" in page(client, f"/results/{number}").hrefs


def test_a_trained_result_shows_its_grid(client: TestClient) -> None:
    found = ask(client, f"/results/{number_of(client, BASE, 'RTE')}")
    grid = find_values(found, "grid")
    assert [row.get("score") for row in grid] == [0.7, 0.69, 0.68, 0.67, 0.66, None]
    assert grid[-1]["diverged"] is True
    assert {row["name"]: row["value"] for row in find_values(found, "training")}["seeds.kind"] == "fresh"
    assert any("development sets chose" in note for note in found["notes"])
    assert any("best evaluation" in note for note in found["notes"])


def test_a_failure_shows_its_error_and_folds_the_traceback(client: TestClient) -> None:
    found = page(client, f"/results/{number_of(client, '/models/odd-dddddddd', 'ArguAna')}")
    for said in ("<script>bad()</script>", "Boom:", "Try <i>", "</code><b>"):
        assert said in found.text
    assert "i" not in {tag for tag, _ in found.tags}
    assert "details" in {tag for tag, _ in found.tags}


def test_the_score_to_quote_is_that_which_suites_ask_for(tmp_path: Path) -> None:
    task = site_data.suites()["nanobeir"].suite.columns[0].tasks[0]
    rows = [
        {"entry": 0, "task": task.name, "split": split, "subset": task.subsets[0], "main_score": score,
         "flag": "", "data_revision": "", "mteb_version": "2"}
        for split, score in ((task.splits[0], 0.6), ("other", 0.2))
    ]  # fmt: skip

    def make(folder: Path) -> None:
        (folder / "results").mkdir()
        both = site_data.Import(model="a/b", scores={task.name: 0.5}, rows=rows)
        site_data.put_imports(folder / "results", [both])

    client = TestClient(site_data.small_app(tmp_path, make))
    number = number_of(client, "/models/a--b", task.name)
    found = ask(client, f"/results/{number}")
    assert "40.00" in found["lead"]
    assert f"scores 60.00‡ (ndcg_at_10 × 100) on {task.name} ({task.splits[0]}; " in found["data"]["quote"]
    assert found["data"]["quote"].count("; ‡: ") == 1
    said = client.post("/cite", params={"of": f"/results/{number}"}).text
    (sentence,) = re.findall(r"<li data-site>([^<]*)", said)
    assert sentence.count("; ‡: ") == 1
    assert "60.00" in page(client, f"/results/{number}").text
    (hit,) = find_values(ask(client, f"/search?q=b {task.name}"), "hits")
    assert hit["what"] == "imported, 60.00"


def test_a_large_import_is_paged_and_its_json_is_whole(tmp_path: Path) -> None:
    name = site_data.names("nanobeir")[0]
    rows = [
        {"entry": 0, "task": name, "split": f"s{at % 2}", "subset": f"sub{at:04}", "main_score": at / 2000,
         "flag": "impossible" if at == 3 else "", "data_revision": "", "mteb_version": "2"}
        for at in range(MANY)
    ]  # fmt: skip

    def make(folder: Path) -> None:
        (folder / "results").mkdir()
        large = site_data.Import(model="a/b", scores={name: 0.5}, rows=rows)
        site_data.put_imports(folder / "results", [large])

    client = TestClient(site_data.small_app(tmp_path, make))
    path = f"/results/{number_of(client, '/models/a--b', name)}"
    assert len(find_values(ask(client, path), "scores")) == MANY
    assert len(find_values(ask(client, f"{path}?rows=100"), "scores")) == 100
    last = find_values(ask(client, f"{path}?page=12"), "scores")
    assert [row["subset"] for row in last[-2:]] == ["sub1197", "sub1199"]
    document = ask(client, path)["data"]["document"]
    assert sum(map(len, document.values())) == MANY
    (bad,) = (r for r in ask(client, f"{path}?q=sub0003")["tables"][0]["rows"])
    assert bad["cells"]["value"]["kind"] == "bad"
    assert {row["split"] for row in find_values(ask(client, f"{path}?q=s1 "), "scores")} == {"s1"}
    assert "No score passes these filters." in page(client, f"{path}?q=zzz").text
    assert json.dumps(ask(client, "/models/a--b"))  # an impossible value leaves no NaN behind


def test_a_result_leads_to_its_file_and_says_how_to_measure_it_again(client: TestClient) -> None:
    task = site_data.names("nanobeir")[0]
    imported = ask(client, f"/results/{number_of(client, LARGE, task)}")["data"]
    home = "https://github.com/embeddings-benchmark/results/blob/main/results"
    assert imported["source"] == f"{home}/acme__tiny-large/{site_data.COMMIT}/{task}.json"
    shown = page(client, f"/results/{imported['id']}")
    assert imported["source"] in shown.hrefs
    mark = (
        "†: the model was trained on this task's data, as its makers state (at a zero-shot share: on the rest"
    )
    assert f"To quote: {imported['quote']} (as of " in shown.text
    assert mark in imported["quote"]
    assert imported["quote"].startswith("acme/tiny-large scores ")
    trained = ask(client, f"/results/{number_of(client, BASE, 'RTE')}")["data"]
    assert trained["source"] is None
    model = f"acme/tiny-base@{site_data.COMMIT}"
    assert (
        trained["command"] == f"harness run --model {model} --recipe glue-optibert --suite glue --tasks RTE"
    )


@pytest.mark.parametrize(
    ("name", "revision", "dtype", "wanted"),
    [
        ("o/m", "c" * 40, "bfloat16", f"--model o/m@{'c' * 40} --dtype bfloat16 --suite"),
        ("folder", None, "float32", "--model folder --suite"),
    ],
)
def test_what_measures_a_record_again_has_its_revision_and_dtype(
    tmp_path: Path, name: str, revision: str | None, dtype: str, wanted: str
) -> None:
    model = site_data.measured_model(name, "a", revision=revision)
    task = site_data.names("nanobeir")[0]
    record = site_data.scored(model, task, 0.5)
    identity = {**record.identity, "encoding": {**record.identity["encoding"], "dtype": dtype}}
    site_data.put(
        tmp_path / "results",
        model,
        [record.model_copy(update={"identity": identity, "key": digest(identity)})],
    )
    client = TestClient(site_data.small_app(tmp_path, lambda folder: None))
    (row,) = find_rows(ask(client, f"/tasks/{task}"), "ranking")
    assert f"harness run {wanted} " in ask(client, row["cells"]["score"]["href"])["data"]["command"]


def test_an_imported_score_of_a_commit_is_measured_again_at_it(client: TestClient) -> None:
    rows = {row["key"]: row["cells"] for row in find_rows(ask(client, BASE), "results")}
    (cell,) = (cell for key, cell in rows[site_data.names("nanobeir")[0]].items() if key.startswith("score"))
    assert (
        f"--model acme/tiny-base@{site_data.COMMIT} --suite" in ask(client, cell["href"])["data"]["command"]
    )


@pytest.mark.parametrize("name", ["0", "99999999", "x", "-1", "1e3", "٣", "9" * 40])
def test_a_result_that_is_none_is_not_found(client: TestClient, name: str) -> None:
    assert client.get(f"/results/{name}", headers={"accept": "text/html"}).status_code == 404


def test_only_measured_results_are_written_out(site: Site) -> None:
    route = next(r for r in site.pages if r.path == "/results/{id}")
    measured = sum(e.tasks for e in site.queries.entries.values() if e.origin == "measured")
    assert len(list(route.all_paths(site))) == measured > 0


def test_what_a_card_lacks_is_that_of_another_revision_and_a_size_that_of_the_registry(
    tmp_path: Path,
) -> None:
    task, unknown = names("nanobeir")[0], {"n_parameters": None, "max_tokens": None, "license": None}
    made = [
        Import(model="o/m", revision="c" * 40, scores={task: 0.1}, card=unknown),
        Import(model="o/m", revision="external", scores={task: 0.1}, card={"n_parameters": 6_000_000}),
        Import(
            model="o/m",
            revision="d" * 40,
            scores={task: 0.1},
            card={"n_parameters": 7_000_000, "max_tokens": 8192, "license": "mit"},
        ),
        Import(model="o/n", scores={task: 0.1}, card={**unknown, "tokens_unlimited": True}),
        Import(model="o/x", scores={task: 0.1}, card=unknown),
    ]
    put_imports(tmp_path / "results", made)
    with (
        mock.patch("leaderboard.data.imports.read_registry_sizes", return_value={"o/m": 8, "o/n": 9_000_000}),
        mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=suites()),
    ):
        app = create_app(small_settings(tmp_path))
    queries, client = app.state.site.queries, TestClient(app)
    sizes = {
        (e.model, "" if e.revisions else e.revision): (e.parameters, queries.cards[e.id].size_from)
        for e in queries.entries.values() if e.model in ("o/m", "o/n", "o/x")
    }  # fmt: skip
    commit = next(e.revision for e in queries.entries.values() if e.model == "o/n")
    other = f"the card of revision {'d' * 40}"
    assert sizes.pop(("o/m", "")) == (7_000_000, other)
    assert sizes == {
        ("o/m", "c" * 40): (7_000_000, other), ("o/m", "external"): (6_000_000, ""),
        ("o/m", "d" * 40): (7_000_000, ""), ("o/n", commit): (9_000_000, "mteb's registry"),
        ("o/x", commit): (None, ""),
    }  # fmt: skip
    rows = find_rows(ask(client, "/suites/nanobeir"), "suite")
    cells = {row["key"]: row["cells"]["parameters"] for row in rows}
    by_model = {e.model: cells[e.slug] for e in queries.entries.values() if e.slug in cells}
    assert (by_model["o/n"]["value"], by_model["o/n"]["note"]) == (9_000_000, "from mteb's registry")
    page = ask(client, "/models/o--n")
    assert "9 M parameters (from mteb's registry)" in page["lead"]
    assert page["data"]["facts"]["size_from"] == "mteb's registry"
    assert {e.length for e in queries.entries.values() if e.model == "o/m"} == {8192}
    ranking = ask(client, "/rank?suite=nanobeir&tokens=8192")
    lengths = [row["cells"]["max_tokens"]["text"] for row in find_rows(ranking, "suite")]
    assert sorted(lengths) == ["8,192", "no limit"]
    assert "1 model is left out, as the length of the input is not known." in ranking["lead"]
    assert page["data"]["facts"]["tokens_unlimited"] is True
    assert (
        queries.cards[next(e.id for e in queries.entries.values() if e.revision == "c" * 40)].licence == "mit"
    )
    ranking = ask(client, "/rank?suite=nanobeir&licence=permissive")
    assert "2 models are left out, as the licence is not known." in ranking["lead"]
    assert "left out" not in ask(client, "/rank?suite=nanobeir&licence=unknown")["lead"]


def test_what_is_not_drawn_by_size_has_no_link_to_the_drawing(client: TestClient) -> None:
    def read_place(path: str) -> tuple[str, list[str]]:
        line = re.search("Rank it beside.*?</p>", client.get(path, headers=BROWSER).text)
        assert line
        return line[0], re.findall('href="(/pareto[^"]*)"', line[0])

    whole, links = read_place(LARGE)
    assert "not drawn" not in whole
    for link in links:
        drawn = find_values(ask(client, link.replace("&amp;", "&")), "points")
        assert "acme/tiny-large" in {row["model"] for row in drawn}
    assert links
    partly, links = read_place("/models/answerdotai--ModernBERT-base")
    assert re.search(r"by size[a-z ]*: not drawn, as it has 1 of the 8 tasks of GLUE</p>", partly)
    assert not links


def test_a_memory_that_contradicts_the_size_is_unknown(tmp_path: Path) -> None:
    task, size = names("nanobeir")[0], 137_394_234
    cards = {"o/kilobytes": 549_576.0, "o/int8": 131.0}
    put_imports(tmp_path / "results", [
        Import(model=name, scores={task: -0.0628}, card={"n_parameters": size, "memory_usage_mb": memory})
        for name, memory in cards.items()
    ])  # fmt: skip
    with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=suites()):
        client = TestClient(create_app(small_settings(tmp_path)))
    facts = {name: ask(client, f"/models/{name.replace('/', '--')}")["data"]["facts"] for name in cards}
    assert {name: one["memory_usage_mb"] for name, one in facts.items()} == {
        "o/kilobytes": None,
        "o/int8": 131,
    }
    text = client.get("/models/o--kilobytes", headers=BROWSER).text
    assert "549,576 MB contradict its parameters" in text
    assert "−6.28" in text
    assert ">-6.28" not in text
    table = find_values(ask(client, "/suites/nanobeir?cols=memory"), "suite")
    assert {row["model"]: row.get("memory") for row in table} == {"o/kilobytes": None, "o/int8": 131}
