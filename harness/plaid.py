"""Approximate search by PLAID: its settings as a user types them, the index on disk, and its recall.

An index is a folder of the cache, named by the digest of what it is made of: the vectors' identity, the
documents in order, the settings that make an index, and fast-plaid's version. It is made in a temporary
folder that is renamed when it is whole, and lists the SHA-256 of its files: one that is not as it was written
is removed and made again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import files
from harness.errors import DataError, StoreError, UsageError, nearest, unknown
from harness.identity import canonical, digest
from harness.types import SEED, Plaid

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from harness.vectors import Space, TokenVectors

NAME = "plaid"
"""The name of the search, before its settings, and of its part of the cache."""

EXACT = "exact"

_SETTINGS = tuple(field.name for field in fields(Plaid))

_BITS = (1, 2, 4, 8)
"""The bits of a component that fast-plaid can pack."""

_LEAST: Mapping[str, int] = {"kmeans_niters": 1, "max_points_per_centroid": 1, "n_ivf_probe": 1}
_LEAST = {**_LEAST, "n_full_scores": 4, "seed": 0}
"""The smallest value of each setting that is a whole number."""

_LARGEST = 2**31 - 1

_OF_INDEX = ("nbits", "kmeans_niters", "max_points_per_centroid", "seed")
"""The settings that make an index; the others only search it."""


def index_of(text: str | None) -> Plaid | None:
    """The settings of the search that a user types; None for an exact one.

    >>> index_of("exact"), index_of("plaid:nbits=2,seed=1").nbits
    (None, 2)

    Raises:
        UsageError: There is no such search or setting, or it cannot have this value.
    """
    name, colon, given = (text or EXACT).partition(":")
    if name == EXACT and not colon:
        return None
    if name != NAME:
        raise unknown(
            "index", name, (EXACT, NAME), then=f"Type exact, or e.g. {NAME}:nbits=4,n_ivf_probe=16."
        )
    found: dict[str, int] = {}
    for pair in filter(None, (part.strip() for part in given.split(","))):
        setting, _, value = (part.strip() for part in pair.partition("="))
        if setting in found:
            raise UsageError(
                f"The setting {setting} of {NAME} is given twice.", hint="Leave one of them out."
            )
        found[setting] = _value(setting, value)
    return Plaid(**found)


def _value(setting: str, value: str) -> int:
    if setting not in _SETTINGS:
        close = nearest(setting, _SETTINGS)
        near = f"Did you mean {' or '.join(close)}? " if close else ""
        has = ", ".join(f"{name}={number}" for name, number in asdict(Plaid()).items())
        raise UsageError(f"{NAME} has no setting {setting!r}.", hint=f"{near}It has: {has}.")
    number = int(value) if value.isascii() and value.isdigit() else -1
    if setting == "nbits":
        possible, wanted = number in _BITS, f"one of {', '.join(map(str, _BITS))}"
    else:
        possible = _LEAST[setting] <= number <= _LARGEST
        wanted = f"a whole number, {_LEAST[setting]} or more"
    if not possible:
        raise UsageError(f"The setting {setting} of {NAME} cannot be {value!r}.", hint=f"It is {wanted}.")
    return number


def index_option(settings: Mapping[str, Any]) -> str:
    """The shortest text that names a search with the settings of an identity.

    >>> index_option({"nbits": 2, "seed": 42}), index_option({})
    ('plaid:nbits=2', 'plaid')
    """
    usual = asdict(Plaid())
    changed = [
        f"{name}={settings[name]}" for name in _SETTINGS if settings.get(name, usual[name]) != usual[name]
    ]
    return f"{NAME}:{','.join(changed)}" if changed else NAME


def index_text(settings: Mapping[str, Any]) -> str:
    """The approximate search with the settings of an identity in a few words.

    >>> index_text(asdict(Plaid(seed=1)))
    'PLAID of 4 bits with 8 probes and 8192 full scores, seed 1'
    """
    usual = asdict(Plaid())
    others = [
        f"{name} {settings[name]}"
        for name in ("kmeans_niters", "max_points_per_centroid", "seed")
        if settings[name] != usual[name]
    ]
    main = f"PLAID of {settings['nbits']} bits with {settings['n_ivf_probe']} probes"
    return ", ".join([f"{main} and {settings['n_full_scores']} full scores", *others])


def require_library(devices: Sequence[str]) -> None:
    """Refuse a search by PLAID where fast-plaid is not there, or not for one of the devices.

    Raises:
        UsageError: The message says what to install or to type.
    """
    other = [device for device in devices if not device.startswith(("cpu", "cuda"))]
    if other:
        raise UsageError(
            f"fast-plaid searches on a CPU or on CUDA, not on {other[0]}.",
            hint="Type --devices cpu, or --index exact.",
        )
    try:
        import fast_plaid.search  # noqa: F401
    except (ImportError, OSError) as error:
        raise UsageError(
            f"--index {NAME} needs fast-plaid, which cannot be imported: {error}.",
            hint="`pip install fast-plaid` installs the build for this torch; or type --index exact.",
        ) from error


# The index on disk

MANIFEST = "manifest.json"
"""The file with an index's identity and the SHA-256 of its other files."""

