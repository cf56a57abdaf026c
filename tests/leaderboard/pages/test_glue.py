"""GLUE and backbones in one table each: every printed number, one convention at a time, and measured rows."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, stdev
from typing import Any
from unittest import mock

import pytest
from starlette.testclient import TestClient

import site_data
from fakes import artifact
from harness.core.keys import ParentPart
from html_pages import BROWSER, Html, ask, figures, find_rows, page
from leaderboard.data.backbones import BENCHMARKS
from paper_data import vectors, with_metrics
from suites.glue import TASKS, VIEWS

FOLDER = Path(__file__).parents[3] / "results" / "reported"
PAPERS = ("optibert", "mosaicbert", "neobert", "modernbert", "efficient-embeddings")
FIVE = "ModernBERT, table 5"
MODERN = "answerdotai/ModernBERT-base"
DPR = {1: 0.30, 2: 0.34}
"""The score of a DPR model on every task of BEIR, by seed."""

Cells = dict[str, dict[str, Any]]


def fill(folder: Path) -> None:
    results = folder / "results"
    site_data.fill(folder)
    modern = site_data.measured_model(MODERN, "c")
    site_data.put(results, modern, [with_metrics(modern, name) for name in TASKS])
    tasks = list(site_data.suites()["beir"].suite.tasks)
    several = site_data.measured_model(MODERN, "e")
    site_data.put(results, several, [vectors(several, of, 0.5, output="multivector") for of in tasks])
    v1 = list(site_data.open_suites("mteb-v1")["mteb-v1"].suite.tasks)
    parent = ParentPart(name=MODERN, artifact="c" * 64)
    for recipe, of_recipe, score, output in (
        ("colbert", tasks, 0.4, "multivector"),
        ("unified-contrastive", v1, 0.6, "vector"),
        ("cde", v1, 0.7, "vector"),
    ):
        made = site_data.made_of(1, recipe=recipe, variant="", parents=(parent,), settings={})
        model = artifact(Path(recipe), key=made.key, name=recipe)
        records = [vectors(model, of, score, output=output) for of in of_recipe]
        site_data.put(results, model, [one.model_copy(update={"lineage": made}) for one in records])
    parents = {"dpr": MODERN, "other": "answerdotai/ModernBERT-large"}
    for name, seed, score in (*(("dpr", seed, score) for seed, score in DPR.items()), ("other", 1, 0.2)):
        changed = {"batch_size": 64} if name == "other" else {}
        parent = ParentPart(name=parents[name], artifact="c" * 64)
        made = site_data.made_of(
            seed, recipe="dpr", variant="", changed=changed, parents=(parent,), settings=changed
        )
        model = artifact(Path(name), key=made.key, name=name)
        records = [vectors(model, of, score) for of in tasks]
        site_data.put(results, model, [one.model_copy(update={"lineage": made}) for one in records])
    as_published = [vectors(modern, of, 0.9) for of in tasks]
    site_data.put(results, modern, as_published)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    listed = {**site_data.suites(), **site_data.open_suites("beir", "mteb-v1")}
    with (
        mock.patch("site_data.suites", return_value=listed),
        TestClient(site_data.small_app(tmp_path_factory.mktemp("glue"), fill)) as found,
    ):
        yield found


def committed(suite: str = "") -> list[dict[str, str]]:
    """The printed scores, of one suite or all, by another reading of the files."""
    rows = []
    for slug in PAPERS:
        with (FOLDER / f"{slug}.csv").open(newline="", encoding="utf-8") as file:
            rows += [{**row, "slug": slug} for row in csv.DictReader(file)]
    return [row for row in rows if suite in ("", row["suite"]) and is_number(row["value"])]


def is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


def table(client: TestClient, path: str, name: str) -> list[tuple[str, Cells]]:
    """The rows of a table in JSON, each with the heading above it."""
    return [(row["group"], row["cells"]) for row in find_rows(ask(client, path), name)]


def value(cells: Cells, key: str) -> Any:
    return cells.get(key, {}).get("value")


# GLUE


@pytest.mark.parametrize("view", VIEWS)
def test_every_printed_number_of_glue_stands_there_in_every_convention(client: TestClient, view: str) -> None:
    rows = [cells for _, cells in table(client, f"/glue?view={view}", "glue")]
    printed = [cells for cells in rows if value(cells, "source") != "measured here"]
    names = [*TASKS, "printed"]
    held = Counter(
        value(cells, name) for cells in printed for name in names if value(cells, name) is not None
    )
    scores = [row for row in committed("GLUE dev") if row["unit"] in ("score x100", "fraction")]
    assert held == Counter(float(row["value"]) for row in scores)


@pytest.mark.parametrize("view", VIEWS)
def test_the_suite_and_the_first_page_rank_no_row_that_the_table_of_glue_refuses(
    client: TestClient, view: str
) -> None:
    glue = [cells for _, cells in table(client, f"/glue?view={view}", "glue")]
    lines = [c for c in glue if c["source"]["kind"] == "reported" and all(t in c for t in TASKS)]
    honest = {round(float(value(c, "mean")), 1) for c in lines if value(c, "mean") is not None}
    suite = [cells for _, cells in table(client, f"/suites/glue?view={view}&origin=reported", "suite")]
    whole = {round(float(value(c, "tasks")), 1) for c in suite
             if value(c, "tasks") is not None and c["tasks"].get("kind", "") == ""}  # fmt: skip
    assert whole == honest
    assert all("apart" in c["CoLA"]["kind"] for c in glue if "DeBERTaV3" in value(c, "name"))
    assert not [c for c in suite if "DeBERTaV3" in c["model"]["text"] and value(c, "tasks") is not None]


def test_a_row_of_another_convention_is_marked_where_it_differs_and_has_no_mean(client: TestClient) -> None:
    """ModernBERT's and NeoBERT's numbers of CoLA, SST-2, QNLI and RTE are made alike."""
    rows = table(client, "/glue?view=neobert", "glue")
    (modern,) = [c for _, c in rows if value(c, "source") == "ModernBERT, table 5"
                 and value(c, "name") == "ModernBERT base"]  # fmt: skip
    differing = [name for name in TASKS if "apart" in modern[name].get("kind", "")]
    assert differing == ["MRPC", "STS-B", "QQP", "MNLI"]
    assert "by ModernBERT's convention" in modern["MRPC"]["note"]
    assert "mean" not in modern
    assert (value(modern, "printed"), "apart" in modern["printed"]["kind"]) == (88.4, True)
    for group, cells in rows:
        own = value(cells, "convention") in ("neobert", "optibert")
        assert own == ("mean" in cells) == (group == "By NeoBERT's convention"), cells["source"]
    (own,) = [c for _, c in table(client, "/glue?view=modernbert", "glue")
              if (value(c, "source"), value(c, "name")) == (FIVE, "ModernBERT base")]  # fmt: skip
    assert not any("apart" in own[name].get("kind", "") for name in (*TASKS, "printed"))


def test_means_are_those_of_the_printed_numbers_of_the_chosen_convention_alone(client: TestClient) -> None:
    tasks = {"SST": "SST-2", "STS": "STS-B"}
    lines: dict[tuple[str, ...], dict[str, float]] = {}
    for row in committed("GLUE dev"):
        if row["slug"] == "neobert" and "own result" in row["note"]:
            name = tasks.get(row["metric"], row["metric"])
            lines.setdefault((row["model"], row["setting"]), {})[name] = float(row["value"])
    wanted = sorted(round(fmean(line[name] for name in TASKS), 2) for line in lines.values())
    rows = table(client, "/glue?view=neobert", "glue")
    found = [value(c, "mean") for _, c in rows if value(c, "source") == "NeoBERT, table 3" and "mean" in c]
    assert sorted(found) == wanted
    assert len(wanted) == 2
    means = [value(c, "mean") for _, c in rows if "mean" in c and c["mean"].get("kind") != "part"]
    assert means == sorted(means, reverse=True)


def test_an_unknown_convention_is_compared_with_none(client: TestClient) -> None:
    for view in VIEWS:
        rows = table(client, f"/glue?view={view}", "glue")
        settings = [(c["setting"].get("note", "") + str(value(c, "setting")), c) for _, c in rows]
        devlin = [c for text, c in settings if "test-server" in text]
        assert len(devlin) == 2
        assert all("apart" in c[name]["kind"] and "mean" not in c for c in devlin for name in TASKS)


@pytest.mark.parametrize(
    ("view", "numbers"),
    [("neobert", {"RTE": 80, "MRPC": 85, "STS-B": 85}), ("modernbert", {"RTE": 80, "MRPC": 80, "STS-B": 90})],
)
def test_a_measured_row_is_made_by_the_chosen_convention(
    client: TestClient, view: str, numbers: dict[str, float]
) -> None:
    rows = table(client, f"/glue?view={view}&origin=measured", "glue")
    (own,) = [c for _, c in rows if value(c, "name") == "ModernBERT base"]
    assert {name: value(own, name) for name in numbers} == numbers
    assert value(own, "mean") == pytest.approx(fmean(value(own, name) for name in TASKS), abs=0.006)
    assert own["name"]["href"] == "/models/modernbert-base"
    assert own["RTE"]["href"].startswith("/results/")
    (part,) = [c for _, c in rows if value(c, "name") == "acme/tiny-base"]
    assert part["mean"]["kind"] == "part"


def test_deviations_over_seeds_are_those_of_the_recipes_own_convention(client: TestClient) -> None:
    """The record is of OptiBERT's convention, whose QQP is NeoBERT's, too, and not ModernBERT's."""
    (own,) = [c for _, c in table(client, "/glue?origin=measured&q=modernbert", "glue")]
    assert (own["QQP"]["text"], own["QQP"]["deviation"], value(own, "seeds")) == ("85.00 ± 1.00", 1.0, 3)
    (other,) = [c for _, c in table(client, "/glue?view=modernbert&origin=measured&q=modernbert", "glue")]
    assert [name for name in TASKS if "deviation" in other[name]] == ["CoLA", "SST-2", "QNLI", "RTE"]


