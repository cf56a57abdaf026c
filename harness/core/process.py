"""A process: its start and end where libraries are heavy, and its being kept off the network."""

from __future__ import annotations

import atexit
import contextlib
import gc
import multiprocessing as mp
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from harness.core.errors import DataError


@contextmanager
def hold_collector() -> Iterator[None]:
    """Keep the garbage collector off imports.

    They make many objects and no garbage, which it would search again and again for a fifth of the time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def shorten_exit(codes: list[int]) -> None:
    """At the end of this process, end it with the code in `codes`, without Python's own finalization.

    That takes more than a second with torch and mteb, and frees what ends with the process anyway. Threads
    end before, and what `atexit` was given later than here. Without a code the process ends as usual.
    """
    atexit.register(_end_process, codes)


def _end_process(codes: list[int]) -> None:
    if codes:
        for stream in (sys.stdout, sys.stderr):
            # A stream may be None, closed, or a pipe whose reader has gone.
            with contextlib.suppress(AttributeError, OSError, ValueError):
                stream.flush()
        os._exit(codes[-1])


VARIABLES = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")
"""Environment variables that the hub's libraries read on import, here and in child processes."""

CONSTANTS = (
    ("huggingface_hub.constants", "HF_HUB_OFFLINE"),
    ("datasets.config", "HF_HUB_OFFLINE"),
    ("datasets.config", "HF_DATASETS_OFFLINE"),
    ("transformers.utils.hub", "_is_offline_mode"),
)
"""The constants in which those libraries store these variables, so that a late call still counts."""


def forbid_network(*, sockets: bool = True) -> ExitStack:
    """Block network access by Python code, except loopback; the hub's libraries go to offline mode.

    Without `sockets` nothing but those libraries is held back: the driver of a cluster has to reach it.
    """
    undo = ExitStack()
    for variable in VARIABLES:
        set_variable(undo, variable, "1")
    for module, name in CONSTANTS:
        if hasattr(sys.modules.get(module), name):
            _swap(undo, sys.modules[module], name, True)
    if not sockets:
        return undo
    # Names and addresses: a library may resolve a name first, or connect to an address that it knows.
    for method in ("connect", "connect_ex", "sendto"):
        _swap(undo, socket.socket, method, _guard(getattr(socket.socket, method), _find_socket_host))
    for function in ("getaddrinfo", "gethostbyname"):
        _swap(undo, socket, function, _guard(getattr(socket, function), lambda host, *_, **__: host))
    return undo


def set_variable(undo: ExitStack, name: str, value: str) -> None:
    """Set an environment variable, until the stack is closed.

    Args:
        undo: The stack.
        name: The variable.
        value: Its value.
    """
    before = os.environ.get(name)
    if before is None:
        undo.callback(os.environ.pop, name, None)
    else:
        undo.callback(os.environ.__setitem__, name, before)
    os.environ[name] = value


def _guard(function: Callable[..., Any], find_host: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which refuses a host of its arguments that is another machine; None is this one."""

    def call_locally(*args: Any, **kwargs: Any) -> Any:
        _refuse(find_host(*args, **kwargs))
        return function(*args, **kwargs)

    return call_locally


def _find_socket_host(self: socket.socket, *args: Any) -> Any:
    # The last argument: sendto has the bytes, and perhaps flags, before the address.
    address = args[-1]
    # Sockets of other families, such as AF_UNIX, stay on this machine.
    is_remote = self.family in (socket.AF_INET, socket.AF_INET6) and isinstance(address, tuple)
    return address[0] if is_remote else None


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
        # Behind % comes the interface of a link-local IPv6 address.
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    # ::ffff:127.0.0.1 is the loopback as a socket for both versions writes it; only IPv6 has the property.
    mapped = getattr(address, "ipv4_mapped", None) or address
    return bool(mapped.is_loopback or mapped.is_unspecified)


def _swap(undo: ExitStack, target: object, name: str, value: object) -> None:
    """Set an attribute until `undo` is closed."""
    undo.callback(setattr, target, name, getattr(target, name))
    setattr(target, name, value)


WORKER_NAME = "harness-worker"
"""The name of every worker process."""


UNGUARDED = 113
"""The exit code of a worker process that found itself repeating its user's script."""


def end_repetition() -> None:
    """End this process if it is a worker that runs its user's script again; its driver says why."""
    if mp.current_process().name == WORKER_NAME:
        os._exit(UNGUARDED)  # silently: whatever the script has written is written twice
