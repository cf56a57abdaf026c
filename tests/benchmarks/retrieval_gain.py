"""What a training with dpr gains on retrieval, what one with shuffled positives does not, and what is lost.

    python tests/benchmarks/retrieval_gain.py feedbackqa --data FOLDER [--backbone minilm] [--seeds 3]
    python tests/benchmarks/retrieval_gain.py readings --data FOLDER [--epochs 3]

FOLDER holds the data sets `mteb/scifact`, `local/feedbackqa-train`, `local/scifact-claims`, `local/mbpp` and
`pairs/nl2bash`. One epoch of dpr in batches of 32 on the training questions, scored on the others: of
FeedbackQA its development set, of SciFact its test set, of NL2Bash its development and test pairs. The
backbone is MiniLM itself, or with its last two layers initialised anew (`--backbone damaged`). `mbpp` and
`stdlib` are the sets that no training has touched. `readings` trains the three readings of the batch on
FeedbackQA, for as many epochs each. Prints a line of JSON for each model, then what was gained.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from embedding_gain import damaged_minilm, right_and_shuffled, say

import harness
from harness import paths
from harness.data.locate import DataSettings
from harness.data.training import own_training

READINGS = ("dpr", "dpr:authors", "dpr:paper")
"""The readings of the batch, which keep their own sizes."""


def main() -> None:
    """Train, evaluate, and print a line for each model and one for what was gained."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("feedbackqa", "scifact", "nl2bash", "readings"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--backbone", choices=("minilm", "damaged"), default="minilm")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--rows", type=int, help="so many pairs, drawn with seed 0")
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--results", type=Path, default=Path(tempfile.mkdtemp()))
    given = parser.parse_args()
    given.results.mkdir(parents=True, exist_ok=True)
    rows, scored = _sets(given.what, given.data, given.results)
    damaged = given.backbone == "damaged"
    model = str(damaged_minilm(given.results / "backbone")) if damaged else "minilm"
    untouched = [f"local:{given.data / 'local' / 'mbpp'}", "stdlib"]
    common: dict[str, Any] = {
        "data": given.data,
        "results": given.results / "results",
        "offline": True,
        "threads": given.threads,
    }
    every = {**common, "suite": [scored, *untouched]}
    common["suite"] = scored
    before = _run("before", model, {**every, "pooling": "mean"} if damaged else every)
    trained = {"precision": "float32", "max_length": given.max_length, "epochs": given.epochs}
    if given.what == "readings":
        for recipe in READINGS:
            how = {"recipe": recipe, "recipe_settings": trained, "train_data": rows, "seeds": given.seeds}
            _gained(recipe, before, _run(recipe, model, {**common, **how}))
        return
    settings = DataSettings(root=given.data, offline=True, cache=paths.cache_folder())
    right, wrong = right_and_shuffled(
        own_training(rows, settings), given.results, cache=settings.cache, count=given.rows
    )
    trained |= {"batch_size": 32, "chunk": 0}
    how = {"recipe": "dpr", "recipe_settings": trained, "train_data": str(right)}
    _gained("trained", before, _run("trained", model, {**common, **how, "seeds": given.seeds}))
    shuffled = {**common, **how, "train_data": str(wrong)}
    _gained("control", before, _run("control", model, shuffled))
    _gained("untouched, first seed", before, _run("untouched", model, {**every, **how}))


def _run(name: str, model: str, request: Mapping[str, Any]) -> list[dict[str, float]]:
    """The main scores of each model of a run by task."""
    began = time.monotonic()
    report = harness.run(model, **request)
    say(name, report)
    print(json.dumps({"run": name, "minutes": round((time.monotonic() - began) / 60, 1)}), flush=True)
    return [
        {
            result.record.task.name: result.record.main_score
            for result in report.results
            if result.cell.subject == one and result.record
        }
        for one in report.prepared.subjects
    ]


def _gained(name: str, before: list[dict[str, float]], after: list[dict[str, float]]) -> None:
    """Print the difference of each model's scores to those of its start, and their mean."""
    gains = {
        task: [round(one[task] - score, 4) for one in after]
        for task, score in before[0].items()
        if task in after[0]
    }
    means = {task: round(statistics.fmean(values), 4) for task, values in gains.items()}
    print(json.dumps({"gained": name, "mean": means, "each": gains}), flush=True)


def _sets(what: str, data: Path, folder: Path) -> tuple[str, str]:
    """The training data, and the suite that is scored."""
    feedback = data / "local" / "feedbackqa-train"
    if what == "scifact":
        return str(data / "local" / "scifact-claims"), "mteb:SciFact"
    if what == "nl2bash":
        return str(data / "pairs" / "nl2bash" / "train.jsonl"), f"local:{_nl2bash(data, folder / 'nl2bash')}"
    return str(feedback), f"local:{feedback}"


def _nl2bash(data: Path, folder: Path) -> Path:
    """The commands of the development and test pairs as documents, the descriptions as queries."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    ids: dict[str, str] = {}
    queries, qrels = {}, {}
    for split in ("dev", "test"):
        lines = (data / "pairs" / "nl2bash" / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
        for pair in map(json.loads, lines):
            document = ids.setdefault(pair["positive"], f"c{len(ids)}")
            query = queries.setdefault(pair["query"], f"q{len(queries)}")
            qrels.setdefault(split, {})[f"{query}\t{document}\t1"] = None
    for name, texts in (("corpus", ids), ("queries", queries)):
        found = ({"_id": number, "text": text} for text, number in texts.items())
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in found))
    for split, judged in qrels.items():
        header = "query-id\tcorpus-id\tscore\n"
        (folder / "qrels" / f"{split}.tsv").write_text(header + "".join(f"{line}\n" for line in judged))
    return folder


if __name__ == "__main__":
    main()
