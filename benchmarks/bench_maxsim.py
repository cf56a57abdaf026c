"""Exact MaxSim of a corpus beside PyLate's exact ranking, and its memory.

    python benchmarks/bench_maxsim.py [--documents 20000] [--queries 200] [--theirs 8] [--device cpu]

Documents have 40 to 180 random vectors of 128 dimensions in float16 on disk, queries 32. PyLate ranks all
documents of a few queries (`pylate.rank.rerank`, vectors in memory), in turns with ours; its time for all is
that of these times their share. Prints JSON: seconds and their ratio, the rate of products, the memory that
ours took beside the file of vectors, the setting that bounds its blocks, and whether both give the same ten
best documents.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measuring import read_options

from harness.search.maxsim import TOKEN_BYTES, find_maxsim_top_k
from harness.storage.vectors import TokenVectors

DIMENSION, SHORTEST, LONGEST, QUERY = 128, 40, 180, 32
"""Vectors of documents and queries: their length, and how many a text has."""


def main() -> None:
    """Search, and print what it took."""
    given = read_options(
        __doc__, documents=20_000, queries=200, theirs=8, device="cpu", threads={"type": int}
    )
    if given.threads:
        torch.set_num_threads(given.threads)
    print(json.dumps(measure_maxsim(given.documents, given.queries, given.theirs, device=given.device)))


def measure_maxsim(documents: int, queries: int, ranked: int, *, device: str) -> dict[str, Any]:
    """The figures of one size; PyLate ranks `ranked` of the queries."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        corpus = _documents(documents, rng, Path(folder) / "vectors.npy")
        asked = _vectors(np.full(queries, QUERY), rng)
        theirs, best = 0.0, []
        for part in np.array_split(np.arange(ranked), min(2, ranked)):
            theirs += _theirs(asked, corpus, part.tolist(), device, best)
        with _peak() as peak:
            started = time.monotonic()
            hits = list(
                find_maxsim_top_k(
                    asked,
                    lambda start, end: corpus.take(np.arange(start, end)),
                    corpus.lengths,
                    k=100,
                    device=device,
                )
            )
            ours = time.monotonic() - started
    theirs *= queries / ranked
    same = sum(expected == at[:10].tolist() for expected, (at, _) in zip(best, hits, strict=False))
    flops = 2.0 * DIMENSION * QUERY * queries * int(corpus.lengths.sum())
    return {
        "device": torch.cuda.get_device_name() if device.startswith("cuda") else device,
        "documents": documents,
        "queries": queries,
        "seconds": round(ours, 3),
        "pylate_seconds": round(theirs, 3),
        "ratio": round(theirs / ours, 2),
        "tflops": round(flops / ours / 1e12, 4),
        "memory_mb": round(peak[0] / 2**20),
        "setting_mb": round(TOKEN_BYTES / 2**20),
        "same_first_ten": f"{same} of {len(best)}",
    }


def _vectors(lengths: np.ndarray, rng: np.random.Generator) -> TokenVectors:
    found = rng.standard_normal((int(lengths.sum()), DIMENSION), dtype=np.float32)
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return TokenVectors(vectors=found.astype(np.float16), offsets=offsets)


def _documents(count: int, rng: np.random.Generator, file: Path) -> TokenVectors:
    """Vectors of documents, memory-mapped from a file."""
    made = _vectors(rng.integers(SHORTEST, LONGEST + 1, count), rng)
    np.save(file, made.vectors)
    return TokenVectors(vectors=np.load(file, mmap_mode="r"), offsets=made.offsets)


def _theirs(
    queries: TokenVectors, documents: TokenVectors, rows: list[int], device: str, ranked: list[list[int]]
) -> float:
    """The seconds in which PyLate ranks all documents for some queries; their ten best go to `ranked`."""
    from pylate import rank

    count = len(documents.lengths)
    tensors = [
        torch.from_numpy(np.asarray(documents.select_text_vectors(n), np.float32)).to(device)
        for n in range(count)
    ]
    started = time.monotonic()
    for row in rows:
        asked = torch.from_numpy(np.asarray(queries.select_text_vectors(row), np.float32)).to(device)
        (best,) = rank.rerank([list(range(count))], [asked], [tensors], device=device)
        ranked.append([int(one["id"]) for one in best[:10]])
    return time.monotonic() - started


@contextmanager
def _peak() -> Iterator[list[int]]:
    """The most bytes of memory without files, sampled, that were taken beyond those at the start."""
    first, found, ended = _anonymous(), [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            found[0] = max(found[0], _anonymous() - first)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def _anonymous() -> int:
    """The bytes of this process that are no file's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


if __name__ == "__main__":
    main()
