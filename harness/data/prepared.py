"""Where the datasets library keeps what it prepares from a local folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from harness.data.offline import swap


@contextmanager
def no_bars() -> Iterator[None]:
    """Keep the progress bars of the datasets library off the terminal."""
    import datasets

    hidden = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if not hidden:
            datasets.enable_progress_bars()


@contextmanager
def datasets_cache(content: str, cache: Path) -> Iterator[Path]:
    """While loading from a local folder, keep what is prepared under the folder's content.

    The datasets library knows a local file by its path and time only (an unpacked one by its
    path only), so a folder whose content changed could be answered with rows of the old one.
    The setting is this process's own: load one data set at a time.

    Args:
        content: The data set's content hash or proven revision.
        cache: This program's cache folder.

    Yields:
        The folder in use, `<cache>/datasets/<start of content>`.
    """
    import datasets.config

    start = re.sub(r"[^\w.-]", "_", content.rpartition(":")[2])[:16]
    folder = cache / "datasets" / start
    downloads = folder / datasets.config.DOWNLOADED_DATASETS_DIR
    places = {
        "HF_DATASETS_CACHE": folder,
        "DOWNLOADED_DATASETS_PATH": downloads,
        "EXTRACTED_DATASETS_PATH": downloads / datasets.config.EXTRACTED_DATASETS_DIR,
    }
    with ExitStack() as undo:
        for name, place in places.items():
            swap(undo, datasets.config, name, place)
        yield folder
