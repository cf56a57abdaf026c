"""What a training with dpr gains on retrieval, what one with shuffled positives does not, and what is lost.

    python benchmarks/retrieval_gain.py feedbackqa --data FOLDER [--backbone minilm] [--seeds 3]
    python benchmarks/retrieval_gain.py readings --data FOLDER [--epochs 3]

FOLDER holds the data sets `mteb/scifact`, `local/feedbackqa-train`, `local/scifact-claims`, `local/mbpp` and
`pairs/nl2bash`. One epoch of dpr in batches of 32 on the training questions, scored on the others: of
FeedbackQA its development set, of SciFact its test set, of NL2Bash its development and test pairs. The
backbone is MiniLM itself, or with its last two layers initialised anew (`--backbone damaged`), or its first
two layers with 16 tokens of each text (`--backbone small`). `mbpp` and `stdlib` are the sets that no training
has touched, scored before and after the first seed. `readings` trains the three readings of the batch on
FeedbackQA, for as many epochs each, and prints a table of them. `--rows` takes so many pairs, drawn with
seed 0. Prints a line of JSON for each model with the minutes of its training, then what was gained; with the
same `--results` it goes on where it ended.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from embedding_gain import (
    SEED,
    damaged_minilm,
    data_settings,
    read_gain_options,
    right_and_shuffled,
    say,
    shared_request,
    small_minilm,
)
from measuring import format_table, read_lines, write_lines

import harness
from harness.core.keys import read_document
from harness.data.training.sets import locate_user_training

BACKBONES = {"minilm": None, "damaged": damaged_minilm, "small": small_minilm}
"""The backbones by name, with what makes each of MiniLM."""

WHAT = ("feedbackqa", "scifact", "nl2bash", "readings")

READINGS = ("dpr", "dpr:authors", "dpr:paper")
"""The readings of the batch, which keep their own sizes."""


def main() -> None:
    """Train, evaluate, and print a line for each model and one for what was gained."""
    given = read_gain_options(
        __doc__, WHAT, backbone={"choices": BACKBONES, "default": "minilm"}, epochs=1, rows={"type": int},
        max_length=128,
    )  # fmt: skip
    rows, scored = _sets(given.what, given.data, given.results)
    make = BACKBONES[given.backbone]
    model = str(make(given.results / given.backbone)) if make else "minilm"
    common = shared_request(given)
    untouched = [] if given.what == "readings" else [f"local:{given.data / 'local' / 'mbpp'}", "stdlib"]
    start = {**common, **({"pooling": "mean"} if make else {})}
    goal, _ = _line("before", model, {**start, "suite": scored}, {})
    before = goal | (_line("before", model, {**start, "suite": untouched}, {})[0] if untouched else {})
    trained = {"precision": "float32", "max_length": given.max_length, "epochs": given.epochs}
    found, lines = [], []
    for name, recipe, file, more, seeds in _trainings(given, rows):
        how = {"recipe": recipe, "recipe_settings": trained | more, "train_data": file}
        gains = []
        for seed in range(SEED, SEED + seeds):
            suite = [scored, *untouched] if seed == SEED and name != "control" else scored
            scores, line = _line(name, model, {**common, **how, "suite": suite, "seed": seed}, before)
            lines.append(line)
            gains += (
                [statistics.fmean(scores[task] - goal[task] for task in goal)]
                if goal.keys() <= scores.keys()
                else []
            )
        found.append((name, gains))
    for name, gains in found:
        mean = round(statistics.fmean(gains), 4) if gains else None
        print(json.dumps({"gained": name, "mean": mean, "each": [round(gain, 4) for gain in gains]}))
    if given.what == "readings":
        print(_table(lines))


def _trainings(given: Any, rows: str) -> list[tuple[str, str, str, dict[str, int], int]]:
    """The name, recipe, data, further settings and number of seeds of each training."""
    if given.what == "readings":
        return [(recipe, recipe, rows, {}, given.seeds) for recipe in READINGS]
    settings = data_settings(given.data)
    folder = given.results / given.what
    folder.mkdir(exist_ok=True)
    right, wrong = right_and_shuffled(
        locate_user_training(rows, settings), folder, cache=settings.cache, count=given.rows
    )
    small = {"batch_size": 32, "chunk": 0}
    return [
        ("trained", "dpr", str(right), small, given.seeds),
        ("control", "dpr", str(wrong), small, 1),
    ]


def _line(
    name: str, model: str, request: Mapping[str, Any], before: Mapping[str, float]
) -> tuple[dict[str, float], dict[str, Any]]:
    """Train and evaluate a model, and print its line; returns its main scores by task, and the line."""
    report = harness.run(model, **request)
    (one,) = report.prepared.subjects
    document = read_document(one.artifact.folder) if one.lineage is not None else None
    more: dict[str, Any] = {}
    if document is not None:
        pairs = document.lineage.settings["batch_size"]
        more = {"pairs": pairs, "others": (document.lineage.settings.get("group_size") or pairs) - 1}
    scores = {result.record.task.name: result.record.main_score for result in report.results if result.record}
    if before:
        more["gained"] = {task: round(score - before[task], 4) for task, score in scores.items()}
    return scores, say(name, report, **more)


def _table(lines: Iterable[Mapping[str, Any]]) -> str:
    """The models side by side, in Markdown; the minutes are those of the training."""
    heads = ("recipe", "seed", "pairs of a step", "other positives", "steps", "minutes", "nDCG@10", "gained")
    rows: list[tuple[object, ...]] = []
    for line in lines:
        score, gained = (statistics.fmean(line[name].values()) for name in ("scores", "gained"))
        said = [line[name] for name in ("seed", "pairs", "others", "steps", "minutes")]
        rows.append((f"`{line['model']}`", *said, f"{score:.4f}", f"{gained:+.4f}"))
    return format_table(heads, rows)


def _sets(what: str, data: Path, folder: Path) -> tuple[str, str]:
    """The training data, and the suite that is scored."""
    feedback = data / "local" / "feedbackqa-train"
    if what == "scifact":
        return str(data / "local" / "scifact-claims"), "mteb:SciFact"
    if what == "nl2bash":
        return str(data / "pairs" / "nl2bash" / "train.jsonl"), f"local:{nl2bash(data, folder / 'nl2bash')}"
    return str(feedback), f"local:{feedback}"


def nl2bash(data: Path, folder: Path) -> Path:
    """The commands of the development and test pairs as documents, the descriptions as queries."""
    source = data / "pairs" / "nl2bash"
    return judged_pairs({split: read_lines(source / f"{split}.jsonl") for split in ("dev", "test")}, folder)


def judged_pairs(
    splits: Mapping[str, Iterable[Mapping[str, str]]], folder: Path, others: Iterable[str] = ()
) -> Path:
    """A folder in BEIR's layout of pairs, with other documents beside theirs."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    ids: dict[str, str] = {}
    queries, qrels = {}, {}
    for split, pairs in splits.items():
        for pair in pairs:
            document = ids.setdefault(pair["positive"], f"c{len(ids)}")
            query = queries.setdefault(pair["query"], f"q{len(queries)}")
            qrels.setdefault(split, {})[f"{query}\t{document}\t1"] = None
    for text in others:
        ids.setdefault(text, f"c{len(ids)}")
    for name, texts in (("corpus", ids), ("queries", queries)):
        write_lines(
            ({"_id": number, "text": text} for text, number in texts.items()), folder / f"{name}.jsonl"
        )
    for split, judged in qrels.items():
        header = "query-id\tcorpus-id\tscore\n"
        (folder / "qrels" / f"{split}.tsv").write_text(header + "".join(f"{line}\n" for line in judged))
    return folder


if __name__ == "__main__":
    main()
