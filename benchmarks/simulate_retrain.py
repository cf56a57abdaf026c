"""The verdicts of `--question retrain` on recipes of known mean accuracy, whose trainings differ by seeds.

    python benchmarks/simulate_retrain.py --trials 1000

A training has its recipe's accuracy and a seed's normal effect, common in part to all tasks. It answers a
text right if the sum of the text's ease, which all trainings share, and its own noise is high enough: texts
and seeds are drawn anew in each trial. The candidate's recipe is equal, or worse by one or three margins (2
points of a task, 1 of a mean). Red and green are shares of all checks; "known" is one training a side of a
backbone with a row in the table of seed deviations. "at most" is the share of equal recipes that any rule
can pass which keeps its level, by `bound_passing`. Ends with 1 if a line misses its bar by more than three
standard deviations of its trials.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from measuring import read_options
from scipy.special import ndtri
from scipy.stats import multivariate_normal
from simulate_gate import Drawn, made_up, side, slack, units_of

from harness.checks.overall_verdict import merge_verdicts
from harness.checks.policy import DEFAULT
from harness.checks.questions import judge_retraining
from harness.checks.sides import Comparison
from harness.checks.task_verdicts import estimate_baseline_power, evaluate_comparison
from harness.results.units import TRAINED

Rng = np.random.Generator
ACCURACY, ALIKE, COMMON = 0.8, 0.85, 0.25
"""The accuracy of the baseline's recipe, the share of a text's ease in an answer, and of a seed's effect what
all tasks have in common."""

DRAWN = 200_000
"""Draws for a bound, which is then exact to 0.2 points."""

TEXTS: dict[int, int] = {1: 4000, 8: 1000}
"""The texts of each task, by the number of tasks."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """Trials to run.

    Attributes:
        tasks: The number of tasks of the suite.
        deviation: The standard deviation of a task's accuracy over seeds, in points.
        replicates: The number of trainings of the candidate.
        baseline: Those of the baseline.
        margins: The true loss.
        form: `models` has a model for each training, `trained` a record with all trainings of a task, `known`
            a model whose deviation is in the table.
    """

    tasks: int
    deviation: float
    replicates: int
    baseline: int
    margins: int
    form: Literal["models", "trained", "known"]

    @property
    def margin(self) -> float:
        """The default margin in shares of 1."""
        return 0.02 if self.tasks == 1 else 0.01

    @property
    def name(self) -> str:
        """The line in words."""
        against = f" against {self.baseline}" if self.baseline != self.replicates else ""
        return (
            f"{self.tasks} {'task' if self.tasks == 1 else 'tasks'}, seeds {self.deviation:g}, "
            f"{self.replicates} {self.form}{against}, a loss of {self.margins} margins"
        )


def draw_answers(rng: Rng, line: Line) -> dict[str, Drawn]:
    """The answers of both recipes' trainings to the same texts, by task."""
    count, both, drawn = line.replicates, line.replicates + line.baseline, {}
    common = rng.normal(size=both)
    for task in range(line.tasks):
        own = rng.normal(size=both)
        effects = line.deviation / 100 * (np.sqrt(COMMON) * common + np.sqrt(1 - COMMON) * own)
        accuracy = ACCURACY - line.margins * line.margin * (np.arange(both) < count) + effects
        ease = rng.normal(size=TEXTS[line.tasks])
        noise = rng.normal(size=(both, len(ease)))
        right = np.sqrt(ALIKE) * ease + np.sqrt(1 - ALIKE) * noise < ndtri(accuracy)[:, None]
        if line.form == "trained":
            sides = np.split(right[:, None] * 1.0, [count])
            drawn[f"T{task}"] = Drawn(units=tuple(units_of("mean", one, unit=TRAINED) for one in sides))
        else:
            models = tuple(units_of("mean", one[None, None] * 1.0, unit="texts") for one in right)
            drawn[f"T{task}"] = Drawn(units=models)
    return drawn


def judge(rng: Rng, line: Line) -> str:
    """The verdict of a check of two recipes."""
    drawn, suites = draw_answers(rng, line), [made_up([f"T{at}" for at in range(line.tasks)])]
    count, others = (1, 1) if line.form == "trained" else (line.replicates, line.baseline)
    places = range(count), range(count, count + others)
    sides = Comparison(
        candidate=side(drawn, places[0], "x"), baseline=side(drawn, places[1], "a"), failures={}
    )
    power = estimate_baseline_power(sides.baseline, suites, DEFAULT, trainings=count)
    tasks, means = evaluate_comparison(sides, suites, DEFAULT, power)
    deviations: dict[str, float] = {}
    if line.form == "known":
        mean = line.deviation * np.sqrt(COMMON + (1 - COMMON) / line.tasks)
        deviations = {**dict.fromkeys(drawn, line.deviation), "mean": float(mean)}
    names = {suites[0].name: deviations}
    tasks = tuple(replace(one, suites=(suites[0].name,)) for one in tasks)
    tasks, means, _ = judge_retraining(tasks, means, sides, names if deviations else {})
    return merge_verdicts(tasks, means, DEFAULT).verdict


