"""Cached vectors on disk, reused between tasks and runs.

A space holds the vectors of one (model, pooling, normalisation, length, dtype, prompt), so the two sides of a
task are never confused: their prompts differ, or a text has the same vector on both. Texts are identified by
their hash. A space is a folder of shards, safetensors files written in one step; each process adds its own,
and a text in two shards has the same vector in both. A shard is named by the hash of its content: one with
another content is removed on its first use in a process, and its texts are encoded again. A space of float16
rounds vectors before they are first used, so that a score does not depend on what was cached.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from safetensors.numpy import save

from harness import files
from harness.errors import DataError
from harness.identity import canonical, digest
from harness.types import Artifact, Encoding, Role

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32] | NDArray[np.float16]
    Shard = tuple[NDArray[np.void], Vectors]

KEY = np.dtype([("high", "<u8"), ("low", "<u8")])

DTYPES = {"F32": np.float32, "F16": np.float16}
"""The precisions of vectors in a shard, by their names in safetensors."""


def _space_folder(root: Path, identity: Mapping[str, object]) -> Path:
    name = digest(identity)
    return root / "vectors" / name[:2] / name


class Space:
    """The cached vectors of one space identity; `refresh` reads shards that other processes added."""

    def __init__(self, root: Path, identity: dict[str, object]) -> None:
        self.folder = _space_folder(root, identity)
        self.identity = identity
        self._root = root
        self._shards: set[Path] = set()
        self._high = np.empty(0, np.uint64)
        self._low = np.empty(0, np.uint64)
        self._place = np.empty((0, 2), np.int64)
        self._order: list[Vectors] = []
        self._paths: list[Path | None] = []
        self.refresh()

    def refresh(self) -> None:
        """Read the shards that were added since the last call; a damaged one is removed with a warning."""
        new = [p for p in sorted(self.folder.glob("*.safetensors")) if p not in self._shards]
        opened = {path: shard for path in new if (shard := self._open(path)) is not None}
        self._shards.update(opened)
        self._take_in([*opened.values()], [*opened])

    def _open(self, path: Path) -> Shard | None:
        """A shard that is what its name says; None if it is damaged or cannot be read."""
        problem = ""
        try:
            problem = shard_problem(path, self._root)
            if not problem:
                return _read_shard(path)
            path.unlink()
            _warn(f"{path} is damaged: {problem}. It is removed, and its texts are encoded again.")
        except FileNotFoundError:  # another process has removed it
            return None
        except OSError as error:
            self._shards.add(path)
            _warn(f"{path} cannot be used: {problem or error.strerror}. Its texts are encoded again.")
        return None

    def rounded(self, vectors: NDArray[np.float32]) -> Vectors:
        """Vectors in the precision of the space.

        Raises:
            DataError: A component is too large for float16.
        """
        if self.identity.get("vectors") != "float16":
            return vectors
        with np.errstate(over="ignore"):
            found = vectors.astype(np.float16)
        if np.isinf(found).any() and np.isfinite(vectors).all():
            raise DataError(
                "A vector has a component above 65,504, the largest number of float16.",
                hint="Leave out --vectors float16.",
            )
        return found

    def hold(self, keys: NDArray[np.void], vectors: Vectors) -> None:
        """Make vectors available in this process that the driver has yet to write."""
        self._take_in([(keys, vectors)], [None])

    def _take_in(self, shards: Sequence[Shard], paths: Sequence[Path | None]) -> None:
        if not shards:
            return
        highs, lows, places = [self._high], [self._low], [self._place]
        for keys, vectors in shards:
            highs.append(keys["high"])
            lows.append(keys["low"])
            rows = np.arange(len(keys), dtype=np.int64)
            places.append(np.column_stack([np.full(len(keys), len(self._order)), rows]))
            self._order.append(vectors)
        self._paths += paths
        high = np.concatenate(highs)
        by_high = np.argsort(high, kind="stable")
        self._high = high[by_high]
        self._low = np.concatenate(lows)[by_high]
        self._place = np.concatenate(places)[by_high]

    def missing(self, texts: Sequence[str]) -> list[str]:
        """The texts without a cached vector, each once, in order."""
        unique = list(dict.fromkeys(texts))
        known = self._find(Space.text_keys(unique)) >= 0
        return [t for t, k in zip(unique, known, strict=True) if not k]

    def get(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The vectors of `texts`, shape (len(texts), dimension).

        Raises:
            KeyError: A text has no cached vector.
            DataError: A cached vector is not finite.
        """
        found = self._find(Space.text_keys(texts))
        if (found < 0).any():
            raise KeyError(texts[int(np.argmax(found < 0))])
        places = self._place[found]
        dimension = self._order[0].shape[1] if self._order else 0
        out = np.empty((len(texts), dimension), np.float32)
        for shard in np.unique(places[:, 0]):
            here = places[:, 0] == shard
            out[here] = found_here = self._order[shard][places[here, 1]]
            if not np.isfinite(found_here).all():
                raise DataError(
                    f"A vector in {self._paths[shard] or 'memory'} is not finite.",
                    hint="`harness audit --repair` removes the file; its texts are encoded again then.",
                )
        return out

    def _find(self, keys: NDArray[np.void]) -> NDArray[np.int64]:
        if not len(self._high) or not len(keys):
            return np.full(len(keys), -1, np.int64)
        at = np.minimum(np.searchsorted(self._high, keys["high"]), len(self._high) - 1)
        hit = (self._high[at] == keys["high"]) & (self._low[at] == keys["low"])
        return np.where(hit, at, -1)

    @staticmethod
    def identity_of(
        artifact: Artifact, encoding: Encoding, *, prompt: str, role: Role = ""
    ) -> dict[str, object]:
        """The fields that a vector depends on besides the text; `role` is empty for models with one tower.

        Of a trained model also the weights, since its key says only how they were made.
        """
        return {
            "artifact": artifact.key,
            "output": encoding.output,
            "dtype": encoding.dtype,
            "pooling": encoding.pooling,
            "normalize": encoding.normalize,
            "max_length": encoding.max_length,
            "prompt": prompt,
            "role": role,
            **({"weights": artifact.weights} if artifact.trained else {}),
            **({"vectors": encoding.vectors} if encoding.vectors != "float32" else {}),
        }

    @staticmethod
    def text_keys(texts: Sequence[str]) -> NDArray[np.void]:
        """The 128-bit hash of each text, shape (len(texts),)."""
        joined = b"".join(
            hashlib.blake2b(t.encode("utf-8", "surrogatepass"), digest_size=16).digest() for t in texts
        )
        return np.frombuffer(joined, dtype=KEY)

    @staticmethod
    def shard_bytes(keys: NDArray[np.void], vectors: Vectors) -> bytes:
        """The content of a shard's file: hashes (n, 16) and vectors (n, dimension)."""
        hashes = np.ascontiguousarray(keys).view(np.uint8).reshape(len(keys), 16)
        return bytes(save({"keys": hashes, "vectors": np.ascontiguousarray(vectors)}))

    @staticmethod
    def write_shard(root: Path, identity: Mapping[str, object], content: bytes) -> None:
        """Write a shard (see `shard_bytes`); an equal shard is the same file, and a damaged one is replaced.

        Raises:
            StoreError: The shard cannot be written.
        """
        folder = _space_folder(root, identity)
        about = folder / "space.json"
        if not about.exists():
            files.write_once(about, canonical(identity).encode())
        path = folder / f"{hashlib.sha256(content).hexdigest()[:32]}.safetensors"
        if not files.write_once(path, content) and shard_problem(path, root):
            files.replace(path, content)


