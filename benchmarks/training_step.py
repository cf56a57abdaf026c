"""The time of a training step of simcse with our network, in turns with plain sentence-transformers.

    python benchmarks/training_step.py FOLDER [--batch 64] [--rounds 12] [--model NAME]

FOLDER is a data root with `sentence-transformers/all-nli`. A step is tokenizing, forward, loss, backward,
clipping and AdamW, dropout on. Bars: at most 0.85 of the library's time at the lengths of NLI, at most 1.05
where every text has 32 tokens.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from turns import in_turns

from finetune.embedding.batches import BatchOrder
from finetune.embedding.settings import info_nce
from finetune.recipes.simcse import SETTINGS
from harness.encoder import backbones

VARIABLE_BAR, FIXED_BAR = 0.85, 1.05
COLUMNS = ("anchor", "positive", "negative")


def nli(root: Path) -> dict[str, list[str]]:
    """The triplets at hand."""
    path = root / "sentence-transformers" / "all-nli" / "triplet" / "train.parquet"
    found: dict[str, list[str]] = pq.read_table(path, columns=list(COLUMNS)).to_pydict()
    return found


def step_of(
    kind: type[Any],
    folder: Path,
    texts: dict[str, list[str]],
    batch: int,
    *,
    loss: Callable[[Any], Any] | None = None,
    length: int = 32,
) -> Callable[[], float]:
    """A function that takes the next training step of a model; without `loss` it is simcse's."""
    torch.manual_seed(0)
    model = kind(str(folder), device="cpu", local_files_only=True)
    del model[2:]
    model.max_seq_length = length
    computed = loss(model) if loss else info_nce(model, SETTINGS, micro_batch=None, gather=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.0, fused=True)
    rows: Iterator[Any] = BatchOrder(len(texts["anchor"]), batch, epochs=100, seed=0).after(0)
    model.train()

    def step() -> float:
        chosen = next(rows).tolist()
        features = [model.tokenize([column[row] for row in chosen]) for column in texts.values()]
        value = computed(features, None)
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(value.detach())

    return step


def main() -> int:
    """Print the times; 1 if a bar is missed."""
    from sentence_transformers import SentenceTransformer as Library

    from harness.encoder.sentence_transformer import SentenceTransformer

    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--model", default="minilm")
    given = parser.parse_args()
    named = backbones.named_models()[given.model]
    assert named.locate is not None
    folder = Path(named.locate())
    variable = nli(given.root)
    fixed = {name: ["the " * 40] * 5000 for name in COLUMNS}
    missed = 0
    for label, texts, bar in (("NLI", variable, VARIABLE_BAR), ("32 tokens", fixed, FIXED_BAR)):
        steps = {
            "library": step_of(Library, folder, texts, given.batch),
            "ours": step_of(SentenceTransformer, folder, texts, given.batch),
        }
        in_turns(steps, 2)
        seconds, losses = in_turns(steps, given.rounds)
        share = seconds["ours"] / seconds["library"]
        missed += share > bar
        print(
            f"{label}: library {seconds['library']:.3f} s, ours {seconds['ours']:.3f} s, "
            f"share {share:.3f} (at most {bar}), losses {losses['library']:.4f} {losses['ours']:.4f}"
        )
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
