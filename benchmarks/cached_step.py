"""Memory and time of a step of the compute-optimal recipes: a cached batch of 1,024 pairs.

    python benchmarks/cached_step.py FOLDER [--batch 1024] [--chunk 64] [--rounds 3]

FOLDER is a data root with `sentence-transformers/all-nli`. Memory is the peak of a process of its own that
takes two steps, of a batch as large as a chunk and of the whole one. Time is that of a step with our
network, in turns with plain sentence-transformers, whose own backbone computes padding: of a batch with one
long text in 64, all texts are padded to the longest. Bars: memory at most 1.3 of the chunk's, time at most
0.8.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from training_step import nli, step_of
from turns import in_turns

from finetune.embedding.losses import symmetric_loss
from harness.encoder import backbones

MEMORY_BAR, TIME_BAR = 1.3, 0.8
LENGTH = 75


def pairs(root: Path) -> dict[str, list[str]]:
    """Pairs of NLI, of which one in 64 has a document of many sentences."""
    texts = nli(root)
    long = [
        " ".join(texts["positive"][number : number + 12]) if number % 64 == 0 else text
        for number, text in enumerate(texts["positive"])
    ]
    return {"anchor": texts["anchor"], "positive": long}


def main() -> int:
    """Print memory and times; 1 if a bar is missed."""
    from sentence_transformers import SentenceTransformer as Library

    from harness.encoder.sentence_transformer import SentenceTransformer

    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--chunk", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--peak", action="store_true", help="print the peak memory of two steps, in bytes")
    given = parser.parse_args()
    named = backbones.named_models()[given.model]
    assert named.locate is not None
    folder, texts = Path(named.locate()), pairs(given.root)

    def loss(model: Any) -> Any:
        return symmetric_loss(model, 40.0, micro_batch=given.chunk, gather=False)

    if given.peak:
        step = step_of(SentenceTransformer, folder, texts, given.batch, loss=loss, length=LENGTH)
        step()
        step()
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
        return 0
    whole, part = (_peak(given, batch) for batch in (given.batch, given.chunk))
    print(f"peak memory: {whole / 1e6:,.0f} MB for a batch of {given.batch}, {part / 1e6:,.0f} MB for")
    print(f"{given.chunk}: share {whole / part:.3f} (at most {MEMORY_BAR})", flush=True)
    steps = {
        "library": step_of(Library, folder, texts, given.batch, loss=loss, length=LENGTH),
        "ours": step_of(SentenceTransformer, folder, texts, given.batch, loss=loss, length=LENGTH),
    }
    seconds, losses = in_turns(steps, given.rounds)
    share = seconds["ours"] / seconds["library"]
    print(f"a step: library {seconds['library']:.2f} s, ours {seconds['ours']:.2f} s, share {share:.3f}")
    print(f"(at most {TIME_BAR}), losses {losses['library']:.4f} {losses['ours']:.4f}")
    return int(whole / part > MEMORY_BAR or share > TIME_BAR)


def _peak(given: argparse.Namespace, batch: int) -> int:
    command = [sys.executable, __file__, str(given.root), "--peak", f"--batch={batch}"]
    command += [f"--chunk={given.chunk}", f"--model={given.model}"]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


if __name__ == "__main__":
    sys.exit(main())
