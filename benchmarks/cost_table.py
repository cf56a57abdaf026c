"""Print the README's table of costs: what a dry run expects of three sizes of BERT, whose weights are random.

python benchmarks/cost_table.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from transformers import AutoTokenizer, BertConfig, BertModel

from harness.encoder.backbones.minilm import BACKBONE

SIZES = {"small (MiniLM-L6)": (6, 384), "base (BERT-base)": (12, 768), "large (BERT-large)": (24, 1024)}
"""Layers and width."""

SUITES = {"MTEB(eng, v2)": "mteb", "BEIR": "beir"}


def make_model(folder: Path, layers: int, width: int) -> Path:
    """A bare backbone of random weights."""
    config = BertConfig(
        num_hidden_layers=layers,
        hidden_size=width,
        intermediate_size=4 * width,
        num_attention_heads=width // 64,
    )
    BertModel(config).half().save_pretrained(folder)
    AutoTokenizer.from_pretrained(BACKBONE.locate()).save_pretrained(folder)
    return folder


def estimate_run(folder: Path, suite: str, home: str) -> tuple[int, dict[str, float]]:
    """The tokens of a suite, and the seconds of its run on a GPU of which nothing is known."""
    command = [
        sys.executable,
        "-m",
        "harness",
        "run",
        "--model",
        str(folder),
        "--pooling",
        "mean",
        "--dry-run",
    ]
    options = ["--suite", suite, "--devices", "cuda:0", "--json", "--results", home, "--cache", home]
    document = json.loads(subprocess.run([*command, *options], check=True, capture_output=True).stdout)
    return sum(row["tokens"] or 0 for row in document["plan"]), document["time"]


def main() -> None:
    """A row a size."""
    print("| model | " + " | ".join(SUITES) + " |\n| --- |" + " --- |" * len(SUITES))
    with tempfile.TemporaryDirectory() as home:
        for name, (layers, width) in SIZES.items():
            folder = make_model(Path(home) / name.partition(" ")[0], layers, width)
            cells = []
            for suite in SUITES.values():
                tokens, time = estimate_run(folder, suite, home)
                cells.append(
                    f"{time['low'] / 60:,.0f} to {time['high'] / 60:,.0f} min ({tokens / 1e6:,.0f} M tokens)"
                )
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
