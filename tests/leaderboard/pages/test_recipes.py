"""The pages of recipes: what each is in every setting, and who was fine-tuned by it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import site_data
from finetune.glue.settings import Protocol
from finetune.recipes import glue_mosaicbert, glue_neobert, glue_optibert
from harness.core.keys import digest
from harness.core.types import Artifact
from harness.plan import catalog
from harness.storage.record import Record
from html_pages import Html, ask, find_rows, page
from site_data import HOSTILE, every_path
from suites.glue import TASKS

ROOT = Path(__file__).parents[3]


def as_recipe(record: Record, recipe: str) -> Record:
    identity = {**record.identity, "recipe": recipe}
    return record.model_copy(update={"identity": identity, "key": digest(identity)})


def whole(model: Artifact, score: float, *, more: float = 0.0) -> list[Record]:
    """A record of every task; where a task has two metrics the second is higher by `more`."""
    found = []
    for name, task in TASKS.items():
        record = site_data.trained(model, name, score)
        metrics = {metric: score + more * (at > 0) for at, metric in enumerate(task.metrics)}
        splits = {split: dict.fromkeys(subsets, metrics) for split, subsets in record.scores.items()}
        found.append(record.model_copy(update={"scores": splits}))
    return found


def fill(folder: Path) -> None:
    site_data.fill(folder)
    results = folder / "results"
    for name, letter, score in (("acme/good", "c", 0.9), (HOSTILE, "d", 0.8)):
        model = site_data.measured_model(name, letter)
        site_data.put(results, model, whole(model, score, more=0.08 if letter == "c" else 0))
    other = site_data.measured_model("acme/other", "e")
    records = [as_recipe(record, "glue-optibert:table4") for record in whole(other, 0.7)]
    site_data.put(results, other, records)


def test_the_list_has_every_recipe(client: TestClient) -> None:
    found = page(client, "/recipes")
    rows = {row[0]: row for row in found.texts("recipes")[1:]}
    assert list(rows) == list(catalog.load_recipe_entries())
    for name, entry in catalog.load_recipe_entries().items():
        assert rows[name][1] == entry.summary
        assert rows[name][3] == (", ".join(entry.variants) or "–")
    assert rows["glue-optibert"][2] == "OptiBERT, appendix D.1"
    assert rows["glue-optibert"][4] == "4"
    assert rows["glue-neobert"][4] == "–"
    assert {f"/recipes/{name}" for name in rows} <= found.hrefs


def test_who_used_a_recipe(client: TestClient) -> None:
    """The best first, an incomplete one last; OptiBERT takes the mean of two metrics in three of 8 tasks."""
    text = client.get("/recipes/glue-optibert").text
    head, *_ = Html(text).texts("used")
    assert head[:4] == ["Model", "Recipe", "Size", "Suite"]
    assert "<script>alert" not in text
    used = find_rows(ask(client, "/recipes/glue-optibert"), "used")
    cells = [row["cells"] for row in used]
    assert [one["model"]["value"] for one in cells] == ["acme/good", HOSTILE, "acme/other", "acme/tiny-base"]
    own, other = "glue-optibert", "glue-optibert:table4"
    assert [one["recipe"]["value"] for one in cells] == [own, own, other, own]
    assert [one["tasks"]["value"] for one in cells] == pytest.approx([91.5, 80, 70, 62.5])
    assert [one["count"]["text"] for one in cells] == ["8/8", "8/8", "8/8", "2/8"]
    assert cells[0]["treatment"]["text"] == "fresh seeds 42001–42003"
    assert [row["kind"] for row in used] == ["", "", "", "part"]


def test_means_are_by_the_papers_own_numbers(client: TestClient) -> None:
    found = page(client, "/recipes/glue-optibert")
    assert "/suites/glue?view=optibert" in found.hrefs
    assert "the mean of both metrics" in found.text


@pytest.mark.parametrize(
    ("path", "protocol"),
    [
        ("glue-optibert", glue_optibert.PROTOCOL),
        ("glue-optibert?variant=table4", glue_optibert.PROTOCOL.variants["table4"]),
        ("glue-neobert?variant=table6", glue_neobert.TABLE6),
        ("glue-mosaicbert", glue_mosaicbert.PROTOCOL),
    ],
)
def test_every_setting_is_that_of_the_protocol(client: TestClient, path: str, protocol: Protocol) -> None:
    found = page(client, f"/recipes/{path}")
    head, *rows = found.texts("grids")
    assert [row[0] for row in rows] == list(protocol.grids)
    for row in rows:
        named, grid = dict(zip(head, row, strict=True)), protocol.grids[row[0]]
        assert [float(text) for text in named["Learning rates"].split(", ")] == list(grid.learning_rates)
        assert [int(text) for text in named["Epochs"].split(", ")] == list(grid.epochs)
        assert [int(text) for text in named["Seeds"].split(", ")] == list(grid.seeds)
        assert int(named["Runs of the grid"]) == len(protocol.list_trials(row[0]))
    runs = sum(int(row[-1]) for row in rows) + len(protocol.final_seeds) * len(rows)
    assert runs == protocol.runs
    assert f"Runs on all tasks{protocol.runs}" in found.text.replace("\n", "")
    settings = {row[0]: row[1:] for row in found.texts("settings")}
    assert settings["max_length"][0] == str(protocol.training.max_length)
    assert settings["schedule.name"][0] == protocol.training.schedule.name
    assert settings["transfer"][0] == ", ".join(protocol.transfer)
    assert settings["stopping.counts"][0] == protocol.training.stopping.counts
    assert "#L" in settings["optimizer.betas"][1]
    assert any("/blob/" in href for href in found.hrefs)
    assert ("Our own choice, as no source states it" in found.text) == ("mosaic" not in path)
    for text in protocol.assumed:
        assert text in found.text
    assert protocol.source in found.text


def test_a_recipe_leads_to_what_its_paper_prints(client: TestClient) -> None:
    def links(name: str) -> set[str]:
        return page(client, f"/recipes/{name}").hrefs

    assert {"/papers/neobert", "/papers/neobert#table-3"} <= links("glue-neobert")
    assert {"/papers/modernbert#table-1", "/papers/modernbert#table-5"} <= links("glue-modernbert")
    assert not any(href.startswith("/papers/") for href in links("glue-quick"))
    back = page(client, "/papers/neobert").hrefs
    assert "/recipes/glue-neobert" in back
    assert "/recipes/glue-quick" not in back


def test_variants_are_tabs(client: TestClient) -> None:
    found = page(client, "/recipes/glue-neobert?variant=ablation")
    current = [a["href"] for a in found.named("a") if a.get("aria-current") == "true"]
    assert "/recipes/glue-neobert?variant=ablation" in current
    assert "--recipe glue-neobert:ablation" in found.text
    assert {"/recipes/glue-neobert", "/recipes/glue-neobert?variant=code"} <= found.hrefs


def test_a_recipe_that_nobody_used_says_how(client: TestClient) -> None:
    found = page(client, "/recipes/glue-quick")
    assert "Nothing was measured with it yet." in found.text
    assert "harness run --model YOUR-MODEL --suite glue --recipe glue-quick" in found.text
    dpr = page(client, "/recipes/dpr").text
    assert "--suite beir --suite mldr --suite codesearchnet --suite stackqa --recipe dpr" in dpr


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("/recipes/glue-qick", "glue-quick"),
        ("/recipes/glue-neobert?variant=table7", "table6"),
        ("/recipes/glue-quick?variant=x", ""),
    ],
)
def test_a_name_that_is_none(client: TestClient, path: str, near: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert near in answer.text


def test_every_recipe_is_exported(client: TestClient) -> None:
    paths = every_path(client.app)  # type: ignore[arg-type]
    assert {f"/recipes/{name}" for name in catalog.load_recipe_entries()} < set(paths)


def test_recipes_are_shown_without_torch() -> None:
    code = (
        "import sys\n"
        "from leaderboard.pages.recipes import _extract_protocol\n"
        "from harness.plan import catalog\n"
        "for name, entry in catalog.load_recipe_entries().items():\n"
        "    for v in ('', *entry.variants):\n"
        "        recipe = catalog.open_recipe(f'{name}:{v}' if v else name)\n"
        "        assert _extract_protocol(entry, v, recipe).settings\n"
        "print(sorted({'torch', 'mteb', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "[]\n"


def test_many_models_of_a_recipe_are_listed_page_by_page(tmp_path: Path) -> None:
    """The page has some of them, its data all, and the pages together as well."""

    def put_thirty(folder: Path) -> None:
        scores = site_data.spread_scores(site_data.names("nanobeir"), 0.5)
        for at in range(30):
            made = site_data.made_of(1, settings={"pooling": "mean", "batch_size": 8 + at})
            site_data.put_model(folder / "results", f"m{at}", made, scores)

    client = TestClient(site_data.small_app(tmp_path, put_thirty))
    every = find_rows(ask(client, "/recipes/simcse"), "used")
    pages = [page(client, f"/recipes/simcse?rows=25&page={at}").texts("used")[1:] for at in (1, 2)]
    assert [len(rows) for rows in pages] == [25, 5]
    assert len(every) == 30
