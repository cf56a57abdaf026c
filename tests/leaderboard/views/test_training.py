"""Models that a recipe made: several seeds as one entry, the best of a sweep, and how they are marked."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from starlette.testclient import TestClient

import site_data
from harness.core.keys import ParentPart
from html_pages import ask, figures, find_rows, find_values, page, printed
from leaderboard.data.queries import Queries
from leaderboard.data.suites import Scope
from leaderboard.views.suite_table import format_entry_kinds
from leaderboard.views.training import collect_sweeps, sweep_charts
from leaderboard.web.marks import find_leak_kinds
from site_data import RATES, SEEDS, different_paths, made_of, names, put_swept, spread_scores, sweep_of

NAME, OWN = "tiny-base-simcse", "tiny-base-own"
NANO = spread_scores(names("nanobeir"), 0.55)
fill = site_data.fill_trained


def rows_list(client: TestClient, path: str, table: str) -> list[dict[str, Any]]:
    """The rows of a table of a page."""
    return find_rows(ask(client, path), table)


def rows_of(client: TestClient, path: str, table: str) -> dict[str, dict[str, Any]]:
    """The cells of a table's rows by the text of their model or name."""
    (found,) = [one for one in ask(client, path)["tables"] if one["name"] == table]
    first = "model" if any(column["key"] == "model" for column in found["columns"]) else "name"
    return {row["cells"][first]["text"]: row["cells"] for row in found["rows"] if first in row["cells"]}


def model_path(client: TestClient, name: str = NAME) -> str:
    """The page of a model."""
    return str(rows_of(client, "/suites/nanobeir", "suite")[name]["model"]["href"])


@pytest.mark.parametrize("each", ["model", "revision"])
def test_seeds_are_one_row_with_means_and_deviations(client: TestClient, each: str) -> None:
    """Also where every revision and treatment has a row."""
    found = ask(client, f"/suites/nanobeir?each={each}")["tables"][0]["rows"]
    assert [row["cells"]["model"]["text"] for row in found].count(NAME) == 1
    cells = rows_of(client, f"/suites/nanobeir?each={each}", "suite")[NAME]
    for name, score in NANO.items():
        own = [score + at / 100 for at in range(3)]
        assert cells[f"task:{name}"]["value"] == printed(fmean(own))
        assert cells[f"task:{name}"]["deviation"] == printed(stdev(own))
    means = [fmean(NANO.values()) + at / 100 for at in range(3)]
    assert cells["tasks"]["value"] == printed(fmean(means))
    assert cells["tasks"]["deviation"] == printed(stdev(means))
    assert cells["tasks"]["text"] == f"{100 * fmean(means):.2f} ± 1.00"
    assert cells["rank"]["value"] >= 1


def test_a_mean_is_over_all_seeds_or_says_of_how_many(client: TestClient) -> None:
    first, second = names("mteb")[:2]
    cells = rows_of(client, "/suites/mteb?tasks=all", "suite")[NAME]
    assert (cells[f"task:{first}"]["value"], cells[f"task:{first}"]["deviation"]) == (50, 0)
    assert (cells[f"task:{second}"]["text"], cells[f"task:{second}"]["kind"]) == ("2 of 3 seeds", "seeds")
    assert cells["there"]["value"] == 1
    assert rows_of(client, f"/tasks/{second}", "ranking")[NAME]["score"]["text"] == "2 of 3 seeds"


def test_csv_has_the_deviations_and_marks_in_columns_of_their_own(client: TestClient) -> None:
    rows = list(csv.DictReader(io.StringIO(client.get("/suites/nanobeir.csv").text)))
    by_name = {row["Model"]: row for row in rows}
    assert float(by_name[NAME]["Mean: over tasks"]) == printed(fmean(NANO.values()) + 0.01)
    deviations = dict(part.rsplit(": ", 1) for part in by_name[NAME]["deviations"].split("; "))
    assert float(deviations["over tasks"]) == 1
    assert len(deviations) == len(NANO) + 2  # with two means
    assert "own data" in by_name[OWN]["marks"]
    assert by_name["minilm-ish"]["deviations"] == ""