def test_glue_in_every_format(client: TestClient) -> None:
    lines = list(csv.DictReader(io.StringIO(client.get("/glue.csv?q=modernbert+base").text)))
    assert {line["Group"] for line in lines} == {
        "By NeoBERT's convention", "By another convention, or not stated",
    }  # fmt: skip
    (measured,) = [line for line in lines if line["From"] == "measured here"]
    assert (measured["Mean"], measured["Seeds"], measured["CoLA"]) == ("81.88", "3", "80.0")
    assert "CoLA: 1.0" in measured["deviations"]
    modern = next(line for line in lines if line["From"] == "ModernBERT, table 5")
    assert (modern["Mean"], modern["Mean as printed"]) == ("", "88.4")
    assert "MRPC: not comparable" in modern["marks"]
    text = client.get("/glue.md?q=modernbert+base").text
    assert "92.2≠" in text
    assert "80.00 ± 1.00" in text
    tex = client.get("/glue.tex?q=modernbert+base").text
    assert r"92.2$^{\neq}$" in tex
    assert tex.count(r"\begin{tabular}") == 1


def test_the_page_of_glue_offers_every_convention_and_a_chart(client: TestClient) -> None:
    found = page(client, "/glue")
    tabs = [tag["href"] for tag in found.named("a") if tag.get("href", "").startswith("/glue?view=")]
    assert tabs == [f"/glue?view={name}" for name in VIEWS]
    assert VIEWS["neobert"].says in found.text
    assert len(figures(client, "/glue")) == 1
    sizes = [value(c, "parameters") for _, c in table(client, "/glue?size=large&sort=parameters", "glue")]
    assert sizes
    assert all(200e6 <= size < 600e6 for size in sizes)


