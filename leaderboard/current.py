"""Pages of an index that others bring up to date, too: a page is made of one version of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from leaderboard.queries import Stale

if TYPE_CHECKING:
    from leaderboard.site import Site

Result = TypeVar("Result")

TRIES = 4


def current(site: Site, make: Callable[[], Result]) -> Result:
    """What `make` gives; where the index changed meanwhile, once more with the new one.

    Raises:
        Stale: It changed each time.
    """
    for _ in range(TRIES - 1):
        try:
            return make()
        except Stale:
            site.refresh()
    return make()
