"""Exact search beside sentence-transformers' semantic_search: time, memory, and the documents found.

    python benchmarks/exact_search.py [--documents 200000] [--queries 1000] [--width 384]

Both sides get the same random vectors and give the 1,000 best documents of each query, in turns. Memory is
the peak of a process of its own beyond one that holds the same vectors and libraries. Bars: at least the
speed of the library, at most half of its memory, the same documents but for scores that are equal in float32
to within rounding.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from measuring import in_turns, own_peak, peak, read_options

K = 1000
"""The documents of a query that mteb asks for."""

ROUNDING = 1e-6
"""The largest difference of two scores that count as equal."""

Hits = tuple[np.ndarray, np.ndarray]


def vectors(documents: int, queries: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Random vectors of documents and of queries."""
    rng = np.random.default_rng(0)
    return tuple(rng.standard_normal((rows, width), np.float32) for rows in (documents, queries))  # type: ignore[return-value]


def ours(corpus: np.ndarray, queries: np.ndarray) -> Hits:
    """The search of retrieval tasks."""
    from harness.search.exact import find_top_k

    return find_top_k(queries, lambda start, end: corpus[start:end], len(corpus), k=K)


def theirs(corpus: np.ndarray, queries: np.ndarray) -> Any:
    """The library's search, its chunks at their defaults."""
    from sentence_transformers.util import semantic_search

    return semantic_search(queries, corpus, top_k=K)


def different(mine: Hits, others: Any) -> int:
    """The number of documents that only one side has and whose score is not that of the last place."""
    count = 0
    for scores, places, found in zip(*mine, others, strict=True):
        known = {hit["corpus_id"]: hit["score"] for hit in found}
        last = min(scores[-1], min(known.values()))
        mine_only = [
            s for place, s in zip(places.tolist(), scores.tolist(), strict=True) if place not in known
        ]
        theirs_only = [score for place, score in known.items() if place not in set(places.tolist())]
        count += sum(abs(score - last) > ROUNDING for score in [*mine_only, *theirs_only])
    return count


def main() -> int:
    """Print the figures; 1 if a bar is missed."""
    alone = {"help": "one contestant"}
    given = read_options(__doc__, documents=200_000, queries=1_000, width=384, repeats=5, alone=alone)
    sizes = (given.documents, given.queries, given.width)
    contestants: dict[str, Callable[..., Any]] = {"ours": ours, "theirs": theirs}
    corpus, queries = vectors(*sizes)
    if given.alone:
        import sentence_transformers.util

        import suites._mteb.model  # noqa: F401

        assert sentence_transformers.util.semantic_search
        few = slice(0, None if given.alone in contestants else 1)
        run = contestants.get(given.alone, theirs)
        run(corpus if given.alone in contestants else corpus[:2], queries[few])
        print(own_peak())
        return 0
    runs = {name: lambda run=run: run(corpus, queries) for name, run in contestants.items()}
    in_turns(runs, 1)
    seconds, hits = in_turns(runs, given.repeats)
    arguments = [
        f"--{name}={size}" for name, size in zip(("documents", "queries", "width"), sizes, strict=True)
    ]
    peaks = {name: peak(__file__, *arguments, "--alone", name) for name in ("vectors", *contestants)}
    beyond = {name: peaks[name] - peaks["vectors"] for name in contestants}
    speed, memory = seconds["theirs"] / seconds["ours"], beyond["ours"] / beyond["theirs"]
    differing = different(hits["ours"], hits["theirs"])
    for name in contestants:
        print(f"{name:7} {seconds[name]:6.2f} s {beyond[name]:7.0f} MB beyond the vectors")
    print(f"{speed:.2f} times the speed (at least 1.00), {memory:.2f} of the memory (at most 0.50)")
    print(f"{differing} documents differ of {given.queries * K:,}")
    return int(speed < 1 or memory > 0.5 or differing > 0)


if __name__ == "__main__":
    sys.exit(main())
