"""An index of PLAID on disk: how it is made, found and searched, and the exact results beside it.

An index is a folder of the cache, named by the digest of what it is made of: the vectors' identity, the
documents in order, the settings that make an index, and fast-plaid's version. It is made in a folder beside
it, which is renamed when it is whole.

Its centroids and the rounding of the rests come from a sample of the documents, the one that fast-plaid
draws. Up to about 30,000 documents that is all of them, and fast-plaid writes the index. In a larger corpus
the others follow in blocks, whose files are written here in fast-plaid's form: so no more than the sample and
a block are there at once, and what a killed process has left goes on after its last whole block. Blocks
depend on the texts alone, so that an index is the same whether its vectors were kept or not.

The exact best documents of the queries that the recall is measured with are found in the same blocks.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from harness.core import files
from harness.core.encoding import Plaid
from harness.core.errors import DataError, StoreError
from harness.core.identity import canonical, digest
from harness.search.plaid import AT, MANIFEST, NAME, OF_INDEX, PART, index_problem, sample_size
from harness.search.search import top_k_of_block, top_k_of_blocks
from harness.storage.leases import Leases
from harness.storage.vectors import Space, TokenVectors

_VARIABLE = ("plaid.lock", "merged_codes.manifest.json", "merged_residuals.manifest.json")
"""Files that fast-plaid may write anew when it opens an index."""

_EXACT = "exact"
"""The start of the names of files with exact results, each of which has its own SHA-256."""

_LAYOUT = 2
"""The form of the files; another one is another index."""

LEAST_DOCUMENTS = 20
"""The fewest documents of an index; in fewer, fast-plaid has too few vectors, and the search is exact."""

QUERIES_AT_ONCE = 256

BLOCK_CHARACTERS = 2_000_000
"""The characters of the documents of a block; at most about as many vectors, 512 MB at 128 dimensions."""

_ROWS = 2048
"""Vectors whose products with all centroids are held at once, as in fast-plaid."""

_BATCH = 50_000
"""Vectors that fast-plaid rounds at once, by its default."""


class Corpus(Protocol):
    """The documents of an index and their vectors."""

    @property
    def texts(self) -> Sequence[str]:
        """The documents."""
        ...

    def some(self, texts: Sequence[str]) -> list[NDArray[np.float16]]:
        """The vectors of some documents, each (tokens, dimension)."""
        ...

    def parts(self, parts: Sequence[Sequence[str]], use: str) -> Iterator[TokenVectors]:
        """The vectors of the documents of each part in turn; `use` says for the user what for."""
        ...


class KeptVectors:
    """The vectors of the tokens of documents, all of them in a space.

    Attributes:
        texts: The documents.
    """

    def __init__(
        self,
        space: Space,
        texts: Sequence[str],
        *,
        begin: Callable[[str], None] = lambda _use: None,
        progress: Callable[[int], None] = lambda _done: None,
    ) -> None:
        self.texts = texts
        self._space = space
        self._begin, self._progress = begin, progress

    def some(self, texts: Sequence[str]) -> list[NDArray[np.float16]]:
        """The vectors of some documents, each (tokens, dimension)."""
        return self._space.token_views(texts)

    def parts(self, parts: Sequence[Sequence[str]], use: str) -> Iterator[TokenVectors]:
        """The vectors of the documents of each part in turn."""
        self._begin(use)
        for part in parts:
            yield self._space.get_tokens(part)
            self._progress(len(part))


class ExactSearch:
    """The exact search of a corpus for a few queries, in blocks.

    Attributes:
        key: The digest of what the queries' vectors depend on, by which results are kept.
        seconds: The time that it has taken.
    """

    def __init__(self, queries: TokenVectors, space: Space, texts: Sequence[str], *, device: str) -> None:
        hashes = hashlib.sha256(space.text_keys(texts).tobytes()).hexdigest()
        self.key = digest({"vectors": space.identity, "queries": hashes, "at": AT})
        self.seconds = 0.0
        self._queries = queries
        self._device = device

    def best(self, block: TokenVectors, start: int) -> NDArray[np.int64]:
        """The best documents of a block (see `top_k_of_block`)."""
        started = time.monotonic()
        found = top_k_of_block(self._queries, block, start, k=AT, device=self._device)
        self.seconds += time.monotonic() - started
        return found


@dataclass(frozen=True, kw_only=True)
class PlaidIndex:
    """An index on disk, or where it will be.

    Attributes:
        folder: Where it lies.
        identity: What it is made of; its digest is the folder's name.
        settings: With which it is made and searched.
        cache: The cache folder.
        device: The torch device of its making and its search.
    """

    folder: Path
    identity: Mapping[str, Any]
    settings: Plaid
    cache: Path
    device: str

    @staticmethod
    def of(
        space: Space, documents: Sequence[str], settings: Plaid, *, cache: Path, device: str
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

        known = asdict(settings)
        identity = {
            "vectors": space.identity,
            "documents": hashlib.sha256(space.text_keys(documents).tobytes()).hexdigest(),
            "count": len(documents),
            "settings": {name: known[name] for name in OF_INDEX},
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
        return self.folder.exists() and not index_problem(self.folder, self.cache)

    @property
    def nbytes(self) -> int:
        """The bytes of its files."""
        return sum(path.stat().st_size for path in self.folder.iterdir() if path.is_file())

    @property
    def places(self) -> NDArray[np.int64]:
        """The places among all documents of those that have a vector, which are its own."""
        found: NDArray[np.int64] = np.load(self.folder / _PLACES)
        return found

    @property
    def tokens(self) -> int:
        """The number of its vectors."""
        return int(json.loads((self.folder / _ABOUT).read_bytes())["num_embeddings"])

    def exact(self, key: str) -> list[list[int]] | None:
        """The exact best documents of each query, by `ExactSearch.key`; None if they are not beside it."""
        with contextlib.suppress(OSError, ValueError):
            found: list[list[int]] = json.loads(files.without_sha256(self.exact_file(key)))
            return found
        return None

    def exact_file(self, key: str) -> Path:
        """The file of the exact results of some queries."""
        return self.folder / f"{_EXACT}.{key[:32]}.json"

    def complete(self, corpus: Corpus, exact: ExactSearch) -> bool:
        """Make what is not there of the index and of the exact results of some queries.

        Args:
            corpus: The documents.
            exact: The queries.

        Returns:
            Whether there is an index now: there is none where too few documents of the sample have a vector.

        Raises:
            DataError: A vector is not finite, or fast-plaid cannot make an index of them.
            StoreError: The index cannot be written.
        """
        with self._alone():
            try:
                made = _Making(self, corpus, exact).run()
            except DataError:
                shutil.rmtree(self.part, ignore_errors=True)
                raise
            except OSError as error:
                raise files.write_error(self.folder, error) from error
            shutil.rmtree(self.part, ignore_errors=True)
        return made

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """A context in which no other process makes this index; those that want to wait."""
        files.writable(self.part)
        leases = Leases(self.part)
        while not leases.claim("lease"):
            time.sleep(1.0)
        try:
            yield
        finally:
            leases.close()

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
        found: list[Any] = [(np.zeros(0, np.int64), np.zeros(0, np.float32))] * len(queries)
        with _guarded("search"), _library(self.folder, self.device) as index:
            for rows in _equally_long(queries.lengths):
                answers = index.search(
                    _stacked(queries, rows),
                    top_k=min(k, self.settings.top_k or k, len(places)),
                    n_full_scores=self.settings.n_full_scores,
                    n_ivf_probe=min(self.settings.n_ivf_probe, partitions),
                    n_processes=threads,
                    show_progress=False,
                )
                for row, answer in zip(rows.tolist(), answers, strict=True):
                    found[row] = _ordered(answer, places)
                progress(len(rows))
        return found


def _ordered(
    answer: Sequence[tuple[int, float]], all_places: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The places and scores of an answer, best first."""
    places = all_places[np.array([number for number, _ in answer], np.int64)]
    scores = np.array([score for _, score in answer], np.float32)
    order = np.lexsort((places, -scores))
    return places[order], scores[order]