HOSTILE = ["<script>alert(1)</script>", "../../etc/passwd", "' OR 1=1 --", "%00", "neobert,", "x" * 200]


@pytest.mark.parametrize("path", ["/glue", "/backbones"])
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_parameters(client: TestClient, path: str, text: str) -> None:
    wanted = {"q": 200, "view": 404, "sort": 404, "size": 422, "origin": 422, "other": 422}
    for name, status in wanted.items():
        answer = client.get(path, params={name: text}, headers=BROWSER)
        assert answer.status_code in (status, 400), (name, answer.status_code)
        assert "<script>alert" not in answer.text
    assert client.get(path, params={"q": "x" * 300}, headers=BROWSER).status_code in (400, 422)
    assert "passes these filters" in Html(client.get(path, params={"q": text}).text).text


# Backbones


def test_every_printed_average_is_a_number_of_its_backbone(client: TestClient) -> None:
    """Another reading of two tables of ModernBERT: DPR and ColBERT on BEIR."""
    found = table(client, "/backbones", "numbers")
    for number, recipe in (("7", "DPR"), ("8", "ColBERT")):
        wanted = ("modernbert", number, "Avg.")
        rows = [r for r in committed("BEIR") if (r["slug"], r["table"], r["metric"]) == wanted]
        held = [
            value(c, "score") for _, c in found
            if (value(c, "recipe"), value(c, "benchmark"), value(c, "origin")) == (recipe, "BEIR", "reported")
        ]  # fmt: skip
        assert Counter(held) == Counter(float(row["value"]) for row in rows)
        assert len(held) == 11
    columns = [c["key"] for c in client.get("/backbones.json").json()["tables"][0]["columns"]]
    assert columns == ["name", "parameters", "without_embeddings", "origin", *(one.key for one in BENCHMARKS)]


