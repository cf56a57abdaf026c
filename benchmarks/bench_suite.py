"""Whole suites beside mteb.evaluate: wall time, scores, memory, and whether the bars hold.

    python benchmarks/bench_suite.py --data ../shared/datasets
    python benchmarks/bench_suite.py --data ../shared/datasets --bf16

Both sides load the model and the data sets anew for every run, with empty caches, in one process
that has imported its libraries before; runs are taken in turns on the same cores. mteb runs
the model through sentence-transformers, with batches of 32 and of 128: the better one counts.
Memory is the peak of a process of its own, libraries included. With --bf16 nothing is timed: our
own scores in bfloat16 are compared with those in float32.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from measuring import in_turns, locate_minilm, own_peak, peak, read_options, report_missed

from harness.core.types import Dtype

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

FLOAT32, BF16 = (1e-4, 1), (1e-3, 3)
"""How far a main score may lie from the one it is compared with: so much, or of a classification
as much as so many flipped predictions."""

Scores = dict[str, tuple[float, int]]
"""Main score and number of test rows (0 where it is not known) by task."""


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


def ours(tasks: tuple[str, ...], data: Path, dtype: Dtype = "float32") -> Scores:
    """The whole run: resolve, gate, encode, score, write records."""
    import harness

    with tempfile.TemporaryDirectory() as folder:
        report = harness.run(
            "minilm",
            [f"mteb:{task}" for task in tasks],
            settings=harness.Settings(dtype=dtype),
            results=Path(folder) / "results",
            cache=Path(folder) / "cache",
            data=data,
            offline=True,
        )
        assert not report.failures, report.failures
        files = {path.parent.name: path for path in Path(folder, "results").rglob("*.parquet")}
        return {
            record.task.name: (record.main_score or 0.0, rows(files[record.task.name]))
            for record in report.records
        }


def rows(examples: Path) -> int:
    """How many test rows there are lines of; each probe has a line for every row."""
    import pyarrow.parquet

    replicates = pyarrow.parquet.read_table(examples, columns=["replicate"])["replicate"]
    return replicates.to_pylist().count(0)


def theirs(tasks: tuple[str, ...], data: Path, batch: int) -> Scores:
    """mteb.evaluate over the same tasks, read from the same folder."""
    import mteb
    from sentence_transformers import SentenceTransformer

    from harness.core.types import SuiteOptions
    from suites._mteb.source import _build, build_mteb_suite

    with tempfile.TemporaryDirectory() as folder, no_arrow_cache(folder):
        made = []
        for name in tasks:
            task = build_mteb_suite(name, called=name, options=SuiteOptions()).tasks[0]
            made.append(_build(task, seed=42, data=data / task.data.path))
        model = SentenceTransformer(str(locate_minilm()), device="cpu", local_files_only=True)
        found = mteb.evaluate(
            model, made, cache=None, encode_kwargs={"batch_size": batch}, show_progress_bar=False
        )
    return {result.task_name: (result.get_score(), 0) for result in found.task_results}


def contestants(tasks: tuple[str, ...], data: Path) -> dict[str, Callable[[], Scores]]:
    """What is measured, by name."""
    return {
        "ours": lambda: ours(tasks, data),
        "mteb batch 32": lambda: theirs(tasks, data, 32),
        "mteb batch 128": lambda: theirs(tasks, data, 128),
    }


def apart(suite: str, found: Scores, expected: Scores, bars: tuple[float, int]) -> Iterator[str]:
    """Print how far the scores of a suite lie apart; what is further than it may be."""
    at_least, flips = bars
    for task in SUITES[suite]:
        (score, count), (other, _) = found[task], expected[task]
        allowed = max(at_least, flips / count) if suite == "classification" else at_least
        print(f"{'':4}{task:42}{100 * score:9.4f}{100 * other:9.4f}{abs(score - other):10.1e}{allowed:10.1e}")
        if not abs(score - other) <= allowed:
            yield f"{task}: scores differ by {abs(score - other):.1e}, not {allowed:.1e}"


def precision(suites: list[str], data: Path) -> list[str]:
    """Hold our bfloat16 scores against our float32 ones; the bars that are missed."""
    print(f"{'':4}{'':42}{'bfloat16':>9}{'float32':>9}{'apart':>10}{'bar':>10}", flush=True)
    missed = []
    for suite in suites:
        tasks = SUITES[suite]
        missed += apart(suite, ours(tasks, data, "bfloat16"), ours(tasks, data), BF16)
    return missed


def speed(suites: list[str], data: Path, repeats: int) -> list[str]:
    """Time both sides in turns, and hold their scores and memory side by side; the bars missed."""
    contestants(("PoemSentimentClassification",), data)["mteb batch 32"]()  # imports what is late
    ours(("PoemSentimentClassification",), data)
    print(f"{len(os.sched_getaffinity(0))} cores, median of {repeats}\n")
    print(f"{'':32}{'seconds':>9}{'share':>8}{'bar':>6}{'peak MB':>9}", flush=True)
    results, missed = [], []
    for suite in suites:
        seconds, scores = in_turns(contestants(SUITES[suite], data), repeats)
        best = min(taken for name, taken in seconds.items() if name != "ours")
        for name, taken in seconds.items():
            row = {"suite": suite, "name": name, "seconds": taken, "share": taken / best}
            row["peak_mb"] = peak(__file__, "--data", str(data), "--suite", suite, "--alone", name)
            results.append(row)
            told = f"{suite + ', ' + name:32}{taken:9.1f}{taken / best:8.2f}"
            print(f"{told}{BAR if name == 'ours' else '':>6}{row['peak_mb']:9.0f}", flush=True)
        if seconds["ours"] > BAR * best:
            missed.append(f"{suite}: {seconds['ours'] / best:.2f} of mteb's time, not {BAR}")
        missed += apart(suite, scores["ours"], scores["mteb batch 32"], FLOAT32)
    print(json.dumps(results))
    return missed


def main() -> int:
    """Print the table; 1 if a bar is missed."""
    several = {"action": "append", "choices": [*SUITES]}
    asked = read_options(
        __doc__, data=Path, repeats=5, suite=several, bf16=False, alone={"help": "one contestant"}
    )
    suites = asked.suite or [*SUITES]

    import mteb  # noqa: F401
    from transformers.utils import logging

    logging.disable_progress_bar()
    if asked.alone:
        contestants(SUITES[suites[0]], asked.data)[asked.alone]()
        print(own_peak())
        return 0
    missed = precision(suites, asked.data) if asked.bf16 else speed(suites, asked.data, asked.repeats)
    return report_missed(missed)


if __name__ == "__main__":
    sys.exit(main())
