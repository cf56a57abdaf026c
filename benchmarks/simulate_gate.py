"""The verdicts of a check on models whose true difference is known, drawn by generators of their own.

Nothing here is derived from the statistics of the gate: every generator draws the answers of models to
fresh units, and its truth is a formula, or the mean over all trials, each of which draws afresh.

    python benchmarks/simulate_gate.py --trials 1000

1. Equal models under automatic margins: the shares of green and of red, and the margin in true errors.
2. Models that are worse by exactly the margin: the share that passes.
3. The share of intervals that hold the truth, and of truths beyond each end.
4. The share of red where one task collapses, and where every task loses a point.

Ends with 1 if a line misses its bar by more than three standard deviations of its trials, and names it.
`--only` names a bar, and may be given again; `--part` takes the lines with this in their names.
"""

from __future__ import annotations

import json
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from measuring import read_options
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from harness.checks.baselines import BaselineModel
from harness.checks.outcome import MeanOutcome, TaskOutcome
from harness.checks.overall_verdict import merge_verdicts
from harness.checks.policy import AUTO, MEAN_POINTS, TASK_POINTS, Policy
from harness.checks.sides import CheckSide, Comparison
from harness.checks.task_verdicts import estimate_baseline_power, evaluate_comparison
from harness.core.types import Column, Data, Suite, Task
from harness.results.record_units import REFIT, ScoredRecord
from harness.results.units import TRAINED, Stratum, Units
from harness.results.weighted_metrics import Floats, compute_v_measure, compute_v_measure_losses

Rng = np.random.Generator

WIDE = Policy(margin=AUTO, mean_margin=AUTO, most_margin=100.0)
"""Automatic margins, however few the examples."""

CHANGED = 0.15
"""The share of answers in which two equal models differ."""

SEEDS = 5
"""Runs of a trained model, and models of a baseline that repeats its training."""

# --- generators ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """Several models' answers to the same fresh units.

    Attributes:
        units: The units of each model.
        expected: The expected score of each model; empty without a formula.
        trainings: Whether the runs of a model are trainings, each with a record of its own.
    """

    units: tuple[Units, ...]
    expected: tuple[float, ...] = ()
    trainings: bool = False


Draw = Callable[[Rng, Sequence[float], Floats], Drawn]
"""A function of the strength of each model's loss and of common seed effects (models, SEEDS)."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of task.

    Attributes:
        name: The name, with the number of units.
        draw: The generator.
        strengths: Where the strength is not the expected loss itself: strengths from 0 on of a table, which
            a simulation fills with the losses.
        cost: One trial costs about as much as so many of a cheap kind.
    """

    name: str
    draw: Draw
    strengths: tuple[float, ...] = ()
    cost: int = 1

    def strength(self, loss: float) -> float:
        """The strength of an expected loss."""
        if not self.strengths or not loss:
            return loss
        return float(np.interp(loss, _losses(self), self.strengths))

    def deltas(self, strength: float, trials: int) -> Floats:
        """Differences of the scores of fresh pairs of models."""
        found = []
        for at in range(trials):
            rng = np.random.default_rng([at, 77, *self.name.encode()])
            drawn = self.draw(rng, (strength, 0.0), seed_effects(rng, 2))
            found.append(float(drawn.units[0].score_runs().mean() - drawn.units[1].score_runs().mean()))
        return np.array(found)


@cache
def _losses(kind: Kind) -> tuple[float, ...]:
    """The expected loss of each strength of a kind, rising, from common random numbers."""
    found = [-float(kind.deltas(one, 240 // kind.cost).mean()) for one in kind.strengths]
    return tuple(np.maximum.accumulate([0.0, *found[1:]]).tolist())


@cache
def true_error(kind: Kind, strength: float) -> float:
    """The true standard error of the difference on one task."""
    return float(kind.deltas(strength, 600 // kind.cost).std(ddof=1))


def seed_effects(rng: Rng, models: int) -> Floats:
    """What each seed of each model does to all of its tasks, (models, SEEDS), of variance 1."""
    return rng.normal(size=(models, SEEDS))


def units_of(measure: str, values: Floats, gold: Floats | None = None, unit: str = "queries") -> Units:
    """Units from (runs, probes, units); the task's name is filled in later."""
    stratum = Stratum(
        measures=(measure,), examples="", gold=np.zeros(0) if gold is None else gold, predicted=values
    )
    return Units(metric=measure, unit=unit, strata=(stratum,))


def shared(rng: Rng, own: Floats, base: Floats) -> Floats:
    """Answers (models, units) of which any two models have 85 % in common, the others drawn anew."""
    kept = rng.random(own.shape) < math.sqrt(1 - CHANGED)
    return np.where(kept, base, own)


def ndcg(rng: Rng, shape: tuple[int, ...]) -> Floats:
    """nDCG of queries: nothing at all, everything, one document at a rank of 2 to 10, or several."""
    one, several = 1 / np.log2(rng.integers(2, 11, shape) + 1), np.round(rng.uniform(0.2, 0.95, shape), 4)
    which = rng.random(shape)
    return np.select(
        [which < 0.15, which < 0.35, which < 0.7], [np.zeros(shape), np.ones(shape), one], several
    )


