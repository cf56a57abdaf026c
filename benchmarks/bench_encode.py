"""Encoding on a CPU beside sentence-transformers: tokens a second, vectors, and whether the bars hold.

    python benchmarks/bench_encode.py --data ../shared/datasets [--newest build/newest] [--token-vectors]

All sides get the same texts, no text twice, on the same cores; times hold tokenizing and are
taken in turns. Memory is the peak of a process of its own, libraries included.

`--newest` adds the library of another environment, for information: it loads its models in workers before
the clock starts. sentence-transformers 6 flattens inputs only with flash attention, which no CPU has.
`--token-vectors` encodes documents by a multi-vector model, beside PyLate and, from version 6 on,
sentence-transformers' own class, without bars of speed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from measuring import (
    ROOT,
    in_turns,
    load_encoder,
    load_library,
    locate_minilm,
    locate_python,
    own_peak,
    peak,
    read_options,
    report_missed,
    serve,
    start_worker,
)
from plaid_recall import save_model

BARS = {"float32": {4: 1.6, 2: 1.3}, "bfloat16": {4: 3.0, 2: 3.0}}
"""How many times the better float32 opponent, by cores."""

SAME = 1e-5
"""How far a component of our float32 vectors may lie from theirs."""

TOKENIZING = 0.85
"""The share of the rate of the tokenizers library alone that is asked of tokenizing."""

LIBRARIES = ("sentence-transformers", "transformers", "torch")

Run = Callable[[list[str]], np.ndarray]


def texts(data: Path, name: str) -> list[str]:
    """Sentences of STSBenchmark; mixed with documents of SciFact."""
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(data / "mteb" / "stsbenchmark-sts" / "test.parquet")
    short = list(dict.fromkeys([*table["sentence1"].to_pylist(), *table["sentence2"].to_pylist()]))
    if name == "short":
        return short[:2000]
    corpus = pyarrow.parquet.read_table(data / "mteb" / "scifact" / "corpus.parquet")
    return [*corpus["text"].to_pylist()[:150], *short[:450]]


def ours(dtype: str, folder: Path | None = None) -> tuple[Run, Any]:
    """The engine, and the encoder behind it."""
    encoder = load_encoder(folder or locate_minilm(), dtype=dtype)
    if encoder.encoding.late_interaction:
        return lambda given: encoder.encode(given, role="document").vectors, encoder
    return encoder.encode, encoder


def theirs(dtype: str, batch: int, folder: Path) -> Run:
    """SentenceTransformer.encode with its own threads."""
    model = load_library(folder, dtype=dtype)
    return lambda given: np.asarray(model.encode(given, batch_size=batch), dtype=np.float32)


def their_tokens(dtype: str, batch: int, folder: Path) -> Run:
    """The token vectors of documents, by sentence-transformers if it has a class for them, else by PyLate."""
    import sentence_transformers
    import torch

    if library := getattr(sentence_transformers, "MultiVectorEncoder", None):
        encode = load_library(folder, dtype=dtype, library=library).encode_document
    else:
        from pylate.models import ColBERT

        encode = partial(load_library(folder, dtype=dtype, library=ColBERT).encode, is_query=False)
    return lambda given: (
        torch.cat([torch.as_tensor(rows) for rows in encode(given, batch_size=batch)]).float().numpy()
    )


def contestants(folder: Path, *, tokens: bool) -> dict[str, Callable[[], Run]]:
    """What is measured, by name; the first is what the others' vectors are compared with."""
    library = their_tokens if tokens else theirs
    found: dict[str, Callable[[], Run]] = {}
    for dtype in ("float32", "bfloat16"):
        for batch in (32, 128):
            found[f"theirs {dtype} batch {batch}"] = partial(library, dtype, batch, folder)
        found[f"ours {dtype}"] = lambda d=dtype: ours(d, folder)[0]
    return found


def bar(name: str, cores: int) -> float | None:
    """How many times the opponent's rate is asked of a contestant, None where nothing is."""
    if not name.startswith("ours") or ("bfloat16" in name and not has_bf16()):
        return None
    return BARS[name.split()[1]][4 if cores >= 4 else 2]


def has_bf16() -> bool:
    """Whether this CPU multiplies bfloat16 in hardware."""
    return "avx512_bf16" in Path("/proc/cpuinfo").read_text()


def gate() -> dict[str, float]:
    """The seconds the sanity gate takes with and without a second load."""
    from harness.encoder.sanity import check_encoder

    taken = {}
    for dtype in ("float32", "bfloat16"):
        _, encoder = ours(dtype)
        taken[f"{dtype}"] = check_encoder(encoder).seconds
        taken[f"{dtype} with reload"] = check_encoder(encoder, lambda d=dtype: ours(d)[1]).seconds
    return taken


