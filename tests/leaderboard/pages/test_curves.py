"""The pages of compared runs and of fits."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from harness.fits.estimate import LAWS
from harness.fits.stored import FITS
from harness.watch.curves import compare_runs
from judged_data import build_fits, compare_two_runs, put_compared_runs
from leaderboard.pages.curves import _build_axes
from site_data import small_app


def fill(folder: Path) -> None:
    put_compared_runs(folder / "results")


def read_rows(client: TestClient, path: str, table: str) -> list[dict[str, Any]]:
    """The values of a table's rows by column."""
    tables = client.get(path).json()["tables"]
    rows = next(one["rows"] for one in tables if one["name"] == table)
    return [{key: cell.get("value") for key, cell in row["cells"].items()} for row in rows]


def test_the_page_of_compared_runs_has_what_the_comparison_gives(client: TestClient) -> None:
    built = _build_axes(compare_two_runs())
    assert list(built) == ["step", "tokens"]
    whole = compare_runs(built["step"])
    (pair,) = read_rows(client, "/curves/two-runs.json", "pairs")
    assert (pair["run"], pair["verdict"]) == ("fast", whole.pairs[0].describe_verdict())
    assert pair.get("speedup") is None
    reaches = read_rows(client, "/curves/two-runs.json", "reaches")
    assert [(one["seeds"], one["reached"]) for one in reaches] == [(3, 3), (4, 3)]
    sound = [curve for curve in built["step"] if not curve.diverged]
    speedup = compare_runs(sound, whole.score).pairs[0].speedup
    (pair,) = read_rows(client, "/curves/two-runs.json?sound=1", "pairs")
    assert speedup is not None
    assert pair["speedup"] == pytest.approx(speedup.value, rel=1e-5)
    assert "slow/4 diverged: a score or loss is no number." in client.get("/curves/two-runs").text
    scores = read_rows(client, "/curves/two-runs.json?against=tokens", "scores")
    assert [row["budget"] for row in scores] == [1000 * budget for budget in whole.budgets]
    assert client.get("/curves/two-runs?against=hours").status_code == 404
    assert [row["name"] for row in read_rows(client, "/curves.json", "curves")] == ["two-runs"]


@pytest.mark.parametrize("law", LAWS)
def test_the_page_of_a_fit_has_its_quantities_and_draws_it(client: TestClient, law: str) -> None:
    (fit,) = (one for one in build_fits() if one.law == law)
    rows = read_rows(client, f"/fits/{law}.json", "quantities")
    assert [row.get("value") is None for row in rows] == [q.value is None for q in fit.quantities]
    values = [q.value for q in fit.quantities if q.value is not None]
    assert [row["value"] for row in rows if row.get("value")] == pytest.approx(values, rel=1e-3)
    # The runs tell every constant of fine-tuning of this method alone.
    text = client.get(f"/fits/{law}?method=lora" if law == "finetune" else f"/fits/{law}").text
    assert ("Residuals" in text) == (law in ("isoflop", "chinchilla", "finetune"))
    assert ("Loss against size at each budget" in text) == (law in ("isoflop", "chinchilla"))
    assert ("against operations" in text) == (law in ("frontier", "power"))
    assert client.get(f"/fits/{law}?method=other").status_code == 404


def test_what_papers_print_is_recomputed(client: TestClient) -> None:
    laws = read_rows(client, "/fits.json", "laws")
    (ratio,) = (row for row in laws if row["law"] == "D/F_N vs C" and "parametric" in row["how"])
    assert (ratio["at"], ratio["at-6"]) == pytest.approx((0.282, 32.5), rel=0.01)
    assert ratio["follows"] == "not the prefactor"
    crossing = [row["flops"] for row in read_rows(client, "/fits.json", "crossing")]
    assert crossing[:2] == pytest.approx([9.06e16, math.exp(54)], rel=1e-3)
    constants = read_rows(client, "/fits.json", "constants")
    (alpha,) = (row for row in constants if row["constant"] == "α")
    ours = next(one for one in build_fits() if one.law == "chinchilla").find_values("full")["α"]
    assert alpha["optibert"] == 0.326
    assert any(value == pytest.approx(ours, rel=1e-6) for key, value in alpha.items() if key[:4] == "fit-")


def test_without_documents_the_pages_name_the_commands(tmp_path: Path) -> None:
    client = TestClient(small_app(tmp_path, lambda folder: None))
    assert "harness watch --run a=WATCH" in client.get("/curves").text
    assert "harness fit TABLE --law isoflop --out NAME" in client.get("/fits").text


def test_a_fit_whose_columns_differ_in_length_is_left_out(tmp_path: Path) -> None:
    def put(folder: Path) -> None:
        fit = build_fits()[0]
        columns = {**fit.columns, "loss": fit.columns["loss"][1:]}
        FITS.write_document(folder / "results", fit.name, fit.model_copy(update={"columns": columns}))

    client = TestClient(small_app(tmp_path, put))
    assert read_rows(client, "/fits.json", "fits") == []
