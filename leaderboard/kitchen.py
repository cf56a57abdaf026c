"""Where pages are made: few at a time, so that those that are kept are sent meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from leaderboard.answers import pack
from leaderboard.kept import Kept, Made

AT_ONCE = 1
"""Pages made at one time: Python runs one thread at a time, and each more keeps the answers waiting."""


class Kitchen:
    """Makes pages; who asks for one that is being made waits for it."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self._making: dict[Hashable, asyncio.Future[Made]] = {}
        self._limiter: CapacityLimiter | None = None

    async def make(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """The page of this key, made in a thread with its compressed body."""
        if key not in self._making:
            self._making[key] = asyncio.ensure_future(self._make(key, make))
        return await asyncio.shield(self._making[key])

    async def _make(self, key: Hashable, make: Callable[[], Made]) -> Made:
        if self._limiter is None:
            self._limiter = CapacityLimiter(AT_ONCE)
        try:
            return await run_sync(
                lambda: self._kept.get_or_make(key, lambda: _packed(make())), limiter=self._limiter
            )
        finally:
            del self._making[key]


def _packed(made: Made) -> Made:
    pack(made, "br")
    return made
