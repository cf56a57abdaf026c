"""What a check costs beside numpy: its statistics, and the whole command with everything cached.

    python benchmarks/bench_check.py
    python benchmarks/bench_check.py --results DIR --candidate MODEL --baseline NAME

The first measures the differences of 56 tasks of 5,000 examples each, of the types that
MTEB(eng, v1) has, against the time numpy needs to draw the indices of 10,000 resamples alone, in turns in
one process and on one thread. The second measures a check whose scores are all in DIR, as a whole process
without the statistics, against `import numpy, scipy`. Ends with 1 if a bar is missed.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from measuring import read_options

from harness.results.score_differences import Difference
from harness.results.units import Stratum, Units
from harness.results.weighted_metrics import Floats

DRAWS, EXAMPLES = 10_000, 5_000
MIX = {"search": 15 + 4, "classification": 12, "clustering": 11, "pairs": 10, "labels": 3, "texts": 1}
"""Tasks of each type: 56."""

BAR_DRAWS, BAR_START = 0.5, 2.0


def units(kind: str, rng: np.random.Generator, gold: Floats) -> Units:
    """One model's 5,000 units of a task."""
    measure, predicted, truth = "mean", rng.random((1, 1, EXAMPLES)), np.zeros(0)
    if kind == "classification":
        predicted = (rng.random((1, 10, EXAMPLES)) < 0.7).astype(float)
    elif kind == "pairs":
        measure, truth = "spearman", np.round(gold * 5)
        predicted = (gold + rng.normal(0, 0.3, EXAMPLES))[None, None]
    elif kind == "labels":
        measure, truth = "average_precision", (gold > 0.7).astype(float)
        predicted = (gold + rng.normal(0, 0.3, EXAMPLES))[None, None]
    stratum = Stratum(measures=(measure,), examples="", gold=truth, predicted=predicted)
    return Units(metric=measure, unit="units", strata=(stratum,))


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def draw(rng: np.random.Generator, tasks: int) -> None:
    """What the check is compared with: the indices of a bootstrap, and nothing done with them."""
    for _ in range(tasks):
        for _ in range(DRAWS // 1000):
            rng.integers(EXAMPLES, size=(1000, EXAMPLES))


def statistics_part(repeats: int) -> dict[str, object]:
    """The ratio for each type of task, and for the mix."""
    rng = np.random.default_rng(0)
    gold = rng.random(EXAMPLES)
    ours: dict[str, list[float]] = {kind: [] for kind in MIX}
    theirs: list[float] = []
    for _ in range(repeats):
        theirs.append(seconds(lambda: draw(rng, 1)))
        for kind in MIX:
            one, other = units(kind, rng, gold), units(kind, rng, gold)
            work = partial(Difference.compare_units, one, other)
            ours[kind].append(seconds(work))
    by_kind = {kind: statistics.median(times) for kind, times in ours.items()}
    total = sum(count * by_kind[kind] for kind, count in MIX.items())
    alone = statistics.median(theirs)
    return {
        "drawing the indices of 56 tasks, s": round(sum(MIX.values()) * alone, 2),
        "statistics of 56 tasks, s": round(total, 2),
        "ratio of each type": {kind: round(time_ / alone, 2) for kind, time_ in by_kind.items()},
        "ratio": round(total / (sum(MIX.values()) * alone), 3),
        "bar": BAR_DRAWS,
    }


def start_part(asked: Any) -> dict[str, object]:
    """The whole command without its statistics against the import."""
    with tempfile.TemporaryDirectory() as folder:
        told, compiled = Path(folder, "check.json"), Path(folder, "compiled")
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(compiled)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [sys.executable, "-m", "harness", "check", "--candidate", asked.candidate]
        command += ["--baseline", asked.baseline, "--results", str(asked.results), "--json-file", str(told)]
        command += ["--cache", str(asked.cache)] if asked.cache else []
        alone = [sys.executable, "-c", "import numpy, scipy"]
        ours, theirs = [], []
        for turn in range(asked.repeats + 2):
            mine = seconds(lambda: subprocess.run(command, env=environment, capture_output=True, check=False))
            told_seconds = json.loads(told.read_text())["seconds"]
            other = seconds(lambda: subprocess.run(alone, env=environment, capture_output=True, check=True))
            if turn >= 2:  # the first ones compile and fill the cache
                ours.append((mine, told_seconds))
                theirs.append(other)
        whole, counted = (statistics.median(one[at] for one in ours) for at in (0, 1))
        alone_seconds = statistics.median(theirs)
        return {
            "import numpy, scipy, s": round(alone_seconds, 3),
            "check, s": round(whole, 3),
            "of which statistics, s": round(counted, 3),
            "ratio": round((whole - counted) / alone_seconds, 3),
            "bar": BAR_START,
        }


def main() -> int:
    asked = read_options(
        __doc__,
        results={"type": Path},
        cache={"type": Path},
        candidate="minilm",
        baseline="minilm",
        repeats=11,
    )
    found = start_part(asked) if asked.results else statistics_part(min(asked.repeats, 5))
    print(json.dumps(found, indent=1))
    return int(float(str(found["ratio"])) > float(str(found["bar"])))


if __name__ == "__main__":
    sys.exit(main())