def test_marks_have_words_and_a_legend(client: TestClient) -> None:
    cells = rows_of(client, "/suites/nanobeir", "suite")[OWN]
    assert cells["model"]["kind"] == "own changed selected"
    assert "trained on pairs.csv" in cells["model"]["note"]
    chosen = names("nanobeir")[1]
    assert cells[f"task:{chosen}"]["kind"].split()[:2] == ["selected", "texts"]
    assert "12 texts of it are in the training data" in cells[f"task:{chosen}"]["note"]
    text = client.get("/suites/nanobeir").text
    words = (
        "user&#39;s own",
        "other settings than",
        "scores on tasks selected the model",
        "in the training data",
    )
    assert [word for word in words if word not in text] == []
    markdown = client.get("/suites/nanobeir.md").text
    assert "tiny-base-own (own data) (changed settings) (selected)" in markdown


def test_the_models_page_lists_its_seeds_with_their_records(client: TestClient) -> None:
    path = model_path(client)
    found = ask(client, path)
    assert (found["data"]["seeds"], found["data"]["lineage"]["recipe"]) == (list(SEEDS), "simcse")
    entries = rows_of(client, path, "entries")
    assert next(iter(entries)) == "3 seeds: 1, 2, 3"
    assert set(entries) == {"3 seeds: 1, 2, 3", *(f"seed {seed}" for seed in SEEDS)}
    name, score = next(iter(NANO.items()))
    (second,) = [cells["name"]["href"] for text, cells in entries.items() if text == "seed 2"]
    own = rows_of(client, second, "results")[name]
    assert own["score"]["value"] == printed(score + 0.01)
    result = rows_of(client, path, "results")[name]["score"]["href"]
    seeds = rows_of(client, result, "seeds")
    by_seed = [printed(score + at / 100) for at in range(3)]
    assert [cells["score"]["value"] for cells in seeds.values()] == by_seed
    assert seeds["2"]["name"]["href"] == own["score"]["href"]
    assert "acme/tiny-base" in page(client, path).text


@pytest.mark.parametrize(
    ("query", "there"),
    [
        ("recipe=simcse:mean", {NAME, OWN}),
        ("backbone=acme/tiny-base&recipe=simcse:mean", {NAME, OWN}),
        ("recipe=none", set()),
        ("backbone=elsewhere", set()),
    ],
)
def test_filters_by_recipe_and_backbone(client: TestClient, query: str, there: set[str]) -> None:
    assert {NAME, OWN} & set(rows_of(client, f"/suites/nanobeir?{query}", "suite")) == there


def test_the_recipes_page_has_its_settings_data_and_models(client: TestClient) -> None:
    found = page(client, "/recipes/simcse?variant=mean")
    settings = {row[0]: row[1] for row in found.texts("settings")[1:]}
    assert (settings["pooling"], settings["batch_size"], settings["scale"]) == ("mean", "512", "20")
    data = found.texts("data")[1:]
    assert [(row[0], row[5]) for row in data] == [("sentence-transformers/all-nli", "557,850")]
    assert "d482672c8e74" in data[0][6]
    used = rows_of(client, "/recipes/simcse", "used")
    assert set(used) == {NAME, OWN}
    own = [row["cells"] for row in rows_list(client, "/recipes/simcse", "used")]
    of_suites = {cells["name"]["text"]: cells for cells in own if cells["model"]["text"] == NAME}
    assert of_suites["NanoBEIR"]["tasks"]["deviation"] == 1
    assert "Numbers by" not in found.text
    kinds = {row[0]: row[5] for row in page(client, "/recipes").texts("recipes")[1:]}
    assert (kinds["simcse"], kinds["glue-quick"]) == ("one model for all tasks", "a model for each task")


