"""One cell of GLUE beside a plain transformers Trainer: scores of three seeds, and wall time.

    python benchmarks/bench_glue.py --data FOLDER --reference FILE

`--data` is a data root with `nyu-mll/glue`, `--reference` a JSON-lines file with a row for each
task and seed that a plain Trainer has scored: the first 2,000 training rows, one epoch, batches of
16, 5e-5, 8 warm-up steps, weight decay 0.01, 256 tokens. Ours run the same. The 99 % interval of
the difference of the means (Welch) must hold 0. With --time the Trainer itself is run in turns with
ours on MRPC; with --grid three cells through a whole run of the harness, in turns with three Trainers.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import scipy.stats
import torch
from measuring import in_turns, locate_minilm, read_lines, read_options, report_missed, slice_glue

from finetune.glue.model import Classifier
from finetune.glue.plan import entry
from finetune.glue.rows import TokenizedRows
from finetune.glue.schedule import Schedule
from finetune.glue.settings import Cadence, ClassifierHead, Grid, Trial
from finetune.glue.trainer import Evaluation, train_classifier
from finetune.recipes import glue_quick
from harness.core.types import REGRESSION
from suites.glue import TASKS, _GlueTask

ROWS, STEPS, WARMUP = 2000, 125, 8
NAMED = {task.subset: task for task in TASKS.values()}
BAR, GRID_BAR = 0.8, 0.7
"""Of the Trainer's wall time: one run, and three."""

RATES = (2e-5, 3e-5, 5e-5)

TRAINING = replace(
    glue_quick.PROTOCOL.training,
    schedule=Schedule(name="linear", warmup=WARMUP / STEPS),
    head=ClassifierHead(pooling="first", dense="pooler", activation="tanh", dropout=0.1),
    cadence=Cadence(at_most=STEPS),
)


def rows(root: Path, task: _GlueTask, split: str, tokenizer: Any, count: int | None = None) -> TokenizedRows:
    """The first rows of a split."""
    path = root / "nyu-mll" / "glue" / task.subset / f"{split}.parquet"
    table = pq.read_table(path).slice(0, count).to_pydict()
    return TokenizedRows.tokenize_rows(
        tokenizer,
        [table[name] for name in task.columns],
        table["label"],
        max_length=TRAINING.max_length,
        device=torch.device("cpu"),
        numbers=task.classes == REGRESSION,
    )


def trial_of(task: _GlueTask, seed: int) -> Trial:
    """The cell of the reference."""
    return Trial(
        task=task.name,
        learning_rate=5e-5,
        batch_size=16,
        weight_decay=0.01,
        epochs=1,
        seed=seed,
        training=TRAINING,
    )


def ours(task: _GlueTask, seed: int, given: TokenizedRows, dev: TokenizedRows) -> dict[str, float]:
    """The metrics at the end of a run."""
    trial = trial_of(task, seed)
    model, _ = Classifier.load_classifier(locate_minilm(), trial, classes=task.classes)
    torch.manual_seed(seed)
    found = train_classifier(
        model, given, trial, lambda m, step: Evaluation.evaluate_splits(m, {"": dev}, task.metrics, step)
    )
    return {name: value for (_, name), value in found.evaluations[-1].metrics.items()}