# Its making

_PLACES, _ABOUT, _CENTROIDS = "places.npy", "metadata.json", "centroids.npy"


class _Making:
    """The steps from documents to an index; each is skipped whose files are there."""

    def __init__(self, index: PlaidIndex, corpus: Corpus, exact: ExactSearch) -> None:
        self._index, self._corpus, self._exact = index, corpus, exact
        self._made = index.is_there
        self._work = index.part / "index"
        self._blocks = _blocks(corpus.texts)
        self._sample = sampled_documents(len(corpus.texts), index.settings.seed)
        self._codec: _Codec | None = None

    def run(self) -> bool:
        """All steps; False where too few documents of the sample have a vector."""
        if self._made and self._index.exact(self._exact.key) is not None:
            return True
        about = canonical({"identity": self._index.identity}).encode()
        files.replace(self._index.part / MANIFEST, about)
        if not self._made and not self._work.exists() and not self._start():
            return False
        self._add_blocks()
        if not self._made:
            with _guarded("index"):
                self._end()
        best = [np.load(path) for path in map(self._best, range(len(self._blocks)))]
        places = [found.tolist() for found in top_k_of_blocks(best, k=AT)]
        path = self._index.exact_file(self._exact.key)
        files.replace(path, files.with_sha256(path.name, json.dumps(places).encode()))
        return True

    @property
    def _is_sampled_whole(self) -> bool:
        return len(self._sample) == len(self._corpus.texts)

    def _start(self) -> bool:
        """The centroids and the rounding of the rests, by fast-plaid; of a whole sample also the index."""
        places = np.sort(self._sample)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # parts of files cannot be written, and are not
            views = self._corpus.some([self._corpus.texts[at] for at in places.tolist()])
        there = np.array([len(view) > 0 for view in views], bool)
        if np.count_nonzero(there) < LEAST_DOCUMENTS:
            return False
        work = files.temporary_folder(self._work)
        try:
            with _guarded("index"):
                _start_index(work, places, views, len(self._corpus.texts), self._index)
            np.save(work / _PLACES, places[there])
            if not self._is_sampled_whole:
                _keep_codec(work)
            files.move(work, self._work)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        return True

    def _add_blocks(self) -> None:
        """The documents of each block into the index, and those that are the best of it for the queries."""
        left = [number for number in range(len(self._blocks)) if not self._is_added(number)]
        texts = [self._corpus.texts[start:end] for start, end in (self._blocks[number] for number in left)]
        use = "searching exactly" if self._made else "making the index"
        for number, vectors in zip(left, self._corpus.parts(texts, use), strict=True):
            if not self._has_codes(number):
                self._add(number, vectors)
            best = self._exact.best(vectors, self._blocks[number][0])
            files.replace(self._best(number), _npy(best))

    def _is_added(self, number: int) -> bool:
        return self._best(number).exists() and self._has_codes(number)

    def _has_codes(self, number: int) -> bool:
        return self._made or self._is_sampled_whole or (self._work / f"{number}.codes.npy").exists()

    def _best(self, number: int) -> Path:
        return self._index.part / self._exact.key[:32] / f"{number}.npy"

    def _add(self, number: int, vectors: TokenVectors) -> None:
        """A block's files in fast-plaid's form; that of the codes, the last, says that it is whole."""
        with _guarded("index"):
            self._codec = self._codec or _Codec(self._work, self._index)
            codes, rests = self._codec.compressed(vectors.vectors)
        there = np.flatnonzero(vectors.lengths)
        files.replace(self._work / f"{number}.residuals.npy", _npy(rests))
        lengths = vectors.lengths[there].tolist()
        files.replace(self._work / f"doclens.{number}.json", json.dumps(lengths).encode())
        files.replace(self._work / f"{number}.{_PLACES}", _npy(self._blocks[number][0] + there))
        files.replace(self._work / f"{number}.codes.npy", _npy(codes))

    def _end(self) -> None:
        """What fast-plaid has of all documents together, the manifest, and the name of the index."""
        shutil.rmtree(self._index.folder, ignore_errors=True)
        if not self._is_sampled_whole:
            _join_blocks(self._work, len(self._blocks), self._index.settings.nbits)
        shutil.rmtree(self._index.part / "vectors", ignore_errors=True)
        with _library(self._work, self._index.device):
            pass  # it joins the codes of all blocks, and their rests, in one file each
        sums = {path.name: files.sha256_file(path) for path in _steady(self._work)}
        content = canonical({"identity": self._index.identity, "files": sums}).encode()
        (self._work / MANIFEST).write_bytes(content)
        for path in self._work.iterdir():
            files.sync(path)
        try:
            files.move(self._work, self._index.folder)
        except StoreError:
            if index_problem(self._index.folder, None):  # another process has not made it either
                raise


