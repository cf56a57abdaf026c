"""Approximate search by PLAID: its settings as a user types them, the names of indexes, and its recall.

An index (see harness.search.plaid_index) is a folder of the cache, named by the digest of what it is made
of. It lists the SHA-256 of its files; an index with a changed file is removed and made again.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core import files
from harness.core.arguments import join_settings, replace_settings, split_settings
from harness.core.encoding import Plaid
from harness.core.errors import UsageError, explain_unknown
from harness.core.keys import digest
from harness.core.types import SEED

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from harness.storage.vectors import EmbeddingCache, TokenVectors

NAME = "plaid"
"""The name of the search, before its settings, and of its part of the cache."""

EXACT, AUTO = "exact", "auto"

SCRIPT = "pylate-script"
"""The search of PyLate's script for BEIR, which keeps 20 documents of a query."""

KEEP_GIGABYTES = 64.0
"""The token vectors of a corpus with an index that are kept, unless told otherwise.

This is enough for about 1.4 million documents of 180 tokens at 128 dimensions. A disk has room for them, and
other settings and queries then need no further encoding; MS MARCO takes several times as much.
"""

OF_INDEX = ("nbits", "kmeans_niters", "max_points_per_centroid", "seed")
"""The settings that make an index; the others only search it."""


def parse_plaid(text: str) -> Plaid | None:
    """The settings of the search that a user types; None for an exact one, and for that of the task's size.

    >>> parse_plaid("exact"), parse_plaid("plaid:nbits=2,seed=1").nbits, parse_plaid("pylate-script").top_k
    (None, 2, 20)

    Raises:
        UsageError: There is no such search or setting, or it cannot have this value.
    """
    name, colon, settings_text = text.partition(":")
    if name in (AUTO, EXACT, SCRIPT) and not colon:
        return Plaid(top_k=20) if name == SCRIPT else None
    if name != NAME:
        names = (AUTO, EXACT, NAME, SCRIPT)
        raise explain_unknown(
            "index", name, names, then=f"Type exact, or e.g. {NAME}:nbits=4,n_ivf_probe=16."
        )
    return replace_settings(
        Plaid(), split_settings(settings_text, of=NAME), of=NAME, example=f"{NAME}:{{}}=VALUE"
    )


def format_index_option(settings: Mapping[str, Any]) -> str:
    """The shortest text that names a search with the settings of an identity.

    >>> format_index_option({"nbits": 2, "seed": 42}), format_index_option({})
    ('plaid:nbits=2', 'plaid')
    """
    return join_settings(NAME, settings, asdict(Plaid()))


def describe_index(settings: Mapping[str, Any]) -> str:
    """The approximate search with the settings of an identity in a few words.

    >>> describe_index(asdict(Plaid(seed=1)))
    'PLAID of 4 bits with 8 probes and 8192 full scores, seed 1'
    """
    usual = asdict(Plaid())
    others = [
        f"{name} {settings[name]}"
        for name in ("kmeans_niters", "max_points_per_centroid", "seed", "top_k")
        if settings.get(name) not in (usual[name], None)
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
            hint="Type pip install --force-reinstall 'encoder-harness[colbert]', or --index exact.",
        ) from error


# Indexes on disk

MANIFEST = "manifest.json"
"""The file with an index's identity and the SHA-256 of its other files."""

PART = ".part"
"""The end of the name of a folder in which an index is made."""


def find_index_problem(folder: Path, cache: Path | None) -> str:
    """What is wrong with an index, empty if nothing: its identity, which is its name, or a file of it.

    With `cache` hashes are computed once for a file's size, times and inode.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        if digest(manifest["identity"]) != folder.name:
            return "it is an index of other documents or settings"
        for name, sha256 in manifest["files"].items():
            if not files.has_sha256(folder / name, sha256, cache):
                return f"{name} is not what was written"
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return "it is incomplete"
    return ""


def drop_indexes(cache: Path, artifact_key: str) -> int:
    """Remove the indexes of a model's vectors; returns the bytes of their files."""
    # Half-made indexes, too: they have a manifest from the start.
    mine = [path for path in (cache / NAME).glob("*") if read_index_artifact(path) == artifact_key]
    freed = sum(path.stat().st_size for folder in mine for path in folder.rglob("*") if path.is_file())
    for folder in mine:
        shutil.rmtree(folder, ignore_errors=True)
    return freed


