"""What a training on a mix of five sets gains, instructions in it, and four methods at one budget.

    python benchmarks/mix_gain.py mix --data FOLDER --source FOLDER [--steps 200] [--results DIR]
    python benchmarks/mix_gain.py methods --data FOLDER [--budget 2e13] [--results DIR]

The backbone is MiniLM with its last two layers initialised anew. `mix`: unified-contrastive on ALLNLI,
STSBENCHMARK, QQP (here the paraphrases of nyu-mll/glue), pairs of docstring and function from the Python
source in a folder, and rows of local/hard-negatives-toy with many negatives, all but the source in the data
root; with instructions and without, after the same steps. `methods`: efficient-full, -freeze, -lora and -bias
within one budget of operations. Scored are the development set of STSBenchmark, Banking77 and the suite
`stdlib`. Prints a line of JSON for each model, then a table. With the same `--results` it goes on where it
ended.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from embedding_gain import (
    SEED,
    damaged_minilm,
    data_settings,
    development_set,
    read_gain_options,
    say,
    shared_request,
)
from measuring import format_spread, format_table, read_lines, write_lines

import harness

NAMES = ("ALLNLI", "STSBENCHMARK", "QQP", "CODE", "HARD")
LENGTH = 64


def main() -> None:
    """Train, evaluate, and print the lines and the table."""
    given = read_gain_options(__doc__, ("mix", "methods"), steps=200, budget=2e13)
    backbone = damaged_minilm(given.results / "backbone")
    suite = f"local:{development_set(given.results / 'stsb-dev', data_settings(given.data))}"
    common = {**shared_request(given), "max_length": LENGTH}
    common["suite"] = [suite, "mteb:Banking77Classification", "stdlib"]
    found = {"untrained": [say("untrained", harness.run(str(backbone), **common, pooling="mean"))]}
    for name, how in _mixes(given) if given.what == "mix" else _methods(given):
        seeds = range(SEED, SEED + given.seeds)
        found[name] = [say(name, harness.run(str(backbone), **common, **how, seed=seed)) for seed in seeds]
    print(_table(found))


def _mixes(given: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The mix with and without instructions."""
    folder = given.results / "rows"
    folder.mkdir(exist_ok=True)
    own = [
        f"QQP={_paraphrases(given.data, folder)}",
        f"CODE=code:{given.source}",
        f"HARD={_hard_negatives(given.data, folder)}",
    ]
    for instructions in ("both", "none"):
        settings = {
            "sets": NAMES,
            "max_steps": given.steps,
            "instructions": instructions,
            "batch_size": 64,
            "groups": 1,
            "max_length": LENGTH,
            "precision": "float32",
            "chunk": 32,
        }
        how = {"recipe": "unified-contrastive", "recipe_settings": settings, "train_data": own}
        yield f"instructions: {instructions}", how


def _methods(given: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The four methods within one budget, with the paper's rates."""
    settings = {"budget": given.budget, "batch_size": 128, "chunk": 64}
    for method in ("full", "freeze", "lora", "bias"):
        yield method, {"recipe": f"efficient-{method}", "recipe_settings": settings}


def _paraphrases(data: Path, folder: Path) -> Path:
    """The pairs of questions that are paraphrases, as a file."""
    (file,) = (data / "nyu-mll" / "glue" / "qqp").glob("train*.parquet")
    rows = pq.read_table(file).to_pylist()
    pairs = [{"query": r["question1"], "positive": r["question2"]} for r in rows if r["label"] == 1]
    return write_lines(pairs, folder / "qqp.jsonl")


def _hard_negatives(data: Path, folder: Path) -> Path:
    """The rows of three files with any number of negatives, as one file."""
    files = sorted((data / "local" / "hard-negatives-toy").glob("*.jsonl"))
    rows = (
        {name: row[name] for name in ("query", "pos", "neg")} for file in files for row in read_lines(file)
    )
    return write_lines(rows, folder / "hard.jsonl")


def _table(found: Mapping[str, list[dict[str, Any]]]) -> str:
    """The kinds of models side by side, in Markdown, times 100."""
    tasks = [*found["untrained"][0]["scores"]]
    rows = []
    for name, models in found.items():
        cells = [format_spread([one["scores"][task] for one in models]) for task in tasks]
        mean = format_spread([statistics.fmean(one["scores"].values()) for one in models])
        rows.append((name, *cells, mean, models[0].get("steps", "")))
    return format_table(("", *tasks, "mean", "steps"), rows)


if __name__ == "__main__":
    main()