NDCG = 0.2 + 0.35 * float(np.mean(1 / np.log2(np.arange(3, 12)))) + 0.3 * 0.575


def queries(rng: Rng, losses: Sequence[float], _: Floats, *, count: int) -> Drawn:
    """A loss takes a part of what some queries scored, or all of it."""
    models = len(losses)
    values = shared(rng, ndcg(rng, (models, count)), ndcg(rng, (count,)))
    need = np.array(losses)[:, None] / (0.75 * NDCG)
    share = np.where(need > 0, np.clip(need, 0.3, 1.0), 0.0)
    part = np.where(rng.random(values.shape) < 0.5, 1.0, rng.random(values.shape))
    lost = np.where(rng.random(values.shape) < share, part * need / np.maximum(share, 1e-9), 0.0)
    values = values * (1 - lost)
    return Drawn(
        units=tuple(units_of("mean", own[None, None]) for own in values),
        expected=tuple(NDCG - loss for loss in losses),
    )


def flips(rng: Rng, losses: Sequence[float], _: Floats, *, count: int, right: float) -> Drawn:
    """Right or wrong answers; a loss makes right ones wrong."""
    chance = shared(rng, rng.random((len(losses), count)), rng.random(count))
    values = (chance < right) & (rng.random(chance.shape) >= np.array(losses)[:, None] / right)
    return Drawn(
        units=tuple(units_of("mean", own[None, None].astype(float), unit="texts") for own in values),
        expected=tuple(right - loss for loss in losses),
    )


def rare(rng: Rng, losses: Sequence[float], _: Floats, *, count: int) -> Drawn:
    """Few queries lose half or more of a point of score, the others nearly nothing."""
    values = 0.7 + rng.normal(0, 0.01, (len(losses), count))
    hit = rng.random(values.shape) < np.array(losses)[:, None] / 0.75
    values = values - np.where(hit, rng.uniform(0.5, 1.0, values.shape), 0.0)
    return Drawn(
        units=tuple(units_of("mean", own[None, None]) for own in values),
        expected=tuple(0.7 - loss for loss in losses),
    )


def bitext(rng: Rng, losses: Sequence[float], _: Floats, *, count: int) -> Drawn:
    """The sentence that each one is taken for: itself, or any other one."""
    own, anew = np.arange(count), rng.integers(count, size=(len(losses), count))
    right = rng.random((len(losses), count)) < 0.9
    base = np.where(rng.random(count) < 0.9, own, rng.integers(count, size=count))
    found = shared(rng, np.where(right, own, anew), base)
    lost = rng.random(found.shape) < np.array(losses)[:, None]
    found = np.where(lost, rng.integers(count, size=found.shape), found).astype(float)
    gold = own.astype(float)
    return Drawn(units=tuple(units_of("weighted_f1", one[None, None], gold, "sentences") for one in found))


def pairs(rng: Rng, losses: Sequence[float], _: Floats, *, count: int) -> Drawn:
    """Similarities of pairs, of which four in ten mean the same; a loss brings both groups together."""
    gold = (rng.random(count) < 0.4).astype(float)
    noise = shared(rng, rng.normal(size=(len(losses), count)), rng.normal(size=count))
    found = gold * (1.8 - np.array(losses)[:, None]) + noise
    return Drawn(units=tuple(units_of("average_precision", one[None, None], gold, "pairs") for one in found))


def _expected_spearman(rho: Floats, count: int) -> Floats:
    """The expected Spearman correlation of normal pairs (Moran, 1948)."""
    return np.asarray(6 / math.pi * (np.arcsin(rho) + (count - 2) * np.arcsin(rho / 2)) / (count + 1))


RHOS = np.linspace(0, 0.99, 4001)


def grades(rng: Rng, losses: Sequence[float], _: Floats, *, count: int) -> Drawn:
    """Similarities around grades, of Spearman correlation 0.8; a loss adds noise."""
    expected = float(_expected_spearman(np.array(0.8), count)) - np.array(losses)
    rho = np.interp(expected, _expected_spearman(RHOS, count), RHOS)[:, None]
    gold = rng.normal(size=count)
    noise = shared(rng, rng.normal(size=(len(losses), count)), rng.normal(size=count))
    found = rho * gold + np.sqrt(1 - rho**2) * noise
    return Drawn(
        units=tuple(units_of("spearman", one[None, None], gold, "pairs") for one in found),
        expected=tuple(expected.tolist()),
    )


def probes(rng: Rng, losses: Sequence[float], _: Floats, *, count: int) -> Drawn:
    """Ten probes: effects of probes, of each model's probes, of texts, and of texts in single probes."""
    spread = (0.1, 0.03, 1.0, 0.6, 0.8)  # probes, model x probes, texts, text x probes, single answers
    models, whole = len(losses), math.sqrt(sum(one**2 for one in spread))

    def answers(many: int) -> Floats:
        text = spread[2] * rng.normal(size=(many, 1, count))
        return text + math.hypot(*spread[3:]) * rng.normal(size=(many, 10, count))

    kept = rng.random((models, 1, count)) < math.sqrt(1 - CHANGED)
    of_texts = np.where(kept, answers(1), answers(models))
    of_probes = spread[0] * rng.normal(size=(10, 1)) + spread[1] * rng.normal(size=(models, 10, 1))
    level = whole * ndtri(0.75 - np.array(losses))[:, None, None]
    found = (level + of_probes + of_texts > 0).astype(float)
    return Drawn(
        units=tuple(units_of("mean", own[None], unit="texts") for own in found),
        expected=tuple(0.75 - loss for loss in losses),
    )


