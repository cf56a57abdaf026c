"""A law fitted to runs: its quantities with intervals, what it cannot tell, and the plan of a budget."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import bootstrap, pearsonr, rankdata

from harness.core.errors import UsageError
from harness.fits.estimate import (
    GROUPED,
    NOTHING,
    Fit,
    FitInterval,
    FitSettings,
    FittedLine,
    build_quantity,
    compute_interval,
    draw_weights,
    find_zero,
    fit_line,
    require_runs,
)
from harness.fits.parametric import (
    CHINCHILLA,
    FINETUNING,
    Law,
    LawInputs,
    compute_optimum,
    find_optima,
    measure_weakest,
    refit_resamples,
)
from harness.fits.runs import Floats, LawName, Runs

APART = 1.15
"""Two budgets are apart by 15 % or more."""

EDGE, LOST, FAR = 0.025, 0.25, 3.0
"""Shares of resamples whose vertex may lie outside the sizes: beyond the first a budget's own optimum is not
told, beyond the second the budget is in no power law. A vertex is no farther out than three half ranges."""

WINDOW, CROWD = 0.81, 5
"""A run is the best of the budgets from 0.81 C to C, of at least five runs (OptiBERT, section 3)."""


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


# Laws of budgets


def group_budgets(flops: Floats) -> tuple[NDArray[np.int64], Floats, list[str]]:
    """The number of each run's budget, the budgets (geometric means), and a sentence on those grouped.

    Raises:
        UsageError: Budgets are neither one nor apart.
    """
    order = np.argsort(flops, kind="stable")
    numbers = np.zeros(len(flops), int)
    first, number = flops[order[0]], 0
    for before, place in itertools.pairwise(order):
        if flops[place] > GROUPED * first:
            if flops[place] < APART * flops[before]:
                raise UsageError(
                    f"Budgets of {flops[before]:.4g} and {flops[place]:.4g} operations are neither one "
                    "(within 5 %) nor apart (15 %).",
                    hint="Give the column flops the budget that was planned, or use --law chinchilla.",
                )
            first, number = flops[place], number + 1
        numbers[place] = number
    spans = [flops[numbers == n] for n in range(number + 1)]
    grouped = [span for span in spans if span.max() > 1.0005 * span.min()]
    notes = []
    if grouped:
        widest = max(float(span.max() / span.min()) for span in grouped)
        notes = [
            f"Runs within 5 % count as of one budget: {len(grouped)} budgets, up to {widest - 1:.1%} wide."
        ]
    return numbers, np.array([math.exp(np.log(span).mean()) for span in spans]), notes


@dataclass(frozen=True, kw_only=True)
class _BudgetOptimum:
    """The optimum of a budget, of all runs and of each resample.

    Attributes:
        flops: The budget.
        runs: How many runs it has.
        size: The log size at the vertex, shape (1 + resamples,), the first that of all runs.
        loss: The loss there.
        best: The place of the run with the lowest loss.
        reason: Why the vertex is not told; "" where it is.
        usable: Whether it is in power laws. Those leave out what is at the edge without doubt: to leave out
            what may be there would choose budgets by their noise.
    """

    flops: float
    runs: int
    size: Floats
    loss: Floats
    best: int
    reason: str
    usable: bool


def _fit_parabolas(
    runs: Runs, numbers: Sequence[int], budgets: Floats, weights: Floats
) -> list[_BudgetOptimum]:
    """The parabola of the loss against the log size of every budget.

    Args:
        runs: Those of one method.
        numbers: The number of each run's budget.
        budgets: The budgets.
        weights: Of the runs in each resample, shape (resamples, runs).
    """
    optima = []
    for number, flops in enumerate(budgets):
        places = np.flatnonzero(np.asarray(numbers) == number)
        if not len(places):
            continue
        size, losses = np.log(runs.size[places]), runs.loss[places]
        different = len({*size.tolist()})
        reason, usable = f"{different} sizes, where a parabola needs 4", False
        vertex = loss = np.full(1 + len(weights), np.nan)
        if different >= 4:
            vertex, loss, outside = _fit_parabola(size, losses, weights[:, places])
            reason = "the optimum is at the edge of the sizes" if outside > EDGE else ""
            usable = outside <= LOST
        optimum = _BudgetOptimum(
            flops=float(flops),
            runs=len(places),
            size=vertex,
            loss=loss,
            best=int(places[losses.argmin()]),
            reason=reason,
            usable=usable,
        )
        optima.append(optimum)
    return optima


def _fit_parabola(size: Floats, losses: Floats, weights: Floats) -> tuple[Floats, Floats, float]:
    """The log size and the loss at the vertex, of all runs and of each resample, and the share outside."""
    middle, half = (size.max() + size.min()) / 2, (size.max() - size.min()) / 2
    powers = np.vander((size - middle) / half, 3, increasing=True)
    inverse = np.linalg.pinv(powers)
    fitted = inverse @ losses
    # A resample moves the coefficients as its weights do, to first order. Residuals are divided by
    # 1 - leverage (HC3): of seven runs and three coefficients, they are else much smaller than errors.
    errors = (losses - powers @ fitted) / (1 - np.minimum(np.diag(powers @ inverse), 0.99))
    moved = fitted + ((weights - 1) * errors) @ inverse.T
    a, b, c = np.vstack([fitted, moved]).T
    with np.errstate(all="ignore"):
        vertex = np.clip(np.where(c > 0, -b / (2 * c), -FAR * np.sign(b)), -FAR, FAR)
    outside = np.abs(vertex) > 1
    share = 1.0 if outside[0] else float(outside[1:].mean())
    return middle + half * vertex, a + b * vertex + c * vertex**2, share


def _fit_power_laws(optima: Sequence[_BudgetOptimum]) -> tuple[Floats, Floats]:
    """log prefactor and exponent of the size at the vertices, each of shape (1 + resamples,)."""
    x = np.log([optimum.flops for optimum in optima])
    y = np.array([optimum.size for optimum in optima])
    centred = x - x.mean()
    exponent = centred @ y / (centred @ centred)
    return y.mean(axis=0) - exponent * x.mean(), exponent


def _fit_frontier(runs: Runs, optima: Sequence[_BudgetOptimum]) -> tuple[Floats, Floats]:
    """log budgets and lowest log losses: of the parabolas, or of best runs if a budget has no parabola.

    Of several runs near an optimum the best is also the luckiest, so parabolas go first.
    """
    parabolas = all(optimum.usable for optimum in optima)
    lowest = [optimum.loss[0] if parabolas else runs.loss[optimum.best] for optimum in optima]
    return np.log([optimum.flops for optimum in optima]), np.log(lowest)


def _find_crossing(
    first: tuple[Floats, Floats], second: tuple[Floats, Floats], *, extrapolate: bool = False
) -> FitInterval | str:
    """The budget at which two frontiers cross, with its interval, or why there is none.

    The difference of the two at the budgets that both have is a line; where it is zero is known by Fieller's
    theorem. What both share at a budget, such as its data, is not in the difference.
    """
    shared, first_at, second_at = np.intersect1d(first[0].round(6), second[0].round(6), return_indices=True)
    if len(shared) < 3:
        return f"{len(shared)} budgets in common, where a crossing needs 3"
    zero = find_zero(fit_line(shared, first[1][first_at] - second[1][second_at]))
    if zero is None:
        return "the lines may be parallel"
    reach = np.ptp(shared) if extrapolate else 0.0
    if zero.low < shared.min() - reach or zero.high > shared.max() + reach:
        end = "the crossing or an end of its interval lies"
        return f"{end} farther out than the budgets are wide" if extrapolate else f"{end} outside the budgets"
    return FitInterval(*map(math.exp, zero))


def _select_window_best(runs: Runs) -> NDArray[np.int64]:
    """The places of the runs that are the best of a window of budgets that ends at a run."""
    best = set()
    for flops in runs.flops:
        places = np.flatnonzero((runs.flops >= WINDOW * flops) & (runs.flops <= flops))
        if len(places) >= CROWD:
            best.add(int(places[runs.loss[places].argmin()]))
    return np.array(sorted(best), int)


def _add_held_out_line(fit: Fit, method: str, of: str, x: Floats, y: Floats) -> None:
    """How far the largest budget is from its prediction by a line through the others."""
    if len(x) > 3:
        # Runs stand in the order of the table.
        *others, last = np.argsort(x)
        predicted = fit_line(x[others], y[others]).predict_point(float(x[last]))
        ends = (float(y[last]), predicted.low, predicted.high)
        error, low, high = (math.expm1(end - predicted.value) for end in ends)
        fit.notes.append(
            f"{_address(method)}{of} of the largest budget, left out, is {error:+.2%} from its prediction "
            f"(95 %: {low:+.2%} to {high:+.2%})."
        )
    else:
        fit.notes.append(
            f"{_address(method)}{of} of the largest budget is not predicted: the others are too few for an "
            "interval."
        )


def _address(method: str) -> str:
    """What a sentence on a method's runs begins with."""
    return f"{method}: the " if method else "The "


