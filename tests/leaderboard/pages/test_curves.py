"""The pages of compared runs and of fits."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from harness.fits.runs import LAWS
from harness.fits.stored import FITS
from harness.watch.curves import CURVES, RunTable, build_curves, compare_runs
from harness.watch.grids import GRIDS
from judged_data import build_fits, build_small_grid, compare_two_runs, put_compared_runs
from leaderboard.pages.fits import BESIDE
from leaderboard.pages.runs import _build_axes
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


def test_the_page_of_a_single_run_has_its_curve_and_compares_nothing(tmp_path: Path) -> None:
    rows = [
        {"run": "mine", "seed": seed, "step": step, "score": 0.1 * step + 0.01 * seed}
        for seed in (1, 2, 3)
        for step in (1, 2, 4)
    ]
    column, curves = build_curves(rows, "step")
    table = RunTable.from_rows(rows, column, curves, name="mine", axis="step")

    def put(folder: Path) -> None:
        CURVES.write_document(folder / "results", "mine", table)

    client = TestClient(small_app(tmp_path, put))
    tables = client.get("/curves/mine.json").json()["tables"]
    assert [one["name"] for one in tables if one["name"] != "runs"] == ["reaches", "scores"]
    scores = {row["budget"]: row["score-0"] for row in read_rows(client, "/curves/mine.json", "scores")}
    assert scores == pytest.approx({1: 12, 2: 22, 4: 42})
    assert "All pairs of runs" not in client.get("/curves/mine").text


def test_the_page_of_a_grid_has_its_cells_and_says_which_are_empty(client: TestClient) -> None:
    cells = [
        [row.get(f"c{at}") for at in range(4)]
        for row in read_rows(client, "/grids/six-runs.json", "grid-values")
    ]
    assert cells == [
        ["0.15", "1B – 2B", 50.0, 1],
        ["0.4", "1B – 2B", pytest.approx(54.0), 3],
        ["0.15", "2B – 3B", pytest.approx(51.5), 2],
        ["0.4", "2B – 3B", None, 0],
    ]
    text = client.get("/grids/six-runs").text
    assert "Empty cells: 1 of 4." in text
    assert text.count(">none</text>") == 1
    assert client.get("/grids/other").status_code == 404
    assert [row["axes"] for row in read_rows(client, "/curves.json", "grids")] == ["masking × tokens"]


@pytest.mark.parametrize("law", LAWS)
def test_the_page_of_a_fit_has_its_quantities_and_draws_it(client: TestClient, law: str) -> None:
    (fit,) = (one for one in build_fits() if one.law == law)
    rows = read_rows(client, f"/fits/{law}.json", "quantities")
    told = {q.name: q.value for q in fit.quantities if q.value is not None}
    assert {r["quantity"]: r["value"] for r in rows if not r.get("reason")} == pytest.approx(told, rel=1e-3)
    text = client.get(f"/fits/{law}").text
    assert ("Residuals" in text) == (law in ("isoflop", "chinchilla", "finetune"))
    # The runs of `lora` tell no constant of a law with an offset.
    other, untold = client.get(f"/fits/{law}?method=lora").text, law in ("chinchilla", "finetune")
    assert ("lora is not drawn, as the runs do not tell all its constants" in other) == untold
    assert ("Residuals" in other) == (law == "isoflop")
    assert ("Loss against size at each budget" in text) == (law in ("isoflop", "chinchilla"))
    assert (">6.4e16 operations<" in text) == (law in ("isoflop", "chinchilla"))
    assert ("of each run against operations" in text) == (law in ("frontier", "power"))
    assert ("Score of each run against its loss" in text) == (law == "correlation")
    assert client.get(f"/fits/{law}?method=other").status_code == 404


def test_what_papers_print_is_recomputed(client: TestClient) -> None:
    laws = read_rows(client, "/fits.json", "laws")
    (ratio,) = (row for row in laws if row["law"] == "D/F_N vs C" and "parametric" in row["how"])
    assert (ratio["at"], ratio["at-6"]) == pytest.approx((0.282, 32.5), rel=0.01)
    assert ratio["apart"] == "the prefactor"
    crossing = [row["flops"] for row in read_rows(client, "/fits.json", "crossing")]
    assert crossing[:2] == pytest.approx([9.06e16, math.exp(54)], rel=1e-3)
    constants = read_rows(client, "/fits.json", "constants")
    (alpha,) = (row for row in constants if row["constant"] == "α")
    ours = next(one for one in build_fits() if one.law == "chinchilla").find_values("full")["α"]
    assert alpha["optibert"] == 0.326
    assert any(value == pytest.approx(ours, rel=1e-6) for key, value in alpha.items() if key[:4] == "fit-")


def test_of_many_fits_the_newest_stand_beside_what_is_printed(tmp_path: Path) -> None:
    def put(folder: Path) -> None:
        for number in range(BESIDE + 2):
            changes = {"name": f"fit-{number}", "when": f"2026-01-{number + 10}T00:00:00+00:00"}
            fit = build_fits()[0].model_copy(update=changes)
            FITS.write_document(folder / "results", fit.name, fit)

    client = TestClient(small_app(tmp_path, put))
    tables = {table["name"]: table for table in client.get("/fits.json").json()["tables"]}
    assert len(tables["fits"]["rows"]) == BESIDE + 2
    heads = [column["label"] for column in tables["constants"]["columns"]]
    assert {head.partition(" ")[0] for head in heads[2:]} == {f"fit-{n}" for n in range(2, BESIDE + 2)}


def test_without_documents_the_pages_name_the_commands(tmp_path: Path) -> None:
    client = TestClient(small_app(tmp_path, lambda folder: None))
    assert "harness watch --run a=WATCH" in client.get("/curves").text
    assert "harness fit TABLE --law isoflop --out NAME" in client.get("/fits").text


def test_documents_that_no_page_can_show_are_left_out(tmp_path: Path) -> None:
    fit, runs = build_fits()[0], compare_two_runs()
    fits: dict[str, dict[str, Any]] = {
        "lengths": {"columns": {**fit.columns, "loss": fit.columns["loss"][1:]}},
        "zero": {"columns": {**fit.columns, "size": (0.0, *fit.columns["size"][1:])}},
        "empty": {"columns": dict.fromkeys(fit.columns, ()), "method": ()},
        "law": {"law": "of another version"},
    }
    tables: dict[str, dict[str, Any]] = {"empty": {"points": ()}, "axis": {"axis": "hours"}}

    grid = build_small_grid()
    falling = grid.axes[0].model_copy(update={"edges": (3.0, 2.0, 1.0)})

    def put(folder: Path) -> None:
        changed = grid.model_copy(update={"name": "falling", "axes": (falling, grid.axes[1])})
        GRIDS.write_document(folder / "results", "falling", changed)
        for name, changes in fits.items():
            FITS.write_document(folder / "results", name, fit.model_copy(update={**changes, "name": name}))
        for name, changes in tables.items():
            CURVES.write_document(folder / "results", name, runs.model_copy(update={**changes, "name": name}))

    client = TestClient(small_app(tmp_path, put))
    assert read_rows(client, "/fits.json", "fits") == []
    assert read_rows(client, "/curves.json", "curves") == []
    assert [one["name"] for one in client.get("/curves.json").json()["tables"]] == ["curves"]


def test_names_of_runs_and_methods_are_texts(tmp_path: Path) -> None:
    """Not markup, wherever a page has them: tables, charts, notes and forms."""
    hostile = "<img src=x onerror=alert(1)>"

    def put(folder: Path) -> None:
        fit, runs = build_fits()[0], compare_two_runs()
        points = tuple(one.model_copy(update={"run": hostile + one.run}) for one in runs.points)
        CURVES.write_document(
            folder / "results", "runs", runs.model_copy(update={"points": points, "name": "runs"})
        )
        changes = {"method": tuple(hostile + name for name in fit.method), "notes": (hostile,), "name": "fit"}
        FITS.write_document(folder / "results", "fit", fit.model_copy(update=changes))

    client = TestClient(small_app(tmp_path, put))
    for path in ("/curves/runs", "/fits/fit", "/fits"):
        text = client.get(path).text
        assert hostile not in text
        assert "&lt;img" in text
