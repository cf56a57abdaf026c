"""The pages of papers: every printed number, what misleads, what was measured beside it."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from starlette.testclient import TestClient

import site_data
from fakes import artifact
from harness.core.keys import MemberPart, ParentPart, SweepPart
from harness.plan import catalog
from html_pages import Html, ask, find_rows, find_values, page
from leaderboard.web.app import create_app
from paper_data import vectors, with_metrics
from site_data import Import, every_path
from suites.glue import TASKS

FOLDER = Path(__file__).parents[3] / "results" / "reported"
PAPERS = ("optibert", "mosaicbert", "neobert", "modernbert", "efficient-embeddings")
MODERN = "answerdotai/ModernBERT-base"


def fill(folder: Path) -> None:
    site_data.fill(folder)
    results = folder / "results"
    modern = site_data.measured_model(MODERN, "c")
    site_data.put(results, modern, [with_metrics(modern, name) for name in TASKS])
    large = site_data.measured_model("answerdotai/ModernBERT-large", "d")
    site_data.put(results, large, [with_metrics(large, "RTE")])
    more = Import(model=MODERN, scores=dict.fromkeys(site_data.names("mteb"), 0.777), card={})
    site_data.put_imports(results, [*site_data.standard_imports(), more])


def committed(slug: str) -> list[dict[str, str]]:
    with (FOLDER / f"{slug}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def anchor(table: str) -> str:
    return "table-" + re.sub(r"[^A-Za-z0-9]+", "-", table).strip("-")


# Papers


@pytest.mark.parametrize("slug", PAPERS)
def test_every_printed_value_stands_on_its_page(client: TestClient, slug: str) -> None:
    found = page(client, f"/papers/{slug}")
    wanted: dict[str, Counter[str]] = {}
    for row in committed(slug):
        wanted.setdefault(anchor(row["table"]), Counter()).update([row["value"]] if row["value"] else [])
    assert set(wanted) == set(found.tables)
    for name, values in wanted.items():
        cells = [cell for row in found.tables[name] for cell in row]
        printed = Counter(re.split(r" ±| \[", text)[0] for text, classes in cells if "reported" in classes)
        assert printed == values, name
        assert any(attributes.get("id") == name for attributes in found.named("section"))


@pytest.mark.parametrize("slug", PAPERS)
def test_every_format_holds_every_printed_value(client: TestClient, slug: str) -> None:
    tables = client.get(f"/papers/{slug}.json").json()["tables"]
    cells = [cell for table in tables for row in table["rows"] for cell in row["cells"].values()]
    printed = Counter(str(c["value"]) for c in cells if c.get("kind") == "reported")
    values = [row["value"] for row in committed(slug) if row["value"]]
    assert printed == Counter(_as_value(value) for value in values)
    plain_text = client.get(f"/papers/{slug}.csv").text
    assert all(value in plain_text for value in map(_as_value, values) if not value.startswith("-"))


def _as_value(text: str) -> str:
    try:
        return text if text.isdecimal() else str(float(text))
    except ValueError:
        return text


def test_two_kinds_of_mean_are_told_beside_the_table(client: TestClient) -> None:
    """NeoBERT_4096 is ahead of the best OptiBERT_neo by both means; the print has it behind."""
    text = client.get("/papers/optibert").text
    start = text.index('id="table-2"')
    section = text[start : text.index("</section>", start)]
    callout = section[section.index('class="callout') : section.index("</div>")]
    assert "The table mixes two means" in callout
    told = Html(callout).text
    assert "51.9 against 51.3" in told
    assert "51.87 against 52.41 as mean over types" in told
    assert "50.44 against 51.32 as mean over tasks" in told
    rows = page(client, "/papers/optibert").texts("table-2")
    by_model = {(row[0], row[2].rpartition("tokens ")[2].partition(",")[0]): row[-2:] for row in rows[2:]}
    assert by_model["NeoBERT_4096", "2.1T"] == ["52.41", "51.32"]
    assert by_model["OptiBERT_neo", "130B"] == ["51.87", "50.44"]
    document = client.get("/papers/optibert.json").json()
    assert any("51.87 against 52.41" in text for text in document["data"]["warnings"]["table 2"])
    notes = next(table for table in document["tables"] if table["name"] == "table-2")["notes"]
    assert any("51.87 against 52.41" in note for note in notes)
    assert "51.87 against 52.41" in client.get("/papers/optibert.md").text
    assert list(document["data"]["warnings"]) == ["table 2"]


def test_a_paper_without_such_a_table_warns_of_nothing(client: TestClient) -> None:
    assert 'class="callout warn"' not in client.get("/papers/neobert").text


def lines(found: Html, table: str) -> list[list[str]]:
    return [row for row in found.texts(table) if row[0].startswith("measured here")]


def test_what_was_measured_stands_below_its_model(client: TestClient) -> None:
    """By each paper's own convention: NeoBERT takes means of two metrics, ModernBERT the first alone."""
    table = page(client, "/papers/neobert").texts("table-3")
    at = next(i for i, row in enumerate(table) if row[0].startswith("measured here"))
    assert table[at - 1][:2] == ["ModernBERT", "base"]
    named = dict(zip(table[1], table[at], strict=True))
    assert table[at][0] == "measured here, glue-optibert"
    assert (named["RTE"], named["MRPC"], named["STS"]) == ("80.00", "85.00", "85.00")
    numbers = {"MNLI": 80, "QNLI": 80, "QQP": 85, "RTE": 80, "SST": 80, "MRPC": 85, "CoLA": 80, "STS": 85}
    assert named["Avg."] == f"{sum(numbers.values()) / 8:.2f}"
    modern = page(client, "/papers/modernbert").texts("table-5")
    own = dict(zip(modern[1], lines(page(client, "/papers/modernbert"), "table-5")[0], strict=True))
    assert (own["MRPC"], own["QQP"], own["STS-B"]) == ("80.00", "80.00", "90.00")


