"""Suites from source code: their counts, and the scores of a model with 95 % intervals over queries.

    python benchmarks/code_suites.py FOLDER... [--model minilm] [--cache DIR]

Of each folder every task is scored, and code search once more over the documents of the plain form without
their names: the step from `.named` to it is what names tell, the rest is what further functions hide.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from measuring import read_options, write_lines

import harness
from harness.core.types import SuiteOptions, Task
from harness.plan.catalog import open_suite
from harness.results.bootstrap import Interval
from harness.storage.record import Record
from harness.storage.store import Store
from suites._code.selection import Function
from suites._code.source import LANGUAGES
from suites._content import Retrieval


def main() -> None:
    """Print a table for each folder."""
    asked = read_options(__doc__, {"folders": {"nargs": "+"}}, model="minilm", cache={"type": Path})
    with tempfile.TemporaryDirectory() as place:
        cache = asked.cache or Path(place) / "cache"
        for folder in asked.folders:
            show(folder, asked.model, cache, Path(place))


def show(folder: str, model: str, cache: Path, place: Path) -> None:
    suite = open_suite(f"code:{folder}", SuiteOptions(cache=cache))
    print(f"\n{suite.title}", *suite.notes, sep="\n  ")
    hidden = [without_names(task, place) for task in suite.tasks if task.name.endswith(".named")]
    report = harness.run(
        model, [f"code:{folder}", *(f"local:{one}" for one in hidden)], cache=cache, results=place / "results"
    )
    sizes = {task.name: counts(task) for task in suite.tasks}
    print(f"  {'task':48}{'queries':>9}{'documents':>11}{'score':>8}  95 % interval")
    for record in report.records:
        score = interval(record, Store(place / "results"))
        queries, documents = sizes.get(record.task.name, ("", ""))
        print(
            f"  {record.task.name:48}{queries:>9}{documents:>11}{100 * score.point:8.2f}"
            f"  {100 * score.low:.1f} to {100 * score.high:.1f}"
        )


def counts(task: Task) -> tuple[int, int]:
    content = task.source.loader.content()  # type: ignore[attr-defined]
    is_search = isinstance(content, Retrieval)
    return (len(content.queries), len(content.documents)) if is_search else (task.size.texts or 0, 0)


def without_names(task: Task, place: Path) -> Path:
    """A folder in BEIR's layout with the documents of a plain form, names hidden."""
    content = task.source.loader.content()  # type: ignore[attr-defined]
    suffix = task.name.removesuffix(".named").partition("CodeSearch")[2]
    language = next(name for name, one in LANGUAGES.items() if one.suffix == suffix)
    folder = place / f"{task.name}-hidden"
    (folder / "qrels").mkdir(parents=True)
    documents = [{"_id": d.id, "text": function(d.id, d.text, language).hidden} for d in content.documents]
    queries = [{"_id": q.id, "text": q.text} for q in content.queries]
    for file, rows in (("corpus", documents), ("queries", queries)):
        write_lines(rows, folder / f"{file}.jsonl")
    judged = [f"{q}\t{d}\t{grade}\n" for q, grades in content.qrels.items() for d, grade in grades.items()]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(judged))
    return folder


def function(id_: str, text: str, language: str) -> Function:
    module, _, name = id_.partition(":")
    return Function(name=name, module=module, docstring="", code=text, language=language)


def interval(record: Record, store: Store) -> Interval:
    """The score with the percentiles of 10,000 draws of its queries or texts."""
    path = store.find_part_file(record, f"model-{record.model.artifact[:12]}")
    score = record.main_score or 0.0
    if record.task.type != "Retrieval" or path is None:
        return Interval(point=score, low=score, high=score)
    values = pq.read_table(path).column("metric").to_numpy()
    draws = np.random.default_rng(42).integers(len(values), size=(10_000, len(values)))
    return Interval.from_replicates(score, values[draws].mean(axis=1))


if __name__ == "__main__":
    main()
