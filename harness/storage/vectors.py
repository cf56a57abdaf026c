"""Cached vectors on disk, reused between tasks and runs: one for each text, or one for each of its tokens.

A space holds the vectors of one (model, pooling, normalisation, length, dtype, prompt), so the two sides of a
task are never confused: their prompts differ, or a text has the same vector on both. Texts are identified by
their hash. A space is a folder of shards, safetensors files written in one step; each process adds its own,
and a text in two shards has the same vector in both. A shard is named by the hash of its content; one with
other content is removed on its first use in a process, and its texts are encoded again. A space of float16
rounds vectors before they are first used, so that a score does not depend on what was cached. Where each
token has a vector, a shard holds those of all tokens end to end, and where each text begins.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from harness.core import files
from harness.core.encoding import Encoding
from harness.core.errors import DataError, warn
from harness.core.keys import digest, serialize_canonical
from harness.core.types import Artifact, Role
from harness.storage.remote_and_leases import Remote

Vectors: TypeAlias = "NDArray[np.float32] | NDArray[np.float16]"

# A hash of 128 bits in two halves, as numpy has no larger integers; little-endian on every machine.
KEY = np.dtype([("high", "<u8"), ("low", "<u8")])

DTYPES = {"F32": np.float32, "F16": np.float16}
"""The precisions of vectors in a shard, by their names in safetensors."""


def round_to_half(vectors: Vectors) -> NDArray[np.float16]:
    """Vectors in float16; DataError if a component is too large for it."""
    # An overflow is told below, once, with what to do about it.
    with np.errstate(over="ignore"):
        half_vectors = vectors.astype(np.float16)
    # A model that gives infinite components is another error, which is reported when vectors are read.
    if np.isinf(half_vectors).any() and np.isfinite(vectors).all():
        raise DataError(
            "A vector has a component above 65,504, the largest number of float16.",
            hint="Leave out --vectors float16.",
        )
    return half_vectors


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenVectors:
    """The vectors of the tokens of several texts.

    Attributes:
        vectors: (tokens, dimension), one text after the other; float32, or float16 where they were rounded.
        offsets: (texts + 1,): text i has the vectors from offsets[i] to offsets[i + 1].
    """

    vectors: Vectors
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        """The number of texts."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of vectors of each text, (texts,)."""
        return np.diff(self.offsets)

    def select_text_vectors(self, text: int) -> Vectors:
        """The vectors of one text, (tokens, dimension)."""
        return self.vectors[self.offsets[text] : self.offsets[text + 1]]

    def take(self, texts: Sequence[int] | NDArray[np.int64]) -> TokenVectors:
        """The vectors of some texts, in this order."""
        chosen = np.asarray(texts, dtype=np.int64)
        lengths = self.lengths[chosen]
        rows = _compute_span_rows(self.offsets[chosen], lengths)
        return TokenVectors(vectors=self.vectors[rows], offsets=_compute_offsets(lengths))

    @property
    def nbytes(self) -> int:
        """The bytes of the vectors."""
        return self.vectors.nbytes

    @staticmethod
    def join(parts: Sequence[Vectors | TokenVectors]) -> TokenVectors:
        """The texts of several parts, one part after the other; a text of an array has one vector."""
        tokens = [TokenVectors.of(part) for part in parts]
        return TokenVectors(
            vectors=np.concatenate([part.vectors for part in tokens]),
            offsets=_compute_offsets(np.concatenate([part.lengths for part in tokens])),
        )

    @staticmethod
    def of(vectors: Vectors | TokenVectors) -> TokenVectors:
        """Vectors as those of tokens: of an array each row is the vector of the only token of a text."""
        if isinstance(vectors, TokenVectors):
            return vectors
        return TokenVectors(vectors=vectors, offsets=np.arange(len(vectors) + 1))


