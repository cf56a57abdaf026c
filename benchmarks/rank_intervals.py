"""How often the site's intervals of means and of ranks cover the truth, by the number of tasks.

    python benchmarks/rank_intervals.py [--trials 2000] [--models 20] [--seed 0] [--results FOLDER]

Tasks are drawn from a large population of tasks; the truth is each model's mean over all of them, and its
rank by that. A score is the task's difficulty (Beta, skewed, shared by all models), the model's ability and
what the two have together (Student's t with 5 degrees, as some tasks suit a model far better). With
`--results`, a folder with an import of mteb's results, the population is the tasks of MTEB(eng, v2) as its
ranked models have them, drawn with replacement. For the interval of a mean, Student's t stands beside the
percentile bootstrap over tasks. An interval of 95 % should cover 95 %: of the means, of the differences of
two neighbours by the truth, and of the ranks.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from measuring import format_table, read_options

from leaderboard.data.ranking import Floats, bound_ranks, compute_half_width, compute_mean_halves
from leaderboard.data.settings import read_site_settings
from leaderboard.web.site import open_site

COUNTS = (6, 10, 20, 41)


def draw_population(rng: np.random.Generator, models: int, tasks: int = 20_000) -> Floats:
    """Scores of models on a population of tasks."""
    difficulty = rng.beta(5, 2, tasks)
    ability = rng.normal(0, 0.03, (models, 1))
    return np.asarray(difficulty + ability + 0.03 * rng.standard_t(5, (models, tasks)))


def read_population(results: Path) -> Floats:
    """Scores of the ranked models of MTEB(eng, v2) on its tasks."""
    queries = open_site(read_site_settings([results]), at_once=True).queries
    scores = queries.load_suite_scores(queries.suites["mteb"])
    return scores.values[scores.compute_ranks("tasks", "model").place > 0]


def measure_coverage(population: Floats, count: int, trials: int, rng: np.random.Generator) -> list[float]:
    """The shares of covered means by Student's t and by the bootstrap, of differences, and of ranks."""
    truth, weights = population.mean(axis=1), np.ones(count)
    order = np.argsort(-truth)
    true_ranks = np.empty(len(truth))
    true_ranks[order] = np.arange(1, len(truth) + 1)
    covered = np.zeros((trials, 4))
    for trial in range(trials):
        values = population[:, rng.integers(population.shape[1], size=count)]
        means = values.mean(axis=1)
        halves = compute_mean_halves(values, weights)
        draws = values[:, rng.integers(count, size=(400, count))].mean(axis=2)
        low, high = np.percentile(draws, [2.5, 97.5], axis=1)
        gaps = values[order[:-1]] - values[order[1:]]
        errors = gaps.mean(axis=1) - (truth[order[:-1]] - truth[order[1:]])
        best, worst = bound_ranks(values, weights).T
        covered[trial] = (
            (abs(means - truth) <= halves).mean(),
            ((low <= truth) & (truth <= high)).mean(),
            np.mean([abs(e) <= compute_half_width(gap) for e, gap in zip(errors, gaps, strict=True)]),
            ((best <= true_ranks) & (true_ranks <= worst)).mean(),
        )
    return covered.mean(axis=0).tolist()


def main() -> None:
    """Print a row for each number of tasks."""
    given = read_options(__doc__, trials=2000, models=20, seed=0, results=Path())
    rng = np.random.default_rng(given.seed)
    real = given.results != Path()
    population = read_population(given.results) if real else draw_population(rng, given.models)
    rows = [
        (str(count), *(f"{share:.1%}" for share in measure_coverage(population, count, given.trials, rng)))
        for count in COUNTS
    ]
    print(f"{len(population)} models, {population.shape[1]:,} tasks in the population, {given.trials} trials")
    print(format_table(("tasks", "mean, Student", "mean, bootstrap", "difference", "rank"), rows))


if __name__ == "__main__":
    main()