@pytest.mark.slow
def test_every_page_with_trained_models_is_made(client: TestClient) -> None:
    paths = different_paths(client.app)  # type: ignore[arg-type]
    assert [path for path in paths if client.get(path).status_code != 200] == []
    both = [row["key"] for row in ask(client, "/suites/nanobeir")["tables"][0]["rows"]][:2]
    compared = client.get(f"/compare.json?m={both[0]}&m={both[1]}").json()
    assert "deviation" in json.dumps(compared)


def test_a_model_made_of_one_with_own_data_is_marked_as_that_is(tmp_path: Path) -> None:
    first, second = names("nanobeir")[:2]
    parent = ParentPart(name="first", artifact="c" * 64, own_data="pairs.csv", selected_on=(first,))
    site = site_data.small_site(tmp_path, lambda folder: None)
    made = made_of(1, parents=(parent,), selected_on=(second,))
    site_data.put_model(tmp_path / "results", NAME, made, {first: 0.5, second: 0.6})
    site.index.refresh()
    entries = Queries(site.index, site.index.version).entries.values()
    (entry,) = [one for one in entries if one.model == NAME]
    assert format_entry_kinds(entry) == "own selected"
    asked = [Scope(task=name, splits=("test",), subsets=(), data="") for name in (first, second, "other")]
    assert [find_leak_kinds(entry, [scope], None) for scope in asked] == [["selected"]] * 2 + [[]]
    assert "on first (trained on pairs.csv); checkpoint chosen by" in entry.lineage_text


def test_another_seed_joins_its_group_and_a_lost_one_leaves_it(tmp_path: Path) -> None:
    """The address of the model stays, and a look at what has not changed takes nothing in."""
    site = site_data.small_site(tmp_path, lambda folder: None)
    seen: list[tuple[str, tuple[int, ...]]] = []

    def look() -> None:
        site.index.refresh()
        version = site.index.version
        assert (site.index.refresh(), site.index.version) == (0, version)
        entries = Queries(site.index, site.index.version).entries.values()
        seen.extend((one.model_slug, one.seeds) for one in entries if one.model == NAME and not one.member)

    for seed in SEEDS:
        score = {names("nanobeir")[0]: 0.5 + seed / 10}
        last = site_data.put_model(tmp_path / "results", NAME, made_of(seed), score)
        look()
    shutil.rmtree(tmp_path / "results" / "records" / last.slug)
    look()
    assert [seeds for _, seeds in seen] == [(1,), (1, 2), (1, 2, 3), (1, 2)]
    assert len({slug for slug, _ in seen}) == 1


# The best of a sweep


SWEPT = "tiny-base-swept"
CHOSE, REST = names("nanobeir")[:4], names("nanobeir")[4:]
BY_HAND = {  # over the 13, and over the 9 that did not choose: sums of the scores in site_data, by hand
    SWEPT: ((4 * 0.9 + 9 * 0.4) / 13, 0.4),
    "minilm-ish": (6.96 / 13, 4.84 / 9),
    "acme/tiny-base": (7.22 / 13, 5.02 / 9),
    "acme/tiny-large": (8.26 / 13, 5.74 / 9),
}
"""A swept model that leads by the tasks that chose it, and is the last on the others."""


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    app = site_data.small_app(tmp_path_factory.mktemp("swept"), site_data.fill_swept)
    with TestClient(app) as found:
        yield found


def site_of(folder: Path, *models: dict[str, Any]) -> TestClient:
    """The standard site with swept models besides."""

    def make(root: Path) -> None:
        site_data.fill(root)
        for one in models:
            put_swept(root / "results", **one)

    return TestClient(site_data.small_app(folder, make))


