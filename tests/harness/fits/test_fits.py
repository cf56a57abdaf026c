"""Fits of runs whose truth is known, what they refuse, and what the papers' printed constants say."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import simulate_fits
from click.testing import CliRunner
from scipy.optimize import minimize, minimize_scalar
from scipy.stats import t as student
from simulate_fits import draw_grid, draw_methods

from harness.cli import program
from harness.core.errors import UsageError
from harness.fits.estimate import LossEstimator, Optima, draw_weights
from harness.fits.fitting import FitSettings, fit_law
from harness.fits.laws import LOSS_LAWS, compute_optimum, compute_optimum_law
from harness.fits.runs import LawName, Runs, read_runs
from harness.fits.stored import StoredFit

CHINCHILLA = LOSS_LAWS["chinchilla"]
REPORTED = Path(__file__).parents[3] / "results" / "reported"
QUICK = FitSettings(resamples=200, starts=4)


def printed(paper: str, table: str, **wanted: str) -> dict[tuple[str, str], float]:
    """The printed numbers of a table by model and metric."""
    with (REPORTED / f"{paper}.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["table"] == table]
    rows = [row for row in rows if all(row[name] == value for name, value in wanted.items())]
    return {(row["model"], row["metric"]): float(row["value"]) for row in rows}


def numbers(fit: StoredFit) -> dict[str, float | None]:
    return {quantity.name: quantity.value for quantity in fit.quantities}


def write(path: Path, rows: list[list[object]], header: str = "size,tokens,flops,loss") -> Path:
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def table(runs: Runs, path: Path) -> Path:
    rows = zip(*runs.columns.values(), strict=True)
    return write(path, [list(row) for row in rows], ",".join(runs.columns))


# The papers


def test_the_printed_power_laws_do_not_follow_from_the_printed_fit() -> None:
    """OptiBERT's equations 6 and 7 give 10^0.77 and 10^-1.53, where 10^1.80 and 10^-3.59 are printed."""
    fit = {metric: value for (model, metric), value in printed("optibert", "1").items() if "Lhat" in model}
    law = printed("optibert", "1", setting="Sec4.2 parametric")
    tens = math.log(10)
    log_n, eta = compute_optimum_law(fit["A_log10"] * tens, fit["alpha"], fit["B_log10"] * tens, fit["beta"])
    assert log_n / tens == pytest.approx(0.77, abs=0.01)
    assert law["F_N vs C", "a_log10"] - log_n / tens > 1
    assert -2 * log_n / tens == pytest.approx(-1.53, abs=0.01)
    assert law["D/F_N vs C", "a_log10"] + 2 * log_n / tens < -2
    assert eta == pytest.approx(law["F_N vs C", "exponent"], abs=0.01)


def test_the_printed_frontiers_do_not_cross_where_the_paper_says() -> None:
    """They cross at e^54 = 2.8e23 operations, and not at 9.06e16."""
    line = printed("efficient-embeddings", "Sec4.4")
    rise = line["LoRA", "intercept"] - line["full fine-tuning", "intercept"]
    crossing = math.exp(rise / (line["full fine-tuning", "slope"] - line["LoRA", "slope"]))
    assert crossing == pytest.approx(2.8e23, rel=0.02)
    stated = next(iter(printed("efficient-embeddings", "Alg.1").values()))
    assert (stated, crossing / stated > 1e6) == (9.06e16, True)


# Parametric laws