def test_a_mean_that_is_not_whole_is_left_out(client: TestClient) -> None:
    found = page(client, "/papers/neobert")
    heads = found.texts("table-3")[1]
    measured = [dict(zip(heads, row, strict=True)) for row in lines(found, "table-3")]
    assert [row["RTE"] for row in measured] == ["80.00", "80.00"]
    assert [row["Avg."] for row in measured] == ["81.88", ""]
    assert measured[1]["CoLA"] == ""


def test_measured_cells_lead_to_their_model_and_say_how(client: TestClient) -> None:
    heads = [row["cells"]["model"] for row in find_rows(ask(client, "/papers/neobert"), "table-3")]
    head = next(cell for cell in heads if "measured here" in cell["value"])
    assert (head["href"], head["kind"]) == ("/models/answerdotai--ModernBERT-base", "measured")
    assert "fresh seeds 42001–42003" in head["note"]


def test_imports_are_not_mixed_in(client: TestClient) -> None:
    for slug in PAPERS:
        text = client.get(f"/papers/{slug}").text
        assert "77.7" not in [cell for row in Html(text).tables.values() for line in row for cell, _ in line]


def test_a_printed_name_leads_to_its_backbone(client: TestClient) -> None:
    heads = [row["cells"]["model"] for row in find_rows(ask(client, "/papers/neobert"), "table-3")]
    (neobert,) = [cell for cell in heads if cell["value"] == "NeoBERT_4096"]
    assert neobert["href"] == "/models/neobert"
    assert neobert["note"] == "stands for NeoBERT, chandar-lab/NeoBERT"
    assert client.get(neobert["href"]).status_code == 200


SCORE = {"STS": 0.5, "Retrieval": 0.25}
OTHERWISE = 0.75

SWEEP = SweepPart(
    setting="scale", values=(1, 2), chosen=2, tasks={n: {} for n in ("NFCorpus", "SciFact", "FiQA2018")},
    curve=tuple(MemberPart(value=at, artifact="c" * 64, scores={}, mean=at / 4) for at in (1, 2)),
)  # fmt: skip