def test_both_means_of_a_swept_model_and_of_all_beside_it(swept: TestClient) -> None:
    cells = rows_of(swept, "/suites/nanobeir", "suite")
    for model, (whole, rest) in BY_HAND.items():
        assert cells[model]["tasks"]["value"] == printed(whole), model
        assert cells[model]["untouched"]["value"] == printed(rest), model
    assert (cells[SWEPT]["tasks"]["kind"], "kind" in cells[SWEPT]["untouched"]) == ("selected", False)
    assert "kind" not in cells["minilm-ish"]["tasks"]
    marked = {name for name in CHOSE + REST if "kind" in cells[SWEPT][f"task:{name}"]}
    assert marked == set(CHOSE)
    assert "learning_rate among 6 values" in cells[SWEPT][f"task:{CHOSE[0]}"]["note"]
    assert f"learning_rate among 6 values chosen by {', '.join(CHOSE)}" in cells[SWEPT]["model"]["note"]


def test_ranks_by_the_untouched_mean_are_over_the_same_tasks_for_all(swept: TestClient) -> None:
    def order(query: str) -> list[str]:
        rows = ask(swept, f"/suites/nanobeir?{query}")["tables"][0]["rows"]
        return [row["cells"]["model"]["text"] for row in rows if "rank" in row["cells"]]

    by_all = ["acme/tiny-large", "acme/tiny-base", SWEPT, "minilm-ish"]
    by_rest = ["acme/tiny-large", "acme/tiny-base", "minilm-ish", SWEPT]
    assert order("") == by_all
    assert order("sort=-untouched") == order("mean=untouched") == by_rest
    ranks = rows_of(swept, "/suites/nanobeir?mean=untouched", "suite")
    assert [ranks[model]["rank"]["value"] for model in by_rest] == [1, 2, 3, 4]


def test_every_format_of_a_suite_says_what_is_left_out(swept: TestClient) -> None:
    found = ask(swept, "/suites/nanobeir")
    assert found["data"]["untouched"] == {"columns": 9, "left_out": CHOSE}
    texts = {ending: swept.get(f"/suites/nanobeir.{ending}").text for ending in ("csv", "md", "tex")}
    texts["html"] = swept.get("/suites/nanobeir").text
    for ending, text in texts.items():
        assert "over 9 untouched" in text, ending
        if ending != "csv":
            assert all(name in text for name in CHOSE), ending
            assert "over the 9 untouched leave out" in text, ending
    rows = {row["Model"]: row for row in csv.DictReader(io.StringIO(texts["csv"]))}
    assert float(rows[SWEPT]["Mean: over 9 untouched"]) == 40
    assert rows[SWEPT]["marks"].count(": selected") == 1 + 1 + len(CHOSE)  # model, mean, tasks
    assert "Mean over the 9 untouched<" in texts["html"]


def test_where_no_model_shown_was_chosen_by_tasks_there_is_one_mean(swept: TestClient) -> None:
    """A filter hides the swept model; what asked for the other mean gets the one there is."""
    for query in ("", "&mean=untouched", "&sort=-untouched", "&cols=untouched"):
        found = ask(swept, f"/suites/nanobeir?q=minilm{query}")
        assert "untouched" not in [column["key"] for column in found["tables"][0]["columns"]], query
        assert found["data"]["untouched"] is None
        assert "untouched leave out" not in json.dumps(found), query


def test_of_models_chosen_by_different_tasks_all_are_left_out(tmp_path: Path) -> None:
    other = {"name": "other", "tasks": REST[:1], "setting": "scale"}
    client = site_of(tmp_path, {}, other)
    cells = rows_of(client, "/suites/nanobeir", "suite")
    assert ask(client, "/suites/nanobeir")["data"]["untouched"]["left_out"] == [*CHOSE, REST[0]]
    assert cells["minilm-ish"]["untouched"]["value"] == printed((4.84 - 0.58) / 8)
    own = rows_of(client, str(cells[SWEPT]["model"]["href"]), "boards")["NanoBEIR"]
    assert own["untouched"]["text"] == "40.00 (9)", "of one model alone only its own tasks are"


