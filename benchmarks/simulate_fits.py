"""The share of intervals of `harness fit` that hold the truth, on runs drawn from known laws.

    python benchmarks/simulate_fits.py --draws 500 --resamples 400 [--law finetune]

1. Each reported quantity: the share of draws whose 95 % interval holds the truth; the bar is 92 to 98 %.
2. Runs that cannot tell: the share of draws in which the fit says so; the bar is 90 %.

The noise of a loss is 1.5 %, with which the intervals of the parametric fit are as wide as OptiBERT's.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from measuring import read_options, report_missed

from harness.fits.fitting import FitSettings, fit_law
from harness.fits.laws import compute_optimum
from harness.fits.runs import Floats, LawName, Runs, Size
from harness.fits.stored import StoredFit

Rng = np.random.Generator

NOISE = 0.015
PRINTED = {"E": 10**-0.36, "A": 10**2.55, "α": 0.326, "B": 10**2.26, "β": 0.236}
FINETUNED = {"C": 0.3, "a_d": 0.5, "b_d": 10, "α": 0.25, "a_s": 5, "b_s": 1.5, "c_s": 8, "β": 0.2}
RATES = {"learning_rate": (-0.24, 1.84 * math.log(10)), "batch": (0.24, 1.24 * math.log(10))}
"""OptiBERT's slopes and intercepts of the logarithms of settings over those of budgets."""

EXPONENT, PREFACTOR, WIDTH = 0.46, 10**0.22, 0.06
SLOPES = {"full": (-0.15, 6.0), "lora": (-0.17, 6.0 + 0.02 * math.log(9.06e16))}
"""Frontiers of two methods that cross at 9.06e16."""


def build_runs(
    size: Floats, flops: Floats, loss: Floats, random: Rng, method: str = "", unit: float = 1.0
) -> Runs:
    columns = {"size": size, "tokens": flops / size / unit, "flops": flops}
    columns["loss"] = loss * np.exp(NOISE * random.standard_normal(len(loss)))
    counts: Size = "operations" if unit == 1 else "parameters"
    return Runs(columns={**columns, "method": np.full(len(loss), method)}, counts=counts)


def draw_grid(random: Rng, *, ratios: tuple[float, float] = (1, 100), budgets: int = 8) -> Runs:
    """OptiBERT's: budgets of 18 ratios of tokens to size, with the losses of its printed fit."""
    flops = np.repeat(np.geomspace(5e16, 2.9e19, budgets), 18)
    size = np.sqrt(flops / np.tile(np.geomspace(*ratios, 18), budgets))
    loss = PRINTED["E"] + PRINTED["A"] / size ** PRINTED["α"] + PRINTED["B"] / (flops / size) ** PRINTED["β"]
    return build_runs(size, flops, loss, random)


def draw_parabolas(random: Rng, *, shift: float = 0.0) -> Runs:
    """Eight budgets of 18 sizes whose losses are parabolas, with their optima on OptiBERT's power law."""
    flops = np.repeat(np.geomspace(5e16, 2.9e19, 8), 18)
    offset = np.tile(np.linspace(-1.8, 1.8, 18), 8) + shift
    loss = 1.6 * (flops / 1e18) ** -0.08 + WIDTH * offset**2
    return build_runs(PREFACTOR * flops**EXPONENT * np.exp(offset), flops, loss, random)


def draw_methods(random: Rng, *, cross: float = 9.06e16) -> Runs:
    """Six budgets of seven sizes by two methods, whose lowest losses are lines that cross."""
    flops = np.repeat(np.geomspace(1.5e15, 1.5e18, 6), 7)
    offset = np.tile(np.linspace(-1.5, 1.5, 7), 6)
    size = np.repeat(0.05 * flops[::7] ** 0.5, 7) * np.exp(offset)
    parts = []
    for name, (slope, _) in SLOPES.items():
        lowest = np.exp(slope * np.log(flops / cross))
        parts.append(build_runs(size, flops, lowest * (1 + WIDTH * offset**2), random, name, 6.0))
    return parts[0].add_columns(
        **{name: np.concatenate([part[name] for part in parts]) for name in parts[0].columns}
    )


def draw_shares(random: Rng, *, a_s: float = FINETUNED["a_s"]) -> Runs:
    """Six budgets of eight sizes and four shares of trained weights."""
    grid = np.meshgrid(
        np.geomspace(1.5e15, 1.5e18, 6), np.geomspace(1.2e6, 2.5e9, 8), [1 / 6, 1 / 3, 2 / 3, 1]
    )
    flops, size, share = (axis.ravel() for axis in grid)
    tokens, law = flops / (2 * size * (1 + 2 * share)), FINETUNED
    loss = law["C"] + (law["a_d"] * np.log(tokens) + law["b_d"]) / size ** law["α"]
    loss += (a_s * (1 - share) ** law["b_s"] + law["c_s"]) / tokens ** law["β"]
    runs = build_runs(size, flops, loss, random, unit=6.0)
    return runs.add_columns(tokens=tokens, trainable=share)