def _compute_offsets(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def _compute_span_rows(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places of several spans, one after the other.

    >>> _compute_span_rows(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Shard:
    """The hashes of some texts, (texts,), their vectors, and the file of both; None before it is written."""

    keys: NDArray[np.void]
    tokens: TokenVectors
    path: Path | None = None


def _resolve_space_folder(root: Path, identity: Mapping[str, object]) -> Path:
    name = digest(identity)
    return root / "vectors" / name[:2] / name


class EmbeddingCache:
    """The cached vectors of one space identity; `refresh` reads shards that other processes added."""

    def __init__(self, root: Path, identity: dict[str, object]) -> None:
        self.folder = _resolve_space_folder(root, identity)
        self.identity = identity
        self._root = root
        self._shards: set[Path] = set()
        self._high = np.empty(0, np.uint64)
        self._low = np.empty(0, np.uint64)
        self._place = np.empty((0, 3), np.int64)
        self._order: list[_Shard] = []
        self._held: dict[str, int] = {}
        self.refresh()

    def refresh(self) -> None:
        """Read the shards that were added since the last call; a damaged one is removed with a warning.

        One that was held in memory until it was written is read from its file from now on.
        """
        new = [p for p in sorted(self.folder.glob("*.safetensors")) if p not in self._shards]
        opened = {path: shard for path in new if (shard := self._open_shard(path)) is not None}
        self._shards.update(opened)
        for path in [path for path in opened if path.name in self._held]:
            self._order[self._held.pop(path.name)] = opened.pop(path)
        self._take_in([*opened.values()])

    def _open_shard(self, path: Path) -> _Shard | None:
        """A shard that is what its name says; None if it is damaged or cannot be read."""
        problem = ""
        try:
            problem = find_shard_problem(path, self._root)
            if not problem:
                return _read_shard(path)
            path.unlink()
            warn(f"{path} is damaged: {problem}. It is removed, and its texts are encoded again.")
        except FileNotFoundError:  # another process has removed it
            return None
        except OSError as error:
            # Not tried again: it would warn at each refresh.
            self._shards.add(path)
            warn(f"{path} cannot be used: {problem or error.strerror}. Its texts are encoded again.")
        return None

    def round_vectors(self, vectors: Vectors | TokenVectors) -> Vectors | TokenVectors:
        """Vectors in the precision of the space.

        Raises:
            DataError: A component is too large for float16.
        """
        if self.identity.get("vectors") != "float16":
            return vectors
        half_vectors = round_to_half(TokenVectors.of(vectors).vectors)
        if isinstance(vectors, TokenVectors):
            return TokenVectors(vectors=half_vectors, offsets=vectors.offsets)
        return half_vectors

    @staticmethod
    def join(parts: Sequence[Vectors | TokenVectors]) -> Vectors | TokenVectors:
        """The vectors of several parts of one kind, one part after the other."""
        joined = TokenVectors.join(parts)
        return joined if isinstance(parts[0], TokenVectors) else joined.vectors

    def hold(self, keys: NDArray[np.void], vectors: Vectors | TokenVectors, content: bytes) -> None:
        """Make vectors available in this process that the driver has yet to write.

        Args:
            keys: The hashes of their texts.
            vectors: The vectors.
            content: The file that will have them (see `serialize_shard`).
        """
        self._held[_format_shard_name(content)] = len(self._order)
        self._take_in([_Shard(keys=keys, tokens=TokenVectors.of(vectors))])

    def _take_in(self, shards: Sequence[_Shard]) -> None:
        if not shards:
            return
        places = [
            np.column_stack(
                [np.full(len(shard.keys), number), np.arange(len(shard.keys)), shard.tokens.lengths]
            )
            for number, shard in enumerate(shards, len(self._order))
        ]
        self._order += shards
        high = np.concatenate([self._high, *(shard.keys["high"] for shard in shards)])
        by_high = np.argsort(high, kind="stable")
        self._high = high[by_high]
        self._low = np.concatenate([self._low, *(shard.keys["low"] for shard in shards)])[by_high]
        self._place = np.concatenate([self._place, *places])[by_high]

    def find_missing_texts(self, texts: Sequence[str]) -> list[str]:
        """The texts without a cached vector, each once, in order."""
        unique = list(dict.fromkeys(texts))
        cached_mask = self._find(EmbeddingCache.hash_texts(unique)) >= 0
        return [t for t, k in zip(unique, cached_mask, strict=True) if not k]

    def get(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The vectors of `texts`, shape (len(texts), dimension).

        Raises:
            KeyError: A text has no cached vector.
            DataError: A cached vector is not finite.
        """
        return np.asarray(self._read_tokens(texts, np.float32).vectors, np.float32)

    def get_tokens(self, texts: Sequence[str]) -> TokenVectors:
        """The vectors of the tokens of `texts`, in the precision of the space.

        Raises:
            KeyError: A text has no cached vectors.
            DataError: A cached vector is not finite.
        """
        return self._read_tokens(texts)

    def _read_tokens(self, texts: Sequence[str], dtype: DTypeLike | None = None) -> TokenVectors:
        """The vectors of the tokens of `texts` in a precision; None for that of the space."""
        shards, rows, lengths = self._locate_texts(texts).T
        offsets = _compute_offsets(lengths)
        first = self._order[0].tokens.vectors if self._order else np.zeros((0, 0), np.float16)
        out = np.empty((int(offsets[-1]), first.shape[1]), dtype or first.dtype)
        # One shard after the other: its rows come from the memory map in one go.
        for number in np.unique(shards):
            here, shard = shards == number, self._order[number]
            starts = shard.tokens.offsets[rows[here]]
            vectors = shard.tokens.vectors[_compute_span_rows(starts, lengths[here])]
            _require_finite(shard, vectors)
            out[_compute_span_rows(offsets[:-1][here], lengths[here])] = vectors
        return TokenVectors(vectors=out, offsets=offsets)

    def list_token_views(self, texts: Sequence[str]) -> list[NDArray[np.float16]]:
        """The vectors of the tokens of each text in float16, each (tokens, dimension).

        In a space of float16 they are parts of its files, so that all of them need not fit into memory.

        Raises:
            KeyError: A text has no cached vectors.
            DataError: A cached vector is not finite.
        """
        views = []
        for number, row, _ in self._locate_texts(texts).tolist():
            text_vectors = self._order[number].tokens.select_text_vectors(row)
            _require_finite(self._order[number], text_vectors)
            views.append(text_vectors.astype(np.float16, copy=False))
        return views

    def count_token_vectors(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """The number of token vectors of each text, (texts,).

        Raises:
            KeyError: A text has no cached vectors.
        """
        return self._locate_texts(texts)[:, 2]

    def _locate_texts(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """The shard of each text, its row there, and the number of its tokens, (texts, 3)."""
        positions = self._find(EmbeddingCache.hash_texts(texts))
        if (positions < 0).any():
            raise KeyError(texts[int(np.argmax(positions < 0))])
        places: NDArray[np.int64] = self._place[positions]
        return places

    def _find(self, keys: NDArray[np.void]) -> NDArray[np.int64]:
        if not len(self._high) or not len(keys):
            return np.full(len(keys), -1, np.int64)
        # A key above all others is placed behind the last one, hence the minimum. Of keys with the same high
        # half only the first is compared: among 10^8 texts two share 64 bits with a chance of 0.03 %.
        positions = np.minimum(np.searchsorted(self._high, keys["high"]), len(self._high) - 1)
        hit = (self._high[positions] == keys["high"]) & (self._low[positions] == keys["low"])
        return np.where(hit, positions, -1)

    @staticmethod
    def build_space_identity(
        artifact: Artifact, encoding: Encoding, *, prompt: str, role: Role = "", context: str = ""
    ) -> dict[str, object]:
        """The fields that a vector depends on besides the text; `role` is empty for models with one tower.

        For a trained model also the weights, since its key says only how it was trained. For a multi-vector
        (ColBERT) model also the settings of the side; for a two-stage model the digest of its `context`.

        Args:
            artifact: The model.
            encoding: How it is applied.
            prompt: The text before each text.
            role: "query" or "document" for models that tell the two apart.
            context: The digest of the context of a two-stage model.
        """
        # Later fields appear only where they differ from the former default: older spaces keep their keys.
        return {
            "artifact": artifact.key,
            "output": encoding.output,
            "dtype": encoding.dtype,
            "pooling": encoding.pooling,
            "normalize": encoding.normalize,
            **_collect_side_settings(encoding, role),
            "prompt": prompt,
            "role": role,
            **({"weights": artifact.weights} if artifact.trained else {}),
            **({"vectors": encoding.vectors} if encoding.vectors != "float32" else {}),
            **({"context": context} if encoding.context is not None else {}),
            # The dynamic one depends on the length that was asked for, which may be that of another side.
            **({"rope_scaling": rope} if (rope := encoding.rope_scaling) else {}),
            **({"rope_length": encoding.max_length} if rope and rope.startswith("dynamic") else {}),
        }

    @staticmethod
    def hash_texts(texts: Sequence[str]) -> NDArray[np.void]:
        """The 128-bit hash of each text, shape (len(texts),)."""
        # Texts of data sets may hold half a surrogate pair, which plain UTF-8 refuses.
        joined = b"".join(
            hashlib.blake2b(t.encode("utf-8", "surrogatepass"), digest_size=16).digest() for t in texts
        )
        return np.frombuffer(joined, dtype=KEY)

    @staticmethod
    def serialize_shard(keys: NDArray[np.void], vectors: Vectors | TokenVectors) -> bytes:
        """The content of a shard's file: hashes (n, 16) and vectors (n, dimension).

        Of TokenVectors those of all tokens, and offsets (n + 1,).
        """
        from safetensors.numpy import save  # an audit works without it

        hashes = np.ascontiguousarray(keys).view(np.uint8).reshape(len(keys), 16)
        arrays: dict[str, NDArray[Any]] = {"keys": hashes, "vectors": TokenVectors.of(vectors).vectors}
        if isinstance(vectors, TokenVectors):
            arrays["offsets"] = vectors.offsets
        return bytes(save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))

    @staticmethod
    def write_shard(
        root: Path, identity: Mapping[str, object], content: bytes, remote: Remote | None = None
    ) -> None:
        """Write a shard (see `serialize_shard`); an equal one is the same file, a damaged one is replaced.

        With a remote it is sent there as well, so that workers elsewhere have it.

        Args:
            root: The cache folder.
            identity: The identity of the space (`build_space_identity`).
            content: The content of the file.
            remote: Object storage that gets a copy.

        Raises:
            StoreError: The shard cannot be written or sent.
        """
        folder = _resolve_space_folder(root, identity)
        # Before the first shard: `drop_vectors` finds a space by this file.
        about = folder / "space.json"
        if not about.exists():
            files.write_once(about, serialize_canonical(identity).encode())
        path = folder / _format_shard_name(content)
        if not files.write_once(path, content) and find_shard_problem(path, root):
            files.replace(path, content)
        if remote is not None:
            remote.replace(path.relative_to(root).as_posix(), content)

    def sync_shards(self, remote: Remote) -> None:
        """Fetch the shards of a remote that the cache lacks, send those that it lacks, and `refresh`.

        What is fetched counts only with the hash in its name; a damaged object is removed with a warning.

        Raises:
            StoreError: The remote cannot be read or written, or the cache not be written.
        """
        # The name of an object is the place of its file in the cache.
        space = self.folder.relative_to(self._root).as_posix()
        remote_sizes = {name: info.size for name, info in remote.list_objects(space).items()}
        here = {f"{space}/{path.name}": path for path in self.folder.glob("*.safetensors")}
        about = f"{space}/space.json"
        if about not in remote_sizes:
            remote.create(about, serialize_canonical(self.identity).encode())
        for name in sorted(remote_sizes.keys() - here.keys()):
            if name.endswith(".safetensors"):
                self._fetch(remote, name, remote_sizes[name])
        for name, path in here.items():
            # A name is the hash of the content, so an object of the same name and size need not be read.
            if remote_sizes.get(name) != path.stat().st_size and not find_shard_problem(path, self._root):
                remote.upload(name, path)
        self.refresh()

    def _fetch(self, remote: Remote, name: str, size: int) -> None:
        """Fetch a shard, once more if it comes damaged."""
        for _ in range(2):
            content = remote.read_object(name)
            if content is None:  # another process has removed it
                return
            if _format_shard_name(content) == PurePosixPath(name).name:
                self.write_shard(self._root, self.identity, content)
                return
        remote.remove(name)
        warn(f"{remote.url}/{name} was damaged, and is removed. Its texts are encoded again.")


def _format_shard_name(content: bytes) -> str:
    """The name of the file of a shard."""
    return f"{hashlib.sha256(content).hexdigest()[:32]}.safetensors"


def _collect_side_settings(encoding: Encoding, role: Role) -> dict[str, object]:
    """The settings of an encoding that the texts of one side depend on."""
    late = encoding.late_interaction
    if late is None:
        return {"max_length": encoding.max_length}
    if role == "query":
        expansion_settings = {"expansion": late.expansion, "attends_to_expansion": late.attends_to_expansion}
        return {"max_length": late.query_length, "prefix": late.query_prefix, **expansion_settings}
    return {"max_length": late.document_length, "prefix": late.document_prefix, "skiplist": late.skiplist}


def _require_finite(shard: _Shard, vectors: Vectors) -> None:
    if not np.isfinite(vectors).all():
        raise DataError(
            f"A vector in {shard.path or 'memory'} is not finite.",
            hint="`harness audit --repair` removes the file; its texts are encoded again then.",
        )


def drop_vectors(cache: Path, artifact_key: str) -> int:
    """Remove the cached vectors of a model, whatever its encoding; returns the bytes of their files.

    Args:
        cache: The cache folder.
        artifact_key: The ArtifactKey of the model.
    """
    freed = 0
    for about in sorted((cache / "vectors").glob("*/*/space.json")):
        if _read_space_artifact(about) != artifact_key:
            continue
        freed += sum(path.stat().st_size for path in about.parent.iterdir() if path.is_file())
        about.unlink(missing_ok=True)
        shutil.rmtree(about.parent, ignore_errors=True)
    return freed


def list_cached_models(cache: Path) -> frozenset[str]:
    """The ArtifactKeys of the models that have cached vectors."""
    return frozenset(map(_read_space_artifact, (cache / "vectors").glob("*/*/space.json"))) - {""}


def _read_space_artifact(about: Path) -> str:
    """The artifact of the space that a file describes; empty if it is damaged or gone."""
    try:
        return str(json.loads(about.read_bytes())["artifact"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def find_shard_problem(path: Path, cache: Path | None) -> str:
    """What is wrong with a shard, empty if nothing: its layout, or its hash, which is its name.

    With `cache` the hash is computed once for a file's size, times and inode.

    Raises:
        OSError: The file cannot be read.
    """
    try:
        _read_shard(path)
    except ValueError as error:
        return str(error)
    return "" if files.has_sha256(path, path.stem, cache) else "its content is not that of its name"


def is_finite_shard(path: Path) -> bool:
    """Whether all vectors of an undamaged shard are finite."""
    return bool(np.isfinite(_read_shard(path).tokens.vectors).all())


def _read_shard(path: Path) -> _Shard:
    """The hashes and memory-mapped vectors of a shard.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not a complete shard.
    """
    with path.open("rb") as file:
        # The form of safetensors: 8 bytes with the header's length, a JSON header, the arrays. A damaged
        # length may be any number, so no more than the file is read.
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        header = file.read(min(length, size))
    try:
        layout = json.loads(header)
        dtypes = {"keys": np.uint8, "vectors": DTYPES[layout["vectors"]["dtype"]], "offsets": np.int64}
        parts = {
            name: _map_array(path, dtype, 8 + length + layout[name]["data_offsets"][0], layout[name]["shape"])
            for name, dtype in dtypes.items()
            if name in layout
        }
        tokens, keys = TokenVectors.of(parts["vectors"]), parts["keys"]
        if "offsets" in parts:
            tokens = TokenVectors(vectors=parts["vectors"], offsets=parts["offsets"])
        # A file that was cut off still has its whole header; its size tells.
        whole = 8 + length + sum(part.nbytes for part in parts.values()) == size
        fits = keys.shape == (len(tokens), 16) and tokens.offsets[-1] == len(tokens.vectors)
        if not (whole and fits) or (tokens.lengths < 0).any():
            raise ValueError
    except (ValueError, LookupError, TypeError, OverflowError) as error:
        raise ValueError("it is not a complete shard of vectors") from error
    return _Shard(keys=np.ascontiguousarray(keys).view(KEY).reshape(-1), tokens=tokens, path=path)


def _map_array(path: Path, dtype: DTypeLike, start: int, shape: Sequence[int]) -> NDArray[Any]:
    """An array in a file; one without elements cannot be mapped."""
    return np.memmap(path, dtype, "r", start, tuple(shape)) if 0 not in shape else np.zeros(shape, dtype)
