"""The pages of protocols: measured rows among the printed ones of each table."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from starlette.testclient import TestClient

import site_data
from harness.jobs.protocol import ProtocolStep
from html_pages import ask, find_rows, page
from leaderboard.pages.papers import _is_of_step
from paper_data import vectors, with_metrics
from site_data import small_app
from suites.glue import TASKS

MINE = "me/mine"


def fill(folder: Path) -> None:
    site_data.fill(folder)
    mine = site_data.measured_model(MINE, "e")
    site_data.put(folder / "results", mine, [with_metrics(mine, name) for name in TASKS])


def test_measured_rows_stand_among_printed_ones_where_their_mean_is_complete(client: TestClient) -> None:
    rows = [row["cells"] for row in find_rows(ask(client, "/protocols/optibert"), "table-3")]
    means = [row["avg"]["value"] for row in rows if row["origin"]["text"] == "printed"]
    (mine,) = [row for row in rows if row["model"]["text"] == MINE]

    # The mean of 80 for five tasks and 85 for the three with two metrics, of 80 and 90.
    assert mine["avg"]["text"] == "81.88"
    assert mine["origin"]["kind"] == "measured"
    # It stands where its mean puts it; one over two of the eight tasks comes last, without a place.
    assert rows.index(mine) == sum(mean > mine["avg"]["value"] for mean in means)
    assert (rows[-1]["model"]["text"], rows[-1]["avg"]["kind"]) == ("acme/tiny-base", "part")


def test_a_protocol_says_its_convention_and_which_mean_it_has(client: TestClient) -> None:
    html = client.get("/protocols/optibert").text

    assert "Measured numbers are by the convention of OptiBERT, appendix D.1" in html
    assert "The table mixes two means" in html
    assert "/protocols/optibert" in page(client, "/papers/optibert").hrefs
    assert client.get("/protocols/none").status_code == 404


def test_a_table_without_a_measured_row_says_how_to_get_one_and_has_no_empty_column(
    client: TestClient,
) -> None:
    tables = {t["name"]: t for t in ask(client, "/protocols/modernbert")["tables"]}
    invite = "No measured row yet: harness run --model BACKBONE --protocol modernbert"
    assert tables["table-7"]["notes"][0] == invite
    assert invite in page(client, "/papers/modernbert").text
    assert not any("No measured row" in note for t in ask(client, "/protocols/optibert")["tables"]
                   if t["name"] == "table-3" for note in t["notes"])  # fmt: skip
    for table in tables.values():
        filled = {key for row in table["rows"] for key, cell in row["cells"].items() if cell["text"]}
        assert {column["key"] for column in table["columns"]} == filled


def test_fractions_are_printed_times_100_as_measured_numbers_are(client: TestClient) -> None:
    rows = find_rows(ask(client, "/protocols/efficient"), "table-1")

    assert [row["cells"]["avg-score"]["text"] for row in rows] == ["51", "50", "50", "50", "47", "30"]


def fill_steps(folder: Path) -> None:
    """Write models of the recipe unified-contrastive, as it is and otherwise, and their bare backbone."""
    site_data.fill(folder)
    results, of = folder / "results", site_data.task("STS15")
    recipe = {"recipe": "unified-contrastive", "variant": ""}
    site_data.put_model(results, "step", site_data.made_of(1, **recipe), {of.name: 0.6})
    site_data.put_model(
        results,
        "variant",
        site_data.made_of(1, recipe="unified-contrastive", settings={"layers": 2}),
        {of.name: 0.7},
    )
    sizes = {"settings": {"batch_size": 64}, "changed": {"batch_size": 64}}
    changed = site_data.made_of(1, **recipe, **sizes)
    site_data.put_model(results, "changed", changed, {of.name: 0.8})
    bare = site_data.measured_model("acme/tiny-base", "b", revision=site_data.COMMIT)
    records = [vectors(bare, of, score, pooling=pooling) for pooling, score in (("mean", 0.4), ("cls", 0.5))]
    site_data.put(results, bare, records)


def test_rows_of_a_step_have_its_recipe_and_settings_alone(tmp_path: Path) -> None:
    listed = site_data.open_suites(*site_data.TYPED, "mteb-v1")
    with mock.patch("site_data.suites", return_value=listed):
        client = TestClient(small_app(tmp_path, fill_steps))
        rows = [row["cells"] for row in find_rows(ask(client, "/protocols/neobert"), "table-4")]

    measured = [cells for cells in rows if cells["origin"]["text"] == "measured"]
    assert {(cells["setting"]["text"], cells["sts"]["text"]) for cells in measured} == {
        ("unified contrastive", "60.00"),
        ("mean pooling, no training", "40.00"),
    }


GRID = [{"rate": rate, "scale": scale} for rate in (1, 2) for scale in (10, 20)]


@pytest.mark.parametrize(
    ("sweep", "is_of_step"),
    [
        ({"rate": (1, 2), "scale": (10, 20)}, True),
        ({"rate": (1, 2), "scale": (10, 30)}, False),
        ({"rate": (1, 2)}, False),
        ({}, False),
    ],
)
def test_the_best_of_a_steps_combinations_is_its_row_and_of_some_of_them_is_not(
    sweep: dict[str, Any], is_of_step: bool
) -> None:
    step, backbone = ProtocolStep(name="s", request={"recipe": ("dpr",), "sweep": sweep}), SimpleNamespace()
    for values, expected in ((GRID, is_of_step), (GRID[:3], False)):
        swept = site_data.sweep_of(["STS15"], values, best=0, setting="rate, scale")
        lineage = site_data.made_of(1, recipe="dpr", variant="", sweep=swept, changed={}, own_data="")
        entry: Any = SimpleNamespace(lineage=lineage, recipe="dpr", modified="", treatment="")
        assert _is_of_step(entry, step, backbone) == expected  # type: ignore[arg-type]