def _fit_budgets(fit: Fit, runs: Runs, settings: FitSettings) -> None:
    numbers, levels, notes = group_budgets(runs.flops)
    fit.notes += notes
    weights = draw_weights(runs, numbers.tolist(), settings.resamples, settings.seed)
    frontiers: dict[str, tuple[Floats, Floats]] = {}
    for method in runs.methods:
        kept = np.array([name == method for name in runs.method])
        part = runs.select_runs(kept)
        require_runs(part, method, fit.law, 5 if fit.law == "isoflop" else 3)
        optima = _fit_parabolas(part, numbers[kept].tolist(), levels, weights[:, kept])
        if fit.law == "isoflop":
            _add_isoflop(fit, method, part, optima, settings)
            continue
        # The lowest loss at the edge of the sizes is not the lowest of the budget.
        inner = [optimum for optimum in optima if optimum.usable or np.isnan(optimum.size[0])]
        if len(inner) < 3:
            reason = f"{len(inner)} budgets have an optimum within their sizes, where a line needs 3"
            fit.add_quantity("slope of ln loss", method, NOTHING, reason)
            continue
        if len(inner) < len(optima):
            fit.notes.append(
                f"{_address(method)}line leaves out {len(optima) - len(inner)} of {len(optima)} budgets: "
                "their optimum is at the edge of their sizes."
            )
        if not all(optimum.usable for optimum in inner):
            fit.notes.append(f"{_address(method)}line is of best runs, as not every budget has a parabola.")
        frontiers[method] = _fit_frontier(part, inner)
        _add_line(fit, method, "ln loss", fit_line(*frontiers[method]))
        _add_held_out_line(fit, method, "lowest loss", *frontiers[method])
    for first, second in itertools.combinations(frontiers, 2):
        crossing = _find_crossing(frontiers[first], frontiers[second], extrapolate=settings.extrapolate)
        reason = crossing if isinstance(crossing, str) else ""
        fit.add_quantity(
            f"crossing of {first} and {second}",
            "",
            NOTHING if isinstance(crossing, str) else crossing,
            reason,
        )


