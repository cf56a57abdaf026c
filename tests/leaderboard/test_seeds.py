"""Models that a recipe made: several seeds as one entry, and what must be known of their training."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from starlette.testclient import TestClient

import site_data
from harness.lineage import ParentPart
from html_pages import page
from leaderboard.pages.suite.cells import kinds_of, leaks, training_text
from leaderboard.queries import Queries
from site_data import SEEDS, every_path, made_of, names, spread_scores

NAME, OWN = "tiny-base-simcse", "tiny-base-own"
NANO = spread_scores(names("nanobeir"), 0.55)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    app = site_data.small_app(tmp_path_factory.mktemp("seeds"), site_data.fill_trained)
    with TestClient(app) as found:
        yield found


def twin(client: TestClient, path: str) -> dict[str, Any]:
    where, _, query = path.partition("?")
    found: dict[str, Any] = client.get(f"{where}.json?{query}").json()
    return found


def rows_of(client: TestClient, path: str, table: str) -> dict[str, dict[str, Any]]:
    """The cells of a table's rows by the text of their model or name."""
    (found,) = [one for one in twin(client, path)["tables"] if one["name"] == table]
    first = "model" if any(column["key"] == "model" for column in found["columns"]) else "name"
    return {row["cells"][first]["text"]: row["cells"] for row in found["rows"] if first in row["cells"]}


def model_path(client: TestClient, name: str = NAME) -> str:
    """The page of a model."""
    return str(rows_of(client, "/suites/nanobeir", "suite")[name]["model"]["href"])


@pytest.mark.parametrize("each", ["model", "entry"])
def test_seeds_are_one_row_with_means_and_deviations(client: TestClient, each: str) -> None:
    """Also where every revision and treatment has a row."""
    found = twin(client, f"/suites/nanobeir?each={each}")["tables"][0]["rows"]
    assert [row["cells"]["model"]["text"] for row in found].count(NAME) == 1
    cells = rows_of(client, f"/suites/nanobeir?each={each}", "suite")[NAME]
    for name, score in NANO.items():
        own = [score + at / 100 for at in range(3)]
        assert cells[f"task:{name}"]["value"] == pytest.approx(fmean(own))
        assert cells[f"task:{name}"]["deviation"] == pytest.approx(stdev(own))
    means = [fmean(NANO.values()) + at / 100 for at in range(3)]
    assert cells["tasks"]["value"] == pytest.approx(fmean(means))
    assert cells["tasks"]["deviation"] == pytest.approx(stdev(means))
    assert cells["tasks"]["text"] == f"{100 * fmean(means):.2f} ± 1.00"
    assert cells["rank"]["value"] >= 1


def test_a_mean_is_over_all_seeds_or_says_of_how_many(client: TestClient) -> None:
    first, second = names("mteb")[:2]
    cells = rows_of(client, "/suites/mteb", "suite")[NAME]
    assert (cells[f"task:{first}"]["value"], cells[f"task:{first}"]["deviation"]) == (0.5, 0)
    assert (cells[f"task:{second}"]["text"], cells[f"task:{second}"]["kind"]) == ("2 of 3 seeds", "seeds")
    assert cells["there"]["value"] == 1
    assert rows_of(client, f"/tasks/{second}", "ranking")[NAME]["score"]["text"] == "2 of 3 seeds"


def test_csv_has_the_deviations_and_marks_in_columns_of_their_own(client: TestClient) -> None:
    rows = list(csv.DictReader(io.StringIO(client.get("/suites/nanobeir.csv").text)))
    by_name = {row["Model"]: row for row in rows}
    assert float(by_name[NAME]["mean: over tasks"]) == pytest.approx(fmean(NANO.values()) + 0.01)
    deviations = dict(part.rsplit(": ", 1) for part in by_name[NAME]["deviations"].split("; "))
    assert float(deviations["over tasks"]) == pytest.approx(0.01)
    assert len(deviations) == len(NANO) + 2
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
    for word in ("user&#39;s own", "other settings than", "checkpoint was chosen", "in the training data"):
        assert word in text
    markdown = client.get("/suites/nanobeir.md").text
    assert "tiny-base-own (own data) (changed settings) (chosen checkpoint)" in markdown


def test_the_models_page_lists_its_seeds_with_their_records(client: TestClient) -> None:
    path = model_path(client)
    found = twin(client, path)
    assert (found["data"]["seeds"], found["data"]["lineage"]["recipe"]) == (list(SEEDS), "simcse")
    entries = rows_of(client, path, "entries")
    assert next(iter(entries)) == "3 seeds: 1, 2, 3"
    assert set(entries) == {"3 seeds: 1, 2, 3", *(f"seed {seed}" for seed in SEEDS)}
    name, score = next(iter(NANO.items()))
    (second,) = [cells["name"]["href"] for text, cells in entries.items() if text == "seed 2"]
    own = rows_of(client, second, "results")[name]
    assert own["score"]["value"] == pytest.approx(score + 0.01)
    result = rows_of(client, path, "results")[name]["result"]["href"]
    seeds = rows_of(client, result, "seeds")
    assert [cells["score"]["value"] for cells in seeds.values()] == pytest.approx(
        [score, score + 0.01, score + 0.02]
    )
    assert seeds["2"]["name"]["href"] == own["result"]["href"]
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
    assert used[NAME]["mean-nanobeir"]["deviation"] == pytest.approx(0.01)
    assert "Numbers by" not in found.text
    kinds = {row[0]: row[5] for row in page(client, "/recipes").texts("recipes")[1:]}
    assert (kinds["simcse"], kinds["glue-quick"]) == ("one model for all tasks", "a model for each task")


def test_every_page_with_trained_models_is_made(client: TestClient) -> None:
    paths = every_path(client.app)  # type: ignore[arg-type]
    assert [path for path in paths if client.get(path).status_code != 200] == []
    both = [row["key"] for row in twin(client, "/suites/nanobeir")["tables"][0]["rows"]][:2]
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
    assert kinds_of(entry) == "own selected"
    assert [leaks(entry, [task], None) for task in (first, second, "other")] == [["selected"]] * 2 + [[]]
    assert "on first (trained on pairs.csv); checkpoint chosen by" in training_text(entry)


def test_another_seed_joins_its_group_and_a_lost_one_leaves_it(tmp_path: Path) -> None:
    """The address of the model stays, and a look at what has not changed takes nothing in."""
    site = site_data.small_site(tmp_path, lambda folder: None)
    seen: list[tuple[str, tuple[int, ...]]] = []

    def look() -> None:
        site.index.refresh()
        assert (site.index.refresh().taken, site.index.refresh().dropped) == (0, 0)
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