def draw_settings(random: Rng) -> Runs:
    """OptiBERT's search: 512 runs of random sizes and tokens, with settings about their budget's best."""
    size, tokens = np.exp(random.uniform(np.log([[82e6], [250e6]]), np.log([[2.1e9], [10e9]]), (2, 512)))
    offsets = random.uniform(-1.5, 1.5, (2, 512))
    loss = PRINTED["E"] + PRINTED["A"] / size ** PRINTED["α"] + PRINTED["B"] / tokens ** PRINTED["β"]
    runs = build_runs(size, size * tokens, loss * (1 + WIDTH * (offsets**2).sum(axis=0)), random)
    best = [np.exp(intercept + slope * np.log(size * tokens)) for slope, intercept in RATES.values()]
    return runs.add_columns(**dict(zip(RATES, best * np.exp(offsets), strict=True)))


def draw_places(random: Rng) -> Runs:
    """Thirty runs at each of four places, with three sizes and three numbers of tokens."""
    size, tokens = (np.repeat(axis, 30) for axis in ([1e8, 3e8, 9e8, 9e8], [2e9, 6e9, 1.8e10, 2e9]))
    loss = PRINTED["E"] + PRINTED["A"] / size ** PRINTED["α"] + PRINTED["B"] / tokens ** PRINTED["β"]
    runs = build_runs(size, size * tokens, loss, random)
    return runs.add_columns(seed=np.arange(120.0))


def draw_narrow(random: Rng) -> Runs:
    """Sizes and tokens within a third, which show no curve of the loss."""
    size, tokens = np.exp(random.uniform(19, 19.3, 100)), np.exp(random.uniform(22, 22.3, 100))
    loss = PRINTED["E"] + PRINTED["A"] / size ** PRINTED["α"] + PRINTED["B"] / tokens ** PRINTED["β"]
    return build_runs(size, size * tokens, loss, random)


@dataclass(frozen=True, kw_only=True)
class Unknown:
    """Runs that cannot tell a law's quantities whose names begin with `name`."""

    law: LawName
    draw: Callable[[Rng], Runs]
    name: str
    extrapolate: bool = False

    def is_admitted(self, values: Sequence[tuple[str, float | None]]) -> bool:
        """Whether quantities and their values say so: they have some of these names, and no value of them."""
        matches = [value for name, value in values if name.startswith(self.name)]
        return bool(matches) and not any(value is not None for value in matches)


UNKNOWN = {
    "an optimum beyond the sizes": Unknown(
        law="isoflop", draw=lambda random: draw_parabolas(random, shift=2.5), name="size at"
    ),
    "best runs at the edge of the sizes": Unknown(
        law="isoflop", draw=lambda random: draw_parabolas(random, shift=1.8), name="exponent of size by best"
    ),
    "a frontier beyond the sizes": Unknown(
        law="frontier", draw=lambda random: draw_parabolas(random, shift=2.5), name="slope"
    ),
    "one ratio of tokens to size": Unknown(
        law="chinchilla", draw=lambda random: draw_grid(random, ratios=(20, 20.001)), name="α"
    ),
    "a narrow range": Unknown(law="chinchilla", draw=draw_narrow, name="α"),
    "four places": Unknown(law="chinchilla", draw=draw_places, name="α"),
    "shares of no effect": Unknown(
        law="finetune", draw=lambda random: draw_shares(random, a_s=0), name="b_s"
    ),
    "a crossing beyond the budgets": Unknown(
        law="frontier", draw=lambda random: draw_methods(random, cross=1e22), name="crossing"
    ),
    "a crossing far beyond the budgets, extrapolated": Unknown(
        law="frontier",
        draw=lambda random: draw_methods(random, cross=1e26),
        name="crossing",
        extrapolate=True,
    ),
}


