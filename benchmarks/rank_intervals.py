"""How often the site's intervals of means and of ranks cover the truth, by the number and weights of tasks.

    python benchmarks/rank_intervals.py [--trials 2000] [--models 20] [--seed 0] [--results FOLDER]

Tasks are drawn from a large population of tasks; the truth is each model's mean over all of them, and its
rank by that. A score is the task's difficulty (Beta, skewed, shared by all models), the model's ability and
what the two have together (Student's t with 5 degrees, as some tasks suit a model far better). With
`--results`, a folder with an import of mteb's results, the population is the tasks of MTEB(eng, v2) as its
ranked models have them, drawn with replacement. Half of the tasks drawn stand for one type, a third for
another, the rest for a third: all weigh 1, or their types weigh 1, 2.5 and 0.5 a task (weighted), or each
type weighs the same in all (per type). Tasks there are independent of their types. In the last rows they are
not: a type moves scores as much as a task does, the seven types have the sizes of those of MTEB(eng, v2),
and the truth is over other tasks of these types (types fixed) or of any (types drawn). For the interval of a
mean, Student's t stands beside the percentile bootstrap over tasks. An interval of 95 % should cover 95 %: of
the means, of the differences of two neighbours by the truth, and of the ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
from measuring import format_table, read_options
from numpy.typing import NDArray

from leaderboard.data.ranking import Floats, bound_ranks, compute_half_widths
from leaderboard.data.settings import read_site_settings
from leaderboard.web.site import open_site

COUNTS = (6, 10, 20, 41)
WEIGHTS = ("alike", "weighted", "per type")
TYPES = np.array([10, 9, 8, 8, 3, 2, 1])
MEAN = 5 / 7

Draw = tuple[Floats, Floats]
"""Scores of models on some tasks, and the truth of each model."""


def draw_population(rng: np.random.Generator, models: int, tasks: int = 20_000) -> Floats:
    """Scores of models on a population of tasks."""
    return np.asarray(MEAN + rng.normal(0, 0.03, (models, 1)) + draw_parts(rng, models, tasks))


def draw_parts(rng: np.random.Generator, models: int, count: int) -> Floats:
    """What each of some tasks, or types, adds to the scores of models; 0 on average."""
    return np.asarray(rng.beta(5, 2, count) - MEAN + 0.03 * rng.standard_t(5, (models, count)))


def read_population(results: Path) -> Floats:
    """Scores of the ranked models of MTEB(eng, v2) on its tasks."""
    queries = open_site(read_site_settings([results]), at_once=True).queries
    scores = queries.load_suite_scores(queries.suites["mteb"])
    return scores.values[scores.compute_ranks("tasks", "model").place > 0]


def iter_samples(rng: np.random.Generator, population: Floats, count: int) -> Iterator[Draw]:
    """Tasks of a population."""
    truth = population.mean(axis=1)
    while True:
        yield population[:, rng.integers(population.shape[1], size=count)], truth


def iter_typed_samples(rng: np.random.Generator, models: int, weights: Floats, fixed: bool) -> Iterator[Draw]:
    """Tasks of seven types; the truth is over these types if they are fixed."""
    while True:
        ability = MEAN + rng.normal(0, 0.03, models)
        types = np.repeat(draw_parts(rng, models, len(TYPES)), TYPES, axis=1)
        values = ability[:, None] + types + draw_parts(rng, models, len(weights))
        yield values, ability + fixed * np.average(types, axis=1, weights=weights)


def weigh_tasks(kind: str, sizes: NDArray[np.int64]) -> Floats:
    """What each task of some types weighs."""
    weighted = np.array([1, 2.5, 0.5])
    by_type = {"alike": np.ones(len(sizes)), "weighted": weighted, "per type": 1 / sizes}[kind]
    return np.repeat(by_type, sizes)


def measure_coverage(
    draws: Iterator[Draw], weights: Floats, trials: int, rng: np.random.Generator
) -> list[float]:
    """The shares of covered means by Student's t and by the bootstrap, of differences, and of ranks."""
    count, covered = len(weights), np.zeros((trials, 4))
    for trial, (values, truth) in zip(range(trials), draws, strict=False):
        order = np.argsort(-truth)
        true_ranks = np.empty(len(truth))
        true_ranks[order] = np.arange(1, len(truth) + 1)
        means = np.average(values, axis=1, weights=weights)
        places = rng.integers(count, size=(400, count))
        resampled = (values[:, places] * weights[places]).sum(axis=2) / weights[places].sum(axis=1)
        low, high = np.percentile(resampled, [2.5, 97.5], axis=1)
        gaps = values[order[:-1]] - values[order[1:]]
        errors = np.average(gaps, axis=1, weights=weights) - (truth[order[:-1]] - truth[order[1:]])
        best, worst = bound_ranks(values, weights).T
        covered[trial] = (
            (abs(means - truth) <= compute_half_widths(values, weights)).mean(),
            ((low <= truth) & (truth <= high)).mean(),
            (abs(errors) <= compute_half_widths(gaps, weights)).mean(),
            ((best <= true_ranks) & (true_ranks <= worst)).mean(),
        )
    return covered.mean(axis=0).tolist()


def main() -> None:
    """Print a row for each kind of weights, number of tasks, and part of the types."""
    given = read_options(__doc__, trials=2000, models=20, seed=0, results=Path())
    rng = np.random.default_rng(given.seed)
    real = given.results != Path()
    population = read_population(given.results) if real else draw_population(rng, given.models)
    rows = []
    for kind, count in product(WEIGHTS, COUNTS):
        weights = weigh_tasks(kind, np.array([count - count // 3 - count // 6, count // 3, count // 6]))
        shares = measure_coverage(iter_samples(rng, population, count), weights, given.trials, rng)
        rows.append((kind, str(count), *(f"{share:.1%}" for share in shares)))
    for fixed, kind in product((True, False), () if real else ("alike", "per type")):
        weights = weigh_tasks(kind, TYPES)
        draws = iter_typed_samples(rng, given.models, weights, fixed)
        shares = measure_coverage(draws, weights, given.trials, rng)
        title = f"{kind}, types {'fixed' if fixed else 'drawn'}"
        rows.append((title, str(len(weights)), *(f"{share:.1%}" for share in shares)))
    print(f"{len(population)} models, {population.shape[1]:,} tasks in the population, {given.trials} trials")
    print(format_table(("weights", "tasks", "mean, Student", "mean, bootstrap", "difference", "rank"), rows))


if __name__ == "__main__":
    main()
