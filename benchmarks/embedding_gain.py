"""What a training with simcse gains, and what one with shuffled positives does not.

    python benchmarks/embedding_gain.py nli --data FOLDER [--seeds 3] [--results DIR]
    python benchmarks/embedding_gain.py code --data FOLDER --source FOLDER [--mbpp FOLDER]

The backbone is MiniLM with its last two layers initialised anew. `nli`: one epoch on the triplets of all-nli
in the data root, scored on the development set of STSBenchmark. `code`: one epoch on 10,000 pairs of
docstring and body from the Python source in a folder, scored on the suite `stdlib` and on MBPP. Prints a line
of JSON for each model: the backbone with mean pooling, each seed, and the control.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measuring import locate_minilm, read_options, write_lines
from safetensors.numpy import load, load_file, save_file

import harness
from finetune.recipes.simcse import NLI, STSB
from harness.core import files
from harness.core.keys import read_document
from harness.data.locate import DataSettings
from harness.data.training.loading import load_training
from harness.data.training.sets import LocatedTraining, locate_training, locate_user_training

PAIRS = 10_000
SETTINGS = {"batch_size": 64, "epochs": 1, "learning_rate": 5e-5}
SEED = 42
"""The first seed."""


def main() -> None:
    """Train, evaluate, and print a line for each model."""
    given = read_gain_options(
        __doc__, ("nli", "code"), mbpp={"type": Path}, pooling="attention", max_length=64
    )
    backbone = damaged_minilm(given.results / "backbone")
    settings = data_settings(given.data)
    if given.what == "nli":
        rows = locate_training(NLI, settings)
        suites = [f"local:{development_set(given.results / 'stsb-dev', settings)}"]
    else:
        rows = locate_user_training(f"code:{given.source}", settings)
        suites = ["stdlib", *([f"local:{given.mbpp}"] if given.mbpp else [])]
    right, wrong = right_and_shuffled(
        rows, given.results, cache=settings.cache, count=PAIRS if given.what == "code" else None
    )
    common = {**shared_request(given), "suite": suites}
    say("before", harness.run(str(backbone), **common, pooling="mean"))
    changed = {**SETTINGS, "pooling": given.pooling, "max_length": given.max_length}
    for name, file, seeds in (("trained", right, given.seeds), ("control", wrong, 1)):
        how = {"recipe": "simcse", "recipe_settings": changed, "train_data": str(file)}
        for seed in range(SEED, SEED + seeds):
            say(name, harness.run(str(backbone), **common, **how, seed=seed))


def read_gain_options(doc: str, what: tuple[str, ...] = (), **more: Any) -> Any:
    """The options of the scripts that train: what is trained, the data, seeds, threads, where results go."""
    words = {"what": {"choices": what}} if what else {}
    common = {"data": Path, "source": {"type": Path}, "seeds": 3, "threads": 2}
    given = read_options(doc, words, **common, results=Path(tempfile.mkdtemp()), **more)
    given.results.mkdir(parents=True, exist_ok=True)
    return given


def data_settings(data: Path) -> DataSettings:
    """A data root without the network."""
    return DataSettings(root=data, offline=True, cache=files.resolve_cache_folder())


def shared_request(given: Any) -> dict[str, Any]:
    """What all runs of a script have in common."""
    places = {"data": given.data, "results": given.results / "results"}
    return {**places, "offline": True, "threads": given.threads}


def say(name: str, report: Any, **more: Any) -> dict[str, Any]:
    """Print the line of a model: what its training took, and its scores, of several draws the means."""
    found: dict[str, list[float]] = {}
    trained_on: dict[str, int] = {}
    for record in (result.record for result in report.results if result.record):
        found.setdefault(record.task.name, []).append(record.main_score)
        if (count := record.provenance.get("texts_trained_on")) is not None:
            trained_on[record.task.name] = count
    line: dict[str, Any] = {"model": name}
    document = read_document(report.prepared.subjects[0].artifact.folder)
    if document is not None:
        made = document.training
        spent = {part: made[part] for part in ("steps", "tokens", "flops") if part in made}
        line |= {"seed": document.lineage.seed, **spent, "minutes": round(made["seconds"] / 60, 2)}
    line["scores"] = {task: round(statistics.fmean(scores), 4) for task, scores in found.items()}
    draws = {task: statistics.stdev(scores) for task, scores in found.items() if len(scores) > 1}
    line |= {"draws": draws} if draws else {}
    line |= {"texts_trained_on": trained_on} if trained_on else {}
    line |= {"failed": failed} if (failed := failures_of(report)) else {}
    line |= more
    print(json.dumps(line), flush=True)
    return line


def failures_of(report: Any) -> list[str]:
    """Why scores of a report are missing."""
    return [one.failure.message if one.failure else one.how for one in report.failures]


def damaged_minilm(folder: Path) -> Path:
    """MiniLM as a bare backbone whose last two layers are initialised anew."""
    if folder.exists():
        return folder
    source = locate_minilm()
    folder.mkdir(parents=True)
    for path in source.iterdir():
        bare = "sentence" not in path.name and path.name != "modules.json"
        if bare and path.suffix in (".json", ".txt"):
            shutil.copy(path, folder / path.name)
    tensors, draw = load_file(source / "model.safetensors"), np.random.default_rng(0)
    for name, tensor in tensors.items():
        if "layer.4." in name or "layer.5." in name:
            norm, bias = "LayerNorm.weight" in name, name.endswith("bias")
            fresh = np.ones_like(tensor) if norm else draw.normal(0, 0.02, tensor.shape).astype(tensor.dtype)
            tensors[name] = np.zeros_like(tensor) if bias else fresh
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def small_minilm(folder: Path) -> Path:
    """MiniLM as a bare backbone of its first two layers, which reads 16 tokens of a text."""
    config, weights = damaged_minilm(folder) / "config.json", folder / "model.safetensors"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"num_hidden_layers": 2}))
    tokenizer = folder / "tokenizer_config.json"
    tokenizer.write_text(json.dumps(json.loads(tokenizer.read_text()) | {"model_max_length": 16}))
    tensors = load(weights.read_bytes())
    later = tuple(f".layer.{number}." for number in range(2, 6))
    kept = {name: tensor for name, tensor in tensors.items() if not any(part in name for part in later)}
    save_file(kept, weights, metadata={"format": "pt"})
    return folder


def development_set(folder: Path, settings: DataSettings) -> Path:
    """The development set of STSBenchmark as a suite of one task."""
    folder.mkdir(exist_ok=True)
    rows = load_training(locate_training(STSB, settings), cache=settings.cache)
    first, second, score = rows.column_names
    lines = ({"text1": row[first], "text2": row[second], "score": row[score]} for row in rows)
    write_lines(lines, folder / "pairs.jsonl")
    (folder / "harness.toml").write_text('[[task]]\nname = "STSBenchmark-dev"\ntype = "sts"\n')
    return folder


def right_and_shuffled(
    rows: LocatedTraining, folder: Path, *, cache: Path, count: int | None
) -> tuple[Path, Path]:
    """The rows as a file, and the same with shuffled positives."""
    table = load_training(rows, cache=cache)
    order = np.random.default_rng(0).permutation(len(table))[: count or len(table)]
    columns = {name: list(table.select(order)[name]) for name in table.column_names}
    shuffled = dict(columns)
    second = table.column_names[1]
    shuffled[second] = [columns[second][at] for at in np.random.default_rng(1).permutation(len(order))]
    for name, content in (("right", columns), ("shuffled", shuffled)):
        pq.write_table(pa.table(content), folder / f"{name}.parquet")
    return folder / "right.parquet", folder / "shuffled.parquet"


if __name__ == "__main__":
    main()
