"""A PostgreSQL server that lives as long as a test."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = ("initdb", "postgres", "pg_isready")

USER = "postgres"
"""Whom the server runs as where the tests run as root: it does not start as root."""


def missing() -> str:
    """Why no server can be started here; empty where one can."""
    if binaries() is None:
        return "needs PostgreSQL's initdb and postgres (Debian: postgresql)"
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            return "needs setpriv to start PostgreSQL as another user than root"
        try:
            pwd.getpwnam(USER)
        except KeyError:
            return f"needs a user {USER!r}: PostgreSQL does not run as root"
    return ""


def binaries() -> Path | None:
    """Where the newest server's programs lie."""
    places = [Path(path) for path in os.environ.get("PATH", "").split(os.pathsep)]
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: -int(p.parent.name))
    return next((place for place in places if all((place / name).exists() for name in PROGRAMS)), None)


@contextmanager
def server() -> Iterator[str]:
    """A new server; gives the URL of its empty database.

    Its texts are ordered as people of a country order them, not by code points, so that a page that
    leaves its order to the database is found out.
    """
    home = binaries()
    assert home is not None
    with tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True) as folder:
        data = Path(folder) / "data"
        data.mkdir(mode=0o700)
        if os.geteuid() == 0:
            shutil.chown(folder, USER)
            shutil.chown(data, USER)
        _run([home / "initdb", "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync", *_order()])
        port = _free_port()
        settings = [
            "listen_addresses=127.0.0.1", f"port={port}", f"unix_socket_directories={folder}", "fsync=off",
            "full_page_writes=off", "synchronous_commit=off", "shared_buffers=32MB", "max_connections=30",
        ]  # fmt: skip
        options = [part for setting in settings for part in ("-c", setting)]
        with open(Path(folder) / "log", "w") as log:
            started = subprocess.Popen(
                _as_user([home / "postgres", "-D", data, *options]), stdout=log, stderr=log, cwd="/"
            )
        try:
            _wait(home, port, started)
            yield f"postgresql+psycopg://{USER}@127.0.0.1:{port}/postgres"
        finally:
            started.send_signal(signal.SIGINT)  # without waiting for those who are connected
            try:
                started.wait(20)
            except subprocess.TimeoutExpired:
                started.kill()
                started.wait()


def _order() -> list[str]:
    return ["--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en-US"]


def _wait(home: Path, port: int, started: subprocess.Popen[bytes]) -> None:
    for _ in range(200):
        ready = subprocess.run([home / "pg_isready", "-h", "127.0.0.1", "-p", str(port), "-q"], check=False)
        if ready.returncode == 0:
            return
        if started.poll() is not None:
            break
        try:
            started.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
    raise RuntimeError("PostgreSQL did not start")


def _run(command: Sequence[object]) -> None:
    done = subprocess.run(_as_user(command), capture_output=True, text=True, cwd="/", check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr}")


def _as_user(command: Sequence[object]) -> list[str]:
    plain = [str(part) for part in command]
    if os.geteuid() != 0:
        return plain
    known = pwd.getpwnam(USER)
    ids = [f"--reuid={known.pw_uid}", f"--regid={known.pw_gid}", "--clear-groups"]
    return ["setpriv", *ids, *plain]


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
