"""A law fitted to runs: its quantities with intervals, what it cannot tell, and the plan of a budget."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
from scipy.stats import bootstrap, pearsonr, rankdata

from harness.core.errors import UsageError
from harness.fits import budgets, parametric
from harness.fits.budgets import BudgetOptimum
from harness.fits.estimate import FitInterval, FittedLine, Quantity, compute_interval, draw_weights, fit_line
from harness.fits.parametric import CHINCHILLA, FINETUNING, Law, LawInputs
from harness.fits.runs import Floats, Runs

LawName = Literal["isoflop", "chinchilla", "finetune", "power", "frontier", "correlation"]
LAWS: tuple[LawName, ...] = get_args(LawName)

ALIKE = 0.995
"""The correlation of a term with its exponent over resamples from which on the two are not told apart."""

ONE_OPTIMUM = 0.9
"""The share of starts that reach the best optimum, below which a fit is marked."""

WIDE = 1.0
"""An exponent whose interval is wider than this is not known: those of the papers are 0.2 to 0.5."""

FLAT = 2.0
"""A law is not known if some change of its parameters together, by this much in logarithms of constants and
in exponents, is within the noise (a rank test of the Jacobian)."""


@dataclass(frozen=True, kw_only=True)
class FitSettings:
    """What is done beside the fit.

    Attributes:
        resamples: How many resamples give the intervals.
        seed: The seed of their weights.
        budget: The operations for which size and tokens are planned; None for none.
        extrapolate: Whether a budget or a crossing may lie outside the budgets of the runs.
        starts: How many starts an optimizer has; None for all.
    """

    resamples: int = 4000
    seed: int = 42
    budget: float | None = None
    extrapolate: bool = False
    starts: int | None = None


@dataclass(kw_only=True)
class Fit:
    """A fitted law.

    Attributes:
        law: Its name.
        runs: How many runs it was fitted to.
        quantities: What it gives; those without a value have a reason.
        plans: By method the size, tokens and loss at the optimum of the wanted budget.
        optima: By method, for each optimum its objective and the share of starts that reach it.
        notes: Sentences.
    """

    law: LawName
    runs: int
    quantities: list[Quantity] = field(default_factory=list)
    plans: dict[str, dict[str, Quantity]] = field(default_factory=dict)
    optima: dict[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def identified(self) -> bool:
        """Whether the runs tell every quantity."""
        planned = (quantity for plan in self.plans.values() for quantity in plan.values())
        return not any(quantity.reason for quantity in (*self.quantities, *planned))

    def choose_method(self) -> str | None:
        """The method of the lowest loss at the wanted budget; None where intervals overlap, or of no plan."""
        ends = {
            method: (plan["loss"].low or 0.0, plan["loss"].high or 0.0)
            for method, plan in self.plans.items()
            if not any(quantity.reason for quantity in plan.values())
        }
        best = min(ends, key=lambda method: ends[method][1], default=None)
        lows = [low for method, (low, _) in ends.items() if method != best]
        return best if best is not None and all(low > ends[best][1] for low in lows) else None

    def to_json(self) -> dict[str, Any]:
        """The fit as JSON."""
        plans = {m: {n: asdict(q) for n, q in plan.items()} for m, plan in self.plans.items()}
        fields = {"law": self.law, "runs": self.runs, "identified": self.identified}
        optima = {m: [{"objective": o, "share": s} for o, s in every] for m, every in self.optima.items()}
        return {
            **fields,
            "quantities": [asdict(q) for q in self.quantities],
            "plans": plans,
            "optima": optima,
            "notes": self.notes,
        }

    def add_quantity(self, name: str, method: str, interval: FitInterval, reason: str = "") -> None:
        """Add what is known of a quantity: its interval, or why there is none."""
        self.quantities.append(_build_quantity(name, method, interval, reason))


def _build_quantity(name: str, method: str, interval: FitInterval, reason: str = "") -> Quantity:
    if not reason and not all(map(math.isfinite, interval)):
        reason = "it has no finite interval"
    if reason:
        return Quantity(name=name, method=method, reason=reason)
    return Quantity(name=name, method=method, value=interval.value, low=interval.low, high=interval.high)


def fit_law(name: LawName, runs: Runs, settings: FitSettings) -> Fit:
    """Fit a law to runs.

    Args:
        name: The law.
        runs: The runs of one or of several methods.
        settings: The resamples, and the budget that is planned.

    Raises:
        UsageError: There are fewer runs than the law has parameters, or the budget lies outside the runs.
    """
    fit = Fit(law=name, runs=len(runs), notes=[*runs.notes])
    _require_budget(name, runs, settings)
    if name == "power":
        _fit_power(fit, runs)
    elif name == "correlation":
        _fit_correlation(fit, runs, settings)
    elif name in ("chinchilla", "finetune"):
        _fit_parametric(fit, CHINCHILLA if name == "chinchilla" else FINETUNING, runs, settings)
    else:
        _fit_budgets(fit, runs, settings)
    return fit


def _require_budget(name: LawName, runs: Runs, settings: FitSettings) -> None:
    if settings.budget is None:
        return
    if name not in ("isoflop", "chinchilla"):
        raise UsageError(f"The law {name} plans no budget.", hint="Use --law isoflop or --law chinchilla.")
    low, high = float(runs.flops.min()), float(runs.flops.max())
    if not settings.extrapolate and not low * 0.999 <= settings.budget <= high * 1.001:
        raise UsageError(
            f"A budget of {settings.budget:.3g} operations lies outside the runs, {low:.3g} to {high:.3g}.",
            hint="--extrapolate plans it all the same, with its interval.",
        )


def _require_runs(runs: Runs, method: str, law: str, needed: int) -> None:
    if len(runs) < needed:
        of = f" of {method}" if method else ""
        raise UsageError(
            f"{len(runs)} runs{of} are fewer than the {needed} that the law {law} needs.",
            hint="Add runs.",
        )


def _require_values(runs: Runs, method: str, law: str) -> None:
    """Refuse runs with two values of a column: constant, factor and exponent fit them however they are."""
    for name in ("size", "tokens", *(["trainable"] if law == "finetune" else [])):
        values = runs.others[name] if name in runs.others else getattr(runs, name)
        if len({*values.tolist()}) < 3:
            of = f" of {method}" if method else ""
            raise UsageError(
                f"The runs{of} have {len({*values.tolist()})} values of {name}, and the law {law} needs 3.",
                hint="Add runs with other values.",
            )


# Laws of budgets


def _fit_budgets(fit: Fit, runs: Runs, settings: FitSettings) -> None:
    numbers, levels, notes = budgets.group_budgets(runs.flops)
    fit.notes += notes
    weights = draw_weights(runs, numbers.tolist(), settings.resamples, settings.seed)
    frontiers: dict[str, tuple[Floats, Floats]] = {}
    for method in runs.methods:
        kept = np.array([name == method for name in runs.method])
        part = runs.select_runs(kept)
        _require_runs(part, method, fit.law, 5 if fit.law == "isoflop" else 3)
        optima = budgets.fit_parabolas(part, numbers[kept].tolist(), levels, weights[:, kept])
        if fit.law == "isoflop":
            _add_isoflop(fit, method, part, optima, settings)
            continue
        # The lowest loss at the edge of the sizes is not the lowest of the budget.
        inner = [optimum for optimum in optima if optimum.usable or np.isnan(optimum.size[0])]
        if len(inner) < 3:
            reason = f"{len(inner)} budgets have an optimum within their sizes, where a line needs 3"
            fit.add_quantity("slope of ln loss", method, _NOTHING, reason)
            continue
        if len(inner) < len(optima):
            fit.notes.append(
                f"{method or 'All'}: {len(optima) - len(inner)} budgets are left out, whose "
                "optimum is at the edge of their sizes."
            )
        if not all(optimum.usable for optimum in inner):
            fit.notes.append(f"{method or 'All'}: of best runs, as not every budget has a parabola.")
        frontiers[method] = budgets.fit_frontier(part, inner)
        _add_line(fit, method, "ln loss", fit_line(*frontiers[method]))
        _add_held_out_line(fit, method, *frontiers[method])
    for first, second in itertools.combinations(frontiers, 2):
        crossing = budgets.find_crossing(
            frontiers[first], frontiers[second], extrapolate=settings.extrapolate
        )
        reason = crossing if isinstance(crossing, str) else ""
        fit.add_quantity(
            f"crossing of {first} and {second}",
            "",
            _NOTHING if isinstance(crossing, str) else crossing,
            reason,
        )


_NOTHING = FitInterval(math.nan, math.nan, math.nan)


def _add_line(fit: Fit, method: str, of: str, line: FittedLine) -> None:
    fit.add_quantity(f"slope of {of}", method, line.slope)
    fit.add_quantity(f"intercept of {of}", method, line.intercept)


def _add_held_out_line(fit: Fit, method: str, x: Floats, y: Floats) -> None:
    """The error of the largest budget, predicted by a line through the others."""
    if len(x) > 3:
        error = fit_line(x[:-1], y[:-1]).predict_at(float(x[-1])).value - float(y[-1])
        fit.notes.append(
            f"{method or 'All'}: the largest budget, left out, is predicted with an error of "
            f"{math.expm1(error):+.2%}."
        )


def _add_isoflop(
    fit: Fit, method: str, runs: Runs, optima: list[BudgetOptimum], settings: FitSettings
) -> None:
    for optimum in optima:
        for name, values, change in (("size", optimum.size, math.exp), ("loss", optimum.loss, float)):
            interval = _change(compute_interval(float(values[0]), values[1:], optimum.runs, 3), change)
            fit.add_quantity(f"{name} at {optimum.flops:.3g}", method, interval, optimum.reason)
    usable = [optimum for optimum in optima if optimum.usable]
    if len(usable) < 3:
        reason = f"{len(usable)} budgets have an optimum within their sizes, where a power law needs 3"
        parts = ("exponent of size", "prefactor of size", "exponent of tokens", "prefactor of tokens")
        for name in (*parts, "exponent of size by best runs"):
            fit.add_quantity(name, method, _NOTHING, reason)
        if settings.budget is not None:
            fit.plans[method] = {
                name: Quantity(name=name, method=method, reason=reason) for name in ("size", "tokens", "loss")
            }
        return
    prefactor, exponent = budgets.fit_power_laws(usable)
    count, per_unit = sum(optimum.runs for optimum in usable), runs.operations_per_unit

    def measure(values: Floats, change: Callable[[float], float] = float) -> FitInterval:
        return _change(compute_interval(float(values[0]), values[1:], count, 3 * len(usable)), change)

    fit.add_quantity("exponent of size", method, measure(exponent))
    fit.add_quantity("prefactor of size", method, measure(prefactor, math.exp))
    fit.add_quantity("exponent of tokens", method, measure(1 - exponent))
    fit.add_quantity("prefactor of tokens", method, measure(-prefactor - math.log(per_unit), math.exp))
    # A best run at the edge of the sizes is not that of its budget.
    edges = sum(bool(optimum.reason) for optimum in usable)
    reason = f"the optimum of {edges} budgets may be at the edge of their sizes" if edges else ""
    best = budgets.fit_best_line(usable, runs.size)
    fit.add_quantity("exponent of size by best runs", method, best.slope, reason)
    x = np.log([optimum.flops for optimum in usable])
    _add_held_out_line(fit, method, x, np.array([optimum.size[0] for optimum in usable]))
    if settings.budget is not None:
        size = prefactor + exponent * math.log(settings.budget)
        losses = np.array([optimum.loss for optimum in usable])
        loss = fit_line(x, np.log(losses[:, 0])).predict_at(math.log(settings.budget))
        plan = {
            "size": measure(size, math.exp),
            "tokens": measure(math.log(settings.budget / per_unit) - size, math.exp),
            "loss": _change(loss, math.exp),
        }
        low, high = math.exp(x.min()), math.exp(x.max())
        # A line through ln L has no constant: beyond its budgets it is another law's loss.
        beyond = not low * 0.999 <= settings.budget <= high * 1.001
        reason = f"its budgets with an optimum are {low:.3g} to {high:.3g}" if beyond else ""
        fit.plans[method] = {
            name: _build_quantity(
                name, method, interval, reason if name == "loss" or not settings.extrapolate else ""
            )
            for name, interval in plan.items()
        }


def _change(interval: FitInterval, change: Callable[[float], float]) -> FitInterval:
    with np.errstate(over="ignore"):
        return FitInterval(*(change(end) if math.isfinite(end) else end for end in interval))


# Laws of the loss


def _fit_parametric(fit: Fit, law: Law, runs: Runs, settings: FitSettings) -> None:
    weights = draw_weights(runs, None, settings.resamples, settings.seed)
    for method in runs.methods:
        kept = np.array([name == method for name in runs.method])
        part = runs.select_runs(kept)
        # With fewer runs over, the resamples have no tails.
        _require_runs(part, method, fit.law, len(law.names) + 3)
        _require_values(part, method, fit.law)
        inputs = LawInputs.from_runs(part)
        optima = parametric.find_optima(law, inputs, part.loss, starts=settings.starts)
        fit.optima[method] = optima.optima
        if optima.optima[0][1] < ONE_OPTIMUM:
            fit.notes.append(
                f"{method or 'The fit'}: only {optima.optima[0][1]:.0%} of the starts of BFGS and L-BFGS "
                f"reach the best of {len(optima.optima)} optima."
            )
        if flat := _find_flatness(law, inputs, part, optima.theta):
            for name in law.restore(optima.theta[None], inputs):
                fit.add_quantity(name, method, _NOTHING, flat)
            continue
        every = parametric.refit_resamples(law, inputs, part.loss, weights[:, kept], optima.theta)
        estimates, resampled = law.restore(optima.theta[None], inputs), law.restore(every, inputs)
        intervals = {
            name: compute_interval(float(estimates[name][0]), values, len(part), len(law.names))
            for name, values in resampled.items()
        }
        reasons = _find_reasons(law, every, intervals)
        for name, interval in intervals.items():
            fit.add_quantity(name, method, interval, reasons.get(name, ""))
        if fit.law == "chinchilla":
            _add_chinchilla(fit, method, part, estimates, resampled, reasons.get("E", ""), settings)
        _add_held_out_runs(fit, method, law, part, settings)


def _find_flatness(law: Law, inputs: LawInputs, runs: Runs, theta: Floats) -> str:
    """Why some change of the parameters together is not seen in the losses; "" where each is."""
    half, weights = parametric.measure_weakest(law, inputs, runs.loss, theta)
    if not half > FLAT:
        return ""
    names = [name for name, weight in zip(law.names, weights, strict=True) if weight > 0.1]
    return f"{', '.join(names)} can change together within the noise (rank test)"


def _find_reasons(law: Law, every: Floats, intervals: Mapping[str, FitInterval]) -> dict[str, str]:
    """Why the resamples do not tell a parameter of a law, by its name."""
    widths = {name: interval.high - interval.low for name, interval in intervals.items()}
    reasons = {}
    if law.optional:
        factor, exponent = law.optional
        if intervals[factor].low <= 0 <= intervals[factor].high or not widths[exponent] < WIDE:
            reason = f"{factor} may be 0, where {exponent} has no effect"
            reasons = dict.fromkeys(law.optional, reason)
    for name in law.exponents:
        if not intervals[name].low > 0:
            reason = f"the interval of {name} reaches 0, where its term is part of the constant"
            return dict.fromkeys(intervals, reason)
        if not widths[name] < WIDE:
            return dict.fromkeys(intervals, f"the interval of {name} is wider than {WIDE:g}")
    kept = [n for n, name in enumerate(law.names) if name not in reasons]
    with np.errstate(all="ignore"):
        correlations = np.abs(np.corrcoef(every[:, kept].T) - np.eye(len(kept)))
    if not correlations.max() < ALIKE:
        places = np.unravel_index(np.nanargmax(correlations), correlations.shape)
        first, second = (law.names[kept[place]] for place in places)
        reason = f"{first} and {second} are not told apart (correlation {correlations.max():.3f})"
        return dict.fromkeys(intervals, reason)
    return reasons


def _add_chinchilla(
    fit: Fit,
    method: str,
    runs: Runs,
    estimates: Mapping[str, Floats],
    resampled: Mapping[str, Floats],
    reason: str,
    settings: FitSettings,
) -> None:
    """The optimum at the wanted budget, else at the largest, and the power law of the loss above E."""
    flops = settings.budget or float(runs.flops.max())
    point = parametric.compute_optimum(estimates, flops, runs.operations_per_unit)
    draws = parametric.compute_optimum(resampled, flops, runs.operations_per_unit)
    size = float(point["size"][0])
    if not reason and not settings.extrapolate and not runs.size.min() <= size <= runs.size.max():
        reason = "the optimum lies outside the sizes of the runs (--extrapolate tells it)"
    measured = {
        name: _build_quantity(
            name,
            method,
            compute_interval(float(point[name][0]), values, len(runs), len(CHINCHILLA.names)),
            reason,
        )
        for name, values in draws.items()
    }
    fit.quantities.append(replace(measured.pop("η"), name="exponent of size"))
    if settings.budget is not None:
        fit.plans[method] = measured
    else:
        fit.quantities += [replace(q, name=f"{name} at {flops:.3g}") for name, q in measured.items()]
    constant = next(q for q in fit.quantities if (q.name, q.method) == ("E", method))
    if constant.value is None:
        return
    places = [n for n in range(len(runs)) if (runs.loss[runs.flops <= runs.flops[n]] >= runs.loss[n]).all()]
    for end, value in (("low", constant.low), ("high", constant.high)):
        above = runs.loss[places] - (value or 0.0)
        name = f"exponent of loss − E, E at its {end} end"
        if len(places) < 4 or not (above > 0).all():
            fit.add_quantity(
                name, method, _NOTHING, "fewer than 4 runs are the best so far, or one is below E"
            )
        else:
            fit.add_quantity(name, method, fit_line(np.log(runs.flops[places]), np.log(above)).slope)


def _add_held_out_runs(fit: Fit, method: str, law: Law, runs: Runs, settings: FitSettings) -> None:
    """The error of the runs of the largest budget, predicted by a fit to the others."""
    largest = runs.flops >= runs.flops.max() / budgets.GROUPED
    rest = runs.select_runs(~largest)
    if len(rest) <= len(law.names) or len({*rest.size.tolist()}) < 3:
        return
    inputs = LawInputs.from_runs(rest)
    theta = parametric.find_optima(law, inputs, rest.loss, starts=min(settings.starts or 4, 4)).theta
    held_out = runs.select_runs(largest)
    predicted = law.predict(theta[None], LawInputs.from_runs(held_out, inputs))[0]
    errors = np.expm1(predicted - np.log(held_out.loss))
    fit.notes.append(
        f"{method or 'All'}: the largest budget, left out, is predicted with an error of "
        f"{errors.mean():+.2%} ({np.abs(errors).mean():.2%} without sign)."
    )


# Power laws of settings


def _fit_power(fit: Fit, runs: Runs) -> None:
    columns = [name for name in ("learning_rate", "batch") if name in runs.others]
    if not columns:
        raise UsageError(
            "The law power needs a column learning_rate or batch.", hint="Name it: --column batch=COLUMN"
        )
    for method, name in itertools.product(runs.methods, columns):
        part = runs.select_method(method)
        _require_runs(part, method, "power", 3)
        if (low := part.others[name] <= 0).any():
            raise UsageError(f"{name} is not above 0: {part.places[int(low.argmax())]}.")
        best = budgets.select_window_best(part)
        if len(best) < 3:
            reason = f"{len(best)} windows of budgets have {budgets.CROWD} runs, where a line needs 3"
            fit.add_quantity(f"slope of ln {name}", method, _NOTHING, reason)
            continue
        x, y = np.log(part.flops[best]), np.log(part.others[name][best])
        _add_line(fit, method, f"ln {name}", fit_line(x, y))
        _add_held_out_line(fit, method, x, y)


# The loss and a score


def _correlate_ranks(first: Floats, second: Floats, axis: int = -1) -> Floats:
    """Spearman's correlation."""
    return _correlate_values(rankdata(first, axis=axis), rankdata(second, axis=axis), axis)


def _correlate_values(first: Floats, second: Floats, axis: int = -1) -> Floats:
    """Pearson's correlation."""
    correlation: Floats = pearsonr(first, second, axis=axis).statistic
    return correlation


def _fit_correlation(fit: Fit, runs: Runs, settings: FitSettings) -> None:
    """The correlations of loss and score over all runs, with bias-corrected and accelerated intervals."""
    _require_runs(runs, "", fit.law, 5)
    columns = runs.loss, runs.others["score"]
    for name, correlate in (("Spearman", _correlate_ranks), ("Pearson", _correlate_values)):
        with warnings.catch_warnings():
            # A resample of one run alone has no correlation.
            warnings.simplefilter("ignore")
            ends = bootstrap(
                columns, correlate, paired=True, n_resamples=settings.resamples, rng=settings.seed
            ).confidence_interval
        interval = FitInterval(float(correlate(*columns)), float(ends.low), float(ends.high))
        fit.add_quantity(f"{name}'s correlation of loss and score", "", interval)