def theirs(task: _GlueTask, seed: int, root: Path, learning_rate: float = 5e-5) -> dict[str, float]:
    """The same cell by a plain Trainer, tokenizing and evaluating among it."""
    from datasets import Dataset
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainingArguments,
    )

    tokenizer = AutoTokenizer.from_pretrained(locate_minilm())
    model = AutoModelForSequenceClassification.from_pretrained(locate_minilm(), num_labels=task.classes)
    made = {}
    for split, count in (("train", ROWS), ("validation", None)):
        path = root / "nyu-mll" / "glue" / task.subset / f"{split}.parquet"
        columns = pq.read_table(path).slice(0, count).select([*task.columns, "label"]).to_pydict()
        data = Dataset.from_dict(columns)
        made[split] = data.map(
            lambda row: tokenizer(*(row[c] for c in task.columns), truncation=True, max_length=256),
            remove_columns=list(task.columns),
        )
    with tempfile.TemporaryDirectory() as target:
        arguments = TrainingArguments(
            output_dir=target,
            per_device_train_batch_size=16,
            per_device_eval_batch_size=64,
            num_train_epochs=1,
            learning_rate=learning_rate,
            warmup_steps=WARMUP,
            weight_decay=0.01,
            seed=seed,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(
            model=model,
            args=arguments,
            train_dataset=made["train"],
            data_collator=DataCollatorWithPadding(tokenizer),
        )
        trainer.train()
        predicted = trainer.predict(made["validation"])
    right = np.argmax(predicted.predictions, axis=-1) == predicted.label_ids
    return {"accuracy": float(right.mean())}


def welch(one: list[float], other: list[float], level: float = 0.99) -> tuple[float, float]:
    """The interval of the difference of two means."""
    spread = [np.var(x, ddof=1) / len(x) for x in (one, other)]
    error = math.sqrt(sum(spread))
    freedom = sum(spread) ** 2 / sum(s**2 / (len(x) - 1) for s, x in zip(spread, (one, other), strict=True))
    reach = float(scipy.stats.t.ppf((1 + level) / 2, freedom)) * error
    difference = float(np.mean(one) - np.mean(other))
    return difference - reach, difference + reach


def compare(root: Path, reference: Path, names: list[str]) -> list[str]:
    """Print both side by side; what is missed."""
    from transformers import AutoTokenizer

    known: dict[str, list[dict[str, float]]] = defaultdict(list)
    for row in read_lines(reference):
        known[row["task"]].append(row)
    tokenizer, missed = AutoTokenizer.from_pretrained(locate_minilm()), []
    print(f"{'':8}{'':10}{'theirs':>24}{'ours':>24}{'99 % of the difference':>28}")
    for subset in names:
        task = NAMED[subset]
        given, dev = (rows(root, task, s, tokenizer, n) for s, n in (("train", ROWS), ("validation", None)))
        found, seconds = [], []
        for row in known[subset]:
            began = time.perf_counter()
            found.append(ours(task, int(row["seed"]), given, dev))
            seconds.append(time.perf_counter() - began)
        for metric in task.metrics:
            pair = [row[metric] for row in known[subset]], [scores[metric] for scores in found]
            low, high = welch(pair[1], pair[0])
            shown = [" ".join(f"{100 * value:.2f}" for value in values) for values in pair]
            print(f"{subset:8}{metric:10}{shown[0]:>24}{shown[1]:>24}{100 * low:>16.2f} to {100 * high:.2f}")
            if not low <= 0 <= high:
                missed.append(f"{subset}, {metric}: 0 is not between {low:.4f} and {high:.4f}")
        taken = " ".join(f"{s:.1f}" for s in seconds)
        print(
            f"{subset:8}seconds   {' '.join(str(r['train_seconds']) for r in known[subset]):>24}{taken:>24}"
        )
    return missed


def timed(root: Path, repeats: int) -> list[str]:
    """Wall time of one MRPC run, data and all, in turns; what is missed."""
    from transformers import AutoTokenizer

    task = NAMED["mrpc"]

    def all_of_it() -> dict[str, float]:
        tokenizer = AutoTokenizer.from_pretrained(locate_minilm())
        given, dev = (rows(root, task, s, tokenizer, n) for s, n in (("train", ROWS), ("validation", None)))
        return ours(task, 1, given, dev)

    runs = {"ours": all_of_it, "theirs": lambda: theirs(task, 1, root)}
    seconds, scores = in_turns(runs, repeats)
    share = seconds["ours"] / seconds["theirs"]
    print(f"MRPC, {ROWS} rows: ours {seconds['ours']:.1f} s, Trainer {seconds['theirs']:.1f} s, {share:.2f}")
    print(f"accuracy: ours {scores['ours']['accuracy']:.4f}, Trainer {scores['theirs']['accuracy']:.4f}")
    return [] if share <= BAR else [f"time: {share:.2f} of the Trainer's, not {BAR}"]


def grid(root: Path, repeats: int) -> list[str]:
    """Wall time of three cells, from the command's own plan to its records; what is missed."""
    from harness.driver import evaluation
    from harness.plan import catalog

    task = NAMED["mrpc"]
    cells = Grid(learning_rates=RATES, batch_sizes=(16,), weight_decays=(0.01,), epochs=(1,))
    protocol = replace(
        glue_quick.PROTOCOL, name="bench", training=TRAINING, grids={task.name: cells}, selection="none"
    )
    catalog.load_recipe_entries()["bench"] = entry(protocol, "for a benchmark")
    with tempfile.TemporaryDirectory() as made:
        data, numbers = slice_glue(root, Path(made) / "data", train=ROWS, dev=1_000_000), iter(range(repeats))

        def by_the_harness() -> list[float]:
            folder = Path(made) / str(next(numbers))
            report = evaluation.run_evaluation(
                "minilm",
                "glue",
                recipe="bench",
                tasks=(task.name,),
                data=data,
                results=folder / "results",
                cache=folder / "cache",
            )
            (record,) = report.records
            return [{name: v for _, name, v in c["metrics"]}["accuracy"] for c in record.training["cells"]]

        runs = {
            "ours": by_the_harness,
            "theirs": lambda: [theirs(task, 0, root, rate)["accuracy"] for rate in RATES],
        }
        seconds, scores = in_turns(runs, repeats)
    share = seconds["ours"] / seconds["theirs"]
    print(f"MRPC, 3 cells: ours {seconds['ours']:.1f} s, Trainers {seconds['theirs']:.1f} s, {share:.2f}")
    for name, values in scores.items():
        print(f"accuracy, {name}: {' '.join(f'{100 * value:.2f}' for value in values)}")
    return [] if share <= GRID_BAR else [f"grid: {share:.2f} of the Trainers', not {GRID_BAR}"]


def main() -> int:
    """Print the tables; 1 if a bar is missed."""
    tasks = {"action": "append", "choices": ("sst2", "stsb", "mrpc")}
    asked = read_options(
        __doc__, data=Path, reference={"type": Path}, task=tasks, time=False, grid=False, repeats=3
    )
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}")
    missed = timed(asked.data, asked.repeats) if asked.time else []
    missed += grid(asked.data, asked.repeats) if asked.plan_grid_jobs else []
    if asked.reference:
        missed += compare(asked.data, asked.reference, asked.task or ["sst2", "stsb", "mrpc"])
    return report_missed(missed)


if __name__ == "__main__":
    sys.exit(main())
