"""The verdicts of a check on two models of known true scores that differ in a share of their answers.

    python benchmarks/simulate_changes.py --trials 1000

Answers that differ are drawn anew: from the baseline's distribution, or from a worse one that makes a true
loss of one margin or of three (2 points of a task, 1 of the mean of four). Where a share is too small for
the loss, all that it needs differ. `low` and `high` are the shares of truths below and above the interval.
Ends with 1 if a line misses its bar by more than three standard deviations of its trials.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from measuring import read_options
from scipy.optimize import brentq
from scipy.special import ndtr
from simulate_gate import Drawn, made_up, side, slack, units_of

from harness.checks.overall_verdict import merge_verdicts
from harness.checks.policy import Policy
from harness.checks.sides import Comparison
from harness.checks.task_verdicts import estimate_baseline_power, evaluate_comparison
from harness.results.units import Units

Rng = np.random.Generator
SHARES = (0.02, 0.15, 0.4, 0.8)
POLICY = Policy(margin=2.0, mean_margin=1.0)
LOWER, UPPER = 0.05, 0.025
"""The levels of the two ends of an interval of a mean, or of a suite of one task."""


def draw_ndcg(rng: Rng, changed: float, loss: float, count: int = 2000) -> tuple[Units, Units]:
    """A quarter finds nothing, a quarter everything; a loss is a part of each differing score."""
    changed, which = max(changed, loss / 0.45), rng.random((2, count))
    theirs, anew = np.select([which < 0.25, which < 0.5], [0.0, 1.0], rng.beta(2, 2, (2, count)))
    mine = np.where(rng.random(count) < changed, anew * (1 - loss / changed / 0.5), theirs)
    return units_of("mean", mine[None, None]), units_of("mean", theirs[None, None])


def draw_accuracy(rng: Rng, changed: float, loss: float, count: int = 2000) -> tuple[Units, Units]:
    """Of answers 0.8 are right, of those that differ fewer."""
    changed, theirs = max(changed, loss / 0.75), rng.random(count) < 0.8
    mine = np.where(rng.random(count) < changed, rng.random(count) < 0.8 - loss / changed, theirs)
    return units_of("mean", mine[None, None] * 1.0), units_of("mean", theirs[None, None] * 1.0)


def draw_spearman(rng: Rng, changed: float, loss: float, count: int = 500) -> tuple[Units, Units]:
    """Bivariate normals, of a Spearman correlation of 6 / π asin(ρ / 2), linear in a mixture of normals."""
    changed, true = max(changed, loss / 0.7), 6 / np.pi * np.arcsin(0.8 / 2)
    worse = 2 * np.sin(np.pi / 6 * (true - loss / changed))
    gold, noise = rng.normal(size=count), rng.normal(size=(2, count))
    theirs = 0.8 * gold + 0.6 * noise[0]
    anew = worse * gold + np.sqrt(1 - worse**2) * noise[1]
    mine = np.where(rng.random(count) < changed, anew, theirs)
    return units_of("spearman", mine[None, None], gold), units_of("spearman", theirs[None, None], gold)


POSITIVE, APART = 0.3, 2.0


def _compute_true_precision(worse: float, changed: float) -> float:
    """The average precision of endless pairs, whose positives are APART, and those that differ `worse`."""
    at = np.linspace(-8, 10, 6001)
    above = (1 - changed) * ndtr(APART - at) + changed * ndtr(worse - at)
    precision = POSITIVE * above / (POSITIVE * above + (1 - POSITIVE) * ndtr(-at))
    return float(-np.trapezoid(precision, above))


@functools.cache
def _find_worse(changed: float, loss: float) -> float:
    wanted = _compute_true_precision(APART, changed) - loss
    return float(brentq(lambda worse: _compute_true_precision(worse, changed) - wanted, -8, APART + 1e-9))


def draw_precision(rng: Rng, changed: float, loss: float, count: int = 500) -> tuple[Units, Units]:
    """Normal similarities of pairs, higher where both mean the same; a loss brings those that differ down."""
    changed, gold = max(changed, loss / 0.4), (rng.random(count) < POSITIVE) * 1.0
    noise = rng.normal(size=(2, count))
    anew = gold * _find_worse(changed, loss) + noise[1]
    theirs = gold * APART + noise[0]
    mine = np.where(rng.random(count) < changed, anew, theirs)
    both = [units_of("average_precision", one[None, None], gold) for one in (mine, theirs)]
    return both[0], both[1]


def draw_copies(rng: Rng, changed: float, loss: float) -> tuple[Units, Units]:
    """20 pairs, each 30 times."""
    return _copy(draw_spearman(rng, changed, loss, 20))


def _copy(both: tuple[Units, Units], times: int = 30) -> tuple[Units, Units]:
    strata = [one.strata[0] for one in both]
    names = np.tile(np.arange(strata[0].size, dtype=np.uint64), times)
    copies = [
        replace(one, gold=np.tile(one.gold, times), predicted=np.tile(one.predicted, times), names=names)
        for one in strata
    ]
    first, second = (replace(one, strata=(own,)) for one, own in zip(both, copies, strict=True))
    return first, second


Draw = Callable[[Rng, float, float], tuple[Units, Units]]
KINDS: dict[str, Draw] = {
    "nDCG, 2000 queries": draw_ndcg,
    "accuracy, 2000 texts": draw_accuracy,
    "Spearman, 500 pairs": draw_spearman,
    "average precision, 500 pairs": draw_precision,
}
SUITES: dict[str, tuple[Draw, ...]] = {
    **{name: (draw,) for name, draw in KINDS.items()},
    "the mean of these": tuple(KINDS.values()),
    "Spearman, 20 pairs 30 times": (draw_copies,),
}


@dataclass(frozen=True, kw_only=True)
class Line:
    """The outcomes of trials: how often each happened, in shares."""

    name: str
    trials: int
    margins: int
    low: float
    high: float
    green: float
    red: float
    sees: bool

    @property
    def misses(self) -> list[str]:
        """The bars that are missed."""
        bars = {
            "low": (self.low, LOWER + 0.01),
            "high": (self.high, UPPER + 0.01),
            "false red": (self.red if not self.margins else 0.0, 0.05),
            "passed": (self.green if self.margins == 1 else 0.0, 0.05),
            "not green": (1 - self.green if self.sees and not self.margins else 0.0, 0.1),
            "not red": (1 - self.red if self.sees and self.margins == 3 else 0.0, 0.05),
        }
        return [name for name, (share, bar) in bars.items() if share > bar + slack(bar, self.trials)]

    @property
    def text(self) -> str:
        """A row of the table."""
        missed = f"  MISSED: {', '.join(self.misses)}" if self.misses else ""
        return (
            f"{self.name:54} low {self.low:6.1%}  high {self.high:6.1%}  green {self.green:6.1%}  "
            f"red {self.red:6.1%}  {'sees' if self.sees else 'does not see'} the margin{missed}"
        )


def simulate_line(name: str, changed: float, margins: int, *, trials: int, seed: int) -> Line:
    """The trials of a suite with a share of differing answers and a true loss of so many margins."""
    draws = SUITES[name]
    loss, names = margins * (0.02 if len(draws) == 1 else 0.01), [f"T{at}" for at in range(len(draws))]
    suite, counts, power = made_up(names), np.zeros(4), None
    rng = np.random.default_rng([seed, int(100 * changed), margins, *name.encode()])
    for _ in range(trials):
        both = {task: draw(rng, changed, loss) for task, draw in zip(names, draws, strict=True)}
        drawn = {task: Drawn(units=own) for task, own in both.items()}
        sides = Comparison(candidate=side(drawn, [0], "x"), baseline=side(drawn, [1], "a"), failures={})
        # Margins are numbers, so that the power of the first baseline does for all.
        power = power or estimate_baseline_power(
            sides.baseline, [suite], POLICY.model_copy(update={"changed": changed})
        )
        tasks, means = evaluate_comparison(sides, [suite], POLICY, power)
        (mean,) = means
        code = merge_verdicts(tasks, means, POLICY).exit_code
        same = mean.low is None or mean.high is None
        counts += (
            not same and mean.low > -loss, not same and mean.high < -loss, code == 0, code == 1
        )  # fmt: skip
    sensitivity = power.means[suite.name] if power else None
    low, high, green, red = (counts / trials).tolist()
    label = f"{name}, {changed:.0%}, " + ("equal" if not margins else f"a loss of {margins} margins")
    return Line(
        name=label, trials=trials, margins=margins, low=low, high=high, green=green, red=red,
        sees=sensitivity is not None and (sensitivity.passing or 0) > 0.95,
    )  # fmt: skip


def iter_lines(trials: int, seed: int, part: str = "") -> Iterator[Line]:
    """All lines whose suite has a part in its name."""
    warnings.simplefilter("ignore")
    for name in SUITES:
        for changed in SHARES:
            for margins in (0, 1, 3):
                if part in name:
                    yield simulate_line(name, changed, margins, trials=trials, seed=seed)


def main() -> int:
    """Print the table; 1 if a line misses its bar."""
    given = read_options(__doc__, trials=1000, seed=0, part="")
    missed = 0
    for line in iter_lines(given.trials, given.seed, given.part):
        print(line.text, flush=True)
        missed += bool(line.misses)
    print(f"{missed} lines miss their bars.")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
