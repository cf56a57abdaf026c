"""Grids of runs: cells against scipy's, bins by hand, and what is refused or said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binned_statistic_2d

from harness.cli import invoke
from harness.core.errors import UsageError
from harness.watch.curves import Row
from harness.watch.grids import GRIDS, build_grid
from harness.watch.runs import write_table

MEAN = "mean of mteb"


def build_rows(count: int = 128, **more: Any) -> list[Row]:
    """Runs like those of OptiBERT's figure 6: a masking ratio, tokens, a size, and a score."""
    rng = np.random.default_rng(3)
    numbers = zip(
        rng.uniform(0.1, 0.8, count), rng.uniform(0, 2, count), rng.normal(50, 5, count), strict=True
    )
    return [
        {
            "run": f"r{n}",
            "seed": None,
            "masking": m,
            "size": 1e8,
            "tokens": 1e8 * 10**ratio,
            MEAN: score,
            **more,
        }
        for n, (m, ratio, score) in enumerate(numbers)
    ]


def test_cells_are_scipys() -> None:
    rows = build_rows()
    grid = build_grid(rows, ["masking", "tokens/size=6"])
    means, counts = grid.compute_cells()
    x, y, score = ([run[at] for run in grid.model_dump()["runs"]] for at in ("x", "y", "score"))
    edges = [np.quantile(values, np.linspace(0, 1, 7)) for values in (x, y)]
    assert [list(axis.edges) for axis in grid.axes] == [pytest.approx(list(e)) for e in edges]
    for statistic, ours in (("mean", means), ("count", counts)):
        truth = binned_statistic_2d(x, y, score, statistic, bins=edges).statistic.T
        assert np.allclose(ours, truth, equal_nan=True)
    assert counts.sum() == 128
    assert (counts.sum(axis=0).min(), counts.sum(axis=1).max()) == (21, 22)


def test_few_values_have_a_bin_each() -> None:
    rows = [{**row, "masking": (0.15, 0.4, 0.8)[n % 3]} for n, row in enumerate(build_rows(9))]
    grid = build_grid(rows, ["masking", "tokens=1"])
    assert grid.axes[0].format_bins() == ["0.15", "0.4", "0.8"]
    means, counts = grid.compute_cells()
    assert counts.tolist() == [[3, 3, 3]]
    assert means[0, 1] == pytest.approx(np.mean([row[MEAN] for row in rows if row["masking"] == 0.4]))


def test_a_bin_holds_its_lower_edge_and_the_last_both() -> None:
    values = enumerate((-1, 0, 0.5, 1, 3, 3.1))
    rows: list[Row] = [{"run": n, "masking": x, "tokens": n % 2 + 1, MEAN: 50} for n, x in values]
    assert build_grid(rows, ["masking=0:1:3", "tokens=1"]).compute_cells()[1].tolist() == [[2, 2]]


def test_what_is_empty_beside_or_missing_is_said() -> None:
    rows = build_rows(20)
    rows[3]["masking"] = None
    rows[4][MEAN] = float("nan")
    rows[5]["diverged"] = "yes"
    grid = build_grid(rows, ["masking=0.3:0.5:0.7", "tokens/size=3"])
    beside = sum(
        not 0.3 <= row["masking"] <= 0.7 for row in rows if row["masking"] and row[MEAN] == row[MEAN]
    )
    assert grid.notes[:3] == (
        "2 of 20 rows lack a fact or a score, and are left out: r3, r4.",
        "r4 diverged: a score or loss is no number.",
        "r5 diverged: as stated.",
    )
    assert grid.notes[3] == f"{beside} of 18 runs lie beside the stated edges."
    fewer = build_grid(build_rows(20), ["masking", "tokens/size"])
    empty = int((fewer.compute_cells()[1] == 0).sum())
    assert fewer.notes == (f"Empty cells: {empty} of 36, as there are only 20 runs.",)


@pytest.mark.parametrize(
    ("axes", "change", "said"),
    [
        (["masking"], {}, "A grid has two axes, and 1 are given"),
        (["masking", "size"], {}, "size has 1 values in the 8 rows"),
        (["masking", "token"], {}, "No column of numbers is called 'token'"),
        (["masking=0.5:0.2", "tokens"], {}, "'0.5:0.2' are no bins of masking"),
        (["masking=0", "tokens"], {}, "'0' are no bins of masking"),
        (["masking", "tokens=99"], {}, "'99' are no bins of tokens"),
        (["masking", "tokens"], {"run": "same"}, "Rows are there twice: same"),
        (["masking", "tokens"], {MEAN: None}, "masking has 0 values in the 0 rows"),
        (["masking", "tokens"], {"mean of beir": 40.0}, "There are 2 columns of scores"),
    ],
)
def test_what_is_no_grid_is_refused(axes: list[str], change: Row, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        build_grid(build_rows(8, **change), axes)


def test_scores_of_several_kinds_are_refused() -> None:
    rows = build_rows(8)
    with pytest.raises(UsageError, match="The rows have several methods: dpr, simcse"):
        build_grid(
            [{**r, "method": ("simcse", "dpr")[n % 2]} for n, r in enumerate(rows)], ["masking", "tokens"]
        )
    with pytest.raises(UsageError, match="1 of 8 scores lie between 0 and 1"):
        build_grid([{**rows[0], MEAN: 0.5}, *rows[1:]], ["masking", "tokens"])


def test_the_command_prints_and_keeps_a_grid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, results = tmp_path / "runs.csv", tmp_path / "results"
    write_table(file, [{**row, MEAN: row[MEAN] / 100} for row in build_rows()])
    asked = [
        "watch",
        "--runs",
        str(file),
        "--results",
        str(results),
        "--grid",
        "masking=2",
        "--grid",
        "tokens=2",
    ]
    assert invoke([*asked, "--out", "figure6"]) == 0
    said = capsys.readouterr()
    grid = GRIDS.find_document(results, "figure6")
    means, counts = grid.compute_cells()
    assert f"{means[1, 0]:.2f} ({counts[1, 0]})" in said.out
    assert "shows them at /grids/figure6" in said.err
    assert invoke([*asked, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["means"] == means.tolist()
    assert document["counts"] == counts.tolist()
    assert invoke([*asked, "--against", "tokens"]) == 2
    assert "--grid takes neither --against nor --reach" in capsys.readouterr().err
    assert invoke(["watch", "--grid", "masking", "--results", str(results)]) == 2
    assert "are of compared runs" in capsys.readouterr().err
