"""Long documents on a CPU: peak memory, and vectors beside those of one document at a time.

    python benchmarks/long_documents.py CRANFIELD [--batch-tokens N] [--tokens 8192]

18 documents of that many tokens, joined from Cranfield's abstracts, through a ModernBERT of four layers with
random weights, which is written to a folder first. The peak is that of a process, libraries included.
Bars: at most 6 GB, and vectors that differ by at most 1e-5 from those of one document at a time.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from itertools import accumulate
from pathlib import Path

import numpy as np
from measuring import load_encoder, locate_minilm, own_peak, peak, read_lines, read_options

DOCUMENTS, LAYERS = 18, 4
MEMORY, SAME = 6000, 1e-5
"""The bars: MB, and the largest difference of a component."""


def write_model(folder: Path, tokens: int) -> None:
    """A ModernBERT of base sizes with four layers and random weights, with MiniLM's tokenizer."""
    import torch
    from transformers import AutoTokenizer, ModernBertConfig, ModernBertModel

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(locate_minilm())
    tokenizer.model_max_length, tokenizer.model_input_names = tokens, ["input_ids", "attention_mask"]
    config = ModernBertConfig(
        vocab_size=len(tokenizer),
        num_hidden_layers=LAYERS,
        max_position_embeddings=tokens,
        pad_token_id=tokenizer.pad_token_id,
        cls_token_id=tokenizer.cls_token_id,
        sep_token_id=tokenizer.sep_token_id,
        bos_token_id=tokenizer.cls_token_id,
        eos_token_id=tokenizer.sep_token_id,
    )
    ModernBertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_documents(data: Path, folder: Path, tokens: int) -> None:
    """Documents of at least `tokens` tokens, from abstracts in the order of the file."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    abstracts = [f"{row['title']} {row['text']}" for row in read_lines(data / "corpus.jsonl")]
    lengths = [len(ids) for ids in tokenizer(abstracts, add_special_tokens=False)["input_ids"]]
    made: list[list[str]] = [[]]
    for abstract, total in zip(abstracts, accumulate(lengths), strict=True):
        made[-1].append(abstract)
        if total >= len(made) * (tokens + max(lengths)):
            made.append([])
    assert len(made) > DOCUMENTS
    (folder / "documents.json").write_text(json.dumps([" ".join(parts) for parts in made[:DOCUMENTS]]))


def encode(folder: Path, tokens: int, batch_tokens: int | None, *, alone: bool) -> None:
    """Encode the documents, save their vectors, and print the seconds and the peak memory."""
    documents = json.loads((folder / "documents.json").read_text())
    encoder = load_encoder(folder, batch_tokens=batch_tokens, pooling="mean", max_length=tokens)
    assert encoder.count_tokens(documents) == DOCUMENTS * tokens
    began = time.monotonic()
    if alone:
        vectors = np.concatenate([encoder.encode_batch([document]) for document in documents])
    else:
        vectors = encoder.encode(documents)
    print(f"{'one at a time' if alone else 'together'}: {time.monotonic() - began:.1f} s", file=sys.stderr)
    np.save(folder / ("alone.npy" if alone else "together.npy"), vectors)
    print(own_peak())


def main() -> int:
    """Print both figures; 1 where one is beyond its bar."""
    words = {"data": {"type": Path}}
    alone = {"choices": ("alone", "together")}
    options = read_options(__doc__, words, tokens=8192, batch_tokens=0, run=alone)
    given = (options.tokens, options.batch_tokens or None)
    if options.run:
        encode(options.data, *given, alone=options.run == "alone")
        return 0
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write_model(folder, options.tokens)
        write_documents(options.data, folder, options.tokens)
        more = ("--tokens", str(options.tokens), "--batch-tokens", str(options.batch_tokens))
        used = {run: peak(__file__, made, "--run", run, *more) for run in ("alone", "together")}
        difference = np.abs(np.load(folder / "alone.npy") - np.load(folder / "together.npy")).max()
    print(f"{DOCUMENTS} documents of {options.tokens:,} tokens, {LAYERS} layers: ", end="")
    print(
        f"peak {used['together']:,.0f} MB (one at a time {used['alone']:,.0f} MB; bar {MEMORY:,}), ", end=""
    )
    print(f"largest difference {difference:.1e} (bar {SAME})")
    return int(used["together"] > MEMORY or difference > SAME)


if __name__ == "__main__":
    raise SystemExit(main())
