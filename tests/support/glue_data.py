"""A data root with GLUE in the hub's layout, made of a few words, small and easy to learn."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from suites.glue import TASKS

WORDS = ("the", "cat", "sat", "on", "mat", "query")


def data_root(folder: Path, *, train: int = 48, dev: int = 24, mismatched: bool = True) -> Path:
    """Every task of GLUE; `mismatched` says whether MNLI has its second development set."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    place = folder / "nyu-mll" / "glue"
    configs = []
    for task in TASKS.values():
        splits = [s for s in task.dev if mismatched or not s.endswith("mismatched")]
        files = {"train": train, **dict.fromkeys(splits, dev)}
        for number, (split, count) in enumerate(files.items()):
            path = place / task.subset / f"{split}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table(columns(task, count, seed=number)), path)
        configs.append((task.subset, list(files)))
    (place / "README.md").write_text(card(configs))
    return folder


def columns(task: Any, count: int, *, seed: int) -> Mapping[str, list[Any]]:
    """Rows whose label says how the first text begins."""
    draw = random.Random(f"{task.subset} {seed}")
    classes = max(task.classes, 2)
    labels = [draw.randrange(classes) for _ in range(count)]
    first = [" ".join([WORDS[label], *draw.choices(WORDS, k=draw.randrange(2, 6))]) for label in labels]
    others = [[" ".join(draw.choices(WORDS, k=3)) for _ in labels] for _ in task.columns[1:]]
    texts = dict(zip(task.columns, [first, *others], strict=True))
    gold = [5.0 * label for label in labels] if task.classes == 1 else labels
    return {**texts, "label": gold, "idx": list(range(count))}


def card(configs: list[tuple[str, list[str]]]) -> str:
    """The README that says which files a subset has."""
    lines = ["---", "configs:"]
    for name, splits in configs:
        lines += [f"- config_name: {name}", "  data_files:"]
        lines += [line for s in splits for line in (f"  - split: {s}", f"    path: {name}/{s}.parquet")]
    return "\n".join([*lines, "---", ""])
