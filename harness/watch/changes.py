"""Checkpoints that are lower, with a known share of false alarms.

A look is the test of one checkpoint against an earlier one, example by example, as `harness check` compares
two models: it tells what these two do on texts like these. Looks are many, so the k-th spends a level of
ALARMS / (k (k + 1)): the levels of all looks together are ALARMS, and so is the chance of any false alarm
in a watch, however long it runs and whatever the looks have in common. Until the first alarm the earlier
checkpoint is the one before, which no score has chosen.

Two more tests are against a straight line in the logarithm of the step, which smooth curves of pretraining
are over a few checkpoints; they see what scatters from checkpoint to checkpoint as noise:

- on arrival, a checkpoint is compared with the line through the WINDOW checkpoints before it. If noise is
  normal, its distance in units of the prediction's standard error follows Student's t. A checkpoint with a p
  below ARRIVAL is flagged, and left out of the forecasts that follow; because of that a little more than
  ARRIVAL of all sound checkpoints are flagged, about one in a hundred;
- with hindsight, a jump between any two checkpoints is compared with a line without a jump, over up to REACH
  checkpoints on each side. The smallest p of all places is compared with that of noise on the same steps,
  drawn DRAWS times: HINDSIGHT of all sound curves are flagged. A curve with a jump is cut there, and
  both sides are tested again.

A flag also needs a score that really is lower than before: a curve that merely flattens has none. Noise is
never taken for less than FLOOR, as scores come in steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from harness.checks.baselines import BaselineModel
from harness.checks.sides import CheckSide, Comparison
from harness.core.terminal import shorten_names
from harness.core.types import build_artifact_slug
from harness.plan.request import PreparedRun
from harness.results.score_differences import Difference, MeanDifference
from harness.watch.state import SETTLED, ChangePoint, Look, Watch, WatchEntry

Floats: TypeAlias = NDArray[np.float64]

WINDOW, LEAST = 8, 5
"""Most and fewest checkpoints that a forecast is made of."""

ARRIVAL, HINDSIGHT = 0.008, 0.01
"""The p below which a checkpoint, and a curve, are flagged."""

REACH, SIDE = 6, 3
"""Most and fewest checkpoints on each side of a jump."""

FLOOR = 0.0005
"""Least standard deviation of a score's noise: 0.05 points."""

DRAWS = 1999
"""The number of noise curves that a curve is compared with; the smallest p there is 1 / 2000."""

ALARMS = 0.05
"""The chance of any false alarm of all looks of a watch together."""


def compute_look_level(look: int) -> float:
    """The level of a look, counted from 1; the levels of all looks together are ALARMS.

    >>> [round(compute_look_level(look), 5) for look in (1, 2, 10)]
    [0.025, 0.00833, 0.00045]
    """
    return ALARMS / (look * (look + 1))


def look_at(mean: MeanDifference, *, number: int, reference: int) -> Look:
    """The test of a checkpoint against an earlier one: is its mean lower?

    Args:
        mean: The checkpoint minus the earlier one.
        number: The number of the look, counted from 1; one at the same outputs has none.
        reference: The step of the earlier checkpoint.
    """
    fields = {"reference": reference, "columns": len(mean.columns), "wanted": mean.wanted}
    if mean.same:
        return Look(number=0, delta=0.0, low=0.0, high=0.0, p=1.0, level=0.0, verdict="same", **fields)
    level = compute_look_level(number)
    low, high = mean.compute_interval(level)
    return Look(
        number=number,
        delta=mean.delta,
        low=low,
        high=high,
        p=mean.compute_loss_p(),
        level=level,
        verdict="lower" if high < 0 else "not lower",
        **fields,
    )