def test_the_closed_optimum_is_that_of_a_numeric_minimisation() -> None:
    fit = {"E": 0.44, "A": 355.0, "α": 0.326, "B": 182.0, "β": 0.236}
    for flops in (1e17, 1e19, 3e21):
        closed = compute_optimum({name: np.array([value]) for name, value in fit.items()}, flops, 6.0)

        def loss(log_size: float, flops: float = flops) -> float:
            size = math.exp(log_size)
            return fit["E"] + fit["A"] / size ** fit["α"] + fit["B"] / (flops / 6 / size) ** fit["β"]

        # The slope of the loss is zero to far more digits than the loss itself shows where it is lowest.
        low, high = 5.0, 40.0
        for _ in range(200):
            middle = (low + high) / 2
            size, tokens = math.exp(middle), flops / 6 / math.exp(middle)
            falls = fit["α"] * fit["A"] / size ** fit["α"] > fit["β"] * fit["B"] / tokens ** fit["β"]
            low, high = (middle, high) if falls else (low, middle)
        assert closed["size"][0] == pytest.approx(math.exp(low), rel=1e-6)
        found = minimize_scalar(loss, bounds=(5, 40), method="bounded")
        assert closed["loss"][0] == pytest.approx(found.fun, rel=1e-6)


def test_both_optimizers_reach_one_optimum_and_resamples_are_at_theirs() -> None:
    runs = draw_grid(np.random.default_rng(1))
    estimator = LossEstimator(CHINCHILLA, runs)
    optima = estimator.find_optima(8)
    assert optima.optima[0][1] >= 0.9
    weights = np.random.default_rng(2).exponential(size=(3, len(runs)))
    every = estimator.refit_resamples(weights, optima.theta)

    def objective(theta: np.ndarray, weight: np.ndarray) -> float:
        size = np.abs(estimator.predict(theta[None], runs)[0] - np.log(runs["loss"]))
        return float((weight * np.where(size <= 1e-3, size**2 / 2e-3, size - 5e-4)).sum())

    for theta, weight in zip(every, weights, strict=True):
        best = minimize(objective, theta, args=(weight,), method="Nelder-Mead", options={"maxiter": 4000})
        assert objective(theta, weight) <= best.fun * 1.002


@pytest.mark.parametrize(("budgets", "ratios"), [(4, 2), (4, 5)])
def test_runs_that_a_fit_meets_tell_no_noise(budgets: int, ratios: int) -> None:
    """Of eight runs and five parameters most residuals are 0: the half width is that of the noise still."""
    half = []
    for seed in range(4):
        runs = draw_grid(np.random.default_rng(seed), budgets=budgets)
        runs = runs.select_runs(np.isin(np.arange(len(runs)) % 18, np.linspace(0, 17, ratios).round()))
        estimator = LossEstimator(CHINCHILLA, runs)
        theta = estimator.find_optima(2).theta
        lengths = np.linalg.svd(estimator.compute_jacobian(theta[None])[0])[1]
        half.append(estimator.measure_weakest(theta)[0] * lengths[-1])
    least = student.ppf(0.975, len(runs) - 5) * simulate_fits.NOISE
    assert np.mean(half) > 0.5 * least


def test_several_optima_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = draw_grid(np.random.default_rng(1))
    ends = Optima(theta=np.log([0.4, 0.3, 2, 0.3, 2]), optima=((1.0, 0.5), (2.0, 0.5)))
    monkeypatch.setattr(LossEstimator, "find_optima", lambda *_: ends)
    assert "2 optima is reached by only 50% of the starts" in fit_law("chinchilla", runs, QUICK).notes[0]


def test_methods_share_resamples() -> None:
    runs = draw_methods(np.random.default_rng(1))
    weights = draw_weights(runs, "flops", 5, 0)
    first, second = (np.flatnonzero(runs["method"] == method) for method in runs.methods)
    assert (weights[:, first] == weights[:, second]).all()
    assert len({*weights[0].tolist()}) == len(first)


@pytest.mark.parametrize("law", ["chinchilla", "isoflop", "frontier"])
def test_a_budget_beyond_the_runs_needs_extrapolate(law: LawName) -> None:
    runs = draw_grid(np.random.default_rng(1))
    if law == "frontier":
        with pytest.raises(UsageError, match="plans no budget"):
            fit_law(law, runs, FitSettings(budget=1e19))
        return
    with pytest.raises(UsageError, match="outside the runs"):
        fit_law(law, runs, FitSettings(budget=1e21, resamples=100, starts=2))
    fit = fit_law(law, runs, FitSettings(budget=1e21, resamples=100, starts=2, extrapolate=True))
    size = fit.plans[""]["size"]
    assert size.low is not None
    assert size.low < size.value < size.high  # type: ignore[operator]


