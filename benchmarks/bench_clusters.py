"""Clusters of pairs: k-means of four libraries, the growth of time and memory, and batches of code pairs.

    python benchmarks/bench_clusters.py libraries --pairs 50000
    python benchmarks/bench_clusters.py growth --pairs 200000,400000
    python benchmarks/bench_clusters.py effort --pairs 50000
    python benchmarks/bench_clusters.py code --data FOLDER,FOLDER --model minilm

`libraries` compares ours with scikit-learn, fastkmeans and, where it is installed, faiss, on the same points.
`growth` clusters and packs generated pairs and gives minutes and peak memory, each size in its own process.
`effort` compares 25 iterations of one start with 100 of three. `code` takes the pairs of docstring and
function of folders of Python source and compares the guide's similarity of in-batch negatives with that of
random batches.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measuring import read_options
from numpy.typing import NDArray

from finetune.cde.clusters import ClusterWork, KMeans, make_clusters
from finetune.cde.settings import ClusterSettings
from finetune.embedding.setups import pack_clusters

Vectors = NDArray[np.float32]

PART = 8_192


class PlantedPairs:
    """Pairs with a topic each: of both texts the topic's direction, a direction of the pair, and noise.

    Nothing is kept but the topics: the vectors of a part are drawn again each time, from its own seed.
    """

    name = "planted"

    def __init__(self, pairs: int, topics: int, *, dimensions: int = 384, seed: int = 0) -> None:
        draw = np.random.default_rng(seed)
        self._seed, self._dimensions = seed, dimensions
        self.topics = draw.integers(topics, size=pairs).astype(np.int32)
        self._centres = _unit(draw.standard_normal((topics, dimensions), dtype=np.float32))

    def __len__(self) -> int:
        return len(self.topics)

    def mark_duplicates(self) -> NDArray[np.bool_]:
        """None of them."""
        return np.zeros(len(self), np.bool_)

    def load_pair_vectors(self, begin: int, end: int) -> tuple[Vectors, Vectors]:
        """The vectors of queries and documents; `begin` is the start of a part."""
        draw = np.random.default_rng([self._seed, 1, begin])
        shape = (end - begin, self._dimensions)
        centres, own = self._centres[self.topics[begin:end]], self._noise(draw, shape, 0.6)
        query, document = (centres + own + self._noise(draw, shape, 0.4) for _ in range(2))
        return _unit(query), _unit(document)

    def _noise(self, draw: np.random.Generator, shape: tuple[int, int], length: float) -> Vectors:
        return draw.standard_normal(shape, dtype=np.float32) * np.float32(length / shape[1] ** 0.5)


def _unit(vectors: Vectors) -> Vectors:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def purity(clusters: NDArray[np.int32], topics: NDArray[np.int32]) -> float:
    """The share of pairs whose topic is the commonest of their cluster."""
    pairs, counts = np.unique(np.stack([clusters, topics]), axis=1, return_counts=True)
    most = np.zeros(int(clusters.max()) + 1, np.int64)
    np.maximum.at(most, pairs[0], counts)
    return float(most.sum() / len(topics))


# Libraries


def libraries(pairs: int, iterations: int, seeds: int) -> None:
    """Print quality and time of each library on the points of planted pairs."""
    settings = ClusterSettings(iterations=iterations)
    count = -(-pairs // settings.cluster_size)
    source = PlantedPairs(pairs, count)
    points = _points(source)
    both = np.concatenate([points, np.roll(points, points.shape[1] // 2, axis=1)])
    print(f"{pairs:,} pairs, {both.shape[1]} dimensions, {count} clusters, {iterations} iterations")
    print("| library | seed | similarity to centroid | purity | seconds |\n| --- | --- | --- | --- | --- |")
    for name, fit in _FITS.items():
        for seed in range(seeds):
            begin = time.perf_counter()
            try:
                centroids = fit(points, both, count, replace(settings, cluster_seed=seed))
            except ImportError:
                print(f"| {name} | is not installed | | | |")
                break
            seconds = time.perf_counter() - begin
            clusters, similarity = _nearest(points, _unit(centroids))
            pure = purity(clusters, source.topics)
            print(f"| {name} | {seed} | {similarity:.4f} | {pure:.4f} | {seconds:.1f} |", flush=True)


def _points(source: PlantedPairs) -> Vectors:
    """The points [q;d] in 256 dimensions, without a reduction by SVD."""
    parts = [
        source.load_pair_vectors(begin, min(begin + PART, len(source)))
        for begin in range(0, len(source), PART)
    ]
    matrix = np.linalg.qr(np.random.default_rng(9).standard_normal((384, 128)))[0].astype(np.float32)
    query, document = (_unit(np.concatenate(side) @ matrix) for side in zip(*parts, strict=True))
    return np.concatenate([query, document], axis=1) * np.float32(0.5**0.5)


def _nearest(points: Vectors, centroids: Vectors) -> tuple[NDArray[np.int32], float]:
    numbers, total = [], 0.0
    for begin in range(0, len(points), PART):
        best = (torch.from_numpy(points[begin : begin + PART]) @ torch.from_numpy(centroids).T).max(1)
        numbers.append(best.indices.numpy().astype(np.int32))
        total += float(best.values.sum())
    return np.concatenate(numbers), total / len(points)


def _ours(points: Vectors, _both: Vectors, count: int, settings: ClusterSettings) -> Vectors:
    work = ClusterWork(folder=Path())
    return KMeans(points, np.arange(len(points)), count, settings, work).fit()[0]


def _faiss(_points: Vectors, both: Vectors, count: int, settings: ClusterSettings) -> Vectors:
    import faiss

    faiss.omp_set_num_threads(torch.get_num_threads())
    means = faiss.Kmeans(
        both.shape[1],
        count,
        niter=settings.iterations,
        spherical=True,
        seed=settings.cluster_seed + 1,
        max_points_per_centroid=len(both),
    )
    means.train(both)
    found: Vectors = means.centroids
    return found


def _fastkmeans(_points: Vectors, both: Vectors, count: int, settings: ClusterSettings) -> Vectors:
    from fastkmeans import FastKMeans

    means = FastKMeans(
        both.shape[1],
        count,
        niter=settings.iterations,
        seed=settings.cluster_seed,
        gpu=False,
        use_triton=False,
    )
    means.train(both)
    found: Vectors = means.centroids
    return found


def _sklearn(_points: Vectors, both: Vectors, count: int, settings: ClusterSettings) -> Vectors:
    from sklearn.cluster import KMeans as Library

    means = Library(count, max_iter=settings.iterations, n_init=1, random_state=settings.cluster_seed)
    found: Vectors = means.fit(both).cluster_centers_.astype(np.float32)
    return found


_FITS: dict[str, Callable[[Vectors, Vectors, int, ClusterSettings], Vectors]] = {
    "ours": _ours,
    "faiss": _faiss,
    "fastkmeans": _fastkmeans,
    "scikit-learn": _sklearn,
}


# Growth and effort


def growth(sizes: list[int], settings: ClusterSettings, threads: int) -> None:
    """Print minutes and peak memory of clusters and batches of planted pairs, by their number."""
    print("| pairs | clusters | iterations | purity | in batches | minutes | CPU minutes | peak GB |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for size in sizes:
        command = [sys.executable, __file__, "one", "--pairs", str(size), "--threads", str(threads)]
        command += ["--iterations", str(settings.iterations), "--starts", str(settings.starts)]
        command += ["--sample", str(settings.sample)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        one = json.loads(done.stdout.splitlines()[-1])
        print(
            f"| {size:,} | {one['clusters']:,} | {one['iterations']} | {one['purity']:.4f} | "
            f"{one['batches']:.4f} | {one['seconds'] / 60:.2f} | {one['cpu'] / 60:.2f} | "
            f"{one['peak'] / 2**30:.2f} |",
            flush=True,
        )


def one(pairs: int, settings: ClusterSettings) -> None:
    """Cluster and pack planted pairs, and print what it took as JSON."""
    source = PlantedPairs(pairs, max(1, pairs // (2 * settings.cluster_size)))
    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    cpu = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        found = make_clusters(source, settings, {}, ClusterWork(folder=Path(folder)))
    batches = pack_clusters(found.numbers, 512, seed=0)
    print(
        json.dumps(
            {
                **found.facts,
                "purity": purity(found.numbers, source.topics),
                "batches": _batch_purity(source.topics[batches]),
                "seconds": time.perf_counter() - begin,
                "cpu": time.process_time() - cpu,
                "before": before * 1024,
                "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            }
        )
    )


def _batch_purity(topics: NDArray[np.int32]) -> float:
    """The share of rows whose topic is the commonest of their batch."""
    return float(np.mean([np.bincount(batch).max() / len(batch) for batch in topics]))


def effort(pairs: int) -> None:
    """Print the quality of little and of much effort."""
    print("| iterations | starts | similarity to centroid | iterations taken | seconds |")
    print("| --- | --- | --- | --- | --- |")
    for iterations, starts in ((25, 1), (100, 3)):
        source = PlantedPairs(pairs, pairs // 512)
        settings, begin = ClusterSettings(iterations=iterations, starts=starts), time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            found = make_clusters(source, settings, {}, ClusterWork(folder=Path(folder))).facts
        seconds = time.perf_counter() - begin
        print(
            f"| {iterations} | {starts} | {found['similarity']:.5f} | {found['iterations']} | {seconds:.1f} |"
        )


# Real pairs


def code(folders: list[str], model: str, size: int, rows: int | None, cache: Path) -> None:
    """Print the guide's similarity of in-batch negatives, and what share of them the filter masks."""
    query, document, sources = _encoded(folders, model, rows, cache)
    settings = ClusterSettings(cluster_size=size)
    with tempfile.TemporaryDirectory() as folder:
        found = make_clusters(_Real(query, document), settings, {}, ClusterWork(folder=Path(folder)))
    print(f"{len(query):,} pairs of {len(folders)} packages; {dict(found.facts)}")
    random = np.random.default_rng(0).permutation(len(query))
    orders = {
        "random": random[: len(random) // size * size].reshape(-1, size),
        "contextual": pack_clusters(found.numbers, size, seed=0),
        "contextual, tour": pack_clusters(found.numbers, size, seed=0, tour=found.tour),
    }
    print(
        "| batches | similarity of negatives | masked at 0 | commonest package |\n| --- | --- | --- | --- |"
    )
    for name, batches in orders.items():
        means, masked = zip(*(_negatives(query[rows], document[rows]) for rows in batches), strict=True)
        same = _batch_purity(sources[batches])
        print(f"| {name} | {np.mean(means):.4f} | {np.mean(masked):.4f} | {same:.4f} |")


def _negatives(query: Vectors, document: Vectors) -> tuple[float, float]:
    """The mean similarity of a batch's negatives, and the share at least as similar as the positive."""
    scores = query @ document.T
    others = ~np.eye(len(scores), dtype=bool)
    return float(scores[others].mean()), float((scores >= scores.diagonal()[:, None])[others].mean())


class _Real:
    name = "code"

    def __init__(self, query: Vectors, document: Vectors) -> None:
        self._both = query, document

    def __len__(self) -> int:
        return len(self._both[0])

    def mark_duplicates(self) -> NDArray[np.bool_]:
        return np.zeros(len(self), np.bool_)

    def load_pair_vectors(self, begin: int, end: int) -> tuple[Vectors, Vectors]:
        return self._both[0][begin:end], self._both[1][begin:end]


def _encoded(folders: list[str], model: str, rows: int | None, cache: Path) -> tuple[Vectors, Vectors, Any]:
    """The guide's vectors of the pairs of each folder, and the number of each pair's folder."""
    from finetune.cde.settings import Guide
    from finetune.cde.training import GuideVectors
    from harness.core.encoding import Encoding, Settings
    from harness.data.locate import DataSettings
    from harness.data.training.loading import load_training
    from harness.data.training.sets import locate_user_training
    from harness.plan.models import ModelOptions, resolve_model
    from harness.training.training import TrainingSpec

    found = resolve_model(model, Settings(max_length=64), ModelOptions(offline=True, cache=cache))
    assert isinstance(found.encoding, Encoding)
    cache.mkdir(parents=True, exist_ok=True)
    spec = TrainingSpec(
        recipe=None,  # type: ignore[arg-type]
        backbone=found.artifact,
        data=(),
        seed=0,
        key="",
        folder=cache,
        cache=cache,
        threads=torch.get_num_threads(),
    )
    vectors = GuideVectors(Guide(artifact=found.artifact, encoding=found.encoding), spec)
    texts: tuple[list[str], list[str], list[int]] = ([], [], [])
    for number, folder in enumerate(folders):
        table = load_training(
            locate_user_training(f"code:{folder}", DataSettings(root=None, offline=True, cache=cache)),
            cache=cache,
        )
        chosen = table.shuffle(seed=0).select(range(min(rows or len(table), len(table))))
        texts[0].extend(chosen["anchor"])
        texts[1].extend(chosen["positive"])
        texts[2].extend([number] * len(chosen))
    for side, column in (("query", texts[0]), ("document", texts[1])):
        vectors.encode_side_texts(side, column)  # type: ignore[arg-type]
    query, document = (
        vectors.get_side_vectors("query", texts[0]),
        vectors.get_side_vectors("document", texts[1]),
    )
    return _unit(query), _unit(document), np.array(texts[2], np.int32)


def main() -> None:
    """Read the options and run one of the comparisons."""
    options = read_options(
        __doc__,
        {"what": {"choices": ("libraries", "growth", "one", "effort", "code")}},
        pairs="50000",
        iterations=25,
        starts=1,
        sample=ClusterSettings().sample,
        seeds=2,
        threads=1,
        data="",
        rows={"type": int},
        size=64,
        model="minilm",
        cache=Path("build/clusters"),
    )
    torch.set_num_threads(options.threads)
    sizes = [int(part) for part in options.pairs.split(",")]
    settings = ClusterSettings(iterations=options.iterations, starts=options.starts, sample=options.sample)
    match options.what:
        case "libraries":
            libraries(sizes[0], options.iterations, options.seeds)
        case "growth":
            growth(sizes, settings, options.threads)
        case "one":
            one(sizes[0], settings)
        case "effort":
            effort(sizes[0])
        case "code":
            code(options.data.split(","), options.model, options.size, options.rows, options.cache)


if __name__ == "__main__":
    main()