_VARIABLE = ("plaid.lock", "merged_codes.manifest.json", "merged_residuals.manifest.json")
"""Files that fast-plaid may write anew when it opens an index."""

LEAST_DOCUMENTS = 20
"""The fewest documents of an index; in fewer, fast-plaid has too few vectors, and the search is exact."""

QUERIES_AT_ONCE = 256


@dataclass(frozen=True, kw_only=True)
class PlaidIndex:
    """An index on disk.

    Attributes:
        folder: Where it lies.
        settings: With which it is searched.
        places: Those of its documents among all documents, (documents with a vector,).
        partitions: The number of its centroids.
        was_there: Whether it was made before.
        device: The torch device of the search.
    """

    folder: Path
    settings: Plaid
    places: NDArray[np.int64]
    partitions: int
    was_there: bool
    device: str

    @property
    def nbytes(self) -> int:
        """The bytes of its files."""
        return sum(path.stat().st_size for path in self.folder.iterdir() if path.is_file())

    @staticmethod
    def of(
        space: Space,
        documents: Sequence[str],
        settings: Plaid,
        *,
        cache: Path,
        device: str,
        building: Callable[[], None] = lambda: None,
    ) -> PlaidIndex:
        """The index of the documents that have a vector; it is made unless it is there and whole.

        Args:
            space: The vectors of the documents.
            documents: Their texts.
            settings: The settings of the index and its search.
            cache: The cache folder.
            device: A torch device.
            building: Called before an index is made.

        Raises:
            DataError: A vector is not finite, or fast-plaid cannot make an index of them.
            StoreError: The index cannot be written.
        """
        import numpy as np

        places = np.flatnonzero(space.token_counts(documents))
        texts = [documents[at] for at in places.tolist()]
        identity = _identity(space, texts, settings)
        folder = cache / NAME / digest(identity)
        was_there = folder.exists() and not index_problem(folder, cache)
        if not was_there:
            building()
            shutil.rmtree(folder, ignore_errors=True)
            _make(folder, identity, space, texts, settings, device)
        return PlaidIndex(
            folder=folder,
            settings=settings,
            places=places,
            partitions=len(np.load(folder / "centroids.npy", mmap_mode="r")),
            was_there=was_there,
            device=device,
        )

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
        import numpy as np

        found: list[Any] = [(np.zeros(0, np.int64), np.zeros(0, np.float32))] * len(queries)
        with _guarded("search"), _library(self.folder, self.device) as index:
            for rows in _equally_long(queries.lengths):
                answers = index.search(
                    _stacked(queries, rows),
                    top_k=min(k, len(self.places)),
                    n_full_scores=self.settings.n_full_scores,
                    n_ivf_probe=min(self.settings.n_ivf_probe, self.partitions),
                    n_processes=threads,
                    show_progress=False,
                )
                for row, answer in zip(rows.tolist(), answers, strict=True):
                    found[row] = self._ordered(answer)
                progress(len(rows))
        return found

    def _ordered(self, answer: Sequence[tuple[int, float]]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The places and scores of an answer, best first."""
        import numpy as np

        places = self.places[np.array([number for number, _ in answer], np.int64)]
        scores = np.array([score for _, score in answer], np.float32)
        order = np.lexsort((places, -scores))
        return places[order], scores[order]


def _identity(space: Space, texts: Sequence[str], settings: Plaid) -> dict[str, Any]:
    from importlib.metadata import version

    known = asdict(settings)
    return {
        "vectors": space.identity,
        "documents": hashlib.sha256(space.text_keys(texts).tobytes()).hexdigest(),
        "count": len(texts),
        "settings": {name: known[name] for name in _OF_INDEX},
        "library": f"fast-plaid {version('fast-plaid')}",
    }


def _make(
    folder: Path,
    identity: Mapping[str, Any],
    space: Space,
    texts: Sequence[str],
    settings: Plaid,
    device: str,
) -> None:
    """Make an index in a temporary folder and rename it, unless another process has been faster."""
    work = files.temporary_folder(folder)
    try:
        with _guarded("index"):
            _build(work, space, texts, settings, device)
        sums = {path.name: files.sha256_file(path) for path in _steady(work)}
        content = canonical({"identity": identity, "files": sums}).encode()
        (work / MANIFEST).write_bytes(content)
        for path in work.iterdir():
            files.sync(path)
        try:
            files.move(work, folder)
        except StoreError:
            if index_problem(folder, None):  # another process has not made it either
                raise
    except OSError as error:
        raise files.write_error(folder, error) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _build(work: Path, space: Space, texts: Sequence[str], settings: Plaid, device: str) -> None:
    """An index of the vectors; the samples of k-means are drawn by torch's own generator, seeded here."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # parts of files cannot be written, and are not
        vectors = [torch.from_numpy(one) for one in space.token_views(texts)]
    gpus = [torch.device(device).index or 0] if device.startswith("cuda") else []
    with torch.random.fork_rng(devices=gpus), _library(work, device) as index:
        torch.manual_seed(settings.seed)
        index.create(
            vectors,
            nbits=settings.nbits,
            kmeans_niters=settings.kmeans_niters,
            max_points_per_centroid=settings.max_points_per_centroid,
            seed=settings.seed,
            use_triton_kmeans=False,  # its sums differ from run to run
            start_from_scratch=0,  # no second copy of the vectors
        )


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
        reason = str(error).splitlines()[0][:200]
        raise DataError(
            f"fast-plaid failed to {what} these vectors: {reason}.",
            hint="--index exact searches them without it.",
        ) from error


def _equally_long(lengths: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Blocks of queries with as many tokens each, so that none is filled up; none of those without one."""
    import numpy as np

    for length in np.unique(lengths[lengths > 0]):
        rows = np.flatnonzero(lengths == length)
        yield from (rows[start : start + QUERIES_AT_ONCE] for start in range(0, len(rows), QUERIES_AT_ONCE))


def _stacked(queries: TokenVectors, rows: NDArray[np.int64]) -> Any:
    """The vectors of queries with as many tokens each: (queries, tokens, dimension)."""
    import torch

    part = queries.take(rows)
    return torch.from_numpy(part.vectors.reshape(len(rows), -1, part.vectors.shape[1]))


def _steady(folder: Path) -> list[Path]:
    """The files of an index that never change."""
    names = (*_VARIABLE, MANIFEST)
    return sorted(path for path in folder.iterdir() if path.is_file() and path.name not in names)


def index_problem(folder: Path, cache: Path | None) -> str:
    """What is wrong with an index, empty if nothing: its identity, which is its name, or a file of it.

    With `cache` hashes are computed once for a file's size, times and inode.
    """
    try:
        known = json.loads((folder / MANIFEST).read_bytes())
        if digest(known["identity"]) != folder.name:
            return "it is an index of other documents or settings"
        for name, sha256 in known["files"].items():
            if not files.has_sha256(folder / name, sha256, cache):
                return f"{name} is not what was written"
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return "it is not whole"
    return ""


def drop_indexes(cache: Path, artifact_key: str) -> int:
    """Remove the indexes of a model's vectors; returns the bytes of their files."""
    mine = [path for path in (cache / NAME).glob("*") if index_artifact(path) == artifact_key]
    freed = sum(path.stat().st_size for folder in mine for path in folder.iterdir())
    for folder in mine:
        shutil.rmtree(folder, ignore_errors=True)
    return freed


def index_artifact(folder: Path) -> str:
    """The ArtifactKey of the model whose vectors are in an index; empty if it is damaged or gone."""
    try:
        return str(json.loads((folder / MANIFEST).read_bytes())["identity"]["vectors"]["artifact"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def index_bytes(tokens: int, dimension: int, settings: Plaid) -> int:
    """The bytes that an index of so many token vectors takes, at most.

    The centroid of each token (8 bytes) and its rest are there twice, in parts and joined, and its document
    at most once in the list of the centroid.
    """
    centroids = 2 ** math.floor(math.log2(16 * math.sqrt(tokens))) if tokens else 0
    return tokens * (2 * (8 + dimension * settings.nbits // 8) + 8) + centroids * (2 * dimension + 16)


# Its recall

SAMPLE = 100
"""The queries whose exact results are computed, at most."""

AT = 10
"""The recall is that of so many documents."""

_NORMAL = 1.959964
"""The normal distribution's 97.5 % quantile."""


@dataclass(frozen=True, kw_only=True)
class Recall:
    """The share of the exact best documents that an approximate search has among its best.

    Attributes:
        value: The mean over the sampled queries.
        low, high: Its 95 % interval for the mean over all queries; without width if all are sampled.
        sampled: The number of sampled queries.
        queries: The number of all.
    """

    value: float
    low: float
    high: float
    sampled: int
    queries: int

    @staticmethod
    def of(shares: Sequence[float], queries: int) -> Recall:
        """The recall from those of queries that were drawn without replacement.

        The interval is Wilson's, for as many queries as have the same variance in draws of 0 and 1, and with
        the correction for a finite population. To the variance a query is added that is a half below the
        mean: a sample in which nearly every query has all documents says little of the rare others.

        >>> Recall.of([1.0, 0.5], 2)
        Recall(value=0.75, low=0.75, high=0.75, sampled=2, queries=2)
        """
        count = len(shares)
        mean = math.fsum(shares) / count
        if count >= queries:
            return Recall(value=mean, low=mean, high=mean, sampled=count, queries=queries)
        more = [*shares, max(0.0, mean - 0.5)]
        centre = math.fsum(more) / len(more)
        variance = math.fsum((one - centre) ** 2 for one in more) / count
        gain = min(AT, max(1.0, mean * (1 - mean) / variance)) if variance else 1.0
        low, high = _wilson(mean, gain * count * (queries - 1) / (queries - count))
        return Recall(value=mean, low=low, high=high, sampled=count, queries=queries)

    @property
    def text(self) -> str:
        """The recall in words.

        >>> Recall(value=0.957, low=0.94, high=0.9712, sampled=100, queries=300).text
        'recall@10 against exact search 0.957 (95 % interval 0.940 to 0.971, from 100 of 300 queries)'
        """
        told = f"recall@{AT} against exact search {self.value:.3f}"
        if self.sampled == self.queries:
            return f"{told} (of all {self.queries} queries)"
        bounds = f"95 % interval {self.low:.3f} to {self.high:.3f}"
        return f"{told} ({bounds}, from {self.sampled} of {self.queries} queries)"


def _wilson(mean: float, count: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share in so many draws."""
    square = _NORMAL**2
    centre = (mean + square / (2 * count)) / (1 + square / count)
    half = _NORMAL / (1 + square / count) * math.sqrt(mean * (1 - mean) / count + square / (4 * count**2))
    return max(0.0, centre - half), min(1.0, centre + half)


def sampled_queries(count: int) -> NDArray[np.int64]:
    """The places of at most `SAMPLE` of the queries, drawn without replacement, in order."""
    import numpy as np

    return np.sort(np.random.default_rng(SEED).permutation(count)[:SAMPLE])


def shares_found(exact: Sequence[Sequence[int]], approximate: Sequence[Sequence[int]]) -> list[float]:
    """For each query the share of the exact documents among the approximate ones; 1 where there is none.

    >>> shares_found([[1, 2], []], [[2, 3], []])
    [0.5, 1.0]
    """
    pairs = zip(exact, approximate, strict=True)
    return [len({*best} & {*near}) / len(best) if len(best) else 1.0 for best, near in pairs]
