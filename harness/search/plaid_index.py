"""An index of PLAID on disk: how it is made, found and searched, and the exact results beside it.

An index is a folder of the cache, named by the digest of what it is made of: the vectors' identity, the
documents in order, the settings that make an index, and fast-plaid's version. It is made in a folder beside
it, which is renamed when it is whole; after a kill it is made again from the start.

fast-plaid makes it of a sample of the documents, which up to about 30,000 is all of them. In a larger corpus
the others are added in blocks, so that no more than the sample or a block is there at once. Blocks depend on
the texts alone, since fast-plaid makes other centroids of other blocks.

The exact best documents of the queries that the recall is measured with are found in the same pass.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from harness.core import files
from harness.core.encoding import Plaid
from harness.core.errors import DataError, StoreError
from harness.core.keys import digest, serialize_canonical
from harness.search.maxsim import find_block_top_k, merge_block_top_k, split_blocks
from harness.search.plaid import AT, MANIFEST, NAME, OF_INDEX, PART, Corpus, find_index_problem, sample_size
from harness.storage.remote_and_leases import Leases
from harness.storage.vectors import EmbeddingCache, TokenVectors

_VARIABLE = ("plaid.lock", "merged_codes.manifest.json", "merged_residuals.manifest.json", MANIFEST)
"""Files that fast-plaid may write again when it opens an index, and ours with the hashes of the others."""

_EXACT = "exact"
"""The start of the names of files with exact results, each of which has its own SHA-256."""

_PLACES, _ABOUT, _CENTROIDS = "places.npy", "metadata.json", "centroids.npy"

_LAYOUT = 3
"""The version of how an index is made; a change makes new indexes."""

LEAST_DOCUMENTS = 20
"""The fewest documents of an index; in fewer, fast-plaid has too few vectors, and the search is exact."""

QUERIES_AT_ONCE = 256

BLOCK_CHARACTERS = 8_000_000
"""The characters of the documents of a block; at most about two million vectors, 512 MB at 128 dimensions."""


class ExactSearch:
    """The exact search of a corpus for a few queries, in blocks.

    Attributes:
        key: The digest of what the queries' vectors depend on, by which results are kept.
        seconds: The time that it has taken.
    """

    def __init__(
        self, queries: TokenVectors, space: EmbeddingCache, texts: Sequence[str], *, device: str
    ) -> None:
        hashes = hashlib.sha256(space.hash_texts(texts).tobytes()).hexdigest()
        self.key = digest({"vectors": space.identity, "queries": hashes, "at": AT})
        self.seconds = 0.0
        self._queries = queries
        self._device = device

    def search_block(self, block: TokenVectors, start: int) -> NDArray[np.int64]:
        """The best documents of a block (see `find_block_top_k`)."""
        started = time.monotonic()
        matches = find_block_top_k(self._queries, block, start, k=AT, device=self._device)
        self.seconds += time.monotonic() - started
        return matches


@dataclass(frozen=True, kw_only=True)
class PlaidIndex:
    """An index on disk, or where it will be.

    Attributes:
        folder: Where it lies.
        identity: What it is made of; its digest is the folder's name.
        settings: The settings of its making and its search.
        cache: The cache folder.
        device: The torch device on which it is made and searched.
    """

    folder: Path
    identity: Mapping[str, Any]
    settings: Plaid
    cache: Path
    device: str

    @staticmethod
    def locate_index(
        space: EmbeddingCache, documents: Sequence[str], settings: Plaid, *, cache: Path, device: str
    ) -> PlaidIndex:
        """The index of documents, made or not.

        Args:
            space: The vectors of the documents, of which only the identity counts.
            documents: Their texts.
            settings: The settings of the index and its search.
            cache: The cache folder.
            device: A torch device.
        """
        from importlib.metadata import version

        all_settings = asdict(settings)
        identity = {
            "vectors": space.identity,
            "documents": hashlib.sha256(space.hash_texts(documents).tobytes()).hexdigest(),
            "count": len(documents),
            "settings": {name: all_settings[name] for name in OF_INDEX},
            "library": f"fast-plaid {version('fast-plaid')}",
            "layout": _LAYOUT,
        }
        folder = cache / NAME / digest(identity)
        return PlaidIndex(folder=folder, identity=identity, settings=settings, cache=cache, device=device)

    @property
    def part(self) -> Path:
        """The folder in which it is made."""
        return self.folder.with_name(self.folder.name + PART)

    @property
    def is_there(self) -> bool:
        """Whether it is made and whole."""
        return self.folder.exists() and not find_index_problem(self.folder, self.cache)

    @property
    def nbytes(self) -> int:
        """The bytes of its files."""
        return sum(path.stat().st_size for path in self.folder.iterdir() if path.is_file())

    @property
    def places(self) -> NDArray[np.int64]:
        """The places among all documents of those that have a vector, which are its own."""
        index_places: NDArray[np.int64] = np.load(self.folder / _PLACES)
        return index_places

    @property
    def tokens(self) -> int:
        """The number of its vectors."""
        return int(json.loads((self.folder / _ABOUT).read_bytes())["num_embeddings"])

    def read_exact_matches(self, key: str) -> list[list[int]] | None:
        """The exact best documents of each query, by `ExactSearch.key`; None if they are not beside it."""
        with contextlib.suppress(OSError, ValueError):
            matches: list[list[int]] = json.loads(files.unpack_hashed_file(self.locate_exact_file(key)))
            return matches
        return None

    def find_damage(self, key: str) -> str:
        """What is wrong with the index, or with its exact results of `key`; empty if nothing, or none."""
        exact = self.locate_exact_file(key)
        if not self.folder.exists():
            return ""
        if exact.exists() and self.read_exact_matches(key) is None:
            return f"{exact.name} is not what was written"
        return find_index_problem(self.folder, self.cache)

    def locate_exact_file(self, key: str) -> Path:
        """The file of the exact results of some queries."""
        return self.folder / f"{_EXACT}.{key[:32]}.json"

    def ensure_complete(self, corpus: Corpus, exact: ExactSearch) -> bool:
        """Make the index, and the exact results of some queries, as far as they are missing.

        Args:
            corpus: The documents.
            exact: The queries.

        Returns:
            Whether the index exists now; False where too few documents of the sample have a vector for it.

        Raises:
            DataError: A vector is not finite, or fast-plaid cannot make an index of them.
            StoreError: The index cannot be written.
        """
        with self._lock_index():
            try:
                return self._make(corpus, exact)
            except OSError as error:
                raise files.write_error(self.folder, error) from error
            finally:
                shutil.rmtree(self.part, ignore_errors=True)

    def _make(self, corpus: Corpus, exact: ExactSearch) -> bool:
        """Read the documents once, and make what is missing."""
        # Asked again under the lock: another process may have made it while this one waited.
        is_new = not self.is_there
        if not is_new and self.read_exact_matches(exact.key) is not None:
            return True
        # By this manifest `drop_indexes` also finds an index that a killed process left half made.
        files.replace(self.part / MANIFEST, serialize_canonical({"identity": self.identity}).encode())
        making = _Making(self, corpus) if is_new else None
        if making is not None and not making.start():
            return False
        lengths = np.fromiter(map(len, corpus.texts), np.int64, len(corpus.texts))
        blocks = [*split_blocks(np.concatenate([[0], np.cumsum(lengths)]), BLOCK_CHARACTERS)]
        texts, best = [corpus.texts[start:end] for start, end in blocks], []
        use = "making the index" if is_new else "searching exactly"
        for (start, _), vectors in zip(blocks, corpus.iter_part_vectors(texts, use), strict=True):
            if making is not None:
                making.add_block(start, vectors)
            best.append(exact.search_block(vectors, start))
        if making is not None:
            making.finish()
        places = [row.tolist() for row in merge_block_top_k(best, k=AT)]
        path = self.locate_exact_file(exact.key)
        files.replace(path, files.pack_hashed_file(path.name, json.dumps(places).encode()))
        return True

    @contextlib.contextmanager
    def _lock_index(self) -> Iterator[None]:
        """A context in which no other process makes this index; those that want to wait."""
        files.require_writable(self.part)
        leases = Leases(self.part)
        # Whoever waited finds the index whole in `_make`, and only reads it.
        while not leases.claim("lease"):
            time.sleep(1.0)
        try:
            yield
        finally:
            leases.release_leases()

    def search(
        self,
        queries: TokenVectors,
        *,
        k: int,
        threads: int | None = None,
        progress: Callable[[int], None] = lambda _done: None,
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """At most `k` documents of each query, best first; of equal ones the first.

        Args:
            queries: Their token vectors.
            k: The number of documents for a query.
            threads: CPU threads, None for fast-plaid's own choice.
            progress: Called with the number of queries done.

        Returns:
            For each query the places of documents, and their scores.
        """
        places = self.places
        partitions = len(np.load(self.folder / _CENTROIDS, mmap_mode="r"))
        matches: list[Any] = [(np.zeros(0, np.int64), np.zeros(0, np.float32))] * len(queries)
        with _convert_plaid_errors("search"), _open_fast_plaid(self.folder, self.device) as index:
            for rows in _iter_equal_lengths(queries.lengths):
                vectors = queries.take(rows).vectors
                answers = index.search(
                    torch.from_numpy(vectors.reshape(len(rows), -1, vectors.shape[1])),
                    top_k=min(k, self.settings.top_k or k, len(places)),
                    n_full_scores=self.settings.n_full_scores,
                    # The index of a small corpus may have fewer partitions than the usual probes.
                    n_ivf_probe=min(self.settings.n_ivf_probe, partitions),
                    n_processes=threads,
                    show_progress=False,
                )
                for row, answer in zip(rows.tolist(), answers, strict=True):
                    row_places = places[np.array([number for number, _ in answer], np.int64)]
                    scores = np.array([score for _, score in answer], np.float32)
                    # lexsort compares its last key first: scores, then places.
                    order = np.lexsort((row_places, -scores))
                    matches[row] = row_places[order], scores[order]
                progress(len(rows))
        return matches


# Its making


class _Making:
    """An index in the making: of a sample first, then with the other documents in blocks."""

    def __init__(self, index: PlaidIndex, corpus: Corpus) -> None:
        self._index, self._corpus = index, corpus
        self._work = index.part / "index"
        count = len(corpus.texts)
        shuffled = np.random.default_rng(index.settings.seed).permutation(count)
        self._sample = np.sort(shuffled[: sample_size(count)])
        self._places: list[NDArray[np.int64]] = []

    def start(self) -> bool:
        """The index of the sample; False where too few of its documents have a vector."""
        shutil.rmtree(self._work, ignore_errors=True)
        views = self._corpus.load_document_vectors(
            [self._corpus.texts[place] for place in self._sample.tolist()]
        )
        vectors = [view for view in views if len(view)]
        if len(vectors) < LEAST_DOCUMENTS:
            return False
        self._places.append(self._sample[[len(view) > 0 for view in views]])
        self._call("create", vectors, nbits=self._index.settings.nbits, n_samples_kmeans=len(vectors))
        return True

    def add_block(self, start: int, vectors: TokenVectors) -> None:
        """Add the documents of a block that have a vector and are not in the sample.

        Args:
            start: The place of its first document.
            vectors: The vectors of its documents.
        """
        places = start + np.flatnonzero(vectors.lengths)
        places = np.setdiff1d(places, self._sample, assume_unique=True)
        if len(places):
            self._places.append(places)
            # A buffer would hold back few documents, and keep their vectors in a pickle.
            self._call(
                "update",
                [vectors.select_text_vectors(place - start) for place in places.tolist()],
                buffer_size=0,
            )

    def _call(self, how: str, vectors: Sequence[NDArray[Any]], **options: int) -> None:
        """Have fast-plaid make or extend the index.

        Its `seed` does not reach the sample that it draws: that comes from torch's global generator. Triton's
        k-means has sums that differ from run to run. Below `start_from_scratch` documents fast-plaid would
        keep all vectors and make the whole index again with each block.
        """
        settings, device = self._index.settings, self._index.device
        gpus = [torch.device(device).index or 0] if device.startswith("cuda") else []
        with warnings.catch_warnings():
            # torch warns of arrays that are read-only parts of files; nothing writes to them.
            warnings.simplefilter("ignore", UserWarning)
            tensors = [torch.from_numpy(one).half() for one in vectors]
        with (
            _convert_plaid_errors("index"),
            torch.random.fork_rng(devices=gpus),
            _open_fast_plaid(self._work, device) as library,
        ):
            torch.manual_seed(settings.seed)
            getattr(library, how)(
                tensors,
                kmeans_niters=settings.kmeans_niters,
                max_points_per_centroid=settings.max_points_per_centroid,
                seed=settings.seed,
                use_triton_kmeans=False,
                start_from_scratch=0,
                **options,
            )

    def finish(self) -> None:
        """The manifest and the name of the index."""
        folder, work = self._index.folder, self._work
        # A damaged index may lie there, and a rename does not replace a folder with files.
        shutil.rmtree(folder, ignore_errors=True)
        np.save(work / _PLACES, np.concatenate(self._places))
        # Without _VARIABLE: fast-plaid writes those again on opening, and their hashes would not hold.
        sums = {path.name: files.hash_file(path) for path in work.iterdir() if path.name not in _VARIABLE}
        content = serialize_canonical({"identity": self._index.identity, "files": sums}).encode()
        (work / MANIFEST).write_bytes(content)
        # Before the rename, so that after a power cut no index has its name without its bytes.
        for path in work.iterdir():
            files.sync(path)
        try:
            files.move(work, folder)
        except StoreError:
            # Unless another process has put a whole index there meanwhile.
            if find_index_problem(folder, None):
                raise


# fast-plaid


def _open_fast_plaid(folder: Path, device: str) -> Any:
    """fast-plaid on a folder, as a context."""
    return _load_fast_plaid()(index=str(folder), device=device, low_memory=True)


@functools.cache
def _load_fast_plaid() -> Any:
    """fast-plaid's class.

    On a CPU its updates look for vectors far from all centroids in usearch's approximate graph. All cores
    put centroids into that graph, in an order that differs from run to run, and so do the vectors that it
    finds. Here one thread does it; all of them search.
    """
    from fast_plaid.search import FastPlaid, update

    class OrderedIndex(update.Index):  # type: ignore[misc]
        def add(self, *args: Any, **options: Any) -> Any:
            return super().add(*args, **{**options, "threads": 1})

    update.Index = OrderedIndex
    return FastPlaid


@contextlib.contextmanager
def _convert_plaid_errors(what: str) -> Iterator[None]:
    """Errors of fast-plaid as ours; a panic of its Rust code is no Exception, and a full disk no OSError."""
    try:
        yield
    except BaseException as error:
        # pyo3's PanicException cannot be imported, so its name is compared.
        if type(error).__name__ not in ("PanicException", "RuntimeError"):
            raise
        if "No space left" in str(error):
            raise OSError(errno.ENOSPC, "the disk is full") from error
        reason = next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)[:200]
        raise DataError(
            f"fast-plaid failed to {what} these vectors: {reason}.",
            hint="Type --index exact to search them without it.",
        ) from error


def _iter_equal_lengths(lengths: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Blocks of queries with as many tokens each, so that none is filled up; none of those without one."""
    for length in np.unique(lengths[lengths > 0]):
        rows = np.flatnonzero(lengths == length)
        yield from (rows[start : start + QUERIES_AT_ONCE] for start in range(0, len(rows), QUERIES_AT_ONCE))
