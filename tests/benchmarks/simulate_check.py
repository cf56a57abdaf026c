"""The check's verdicts on made-up models whose true difference is known.

Every trial makes two models on 20 tasks: searches with a score of every query, few-shot
classification with ten probes, correlations of pairs, and clusterings of ten draws; each model of
the second half has several seeds that shift its scores at random. Prints the share of trials with
a false alarm, the power at a stated drop, and how often verdicts of equivalence are right; ends
with 1 if a share is out of its bounds.

    python tests/benchmarks/simulate_check.py --trials 1000
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from harness.checks.baselines import BaselineModel
from harness.checks.decide import _judge, _Limits, conclude, decide
from harness.checks.difference import Difference
from harness.checks.policy import DEFAULT
from harness.checks.record_units import ScoredRecord
from harness.checks.sides import CheckSide, Comparison
from harness.checks.units import Stratum, Units
from harness.metrics import Floats
from harness.types import Column, Data, Suite, Task

ALPHA = 0.05
SEEDS = (3, 5)
"""Runs of the candidate and of the baseline where there are several."""

SPREAD = 0.006
"""Standard deviation of what a seed adds to a model's score."""

DROP, WIDE = 0.03, 0.02
"""A drop whose power is told, and a margin at which a verdict of equivalence would be wrong."""

ALARM = "false alarm (any of 20 tasks regressed, none true)"
RIGHT = "no equivalence where the difference is the margin (mean over tasks)"

WHOLE = "false alarm of a whole check: tasks and mean, no margins"

REPEATS = 3
"""Models of a baseline that repeats its training; each is evaluated with two seeds."""

Maker = Callable[[np.random.Generator, float, tuple[int, int]], tuple[Units, Units]]


def units(measure: str, predicted: Floats, gold: Floats | None = None) -> Units:
    """Units of (runs, probes, units)."""
    none = np.zeros(0)
    stratum = Stratum(
        measures=(measure,), examples="", gold=none if gold is None else gold, predicted=predicted
    )
    return Units(metric=measure, unit="units", strata=(stratum,))


def shifts(rng: np.random.Generator, runs: int) -> Floats:
    """What seeds add to the score of each run, (runs, 1)."""
    return rng.normal(0, SPREAD, size=(runs, 1)) if runs > 1 else np.zeros((1, 1))


def search(rng: np.random.Generator, effect: float, runs: tuple[int, int], count: int) -> tuple[Units, Units]:
    """Scores of queries: a share finds nothing, the others score by how hard they are."""
    level = rng.normal(0.55, 0.2, size=count)
    found = rng.random(count) < 0.85

    def model(shift: float, many: int) -> Units:
        noise = rng.normal(0, 0.15, size=(many, count)) * 0.5 + rng.normal(0, 0.15, size=count) * 0.5
        values = np.where(found, level + noise, 0.0) + shifts(rng, many) + shift
        return units("mean", values[:, None, :])

    return model(effect, runs[0]), model(0.0, runs[1])


def labels(rng: np.random.Generator, effect: float, runs: tuple[int, int], count: int) -> tuple[Units, Units]:
    """Right or wrong in ten probes, by how hard a text is."""
    level = rng.beta(4, 2, size=count) * 0.5 + 0.25

    def model(shift: float, many: int) -> Units:
        own = level + rng.normal(0, 0.05, size=count)
        chance = np.clip(own[None, None] + shift + shifts(rng, many)[:, None], 0, 1)
        return units("mean", (rng.random((many, 10, count)) < chance).astype(float))

    return model(effect, runs[0]), model(0.0, runs[1])


def pairs(rng: np.random.Generator, effect: float, runs: tuple[int, int], count: int) -> tuple[Units, Units]:
    """Similarities around gold grades; the effect is one on Spearman's correlation, nearly."""
    gold = rng.normal(size=count)

    def model(shift: float, many: int) -> Units:
        target = 0.8 + shift + shifts(rng, many)
        noise = rng.normal(size=(many, count)) * np.sqrt(1 / np.clip(target, 0.05, 0.99) ** 2 - 1)
        return units("spearman", (gold + noise)[:, None, :], gold)

    return model(effect, runs[0]), model(0.0, runs[1])