def test_printed_and_measured_numbers_have_lines_of_their_own(client: TestClient) -> None:
    rows = [c for _, c in table(client, "/backbones?q=modernbert+base", "backbones")]
    lines = {value(c, "origin"): c for c in rows if value(c, "name") == "ModernBERT base"}
    assert list(lines) == ["reported", "measured"]
    printed, measured = lines["reported"], lines["measured"]
    assert (value(printed, "dpr-beir"), printed["dpr-beir"]["href"]) == (41.6, "/papers/modernbert#table-7")
    assert value(measured, "dpr-beir") == pytest.approx(100 * fmean(DPR.values()))
    assert measured["dpr-beir"]["deviation"] == pytest.approx(100 * stdev(DPR.values()), abs=0.006)
    assert measured["dpr-beir"]["href"].startswith("/models/dpr-")
    # Another multi-vector model of the same backbone, which has 50.0, is not of the recipe.
    assert (value(measured, "colbert-beir"), value(printed, "colbert-beir")) == (40.0, 51.3)
    assert (value(measured, "unified-mteb-v1"), value(measured, "cde-mteb-v1")) == (60.0, 70.0)
    assert "simcse-mteb" not in measured
    large = table(client, "/backbones?q=modernbert+large&origin=measured", "backbones")[0][1]
    assert (value(large, "dpr-beir"), large["dpr-beir"]["kind"]) == (20.0, "changed")


def test_conventions_and_queries_are_marked(client: TestClient) -> None:
    """ModernBERT's DPR is on TREC-DL 2019, and its ColBERT on MSMARCO's development queries, as ours."""

    def line(view: str) -> Cells:
        rows = table(client, f"/backbones?view={view}&origin=reported&q=modernbert-large", "backbones")
        return next(c for _, c in rows if value(c, "name") == "ModernBERT large")

    other, own = line("neobert"), line("modernbert")
    assert "not of the queries of MSMARCO (dev)" in own["dpr-beir"]["note"]
    assert "apart" in own["dpr-beir"]["kind"]
    assert "apart" not in own["colbert-beir"].get("kind", "")
    assert "apart" in other["glue"]["kind"]
    assert "apart" not in own["glue"].get("kind", "")
    assert (value(own, "glue"), "also 90.5 (NeoBERT, table 3" in own["glue"]["note"]) == (90.4, True)
    measured = {
        view: value(table(client, f"/backbones?view={view}&origin=measured", "backbones")[0][1], "glue")
        for view in ("neobert", "modernbert")
    }
    assert measured == {"neobert": 81.88, "modernbert": 81.25}


def test_the_chart_shows_the_chosen_column(client: TestClient) -> None:
    (figure,) = figures(client, "/backbones?column=colbert-beir")
    assert "ColBERT, BEIR" in figure["layout"]["yaxis"]["title"]["text"]
    heights = {y for trace in figure["data"] for y in trace.get("y", ())}
    assert {51.3, 52.4, 40.0} <= heights
    answer = client.get("/backbones?column=colbert-bier", headers=BROWSER)
    assert answer.status_code == 404
    assert "colbert-beir" in answer.text
