"""No network; datasets' cache by content.

Keeping a process off the network.

Where the datasets library keeps what it prepares from a local folder.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import DataError

if TYPE_CHECKING:
    import socket


VARIABLES = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")
"""Read by the hub's libraries when they are imported, here and in child processes."""

CONSTANTS = (
    ("huggingface_hub.constants", "HF_HUB_OFFLINE"),
    ("datasets.config", "HF_HUB_OFFLINE"),
    ("datasets.config", "HF_DATASETS_OFFLINE"),
    ("transformers.utils.hub", "_is_offline_mode"),
)
"""Where those libraries keep what they read, so that a late call still counts."""


def forbid_network() -> ExitStack:
    """Keep this process off the network from now on; loopback and Unix sockets stay open.

    The hub's libraries are told to work offline, whether already imported or not. Besides,
    every look-up of a name and every connection that Python code tries raises DataError. Code
    that brings its own sockets (compiled libraries) and child processes see the variables only.

    Returns:
        What undoes it: `with forbid_network(): …`, or `.close()`. To stay offline for good,
        let it go.
    """
    import socket

    undo = ExitStack()
    for variable in VARIABLES:
        _set_variable(undo, variable, "1")
    for module, name in CONSTANTS:
        if hasattr(sys.modules.get(module), name):
            _swap(undo, sys.modules[module], name, True)
    for method in ("connect", "connect_ex", "sendto"):
        _swap(undo, socket.socket, method, _guard_socket(getattr(socket.socket, method)))
    for function in ("getaddrinfo", "gethostbyname"):
        _swap(undo, socket, function, _guard_lookup(getattr(socket, function)))
    return undo


def _swap(undo: ExitStack, target: object, name: str, value: object) -> None:
    """Set an attribute until `undo` is closed."""
    undo.callback(setattr, target, name, getattr(target, name))
    setattr(target, name, value)


def _set_variable(undo: ExitStack, name: str, value: str) -> None:
    before = os.environ.get(name)
    if before is None:
        undo.callback(os.environ.pop, name, None)
    else:
        undo.callback(os.environ.__setitem__, name, before)
    os.environ[name] = value


def _guard_socket(method: Callable[..., Any]) -> Callable[..., Any]:
    from socket import AF_INET, AF_INET6

    def guarded(self: socket.socket, *args: Any) -> Any:
        address = args[-1]
        if self.family in (AF_INET, AF_INET6) and isinstance(address, tuple):
            _refuse(address[0])
        return method(self, *args)

    return guarded


def _guard_lookup(function: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(host: Any, *args: Any, **kwargs: Any) -> Any:
        _refuse(host)
        return function(host, *args, **kwargs)

    return guarded


def _refuse(host: Any) -> None:
    name = host.decode(errors="replace") if isinstance(host, bytes) else str(host or "localhost")
    if not _is_local(name):
        raise DataError(
            f"Offline, and something tried to reach {name}.",
            hint="What is not on this machine must be pulled first, or leave out --offline.",
        )


def _is_local(name: str) -> bool:
    import ipaddress

    if name == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None) or address
    return bool(mapped.is_loopback or mapped.is_unspecified)


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
            _swap(undo, datasets.config, name, place)
        yield folder