def mean_difference(entry: WatchEntry, reference: WatchEntry, prepared: PreparedRun) -> MeanDifference | str:
    """A checkpoint's mean minus an earlier one's, or the reason why it cannot be tested.

    Args:
        entry: The checkpoint.
        reference: The earlier checkpoint.
        prepared: The request of the watch, with its suite and its store.
    """
    (suite,) = prepared.suites
    candidate, other = (_read_check_side(side, prepared) for side in (entry, reference))
    for step, side in ((entry.step, candidate), (reference.step, other)):
        gone = [task for task, count in side.missing.items() if count]
        if gone:
            return f"step {step} has no record of {shorten_names(gone)}"
    sides = Comparison(candidate=candidate, baseline=other, failures={})
    tasks = sides.select_averages([suite]).compute_differences(suite.tasks)
    tested = {name: outcome for name, outcome in tasks.items() if isinstance(outcome, Difference)}
    columns = tuple(column for column in suite.columns if column.tasks)  # others are left out
    parts = sides.compute_part_differences(suite)
    mean = MeanDifference.aggregate_suite(replace(suite, columns=columns), tested | parts)
    reasons = (outcome for outcome in tasks.values() if isinstance(outcome, str))
    return mean or next(reasons, "no task has examples of its own").replace("the candidate: ", "")


def _read_check_side(entry: WatchEntry, prepared: PreparedRun) -> CheckSide:
    """The records of a checkpoint, as a side of a check."""
    (suite,) = prepared.suites
    keys: dict[str, dict[str, tuple[str, ...]]] = {}
    for task in suite.tasks:
        artifact = (task.output == "label" and entry.backbone) or entry.artifact
        keys.setdefault(artifact, {})[task.name] = (entry.records.get(task.name, ""),)
    runs = [
        BaselineModel(
            model=entry.model,
            source=entry.model,
            artifact=artifact,
            folder=build_artifact_slug(entry.model, artifact),
            keys=own,
        )
        for artifact, own in keys.items()
    ]
    return CheckSide.read_side(runs, prepared, prepared.store.root)


def detect_drops(
    steps: Sequence[int], values: Sequence[float] | Floats, *, seed: int = 0
) -> tuple[ChangePoint, ...]:
    """The drops in the level of a curve, by step.

    Args:
        steps: Ascending, (checkpoints,).
        values: The score of each checkpoint, (checkpoints,).
        seed: The seed of the noise for the test with hindsight.
    """
    # log1p, as a watch may begin at step 0.
    x, y = np.log1p(np.asarray(steps, float)), np.asarray(values, float)
    drops, aside = _detect_arrival_drops(x, y)
    kept = np.array([i for i in range(len(x)) if i not in aside], int)
    shifts = _detect_shifts(x[kept], y[kept], np.random.default_rng(seed)) if len(kept) else []
    points = [
        ChangePoint(step=steps[a], last=steps[b], kind="drop", size=size, p=p) for a, b, size, p in drops
    ] + [
        ChangePoint(step=steps[kept[at]], last=steps[kept[at]], kind="shift", size=size, p=p)
        for at, size, p in shifts
    ]
    return tuple(sorted(points, key=lambda change: (change.step, change.kind)))


def detect_change_points(watch: Watch) -> tuple[ChangePoint, ...]:
    """The drops in the level of a watch's curve."""
    curve = [(one.step, one.mean) for one in watch.curve if one.mean is not None]
    return detect_drops([step for step, _ in curve], [mean for _, mean in curve])


def _predict_score(x: Floats, y: Floats, position: float) -> tuple[float, float, int]:
    """The forecast of a straight line through points: expected value, standard error, degrees of freedom."""
    centre, degrees = x.mean(), len(x) - 2
    # The steps of a watch differ, but the logarithms of two large ones may not.
    spread = max(float(((x - centre) ** 2).sum()), np.finfo(float).tiny)
    slope = float(((x - centre) * (y - y.mean())).sum()) / spread
    residuals = y - y.mean() - slope * (x - centre)
    noise = max(float(np.sqrt((residuals**2).sum() / degrees)), FLOOR)
    # The standard error of a prediction by simple linear regression: of the line, and of one point more.
    error = noise * np.sqrt(1 + 1 / len(x) + (position - centre) ** 2 / spread)
    return float(y.mean() + slope * (position - centre)), float(error), degrees


