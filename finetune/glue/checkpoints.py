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
    """The folder of them, with one for each grid: `<cache>/finetuned/<grid>/<run>.safetensors`."""

    folder: Path

    def find(self, key: str) -> Path | None:
        """Where the weights of a run lie, whichever grid it was made for."""
        return next(iter(sorted(self.folder.glob(f"*/{key}.safetensors"))), None)

    def offer(self, group: str, key: str, watched: float, tensors: dict[str, Tensor]) -> None:
        """Keep the weights of a run unless a better one of its grid is there; remove those of worse ones.

        Runs that are equally good are all kept, as the first of the grid is chosen, not of the day.

        Raises:
            StoreError: The cache cannot be written.
        """
        from filelock import FileLock
        from safetensors.torch import save

        place = self.folder / group
        files.writable(place)
        with FileLock(place / ".lock"):
            held: dict[str, Any] = {"watched": -math.inf, "keys": []}
            if (place / "best.json").exists():
                held = json.loads((place / "best.json").read_text())
            if watched < held["watched"]:
                return
            content = save({n: t.cpu().contiguous() for n, t in tensors.items()})
            files.replace(place / f"{key}.safetensors", content)
            keys = {*held["keys"], key} if watched == held["watched"] else {key}
            told = {"watched": watched, "keys": sorted(keys)}
            files.replace(place / "best.json", json.dumps(told).encode())
            for old in set(held["keys"]) - keys:
                (place / f"{old}.safetensors").unlink(missing_ok=True)

    def forget(self, group: str) -> None:
        """Let the next run of a grid be the best so far, whatever was there."""
        (self.folder / group / "best.json").unlink(missing_ok=True)
