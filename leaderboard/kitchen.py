"""Where pages are made: few at a time, so that those that are kept are sent meanwhile."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import cast

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from leaderboard.access.limits import group
from leaderboard.answers import pack
from leaderboard.kept import Kept, Made

AT_ONCE = 1
"""Pages made at one time: Python runs one thread at a time, and each more keeps the answers waiting."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Order:
    """A page that somebody waits for."""

    key: Hashable
    make: Callable[[], Made]
    done: asyncio.Future[Made]


class Kitchen:
    """Makes pages; who asks for one that is being made waits for it.

    Clients take turns: each has a row of its own, and the first of every row is made before the
    second of any. So one client with many slow pages keeps another waiting for one of them only.
    """

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self._ordered: dict[Hashable, _Order] = {}
        self._rows: OrderedDict[str, deque[_Order]] = OrderedDict()
        self._limiter: CapacityLimiter | None = None
        self._cooks: set[asyncio.Task[None]] = set()

    async def make(self, key: Hashable, make: Callable[[], Made], client: str) -> Made:
        """The page of this key, made in a thread with its compressed body when it is this client's turn."""
        order = self._ordered.get(key)
        if order is None:
            order = _Order(key=key, make=make, done=asyncio.get_running_loop().create_future())
            order.done.add_done_callback(_seen)
            self._ordered[key] = order
            self._rows.setdefault(group(client), deque()).append(order)
            self._go_on()
        return await asyncio.shield(order.done)

    def _go_on(self) -> None:
        """Begin with what is next, as far as there is room."""
        while self._rows and len(self._cooks) < AT_ONCE:
            client, row = self._rows.popitem(last=False)
            order = row.popleft()
            if row:
                self._rows[client] = row  # behind all others
            self._cooks.add(asyncio.ensure_future(self._cook(order)))

    async def _cook(self, order: _Order) -> None:
        try:
            order.done.set_result(await self._made(order))
        except asyncio.CancelledError:
            order.done.cancel()
            raise
        except Exception as error:
            order.done.set_exception(error)
        finally:
            self._ordered.pop(order.key, None)
            self._cooks.discard(cast(asyncio.Task[None], asyncio.current_task()))
            self._go_on()

    async def _made(self, order: _Order) -> Made:
        if self._limiter is None:
            self._limiter = CapacityLimiter(AT_ONCE)
        return await run_sync(
            lambda: self._kept.get_or_make(order.key, lambda: _packed(order.make())), limiter=self._limiter
        )


def _seen(done: asyncio.Future[Made]) -> None:
    """Look at what went wrong: those who waited for it may have gone."""
    if not done.cancelled():
        done.exception()


def _packed(made: Made) -> Made:
    pack(made, "br")
    return made
