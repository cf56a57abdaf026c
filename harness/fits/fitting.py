"""A law fitted to runs: its quantities with intervals, what it cannot tell, and the plan of a budget."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import bootstrap, pearsonr, rankdata

from harness.core.errors import UsageError
from harness.fits.estimate import (
    NOTHING,
    FitInterval,
    LossEstimator,
    compute_interval,
    draw_weights,
    fit_line,
)
from harness.fits.laws import EXPONENTS, LOSS_LAWS, Law, compute_optimum
from harness.fits.runs import TEXTS, Floats, LawName, Runs
from harness.fits.stored import Quantity, StoredFit

GROUPED, APART = 1.05, 1.15
"""Runs within 5 % are of one budget; two budgets are apart by 15 % or more."""

EDGE, LOST, FAR = 0.025, 0.25, 3.0
"""Shares of resamples whose vertex may lie outside the sizes: beyond the first a budget's own optimum is not
told, beyond the second the budget is in no power law. A vertex is no farther out than three half ranges."""

WINDOW, CROWD = 0.81, 5
"""A run is the best of the budgets from 0.81 C to C, of at least five runs (OptiBERT, section 3)."""

ONE_OPTIMUM = 0.9
"""The share of starts that reach the best optimum, below which a fit is marked."""

WIDE = 1.0
"""An exponent whose interval is wider than this is not known: those of the papers are 0.2 to 0.5."""

FLAT = 2.0
"""A law is not known if some change of its parameters together, by this much in logarithms of constants and
in exponents, is within the noise (a rank test of the Jacobian)."""

BUDGET_LAWS = ("isoflop", "frontier")
FEWEST: Mapping[LawName, int] = {
    "isoflop": 5, "frontier": 3, "power": 3, "correlation": 5,
    # With fewer runs over, the resamples have no tails.
    **{name: len(law.names) + 3 for name, law in LOSS_LAWS.items()},
}  # fmt: skip
"""The fewest runs of a method that a law needs."""


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
class _Report:
    """What is told of runs so far; `method` is that whose runs are looked at."""

    law: LawName
    settings: FitSettings
    notes: list[str]
    method: str = ""
    quantities: list[Quantity] = field(default_factory=list)
    plans: dict[str, dict[str, Quantity]] = field(default_factory=dict)
    optima: dict[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)

    def iter_methods(self, runs: Runs) -> Iterator[tuple[Runs, Floats]]:
        """The runs of each method, with their weights in each resample."""
        level = "budget" if self.law in BUDGET_LAWS else "flops"
        weights = draw_weights(runs, level, self.settings.resamples, self.settings.seed)
        for self.method in runs.methods:
            kept = runs["method"] == self.method
            self.require_runs(part := runs.select_runs(kept))
            yield part, weights[:, kept]
        self.method = ""

    def require_runs(self, runs: Runs) -> None:
        """Refuse too few runs, and two values of a column: constant, factor and exponent fit any two."""
        of, hint = f" of {self.method}" if self.method else "", "Add runs with other values."
        if len(runs) < FEWEST[self.law]:
            few = f"{len(runs)} runs{of} are fewer than the {FEWEST[self.law]}"
            raise UsageError(f"{few} that the law {self.law} needs.", hint="Add runs.")
        share = ["trainable"] if self.law == "finetune" else []
        for name in ("size", "tokens", *share) if self.law in LOSS_LAWS else ():
            if (count := len({*runs[name].tolist()})) < 3:
                few = f"The runs{of} have {count} values of {name}"
                raise UsageError(f"{few}, and the law {self.law} needs 3.", hint=hint)

    def add(
        self, name: str, interval: FitInterval = NOTHING, reason: str = "", *, planned: bool = False
    ) -> None:
        """Add a quantity, or one of the plan of a budget, with its interval or why there is none."""
        if not reason and not all(map(math.isfinite, interval)):
            reason = "it has no finite interval"
        ends = {} if reason else interval._asdict()
        quantity = Quantity(name=name, method=self.method, reason=reason, **ends)
        if planned:
            self.plans.setdefault(self.method, {})[name] = quantity
        else:
            self.quantities.append(quantity)

    def refuse(self, names: Iterable[str], reason: str) -> None:
        """Add why quantities are not told, and with them the plan of a wanted budget."""
        for name in names:
            self.add(name, reason=reason)
        for name in ("size", "tokens", "loss") if self.settings.budget is not None else ():
            self.add(name, reason=reason, planned=True)

    def note(self, text: str) -> None:
        self.notes.append(f"{self.method}: the {text}" if self.method else f"The {text}")

    def add_line(self, of: str, what: str, x: Floats, y: Floats) -> None:
        line = fit_line(x, y)
        self.add(f"slope of {of}", line.slope_interval)
        self.add(f"intercept of {of}", line.predict_at(0.0))
        self.note_held_out_line(what, x, y)

    def note_held_out_line(self, what: str, x: Floats, y: Floats) -> None:
        """How far the largest budget is from its prediction by a line through the others."""
        largest = f"{what} of the largest budget"
        if len(x) <= 3:
            self.note(f"{largest} is not predicted: the others are too few for an interval.")
            return
        # Runs stand in the order of the table.
        *others, last = np.argsort(x)
        predicted = fit_line(x[others], y[others]).predict_at(float(x[last]), 1)
        ends = (float(y[last]), predicted.low, predicted.high)
        error, low, high = (f"{math.expm1(end - predicted.value):+.2%}" for end in ends)
        self.note(f"{largest}, left out, is {error} from its prediction (95 %: {low} to {high}).")


def fit_law(law: LawName, runs: Runs, settings: FitSettings, name: str = "") -> StoredFit:
    """Fit a law to runs.

    Args:
        law: The law.
        runs: The runs of one or of several methods.
        settings: The resamples, and the budget that is planned.
        name: The name of the document.

    Raises:
        UsageError: There are fewer runs than the law has parameters, or the budget lies outside the runs.
    """
    _require_budget(law, runs, settings)
    report = _Report(law=law, settings=settings, notes=[*runs.notes])
    # A law of the whole loss may be of runs whose budgets are neither one nor apart.
    try:
        runs, notes = _group_budgets(runs)
        report.notes += notes if law in BUDGET_LAWS else []
    except UsageError:
        if law in BUDGET_LAWS:
            raise
    _FITS[law](report, runs)
    return StoredFit(
        name=name,
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        law=law,
        size_is=runs.counts,
        budget=settings.budget,
        method=tuple(runs["method"].tolist()),
        columns={name: tuple(each.tolist()) for name, each in runs.columns.items() if name not in TEXTS},
        quantities=tuple(report.quantities),
        plans=report.plans,
        notes=tuple(report.notes),
        optima=report.optima,
    )


def _require_budget(law: LawName, runs: Runs, settings: FitSettings) -> None:
    if settings.budget is None:
        return
    if law not in ("isoflop", "chinchilla"):
        raise UsageError(f"The law {law} plans no budget.", hint="Use --law isoflop or --law chinchilla.")
    if not settings.extrapolate and (outside := _describe_outside(settings.budget, runs["flops"])):
        raise UsageError(
            f"A budget of {settings.budget:.3g} operations lies outside the runs, {outside}.",
            hint="--extrapolate plans it all the same, with its interval.",
        )


def _describe_outside(budget: float, flops: Floats) -> str:
    """The range of operations where a budget is outside; "" where it is within."""
    low, high = float(flops.min()), float(flops.max())
    return "" if low * 0.999 <= budget <= high * 1.001 else f"{low:.3g} to {high:.3g}"


# Laws of budgets


def _group_budgets(runs: Runs) -> tuple[Runs, list[str]]:
    """The runs with a column `budget` (geometric means of those grouped), and a sentence on these.

    Raises:
        UsageError: Budgets are neither one nor apart.
    """
    flops = runs["flops"]
    order = np.argsort(flops, kind="stable")
    groups = [[order[0]]]
    for before, place in itertools.pairwise(order):
        if flops[place] <= GROUPED * flops[groups[-1][0]]:
            groups[-1].append(place)
            continue
        if flops[place] < APART * flops[before]:
            raise UsageError(
                f"Budgets of {flops[before]:.4g} and {flops[place]:.4g} operations are neither one "
                "(within 5 %) nor apart (15 %).",
                hint="Give the column flops the budget that was planned, or use --law chinchilla.",
            )
        groups.append([place])
    budgets = np.zeros(len(runs))
    for group in groups:
        # In the table's order, as the sum of logarithms depends on it in its last digit.
        budgets[group] = math.exp(np.log(flops[np.sort(group)]).mean())
    widths = [float(flops[group[-1]] / flops[group[0]]) for group in groups]
    wide = [width for width in widths if width > 1.0005]
    text = "Runs within 5 % count as of one budget: {} budgets, up to {:.1%} wide."
    return runs.add_columns(budget=budgets), [text.format(len(wide), max(wide) - 1)] if wide else []


class _BudgetOptimum(NamedTuple):
    """The optimum of a budget: `size` (logarithms) and `loss` are of all runs and of each resample.

    `best` is the place of the run with the lowest loss. `reason` says why the vertex is not told. Power laws
    are of `usable` ones and leave out what is at the edge without doubt: to leave out what may be there would
    choose budgets by their noise.
    """

    flops: float
    runs: int
    best: int
    size: Floats
    loss: Floats
    reason: str
    usable: bool


def _fit_parabola(runs: Runs, weights: Floats, budget: float) -> _BudgetOptimum:
    """The parabola of the loss against the log size of a budget."""
    places = np.flatnonzero(runs["budget"] == budget)
    size, losses, weights = np.log(runs["size"][places]), runs["loss"][places], weights[:, places]
    facts = float(budget), len(places), int(places[losses.argmin()])
    if (different := len({*size.tolist()})) < 4:
        nothing, reason = np.full(1 + len(weights), np.nan), f"{different} sizes, where a parabola needs 4"
        return _BudgetOptimum(*facts, nothing, nothing, reason, False)
    middle, half = (size.max() + size.min()) / 2, (size.max() - size.min()) / 2
    powers = np.vander((size - middle) / half, 3, increasing=True)
    inverse = np.linalg.pinv(powers)
    fitted = inverse @ losses
    # A resample moves the coefficients as its weights do, to first order. Residuals are divided by
    # 1 - leverage (HC3): of seven runs and three coefficients, they are else much smaller than errors.
    errors = (losses - powers @ fitted) / (1 - np.minimum(np.diag(powers @ inverse), 0.99))
    a, b, c = np.vstack([fitted, fitted + ((weights - 1) * errors) @ inverse.T]).T
    with np.errstate(all="ignore"):
        vertex = np.clip(np.where(c > 0, -b / (2 * c), -FAR * np.sign(b)), -FAR, FAR)
    outside = np.abs(vertex) > 1
    share = 1.0 if outside[0] else float(outside[1:].mean())
    reason = "the optimum is at the edge of the sizes" if share > EDGE else ""
    loss = a + b * vertex + c * vertex**2
    return _BudgetOptimum(*facts, middle + half * vertex, loss, reason, share <= LOST)


def _fit_budgets(report: _Report, runs: Runs) -> None:
    frontiers: dict[str, tuple[Floats, Floats]] = {}
    for part, weights in report.iter_methods(runs):
        optima = [_fit_parabola(part, weights, budget) for budget in np.unique(part["budget"])]
        if report.law == "isoflop":
            _add_isoflop(report, part, optima)
        elif points := _list_frontier(report, part, optima):
            frontiers[report.method] = points
            report.add_line("ln loss", "lowest loss", *points)
    for first, second in itertools.combinations(frontiers, 2):
        crossing = _find_crossing(frontiers[first], frontiers[second], report.settings)
        report.add(f"crossing of {first} and {second}", *crossing)


def _list_frontier(
    report: _Report, runs: Runs, optima: Sequence[_BudgetOptimum]
) -> tuple[Floats, Floats] | None:
    """Log budgets and lowest log losses: of the parabolas, or of best runs if a budget has no parabola.

    Of several runs near an optimum the best is also the luckiest, so parabolas go first.
    """
    # The lowest loss at the edge of the sizes is not the lowest of the budget.
    inner = [optimum for optimum in optima if optimum.usable or np.isnan(optimum.size[0])]
    if len(inner) < 3:
        reason = f"{len(inner)} budgets have an optimum within their sizes, where a line needs 3"
        report.add("slope of ln loss", reason=reason)
        return None
    if left := len(optima) - len(inner):
        edge = "their optimum is at the edge of their sizes."
        report.note(f"line leaves out {left} of {len(optima)} budgets: {edge}")
    parabolas = all(optimum.usable for optimum in inner)
    if not parabolas:
        report.note("line is of best runs, as not every budget has a parabola.")
    lowest = [optimum.loss[0] if parabolas else runs["loss"][optimum.best] for optimum in inner]
    return np.log([optimum.flops for optimum in inner]), np.log(lowest)


def _find_crossing(
    first: tuple[Floats, Floats], second: tuple[Floats, Floats], settings: FitSettings
) -> tuple[FitInterval, str]:
    """The budget at which two frontiers cross, with its interval, and why it is not told.

    The difference of the two at the budgets that both have is a line; where it is zero is known by Fieller's
    theorem. What both share at a budget, such as its data, is not in the difference.
    """
    shared, first_at, second_at = np.intersect1d(first[0].round(6), second[0].round(6), return_indices=True)
    if len(shared) < 3:
        return NOTHING, f"{len(shared)} budgets in common, where a crossing needs 3"
    zero = fit_line(shared, first[1][first_at] - second[1][second_at]).find_zero()
    if zero is None:
        return NOTHING, "the lines may be parallel"
    reach = np.ptp(shared) if settings.extrapolate else 0.0
    if zero.low < shared.min() - reach or zero.high > shared.max() + reach:
        where = "farther out than the budgets are wide" if settings.extrapolate else "outside the budgets"
        return NOTHING, f"the crossing or an end of its interval lies {where}"
    return zero.convert_ends(math.exp), ""


def _add_isoflop(report: _Report, runs: Runs, optima: Sequence[_BudgetOptimum]) -> None:
    for optimum in optima:
        ends = [compute_interval(values, optimum.runs, 3) for values in (optimum.size, optimum.loss)]
        report.add(f"size at {optimum.flops:.3g}", ends[0].convert_ends(math.exp), optimum.reason)
        report.add(f"loss at {optimum.flops:.3g}", ends[1], optimum.reason)
    usable = [optimum for optimum in optima if optimum.usable]
    by_best = "exponent of size by best runs"
    if len(usable) < 3:
        reason = f"{len(usable)} budgets have an optimum within their sizes, where a power law needs 3"
        parts = [f"{part} of {of}" for of in ("size", "tokens") for part in ("exponent", "prefactor")]
        report.refuse([*parts, by_best], reason)
        return
    flops, per_unit = np.array([optimum.flops for optimum in usable]), runs.operations_per_unit
    x, sizes = np.log(flops), np.array([optimum.size for optimum in usable])
    centred = x - x.mean()
    exponent = centred @ sizes / (centred @ centred)
    prefactor = sizes.mean(axis=0) - exponent * x.mean()

    def measure(values: Floats, change: Callable[[float], float] = float) -> FitInterval:
        counts = sum(optimum.runs for optimum in usable), 3 * len(usable)
        return compute_interval(values, *counts).convert_ends(change)

    report.add("exponent of size", measure(exponent))
    report.add("prefactor of size", measure(prefactor, math.exp))
    report.add("exponent of tokens", measure(1 - exponent))
    report.add("prefactor of tokens", measure(-prefactor - math.log(per_unit), math.exp))
    # A best run at the edge of the sizes is not that of its budget.
    edges = sum(bool(optimum.reason) for optimum in usable)
    reason = f"{edges} of {len(usable)} budgets may have their optimum at the edge of their sizes"
    best = fit_line(x, np.log([runs["size"][optimum.best] for optimum in usable]))
    report.add(by_best, best.slope_interval, reason if edges else "")
    report.note_held_out_line("best size", x, sizes[:, 0])
    if (budget := report.settings.budget) is not None:
        size = prefactor + exponent * math.log(budget)
        losses = np.log([optimum.loss[0] for optimum in usable])
        plan = {
            "size": measure(size, math.exp),
            "tokens": measure(math.log(budget / per_unit) - size, math.exp),
            "loss": fit_line(x, losses).predict_at(math.log(budget)).convert_ends(math.exp),
        }
        # A line through ln L has no constant: beyond its budgets it is another law's loss.
        outside = _describe_outside(budget, flops)
        reason = f"the budget lies outside those of the runs, {outside}" if outside else ""
        for name, interval in plan.items():
            extrapolated = report.settings.extrapolate and name != "loss"
            report.add(name, interval, "" if extrapolated else reason, planned=True)


# Laws of the loss


def _fit_parametric(report: _Report, runs: Runs) -> None:
    law = LOSS_LAWS[report.law]
    for part, weights in report.iter_methods(runs):
        estimator = LossEstimator(law, part)
        theta, optima = estimator.find_optima(report.settings.starts)
        report.optima[report.method] = optima
        if optima[0][1] < ONE_OPTIMUM:
            reached = f"reached by only {optima[0][1]:.0%} of the starts of BFGS and L-BFGS."
            report.note(f"best of {len(optima)} optima is {reached}")
        half, shares = estimator.measure_weakest(theta)
        if half > FLAT:
            names = [name for name, share in zip(law.names, shares, strict=True) if share > 0.1]
            how = "can change together" if len(names) > 1 else "can change much"
            report.refuse(law.names, f"{', '.join(names)} {how} within the noise (rank test)")
            continue
        values = estimator.name_values(np.vstack([theta, estimator.refit_resamples(weights, theta)]))
        intervals = {name: compute_interval(each, len(part), len(law.names)) for name, each in values.items()}
        reasons = _find_reasons(law, intervals)
        for name, interval in intervals.items():
            report.add(name, interval, reasons.get(name, ""))
        if report.law == "chinchilla":
            _add_optimum(report, part, values, reasons.get("E", ""))
            _add_loss_exponents(report, part)
        _note_held_out_runs(report, law, part)


def _find_reasons(law: Law, intervals: Mapping[str, FitInterval]) -> dict[str, str]:
    """Why the resamples do not tell a parameter of a law, by its name."""
    widths = {name: interval.high - interval.low for name, interval in intervals.items()}
    reasons = {}
    if law.optional:
        factor, exponent = law.optional
        if intervals[factor].low <= 0 <= intervals[factor].high or not widths[exponent] < WIDE:
            reason = f"{factor} may be 0, where {exponent} has no effect"
            reasons = dict.fromkeys(law.optional, reason)
    for name in EXPONENTS:
        if not intervals[name].low > 0:
            reason = f"the interval of {name} reaches 0, where its term is part of the constant"
            return dict.fromkeys(intervals, reason)
        if not widths[name] < WIDE:
            return dict.fromkeys(intervals, f"the interval of {name} is wider than {WIDE:g}")
    return reasons


def _add_optimum(report: _Report, runs: Runs, values: Mapping[str, Floats], reason: str) -> None:
    """The optimum at the wanted budget, else at the largest."""
    flops = report.settings.budget or float(runs["flops"].max())
    optimum = compute_optimum(values, flops, runs.operations_per_unit)
    inside = runs["size"].min() <= optimum["size"][0] <= runs["size"].max()
    if not reason and not report.settings.extrapolate and not inside:
        reason = "the optimum lies outside the sizes of the runs (--extrapolate tells it)"
    measured = {name: compute_interval(each, len(runs), 5) for name, each in optimum.items()}
    report.add("exponent of size", measured.pop("η"), reason)
    planned = report.settings.budget is not None
    for name, interval in measured.items():
        report.add(name if planned else f"{name} at {flops:.3g}", interval, reason, planned=planned)


def _add_loss_exponents(report: _Report, runs: Runs) -> None:
    """The power law of the loss above E, through the runs with the lowest loss so far."""
    (constant,) = (q for q in report.quantities if (q.name, q.method) == ("E", report.method))
    if constant.value is None:
        return
    flops, loss = runs["flops"], runs["loss"]
    places = [n for n in range(len(runs)) if (loss[flops <= flops[n]] >= loss[n]).all()]
    for end, value in (("low", constant.low), ("high", constant.high)):
        above = loss[places] - (value or 0.0)
        name = f"exponent of loss − E, E at its {end} end"
        if len(places) < 4 or not (above > 0).all():
            report.add(name, reason="fewer than 4 runs are the best so far, or one is below E")
        else:
            report.add(name, fit_line(np.log(flops[places]), np.log(above)).slope_interval)


def _note_held_out_runs(report: _Report, law: Law, runs: Runs) -> None:
    """The error of the runs of the largest budget, predicted by a fit to the others."""
    largest = runs["flops"] >= runs["flops"].max() / GROUPED
    rest, held_out = runs.select_runs(~largest), runs.select_runs(largest)
    if len(rest) <= len(law.names) or len({*rest["size"].tolist()}) < 3:
        return
    estimator = LossEstimator(law, rest)
    theta = estimator.find_optima(min(report.settings.starts or 4, 4)).theta
    errors = np.expm1(estimator.predict(theta[None], held_out)[0] - np.log(held_out["loss"]))
    report.note(
        f"loss of the largest budget, left out, is predicted with a mean error of {errors.mean():+.2%} "
        f"(mean absolute error {np.abs(errors).mean():.2%})."
    )


# Power laws of settings, and the loss and a score


def _fit_power(report: _Report, runs: Runs) -> None:
    columns = [name for name in ("learning_rate", "batch") if name in runs.columns]
    if not columns:
        raise UsageError(
            "The law power needs a column learning_rate or batch.", hint="Name it: --column batch=COLUMN"
        )
    for part, _ in report.iter_methods(runs):
        for name in columns:
            if (low := part[name] <= 0).any():
                raise UsageError(f"{name} is not above 0: {part['place'][int(low.argmax())]}.")
            best = _find_window_best(part)
            if len(best) < 3:
                reason = f"{len(best)} windows of budgets have {CROWD} runs, where a line needs 3"
                report.add(f"slope of ln {name}", reason=reason)
                continue
            points = np.log(part["flops"][best]), np.log(part[name][best])
            report.add_line(f"ln {name}", f"best {name}", *points)


def _find_window_best(runs: Runs) -> NDArray[np.int64]:
    """The places of the runs that are the best of a window of budgets that ends at a run."""
    flops = runs["flops"]
    windows = [np.flatnonzero((flops >= WINDOW * end) & (flops <= end)) for end in flops]
    best = {int(places[runs["loss"][places].argmin()]) for places in windows if len(places) >= CROWD}
    return np.array(sorted(best), int)


def _measure_pearson(first: Floats, second: Floats, axis: int = -1) -> Floats:
    correlation: Floats = pearsonr(first, second, axis=axis).statistic
    return correlation


def _measure_spearman(first: Floats, second: Floats, axis: int = -1) -> Floats:
    return _measure_pearson(rankdata(first, axis=axis), rankdata(second, axis=axis), axis)


def _fit_correlation(report: _Report, runs: Runs) -> None:
    """The correlations of loss and score over all runs, with bias-corrected and accelerated intervals."""
    report.require_runs(runs)
    columns, settings = (runs["loss"], runs["score"]), report.settings
    for name, correlate in (("Spearman", _measure_spearman), ("Pearson", _measure_pearson)):
        with warnings.catch_warnings():
            # A resample of one run alone has no correlation.
            warnings.simplefilter("ignore")
            ends = bootstrap(
                columns, correlate, paired=True, n_resamples=settings.resamples, rng=settings.seed
            ).confidence_interval
        interval = FitInterval(float(correlate(*columns)), float(ends.low), float(ends.high))
        report.add(f"{name}'s correlation of loss and score", interval)


_FITS: Mapping[LawName, Callable[[_Report, Runs], None]] = {
    "isoflop": _fit_budgets,
    "frontier": _fit_budgets,
    "chinchilla": _fit_parametric,
    "finetune": _fit_parametric,
    "power": _fit_power,
    "correlation": _fit_correlation,
}
