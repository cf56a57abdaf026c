"""The pages of protocols: measured rows among the printed ones of each table."""

from __future__ import annotations

from pathlib import Path

from starlette.testclient import TestClient

import site_data
from html_pages import ask, find_rows, page
from paper_data import with_metrics
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


def test_fractions_are_printed_times_100_as_measured_numbers_are(client: TestClient) -> None:
    rows = find_rows(ask(client, "/protocols/efficient"), "table-1")

    assert [row["cells"]["avg-score"]["text"] for row in rows] == ["51", "50", "50", "50", "47", "30"]
