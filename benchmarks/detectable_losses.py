"""The loss that a check on each suite sees, about, from the number of its examples alone.

    python benchmarks/detectable_losses.py

A score between 0 and 1 varies from example to example by a variance of a quarter at most. An equal model
that draws a share of its results anew then differs by a standard error of about sqrt(2 share / 4 n) on n
examples. A mean that lost 2.80 of them is red in 80 % of checks. Correlations and clusterings are taken for
such scores. `harness baseline set` prints the loss of a real baseline, which is smaller where its scores vary
less. Sizes are those that mteb states of its data sets (the largest split), and those of GLUE's development
sets.
"""

from __future__ import annotations

import math
import sys
from statistics import median
from typing import Any

import mteb

from harness.checks.policy import DEFAULT
from harness.core.types import SuiteOptions
from harness.plan import catalog

GLUE = {
    **{"CoLA": 1043, "SST-2": 872, "MRPC": 408, "STS-B": 1500, "QQP": 40430, "MNLI": 9815 + 9832},
    **{"QNLI": 5463, "RTE": 277},
}
"""Examples of the development sets (Wang et al., 2019, table 1, and the data sets themselves)."""

ERRORS = {"a loss seen in 80 %": 1.960 + 0.842, "a margin that equal models pass": 1.645 + 1.960}


def of_mteb(name: str) -> int:
    """The queries, pairs or texts of a task."""
    stats: dict[str, Any] = mteb.get_task(name).metadata.descriptive_stats or {}
    sizes = [
        max(int(one.get("num_queries") or 0) or int(one.get("num_samples") or 0), 0)
        for split, one in stats.items()
        if split != "train" or len(stats) == 1
    ]
    return max(sizes, default=0)


def sizes_of(suite: str) -> dict[str, int]:
    """The number of examples of each task of a suite, where it is known."""
    if suite == "glue":
        return GLUE
    (opened,) = catalog.open_suites((suite,), SuiteOptions())
    found = {task.name: of_mteb(task.name) for task in opened.tasks}
    return {name: count for name, count in found.items() if count}


def main() -> int:
    """Print a line for each suite: in points what the median task and the mean can see."""
    for suite in ("nanobeir", "mteb-efficient8", "mteb", "beir", "glue"):
        counts = sizes_of(suite)
        errors = [math.sqrt(DEFAULT.changed / 2 / count) for count in counts.values()]
        mean = math.sqrt(sum(one**2 for one in errors)) / len(errors)
        shown = "; ".join(
            f"{what}: {100 * times * median(errors):.2f} (task), {100 * times * mean:.2f} (mean)"
            for what, times in ERRORS.items()
        )
        typical = f"{median(counts.values()):,.0f} examples in the median one"
        print(f"{suite}: {len(counts)} tasks, {typical}; {shown}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
