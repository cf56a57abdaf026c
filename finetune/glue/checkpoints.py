"""The weights of MNLI runs that others start from: of each grid the best so far, in the cache.

A worker writes them itself: they are a cache, made again where they are gone, and too large to be
sent to the driver.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import files

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """The folder of them, `<cache>/finetuned`."""

    folder: Path

    def path(self, key: str) -> Path:
        """Where the weights of a run lie, or would."""
        return self.folder / f"{key}.safetensors"

    def offer(self, group: str, key: str, watched: float, tensors: dict[str, Tensor]) -> None:
        """Keep the weights of a run unless a better one of its grid is there; remove those of worse ones.

        Runs that are equally good are all kept, as the first of the grid is chosen, not of the day.

        Raises:
            StoreError: The cache cannot be written.
        """
        from filelock import FileLock
        from safetensors.torch import save

        files.writable(self.folder)
        state = self.folder / f"{group}.json"
        with FileLock(self.folder / f".{group}.lock"):
            held: dict[str, Any] = {"watched": -math.inf, "keys": []}
            if state.exists():
                held = json.loads(state.read_text())
            if watched < held["watched"]:
                return
            files.replace(self.path(key), save({n: t.cpu().contiguous() for n, t in tensors.items()}))
            keys = [*held["keys"], key] if watched == held["watched"] else [key]
            files.replace(state, json.dumps({"watched": watched, "keys": sorted(set(keys))}).encode())
            for old in set(held["keys"]) - set(keys):
                self.path(old).unlink(missing_ok=True)

    def forget(self, group: str) -> None:
        """Let the next run of a grid be the best so far, whatever was there."""
        (self.folder / f"{group}.json").unlink(missing_ok=True)

    def load(self, key: str) -> dict[str, Tensor]:
        """The weights of a run, on the CPU."""
        from safetensors.torch import load_file

        return load_file(self.path(key))
