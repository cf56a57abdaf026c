"""Clusters of pairs of one source set that a guide finds alike, kept in a file by their key.

The vectors of a pair's query and document are reduced by a truncated SVD and joined into one point. Points
lie in a file that is mapped into memory; k-means sees each pair as two points, [q;d] and [d;q]. A run that is
killed goes on from its last iteration, or begins again, and ends with the same file.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from finetune.cde.settings import ClusterSettings
from harness.core import files
from harness.core.errors import DataError, UsageError
from harness.core.keys import serialize_canonical

FILE = "clusters.parquet"
"""The file of the clusters in their folder."""

WORK = "work"
"""The folder beside it with the unfinished work that a killed run resumes."""

FITTED = 100_000
"""The SVD is fitted on so many queries, the first ones of the set, as in the authors' code."""

LEAST = 32
"""A sample has at least so many pairs for each cluster, whatever the setting `sample` is."""

SAME = 1e-6
"""k-means ends when the mean similarity rises by less than this in an iteration."""

ROWS = 8_192
"""Pairs that are read at once."""


KEPT_SECONDS = 20.0
"""Seconds between two writes of the state of k-means."""

Tell = Callable[[str, int | None], None]
"""Called with (name, units) when a part of the work begins, and with ("", units) when units are done."""


class PairVectors(Protocol):
    """The guide's vectors of the pairs of a set."""

    @property
    def name(self) -> str:
        """The name of the set in messages."""

    def __len__(self) -> int:
        """The number of pairs."""

    def load_pair_vectors(self, begin: int, end: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The vectors of the queries and of the documents of some pairs, each (end - begin, dimensions)."""

    def mark_duplicates(self) -> NDArray[np.bool_]:
        """Whether a pair has the texts of an earlier one, (pairs,)."""


@dataclass(frozen=True, kw_only=True)
class ClusterWork:
    """Where and how clusters are made.

    Attributes:
        folder: The folder of the clusters' key.
        device: A torch device.
        tell: Called with the progress.
        note: Called with a sentence on a file of a killed run that is damaged.
        stop: Whether the work is to end as soon as it can be resumed.
    """

    folder: Path
    device: str = "cpu"
    tell: Tell = lambda _name, _count: None
    note: Callable[[str], None] = lambda _text: None
    stop: Callable[[], bool] = lambda: False

    def check_stop(self) -> None:
        """End the work if a stop was asked for.

        Raises:
            Stopped: It was.
        """
        if self.stop():
            raise Stopped


class Stopped(Exception):
    """The work was asked to stop, and has stopped before it was finished."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PairClusters:
    """The cluster of each pair of a set.

    Attributes:
        numbers: (pairs,); -1 for a pair that is in no batch, as an earlier one has its texts.
        similarities: (pairs,), that of each pair to the centroid of its cluster.
        tour: The clusters that have pairs, each followed by the nearest of those that are left.
        facts: Counts, and the mean similarity.
    """

    numbers: NDArray[np.int32]
    similarities: NDArray[np.float32]
    tour: tuple[int, ...]
    facts: Mapping[str, Any]

    def write_clusters(self, path: Path, identity: Mapping[str, Any]) -> None:
        """Write the clusters into a Parquet file by one rename.

        The file has a row for each pair, and the rest as JSON in its metadata.
        """
        about = {
            # Through JSON, as it is when the file is read again: a tuple would not equal the list that comes
            # back.
            "identity": json.loads(serialize_canonical(identity)),
            "facts": self.facts,
            "tour": self.tour,
            "content": self._content,
        }
        columns = {"cluster": self.numbers, "similarity": self.similarities}
        table = pa.table(columns, metadata={"clusters": json.dumps(about, sort_keys=True)})
        new = path.with_suffix(".new")
        pq.write_table(table, new, compression="zstd")
        # Without fsync a power cut after the rename can leave an empty file under the final name.
        with new.open("rb") as file:
            os.fsync(file.fileno())
        new.replace(path)

    @staticmethod
    def read_clusters(path: Path, identity: Mapping[str, Any]) -> PairClusters | None:
        """The clusters of a file; None if it is missing, damaged or of another identity."""
        try:
            table = pq.read_table(path)
            about = json.loads(table.schema.metadata[b"clusters"])
            # Metadata of another writer is None or lacks a key: TypeError and LookupError below.
            clusters = PairClusters(
                numbers=table["cluster"].to_numpy().astype(np.int32),
                similarities=table["similarity"].to_numpy().astype(np.float32),
                tour=tuple(about["tour"]),
                facts=about["facts"],
            )
            expected = {"identity": json.loads(serialize_canonical(identity)), "content": clusters._content}
            is_intact = all(about[name] == value for name, value in expected.items())
        except (OSError, ValueError, LookupError, TypeError, pa.ArrowException):
            return None
        return clusters if is_intact else None

    @property
    def _content(self) -> str:
        # pyarrow writes Parquet pages without checksums, so that a flipped bit would be read as a value.
        content_hash = hashlib.sha256(np.ascontiguousarray(self.numbers).tobytes())
        content_hash.update(np.ascontiguousarray(self.similarities).tobytes())
        content_hash.update(serialize_canonical([self.tour, self.facts]).encode())
        return content_hash.hexdigest()


def make_clusters(
    pairs: PairVectors, settings: ClusterSettings, identity: Mapping[str, Any], work: ClusterWork
) -> PairClusters:
    """The clusters of the pairs of a set, written to the folder of the work.

    Args:
        pairs: The guide's vectors.
        settings: How many clusters there are and how they are found.
        identity: Everything that the clusters depend on, which the file keeps.
        work: Where and how they are made.

    Raises:
        DataError: A vector of the guide is not finite.
        UsageError: The set has no pairs.
        Stopped: The work was asked to end.
    """
    place = work.folder / WORK
    place.mkdir(parents=True, exist_ok=True)
    repeated = pairs.mark_duplicates()
    rows = np.flatnonzero(~repeated)
    # Rounded up: the mean cluster is no larger than cluster_size.
    count = -(-len(rows) // settings.cluster_size)
    # Repeated pairs get points as well, so that the rows of the file have the numbers of the set's rows.
    points = _build_points(pairs, settings.dimensions, place / "points.npy", work)
    sample = _sample(rows, count, settings)
    means = KMeans(points, sample, count, settings, work, state=place / "state.npz")
    centroids, iterations = means.fit()
    work.tell(f"assigning {pairs.name} to {count:,} clusters", len(points))
    numbers, similarities = means.find_nearest_centroids(centroids)
    numbers[repeated] = -1
    sizes = np.bincount(numbers[rows], minlength=count)
    clusters = PairClusters(
        numbers=numbers,
        similarities=similarities,
        # A centroid may have drawn only turned points, [d;q]: its cluster then has no pair.
        tour=_plan_cluster_tour(centroids, np.flatnonzero(sizes), work),
        facts={
            "pairs": len(points),
            "repeated": int(repeated.sum()),
            "clusters": count,
            "empty": int((sizes == 0).sum()),
            "largest": int(sizes.max()),
            "sample": len(sample),
            "iterations": iterations,
            "similarity": round(float(similarities[rows].mean(dtype=np.float64)), 6),
        },
    )
    clusters.write_clusters(work.folder / FILE, identity)
    # After the rename: a kill in between costs disk space, and no work.
    shutil.rmtree(place, ignore_errors=True)
    return clusters


def _sample(rows: NDArray[np.int64], count: int, settings: ClusterSettings) -> NDArray[np.int64]:
    """The rows that k-means uses: all, or a drawn part of very many."""
    size = max(settings.sample, LEAST * count)
    if len(rows) <= size:
        return rows
    # The 0 keeps this draw apart from those of the starts, [seed, 1, start]. Sorted rows read the memory map
    # from front to back.
    draw = np.random.default_rng([settings.cluster_seed, 0])
    return np.sort(draw.choice(rows, size, replace=False))


# Points


def _build_points(pairs: PairVectors, dimensions: int, path: Path, work: ClusterWork) -> NDArray[np.float16]:
    """The points [q;d] of all pairs, (pairs, 2 × dimensions) of length 1, mapped into memory."""
    checksum = path.with_suffix(".sha256")
    if path.exists() and not (checksum.exists() and files.has_sha256(path, checksum.read_text() or "none")):
        work.note(f"{path} is damaged: its SHA-256 differs. The clusters are begun again.")
        # What k-means has found so far may come from the damaged points.
        (path.parent / "state.npz").unlink(missing_ok=True)
        path.unlink()
    if not path.exists():
        new = path.with_suffix(".new")
        reduction = _fit_reduction(pairs, dimensions, work)
        work.tell(f"points of {pairs.name}", len(pairs))
        width = 2 * (reduction.shape[1])
        # float16: at 128 dimensions a pair takes 512 bytes, so that 10 million pairs are 5 GB on disk.
        points = np.lib.format.open_memmap(new, "w+", np.float16, (len(pairs), width))
        for begin in range(0, len(pairs), ROWS):
            work.check_stop()
            both = pairs.load_pair_vectors(begin, min(begin + ROWS, len(pairs)))
            halves = [
                _normalize_vectors(_require_finite_vectors(part, pairs.name) @ reduction) for part in both
            ]
            # Both halves have length 1; √½ gives the point length 1, and the product of two points is then
            # the mean of the cosines of queries and of documents.
            points[begin : begin + ROWS] = np.concatenate(halves, axis=1) * np.float32(0.5**0.5)
            work.tell("", len(both[0]))
        # Under its final name the file is always whole; a killed run begins the `.new` file again.
        points.flush()
        del points
        files.replace(checksum, files.hash_file(new).encode())
        new.replace(path)
    mapped_points: NDArray[np.float16] = np.load(path, mmap_mode="r")
    return mapped_points


def _fit_reduction(pairs: PairVectors, dimensions: int, work: ClusterWork) -> NDArray[np.float32]:
    """The matrix (vector, dimensions) of a truncated SVD of the first queries, not centred.

    Its columns are the eigenvectors of the queries' second moments with the largest eigenvalues.
    """
    # The sum of the outer products has the size of a vector squared, however many queries there are; float64,
    # as float32 is too coarse for a sum of 100,000 products.
    moments: Any = 0
    for begin in range(0, min(FITTED, len(pairs)), ROWS):
        work.check_stop()
        queries = pairs.load_pair_vectors(begin, min(begin + ROWS, FITTED, len(pairs)))[0]
        queries = _require_finite_vectors(queries, pairs.name).astype(np.float64)
        moments = moments + queries.T @ queries
    # eigh gives eigenvalues from the smallest on.
    vectors: NDArray[np.float64] = np.linalg.eigh(moments)[1][:, ::-1]
    return vectors[:, :dimensions].astype(np.float32)


def _require_finite_vectors(vectors: NDArray[np.float32], name: str) -> NDArray[np.float32]:
    if not np.isfinite(vectors).all():
        raise DataError(
            f"The guide gives a text of {name} a vector that is not finite.",
            hint="Choose another guide: --set guide=MODEL.",
        )
    return vectors


def _normalize_vectors(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.sqrt(np.square(vectors).sum(axis=1, keepdims=True))
    # A zero vector stays zero in place of NaN; the bound is that of torch's `normalize`.
    unit_vectors: NDArray[np.float32] = vectors / np.maximum(lengths, np.float32(1e-12))
    return unit_vectors


# k-means


class KMeans:
    """Spherical k-means over pairs that count as two points each, [q;d] and [d;q].

    The first centroids are chosen by greedy k-means++. A centroid without points moves to the point that is
    least similar to its own centroid.

    Args:
        points: (pairs, 2 × dimensions), each of length 1.
        sample: The pairs that are used, by number.
        count: The number of centroids.
        settings: The iterations, the starts and the seed.
        work: The device and the progress.
        state: The file to go on from; None for none.

    Raises:
        UsageError: There are fewer points than centroids.
    """

    def __init__(
        self,
        points: NDArray[np.float16] | NDArray[np.float32],
        sample: NDArray[np.int64],
        count: int,
        settings: ClusterSettings,
        work: ClusterWork,
        *,
        state: Path | None = None,
    ) -> None:
        if not 1 <= count <= len(sample):
            raise UsageError(
                f"{len(sample)} pairs cannot make {count} clusters.",
                hint="Give more pairs, or a larger --set cluster_size=…",
            )
        self._points, self._count, self._settings, self._work = points, count, settings, work
        uses_all = len(sample) == len(points)
        # Indexing by rows copies them into memory; a slice of the map, as all points are, stays on disk.
        self._sample = points if uses_all else points[sample]
        self._state, self._written = state, time.monotonic()
        self._half = points.shape[1] // 2

    def fit(self) -> tuple[NDArray[np.float32], int]:
        """The centroids (count, 2 × dimensions) of the best start, and the iterations that it took."""
        settings, run = self._settings, self._read_kmeans_state()
        self._work.tell("k-means", settings.starts * settings.iterations)
        self._work.tell("", run.start * settings.iterations + run.iteration)
        while run.start < settings.starts:
            if run.iteration == 0:
                run.centroids = self._draw_first_centroids(run.start)
            self._start(run)
            # The first of equal starts stays the best, so that a resumed run chooses as an undisturbed one
            # does.
            if run.value > run.best_value:
                run.best, run.best_value, run.best_iterations = run.centroids, run.value, run.iteration
            run.start, run.iteration, run.value = run.start + 1, 0, -1.0
            self._write_kmeans_state(run, always=True)
        return run.best, run.best_iterations

    def find_nearest_centroids(
        self, centroids: NDArray[np.float32]
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The nearest centroid of each pair's point [q;d], in the sample or not, and its similarity."""
        numbers = np.empty(len(self._points), np.int32)
        similarities = np.empty(len(self._points), np.float32)
        with torch.inference_mode():
            table = self._build_point_tensor(centroids)
            for begin, block in self._iter_point_blocks(self._points):
                best = (block @ table.T).max(1)
                numbers[begin : begin + len(block)] = best.indices.cpu().numpy()
                similarities[begin : begin + len(block)] = best.values.cpu().numpy()
                self._work.tell("", len(block))
        return numbers, similarities

    def _start(self, run: _KMeansState) -> None:
        """Iterate from the first centroids of a start until the similarity rises no more."""
        while run.iteration < self._settings.iterations:
            centroids, value = self._iterate(run.centroids)
            ends = value - run.value < SAME
            run.centroids, run.value, run.iteration = centroids, value, run.iteration + 1
            self._work.tell("", 1)
            if ends:
                self._work.tell("", self._settings.iterations - run.iteration)
                return
            self._write_kmeans_state(run)

    def _iterate(self, centroids: NDArray[np.float32]) -> tuple[NDArray[np.float32], float]:
        """The centroids after one iteration, and the mean similarity of points to their former centroids."""
        # index_add_ on a GPU adds in any order by default: sums differ in their last bits, and a resumed run
        # would end with other clusters.
        with torch.inference_mode(), _Deterministic():
            table = self._build_point_tensor(centroids)
            sums, counts = torch.zeros_like(table), torch.zeros(self._count, device=table.device)
            best = np.empty((2, len(self._sample)), np.float32)
            for begin, block in self._iter_point_blocks(self._sample):
                # Both orders, as in the authors' code: a document that resembles another pair's query draws
                # the two pairs into one cluster.
                for turn, points in enumerate((block, self._swap_point_halves(block))):
                    similarity, nearest = (points @ table.T).max(1)
                    sums.index_add_(0, nearest, points)
                    counts += torch.bincount(nearest, minlength=self._count)
                    best[turn, begin : begin + len(block)] = similarity.cpu().numpy()
            # Of unit vectors the normalized sum is the unit vector with the largest mean cosine (spherical
            # k-means, Dhillon and Modha 2001).
            new_centroids = torch.nn.functional.normalize(sums).cpu().numpy()
            empty = np.flatnonzero((counts == 0).cpu().numpy())
        if len(empty):
            new_centroids[empty] = self._find_least_similar(best, len(empty))
        return new_centroids, float(best.mean(dtype=np.float64))

    def _find_least_similar(self, similarities: NDArray[np.float32], count: int) -> NDArray[np.float32]:
        """The points with the lowest similarities, (2, pairs) of both orders."""
        # Stable: among equal similarities the same points are chosen on every machine.
        order = np.argsort(similarities, axis=None, kind="stable")[:count]
        turns, rows = np.unravel_index(order, similarities.shape)
        points = np.asarray(self._sample[rows], np.float32)
        turned = np.roll(points, self._half, axis=1)
        return np.where(turns[:, None] == 1, turned, points)

    def _draw_first_centroids(self, start: int) -> NDArray[np.float32]:
        """The first centroids: each the best of a few points drawn by their distance to the ones before."""
        draw = np.random.default_rng([self._settings.cluster_seed, 1, start])
        # A bound on the cost: every new centroid is compared with all these points.
        size = min(len(self._sample), 8 * self._count)
        rows = np.sort(draw.choice(len(self._sample), size, replace=False))
        with torch.inference_mode():
            block = self._build_point_tensor(np.asarray(self._sample[rows], np.float32))
            points = torch.cat([block, self._swap_point_halves(block)])
            chosen = [int(draw.integers(len(points)))]
            # k-means++ draws by squared distance, which is twice this for unit vectors.
            far = 1 - points @ points[chosen[0]]
            tried = 2 + int(math.log(self._count))  # as scikit-learn has it
            while len(chosen) < self._count:
                if len(chosen) % 64 == 0:
                    self._work.check_stop()
                # Rounding can bring 1 − cosine below 0, and searchsorted needs sums that never fall.
                number, far = _draw_next_centroid(points, far.clamp_(min=0), draw.random(tried))
                chosen.append(number)
            return points[chosen].cpu().numpy()

    def _iter_point_blocks(
        self, points: NDArray[np.float16] | NDArray[np.float32]
    ) -> Iterator[tuple[int, Tensor]]:
        """Points in parts whose similarities to all centroids fit into 64 MB, with the first one's number."""
        size = max(64, min(ROWS, 2**24 // self._count))
        for begin in range(0, len(points), size):
            self._work.check_stop()
            yield begin, self._build_point_tensor(points[begin : begin + size])

    def _build_point_tensor(self, points: NDArray[Any]) -> Tensor:
        # A copy: torch warns about arrays that it may not write to, such as a part of a read-only map.
        return torch.from_numpy(np.array(points, np.float32)).to(self._work.device)

    def _swap_point_halves(self, points: Tensor) -> Tensor:
        """The points [d;q] of points [q;d]."""
        return points.roll(self._half, dims=1)

    def _read_kmeans_state(self) -> _KMeansState:
        """The state of an earlier run, or a new one."""
        if self._state is not None and self._state.exists():
            try:
                # Each array of the archive has a CRC, which is compared as it is read.
                with np.load(self._state, allow_pickle=False) as kept:
                    values = {name: kept[name] for name in kept.files}
                return _KMeansState(**{name: one if one.ndim else one.item() for name, one in values.items()})
            except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile):
                self._work.note(f"{self._state} is damaged: it is no complete state. K-means begins again.")
        none = np.zeros((0, 0), np.float32)
        return _KMeansState(centroids=none, best=none)

    def _write_kmeans_state(self, run: _KMeansState, *, always: bool = False) -> None:
        if self._state is None or not (always or time.monotonic() - self._written > KEPT_SECONDS):
            return
        # np.savez adds .npz to any name that does not end so.
        new = self._state.with_suffix(".new.npz")
        np.savez(new, **asdict(run))
        new.replace(self._state)
        self._written = time.monotonic()


@dataclass(kw_only=True)
class _KMeansState:
    """The state of k-means between two iterations."""

    centroids: NDArray[np.float32]
    best: NDArray[np.float32]
    start: int = 0
    iteration: int = 0
    # No mean of cosines is below -1, and no start is worse than best_value's -2: the first start always
    # counts.
    value: float = -1.0
    best_value: float = -2.0
    best_iterations: int = 0


def _draw_next_centroid(points: Tensor, far: Tensor, draws: NDArray[np.float64]) -> tuple[int, Tensor]:
    """A further centroid's point, and how far each point then is from its nearest one.

    Args:
        points: (points, dimensions).
        far: How far each is from its nearest centroid so far.
        draws: A number from 0 to 1 for each point that is tried; the best of these points is chosen.
    """
    # In double precision: among many points a small distance would vanish in a float32 sum.
    sums = far.double().cumsum(0)
    total = float(sums[-1])
    if total <= 0:  # every point is a centroid's twin
        return int(draws[0] * len(points)), far
    places = torch.from_numpy(draws * total).to(sums.device)
    # A draw just below 1 times the total can round up to the total, which is behind the last point.
    tried = torch.searchsorted(sums, places, right=True).clamp_(max=len(points) - 1)
    after = torch.minimum(far, (1 - points[tried] @ points.T))
    best = int(after.double().sum(1).argmin())
    return int(tried[best]), after[best]


class _Deterministic:
    """Sums in a fixed order on a GPU, too."""

    def __enter__(self) -> None:
        self._before = torch.are_deterministic_algorithms_enabled()
        # warn_only: an operation without a deterministic form must not end the work.
        torch.use_deterministic_algorithms(True, warn_only=True)

    def __exit__(self, *_: object) -> None:
        torch.use_deterministic_algorithms(self._before)


def _plan_cluster_tour(
    centroids: NDArray[np.float32], numbers: NDArray[np.int64], work: ClusterWork
) -> tuple[int, ...]:
    """Clusters in an order in which each is followed by the nearest of those that are left.

    Args:
        centroids: (clusters, dimensions).
        numbers: The clusters that have pairs; the tour begins with the first.
        work: The device.
    """
    with torch.inference_mode():
        table = torch.from_numpy(centroids[numbers]).to(work.device)
        # -inf takes a visited cluster out of the argmax; the table itself is not copied for each step.
        left = torch.zeros(len(table), device=table.device)
        tour = [0]
        while len(tour) < len(table):
            left[tour[-1]] = -torch.inf
            tour.append(int((table @ table[tour[-1]] + left).argmax()))
    return tuple(numbers[tour].tolist())
