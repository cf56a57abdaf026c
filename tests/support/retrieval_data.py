"""Retrieval data in the hub's layout, written for any task of mteb: a few texts on four topics."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import yaml

from fakes import TOPICS
from suites._mteb.snapshot import load_snapshot

WORDS = [word for topic in TOPICS for word in topic.split()]


def lay_retrieval(
    root: Path,
    name: str,
    *,
    subsets: Sequence[str] = (),
    splits: Sequence[str] = (),
    documents: int = 12,
    same_ids: bool = False,
) -> Path:
    """The data set of a task below a data root, with four judged queries for each subset and split.

    Args:
        root: The data root.
        name: The task of mteb.
        subsets: The subsets that there are; by default all.
        splits: The splits that there are; by default all.
        documents: The number of documents.
        same_ids: Whether queries have the ids and texts of documents.
    """
    info = load_snapshot().find_task_info(name)
    folder = root / info.path
    configs: dict[str, dict[str, str]] = {}
    for number, subset in enumerate(subsets or info.subsets):
        before = "" if subset == "default" else f"{subset}-"
        texts = [f"{WORDS[(i + number) % 12]} {WORDS[i * 5 % 12]} of {subset} {i}" for i in range(documents)]
        corpus = [{"_id": f"d{i}", "title": WORDS[i % 12], "text": text} for i, text in enumerate(texts)]
        configs[f"{before}corpus"] = {"corpus": write(folder / f"{before}corpus.jsonl", corpus)}
        queries, judged = [], {}
        for at, split in enumerate(splits or info.splits):
            ids = [f"d{i + 4 * at}" if same_ids else f"{split}-q{i}" for i in range(4)]
            queries += [
                {"_id": id_, "text": WORDS[(i * 2 + at + number) % 12], "partition": split}
                for i, id_ in enumerate(ids)
            ]
            grades = [(id_, f"d{(i * 3 + at + 1) % documents}", 1) for i, id_ in enumerate(ids)]
            rows = [dict(zip(("query-id", "corpus-id", "score"), grade, strict=True)) for grade in grades]
            judged[split] = write(folder / f"{before}qrels" / f"{split}.jsonl", rows)
        configs[f"{before}queries"] = {"queries": write(folder / f"{before}queries.jsonl", queries)}
        configs["default" if subset == "default" else f"{before}qrels"] = judged
    names = {
        config: {s: Path(p).relative_to(folder) for s, p in files.items()}
        for config, files in configs.items()
    }
    (folder / "README.md").write_text(card(names))
    return folder


def lay_own(
    folder: Path,
    documents: Iterable[Mapping[str, object]],
    queries: Iterable[Mapping[str, object]],
    judged: Iterable[tuple[str, str, int]],
    *,
    pairs: int = 0,
) -> Path:
    """A suite of one's own: the retrieval task "notes" in BEIR's layout, and scored pairs as "similar".

    Args:
        folder: The suite's folder.
        documents: Rows with `_id`, `title` and `text`.
        queries: Rows with `_id` and `text`.
        judged: Queries, documents and grades.
        pairs: The number of scored pairs; without any there is no second task.
    """
    write(folder / "corpus.jsonl", documents)
    write(folder / "queries.jsonl", queries)
    (folder / "qrels").mkdir()
    grades = [f"{query}\t{document}\t{grade}" for query, document, grade in judged]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *grades, ""]))
    tasks = '[[task]]\nname = "notes"\ntype = "retrieval"\n'
    if pairs:
        rows = "".join(f"a river {i}\ta boat {i * 7 % 5}\t{i % 5}\n" for i in range(pairs))
        (folder / "pairs.tsv").write_text("text1\ttext2\tscore\n" + rows)
        tasks += '[[task]]\nname = "similar"\ntype = "sts"\nfile = "pairs.tsv"\n'
    (folder / "harness.toml").write_text(tasks)
    return folder


def card(configs: Mapping[str, Mapping[str, Path]]) -> str:
    """A README that names the files of configurations by split."""
    entries = [
        {"config_name": name, "data_files": [{"split": s, "path": str(p)} for s, p in files.items()]}
        for name, files in configs.items()
    ]
    return f"---\n{yaml.safe_dump({'configs': entries})}---\n"


def write(path: Path, rows: Iterable[Mapping[str, object]]) -> str:
    """A file of JSON lines; its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)