def drop_vectors(cache: Path, artifact_key: str) -> int:
    """Remove the cached vectors of a model, whatever its encoding; returns the bytes of their files.

    Args:
        cache: The cache folder.
        artifact_key: The ArtifactKey of the model.
    """
    freed = 0
    for about in sorted((cache / "vectors").glob("*/*/space.json")):
        if _space_artifact(about) != artifact_key:
            continue
        freed += sum(path.stat().st_size for path in about.parent.iterdir() if path.is_file())
        about.unlink(missing_ok=True)
        shutil.rmtree(about.parent, ignore_errors=True)
    return freed


def cached_models(cache: Path) -> frozenset[str]:
    """The ArtifactKeys of the models that have cached vectors."""
    return frozenset(map(_space_artifact, (cache / "vectors").glob("*/*/space.json"))) - {""}


def _space_artifact(about: Path) -> str:
    """The artifact of the space that a file describes; empty if it is damaged or gone."""
    try:
        return str(json.loads(about.read_bytes())["artifact"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def shard_problem(path: Path, cache: Path | None) -> str:
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


def shard_is_finite(path: Path) -> bool:
    """Whether all vectors of a whole shard are finite."""
    return bool(np.isfinite(_read_shard(path)[1]).all())


def _read_shard(path: Path) -> Shard:
    """The hashes and memory-mapped vectors of a shard.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is no shard, or not whole.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        header = file.read(min(length, size))
    try:
        layout = json.loads(header)
        keys, vectors = (
            np.memmap(
                path, dtype, "r", 8 + length + layout[name]["data_offsets"][0], tuple(layout[name]["shape"])
            )
            for name, dtype in (("keys", np.uint8), ("vectors", DTYPES[layout["vectors"]["dtype"]]))
        )
        if 8 + length + keys.nbytes + vectors.nbytes != size or keys.shape != (len(vectors), 16):
            raise ValueError
    except (ValueError, LookupError, TypeError, OverflowError) as error:
        raise ValueError("it is no shard of vectors, or not whole") from error
    return np.ascontiguousarray(keys).view(KEY).reshape(-1), vectors


def _warn(message: str) -> None:
    import logging

    logging.getLogger(__name__).warning("%s", message)