def _add_line(fit: Fit, method: str, of: str, line: FittedLine) -> None:
    fit.add_quantity(f"slope of {of}", method, line.slope)
    fit.add_quantity(f"intercept of {of}", method, line.intercept)


def _add_isoflop(
    fit: Fit, method: str, runs: Runs, optima: list[_BudgetOptimum], settings: FitSettings
) -> None:
    for optimum in optima:
        for name, values, change in (("size", optimum.size, math.exp), ("loss", optimum.loss, float)):
            interval = _change(compute_interval(float(values[0]), values[1:], optimum.runs, 3), change)
            fit.add_quantity(f"{name} at {optimum.flops:.3g}", method, interval, optimum.reason)
    usable = [optimum for optimum in optima if optimum.usable]
    if len(usable) < 3:
        reason = f"{len(usable)} budgets have an optimum within their sizes, where a power law needs 3"
        parts = ("exponent of size", "prefactor of size", "exponent of tokens", "prefactor of tokens")
        names = [*parts, "exponent of size by best runs"]
        fit.refuse_quantities(names, method, reason, settings)
        return
    prefactor, exponent = _fit_power_laws(usable)
    count, per_unit = sum(optimum.runs for optimum in usable), runs.operations_per_unit

    def measure(values: Floats, change: Callable[[float], float] = float) -> FitInterval:
        return _change(compute_interval(float(values[0]), values[1:], count, 3 * len(usable)), change)

    fit.add_quantity("exponent of size", method, measure(exponent))
    fit.add_quantity("prefactor of size", method, measure(prefactor, math.exp))
    fit.add_quantity("exponent of tokens", method, measure(1 - exponent))
    fit.add_quantity("prefactor of tokens", method, measure(-prefactor - math.log(per_unit), math.exp))
    # A best run at the edge of the sizes is not that of its budget.
    edges = sum(bool(optimum.reason) for optimum in usable)
    reason = (
        f"{edges} of {len(usable)} budgets may have their optimum at the edge of their sizes" if edges else ""
    )
    x = np.log([optimum.flops for optimum in usable])
    best = fit_line(x, np.log([runs.size[optimum.best] for optimum in usable]))
    fit.add_quantity("exponent of size by best runs", method, best.slope, reason)
    _add_held_out_line(fit, method, "best size", x, np.array([optimum.size[0] for optimum in usable]))
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
        reason = f"the budget lies outside those of the runs, {low:.3g} to {high:.3g}" if beyond else ""
        fit.plans[method] = {
            name: build_quantity(
                name, method, interval, reason if name == "loss" or not settings.extrapolate else ""
            )
            for name, interval in plan.items()
        }