def draws(rng: np.random.Generator, effect: float, runs: tuple[int, int], count: int) -> tuple[Units, Units]:
    """V-measures of draws."""
    level = rng.normal(0.45, 0.02, size=count)

    def model(shift: float, many: int) -> Units:
        values = level + rng.normal(0, 0.008, size=(many, count)) + shifts(rng, many) + shift
        return units("mean", values[:, None, :])

    return model(effect, runs[0]), model(0.0, runs[1])


TASKS: dict[str, Maker] = {
    **{f"search{n}": partial(search, count=n) for n in (50, 50, 150, 300, 323, 500, 648, 1000)},
    **{f"labels{n}": partial(labels, count=n) for n in (209, 300, 500, 1000, 2000)},
    **{f"pairs{n}": partial(pairs, count=n) for n in (250, 500, 1000, 1379)},
    **{f"draws{n}": partial(draws, count=n) for n in (10, 10, 12, 15)},
}
NAMES = [*TASKS, "search50b", "draws10b"]
"""20 tasks: two sizes stand twice."""


def trial(seed: int, *, effects: dict[str, float], seeds: bool, names: list[str]) -> dict[str, Difference]:
    """The differences of one pair of models."""
    rng = np.random.default_rng(seed)
    runs = SEEDS if seeds else (1, 1)
    found = {}
    for name in names:
        mine, theirs = TASKS[name.removesuffix("b")](rng, effects.get(name, 0.0), runs)
        found[name] = Difference.between(mine, theirs)
    return found


@dataclass(frozen=True)
class Question:
    """One simulation: what is true, and which verdicts are counted."""

    effects: dict[str, float]
    margin: float
    names: list[str]


def verdicts(seed: int, question: Question, seeds: bool) -> dict[str, str]:
    """The verdict of every task of one trial."""
    found = trial(seed, effects=question.effects, seeds=seeds, names=question.names)
    limits = {name: _Limits(margin=question.margin) for name in found}
    judged = _judge(found, limits, alpha=ALPHA, correction="holm", units=dict.fromkeys(found, "units"))
    return {name: one.verdict for name, one in judged.items()}


def share(rows: list[dict[str, str]], verdict: str, name: str | None = None) -> float:
    """Of how many trials a verdict was given: to one task, or to any."""
    hits = [verdict in row.values() if name is None else row[name] == verdict for row in rows]
    return sum(hits) / len(hits)


def overall(seed: int, kind: str) -> dict[str, str]:
    """The verdict of a whole check of 20 tasks in which nothing differs, under the default policy."""
    rng = np.random.default_rng(seed)
    pairs = {name: scored(rng, name, kind) for name in NAMES}
    sides = Comparison(candidate=_side(pairs, 0), baseline=_side(pairs, 1), failures={})
    source: Any = None
    tasks = [
        Task(name=name, type="any", metric="any", splits=("test",), data=Data(), source=source)
        for name in NAMES
    ]
    columns = tuple(Column(name=task.name, type=task.type, tasks=(task,)) for task in tasks)
    suite = Suite(name="made up", title="", columns=columns)
    policy = replace(DEFAULT, margin=0.0, mean_margin=0.0)
    found = decide(sides, [suite], policy, "baseline")
    return {"whole": conclude(found.tasks, found.means, policy).verdict}


def scored(rng: np.random.Generator, name: str, kind: str) -> tuple[list[ScoredRecord], list[ScoredRecord]]:
    """The records of both sides on one task: one run, runs with seeds, or repeats with two seeds each."""
    runs = {"one run": (1, 1), "seeds": SEEDS, "repeats": (1, REPEATS)}[kind]
    own = float(rng.normal(0, SPREAD)) if kind == "repeats" else 0.0
    mine, theirs = TASKS[name.removesuffix("b")](rng, own, runs)
    if kind != "repeats":
        return [_record(mine, "candidate")], [_record(theirs, "baseline")]
    return _evaluated(rng, mine, "candidate"), [
        one for at in range(REPEATS) for one in _evaluated(rng, _run(theirs, at), f"repeat {at}")
    ]