def test_a_suite_all_of_which_chose_says_so(tmp_path: Path) -> None:
    client = site_of(tmp_path, {"tasks": CHOSE + REST})
    text = json.dumps(ask(client, "/suites/nanobeir"))
    assert "none is untouched" in text
    assert "over 0 untouched" not in text
    cells = rows_of(client, "/suites/nanobeir", "suite")
    own = rows_of(client, str(cells[SWEPT]["model"]["href"]), "boards")["NanoBEIR"]
    assert own["untouched"]["text"] == "none"


def test_models_of_a_recipe_are_compared_over_the_same_untouched_tasks(tmp_path: Path) -> None:
    """Two chosen by different tasks, and one with a part of them: by hand over the tasks 7 to 10 of 13."""
    tasks = names("nanobeir")
    scores = {
        "first": dict.fromkeys(tasks, 0.9) | dict(zip(tasks[6:10], (0.1, 0.2, 0.3, 0.6), strict=True)),
        "second": dict.fromkeys(tasks, 0.5) | {tasks[6]: 0.3},
        "part": dict(zip(tasks[2:10], (0.8, 0.8, 0.8, 0.8, 0.4, 0.5, 0.6, 0.7), strict=True)),
    }
    chose: dict[str, Any] = {
        "first": {"sweep": sweep_of(tasks[:4])},
        "second": {"sweep": sweep_of(tasks[4:6])},
        "part": {},
    }

    def make(root: Path) -> None:
        for seed, (name, own) in enumerate(scores.items()):
            site_data.put_model(root / "results", name, made_of(seed, **chose[name]), own)

    client = TestClient(site_data.small_app(tmp_path, make))
    cells = rows_of(client, "/recipes/simcse", "used")
    assert {name: own["same"]["text"] for name, own in cells.items()} == {
        "first": "30.00 (4)",  # (10 + 20 + 30 + 60) / 4
        "second": "45.00 (4)",  # (30 + 50 + 50 + 50) / 4
        "part": "55.00 (4)",  # (40 + 50 + 60 + 70) / 4
    }
    assert cells["first"]["untouched"]["text"] == "63.33 (9)", "its own: (2 x 90 + 120 + 3 x 90) / 9"
    assert "untouched" not in cells["part"]


def test_recipe_and_badge_have_both_means(swept: TestClient) -> None:
    cells = rows_of(swept, "/recipes/simcse", "used")[SWEPT]
    assert [cells[key]["value"] for key in ("tasks", "untouched")] == [*map(printed, BY_HAND[SWEPT])]
    assert [cells[key].get("kind") for key in ("tasks", "untouched")] == ["selected", None]
    assert "Scores on tasks chose" in swept.get("/recipes/simcse").text
    (key,) = [one.slug for one in swept.app.state.site.queries.entries.values() if one.model == SWEPT]  # type: ignore[attr-defined]
    badge = swept.get(f"/badges/nanobeir/{key}.svg").text
    assert f"55.38, 40.00 over the 9 untouched; without {', '.join(CHOSE)}; as of " in badge


def test_the_first_page_marks_a_swept_model(swept: TestClient) -> None:
    best = [row["cells"] for row in rows_list(swept, "/index", "boards")]
    own = [row for row in best if row["model"]["text"] == SWEPT and row["board"]["text"] == "NanoBEIR"]
    assert [row["score"]["kind"] for row in own] == ["selected"]
    assert own[0]["score"]["value"] == printed(BY_HAND[SWEPT][0])


