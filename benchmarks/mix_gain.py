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

import argparse
import json
import statistics
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from embedding_gain import damaged_minilm, development_set

import harness
from harness.core import paths
from harness.core.lineage import read_document
from harness.data.locate import DataSettings

NAMES = ("ALLNLI", "STSBENCHMARK", "QQP", "CODE", "HARD")
LENGTH = 64


def main() -> None:
    """Train, evaluate, and print the lines and the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("mix", "methods"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--source", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--budget", type=float, default=2e13)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--results", type=Path, default=Path(tempfile.mkdtemp()))
    given = parser.parse_args()
    given.results.mkdir(parents=True, exist_ok=True)
    backbone = damaged_minilm(given.results / "backbone")
    settings = DataSettings(root=given.data, offline=True, cache=paths.cache_folder())
    suites = [f"local:{development_set(given.results / 'stsb-dev', settings)}"]
    common: dict[str, Any] = {
        "suite": [*suites, "mteb:Banking77Classification", "stdlib"],
        "data": given.data,
        "results": given.results / "results",
        "offline": True,
        "threads": given.threads,
        "max_length": LENGTH,
    }
    found = {"untrained": [_line("untrained", harness.run(str(backbone), **common, pooling="mean"))]}
    for name, how in _mixes(given) if given.what == "mix" else _methods(given):
        for seed in range(42, 42 + given.seeds):
            found.setdefault(name, []).append(
                _line(name, harness.run(str(backbone), **common, **how, seed=seed))
            )
    print(_table(found))


def _mixes(given: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
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


def _methods(given: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """The four methods within one budget, with the paper's rates."""
    settings = {"budget": given.budget, "batch_size": 128, "chunk": 64}
    for method in ("full", "freeze", "lora", "bias"):
        yield method, {"recipe": f"efficient-{method}", "recipe_settings": settings}


def _paraphrases(data: Path, folder: Path) -> Path:
    """The pairs of questions that are paraphrases, as a file."""
    (file,) = (data / "nyu-mll" / "glue" / "qqp").glob("train*.parquet")
    rows = pq.read_table(file).to_pylist()
    pairs = [{"query": r["question1"], "positive": r["question2"]} for r in rows if r["label"] == 1]
    return _written(pairs, folder / "qqp.jsonl")


def _hard_negatives(data: Path, folder: Path) -> Path:
    """The rows of three files with any number of negatives, as one file."""
    rows = []
    for file in sorted((data / "local" / "hard-negatives-toy").glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            rows.append({"query": row["query"], "pos": row["pos"], "neg": row["neg"]})
    return _written(rows, folder / "hard.jsonl")


def _written(rows: list[dict[str, Any]], file: Path) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def _line(name: str, report: Any) -> dict[str, Any]:
    """Print the scores of a model."""
    scores: dict[str, float] = {}
    for result in report.results:
        if result.record:
            scores[result.record.task.name] = result.record.main_score
    line: dict[str, Any] = {"model": name, "mean": statistics.fmean(scores.values()), "scores": scores}
    document = read_document(report.prepared.subjects[0].artifact.folder)
    if document is not None:
        made = document.training
        line |= {"seed": document.lineage.seed, "steps": made["steps"], "flops": made["flops"]}
        line["minutes"] = round(made["seconds"] / 60, 2)
    line["failed"] = [one.failure.message if one.failure else one.how for one in report.failures]
    print(json.dumps(line), flush=True)
    return line


def _table(found: Mapping[str, list[dict[str, Any]]]) -> str:
    """The kinds of models side by side, in Markdown, times 100."""
    tasks = [*found["untrained"][0]["scores"]]
    lines = [("", *tasks, "mean", "steps"), ("---",) * (len(tasks) + 3)]
    for name, models in found.items():
        cells = [_spread([100 * one["scores"][task] for one in models]) for task in tasks]
        mean = _spread([100 * one["mean"] for one in models])
        lines.append((name, *cells, mean, str(models[0].get("steps", ""))))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _spread(values: list[float]) -> str:
    return f"{statistics.fmean(values):.2f}" + (f" ± {statistics.stdev(values):.2f}" if values[1:] else "")


if __name__ == "__main__":
    main()