def _run(whole: Units, at: int) -> Units:
    stratum = replace(whole.strata[0], predicted=whole.strata[0].predicted[at : at + 1])
    return replace(whole, strata=(stratum,))


def _evaluated(rng: np.random.Generator, whole: Units, model: str) -> list[ScoredRecord]:
    """One model under two seeds, which tell the same of pairs, and nearly so of what is drawn."""
    if whole.strata[0].measures != ("mean",):
        return [_record(whole, model)]
    predicted = whole.strata[0].predicted
    other = replace(whole.strata[0], predicted=predicted + rng.normal(0, 0.02, size=predicted.shape))
    return [_record(whole, model), _record(replace(whole, strata=(other,)), model)]


def _record(whole: Units, model: str) -> ScoredRecord:
    key = f"{model} {id(whole)}"
    return ScoredRecord(
        key=key, task={}, model={"artifact": model}, identity={}, provenance={}, score=0.5, units=whole
    )


def _side(pairs: Mapping[str, tuple[list[ScoredRecord], list[ScoredRecord]]], at: int) -> CheckSide:
    models = dict.fromkeys(str(one.model["artifact"]) for pair in pairs.values() for one in pair[at])
    runs = tuple(BaselineModel(model=m, source=m, artifact=m, folder=m, keys={}) for m in models)
    held = {name: tuple(pair[at]) for name, pair in pairs.items()}
    return CheckSide(runs=runs, home=Path(), scored=held, missing=dict.fromkeys(pairs, 0))


def answers(pool: ProcessPoolExecutor, trials: int, *, seeds: bool) -> dict[str, float]:
    """Every share, of models with one run or with several seeds."""
    none: dict[str, float] = {}
    clear = ["search1000", "labels2000", "pairs1379", "draws15"]
    one = {"search1000": -DROP, "pairs1379": -DROP}
    questions = {
        "none": Question(none, 0.0, NAMES),
        "one": Question(one, 0.0, NAMES),
        "margin": Question(dict.fromkeys(clear, -WIDE), WIDE, clear),
        "alike": Question(none, WIDE, clear),
    }
    rows = {
        key: list(pool.map(partial(verdicts, question=one_, seeds=seeds), range(count), chunksize=8))
        for key, one_ in questions.items()
        for count in [trials * (4 if key == "margin" else 1)]
    }
    wrong = {name: share(rows["margin"], "equivalent", name) for name in clear}
    power = {f"power at -{100 * DROP:g} points, {n}": share(rows["one"], "regressed", n) for n in one}
    alike = {f"equivalent where nothing differs, {n}": share(rows["alike"], "equivalent", n) for n in clear}
    return {
        ALARM: share(rows["none"], "regressed"),
        "false praise (any of 20 tasks improved, none true)": share(rows["none"], "improved"),
        RIGHT: round(1 - sum(wrong.values()) / len(wrong), 5),
        **{f"of these, {name}": round(1 - value, 5) for name, value in wrong.items()},
        **power,
        **alike,
    }


def main() -> int:
    """Print the shares; 1 if one is out of its bounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=4)
    asked = parser.parse_args()
    with ProcessPoolExecutor(asked.processes) as pool:
        out = {
            "one run": answers(pool, asked.trials, seeds=False),
            f"{SEEDS[0]} and {SEEDS[1]} seeds": answers(pool, asked.trials, seeds=True),
        }
        whole = {
            kind: share(
                list(pool.map(partial(overall, kind=kind), range(asked.trials), chunksize=8)), "regressed"
            )
            for kind in ("one run", "seeds", "repeats")
        }
    print(json.dumps({"trials": asked.trials, "alpha": ALPHA, **out, WHOLE: whole}, indent=1))
    slack = 0.015 * (1000 / asked.trials) ** 0.5
    alarms, right = ([values[name] for values in out.values()] for name in (ALARM, RIGHT))
    return int(max(*alarms, *whole.values()) > ALPHA + slack or min(right) < 1 - ALPHA - slack)


if __name__ == "__main__":
    sys.exit(main())