def _detect_arrival_drops(x: Floats, y: Floats) -> tuple[list[tuple[int, int, float, float]], set[int]]:
    """The drops as (first, last, size, p), and single low checkpoints that are left out of later tests."""
    from scipy.special import stdtr

    drops: list[tuple[int, int, float, float]] = []
    sound: list[int] = []
    low: list[int] = []
    aside: set[int] = set()
    for i in range(len(x)):
        size = p = 0.0
        if len(sound) >= LEAST:
            window = sound[-WINDOW:]
            expected, error, degrees = _predict_score(x[window], y[window], x[i])
            size, p = expected - float(y[i]), float(stdtr(degrees, (y[i] - expected) / error))
        # A curve that flattens falls below its forecast, but not below its last sound checkpoint.
        if len(sound) < LEAST or p >= ARRIVAL or y[i] >= y[sound[-1]]:
            # Too few low ones in a row for a new level: they would bend the line of all later tests.
            aside.update(low)
            low = []
            sound.append(i)
            continue
        low.append(i)
        first = drops.pop() if len(low) > 1 else (i, i, size, p)
        drops.append((first[0], i, first[2], first[3]))
        # The low level is the new one: forecasts go on from there.
        if len(low) == SETTLED:
            sound, low = low, []
    return drops, aside


def _detect_shifts(
    x: Floats, y: Floats, rng: np.random.Generator, first: int = 0
) -> list[tuple[int, float, float]]:
    """The downward jumps as (index, size, p); the curve is cut at the surest, and both sides are searched."""
    places = range(SIDE, len(x) - SIDE + 1)
    if not places:
        return []
    noise = rng.standard_normal((DRAWS, len(x)))
    # Without FLOOR, which is in units of scores: these curves have a deviation of 1.
    least = np.min([_fit_jump(x, noise, at)[1] for at in places], axis=0)
    real = [_fit_jump(x, y[None], at, floor=FLOOR) for at in places]
    falls = [y[at : at + SIDE].mean() < y[at - SIDE : at].mean() for at in places]
    smallest = min((float(p[0]), n) for n, (_, p) in enumerate(real))
    # The curve itself is one of the draws, so p is never 0 (Phipson and Smyth, 2010, Permutation P-values
    # Should Never Be Zero).
    p = (1 + int((least <= smallest[0]).sum())) / (1 + DRAWS)
    if p >= HINDSIGHT or not falls[smallest[1]]:
        return []
    cut = places[smallest[1]]
    left = _detect_shifts(x[:cut], y[:cut], rng, first)
    right = _detect_shifts(x[cut:], y[cut:], rng, first + cut)
    return [*left, (first + cut, -float(real[smallest[1]][0][0]), p), *right]


def _fit_jump(x: Floats, y: Floats, at: int, *, floor: float = 0.0) -> tuple[Floats, Floats]:
    """The jump between `at` - 1 and `at` beside a straight line, and its p against a downward jump."""
    from scipy.special import stdtr

    window = slice(max(0, at - REACH), min(len(x), at + REACH))
    near, values = x[window], y[:, window]
    behind = (np.arange(window.start, window.stop) >= at).astype(float)
    line = np.linalg.qr(np.stack([np.ones_like(near), near - near.mean()], axis=1))[0]
    # Frisch, Waugh and Lovell: the jump beside the line is a regression on what the line leaves of the step.
    unexplained = behind - line @ (line.T @ behind)
    strength = max(float(unexplained @ unexplained), np.finfo(float).tiny)
    size = values @ unexplained / strength
    rest = values - (values @ line) @ line.T - size[:, None] * unexplained
    degrees = len(near) - 3
    noise = np.maximum(np.sqrt((rest**2).sum(axis=1) / degrees), floor)
    # 1e-300 stands for no noise at all, e.g. of a curve that is a straight line.
    return size, np.asarray(stdtr(degrees, size * np.sqrt(strength) / np.maximum(noise, 1e-300)))
