"""What contextual batches gain over random ones, and two stages over one, after the same steps.

    python benchmarks/contextual_gain.py --data FOLDER [--seeds 3] [--pairs 512] [--results DIR]

FOLDER holds the data sets `sentence-transformers/all-nli`, `local/feedbackqa-train`, `pairs/nl2bash` and
`pairs/conala`, of each of which as many drawn pairs are trained on, one epoch in batches, clusters and
contexts of 64 with texts of 64 tokens. The backbone is MiniLM with its last two layers initialised anew, the
guide MiniLM itself; the filter of false negatives is on in all four. Scored are the development questions of
FeedbackQA for each of its four sites, the development and test pairs of NL2Bash, the test pairs of CoNaLa,
and STSBenchmark; models of two stages behind three draws of context documents and behind the null context.
Prints a line of JSON for each model, then a table: mean ± standard deviation over seeds, and the standard
deviation over draws. With the same `--results` it goes on where it ended.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from embedding_gain import SEED, damaged_minilm, failures_of, read_gain_options, say, shared_request
from measuring import format_spread, format_table, read_lines, write_lines
from retrieval_gain import judged_pairs, nl2bash

import harness

SIZE, LENGTH = 64, 64
"""Pairs of a batch and a cluster, documents of a context; tokens of a text."""

SITES = ("Australia", "CDC", "UK", "WHO")

STAGES = {"one": ("cde-batching", {}), "two": ("cde:supervised", {"context_size": SIZE})}
"""The recipe of one stage and of two, with what only that has."""


def main() -> None:
    """Train and evaluate the four kinds of models, and print their lines and the table."""
    given = read_gain_options(__doc__, pairs=512)
    backbone = damaged_minilm(given.results / "backbone")
    rows = [str(file) for file in _rows(given.data, given.results / "rows", given.pairs)]
    suites = [f"local:{folder}" for folder in _folders(given.data, given.results)] + ["mteb:STSBenchmark"]
    common = {**shared_request(given), "suite": suites, "max_length": LENGTH}
    found = {"before": [say("before", harness.run(str(backbone), **common, pooling="mean"))]}
    for stages, batches in product(STAGES, ("shuffled", "contextual")):
        recipe, own = STAGES[stages]
        settings = {
            "batch_size": SIZE,
            "cluster_size": SIZE,
            "max_length": LENGTH,
            "epochs": 1,
            "warmup": 0.1,
        }
        settings |= {"guide": "minilm", "batches": batches, "precision": "float32", "chunk": SIZE, **own}
        name = f"{stages} stage{'s' * (stages == 'two')}, {batches}"
        how = {"recipe": recipe, "recipe_settings": settings, "train_data": rows, **common}
        for seed in range(SEED, SEED + given.seeds):
            draws = {"context_seeds": 3} if stages == "two" else {}
            report = harness.run(str(backbone), **how, **draws, seed=seed)
            more = {}
            if draws:
                null = harness.run(str(backbone), **how, context="null", seed=seed)
                scores = {one.record.task.name: one.record.main_score for one in null.results if one.record}
                more = {"null": scores, "null_failed": failures_of(null)}
            found.setdefault(name, []).append(say(name, report, **more))
    print(_table(found))


def _rows(data: Path, folder: Path, count: int) -> Iterable[Path]:
    """A file of drawn pairs of each of the four sources."""
    from datasets import load_dataset

    folder.mkdir(parents=True, exist_ok=True)
    nli = load_dataset(str(data / "sentence-transformers" / "all-nli"), "triplet", split="train")
    sources = {
        "nli": [{"query": row["anchor"], "positive": row["positive"]} for row in nli],
        "feedbackqa": _judged(data / "local" / "feedbackqa-train", "train"),
        **{name: read_lines(data / "pairs" / name / "train.jsonl") for name in ("nl2bash", "conala")},
    }
    for name, pairs in sources.items():
        unique = [*{(one["query"], one["positive"]): None for one in pairs}]
        drawn = random.Random(0).sample(unique, min(count, len(unique)))
        lines = ({"query": query, "positive": positive} for query, positive in drawn)
        yield write_lines(lines, folder / f"{name}.jsonl")


def _judged(folder: Path, split: str) -> list[dict[str, str]]:
    """The pairs of query and document of a split of a folder in BEIR's layout."""
    texts = {
        name: {row["_id"]: row["text"] for row in read_lines(folder / f"{name}.jsonl")}
        for name in ("queries", "corpus")
    }
    lines = (folder / "qrels" / f"{split}.tsv").read_text(encoding="utf-8").splitlines()[1:]
    ids = (line.split("\t") for line in lines)
    return [
        {"query": texts["queries"][query], "positive": texts["corpus"][document], "id": document}
        for query, document, _ in ids
    ]


def _folders(data: Path, results: Path) -> Iterable[Path]:
    """The scored sets in BEIR's layout: FeedbackQA by site, NL2Bash, CoNaLa."""
    feedback = data / "local" / "feedbackqa-train"
    pairs = _judged(feedback, "dev")
    corpus = [(row["_id"], row["text"]) for row in read_lines(feedback / "corpus.jsonl")]
    for site in SITES:
        own = [pair for pair in pairs if pair["id"].startswith(site)]
        texts = [text for number, text in corpus if number.startswith(site)]
        yield judged_pairs({"dev": own}, results / f"feedbackqa-{site}", texts)
    yield nl2bash(data, results / "nl2bash")
    yield judged_pairs({"test": read_lines(data / "pairs" / "conala" / "test.jsonl")}, results / "conala")


def _table(found: Mapping[str, list[dict[str, Any]]]) -> str:
    """The kinds of models side by side, in Markdown, times 100."""
    rows = [
        (task, *(_cell(models, task) for models in found.values())) for task in found["before"][0]["scores"]
    ]
    means = [[statistics.fmean(one["scores"].values()) for one in models] for models in found.values()]
    return format_table(("task", *found), [*rows, ("mean", *map(format_spread, means))])


def _cell(models: list[dict[str, Any]], task: str) -> str:
    said = format_spread([one["scores"][task] for one in models])
    draws = [100 * one["draws"][task] for one in models if task in one.get("draws", {})]
    null = [100 * one["null"][task] for one in models if "null" in one]
    said += f", draws {statistics.fmean(draws):.2f}" if draws else ""
    return said + (f", null {statistics.fmean(null):.2f}" if null else "")


if __name__ == "__main__":
    main()