def test_comparisons_have_both_means(swept: TestClient) -> None:
    rows = rows_list(swept, "/suites/nanobeir", "suite")
    keys = {row["cells"]["model"]["text"]: row["key"] for row in rows}
    path = f"/compare?m={keys[SWEPT]}&m={keys['minilm-ish']}&suite=nanobeir"
    by_name = {row["cells"]["mean"]["text"]: row["cells"] for row in rows_list(swept, path, "means")}
    assert [by_name["Over untouched tasks"][key]["value"] for key in ("s0", "s1")] == [40, printed(4.84 / 9)]
    assert by_name["Over tasks"]["s0"]["kind"].split() == ["best", "selected"]


PARTS = (
    *("mteb:COIRCodeSearchNetRetrieval", "mteb:MultiLongDocRetrieval"),
    *("codesearchnet", "codesearchnet:text", "mldr", "beir"),
)
"""Suites of whole tasks, then suites whose columns show parts of them."""
CODE, LONG = "COIRCodeSearchNetRetrieval", "MultiLongDocRetrieval"


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """One model that go of CodeSearchNet and the development queries of MLDR chose, and one that none did."""
    listed = site_data.open_suites(*PARTS)
    opened = {name: one.suite for name, one in listed.items()}
    chose = (opened["codesearchnet"].columns[0], opened["mldr"].columns[0])
    by = {c.name: {"task": t.name, "splits": t.splits, "subsets": t.subsets} for c in chose for t in c.tasks}

    def fill(root: Path) -> None:
        all_paths = {task.name for suite in opened.values() for task in suite.tasks}
        made = made_of(1, sweep=sweep_of(by))
        site_data.put_model(root / "results", SWEPT, made, dict.fromkeys(all_paths, 0.5))
        site_data.put_model(root / "results", NAME, made_of(1), dict.fromkeys(all_paths, 0.4))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site_data, "suites", lambda: listed)
        app = site_data.small_app(tmp_path_factory.mktemp("parts"), fill)
    with TestClient(app) as found:
        yield found


@pytest.mark.parametrize(
    ("suite", "chose", "left_out"),
    [
        ("codesearchnet", ["go"], ["go"]),
        ("codesearchnet-text", [], None),
        (f"mteb-{CODE}", [CODE], None),
        ("mldr", ["MLDR (dev)"], None),
        (f"mteb-{LONG}", [LONG], None),
        ("beir", [], None),
    ],
)
def test_parts_of_tasks_that_chose_are_marked_where_they_are_shown(
    parts: TestClient, suite: str, chose: list[str], left_out: list[str] | None
) -> None:
    """In the suite that has them and in every other that holds the task, on its page and in comparisons."""
    found, cells = ask(parts, f"/suites/{suite}"), rows_of(parts, f"/suites/{suite}", "suite")
    by_task = {key: cell for key, cell in cells[SWEPT].items() if key.startswith("task:")}
    marked = [key for key, cell in by_task.items() if "selected" in cell.get("kind", "")]
    assert marked == [f"task:{name}" for name in chose]
    assert (found["data"]["untouched"] or {}).get("left_out") == left_out
    keys = [row["key"] for row in found["tables"][0]["rows"]]
    compared = rows_of(parts, f"/compare?m={keys[0]}&m={keys[1]}&suite={suite}", "tasks")
    assert [name for name, row in compared.items() if "selected" in row["s0"].get("kind", "")] == chose


@pytest.mark.parametrize(
    ("suite", "column", "marked"),
    [
        ("codesearchnet", "go", True),
        ("codesearchnet", "java", False),
        ("codesearchnet-text", "go", False),
        ("mldr", "MLDR (dev)", True),
        ("mldr", "MLDR (test)", False),
        (f"mteb-{CODE}", CODE, True),
        ("beir", "MSMARCO (dev)", False),
    ],
)
def test_a_column_leads_to_the_same_scores_of_its_task(
    parts: TestClient, suite: str, column: str, marked: bool
) -> None:
    columns = ask(parts, f"/suites/{suite}")["tables"][0]["columns"]
    (label,) = [one["label"] for one in columns if one["key"] == f"task:{column}"]
    links = re.findall(r'href="(/tasks/[^"]*)" title="about ([^"]*)"', parts.get(f"/suites/{suite}").text)
    (path,) = [html.unescape(one) for one, about in links if about == label]
    rows = rows_of(parts, path, "ranking")
    assert {model: row["score"]["value"] for model, row in rows.items()} == {SWEPT: 50, NAME: 40}
    assert ("selected" in rows[SWEPT]["score"].get("kind", "")) == marked