def measure_tokenizing(given: list[str], repeats: int) -> float:
    """The rate of tokenizing as a share of that of the tokenizers library alone, on the same cores."""
    from harness.encoder.batches import tokenize_texts

    module: Any = ours("float32")[1].model[0]
    raw = module.tokenizer.backend_tokenizer.encode_batch_fast
    turns = {"ours": lambda: tokenize_texts(module, given, module.max_seq_length), "raw": lambda: raw(given)}
    seconds, _ = in_turns(turns, repeats)
    return seconds["raw"] / seconds["ours"]


def main() -> int:
    """Print the table; 1 if a bar is missed."""
    asked = read_options(
        __doc__,
        data=Path,
        repeats=5,
        corpus={"choices": ["short", "mixed"]},
        newest={"type": Path, "help": "an environment's folder, or its Python"},
        token_vectors=False,
        folder={"type": Path, "help": "a model instead of MiniLM"},
        alone={"help": "one contestant"},
        serve=False,
    )
    folder = asked.folder or locate_minilm()
    if asked.token_vectors and not asked.folder:
        folder = save_model(ROOT / "build", document_length=180)
    entrants = contestants(folder, tokens=asked.token_vectors)
    if asked.serve:
        serve(entrants[asked.alone](), ", ".join(f"{name} {version(name)}" for name in LIBRARIES))
        return 0
    if asked.alone:
        entrants[asked.alone]()(texts(asked.data, asked.corpus))
        print(own_peak())
        return 0
    command = [__file__, "--data", str(asked.data), "--folder", str(folder)]
    command += ["--token-vectors"] * asked.token_vectors
    runs = {name: make() for name, make in entrants.items()}
    with ExitStack() as workers:
        if asked.newest:
            python = locate_python(asked.newest)
            for name in [name for name in entrants if name.startswith("theirs")]:
                worker = start_worker(python, *command, "--alone", name, "--serve")
                about, runs[name.replace("theirs", "newest")] = workers.enter_context(worker)
            print(f"newest: {about}")
        return compare(runs, asked, folder, command)


def compare(runs: dict[str, Run], asked: Any, folder: Path, command: list[str]) -> int:
    """Measure the contestants in turns; `command` starts one alone."""
    cores = len(os.sched_getaffinity(0))
    # The bars are for MiniLM.
    barred = not (asked.token_vectors or asked.folder)
    if barred and not has_bf16():
        print("this CPU has no avx512_bf16: nothing is asked of bfloat16")
    results, missed = [], []
    for corpus in [asked.corpus] if asked.corpus else ["short", "mixed"]:
        given = texts(asked.data, corpus)
        role = "document" if asked.token_vectors else ""
        tokens = ours("float32", folder)[1].count_tokens(given, role=role)
        print(f"\n{corpus}: {len(given)} texts, {tokens} tokens, {cores} cores, median of {asked.repeats}")
        print(f"{'':28}{'tokens/s':>10}{'ratio':>8}{'bar':>6}{'max |difference|':>18}{'peak MB':>9}")
        for run in runs.values():
            run(given)
        turns = {name: partial(run, given) for name, run in runs.items()}
        seconds, vectors = in_turns(turns, asked.repeats)
        expected = next(iter(vectors.values()))
        best = min(taken for name, taken in seconds.items() if name.startswith("theirs float32"))
        for name, taken in seconds.items():
            wanted = bar(name, cores) if barred else None
            python = locate_python(asked.newest) if name.startswith("newest") else sys.executable
            alone = [*command, "--alone", name.replace("newest", "theirs"), "--corpus", corpus]
            row = {
                "corpus": corpus,
                "name": name,
                "tokens_per_second": tokens / taken,
                "ratio": best / taken,
                "bar": wanted,
                "difference": float(np.abs(vectors[name] - expected).max()),
                "peak_mb": peak(*alone, python=python),
            }
            results.append(row)
            print(
                f"{name:28}{row['tokens_per_second']:10.0f}{row['ratio']:8.2f}{wanted or '':>6}"
                f"{row['difference']:18.1e}{row['peak_mb']:9.0f}",
                flush=True,
            )
            if wanted and best / taken < wanted:
                missed.append(f"{corpus}, {name}: {best / taken:.2f} times, not {wanted}")
            if name == "ours float32" and not row["difference"] <= SAME:
                missed.append(f"{corpus}, {name}: vectors differ by {row['difference']:.1e}, not {SAME:.0e}")
        if barred:
            share = measure_tokenizing(given, asked.repeats)
            print(f"tokenizing: {share:.2f} of the tokenizers library's rate, bar {TOKENIZING}")
            if share < TOKENIZING:
                missed.append(f"{corpus}, tokenizing: {share:.2f} of the library's rate, not {TOKENIZING}")
    if barred:
        print("\ngate, seconds: " + ", ".join(f"{name} {taken:.2f}" for name, taken in gate().items()))
    print(json.dumps(results))
    return report_missed(missed)


if __name__ == "__main__":
    sys.exit(main())