def _blocks(texts: Sequence[str]) -> list[tuple[int, int]]:
    """The first place and the end of each block of documents, by their characters."""
    ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
    found, start = [], 0
    while start < len(texts):
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + BLOCK_CHARACTERS, side="right")))
        found.append((start, end))
        start = end
    return found


def sampled_documents(count: int, seed: int) -> NDArray[np.int64]:
    """The places of the documents that fast-plaid's k-means sees of so many, in its order."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        found: NDArray[np.int64] = torch.randperm(count)[: sample_size(count)].numpy()
    return found


class _Sampled:
    """Documents of which only those of a sample have vectors here, as fast-plaid's k-means asks for them."""

    def __init__(self, count: int, vectors: Mapping[int, torch.Tensor]) -> None:
        self._count = count
        self._vectors = vectors

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: int) -> torch.Tensor:
        return self._vectors[place]


def _start_index(
    work: Path, places: NDArray[np.int64], views: Sequence[NDArray[np.float16]], count: int, index: PlaidIndex
) -> None:
    """The index of a sample by fast-plaid, with the centroids for all documents.

    Args:
        work: The folder that it is written to.
        places: Those of the sample.
        views: The vectors of its documents.
        count: The number of all documents.
        index: Its settings and its device.
    """
    import torch
    from fast_plaid import fast_plaid_rust
    from fast_plaid.search.fast_plaid import compute_kmeans

    settings, device = index.settings, index.device
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        vectors = [torch.from_numpy(view) for view in views]
    dimension = vectors[0].shape[1]
    gpus = [torch.device(device).index or 0] if device.startswith("cuda") else []
    with torch.random.fork_rng(devices=gpus), torch.inference_mode(), _library(work, device) as library:
        torch.manual_seed(settings.seed)  # it draws the sample once more
        centroids = compute_kmeans(
            _Sampled(count, dict(zip(places.tolist(), vectors, strict=True))),
            dim=dimension,
            device=library.devices[0],
            kmeans_niters=settings.kmeans_niters,
            max_points_per_centroid=settings.max_points_per_centroid,
            seed=settings.seed,
            n_samples_kmeans=len(places),
            use_triton_kmeans=False,  # its sums differ from run to run
        )
        fast_plaid_rust.create(
            index=str(work),
            torch_path=library.torch_path,
            device=library.devices[0],
            embedding_dim=dimension,
            nbits=settings.nbits,
            embeddings=[one for one in vectors if len(one)],
            centroids=centroids,
            batch_size=_BATCH,
            seed=settings.seed,
            compress_only=len(places) < count,
        )