def fill_vectors(folder: Path) -> None:
    """A model with all of MTEB(eng, v1) and BEIR, imported ones too, and one with a single type."""
    (folder / "results").mkdir()
    tasks = {task.name: task for name in ("mteb-v1", "beir") for task in site_data.suites()[name].suite.tasks}
    some = {name: task for name, task in tasks.items() if task.type == "STS"}
    for name, letter, own in ((MODERN, "a", tasks), ("answerdotai/ModernBERT-large", "b", some)):
        model = site_data.measured_model(name, letter)
        records = [vectors(model, of, SCORE.get(of.type, OTHERWISE)) for of in own.values()]
        site_data.put(folder / "results", model, records)
    several = site_data.measured_model(MODERN, "c")
    retrieval = [task for task in tasks.values() if task.type == "Retrieval"]
    multi = [vectors(several, of, 0.6, output="multivector") for of in retrieval]
    site_data.put(folder / "results", several, multi)
    made = site_data.made_of(1, parents=(ParentPart(name=MODERN, artifact="a" * 64),), sweep=SWEEP)
    swept = artifact(Path("swept"), key=made.key, name="swept")
    scores = [vectors(swept, of, 0.9 if of.name in SWEEP.tasks else 0.25) for of in retrieval]
    site_data.put(folder / "results", swept, [one.model_copy(update={"lineage": made}) for one in scores])
    modern = site_data.measured_model(MODERN, "a")
    site_data.put(folder / "results", modern, [with_metrics(modern, "RTE")])
    site_data.put_imports(folder / "results", [Import(model=MODERN, scores=dict.fromkeys(tasks, 0.777))])


@pytest.fixture(scope="module")
def of_vectors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    listed = site_data.open_suites("mteb-v1", "beir", "glue")
    with (
        mock.patch("site_data.suites", return_value=listed),
        TestClient(site_data.small_app(tmp_path_factory.mktemp("vectors"), fill_vectors)) as found,
    ):
        yield found


def test_a_table_of_vectors_takes_vectors_alone(of_vectors: TestClient) -> None:
    """MTEB(eng, v1): a type's mean where it is whole, both means, and what kind of line it is."""
    found = page(of_vectors, "/papers/neobert")
    heads = found.texts("table-4")[1]
    rows = [dict(zip(heads, row, strict=True)) for row in lines(found, "table-4")]
    whole, part = [row for row in rows if "simcse" not in row["Model"]]
    assert whole["Model"] == "measured here, as published"
    assert [whole[name] for name in ("STS", "Retriev.", "Avg. (56 tasks)")] == ["50.00", "25.00", ""]
    counts = Counter(column.type for column in catalog.open_suite("mteb-v1").columns)
    types = {kind: SCORE.get(kind, OTHERWISE) for kind in counts}
    mean, all_paths = 100 * sum(types.values()) / 7, 100 * sum(types[k] * n for k, n in counts.items())
    assert whole["mean over types"] == f"{mean:.2f}"
    assert whole["mean over tasks"] == f"{all_paths / 56:.2f}"
    assert (part["STS"], part["Retriev."], part["mean over tasks"]) == ("50.00", "", "")
    assert "not fine-tuned as the paper did" in found.text
    assert [row[0] for row in lines(found, "table-3")] == ["measured here, glue-optibert"]


def test_one_vector_a_text_is_not_shown_among_several(of_vectors: TestClient) -> None:
    """ModernBERT's table 7 has one vector, table 8 several, and table 1 an average of each."""
    found = page(of_vectors, "/papers/modernbert")
    own = dict(zip(found.texts("table-7")[1], lines(found, "table-7")[0], strict=True))
    assert {own[name] for name in ("FiQA", "TREC-COVID", "CQADupstack", "SciFact")} == {"25.00"}
    assert own["MSMARCO"] == "25.00, on MSMARCO (dev)", "the paper's are those of TREC-DL 2019"
    assert own["Avg."] == "25.00, on MSMARCO (dev)"
    several = dict(zip(found.texts("table-8")[1], lines(found, "table-8")[0], strict=True))
    assert (several["MSMARCO"], several["FiQA"], several["Avg."]) == ("60.00", "60.00", "60.00")
    assert len(lines(found, "table-8")) == 1
    assert lines(found, "table-1") == []


