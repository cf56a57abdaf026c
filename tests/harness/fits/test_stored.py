"""Fits that are kept in a results folder."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from harness.cli import program
from harness.fits.fitting import FitSettings, fit_law
from harness.fits.runs import read_runs
from harness.fits.stored import FITS
from judged_data import build_fits


def test_a_fit_is_kept_with_its_runs(tmp_path: Path) -> None:
    kept = {name: values for name, values in build_fits()[0].columns.items() if name != "budget"}
    columns = {"method": build_fits()[0].method, **kept}
    table = tmp_path / "runs.csv"
    lines = [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    table.write_text("\n".join([",".join(columns), *lines]))
    typed = ["fit", str(table), "--law", "power", "--results", str(tmp_path), "--out", "mine"]
    done = CliRunner().invoke(program, typed, standalone_mode=False)
    assert done.return_value == 0
    assert "40 runs. `harness serve` shows them at /fits/mine." in done.stderr
    stored, runs = FITS.find_document(tmp_path, "mine"), read_runs(table)
    again = fit_law("power", runs, FitSettings(), "mine")
    assert stored == again.model_copy(update={"when": stored.when})
    assert {*stored.columns} == {"size", "tokens", "flops", "loss", "batch", "trainable", "score", "budget"}
    done = CliRunner().invoke(program, [*typed[:-1], "../mine"], standalone_mode=False)
    assert "cannot be the name of a fit" in str(done.exception)