_OF_CODEC = (_CENTROIDS, "avg_residual.npy", "bucket_cutoffs.npy", "bucket_weights.npy")
"""The files of an index that do not depend on the documents in it."""


def _keep_codec(work: Path) -> None:
    """Remove from an index what it has of documents."""
    for path in work.iterdir():
        if path.name not in _OF_CODEC:
            path.unlink()


class _Codec:
    """The rounding of vectors as fast-plaid has it: the nearest centroid, and the bits of the rest."""

    def __init__(self, folder: Path, index: PlaidIndex) -> None:
        import torch

        self._bits = index.settings.nbits
        self._device = index.device
        self._centroids = torch.from_numpy(np.load(folder / _CENTROIDS)).to(index.device).half()
        self._cutoffs = torch.from_numpy(np.load(folder / "bucket_cutoffs.npy")).to(index.device).float()

    def compressed(self, vectors: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """The nearest centroid of each vector, (tokens,), and its rest, (tokens, dimension × bits / 8)."""
        import torch

        codes, rests = [], []
        for start in range(0, max(1, len(vectors)), _ROWS):
            part = torch.from_numpy(vectors[start : start + _ROWS]).to(self._device).half()
            code = (part @ self._centroids.T).argmax(dim=1)
            codes.append(code.cpu())
            rests.append(self._packed(part - self._centroids[code]).cpu())
        return torch.cat(codes).numpy(), torch.cat(rests).numpy()

    def _packed(self, rests: torch.Tensor) -> torch.Tensor:
        """The number of the bucket of each component, its lowest bit first, eight bits in a byte."""
        import torch

        buckets = torch.bucketize(rests.float(), self._cutoffs, out_int32=True)
        places = torch.arange(self._bits, dtype=torch.int32, device=rests.device)
        bits = ((buckets.unsqueeze(-1) >> places) & 1).reshape(-1, 8)
        values = (bits << torch.arange(7, -1, -1, dtype=torch.int32, device=rests.device)).sum(dim=1)
        return values.to(torch.uint8).reshape(len(rests), rests.shape[1] * self._bits // 8)


def _join_blocks(work: Path, blocks: int, bits: int) -> None:
    """The places, the inverted list and the description of an index, from the files of its blocks."""
    lengths = [json.loads((work / f"doclens.{number}.json").read_bytes()) for number in range(blocks)]
    places = np.concatenate([np.load(work / f"{number}.{_PLACES}") for number in range(blocks)])
    partitions, tokens = len(np.load(work / _CENTROIDS)), sum(map(sum, lengths))
    _write_lists(work, lengths, partitions)
    np.save(work / _PLACES, places)
    about = {
        "num_chunks": blocks,
        "nbits": bits,
        "num_partitions": partitions,
        "num_embeddings": tokens,
        "num_documents": len(places),
        "avg_doclen": tokens / len(places),
    }
    (work / _ABOUT).write_text(json.dumps(about))


def _write_lists(work: Path, lengths: Sequence[Sequence[int]], partitions: int) -> None:
    """The documents of each centroid, each once and in order, and their numbers."""
    counts = np.zeros(partitions, np.int64)
    for codes, _ in _pairs(work, lengths):
        counts += np.bincount(codes, minlength=partitions)
    lists = np.lib.format.open_memmap(work / "ivf.npy", "w+", np.int64, (int(counts.sum()),))
    ends = np.cumsum(counts) - counts
    for codes, documents in _pairs(work, lengths):
        here = np.bincount(codes, minlength=partitions)
        within = np.arange(len(codes)) - np.repeat(np.cumsum(here) - here, here)
        lists[ends[codes] + within] = documents
        ends += here
    lists.flush()
    np.save(work / "ivf_lengths.npy", counts.astype(np.int32))


def _pairs(
    work: Path, lengths: Sequence[Sequence[int]]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """For each block the centroids and the numbers of their documents, by centroid and then by number."""
    first = 0
    for number, tokens in enumerate(lengths):
        codes = np.load(work / f"{number}.codes.npy")
        own = np.repeat(np.arange(len(tokens)), tokens)
        pairs = np.unique(codes * max(1, len(tokens)) + own)
        found, documents = np.divmod(pairs, max(1, len(tokens)))
        yield found, first + documents
        first += len(tokens)


def _npy(array: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def _steady(folder: Path) -> list[Path]:
    """The files of an index that never change."""
    names = (*_VARIABLE, MANIFEST)
    return sorted(path for path in folder.iterdir() if path.is_file() and path.name not in names)


# fast-plaid


@contextlib.contextmanager
def _library(folder: Path, device: str) -> Iterator[Any]:
    """fast-plaid on a folder."""
    from fast_plaid.search import FastPlaid

    with FastPlaid(index=str(folder), device=device, low_memory=True) as index:
        yield index


@contextlib.contextmanager
def _guarded(what: str) -> Iterator[None]:
    """Errors of fast-plaid as ours; a panic of its Rust code is no Exception, and a full disk no OSError."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ not in ("PanicException", "RuntimeError"):
            raise
        if "No space left" in str(error):
            raise OSError(errno.ENOSPC, "the disk is full") from error
        reason = next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)[:200]
        raise DataError(
            f"fast-plaid failed to {what} these vectors: {reason}.",
            hint="--index exact searches them without it.",
        ) from error


def _equally_long(lengths: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Blocks of queries with as many tokens each, so that none is filled up; none of those without one."""
    for length in np.unique(lengths[lengths > 0]):
        rows = np.flatnonzero(lengths == length)
        yield from (rows[start : start + QUERIES_AT_ONCE] for start in range(0, len(rows), QUERIES_AT_ONCE))


def _stacked(queries: TokenVectors, rows: NDArray[np.int64]) -> Any:
    """The vectors of queries with as many tokens each: (queries, tokens, dimension)."""
    import torch

    part = queries.take(rows)
    return torch.from_numpy(part.vectors.reshape(len(rows), -1, part.vectors.shape[1]))