def read_index_artifact(folder: Path) -> str:
    """The ArtifactKey of the model whose vectors are in an index; empty if it is damaged or gone."""
    try:
        return str(json.loads((folder / MANIFEST).read_bytes())["identity"]["vectors"]["artifact"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def estimate_index_bytes(tokens: int, dimension: int, settings: Plaid) -> int:
    """The bytes that an index takes, at most.

    The centroid of each token (8 bytes) and its residual are stored twice, in parts and joined, and its
    document at most once in the list of the centroid.

    Args:
        tokens: The number of token vectors.
        dimension: Their dimension.
        settings: The settings of the index, with the bits of a residual.
    """
    # The number of centroids of ColBERTv2's index, which fast-plaid follows.
    centroids = 2 ** math.floor(math.log2(16 * math.sqrt(tokens))) if tokens else 0
    return tokens * (2 * (8 + dimension * settings.nbits // 8) + 8) + centroids * (2 * dimension + 16)


def sample_size(count: int) -> int:
    """The number of documents that fast-plaid's k-means sees in a corpus of `count`.

    >>> sample_size(5_183), sample_size(8_841_823)
    (5183, 521173)
    """
    # As in ColBERT's indexer, for documents of 120 tokens.
    return min(count, 1 + int(16 * math.sqrt(120 * count)))


class Corpus:
    """The documents of an index, whose token vectors are all in a space of the cache.

    Args:
        space: The space.
        texts: The documents.
        begin: Called when the vectors begin to be read, with what they are for.
        progress: Called with the number of documents done.
    """

    def __init__(
        self,
        space: EmbeddingCache,
        texts: Sequence[str],
        *,
        begin: Callable[[str], None] = lambda _use: None,
        progress: Callable[[int], None] = lambda _done: None,
    ) -> None:
        self.space = space
        self.texts = texts
        self._begin, self._progress = begin, progress

    def load_document_vectors(self, texts: Sequence[str]) -> list[NDArray[np.float16]]:
        """The vectors of some documents, each (tokens, dimension)."""
        return self.space.list_token_views(texts)

    def iter_part_vectors(self, parts: Sequence[Sequence[str]], use: str) -> Iterator[TokenVectors]:
        """The vectors of the documents of each part in turn; `use` tells the user what they are for."""
        self._begin(use)
        for part in parts:
            yield self._load_part_vectors(part)
            self._progress(len(part))

    def _load_part_vectors(self, part: Sequence[str]) -> TokenVectors:
        return self.space.get_tokens(part)


# Its recall

SAMPLE = 100
"""The queries whose exact results are computed, at most."""

AT = 10
"""The recall counts this many documents of a query."""

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
    def estimate_recall(shares: Sequence[float], queries: int) -> Recall:
        """The recall from those of queries that were drawn without replacement.

        The interval is Wilson's, for as many queries as have the same variance in draws of 0 and 1, and with
        the correction for a finite population. To the variance a query is added that is a half below the
        mean: a sample in which nearly every query has all documents says little of the rare others.

        >>> Recall.estimate_recall([1.0, 0.5], 2)
        Recall(value=0.75, low=0.75, high=0.75, sampled=2, queries=2)
        """
        count = len(shares)
        mean = math.fsum(shares) / count
        # Every query was sampled, so nothing is estimated.
        if count >= queries:
            return Recall(value=mean, low=mean, high=mean, sampled=count, queries=queries)
        # The query that is added, see above: without it, equal shares would have a variance of 0.
        more = [*shares, max(0.0, mean - 0.5)]
        centre = math.fsum(more) / len(more)
        variance = math.fsum((one - centre) ** 2 for one in more) / count
        gain = min(AT, max(1.0, mean * (1 - mean) / variance)) if variance else 1.0
        low, high = _compute_wilson_interval(mean, gain * count * (queries - 1) / (queries - count))
        return Recall(value=mean, low=low, high=high, sampled=count, queries=queries)

    @property
    def text(self) -> str:
        """The recall in words.

        >>> Recall(value=0.957, low=0.94, high=0.9712, sampled=100, queries=300).text
        'recall@10 against exact search 0.957 (95 % interval 0.940 to 0.971, from 100 of 300 queries)'
        """
        summary = f"recall@{AT} against exact search {self.value:.3f}"
        if self.sampled == self.queries:
            return f"{summary} (of all {self.queries} queries)"
        bounds = f"95 % interval {self.low:.3f} to {self.high:.3f}"
        return f"{summary} ({bounds}, from {self.sampled} of {self.queries} queries)"


def _compute_wilson_interval(mean: float, count: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share in so many draws."""
    square = _NORMAL**2
    centre = (mean + square / (2 * count)) / (1 + square / count)
    half = _NORMAL / (1 + square / count) * math.sqrt(mean * (1 - mean) / count + square / (4 * count**2))
    return max(0.0, centre - half), min(1.0, centre + half)


def sample_queries(count: int) -> NDArray[np.int64]:
    """The places of at most `SAMPLE` of the queries, drawn without replacement, in order."""
    import numpy as np

    return np.sort(np.random.default_rng(SEED).permutation(count)[:SAMPLE])


def compute_recall_shares(
    exact: Sequence[Sequence[int]], approximate: Sequence[Sequence[int]]
) -> list[float]:
    """For each query the share of the exact documents among the approximate ones; 1 where there is none.

    >>> compute_recall_shares([[1, 2], []], [[2, 3], []])
    [0.5, 1.0]
    """
    pairs = zip(exact, approximate, strict=True)
    return [len({*best} & {*near}) / len(best) if len(best) else 1.0 for best, near in pairs]
