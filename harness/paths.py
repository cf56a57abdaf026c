"""Where things lie unless said otherwise."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(chosen: str | Path | None = None) -> Path:
    """The cache: --cache, else HARNESS_CACHE, else the user's cache folder."""
    from platformdirs import user_cache_path

    place = chosen or os.environ.get("HARNESS_CACHE")
    return Path(place).expanduser() if place else user_cache_path("encoder-harness", appauthor=False)


def results_folder(chosen: str | Path | None = None) -> Path:
    """The results folder: --results, else HARNESS_RESULTS, else `results` where one stands."""
    return Path(chosen or os.environ.get("HARNESS_RESULTS") or "results").expanduser()


def data_root(chosen: str | Path | None = None) -> Path | None:
    """The data root: --data, else HARNESS_DATA, else none."""
    place = chosen or os.environ.get("HARNESS_DATA")
    return Path(place).expanduser() if place else None


def reference_folder() -> Path | None:
    """The reference records that come with a checkout, if this is one."""
    folder = Path(__file__).parent.parent / "results" / "reference"
    return folder if folder.is_dir() else None
