"""Pages that were made, kept until the index changes; nobody makes one twice at the same time."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True, kw_only=True)
class Made:
    """A page as it is sent.

    Attributes:
        body: Its bytes.
        type: Its media type.
        status: 200, or what an error page has.
        plots: Whether it needs the rules of pages with interactive plots.
        route: The template of its path, for metrics.
        packed: The body in other encodings, filled in when they are first asked for.
    """

    body: bytes
    type: str
    status: int = 200
    plots: bool = False
    route: str = ""
    packed: dict[str, bytes] = field(default_factory=dict, compare=False)

    @cached_property
    def tag(self) -> str:
        """The ETag: a digest of the body."""
        return f'W/"{hashlib.sha256(self.body).hexdigest()[:20]}"'

    @property
    def size(self) -> int:
        """Bytes that keeping it takes."""
        return len(self.body) + sum(map(len, self.packed.values()))


NAMES = 5_000
"""Other names of pages that are kept at one time; the oldest one makes room for a new one."""

LONGEST = 300
"""Bytes of a query beyond which a page gets no name."""

Name = tuple[str, bytes]
"""A path and a query as they were asked for."""


class Kept:
    """Pages by key, the least lately used ones dropped when they take more than `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._pages: OrderedDict[Hashable, Made] = OrderedDict()
        self._making: dict[Hashable, threading.Lock] = {}
        self._names: dict[Name, Hashable] = {}
        self.round = 0
        self._lock = threading.Lock()

    def call(self, name: Name, key: Hashable, since: int) -> None:
        """Let a page be found by another name as well, until everything is forgotten.

        `since` is the `round` in which it was asked for: what is of a former one gets no name. Nor
        has a long query one: who asks for such a page finds it by its key.
        """
        if len(name[1]) > LONGEST:
            return
        with self._lock:
            if since == self.round:
                self._names[name] = key
                if len(self._names) > NAMES:
                    del self._names[next(iter(self._names))]

    def called(self, name: Name) -> Made | None:
        """The page of this other name, if it is kept."""
        key = self._names.get(name)
        return None if key is None else self.get(key)

    def get(self, key: Hashable) -> Made | None:
        """The page of this key, if it is kept."""
        with self._lock:
            if key in self._pages:
                self._pages.move_to_end(key)
            return self._pages.get(key)

    def get_or_make(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """The page of this key; of several callers one makes it and the others wait."""
        with self._lock:
            alone = self._making.setdefault(key, threading.Lock())
        try:
            with alone:
                found = self.get(key)
                if found is None:
                    found = make()
                    self._keep(key, found)
        finally:  # also where there is no such page: whoever asks for many of them fills no memory
            with self._lock:
                self._making.pop(key, None)
        return found

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self.round += 1
            self._pages.clear()
            self._names.clear()

    def _keep(self, key: Hashable, made: Made) -> None:
        with self._lock:
            self._pages[key] = made
            held = sum(page.size for page in self._pages.values())
            while held > self.limit and len(self._pages) > 1:
                held -= self._pages.popitem(last=False)[1].size