def test_the_finetuning_law_is_recovered_where_it_is_exact() -> None:
    random = np.random.default_rng(3)
    size, tokens = np.exp(random.uniform(16, 21, 80)), np.exp(random.uniform(17, 22, 80))
    share = random.choice([0.1, 0.3, 0.6, 1.0], 80)
    loss = 0.3 + (0.5 * np.log(tokens) + 10) / size**0.25 + (5 * (1 - share) ** 1.5 + 8) / tokens**0.2
    columns = {"size": size, "tokens": tokens, "loss": loss, "trainable": share}
    estimator = LossEstimator(LOSS_LAWS["finetune"], runs := Runs(columns=columns))
    predicted = estimator.predict(estimator.find_optima().theta[None], runs)[0]
    assert np.abs(predicted - np.log(loss)).max() < 2e-3


def test_the_power_law_of_a_setting() -> None:
    random = np.random.default_rng(3)
    flops = np.exp(random.uniform(38, 45, 512))
    rate = np.exp(random.uniform(math.log(5e-4), math.log(1e-2), 512))
    best = 69 * flops**-0.24
    side, loss = np.sqrt(flops / 6), 2 * (flops / 1e18) ** -0.05 * np.exp(0.05 * np.log(rate / best) ** 2)
    columns = {"size": side, "tokens": side, "flops": flops, "loss": loss, "learning_rate": rate}
    runs = Runs(columns={**columns, "method": np.full(512, "")})
    fit = fit_law("power", runs, QUICK)
    slope = fit.quantities[0]
    assert (slope.name, slope.value) == ("slope of ln learning_rate", pytest.approx(-0.24, abs=0.03))
    assert fit.notes[-1].startswith("The best learning_rate of the largest budget, left out, is ")
    order = np.argsort(flops)
    ordered = runs.add_columns(**{name: values[order] for name, values in runs.columns.items()})
    assert fit_law("power", ordered, QUICK).notes == fit.notes


def test_the_correlation_of_loss_and_score(tmp_path: Path) -> None:
    """Ranks 1 2 3 4 5 against 5 3 4 2 1: the squared differences are 38, and 1 - 6 · 38 / 120 = -0.9."""
    scores = [0.9, 0.7, 0.8, 0.3, 0.2]
    rows: list[list[object]] = [[1e6, 10 ** (9 - n), n + 1.0, score] for n, score in enumerate(scores)]
    path = write(tmp_path / "runs.csv", rows, "size,tokens,loss,score")
    runs = read_runs(path, needed=("score",))
    assert numbers(fit_law("correlation", runs, QUICK))["Spearman's correlation of loss and score"] == -0.9
    typed = ["fit", str(path), "--law", "correlation", "--resamples", "200"]
    printed = CliRunner().invoke(program, typed, standalone_mode=False).output
    assert "−0.9" in printed
    assert "-" not in printed
    random = np.random.default_rng(1)
    loss = random.standard_normal(300)
    score = -0.9 * loss + math.sqrt(0.19) * random.standard_normal(300)
    columns = {**dict.fromkeys(("size", "tokens", "flops"), np.ones(300)), "loss": loss, "score": score}
    many = Runs(columns={**columns, "method": np.full(300, "")})
    pearson = fit_law("correlation", many, QUICK).quantities[1]
    fisher = math.atanh(pearson.value) + np.array([-1.96, 1.96]) / math.sqrt(297)  # type: ignore[arg-type]
    assert np.allclose([pearson.low, pearson.high], np.tanh(fisher), atol=0.015)


