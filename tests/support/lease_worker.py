"""A process that claims leases, on a host and with a wall clock as told."""

from __future__ import annotations

import fcntl
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.storage.remote_and_leases import LEASE, TERM, Leases, Remote


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a worker is to be.

    Attributes:
        place: The folder of the leases, or the URL of object storage.
        term: Their term in seconds.
        host: What tells its host from others; empty for that of this machine.
        clock: Seconds by which its wall clock is wrong.
        keys: The number of keys to finish without being asked; 0 for one that does as it is told.
        witness: A folder in which the kernel's own locks show who works on what.
    """

    place: str
    term: float
    host: str = ""
    clock: float = 0.0
    keys: int = 0
    witness: str = ""


class Worker:
    """A worker in another process, told what to do line by line."""

    def __init__(self, settings: Settings) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self.process = subprocess.Popen(
            [sys.executable, __file__, json.dumps(asdict(settings))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def ask(self, method: str, *arguments: str) -> object:
        """The answer of a method of its `Leases`."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps([method, *arguments]) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def kill(self) -> None:
        """End it at once, with nothing released."""
        self.process.kill()
        self.process.communicate()


def dead_lease(folder: Path, key: str) -> Path:
    """The lease that a killed process of this host has left."""
    worker = Worker(Settings(place=str(folder), term=TERM))
    assert worker.ask("claim", key)
    worker.kill()
    return folder / f"{key}{LEASE}"


def _obey(held: Leases) -> None:
    for line in sys.stdin:
        method, *arguments = json.loads(line)
        print(json.dumps(getattr(held, method)(*arguments)), flush=True)


def _work(held: Leases, settings: Settings) -> None:
    """Finish all keys together with others; print each key that another living process works on as well."""
    witness = Path(settings.witness)
    open_keys = {f"{number:04x}" for number in range(settings.keys)}
    while open_keys:
        open_keys = {key for key in open_keys if not (witness / f"{key}.done").exists()}
        for key in random.sample(sorted(open_keys), len(open_keys)):
            if not (witness / f"{key}.done").exists() and held.claim(key):
                with (witness / f"{key}.lock").open("w") as lock:
                    _alone(lock.fileno(), key)
                    time.sleep(random.uniform(0, 0.06))
                    (witness / f"{key}.done").touch()
                held.release(key)
        time.sleep(0.02)


def _alone(lock: int, key: str) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(key, flush=True)


def main() -> None:
    """Be the worker that the first argument describes."""
    settings = Settings(**json.loads(sys.argv[1]))
    real: Callable[[], float] = time.time
    time.time = lambda: real() + settings.clock
    if settings.host:
        socket.gethostname = lambda: settings.host
    place = Remote(settings.place) if "://" in settings.place else Path(settings.place)
    held = Leases(place, term=settings.term)
    if settings.keys:
        _work(held, settings)
        held.release_leases()
    else:
        _obey(held)


if __name__ == "__main__":
    main()
