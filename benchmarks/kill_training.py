"""A training killed twenty times at random moments against an undisturbed one: the same bits, a whole log.

    python benchmarks/kill_training.py FOLDER [--kills 20] [--epochs 4] [--rows 512] [--seed 0]

FOLDER is a data root with `sentence-transformers/all-nli`. MiniLM is trained with simcse's loss and dropout
on its first triplets. A kill (SIGKILL to the group) comes at a random step, every third one while a
checkpoint is being written. Prints the moments; 1 if a weight, the log or a leftover differs.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
from measuring import locate_minilm, read_options

from finetune.recipes.simcse import RECIPE
from harness.core.files import hash_file
from harness.core.types import Artifact
from harness.data.training.sets import LocatedTraining, TrainingData
from harness.training.training import TrainingSpec, read_log, run_training

COLUMNS = ("anchor", "positive", "negative")


def spec_of(given: Any, work: Path, name: str) -> TrainingSpec:
    """The training in a folder of its own."""
    source = given.root / "sentence-transformers" / "all-nli" / "triplet" / "train.parquet"
    file = work / "rows.parquet"
    if not file.is_file():
        pq.write_table(pq.read_table(source, columns=list(COLUMNS)).slice(0, given.rows), file)
    settings = replace(
        RECIPE.settings["mean"], batch_size=32, epochs=given.epochs, max_length=16, precision="float32"
    )
    data = TrainingData(content="c" * 64, columns=COLUMNS, rows=given.rows)
    return TrainingSpec(
        recipe=RECIPE.open("mean", settings),
        backbone=Artifact(
            name="minilm", source="minilm", folder=locate_minilm(), key="a" * 64, weights="b" * 64
        ),
        data=(LocatedTraining(data=data, file=file, name="rows.parquet", rows=given.rows, own=True),),
        seed=given.seed,
        key="k" * 64,
        folder=work / name,
        cache=work / "cache",
        threads=2,
        minutes=0.05,
    )


def killed(spec: TrainingSpec, step: int, saving: bool) -> bool:
    """Run, and kill the group once a step is logged, or a checkpoint after it begun; whether it died."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.is_set():
            done = max((line["step"] for line in read_log(spec.folder / "log.jsonl")), default=0)
            begun = [p for p in spec.checkpoints.glob("step-*") if not (p / "files.json").is_file()]
            children = psutil.Process().children()
            if children and done >= step and (begun or not saving):
                os.killpg(children[0].pid, signal.SIGKILL)
                return
            time.sleep(0.002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    outcome = run_training(spec, lambda _: None)
    ended.set()
    watcher.join()
    return outcome.code == -signal.SIGKILL


def weights(spec: TrainingSpec) -> dict[str, str]:
    """The hashes of the model's files."""
    return {str(p.relative_to(spec.output)): hash_file(p) for p in spec.output.rglob("*") if p.is_file()}


def main() -> int:
    """Print the moments of the kills, and what differs; 1 if anything does."""
    given = read_options(__doc__, {"root": {"type": Path}}, kills=20, epochs=4, rows=512, seed=0)
    draw = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as made:
        whole = spec_of(given, Path(made), "whole")
        assert run_training(whole, lambda _: None).code == 0
        spec = spec_of(given, Path(made), "killed")
        steps = given.epochs * (given.rows // 32)
        moments = sorted(draw.randrange(1, steps - 1) for _ in range(given.kills))
        count = 0
        for at, step in enumerate(moments):
            hit = killed(spec, step, saving=at % 3 == 2)
            count += hit
            newest = max((p.name for p in spec.checkpoints.glob("step-*")), default="none")
            print(f"kill {at + 1}: from step {step} on, newest checkpoint {newest}, killed {hit}", flush=True)
        if not spec.output.is_dir():
            assert run_training(spec, lambda _: None).code == 0
        log = [line["step"] for line in read_log(spec.folder / "log.jsonl")]
        wrong = [
            *(["weights"] if weights(spec) != weights(whole) else []),
            *(["log"] if log != list(range(1, steps + 1)) else []),
            *(["processes"] if psutil.Process().children() else []),
            *(["leftovers"] if list(spec.folder.glob("*.new")) else []),
        ]
        print(f"{count} kills in {steps} steps; different: {', '.join(wrong) or 'nothing'}")
    return int(bool(wrong) or count < given.kills)


if __name__ == "__main__":
    sys.exit(main())
