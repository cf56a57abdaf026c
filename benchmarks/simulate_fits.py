"""The share of intervals of `harness fit` that hold the truth, on runs drawn from known laws.

    python benchmarks/simulate_fits.py --draws 500 --resamples 400

1. Each reported quantity: the share of draws whose 95 % interval holds the truth; the bar is 92 to 98 %.
2. Runs that cannot tell: the share of draws in which the fit says so; the bar is 90 %.

The noise of a loss is 1.5 %, with which the intervals of the parametric fit are as wide as OptiBERT's.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from measuring import read_options, report_missed

from harness.fits.fitting import Fit, FitSettings, LawName, fit_law
from harness.fits.parametric import compute_optimum
from harness.fits.runs import Floats, Runs

Rng = np.random.Generator

NOISE = 0.015
PRINTED = {"E": 10**-0.36, "A": 10**2.55, "α": 0.326, "B": 10**2.26, "β": 0.236}
EXPONENT, PREFACTOR, WIDTH = 0.46, 10**0.22, 0.06
SLOPES = {"full": (-0.15, 6.0), "lora": (-0.17, 6.0 + 0.02 * math.log(9.06e16))}
"""Frontiers of two methods that cross at 9.06e16."""


def build_runs(
    size: Floats, flops: Floats, loss: Floats, random: Rng, method: str = "", unit: float = 1.0
) -> Runs:
    return Runs(
        size=size,
        tokens=flops / size / unit,
        flops=flops,
        loss=loss * np.exp(NOISE * random.standard_normal(len(loss))),
        method=(method,) * len(loss),
        others={},
        places=("",) * len(loss),
        counts="operations" if unit == 1 else "parameters",
    )


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
    first, second = parts
    joined = {
        name: np.concatenate([getattr(first, name), getattr(second, name)])
        for name in ("size", "tokens", "flops", "loss")
    }
    return replace(first, method=first.method + second.method, places=("",) * 84, **joined)  # type: ignore[arg-type]


def draw_narrow(random: Rng) -> Runs:
    """Sizes and tokens within a third, which show no curve of the loss."""
    size, tokens = np.exp(random.uniform(19, 19.3, 100)), np.exp(random.uniform(22, 22.3, 100))
    loss = PRINTED["E"] + PRINTED["A"] / size ** PRINTED["α"] + PRINTED["B"] / tokens ** PRINTED["β"]
    return build_runs(size, size * tokens, loss, random)


UNKNOWN: dict[str, tuple[LawName, Callable[[Rng], Runs]]] = {
    "an optimum beyond the sizes": ("isoflop", lambda random: draw_parabolas(random, shift=2.5)),
    "one ratio of tokens to size": ("chinchilla", lambda random: draw_grid(random, ratios=(20, 20.001))),
    "a narrow range": ("chinchilla", draw_narrow),
    "a crossing beyond the budgets": ("frontier", lambda random: draw_methods(random, cross=1e22)),
}


def list_truths(fit: Fit) -> dict[tuple[str, str], float]:
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
}


def iter_fits(law: LawName, draw: Callable[[Rng], Runs], draws: int, resamples: int) -> Iterator[Fit]:
    for seed in range(draws):
        runs = draw(np.random.default_rng(seed))
        yield fit_law(law, runs, FitSettings(resamples=resamples, seed=seed, starts=2))


def measure_coverage(draws: int, resamples: int) -> dict[str, float]:
    """By law, quantity and method the share of intervals that hold the truth; those at budgets are joined."""
    held: dict[str, list[bool]] = {}
    for law, draw in DRAWS.items():
        for fit in iter_fits(law, draw, draws, resamples):
            truths = list_truths(fit)
            for quantity in fit.quantities:
                truth = truths.get((quantity.name, quantity.method))
                if truth is not None and quantity.low is not None and quantity.high is not None:
                    name = f"{law}: {quantity.name.partition(' at ')[0]} {quantity.method}".strip()
                    held.setdefault(name, []).append(quantity.low <= truth <= quantity.high)
    return {name: sum(inside) / len(inside) for name, inside in held.items()}


def measure_admissions(draws: int, resamples: int) -> dict[str, float]:
    """By what cannot be known the share of draws in which the fit says so."""
    return {
        name: sum(not fit.identified for fit in iter_fits(law, draw, draws, resamples)) / draws
        for name, (law, draw) in UNKNOWN.items()
    }


def main() -> int:
    options = read_options(__doc__, draws=500, resamples=400)
    begin, missed = time.perf_counter(), []
    for name, share in measure_coverage(options.draws, options.resamples).items():
        print(f"{name}: {share:.1%}", flush=True)
        if not 0.92 <= share <= 0.98:
            missed.append(f"{name} {share:.1%}")
    for name, share in measure_admissions(options.draws, options.resamples).items():
        print(f"not told, {name}: {share:.1%}", flush=True)
        if share < 0.9:
            missed.append(f"{name} {share:.1%}")
    print(f"{options.draws} draws x {options.resamples} resamples, {time.perf_counter() - begin:.0f} s")
    return report_missed(missed)


if __name__ == "__main__":
    sys.exit(main())
