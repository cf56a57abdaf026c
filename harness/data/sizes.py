"""How large data sets are on the hub, and sizes fit to read."""

from __future__ import annotations

from collections.abc import Sequence

from harness.data.huberrors import Unavailable, explained
from harness.data.needs import Need
from harness.errors import DataError


def remote_size(need: Need, *, timeout: float = 10.0) -> int:
    """How many bytes a data set has on the hub, hidden files left out.

    Raises:
        DataError: The hub cannot be reached, or does not have it.
    """
    from huggingface_hub import HfApi

    with explained(need, None):
        info = HfApi().dataset_info(need.path, revision=need.revision, files_metadata=True, timeout=timeout)
        visible = [s for s in info.siblings or [] if not s.rfilename.startswith(".")]
        return sum(sibling.size or 0 for sibling in visible)


def remote_sizes(wanted: Sequence[Need]) -> dict[Need, int]:
    """The sizes the hub tells; after the first sign that it cannot be reached no more is asked."""
    from concurrent.futures import ThreadPoolExecutor

    reachable = True

    def ask(need: Need) -> int | None:
        nonlocal reachable
        try:
            return remote_size(need, timeout=5) if reachable else None
        except Unavailable:
            reachable = False
        except DataError:
            pass
        return None

    with ThreadPoolExecutor(max_workers=8) as pool:
        asked = zip(wanted, pool.map(ask, wanted), strict=True)
        return {need: size for need, size in asked if size is not None}


def human_size(size: int | None) -> str:
    """Bytes in a unit fit to read, "?" if unknown.

    >>> human_size(None), human_size(999), human_size(1_250_000)
    ('?', '999 B', '1.2 MB')
    """
    if size is None:
        return "?"
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