def bound_passing(line: Line) -> float:
    """The largest share of equal recipes that a rule can pass, if it does not know what seeds do.

    The rule passes at most alpha of recipes worse by the margin, whatever the seeds' deviation. So it cannot
    pass more than Neyman and Pearson's test of equal recipes against such worse ones of a single, larger
    deviation (Lehmann and Stein, 1948, Annals of Mathematical Statistics 19); the least of these shares is
    the bound. It holds as well for a rule that believes in a deviation too small by that factor.
    """
    alike = multivariate_normal.cdf([ndtri(ACCURACY)] * 2, cov=[[1, ALIKE], [ALIKE, 1]])
    seeds = (line.deviation / 100) ** 2 * (COMMON + (1 - COMMON) / line.tasks)
    variance = seeds + (ACCURACY - alike) / line.tasks / TEXTS[line.tasks]
    margin = line.margin / np.sqrt(variance * (1 / line.replicates + 1 / line.baseline))
    rng, shares = np.random.default_rng(0), []
    noise, squares = rng.normal(size=DRAWN), rng.chisquare(line.replicates + line.baseline - 2, size=DRAWN)
    for times in np.linspace(1.02, 2.0, 50):
        worse, equal = (
            (distance**2 + spread) / times**2 - (distance - margin) ** 2 - spread
            for distance, spread in ((times * noise, times**2 * squares), (margin + noise, squares))
        )
        shares.append(float((equal > np.quantile(worse, 1 - DEFAULT.alpha)).mean()))
    return min(shares)


def list_misses(line: Line, red: float, green: float, trials: int) -> list[str]:
    """The bars that a line misses; of what few seeds cannot show, some are only printed."""
    shares = {"false red": red if not line.margins else 0.0, "passed": green if line.margins else 0.0}
    bars = {"false red": 0.05, "passed": 0.05}
    if line.replicates >= 3 and line.deviation <= 1:
        shares["inconclusive"] = 1 - red - green if not line.margins else 0.0
        shares["not red"] = 1 - red if line.margins == 3 else 0.0
        bars |= {"inconclusive": max(0.3, 1 - bound_passing(line)), "not red": 0.05}
    return [name for name, bar in bars.items() if shares[name] > bar + slack(bar, trials)]


def simulate_line(line: Line, trials: int, seed: int) -> tuple[str, list[str]]:
    """A row of the table, and the bars that it misses."""
    rng = np.random.default_rng([seed, *line.name.encode()])
    verdicts = [judge(rng, line) for _ in range(trials)]
    red = verdicts.count("regressed") / trials
    green = sum(one in ("passed", "improved", "same") for one in verdicts) / trials
    misses = list_misses(line, red, green, trials)
    row = f"{line.name:56} red {red:6.1%}  inconclusive {1 - red - green:6.1%}  green {green:6.1%}"
    row += f" (at most {bound_passing(line):.1%})" if line.replicates > 1 and not line.margins else ""
    return row + (f"  MISSED: {', '.join(misses)}" if misses else ""), misses


def iter_lines(part: str = "") -> Iterator[Line]:
    """All lines with a part in their names."""
    for tasks in TEXTS:
        for deviation in (0.5, 1.0, 2.0):
            for replicates, baseline in ((1, 1), (3, 3), (5, 5), (3, 9)):
                for margins in (0, 1, 3):
                    for form in ("models", "trained", "known"):
                        line = Line(
                            tasks=tasks,
                            deviation=deviation,
                            replicates=replicates,
                            baseline=baseline,
                            margins=margins,
                            form=form,
                        )
                        if part in line.name and (form != "known" or baseline == 1):
                            yield line


def main() -> int:
    """Print the table; 1 if a line misses its bar."""
    given = read_options(__doc__, trials=1000, seed=0, part="")
    missed = 0
    for line in iter_lines(given.part):
        text, misses = simulate_line(line, given.trials, given.seed)
        print(text, flush=True)
        missed += bool(misses)
    print(f"{missed} lines miss their bars.")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