def test_what_a_recipe_made_of_a_printed_model_stands_below_it(of_vectors: TestClient) -> None:
    """A sweep chose it by three of BEIR's fifteen."""
    found = page(of_vectors, "/papers/modernbert")
    own = [dict(zip(found.texts("table-7")[1], row, strict=True)) for row in lines(found, "table-7")]
    (line,) = [row for row in own if row["Model"] != "measured here, as published"]
    assert line["Model"].startswith("measured here, simcse:mean, scale=2 of 2")
    assert (line["FiQA"], line["TREC-COVID"]) == ("90.00", "25.00")
    mean = f"{100 * (3 * 0.9 + 12 * 0.25) / 15:.2f}"
    assert line["Avg."] == f"{mean}, on MSMARCO (dev)"
    cells = [row["cells"] for row in find_rows(ask(of_vectors, "/papers/modernbert"), "table-7")]
    marked = [key for row in cells for key, cell in row.items() if "selected" in cell.get("kind", "")]
    assert marked == ["NFCorpus", "SciFact", "FiQA", "Avg"]


# The list


def is_number(text: str) -> bool:
    return re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", text) is not None


def test_every_page_counts_a_papers_numbers_alike(client: TestClient) -> None:
    numbers = sum(is_number(line["value"]) for slug in PAPERS for line in committed(slug))
    assert numbers > 1500
    assert f"{numbers:,} numbers that {len(PAPERS)} papers print" in client.get("/papers").text
    assert f"{numbers:,}" in client.get("/").text
    sources = find_values(ask(client, "/about"), "sources")
    printed = [row["scores"] for row in sources if row["origin"] == "reported"]
    assert sum(printed) == numbers
    own = [client.get(f"/papers/{slug}.json").json()["data"]["numbers"] for slug in PAPERS]
    assert own == printed


def test_names_of_fits_are_no_organisations_models(client: TestClient) -> None:
    text = client.get("/papers/optibert").text
    assert "D/F_N vs C" in text
    assert '<span class="org">D/</span>' not in text


def test_the_list_has_every_paper_with_its_count(client: TestClient) -> None:
    found = page(client, "/papers")
    for slug, row in zip(PAPERS, find_rows(ask(client, "/papers"), "papers"), strict=True):
        assert f"/papers/{slug}" in found.hrefs
        assert row["cells"]["numbers"]["value"] == sum(is_number(line["value"]) for line in committed(slug))
        assert row["cells"]["title"]["value"] in found.text


def test_conflicts_are_shown_with_their_tables(client: TestClient) -> None:
    found = page(client, "/papers").texts("conflicts")
    rows = {(row[0], row[2]): dict(zip(found[0], row, strict=True)) for row in found[1:]}
    qqp = rows["BERT base", "QQP"]
    assert qqp["Apart"] == "20.2"
    texts = {name.strip(" ›"): text for name, text in qqp.items()}
    assert texts["NeoBERT"] == "71.2 (table 3)"
    assert texts["ModernBERT"] == "91.4 (table 5)"
    assert texts["MosaicBERT"] == "91.4 (table S3)"
    assert ("RoBERTa base", "Avg.") not in rows
    apart = [float(row[3]) for row in found[1:]]
    assert apart == sorted(apart, reverse=True)


@pytest.mark.parametrize(
    ("path", "near"),
    [("/papers/optbert", "optibert"), ("/papers/%3Cscript%3E", "")],
)
def test_a_name_that_is_none(client: TestClient, path: str, near: str) -> None:
    answer = client.get(path, headers={"accept": "text/html"})
    assert answer.status_code == 404
    assert near in Html(answer.text).text
    assert "<script>" not in answer.text


def test_without_the_papers_the_page_says_so(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    settings = replace(site_data.small_settings(tmp_path), reported=None)
    with (
        mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=site_data.suites()),
        TestClient(create_app(settings)) as own,
    ):
        assert "No paper's tables are at hand." in page(own, "/papers").text
        assert own.get("/papers/optibert").status_code == 404
        assert own.get("/papers.json").json()["tables"][0]["rows"] == []


def test_every_paper_is_exported(client: TestClient) -> None:
    paths = every_path(client.app)  # type: ignore[arg-type]
    papers = [path for path in paths if path.startswith("/papers")]
    assert papers == ["/papers", *(f"/papers/{slug}" for slug in PAPERS)]


def test_no_page_styles_elements(client: TestClient) -> None:
    for path in ("/papers", *(f"/papers/{slug}" for slug in PAPERS)):
        assert not any("style" in attributes for _, attributes in page(client, path).tags)
