"""Claims on work in progress, so that two processes on one results folder share it out.

A lease is a small file that names its holder and when it expires. A holder that lives renews
it; one that died loses it at once on the same machine, and after its term elsewhere. Leases only
save work: records are put if absent, so even a lease lost in a race corrupts nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import threading
import time
from pathlib import Path
from typing import Any

from harness import files

TERM = 90.0
"""Seconds a lease holds without being renewed."""


class Leases:
    """The claims this process holds in a folder; renewed in the background while any is held."""

    def __init__(self, folder: Path, *, term: float = TERM) -> None:
        self.folder = folder
        self.term = term
        self._token = secrets.token_hex(8)
        self._held: set[Path] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def claim(self, key: str) -> bool:
        """Take the lease on `key`; False if another living process holds it."""
        path = self.folder / f"{key}.json"
        for _ in range(3):
            if files.write_once(path, self._content()):
                with self._lock:
                    self._held.add(path)
                self._keep_renewing()
                return True
            holder = _read(path)
            if holder is None:
                continue
            if not self._lapsed(holder):
                return False
            _remove_exactly(path, holder)
        return False

    def release(self, key: str) -> None:
        """Give the lease on `key` back."""
        path = self.folder / f"{key}.json"
        with self._lock:
            self._held.discard(path)
            if self._is_mine(path):
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Give everything back and stop renewing."""
        self._stop.set()
        if self._thread:
            self._thread.join()
        for path in tuple(self._held):
            self.release(path.stem)

    def _content(self) -> bytes:
        holder = {"host": files.host(), "pid": os.getpid(), "token": self._token}
        return json.dumps({**holder, "expires": time.time() + self.term}).encode()

    def _is_mine(self, path: Path) -> bool:
        """False if this process slept through its term and another took the lease."""
        holder = _read(path)
        return holder is not None and holder.get("token") == self._token

    @staticmethod
    def _lapsed(holder: dict[str, Any]) -> bool:
        if float(holder.get("expires", 0)) < time.time():
            return True
        return holder.get("host") == files.host() and not files.alive(int(holder.get("pid", 0)))

    def _keep_renewing(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._renew, name="leases", daemon=True)
            self._thread.start()

    def _renew(self) -> None:
        while not self._stop.wait(self.term / 4):
            with self._lock:
                for path in self._held:
                    with contextlib.suppress(Exception):
                        if self._is_mine(path):
                            files.replace(path, self._content())


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _remove_exactly(path: Path, holder: dict[str, Any]) -> None:
    """Remove the lease only if it is still the one that was read: of two takers one succeeds."""
    aside = path.with_name(f".{path.name}.{files.host()}-{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        path.rename(aside)
    except FileNotFoundError:
        return
    if _read(aside) != holder:
        with contextlib.suppress(FileExistsError):
            os.link(aside, path)
    aside.unlink(missing_ok=True)