def test_a_columns_only_task_stands_for_it(parts: TestClient) -> None:
    """The column of BEIR was called MSMARCO; go and java have one task, which is therefore neither's name."""
    for query in ("sort=task:MSMARCO", "sort=-MSMARCO", "cols=MSMARCO"):
        found = ask(parts, f"/suites/beir?{query}")["tables"][0]
        assert "task:MSMARCO (dev)" in [column["key"] for column in found["columns"]], query
    rows = ask(parts, "/suites/beir?sort=task:MSMARCO")["tables"][0]["rows"]
    assert [row["cells"]["model"]["text"] for row in rows][:2] == [NAME, SWEPT]
    assert parts.get(f"/suites/codesearchnet?sort={CODE}").status_code == 404


def test_trade_offs_mark_a_swept_model_and_offer_the_untouched_mean(swept: TestClient) -> None:
    path = "/pareto?suite=nanobeir&x=dimension"
    by_all, by_rest = rows_of(swept, path, "points"), rows_of(swept, f"{path}&y=untouched", "points")
    assert by_all[SWEPT]["score"]["kind"] == "selected"
    assert "kind" not in by_rest[SWEPT]["score"]
    for model, means in BY_HAND.items():
        assert [by_all[model]["score"]["value"], by_rest[model]["score"]["value"]] == [*map(printed, means)]
    assert "over the 9 untouched leave out" in swept.get(f"{path}&y=untouched").text
    assert ask(swept, f"{path}&y=untouched&recipe=none")["data"]["y"]["key"] == "tasks"


def test_the_sensitivity_curve_is_on_the_models_page(swept: TestClient) -> None:
    path = model_path(swept, SWEPT)
    found = ask(swept, path)
    (table,) = [one for one in found["tables"] if one["name"] == "sweep"]
    values = [[row[key] for row in find_values(found, "sweep")] for key in ("value", "mean", "chosen")]
    assert values[0] == list(RATES)
    assert values[1] == [48.5, 58.5, 68.5, 78.5, 88.5, 78.5]
    assert values[2] == [False] * 4 + [True, False]
    assert [column["key"] for column in table["columns"]][1:5] == [f"task:{name}" for name in CHOSE]
    assert [row["value"] for row in find_values(found, "sweep") if row["chosen"]] == [8e-05]
    assert found["data"]["lineage"]["sweep"]["setting"] == "learning_rate"
    html = page(swept, path)
    (figure,) = figures(swept, path)
    assert [trace["name"] for trace in figure["data"]] == ["mean of 4 tasks", *CHOSE]
    assert figure["layout"]["shapes"][0]["x0"] == 8e-05
    assert f"learning_rate among 6 values: {', '.join(CHOSE)}" in html.text
    assert "1e-05, 2e-05, 3e-05, 5e-05, 8e-05, 0.0001" in html.text
    rows = swept.get(f"{path}.csv").text.splitlines()
    assert f"learning_rate,{','.join(CHOSE)},Mean,Chosen,Model,snapshot" in rows
    (best,) = [row.split(",") for row in rows if row.startswith("8e-05,")]
    assert [float(value) for value in best[1:6]] == [90, 89, 88, 87, 88.5]


