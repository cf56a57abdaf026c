"""Print the README's table of costs: what a dry run expects of three sizes of BERT, whose weights are random.

python benchmarks/cost_table.py DATA_ROOT    # with data of GLUE, whose tokens are counted
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow.parquet as pq
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification, BertModel

from harness.encoder.backbones.minilm import BACKBONE
from harness.results.cost.compute import TRAINING_SHARE
from harness.results.cost.duration import TimeRange
from harness.results.cost.encoding import OPERATIONS, UNMEASURED
from suites.glue import TASKS

SIZES = {
    "6 layers of width 384 (MiniLM)": (6, 384),
    "12 layers of width 768 (BERT-base)": (12, 768),
    "24 layers of width 1,024 (BERT-large)": (24, 1024),
}
SUITES = {"MTEB(eng, v2)": "mteb", "BEIR": "beir"}
RECIPE, EPOCHS = "finetune", 3


def plan_run(folder: Path, suite: str, home: str, *options: str) -> dict[str, Any]:
    """The dry run of a suite as JSON."""
    command = [sys.executable, "-m", "harness", "run", "--model", str(folder), "--suite", suite, "--dry-run"]
    command += ["--json", "--results", home, "--cache", home, *options]
    document: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return document


def count_glue_tokens(data: Path) -> float:
    """The tokens of all training rows of GLUE; where the data has a part of the rows, it stands for all."""
    tokenizer = AutoTokenizer.from_pretrained(BACKBONE.locate())
    total = 0.0
    for task in TASKS.values():
        rows = pq.read_table(data / task.subset / "train.parquet")
        texts = [rows[column].to_pylist() for column in task.columns]
        inputs = tokenizer(*texts, truncation=True, max_length=128).input_ids
        total += task.train_rows * fmean(map(len, inputs))
    return total


def count_peak_bytes(config: BertConfig) -> tuple[int, int]:
    """The bytes of tensors at most, in float32: of encoding 128 texts of 512 tokens, and of a step of AdamW
    with 32 texts of 128. Nothing is computed: torch counts what would be there.
    """
    with FakeTensorMode():
        model = BertModel(config).eval()
        encoding = MemTracker()
        encoding.track_external(model)
        with encoding, torch.no_grad():
            model(torch.ones((128, 512), dtype=torch.long))
        classifier = BertForSequenceClassification(config).train()
        optimizer = torch.optim.AdamW(classifier.parameters())
        training = MemTracker()
        training.track_external(classifier, optimizer)
        with training:
            for _ in range(2):  # the first step makes the moments
                training.reset_mod_stats()
                texts, labels = torch.ones((32, 128), dtype=torch.long), torch.ones(32, dtype=torch.long)
                classifier(texts, labels=labels).loss.backward()
                optimizer.step()
                optimizer.zero_grad()
    cpu = torch.device("cpu")
    first, second = (one.get_tracker_snapshot("peak")[cpu]["Total"] for one in (encoding, training))
    return first, second


def main() -> None:
    """A row a size."""
    warnings.filterwarnings("ignore", module="torch.distributed._tools")
    heads = ["model", *SUITES, f"GLUE, `{RECIPE}`", "GPU memory"]
    print("| " + " | ".join(heads) + " |\n|" + " --- |" * len(heads))
    tokens = count_glue_tokens(Path(sys.argv[1], "nyu-mll", "glue"))
    with tempfile.TemporaryDirectory() as home:
        for name, (layers, width) in SIZES.items():
            shape = {"num_hidden_layers": layers, "num_attention_heads": width // 64}
            config = BertConfig(hidden_size=width, intermediate_size=4 * width, **shape)
            folder = Path(home, str(width))
            model = BertModel(config).half()
            model.save_pretrained(folder)
            AutoTokenizer.from_pretrained(BACKBONE.locate()).save_pretrained(folder)
            cells = []
            for suite in SUITES.values():
                time = plan_run(folder, suite, home, "--pooling", "mean", "--devices", "cuda:0")["time"]
                cells.append(TimeRange(**{key: time[key] for key in ("seconds", "low", "high")}).text)
            # Six operations for each parameter and token (Kaplan et al., 2020).
            operations = 6 * sum(w.numel() for w in model.encoder.parameters()) * EPOCHS * tokens
            seconds = operations / (OPERATIONS["cuda"] * TRAINING_SHARE)
            cells.append(TimeRange.from_seconds(seconds, UNMEASURED).text)
            cells.append(" and ".join(f"{count / 1e9:.1f}" for count in count_peak_bytes(config)) + " GB")
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