def _change(interval: FitInterval, change: Callable[[float], float]) -> FitInterval:
    with np.errstate(over="ignore"):
        return FitInterval(*(change(end) if math.isfinite(end) else end for end in interval))


# Laws of the loss

ONE_OPTIMUM = 0.9
"""The share of starts that reach the best optimum, below which a fit is marked."""

WIDE = 1.0
"""An exponent whose interval is wider than this is not known: those of the papers are 0.2 to 0.5."""

FLAT = 2.0
"""A law is not known if some change of its parameters together, by this much in logarithms of constants and
in exponents, is within the noise (a rank test of the Jacobian)."""


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


def _fit_parametric(fit: Fit, law: Law, runs: Runs, settings: FitSettings) -> None:
    weights = draw_weights(runs, None, settings.resamples, settings.seed)
    for method in runs.methods:
        kept = np.array([name == method for name in runs.method])
        part = runs.select_runs(kept)
        # With fewer runs over, the resamples have no tails.
        require_runs(part, method, fit.law, len(law.names) + 3)
        _require_values(part, method, fit.law)
        inputs = LawInputs.from_runs(part)
        optima = find_optima(law, inputs, part.loss, starts=settings.starts)
        fit.optima[method] = optima.optima
        if optima.optima[0][1] < ONE_OPTIMUM:
            fit.notes.append(
                f"{_address(method)}best of {len(optima.optima)} optima is reached by only "
                f"{optima.optima[0][1]:.0%} of the starts of BFGS and L-BFGS."
            )
        if flat := _find_flatness(law, inputs, part, optima.theta):
            fit.refuse_quantities([*law.restore(optima.theta[None], inputs)], method, flat, settings)
            continue
        every = refit_resamples(law, inputs, part.loss, weights[:, kept], optima.theta)
        estimates, resampled = law.restore(optima.theta[None], inputs), law.restore(every, inputs)
        intervals = {
            name: compute_interval(float(estimates[name][0]), values, len(part), len(law.names))
            for name, values in resampled.items()
        }
        reasons = _find_reasons(law, intervals)
        for name, interval in intervals.items():
            fit.add_quantity(name, method, interval, reasons.get(name, ""))
        if fit.law == "chinchilla":
            _add_chinchilla(fit, method, part, estimates, resampled, reasons.get("E", ""), settings)
        _add_held_out_runs(fit, method, law, part, settings)


def _find_flatness(law: Law, inputs: LawInputs, runs: Runs, theta: Floats) -> str:
    """Why some change of the parameters together is not seen in the losses; "" where each is."""
    half, weights = measure_weakest(law, inputs, runs.loss, theta)
    if not half > FLAT:
        return ""
    names = [name for name, weight in zip(law.names, weights, strict=True) if weight > 0.1]
    how = "can change together" if len(names) > 1 else "can change much"
    return f"{', '.join(names)} {how} within the noise (rank test)"


