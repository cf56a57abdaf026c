"""The weights of MNLI runs that others start from: of each grid the best so far, in the cache.

A worker writes them itself: they are a cache, made again where they are gone, and too large to be
sent to the driver.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness import files

if TYPE_CHECKING:
    from torch import Tensor


STATE = "best.json"
"""What the runs scored whose weights lie beside it."""


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """The folder of them, with one for each grid: `<cache>/finetuned/<grid>/<run>.safetensors`."""

    folder: Path

    def find(self, key: str, watched: float) -> Path | None:
        """Where the weights of a run lie that scored this: one made anew may score otherwise."""
        places = sorted(self.folder.glob(f"*/{key}.safetensors"))
        return next((path for path in places if _held(path.parent).get(key) == watched), None)

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
            others = {old: score for old, score in _held(place).items() if old != key}
            best = max([*others.values(), watched])
            kept = {old: score for old, score in others.items() if score == best}
            if watched == best:
                content = save({n: t.cpu().contiguous() for n, t in tensors.items()})
                files.replace(place / f"{key}.safetensors", content)
                kept[key] = watched
            files.replace(place / STATE, json.dumps(kept).encode())
            for path in place.glob("*.safetensors"):
                if path.stem not in kept:
                    path.unlink(missing_ok=True)

    def forget(self, group: str) -> None:
        """Let the next run of a grid be the best so far, whatever was there."""
        (self.folder / group / STATE).unlink(missing_ok=True)


def _held(place: Path) -> dict[str, float]:
    path = place / STATE
    found: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}
    return found
