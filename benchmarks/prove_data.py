"""Writes harness/results/revisions.csv: copies and earlier revisions that hold the texts of a pinned one.

    python benchmarks/prove_data.py --data FOLDER --results RESULTS

A local copy, known by the content hash in its records, is proven by the statistics that the installed mteb
states of the pinned revision: texts, their characters, the shortest and the longest, different ones, and
judgements; for a copy that differs the table has the differences, and no revision that it is the same as. An
earlier revision is proven by a model of the same weights that has the same scores on it, on every split and
subset, as on a proven copy. RESULTS has an import of mteb's results.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import mteb
import pyarrow.parquet as pq

from harness.core import files
from harness.plan import catalog
from harness.results.revisions import REVISIONS
from leaderboard.views.reproductions import read_aliases

NEAR = 1e-6
"""How far two scores of the same texts and weights may be apart: float32 on another processor."""

WORDS = {"total_text_length": "{} characters", "min_text_length": "{} characters in the shortest",
         "max_text_length": "{} characters in the longest", "unique_texts": "{} different texts",
         "num_relevant_docs": "{} judgements"}  # fmt: skip
"""What the statistics count."""

COLUMNS = {"text_statistics": "text", "text1_statistics": "sentence1", "text2_statistics": "sentence2"}


def describe_texts(texts: list[str]) -> dict[str, Any]:
    """What mteb states of some texts."""
    sizes = [len(text) for text in texts]
    return {"total_text_length": sum(sizes), "min_text_length": min(sizes), "max_text_length": max(sizes),
            "unique_texts": len({*texts})}  # fmt: skip


def compare_statistics(stated: dict[str, Any], folder: Path, split: str) -> list[str]:
    """How a split of a local copy differs from the stated statistics, of each kind of text the first."""
    if "documents_text_statistics" in stated:
        corpus, queries, qrels = (
            pq.read_table(folder / f"{n}.parquet").to_pylist() for n in ("corpus", "queries", "qrels")
        )
        documents = [f"{one['title']} {one['text']}".strip() for one in corpus]
        own = {
            "documents_text_statistics": describe_texts(documents),
            "queries_text_statistics": describe_texts([one["text"] for one in queries]),
            "relevant_docs_statistics": {"num_relevant_docs": sum(one["score"] > 0 for one in qrels)},
        }
    else:
        rows = pq.read_table(folder / f"{split}.parquet").to_pylist()
        own = {n: describe_texts([r[c] for r in rows]) for n, c in COLUMNS.items() if stated.get(n)}
    if not own:
        return [f"{split}: no statistics are stated"]
    differing = {
        name: next((key for key, count in values.items() if stated[name][key] != count), "")
        for name, values in own.items()
    }  # fmt: skip
    return [
        f"{split}, {COLUMNS.get(name, name.partition('_')[0])}: "
        f"{WORDS[key].format(f'{own[name][key]:,}')}, stated are {stated[name][key]:,}"
        for name, key in differing.items() if key
    ]  # fmt: skip


def list_differences(record: dict[str, Any], data: Path) -> list[str]:
    """How the local copy of a record differs from the statistics of the pinned revision, in any split."""
    task = mteb.get_task(record["task"]["name"])
    statistics = task.metadata.descriptive_stats or {}
    folder = data / record["identity"]["data"]["path"]
    pairs = []
    for split in record["identity"]["splits"]:
        subsets = statistics.get(split, {}).get("hf_subset_descriptive_stats")
        for name in record["identity"]["subsets"]:
            stated = subsets[name] if subsets else statistics[split]
            pairs.append((stated, folder / name if (folder / name).is_dir() else folder, split))
    return [text for pair in pairs for text in compare_statistics(*pair)]


def iter_imported(results: Path, model: str, task: str) -> Iterator[tuple[str, dict[tuple[str, str], float]]]:
    """The revisions of a task's data on which an import has scores of a model."""
    home = results / "imported" / "mteb-results"
    rows = duckdb.execute(
        """SELECT s.data_revision, s.split, s.subset, s.main_score FROM read_parquet(?) s
           JOIN (SELECT model, file_row_number AS n FROM read_parquet(?, file_row_number = true)) e
             ON e.n = s.entry WHERE e.model = ? AND s.task = ? AND s.data_revision != 'None'""",
        [str(home / "scores-*.parquet"), str(home / "entries-*.parquet"), model, task],
    ).fetchall()
    for revision in sorted({row[0] for row in rows}):
        yield revision, {(split, subset): x for one, split, subset, x in rows if one == revision}


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a data root")
    parser.add_argument("--results", type=Path, required=True, help="a results folder with an import")
    options = parser.parse_args()
    reference = files.find_reference_folder()
    assert reference is not None
    records = [json.loads(path.read_bytes()) for path in sorted(reference.glob("records/*/*/*.json"))]
    records = [one for one in records if one["identity"]["data"].get("content", "").startswith("sha256:")]
    pins = {t.name: t.data.revision for r in records
            for t in catalog.open_suite(f"mteb:{r['task']['name']}").tasks}  # fmt: skip
    kinds = {
        r["identity"]["data"]["content"]: r["task"]["name"]
        for r in records if not list_differences(r, options.data)
    }  # fmt: skip
    rows = []
    for record in records:
        task, data = record["task"]["name"], record["identity"]["data"]["content"]
        if data not in kinds:
            texts = "; ".join(list_differences(record, options.data))
            rows.append((task, data, "", f"mteb {mteb.__version__}: {texts}"))
            continue
        rows.append((task, data, pins[task], f"mteb {mteb.__version__}: its statistics of {kinds[data]}"))
        model = read_aliases()[record["model"]["weights"]]
        own = {(s, n): values["main_score"] for s, subsets in record["scores"].items()
               for n, values in subsets.items()}  # fmt: skip
        for revision, scores in iter_imported(options.results, model, task):
            equal = all(abs(scores.get(cell, 9) - x) <= NEAR for cell, x in own.items())
            if equal and revision != pins[task]:
                rows.append((task, revision, pins[task], f"{model}: the same scores on {data[:19]}"))
    with REVISIONS.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(
            [("task", "revision", "same_as", "evidence"), *sorted(rows)]
        )
    print(f"{len(rows)} rows in {REVISIONS}")


if __name__ == "__main__":
    main()