def _find_reasons(law: Law, intervals: Mapping[str, FitInterval]) -> dict[str, str]:
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
    point = compute_optimum(estimates, flops, runs.operations_per_unit)
    draws = compute_optimum(resampled, flops, runs.operations_per_unit)
    size = float(point["size"][0])
    if not reason and not settings.extrapolate and not runs.size.min() <= size <= runs.size.max():
        reason = "the optimum lies outside the sizes of the runs (--extrapolate tells it)"
    measured = {
        name: build_quantity(
            name,
            method,
            compute_interval(float(point[name][0]), values, len(runs), len(CHINCHILLA.names)),
            reason,
        )
        for name, values in draws.items()
    }
    fit.quantities.append(measured.pop("η").model_copy(update={"name": "exponent of size"}))
    if settings.budget is not None:
        fit.plans[method] = measured
    else:
        suffix = f"at {flops:.3g}"
        fit.quantities += [q.model_copy(update={"name": f"{name} {suffix}"}) for name, q in measured.items()]
    constant = next(q for q in fit.quantities if (q.name, q.method) == ("E", method))
    if constant.value is None:
        return
    places = [n for n in range(len(runs)) if (runs.loss[runs.flops <= runs.flops[n]] >= runs.loss[n]).all()]
    for end, value in (("low", constant.low), ("high", constant.high)):
        above = runs.loss[places] - (value or 0.0)
        name = f"exponent of loss − E, E at its {end} end"
        if len(places) < 4 or not (above > 0).all():
            fit.add_quantity(
                name, method, NOTHING, "fewer than 4 runs are the best so far, or one is below E"
            )
        else:
            fit.add_quantity(name, method, fit_line(np.log(runs.flops[places]), np.log(above)).slope)


def _add_held_out_runs(fit: Fit, method: str, law: Law, runs: Runs, settings: FitSettings) -> None:
    """The error of the runs of the largest budget, predicted by a fit to the others."""
    largest = runs.flops >= runs.flops.max() / GROUPED
    rest = runs.select_runs(~largest)
    if len(rest) <= len(law.names) or len({*rest.size.tolist()}) < 3:
        return
    inputs = LawInputs.from_runs(rest)
    theta = find_optima(law, inputs, rest.loss, starts=min(settings.starts or 4, 4)).theta
    held_out = runs.select_runs(largest)
    predicted = law.predict(theta[None], LawInputs.from_runs(held_out, inputs))[0]
    errors = np.expm1(predicted - np.log(held_out.loss))
    fit.notes.append(
        f"{_address(method)}loss of the largest budget, left out, is predicted with a mean error of "
        f"{errors.mean():+.2%} (mean absolute error {np.abs(errors).mean():.2%})."
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
        require_runs(part, method, "power", 3)
        if (low := part.others[name] <= 0).any():
            raise UsageError(f"{name} is not above 0: {part.places[int(low.argmax())]}.")
        best = _select_window_best(part)
        if len(best) < 3:
            reason = f"{len(best)} windows of budgets have {CROWD} runs, where a line needs 3"
            fit.add_quantity(f"slope of ln {name}", method, NOTHING, reason)
            continue
        x, y = np.log(part.flops[best]), np.log(part.others[name][best])
        _add_line(fit, method, f"ln {name}", fit_line(x, y))
        _add_held_out_line(fit, method, f"best {name}", x, y)


# The loss and a score


def _measure_spearman(first: Floats, second: Floats, axis: int = -1) -> Floats:
    """Spearman's correlation."""
    return _measure_pearson(rankdata(first, axis=axis), rankdata(second, axis=axis), axis)


def _measure_pearson(first: Floats, second: Floats, axis: int = -1) -> Floats:
    """Pearson's correlation."""
    correlation: Floats = pearsonr(first, second, axis=axis).statistic
    return correlation


def _fit_correlation(fit: Fit, runs: Runs, settings: FitSettings) -> None:
    """The correlations of loss and score over all runs, with bias-corrected and accelerated intervals."""
    require_runs(runs, "", fit.law, 5)
    columns = runs.loss, runs.others["score"]
    for name, correlate in (("Spearman", _measure_spearman), ("Pearson", _measure_pearson)):
        with warnings.catch_warnings():
            # A resample of one run alone has no correlation.
            warnings.simplefilter("ignore")
            ends = bootstrap(
                columns, correlate, paired=True, n_resamples=settings.resamples, rng=settings.seed
            ).confidence_interval
        interval = FitInterval(float(correlate(*columns)), float(ends.low), float(ends.high))
        fit.add_quantity(f"{name}'s correlation of loss and score", "", interval)