OF_SEEDS, OF_MODELS, OF_CELLS = 0.025, 0.4, 0.6
"""Standard deviations of what a seed does to a task, a model to an example, a seed of it to an example."""


def trained(
    rng: Rng,
    losses: Sequence[float],
    common: Floats,
    *,
    count: int,
    runs: tuple[int, ...] = (SEEDS, SEEDS),
    trainings: bool = False,
) -> Drawn:
    """Runs with effects of seeds, half of them the same in all tasks, and of seeds on single examples.

    With one run each the truth is the difference of these two trainings, else that of all trainings.
    """
    text, seen, expected = rng.normal(size=count), [], []
    inside = 1 + OF_MODELS**2 + OF_CELLS**2
    whole = math.sqrt(inside + OF_SEEDS**2)
    for at, loss in enumerate(losses):
        many = runs[min(at, 1)]
        effects = OF_SEEDS * (common[at, :many] + rng.normal(size=many)) / math.sqrt(2)
        level = whole * float(ndtri(0.8 - loss))
        answers = text + OF_MODELS * rng.normal(size=count) + OF_CELLS * rng.normal(size=(many, count))
        seen.append(((level + effects[:, None] + answers) > 0).astype(float)[:, None])
        alone = runs == (1, 1)
        expected.append(float(ndtr((level + effects[0]) / math.sqrt(inside))) if alone else 0.8 - loss)
    unit = "texts" if trainings else TRAINED
    return Drawn(
        units=tuple(units_of("mean", own, unit=unit) for own in seen),
        expected=tuple(expected),
        trainings=trainings,
    )


GROUPS, WIDTH = 10, 12
SIZES = np.array([0.2, 0.17, 0.14, 0.12, 0.1, 0.08, 0.07, 0.05, 0.04, 0.03])
CENTRES = np.random.default_rng(11).normal(size=(GROUPS, WIDTH)) * 0.75
CENTRES[5:] = CENTRES[:5] + np.random.default_rng(12).normal(size=(5, WIDTH)) * 0.45
"""Ten groups of unequal sizes, of which every two lie near each other."""

ROUNDS = 25
"""Most rounds of k-means, about as many as scikit-learn needs."""


def clusters(
    rng: Rng, losses: Sequence[float], _: Floats, *, count: int, draws: int, minibatch: bool
) -> Drawn:
    """K-means over draws of twice as many texts, with replacement; a loss is noise in the embeddings."""
    groups = rng.choice(GROUPS, p=SIZES, size=count)
    texts = np.array([f"{at:05}" for at in range(count)])
    drawn = rng.integers(count, size=(draws, 2 * count))
    base, start = rng.normal(size=(count, WIDTH)), int(rng.integers(2**31))
    found = []
    for loss in losses:
        kept = rng.random((count, 1)) < math.sqrt(1 - CHANGED)
        noise = np.where(kept, base, rng.normal(size=base.shape))
        embeddings = CENTRES[groups] + 0.75 * noise + loss * rng.normal(size=base.shape)
        labels = _mini_batches(embeddings, drawn) if minibatch else _k_means(embeddings, drawn, start)
        found.append(_clustering(labels, groups, drawn, texts))
    return Drawn(units=tuple(found))


def _mini_batches(embeddings: Floats, drawn: NDArray[np.intp]) -> NDArray[np.intp]:
    """The clusters (draws, places) of scikit-learn's k-means of small batches, as mteb runs it."""
    from sklearn.cluster import MiniBatchKMeans

    model = MiniBatchKMeans(n_clusters=GROUPS, batch_size=512, n_init=1, random_state=42)
    return np.stack([model.fit_predict(embeddings[own]) for own in drawn]).astype(np.intp)


def _k_means(embeddings: Floats, drawn: NDArray[np.intp], start: int) -> NDArray[np.intp]:
    """The clusters (draws, places) by Lloyd's k-means from k-means++, of all draws at once."""
    rng, texts = np.random.default_rng(start), embeddings.astype(np.float32)
    many = np.stack([np.bincount(own, minlength=len(texts)) for own in drawn]).astype(np.float32)
    draws, count = many.shape
    centres = np.empty((draws, GROUPS, texts.shape[1]), np.float32)
    near = np.ones((draws, count), np.float32)
    for cluster in range(GROUPS):
        below = np.cumsum(near * many, axis=1)
        chosen = (below < rng.random((draws, 1)) * below[:, -1:]).sum(axis=1).clip(max=count - 1)
        centres[:, cluster] = texts[chosen]
        far = (texts**2).sum(axis=1) + (texts[chosen] ** 2).sum(axis=1)[:, None] - 2 * texts[chosen] @ texts.T
        near = np.maximum(far, 0) if cluster == 0 else np.minimum(near, np.maximum(far, 0))
    labels, members = np.zeros((draws, count), np.intp), np.empty((draws, GROUPS, count), np.float32)
    for _ in range(ROUNDS):
        close = (centres.reshape(-1, texts.shape[1]) @ texts.T).reshape(members.shape)
        found = (close - (centres**2).sum(axis=2)[:, :, None] / 2).argmax(axis=1)
        if (found == labels).all():
            break
        labels, members[:] = found, 0
        members[np.arange(draws)[:, None], labels, np.arange(count)] = many
        mass = members.sum(axis=2)[..., None]
        sums = (members.reshape(-1, count) @ texts).reshape(centres.shape)
        centres = np.where(mass > 0, sums / np.maximum(mass, 1), centres)
    return np.take_along_axis(labels, drawn, axis=1)