# What cannot be known, and bad tables


@pytest.mark.parametrize(
    "name",
    [
        # A law of five parameters is fitted from 32 starts. A narrow range and one ratio, where each takes
        # longest, are only in the draws of `test_intervals_hold_the_truth`.
        pytest.param(name, marks=[pytest.mark.slow] if case.law in ("chinchilla", "finetune") else [])
        for name, case in simulate_fits.UNKNOWN.items()
        if name not in ("a narrow range", "one ratio of tokens to size")
    ],
)
def test_what_cannot_be_known_has_a_reason_and_no_value(name: str, tmp_path: Path) -> None:
    case = simulate_fits.UNKNOWN[name]
    path = table(case.draw(np.random.default_rng(0)), tmp_path / "runs.csv")
    typed = ["fit", str(path), "--law", case.law, "--size-is", "operations", "--resamples", "200", "--json"]
    typed += ["--extrapolate"] * case.extrapolate
    done = CliRunner().invoke(program, typed, standalone_mode=False)
    assert done.return_value == 3
    quantities = json.loads(done.output)["quantities"]
    assert case.is_admitted([(quantity["name"], quantity["value"]) for quantity in quantities])
    reasons = [quantity for quantity in quantities if quantity["reason"]]
    assert {quantity[end] for quantity in reasons for end in ("value", "low", "high")} == {None}


def grid(
    number: Callable[[float, float], float] = lambda size, tokens: 400 / size**0.3 + 300 / tokens**0.3,
) -> list[list[object]]:
    sizes, budgets = (1e6, 2e6, 4e6, 8e6, 1.6e7), (1e15, 1e16, 1e17)
    return [[size, c / 6 / size, c, 1 + number(size, c / 6 / size)] for c in budgets for size in sizes]


BAD = {
    "fewer runs": ("chinchilla", lambda rows: rows[:5], "are fewer than the 8"),
    "a single size": ("chinchilla", lambda rows: [r for r in rows if r[0] == 1e6], "size is constant"),
    "a loss of zero": ("chinchilla", lambda rows: [*rows[:-1], [*rows[-1][:3], 0]], "runs.csv:16"),
    "a text": ("chinchilla", lambda rows: [*rows[:-1], [*rows[-1][:3], "low"]], "'low', not a number"),
    "not a number": ("chinchilla", lambda rows: [*rows[:-1], [*rows[-1][:3], "nan"]], "have diverged"),
    "diverged": ("chinchilla", lambda rows: [*rows[:-1], [*rows[-1][:3], 9.0]], "have diverged"),
    "twice": ("chinchilla", lambda rows: [*rows, rows[0]], "in the table twice: .*:2, .*:17"),
    "budgets": (
        "isoflop",
        lambda rows: [[*r[:2], r[2] * (1 + 0.08 * (n % 2)), r[3]] for n, r in enumerate(rows)],
        "neither one",
    ),
    "millions": ("isoflop", lambda rows: [[rows[0][0] / 1e6, *rows[0][1:]], *rows[1:]], "Units are mixed"),
    "all millions": ("isoflop", lambda rows: [[r[0] / 1e6, *r[1:]] for r in rows], "about 6 is expected"),
    "constant": ("isoflop", lambda rows: [[*r[:3], 2.0] for r in rows], "loss is constant"),
}


@pytest.mark.parametrize("name", [*BAD])
def test_bad_tables_are_refused(name: str, tmp_path: Path) -> None:
    law, change, message = BAD[name]
    path = write(tmp_path / "runs.csv", change(grid()))
    with pytest.raises(UsageError, match=message):
        fit_law(law, read_runs(path), QUICK)  # type: ignore[arg-type]