@pytest.mark.parametrize(
    ("values", "best", "shown"),
    [
        ((1.0, 2.0, 2.5), 1, ["mean of 4 tasks", "chosen"]),
        (("mean", "cls"), 1, ["cls (chosen)"]),
        ((True, False), 0, ["yes (chosen)"]),
        ((0, 5, 10), 2, ["greatest that was tried"]),
    ],
)
def test_curves_of_any_setting(tmp_path: Path, values: Any, best: int, shown: list[str]) -> None:
    client = site_of(tmp_path, {"values": values, "best": best})
    text = page(client, model_path(client, SWEPT)).text
    assert [words for words in shown if words not in text] == []


def test_a_sweep_of_several_settings_is_a_table_and_a_plot_of_each(tmp_path: Path) -> None:
    """Of a value the plot has the best member over the other setting: 88.5 falls by 10 with each step."""
    grid = [{"rate": rate, "pooling": pooling} for rate in (1e-5, 1e-4, 1e-3) for pooling in ("cls", "mean")]
    client = site_of(tmp_path, {"setting": "rate, pooling", "values": grid, "best": 3})
    path = model_path(client, SWEPT)
    found = ask(client, path)
    (table,) = [one for one in found["tables"] if one["name"] == "sweep"]
    assert [column["label"] for column in table["columns"]][:3] == ["rate", "pooling", CHOSE[0]]
    rows = find_values(found, "sweep")
    assert [{"rate": row["set:rate"], "pooling": row["set:pooling"]} for row in rows] == grid
    assert [row["mean"] for row in rows] == [58.5, 68.5, 78.5, 88.5, 78.5, 68.5]
    assert [row["chosen"] for row in rows] == [False] * 3 + [True] + [False] * 2
    rates, poolings = figures(client, path)
    assert rates["layout"]["xaxis"]["type"] == "log"
    assert rates["layout"]["shapes"][0]["x0"] == 1e-4
    (curve,) = [trace for trace in rates["data"] if trace["name"] == "mean of 4 tasks"]
    assert [curve[name] for name in "xy"] == [[1e-5, 1e-4, 1e-3], pytest.approx([68.5, 88.5, 78.5])]
    (bars,) = [trace for trace in poolings["data"] if trace["name"] == "mean"]
    assert [bars[name] for name in "xy"] == [pytest.approx([78.5, 88.5]), ["cls", "mean (chosen)"]]
    text = page(client, path).text
    for words in (
        "6 combinations of rate 1e-05, 0.0001, 0.001, pooling cls, mean",
        f"rate, pooling among 6 combinations: {', '.join(CHOSE)}",
        "Best scores by rate",
        "Best scores by pooling",
    ):
        assert words in text
    assert "that was tried" not in text, "the chosen rate is no end of the rates"


def test_a_plot_of_rates_is_logarithmic() -> None:
    def scale(values: Any) -> str:
        made = made_of(1, sweep=sweep_of(CHOSE, values, best=0))
        return str(next(sweep_charts(collect_sweeps([made]))).figure["layout"]["xaxis"]["type"])

    scales = [scale(values) for values in ((1e-5, 1e-4, 1e-3), (1.0, 2.0, 3.0), (1.0, 2.0, 3.1))]
    assert scales == ["log", "linear", "log"]


def test_seeds_that_chose_other_values_have_a_curve_each(tmp_path: Path) -> None:
    client = site_of(tmp_path, {"seed": 1}, {"seed": 2, "best": 3})
    cells = rows_of(client, "/suites/nanobeir", "suite")[SWEPT]
    assert cells["untouched"]["value"] == 40
    assert "learning_rate among 1e-05" in cells["model"]["note"]
    found = ask(client, model_path(client, SWEPT))
    rows = find_values(found, "sweep")
    assert len(rows) == 12
    assert [(row["seed"], row["value"]) for row in rows if row["chosen"]] == [(1, 8e-05), (2, 5e-05)]


@pytest.mark.slow
def test_every_page_with_a_swept_model_is_made(swept: TestClient) -> None:
    paths = different_paths(swept.app)  # type: ignore[arg-type]
    assert [path for path in paths if swept.get(path).status_code != 200] == []