def _clustering(
    labels: NDArray[np.intp], groups: NDArray[np.intp], drawn: NDArray[np.intp], texts: NDArray[np.str_]
) -> Units:
    """The units of a clustering, as a record's rows give them."""
    scores, influences = [], np.zeros(len(texts))
    for own, clusters_ in zip(drawn, labels, strict=True):
        scores.append(compute_v_measure(groups[own], clusters_))
        influences[np.unique(own)] += compute_v_measure_losses(groups[own], clusters_, own)
    of_texts = (influences - influences.mean()) * np.sqrt(REFIT) / len(drawn)
    stratum = Stratum(
        measures=("mean",), examples="", gold=np.zeros(0), predicted=np.array(scores)[None, None],
        texts=texts, influences=of_texts[None],
    )  # fmt: skip
    return Units(metric="v_measure", unit="texts", strata=(stratum,))


NOISES = (0.0, 0.15, 0.3, 0.45, 0.6, 0.8, 1.1, 1.6)
DISTANCES = (0.0, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0, 1.4)
SHARES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4)


def _kinds() -> Iterator[Kind]:
    for n in (50, 150, 300, 1000):
        yield Kind(name=f"nDCG, {n} queries", draw=partial(queries, count=n))
    for n, right in ((150, 0.9), (1000, 0.9), (1000, 0.97)):
        yield Kind(name=f"accuracy {right}, {n} texts", draw=partial(flips, count=n, right=right))
    yield Kind(name="bitext F1, 500 sentences", draw=partial(bitext, count=500), strengths=SHARES, cost=4)
    yield Kind(name="pairs, 600 pairs", draw=partial(pairs, count=600), strengths=DISTANCES, cost=4)
    for n in (400, 1000):
        yield Kind(name=f"rare losses, {n} queries", draw=partial(rare, count=n))
    for n in (200, 1379):
        yield Kind(name=f"Spearman, {n} pairs", draw=partial(grades, count=n), cost=1 + n // 400)
    for n in (300, 2000):
        yield Kind(name=f"ten probes, {n} texts", draw=partial(probes, count=n))
    for n in (277, 2000):
        yield Kind(name=f"{SEEDS} seeds, {n} examples", draw=partial(trained, count=n))
    yield Kind(name="one seed, 872 examples", draw=partial(trained, count=872, runs=(1, 1)))
    for many in (1, SEEDS):
        draw = partial(trained, count=500, runs=(many, SEEDS), trainings=True)
        yield Kind(name=f"{many} training{'s' * (many > 1)} against {SEEDS}, 500 texts", draw=draw)
    for n, draws in ((300, 10), (300, 30), (1000, 10), (1000, 30), (2048, 10), (2048, 30)):
        draw = partial(clusters, count=n, draws=draws, minibatch=False)
        cost = 4 if n * draws < 10_000 else 8
        yield Kind(name=f"k-means, {n} texts, {draws} draws", draw=draw, strengths=NOISES, cost=cost)
    draw = partial(clusters, count=1000, draws=10, minibatch=True)
    yield Kind(name="mini-batch k-means, 1000 texts, 10 draws", draw=draw, strengths=NOISES, cost=8)


KINDS = {kind.name: kind for kind in _kinds()}


def tasks_of(counts: dict[str, int]) -> tuple[Kind, ...]:
    """So many tasks of each kind."""
    return tuple(KINDS[name] for name, count in counts.items() for _ in range(count))


_NDCG = "nDCG, {} queries"
_KMEANS = {"k-means, 300 texts, 10 draws": 1, "k-means, 1000 texts, 10 draws": 1}
SUITES = {
    "3 tasks": {"nDCG, 300 queries": 1, "Spearman, 1379 pairs": 1, "ten probes, 2000 texts": 1},
    "13 x 50 queries": {"nDCG, 50 queries": 13},
    "20 mixed tasks": {
        **{_NDCG.format(count): 2 for count in (50, 150, 300, 1000)},
        **{"accuracy 0.9, 150 texts": 1, "accuracy 0.9, 1000 texts": 1, "bitext F1, 500 sentences": 1},
        **{"pairs, 600 pairs": 1, "Spearman, 200 pairs": 2, "Spearman, 1379 pairs": 1},
        **{"ten probes, 300 texts": 2, "ten probes, 2000 texts": 1, **_KMEANS},
    },
    "41 tasks": {
        **{_NDCG.format(count): tasks for count, tasks in ((50, 2), (150, 2), (300, 4), (1000, 5))},
        **{"pairs, 600 pairs": 3, "Spearman, 200 pairs": 7, "Spearman, 1379 pairs": 2},
        **{"ten probes, 300 texts": 2, "ten probes, 2000 texts": 6},
        **{**_KMEANS, "k-means, 300 texts, 10 draws": 7},
    },
}
LARGE = {
    **{"nDCG, 300 queries": 4, "nDCG, 1000 queries": 4, "accuracy 0.9, 1000 texts": 2},
    **{"bitext F1, 500 sentences": 1, "pairs, 600 pairs": 1, "Spearman, 1379 pairs": 3},
    **{"ten probes, 300 texts": 1, "ten probes, 2000 texts": 2, **_KMEANS},
}
TRAININGS = {
    "8 trained tasks, 5 seeds": {"5 seeds, 277 examples": 4, "5 seeds, 2000 examples": 4},
    "13 tasks, 1 training against 5": {"1 training against 5, 500 texts": 13},
}

# --- trials -------------------------------------------------------------------------------------------------

Source = Literal["stated", "runs"]
MODELS: dict[Source, int] = {"stated": 2, "runs": 4}
"""Models of a trial: the candidate and the baseline, with two more runs of it."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """Trials of one suite with a true loss of each task.

    Attributes:
        name: The name of the line.
        kinds: The kind of each task.
        strengths: The strength of the candidate's loss on each task.
        policy: The policy of the check.
        source: What automatic margins are known from.
    """

    name: str
    kinds: tuple[Kind, ...]
    strengths: tuple[float, ...]
    policy: Policy = WIDE
    source: Source = "stated"

    @property
    def names(self) -> list[str]:
        """The names of the tasks."""
        return [f"{kind.name} #{at}" for at, kind in enumerate(self.kinds)]


@dataclass(frozen=True, kw_only=True)
class Lines:
    """The outcomes of tasks or of means in all trials, each (trials, lines).

    Attributes:
        delta, low, high, margin, error: As printed.
        truth: The true difference; NaN without a formula.
        verdict: The verdicts.
    """

    delta: Floats
    low: Floats
    high: Floats
    margin: Floats
    error: Floats
    truth: Floats
    verdict: NDArray[np.str_]

    def true(self, kinds: Sequence[Kind]) -> Floats:
        """The truth of each; without a formula the mean over the trials and the tasks of one kind."""
        found = self.truth.copy()
        for kind in set(kinds):
            at = [place for place, one in enumerate(kinds) if one is kind]
            if np.isnan(found[:, at]).any():
                found[:, at] = self.delta[:, at].mean()
        return found


@dataclass(frozen=True, kw_only=True)
class Trials:
    """All trials of a line."""

    line: Line
    tasks: Lines
    mean: Lines
    exit_code: NDArray[np.int_]
    seconds: float

    def share(self, code: int) -> float:
        """The share of trials with an exit code."""
        return float((self.exit_code == code).mean())

    def show(self, bar: str, figures: dict[str, float], misses: Sequence[str]) -> Figures:
        """What a line shows, and which bars it misses."""
        about = {"name": self.line.name, "trials": len(self.exit_code), "seconds": self.seconds}
        return Figures(bar=bar, figures=figures, misses=tuple(misses), **about)


Row = tuple[list[list[Any]], list[list[Any]], int]


def trial(seed: Sequence[int], line: Line) -> Row:
    """The outcomes of one fresh pair of models."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng([*seed, *line.name.encode()])
    models, names = MODELS[line.source], line.names
    common = seed_effects(rng, models)
    drawn = {
        name: kind.draw(rng, (strength, *[0.0] * (models - 1)), common)
        for name, kind, strength in zip(names, line.kinds, line.strengths, strict=True)
    }
    suite = made_up(names)
    baseline = side(drawn, range(1, models) if line.source == "runs" else [models - 1], "baseline")
    both = _sides(side(drawn, [0], "candidate"), baseline)
    power = estimate_baseline_power(baseline, [suite], line.policy, trainings=both.candidate.trainings)
    tasks, means = evaluate_comparison(both, [suite], line.policy, power)
    code = merge_verdicts(tasks, means, line.policy).exit_code
    truths = [one.expected[0] - one.expected[-1] if one.expected else math.nan for one in drawn.values()]
    rows = [_row(one, truth) for one, truth in zip(tasks, truths, strict=True)]
    return rows, [_row(one, float(np.mean(truths))) for one in means], code


def _row(one: TaskOutcome | MeanOutcome, truth: float) -> list[Any]:
    return [one.delta, one.low, one.high, one.margin, one.error, truth, one.verdict]


def _sides(candidate: CheckSide, baseline: CheckSide) -> Comparison:
    return Comparison(candidate=candidate, baseline=baseline, failures={})


@cache
def _suite(names: tuple[str, ...]) -> Suite:
    source: Any = None
    tasks = [
        Task(name=n, type="any", metric="any", splits=("test",), data=Data(), source=source) for n in names
    ]
    columns = tuple(Column(name=task.name, type=task.type, tasks=(task,)) for task in tasks)
    return Suite(name="made up", title="", columns=columns)


def made_up(names: Sequence[str]) -> Suite:
    """A suite of these tasks."""
    return _suite(tuple(names))


def side(drawn: dict[str, Drawn], places: Sequence[int], label: str) -> CheckSide:
    """One side of a check: the models at these places, or the trainings of a model."""
    held: dict[str, list[ScoredRecord]] = {}
    for task, one in drawn.items():
        for place in places:
            units = _of_task(one.units[place], task)
            parts = _single_runs(units) if one.trainings else [units]
            held.setdefault(task, []).extend(
                _record(part, f"{label} {place}.{run}") for run, part in enumerate(parts)
            )
    models = dict.fromkeys(str(one.model["artifact"]) for ones in held.values() for one in ones)
    runs = tuple(BaselineModel(model=m, source=m, artifact=m, folder=m, keys={}) for m in models)
    scored = {task: tuple(ones) for task, ones in held.items()}
    return CheckSide(runs=runs, home=Path(), scored=scored, missing=dict.fromkeys(held, 0))


def _of_task(units: Units, task: str) -> Units:
    return replace(units, strata=(replace(units.strata[0], examples=task),))


def _single_runs(units: Units) -> list[Units]:
    stratum = units.strata[0]
    return [replace(units, strata=(replace(stratum, predicted=own[None]),)) for own in stratum.predicted]


def _record(units: Units, model: str) -> ScoredRecord:
    score = float(units.score_runs().mean())
    key = f"{model} {units.strata[0].examples}"
    return ScoredRecord(
        key=key, task={}, model={"artifact": model}, identity={}, provenance={}, score=score, units=units
    )


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """Runs lines, each in as many trials as are wanted.

    Attributes:
        trials, seed: The number of trials of a line, and the seed of all.
        pool: The processes; None runs everything in this one.
    """

    trials: int
    seed: int
    pool: ProcessPoolExecutor | None = None

    def of(self, line: Line, trials: int | None = None) -> Trials:
        """The trials of a line."""
        start, count = time.perf_counter(), trials or self.trials
        seeds = [(self.seed, at) for at in range(count)]
        one = partial(trial, line=line)
        rows = [*map(one, seeds)] if self.pool is None else [*self.pool.map(one, seeds, chunksize=4)]
        return Trials(
            line=line,
            tasks=_lines([row[0] for row in rows]),
            mean=_lines([row[1] for row in rows]),
            exit_code=np.array([row[2] for row in rows]),
            seconds=time.perf_counter() - start,
        )


def _lines(rows: Sequence[Sequence[Sequence[Any]]]) -> Lines:
    numbers = np.array([[line[:6] for line in row] for row in rows], dtype=float)
    verdicts = np.array([[line[6] for line in row] for row in rows])
    names = ("delta", "low", "high", "margin", "error", "truth")
    return Lines(**dict(zip(names, np.moveaxis(numbers, 2, 0), strict=True)), verdict=verdicts)


# --- bars ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What a line shows, and which bars it misses."""

    bar: str
    name: str
    trials: int
    figures: dict[str, float]
    misses: tuple[str, ...] = ()
    seconds: float = 0.0

    def text(self) -> str:
        """One line of the table."""
        shown = "  ".join(f"{name} {value:.3g}" for name, value in self.figures.items())
        missed = f"  MISSED: {', '.join(self.misses)}" if self.misses else ""
        return f"{self.bar}  {self.name:58} {shown}  ({self.trials} trials, {self.seconds:.0f} s){missed}"


def slack(share: float, count: int) -> float:
    """Three standard deviations of a share of so many trials."""
    return 3 * math.sqrt(max(share * (1 - share), 1e-4) / count)


def equal_lines() -> Iterator[Line]:
    """Bar 1: nothing differs."""
    sources: tuple[Source, ...] = ("stated", "runs")
    for source in sources:
        for name, counts in SUITES.items():
            chosen = tasks_of(counts)
            yield Line(name=f"{name}, {source}", kinds=chosen, strengths=(0.0,) * len(chosen), source=source)
    for name, counts in TRAININGS.items():
        chosen = tasks_of(counts)
        yield Line(name=f"{name}, runs", kinds=chosen, strengths=(0.0,) * len(chosen))


def margin_ratio(margins: Floats, errors: float, floor: float) -> float:
    """The mean margin in 3.6 true standard errors, or in floors where that is more."""
    return float(margins.mean() / max(3.6 * errors, floor))


def equal_models(found: Trials) -> Figures:
    """Bar 1: the shares of green and red, and the margins."""
    count = len(found.exit_code)
    floors = TASK_POINTS / 100, MEAN_POINTS / 100
    spread = math.sqrt(float((found.mean.delta**2).mean()))
    mean = margin_ratio(found.mean.margin, spread, floors[1])
    ratios = {}
    for kind in dict.fromkeys(found.line.kinds):
        at = [place for place, one in enumerate(found.line.kinds) if one is kind]
        own = math.sqrt(float((found.tasks.delta[:, at] ** 2).mean()))
        ratios[kind.name] = margin_ratio(found.tasks.margin[:, at], own, floors[0])
    worst = max(ratios, key=lambda name: ratios[name])
    green, red = found.share(0), found.share(1)
    misses = []
    if green < 0.9 - slack(0.9, count):
        misses.append("green")
    if red > 0.05 + slack(0.05, count):
        misses.append("red")
    # By Student's t of three trainings a margin is 1.2 times as far, and more where some are below the floor.
    most = 1.4 if found.line.source == "runs" else 1.3
    if mean > most:
        misses.append("margin of the mean")
    misses += [f"margin of {name}: {ratio:.2f}" for name, ratio in ratios.items() if ratio > most]
    figures = {
        "green": green,
        "red": red,
        "exit 3": found.share(3),
        "true error": 100 * spread,
        "margin": 100 * float(found.mean.margin.mean()),
        "of 3.6 errors or floor": mean,
        "floor rules": float((found.mean.margin <= floors[1] + 1e-12).mean()),
        f"worst of tasks ({worst})": ratios[worst],
        "low miss": float((found.mean.low > 0).mean()),
        "high miss": float((found.mean.high < 0).mean()),
        "any task red": float((found.tasks.verdict == "regressed").any(axis=1).mean()),
    }
    return found.show("bar1", figures, misses)


ALIKE = 3
"""Tasks of one kind in a suite."""


def null_lines(bars: Sequence[str], part: str) -> Iterator[tuple[Line, int]]:
    """Bars 2 and 3: suites of one kind, and mixed ones, with the divisor of their trials."""
    for kind in KINDS.values():
        losses = (
            ["a loss of 3.6 errors"] if kind.cost >= 4 else ["a loss of 1 points", "a loss of 3.6 errors"]
        )
        if kind.name.startswith("rare"):
            losses = [f"a loss of {one:g} points" for one in (1, 1.5, 3)]
        for name in ["equal"] * ("bar3" in bars) + losses:
            if part in f"{kind.name}, {name}":
                yield _alike(kind, name), ALIKE if kind.cost >= 4 else 1
    for name, counts in {**SUITES, **TRAININGS}.items():
        if part in f"{name}, each loses 3.6 errors":
            yield _each_loses(name, tasks_of(counts)), 2 if len(counts) > 3 else 1
    if part in "13 x 50 queries, one loses all":
        yield _one_loses(), 1


def _each_loses(name: str, kinds: tuple[Kind, ...]) -> Line:
    """A suite whose mean is worse by 3.6 of its errors, on every task alike."""
    loss = 3.6 * math.sqrt(sum(true_error(kind, 0.0) ** 2 for kind in kinds)) / len(kinds)
    strengths = tuple(kind.strength(loss) for kind in kinds)
    policy = Policy(margin=100 * loss, mean_margin=100 * loss)
    return Line(name=f"{name}, each loses 3.6 errors", kinds=kinds, strengths=strengths, policy=policy)


def _one_loses() -> Line:
    """A suite whose mean is worse by 2.5 points, by one task alone."""
    kinds = tasks_of(SUITES["13 x 50 queries"])
    policy = Policy(margin=32.5, mean_margin=2.5, collapse=100)
    strengths = (0.325, *[0.0] * 12)
    return Line(name="13 x 50 queries, one loses all", kinds=kinds, strengths=strengths, policy=policy)


def _alike(kind: Kind, name: str) -> Line:
    """Three tasks of a kind, each with the loss that a name has."""
    words = name.split()
    loss = 0.0 if name == "equal" else float(words[3]) / 100
    if words[-1] == "errors":
        loss = 3.6 * true_error(kind, 0.0)
    policy = Policy(margin=100 * loss, mean_margin=100 * loss) if loss else WIDE
    strengths = (kind.strength(loss),) * ALIKE
    return Line(name=f"{kind.name}, {name}", kinds=(kind,) * ALIKE, strengths=strengths, policy=policy)


def null(found: Trials, bars: Sequence[str]) -> Iterator[Figures]:
    """Bars 2 and 3 of a line: the lower bound beyond the truth is a pass; coverage of both ends."""
    kinds = found.line.kinds
    groups = {
        "tasks": (found.tasks, found.tasks.true(kinds), 0.02 / len(kinds)),
        "mean": (found.mean, found.mean.true([kinds[0]]), 0.025),
    }
    for name, (lines, truth, red) in groups.items():
        count = lines.delta.size
        low, high = float((lines.low > truth).mean()), float((lines.high < truth).mean())
        passed = float(np.isin(lines.verdict, ("passed", "improved", "same")).mean())
        figures = {
            "low miss": low,
            "high miss": high,
            "of": red,
            "covered": 1 - low - high,
            "level": 0.95 - red,
            "delta": 100 * float(lines.delta.mean()),
            "true error": 100 * float((lines.delta - truth).std()),
            "claimed": 100 * math.sqrt(float((lines.error**2).mean())),
        }
        common: dict[str, Any] = {"trials": count, "seconds": found.seconds}
        label = f"{found.line.name}: {name}"
        lost = any(found.line.strengths)
        if "bar2" in bars and lost:
            exact = not np.isnan(lines.truth).any() and float(np.ptp(truth)) < 1e-9
            shares = {
                "passed": passed
                if (exact and name == "mean") or (exact and "each loses" not in label)
                else low
            }
            misses = ("passed",) if shares["passed"] > 0.05 + slack(0.05, count) else ()
            yield Figures(bar="bar2", name=label, figures={**shares, **figures}, misses=misses, **common)
        if "bar3" in bars:
            yield Figures(
                bar="bar3", name=label, figures=figures, misses=tuple(_uncovered(low, high, red, count)),
                **common,
            )  # fmt: skip


def _uncovered(low: float, high: float, red: float, count: int) -> Iterator[str]:
    """What is wrong with the ends of intervals."""
    covered, level = 1 - low - high, 0.95 - red
    if covered < level - 0.03 - slack(level, count):
        yield "too short"
    if covered > level + 0.02 + slack(level, count):
        yield "too long"
    if low > 0.08 + slack(0.05, count):
        yield "low end"
    if abs(high - red) > 0.01 + slack(red, count):
        yield "high end"


def collapse_lines(part: str) -> Iterator[Line]:
    """Bar 4: one task of several collapses, by the larger of 10 points and 7 errors of its difference."""
    for kind in KINDS.values():
        for size in (3, 13, 41, 56):
            if part in f"{kind.name}, 1 of {size} collapses":
                trains = "seed" in kind.name or "training" in kind.name
                other = kind if trains else KINDS["nDCG, 50 queries"]
                yield Line(
                    name=f"{kind.name}, 1 of {size} collapses",
                    kinds=(kind, *[other] * (size - 1)),
                    strengths=(_collapse(kind), *[0.0] * (size - 1)),
                )


@cache
def _collapse(kind: Kind) -> float:
    """The strength of a collapse."""
    loss = 0.1
    for _ in range(3):
        loss = max(0.1, 7 * true_error(kind, kind.strength(loss)))
    return kind.strength(loss)


def collapsed(found: Trials) -> Figures:
    """Bar 4: the share of red, by the task and of the whole."""
    count, red = len(found.exit_code), found.share(1)
    figures = {
        "red": red,
        "its task red": float((found.tasks.verdict[:, 0] == "regressed").mean()),
        "delta": 100 * float(found.tasks.delta[:, 0].mean()),
        "true error": 100 * float(found.tasks.delta[:, 0].std()),
        "claimed": 100 * float(found.tasks.error[:, 0].mean()),
        "other task red": float((found.tasks.verdict[:, 1:] == "regressed").any(axis=1).mean()),
    }
    return found.show("bar4", figures, ["red"] if red < 0.99 - slack(0.99, count) else [])


FALLING = "20 mixed tasks of 300 and more, each loses a point"


def falling_line() -> Line:
    """Bar 4: every task loses a point."""
    chosen = tasks_of(LARGE)
    strengths = tuple(kind.strength(0.01) for kind in chosen)
    return Line(name=FALLING, kinds=chosen, strengths=strengths)


def fallen(found: Trials) -> Figures:
    """Bar 4: the share of red where every task lost a point."""
    count, red = len(found.exit_code), found.share(1)
    figures = {
        "red": red,
        "by the mean": float((found.mean.verdict == "regressed").mean()),
        "exit 3": found.share(3),
        "green": found.share(0),
        "delta": 100 * float(found.mean.delta.mean()),
        "true error": 100 * float(found.mean.delta.std()),
        "margin": 100 * float(found.mean.margin.mean()),
    }
    return found.show("bar4", figures, ["red"] if red < 0.8 - slack(0.8, count) else [])


BARS = ("bar1", "bar2", "bar3", "bar4")


def all_figures(simulation: Simulation, bars: Sequence[str], part: str = "") -> Iterator[Figures]:
    """The figures of every line of some bars whose name has a part."""
    if "bar1" in bars:
        yield from (equal_models(simulation.of(line)) for line in equal_lines() if part in line.name)
    if "bar2" in bars or "bar3" in bars:
        for line, divisor in null_lines(bars, part):
            yield from null(simulation.of(line, -(-simulation.trials // divisor)), bars)
    if "bar4" in bars:
        if part in FALLING:
            yield fallen(simulation.of(falling_line()))
        yield from (collapsed(simulation.of(line)) for line in collapse_lines(part))


def main() -> int:
    """Print the figures; 1 if a bar is missed."""
    only = {"choices": BARS, "action": "append"}
    given = read_options(__doc__, trials=1000, seed=0, processes=2, only=only, part="", json=False)
    print(json.dumps({"trials": given.trials, "seed": given.seed, "seeds": f"[{given.seed}, trial, name]"}))
    missed = []
    with ProcessPoolExecutor(given.processes) as pool:
        simulation = Simulation(trials=given.trials, seed=given.seed, pool=pool)
        for one in all_figures(simulation, given.only or BARS, given.part):
            print(json.dumps(asdict(one)) if given.json else one.text(), flush=True)
            missed += [one] if one.misses else []
    print(f"{len(missed)} lines miss their bars.")
    for one in missed:
        print(f"  {one.bar}  {one.name}: {', '.join(one.misses)}")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
