"""What a training with simcse gains, and what one with shuffled positives does not.

    python benchmarks/embedding_gain.py nli --data FOLDER [--seeds 3] [--results DIR]
    python benchmarks/embedding_gain.py code --data FOLDER --source FOLDER [--mbpp FOLDER]

The backbone is MiniLM with its last two layers initialised anew. `nli`: one epoch on the triplets of all-nli
in the data root, scored on the development set of STSBenchmark. `code`: one epoch on 10,000 pairs of
docstring and body from the Python source in a folder, scored on the suite `stdlib` and on MBPP. Prints a line
of JSON for each model: the backbone with mean pooling, each seed, and the control.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import harness
from finetune.recipes.simcse import NLI, STSB
from harness.core import paths
from harness.core.lineage import read_document
from harness.data.locate import DataSettings
from harness.data.training.loading import load_training
from harness.data.training.sets import LocatedTraining, locate_training, own_training

PAIRS = 10_000
SETTINGS = {"batch_size": 64, "epochs": 1, "learning_rate": 5e-5}


def main() -> None:
    """Train, evaluate, and print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("nli", "code"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--source", type=Path)
    parser.add_argument("--mbpp", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--pooling", default="attention")
    parser.add_argument("--max-length", type=int, default=64)
    parser.add_argument("--results", type=Path, default=Path(tempfile.mkdtemp()))
    given = parser.parse_args()
    given.results.mkdir(parents=True, exist_ok=True)
    backbone = damaged_minilm(given.results / "backbone")
    settings = DataSettings(root=given.data, offline=True, cache=paths.cache_folder())
    if given.what == "nli":
        rows = locate_training(NLI, settings)
        suites = {"suite": f"local:{development_set(given.results / 'stsb-dev', settings)}"}
    else:
        rows = own_training(f"code:{given.source}", settings)
        suites = {"suite": ["stdlib", f"local:{given.mbpp}"]} if given.mbpp else {"suite": ["stdlib"]}
    right, wrong = right_and_shuffled(
        rows, given.results, cache=settings.cache, count=PAIRS if given.what == "code" else None
    )
    common = {**suites, "data": given.data, "results": given.results / "results", "offline": True}
    say("before", harness.run(str(backbone), **common, pooling="mean"))
    changed = {**SETTINGS, "pooling": given.pooling, "max_length": given.max_length}
    for name, file, seeds in (("trained", right, given.seeds), ("control", wrong, 1)):
        how = {"recipe": "simcse", "recipe_settings": changed, "train_data": str(file), "seeds": seeds}
        say(name, harness.run(str(backbone), **common, **how))


def say(name: str, report: Any) -> None:
    """Print the scores of each model of a report, and the seconds of its training."""
    for one in report.prepared.subjects:
        found = [result.record for result in report.results if result.cell.subject == one and result.record]
        scores = {
            record.task.name: {"score": round(record.main_score, 4), **_known(record.provenance)}
            for record in found
        }
        document = read_document(one.artifact.folder)
        made = {} if document is None else {"seed": document.lineage.seed, **document.training}
        spent = {name: made[name] for name in ("seed", "steps", "seconds", "tokens") if name in made}
        print(json.dumps({"model": name, **spent, "scores": scores}), flush=True)
    for result in report.failures:
        print(json.dumps({"failed": result.failure.message if result.failure else result.how}), flush=True)


def _known(provenance: Mapping[str, Any]) -> dict[str, int]:
    count = provenance.get("texts_trained_on")
    return {} if count is None else {"trained_on": count, "texts": provenance["texts"]}


def damaged_minilm(folder: Path) -> Path:
    """MiniLM as a bare backbone whose last two layers are initialised anew."""
    if folder.exists():
        return folder
    from safetensors.numpy import load_file, save_file

    from harness.plan.models import ModelOptions, subject

    source = subject("minilm", harness.Settings(), ModelOptions()).artifact.folder
    folder.mkdir(parents=True)
    for path in source.iterdir():
        if (
            path.is_file()
            and path.suffix in (".json", ".txt")
            and "sentence" not in path.name
            and path.name != "modules.json"
        ):
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
    from safetensors.numpy import load, save_file

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
    (folder / "pairs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "harness.toml").write_text('[[task]]\nname = "STSBenchmark-dev"\ntype = "sts"\n')
    return folder


def right_and_shuffled(
    rows: LocatedTraining, folder: Path, *, cache: Path, count: int | None
) -> tuple[Path, Path]:
    """The rows as a file, and the same with shuffled positives."""
    import pyarrow as pa
    import pyarrow.parquet as pq

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
