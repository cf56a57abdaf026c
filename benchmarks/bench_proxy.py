"""Chosen tasks beside hand-picked ones at the same cost, on how well they predict a benchmark's mean.

    python benchmarks/bench_proxy.py --path RESULTS

`--path` (or BENCH_RESULTS) is a results folder that holds an import of mteb's results. The hand-picked
tasks are the seven that Ziarko et al. (2024) evaluate on: of each type of MTEB the one that follows its
type's mean best (their eighth, Tatoeba, is in neither benchmark). MTEB(eng, v2) has five of them, two as
later versions. Both get the same regression, cross-validated over families; the chosen ones are chosen
anew without each family.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
from measuring import read_options

from harness.commands.proxy import _open_import, _open_target
from harness.core.types import Suite, SuiteOptions
from harness.proxy.document import Proxy
from harness.proxy.fit import ProxyRequest, fit_proxy, measure_errors
from harness.proxy.table import ScoreTable

PICKED = (
    "EmotionClassification",
    "TwentyNewsgroupsClustering",
    "SprintDuplicateQuestions",
    "AskUbuntuDupQuestions",
    "SciFact",
    "STS15",
    "SummEval",
)
LATER = {
    "TwentyNewsgroupsClustering": "TwentyNewsgroupsClustering.v2",
    "SummEval": "SummEvalSummarization.v2",
}
TARGETS = ("MTEB(eng, v2)", "MTEB(eng, v1)")


def picked(suite: Suite) -> tuple[str, ...]:
    """The hand-picked tasks that a benchmark has, under the names they have there."""
    names = {task.name for task in suite.tasks}
    return tuple(name for one in PICKED if (name := one if one in names else LATER.get(one, "")) in names)


def row(label: str, proxy: Proxy, seconds: float) -> str:
    """A line of the table."""
    error = proxy.error
    numbers = (proxy.cost.minutes or float("nan"), 100 * error.rmse, 100 * error.mae, 100 * error.half_width)
    ranks = (error.kendall or 0, error.spearman or 0)
    told = (
        f"{numbers[0]:9.2f}{numbers[1]:8.2f}{numbers[2]:8.2f}{numbers[3]:8.2f}{100 * error.plain_rmse:8.2f}"
    )
    return f"{label:28}{len(proxy.tasks):6}{told}{ranks[0]:9.3f}{ranks[1]:9.3f}{seconds:8.1f}"


def main() -> int:
    """Print a table for each target; 1 if the hand-picked tasks predict better at the same cost."""
    known = os.environ.get("BENCH_RESULTS")
    asked = read_options(
        __doc__, path={"type": Path, "default": known, "required": known is None}, minutes=5.0
    )
    source, worse, told = _open_import("", Path(asked.path)), [], {}
    for target in TARGETS:
        typed, suite = _open_target(target, SuiteOptions())
        hand = ProxyRequest(suite=typed, tasks=picked(suite))
        table = ScoreTable.read_score_table(source, suite)
        first = fit_proxy(source, suite, hand)
        wishes = {
            "hand-picked": hand,
            "chosen at the same cost": ProxyRequest(suite=typed, minutes=first.cost.minutes or 0),
            f"chosen, {asked.minutes:g} minutes": ProxyRequest(suite=typed, minutes=asked.minutes),
        }
        counts = f"{len(table.models)} models of {len(set(table.families))} families"
        print(f"\n{target}: {counts}, all of it {first.cost.whole:.0f} minutes")
        print(f"{'':28}{'tasks':>6}{'minutes':>9}{'RMSE':>8}{'mean':>8}{'± 95 %':>8}{'plain':>8}", end="")
        print(f"{'Kendall':>9}{'Spearman':>9}{'seconds':>8}")
        found = {}
        for label, wish in wishes.items():
            began = time.perf_counter()
            found[label] = fit_proxy(source, suite, wish)
            print(row(label, found[label], time.perf_counter() - began), flush=True)
        places = [[task.name for task in table.tasks].index(name) for name in hand.tasks]
        means = table.scores[:, places].mean(axis=1)
        plain = measure_errors(table.target, means - means.mean() + table.target.mean())
        print(
            f"(the hand-picked tasks' plain mean, moved by a constant: RMSE {100 * plain.rmse:.2f}, ", end=""
        )
        print(f"mean {100 * plain.mae:.2f}, Kendall {plain.kendall:.3f})")
        for label in list(found)[1:]:
            print(f"  {label}: {', '.join(sorted(task.task for task in found[label].tasks))}")
        if found["chosen at the same cost"].error.rmse >= found["hand-picked"].error.rmse:
            worse.append(target)
        told[target] = {label: 100 * one.error.rmse for label, one in found.items()}
    print(json.dumps(told))
    print("\n".join(f"not better at the same cost: {line}" for line in worse) or "better at the same cost")
    return int(bool(worse))


if __name__ == "__main__":
    np.seterr(all="raise", under="ignore")
    sys.exit(main())
