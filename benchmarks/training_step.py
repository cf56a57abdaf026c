"""The time of a training step with our network, in turns with plain sentence-transformers.

    python benchmarks/training_step.py FOLDER [--batch 64] [--rounds 12] [--model NAME]
    python benchmarks/training_step.py FOLDER --cached [--batch 1024] [--chunk 64] [--rounds 3]

FOLDER is a data root with `sentence-transformers/all-nli`. A step is tokenizing, forward, loss, backward,
clipping and AdamW, dropout on. The loss is simcse's. Bars: at most 0.85 of the library's time at the lengths
of NLI, at most 1.05 where every text has 32 tokens.

With `--cached` the loss is that of the compute-optimal recipes, of a cached batch of pairs. Memory is the
peak of a process of its own that takes two steps, of a batch as large as a chunk and of the whole one. The
library's own backbone computes padding: of a batch with one long text in 64, all texts are padded to the
longest. Bars: memory at most 1.3 of the chunk's, time at most 0.8.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from measuring import in_turns, own_peak, peak, read_options, report_missed

from finetune.embedding.losses import build_symmetric_loss
from finetune.embedding.settings import info_nce
from finetune.embedding.setups import BatchOrder
from finetune.recipes.simcse import SETTINGS
from harness.encoder import backbones

VARIABLE_BAR, FIXED_BAR = 0.85, 1.05
COLUMNS = ("anchor", "positive", "negative")

MEMORY_BAR, TIME_BAR, LENGTH = 1.3, 0.8, 75
"""The bars of a cached step, and the tokens of a text in it."""


def nli(root: Path) -> dict[str, list[str]]:
    """The triplets at hand."""
    path = root / "sentence-transformers" / "all-nli" / "triplet" / "train.parquet"
    return pq.read_table(path, columns=list(COLUMNS)).to_pydict()


def pairs(root: Path) -> dict[str, list[str]]:
    """Pairs of NLI, of which one in 64 has a document of many sentences."""
    texts = nli(root)
    long = [
        " ".join(texts["positive"][number : number + 12]) if number % 64 == 0 else text
        for number, text in enumerate(texts["positive"])
    ]
    return {"anchor": texts["anchor"], "positive": long}


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
    rows: Iterator[Any] = BatchOrder(len(texts["anchor"]), batch, epochs=100, seed=0).iter_batches(0)
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


def compare(label: str, rounds: int, bar: float, *given: Any, **options: Any) -> list[str]:
    """Print the times of both sides; what is missed."""
    from sentence_transformers import SentenceTransformer as Library

    from harness.encoder.sentence_transformer import SentenceTransformer

    steps = {
        name: step_of(kind, *given, **options)
        for name, kind in (("library", Library), ("ours", SentenceTransformer))
    }
    in_turns(steps, 1)
    seconds, losses = in_turns(steps, rounds)
    share = seconds["ours"] / seconds["library"]
    print(
        f"{label}: library {seconds['library']:.3f} s, ours {seconds['ours']:.3f} s, "
        f"share {share:.3f} (at most {bar}), losses {losses['library']:.4f} {losses['ours']:.4f}"
    )
    return [f"{label}: {share:.3f}, not {bar}"] if share > bar else []


def compare_cached(given: Any, folder: Path) -> list[str]:
    """Print memory and time of a cached step; what is missed."""
    batch, rounds = given.batch or 1024, given.rounds or 3

    def loss(model: Any) -> Any:
        return build_symmetric_loss(model, 40.0, micro_batch=given.chunk, gather=False)

    if given.alone:
        from harness.encoder.sentence_transformer import SentenceTransformer

        step = step_of(SentenceTransformer, folder, pairs(given.root), batch, loss=loss, length=LENGTH)
        step(), step()
        print(own_peak())
        return []
    words = (str(given.root), "--cached", "--alone", f"--chunk={given.chunk}", f"--model={given.model}")
    whole, part = (peak(__file__, *words, f"--batch={size}") for size in (batch, given.chunk))
    share = whole / part
    print(f"peak memory: {whole:,.0f} MB for a batch of {batch}, {part:,.0f} MB for {given.chunk}: ", end="")
    print(f"share {share:.3f} (at most {MEMORY_BAR})", flush=True)
    missed = [f"memory: {share:.3f}, not {MEMORY_BAR}"] if share > MEMORY_BAR else []
    return missed + compare(
        "a cached step", rounds, TIME_BAR, folder, pairs(given.root), batch, loss=loss, length=LENGTH
    )


def main() -> int:
    """Print the figures; 1 if a bar is missed."""
    number = {"type": int}
    given = read_options(
        __doc__, {"root": {"type": Path}}, batch=number, rounds=number, model="minilm", cached=False,
        chunk=64, alone=False,
    )  # fmt: skip
    folder = Path(backbones.list_catalog_models()[given.model].locate())
    if given.cached:
        missed = compare_cached(given, folder)
        return 0 if given.alone else report_missed(missed)
    texts = {"NLI": (nli(given.root), VARIABLE_BAR)}
    texts["32 tokens"] = ({name: ["the " * 40] * 5000 for name in COLUMNS}, FIXED_BAR)
    sizes = (given.rounds or 12, given.batch or 64)
    missed = [
        line
        for label, (columns, bar) in texts.items()
        for line in compare(label, sizes[0], bar, folder, columns, sizes[1])
    ]
    return report_missed(missed)


if __name__ == "__main__":
    sys.exit(main())