def list_truths(fit: StoredFit) -> dict[tuple[str, str], float]:
    """The true values of the quantities of a fit to one of the drawings, by name and method."""
    if fit.law == "chinchilla":
        truth = {name: np.array([value]) for name, value in PRINTED.items()}
        best = compute_optimum(truth, 2.9e19, 1.0)
        named = {
            "exponent of size": "η",
            **{f"{name} at 2.9e+19": name for name in ("size", "tokens", "loss")},
        }
        return {(name, ""): value for name, value in PRINTED.items()} | {
            (name, ""): float(best[key][0]) for name, key in named.items()
        }
    if fit.law == "finetune":
        return {(name, ""): value for name, value in FINETUNED.items()}
    if fit.law == "power":
        return {
            (f"{part} of ln {name}", ""): value
            for name, values in RATES.items()
            for part, value in zip(("slope", "intercept"), values, strict=True)
        }
    if fit.law == "isoflop":
        truths = {
            "exponent of size": EXPONENT,
            "exponent of tokens": 1 - EXPONENT,
            "exponent of size by best runs": EXPONENT,
            "prefactor of size": PREFACTOR,
            "prefactor of tokens": 1 / PREFACTOR,
        }
        for flops in np.geomspace(5e16, 2.9e19, 8):
            truths |= {f"size at {flops:.3g}": PREFACTOR * flops**EXPONENT}
            truths |= {f"loss at {flops:.3g}": 1.6 * (flops / 1e18) ** -0.08}
        return {(name, ""): value for name, value in truths.items()}
    lines = {
        (f"{part} of ln loss", method): slope if part == "slope" else -slope * math.log(9.06e16)
        for method, (slope, _) in SLOPES.items()
        for part in ("slope", "intercept")
    }
    return {**lines, ("crossing of full and lora", ""): 9.06e16}


DRAWS: dict[LawName, Callable[[Rng], Runs]] = {
    "chinchilla": draw_grid,
    "isoflop": draw_parabolas,
    "frontier": draw_methods,
    "power": draw_settings,
    "finetune": draw_shares,
}


def iter_fits(
    law: LawName, draw: Callable[[Rng], Runs], draws: int, resamples: int, *, extrapolate: bool = False
) -> Iterator[StoredFit]:
    for seed in range(draws):
        runs = draw(np.random.default_rng(seed))
        settings = FitSettings(resamples=resamples, seed=seed, starts=2, extrapolate=extrapolate)
        yield fit_law(law, runs, settings)


def measure_coverage(
    draws: int, resamples: int, laws: Collection[str] = DRAWS.keys()
) -> dict[str, tuple[float, float]]:
    """By law, quantity and method the share of intervals that hold the truth, and of those that are told.

    Quantities at budgets are joined.
    """
    held: dict[str, list[bool]] = {}
    told: dict[str, list[bool]] = {}
    for law, draw in DRAWS.items():
        for fit in iter_fits(law, draw, draws if law in laws else 0, resamples):
            truths = list_truths(fit)
            for quantity in fit.quantities:
                if (truth := truths.get((quantity.name, quantity.method))) is None:
                    continue
                name = f"{law}: {quantity.name.partition(' at ')[0]} {quantity.method}".strip()
                told.setdefault(name, []).append(quantity.value is not None)
                if quantity.low is not None and quantity.high is not None:
                    held.setdefault(name, []).append(quantity.low <= truth <= quantity.high)
    return {name: (float(np.mean(inside)), float(np.mean(told[name]))) for name, inside in held.items()}


def measure_admissions(draws: int, resamples: int, laws: Collection[str] = DRAWS.keys()) -> dict[str, float]:
    """By what cannot be known the share of draws in which the fit says so."""
    shares = {}
    for name, case in UNKNOWN.items():
        if case.law in laws:
            fits = iter_fits(case.law, case.draw, draws, resamples, extrapolate=case.extrapolate)
            values = ([(quantity.name, quantity.value) for quantity in fit.quantities] for fit in fits)
            shares[name] = sum(map(case.is_admitted, values)) / draws
    return shares


def main() -> int:
    options = read_options(__doc__, draws=500, resamples=400, law="")
    begin, missed, laws = time.perf_counter(), [], options.law.split(",") if options.law else DRAWS.keys()
    coverage = measure_coverage(options.draws, options.resamples, laws)
    for name, (share, told) in coverage.items():
        print(f"{name}: {share:.1%} (told in {told:.0%})", flush=True)
        if not 0.92 <= share <= 0.98:
            missed.append(f"{name} {share:.1%}")
    for name, share in measure_admissions(options.draws, options.resamples, laws).items():
        print(f"not told, {name}: {share:.1%}", flush=True)
        if share < 0.9:
            missed.append(f"{name} {share:.1%}")
    print(f"{options.draws} draws x {options.resamples} resamples, {time.perf_counter() - begin:.0f} s")
    return report_missed(missed)


if __name__ == "__main__":
    sys.exit(main())