def test_a_missing_file_is_misuse(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nope\.csv: No such file"):
        read_runs(tmp_path / "nope.csv")


def test_diverged_runs_are_left_out_on_request(tmp_path: Path) -> None:
    rows = [*grid(), [3e6, 1e8, 1.8e15, "nan"]]
    runs = read_runs(write(tmp_path / "runs.csv", rows), drop_diverged=True)
    assert (len(runs), runs.notes) == (15, (f"1 diverged runs are left out: {tmp_path}/runs.csv:17.",))


def test_close_budgets_count_as_one_and_it_is_said(tmp_path: Path) -> None:
    rows = [[*row[:2], float(row[2]) * (1 + 0.01 * (n % 2)), row[3]] for n, row in enumerate(grid())]  # type: ignore[arg-type]
    fit = fit_law("isoflop", read_runs(write(tmp_path / "runs.csv", rows)), QUICK)
    assert fit.notes[0] == "Runs within 5 % count as of one budget: 3 budgets, up to 1.0% wide."


def test_columns_have_other_names_and_another_format(tmp_path: Path) -> None:
    rows = np.array(grid(), float).T
    pq.write_table(
        pa.table(dict(zip(("params", "tokens", "error"), rows[[0, 1, 3]], strict=True))),
        tmp_path / "runs.parquet",
    )
    runs = read_runs(tmp_path / "runs.parquet", columns={"size": "params", "loss": "error"})
    assert np.allclose(runs["flops"], rows[2])
    with pytest.raises(UsageError, match="no column 'loss'"):
        read_runs(tmp_path / "runs.parquet")


def test_three_budgets_are_too_few_to_predict_the_largest() -> None:
    fit = fit_law("frontier", draw_grid(np.random.default_rng(1), budgets=3), FitSettings(resamples=2))
    assert "lowest loss of the largest budget is not predicted" in " ".join(fit.notes)


def test_operations_of_a_list_of_runs_are_those_of_a_fit(tmp_path: Path) -> None:
    rows = (np.array(grid(), float) * [1, 1, 5, 1]).tolist()
    file = write(tmp_path / "runs.csv", rows, "size,tokens,operations,loss")
    assert np.allclose(read_runs(file)["flops"], [row[2] for row in rows])
    empty = write(
        tmp_path / "empty.csv", [[*row[:2], "", row[3]] for row in rows], "size,tokens,operations,loss"
    )
    assert np.allclose(read_runs(empty)["flops"], [row[2] / 5 for row in rows])


def test_a_budget_gives_the_command_of_a_method_that_is_a_recipe(tmp_path: Path) -> None:
    path = table(draw_methods(np.random.default_rng(0)), tmp_path / "runs.csv")
    text = path.read_text().splitlines()
    path.write_text(
        "\n".join([f"{text[0]},rank", *(f"{line},{32 * line.endswith('lora')}" for line in text[1:])])
    )
    typed = ["fit", str(path), "--law", "isoflop", "--budget", "1e17", "--resamples", "200", "--json"]
    done = json.loads(CliRunner().invoke(program, typed, standalone_mode=False).output)
    assert done["commands"]["lora"].endswith("--recipe efficient-lora --budget 1e+17 --set rank=32")
    assert done["commands"]["full"].endswith("--recipe efficient-full --budget 1e+17")
    assert done["method"] is None, "the intervals of both losses overlap"


@pytest.mark.slow
def test_intervals_hold_the_truth() -> None:
    """A twentieth of the draws of benchmarks/simulate_fits.py, of the slowest law half of these, with a
    quarter of the resamples; the bar is wider by three deviations."""
    others = simulate_fits.DRAWS.keys() - {"finetune"}
    shares = simulate_fits.measure_coverage(draws=25, resamples=100, laws=others)
    shares |= simulate_fits.measure_coverage(draws=12, resamples=100, laws=["finetune"])
    assert {name: share for name, (share, _) in shares.items() if share < 0.8} == {}
    admissions = simulate_fits.measure_admissions(draws=3, resamples=100)
    assert admissions == dict.fromkeys(simulate_fits.UNKNOWN, 1.0)
